#include "planner/partitioners/suffix_dp.hpp"

#include <algorithm>
#include <cstddef>

#include "core/check.hpp"
#include "planner/partitioners/suffix_classes.hpp"

namespace pipewright::planner {
namespace {

// One label per first layer (0..L) and number of devices (0..N).
class SuffixTable {
 public:
  SuffixTable(int layers, int devices) : columns_(at(devices) + 1), labels_((at(layers) + 1) * columns_, kNoPlan) {}

  std::int64_t* row(int layer) { return &labels_[at(layer) * columns_]; }
  const std::int64_t* row(int layer) const { return &labels_[at(layer) * columns_]; }
  std::int64_t reached() const {
    return std::ranges::count_if(labels_, [](std::int64_t label) { return label != kNoPlan; });
  }

 private:
  std::size_t columns_;
  std::vector<std::int64_t> labels_;
};

class SuffixSearch {
 public:
  explicit SuffixSearch(const SuffixProblem& problem)
      : stages_(problem),
        devices_(problem.devices),
        exactly_(problem.stages),
        limit_(problem.limit.value),
        buffered_(problem.buffered > 0),
        sizes_(problem.replicas) {
    PP_CHECK(devices_ >= 1 && exactly_ >= 0);
    PP_CHECK(std::ranges::is_sorted(sizes_) && (sizes_.empty() || sizes_.front() >= 1));
    if (sizes_.empty())
      for (int r = 1; r <= devices_; ++r)
        sizes_.push_back(r);
    while (!sizes_.empty() && sizes_.back() > devices_)
      sizes_.pop_back();
  }

  SuffixAnswer answer() {
    SuffixAnswer answer;
    const std::vector<SuffixTable> times =
        tables(exactly_, [](std::int64_t label, const Choice& choice) { return std::max(choice.time, label); });
    answer.states = -1;  // the empty plan behind the last layer
    for (const SuffixTable& table : times)
      answer.states += table.reached();
    const std::int64_t* const whole = times.back().row(0);
    const std::int64_t best = *std::min_element(whole + 1, whole + devices_ + 1);
    if (best == kNoPlan) {
      find_hungriest(answer);
      return answer;
    }
    answer.bottleneck = {best};
    // Fewest stages within the bottleneck. A label of another table is a number of stages.
    limit_ = best;
    const std::vector<SuffixTable> counts =
        tables(exactly_, [](std::int64_t label, const Choice&) { return label == kNoPlan ? kNoPlan : label + 1; });
    fill(answer, earliest_cuts(counts));
    return answer;
  }

  std::vector<SuffixAnswer> by_stages(int most, const std::vector<int>& devices) {
    most = std::min({most, stages_.layers(), devices_});
    const std::vector<SuffixTable> times =
        tables(most, [](std::int64_t label, const Choice& choice) { return std::max(choice.time, label); });
    std::vector<SuffixAnswer> answers;
    for (int q = 1; q <= most; ++q) {
      const std::int64_t* const whole = times[at(q)].row(0);
      const auto least = static_cast<int>(std::min_element(whole + 1, whole + devices_ + 1) - whole);
      if (whole[least] != kNoPlan) answers.push_back(way_back(times, q, least));
      for (const int n : devices)
        if (n != least && n >= 1 && n <= devices_ && whole[n] != kNoPlan) answers.push_back(way_back(times, q, n));
    }
    return answers;
  }

 private:
  // A stage on r devices, with n = first, first + step, .. last devices behind it: it fits, and takes this time.
  struct Choice {
    int r, first, step, last;
    std::int64_t time;
  };

  // Table q: of exactly q stages, 0 .. `exactly`; one table for any number when that is 0. `label(from, choice)` is
  // what a stage in front of a plan with that label gives; kNoPlan stays.
  template <class Label>
  std::vector<SuffixTable> tables(int exactly, const Label& label) const {
    std::vector<SuffixTable> list(exactly == 0 ? 1 : at(exactly) + 1, SuffixTable(stages_.layers(), devices_));
    list.front().row(stages_.layers())[0] = 0;
    for (int i = stages_.layers(); i-- > 0;)
      for (int j = i + 1; j <= stages_.layers(); ++j) {
        const bool longer_may_fit = each_that_fits(i, j, [&](const Choice& choice) {
          for (std::size_t q = exactly == 0 ? 0 : 1; q < list.size(); ++q) {
            const std::int64_t* const from = list[q == 0 ? 0 : q - 1].row(j);
            std::int64_t* const to = list[q].row(i) + choice.r;
            for (int n = choice.first; n <= choice.last; n += choice.step)
              to[n] = std::min(to[n], label(from[n], choice));
          }
        });
        if (!longer_may_fit) break;
      }
    return list;
  }

  // use(choice) for every way to put layers [i, j) on devices within the limit. False: no longer range fits, either.
  // Before and behind the stage enough devices are left for the work there within the limit.
  template <class Use>
  bool each_that_fits(int i, int j, const Use& use) const {
    const std::int64_t most = stages_.most_in_flight(i, j), compute = stages_.compute(i, j);
    if (!sizes_.empty() && ceil_div(compute, sizes_.back()) > limit_) return false;
    if (most == 0) return buffered_;
    for (const int r : sizes_) {
      const std::int64_t left = devices_ - r;
      if (ceil_div(compute, r) > limit_) continue;
      const bool any = j < stages_.layers() && (most - 1 >= left || most >= stages_.of_a_run(r));
      const std::int64_t by_memory = j == stages_.layers() ? 0 : any ? left : std::min(left, (most - 1) * r);
      const auto last = static_cast<int>(std::min(by_memory, left - fewest(0, i)));
      const int first = fewest(j, stages_.layers());
      for (int n = first; n < first + stages_.residues() && n <= last; ++n) {
        const std::int64_t time = stages_.time(i, j, r, n);
        if (time <= limit_) use(Choice{r, n, stages_.residues(), last, time});
      }
    }
    return true;
  }

  // Devices without which layers [i, j) do not pass within the limit.
  int fewest(int i, int j) const {
    if (i == j || limit_ == kNoPlan) return 0;
    const std::int64_t compute = stages_.compute_of(i, j);
    if (limit_ == 0) return compute == 0 ? 1 : devices_ + 1;
    return static_cast<int>(std::clamp<std::int64_t>(ceil_div(compute, limit_), 1, devices_ + 1));
  }

  // Table of what is behind a stage, when `left` stages of a plan (that one included) are to come.
  static const SuffixTable& behind(const std::vector<SuffixTable>& list, std::size_t left) {
    return list.size() == 1 ? list.front() : list[left - 1];
  }

  // The cuts of the plan with the fewest stages: first layers of all stages, and the end.
  std::vector<int> earliest_cuts(const std::vector<SuffixTable>& counts) const {
    const std::int64_t* const whole = counts.back().row(0);
    const std::int64_t fewest = *std::min_element(whole + 1, whole + devices_ + 1);
    std::vector<char> open(at(devices_) + 1);  // devices for what begins at the last cut
    for (int n = 1; n <= devices_; ++n)
      open[at(n)] = whole[n] == fewest ? 1 : 0;
    std::vector<int> cuts{0};
    for (std::int64_t left = fewest; left > 0; --left) {
      std::vector<char> next;
      int end = cuts.back();
      do {
        ++end;
        next.assign(at(devices_) + 1, 0);
        const std::int64_t* const row = behind(counts, at(left)).row(end);
        each_that_fits(cuts.back(), end, [&](const Choice& choice) {
          for (int n = choice.first; n <= choice.last; n += choice.step)
            if (open[at(n + choice.r)] != 0 && row[n] == left - 1) next[at(n)] = 1;
        });
      } while (std::ranges::find(next, 1) == next.end());
      cuts.push_back(end);
      open = next;
    }
    return cuts;
  }

  // Replicas for given cuts within the limit, the fewest devices first.
  void fill(SuffixAnswer& answer, const std::vector<int>& cuts) const {
    const std::size_t count = cuts.size() - 1;
    std::vector<std::vector<char>> works(count + 1, std::vector<char>(at(devices_) + 1));
    works[count][0] = 1;
    for (std::size_t k = count; k-- > 0;)
      each_that_fits(cuts[k], cuts[k + 1], [&](const Choice& choice) {
        for (int n = choice.first; n <= choice.last; n += choice.step)
          if (works[k + 1][at(n)] != 0) works[k][at(n + choice.r)] = 1;
      });
    int left = static_cast<int>(std::find(works[0].begin(), works[0].end(), 1) - works[0].begin());
    answer.devices = left;
    for (std::size_t k = 0; k < count; ++k) {
      int replicas = 0;
      each_that_fits(cuts[k], cuts[k + 1], [&](const Choice& choice) {
        const int n = left - choice.r;
        const bool here = n >= choice.first && n <= choice.last && (n - choice.first) % choice.step == 0;
        if (replicas == 0 && here && works[k + 1][at(n)] != 0) replicas = choice.r;
      });
      left -= replicas;
      answer.stages.push_back(stage(cuts[k], cuts[k + 1], replicas, left));
    }
  }

  // One plan of exactly q stages on n devices with the least bottleneck, read off the tables from the first stage on.
  SuffixAnswer way_back(const std::vector<SuffixTable>& times, int q, int devices) const {
    SuffixAnswer answer;
    const std::int64_t least = times[at(q)].row(0)[devices];
    answer.bottleneck = {least};
    answer.devices = devices;
    int begin = 0, left = answer.devices;
    for (int k = q; k > 0; --k) {
      const SuffixTable& rest = times[at(k) - 1];
      for (int end = begin + 1, found = 0; found == 0; ++end) {
        PP_CHECK(end <= stages_.layers());
        each_that_fits(begin, end, [&](const Choice& choice) {
          const int n = left - choice.r;
          const bool here = n >= choice.first && n <= choice.last && (n - choice.first) % choice.step == 0;
          if (found != 0 || !here || choice.time > least || rest.row(end)[n] > least) return;
          found = choice.r;
        });
        if (found == 0) continue;
        left -= found;
        answer.stages.push_back(stage(begin, end, found, left));
        begin = end;
      }
    }
    return answer;
  }

  SuffixStage stage(int begin, int end, int replicas, int devices_behind) const {
    const std::int64_t in_flight = stages_.in_flight(replicas, devices_behind);
    return {{begin, end},
            replicas,
            in_flight,
            {stages_.time(begin, end, replicas, devices_behind)},
            {stages_.memory(begin, end, in_flight)}};
  }

  // The same recursion with memory in the place of time, and no limit.
  void find_hungriest(SuffixAnswer& answer) const {
    std::vector<SuffixTable> needs(exactly_ == 0 ? 1 : at(exactly_) + 1, SuffixTable(stages_.layers(), devices_));
    needs.front().row(stages_.layers())[0] = 0;
    for (int i = stages_.layers(); i-- > 0;)
      for (int j = i + 1; j <= stages_.layers(); ++j)
        for (std::size_t q = exactly_ == 0 ? 0 : 1; q < needs.size(); ++q)
          relax_memory(i, j, needs[q == 0 ? 0 : q - 1].row(j), needs[q].row(i));
    const std::int64_t* const whole = needs.back().row(0);
    const std::int64_t* const least = std::min_element(whole + 1, whole + devices_ + 1);
    if (*least == kNoPlan) return;
    answer.missing = {std::max(*least - stages_.capacity(), std::int64_t{0})};
    int begin = 0, left = static_cast<int>(least - whole);
    for (std::size_t q = needs.size() - 1; !answer.hungriest; q -= exactly_ == 0 ? 0 : 1) {
      const SuffixTable& rest = exactly_ == 0 ? needs.front() : needs[q - 1];
      const SuffixStage next = [&] {
        for (int end = begin + 1; end <= stages_.layers(); ++end)
          for (const int r : sizes_) {
            if (r > left || rest.row(end)[left - r] > *least) continue;
            if (const SuffixStage found = stage(begin, end, r, left - r); found.memory.value <= *least) return found;
          }
        PP_CHECK(false);
        return SuffixStage{};
      }();
      if (next.memory.value == *least) answer.hungriest = next;
      begin = next.layers.end, left -= next.replicas;
    }
  }

  void relax_memory(int i, int j, const std::int64_t* from, std::int64_t* to) const {
    for (const int r : sizes_) {
      int n = 0;  // devices behind; up to r more of them put one more micro-batch in flight
      for (std::int64_t in_flight = 1; n + r <= devices_; ++in_flight) {
        const std::int64_t memory = stages_.memory(i, j, std::min(in_flight, stages_.of_a_run(r)));
        for (; n <= (in_flight - 1) * r && n + r <= devices_; ++n)
          if (from[n] != kNoPlan) to[n + r] = std::min(to[n + r], std::max(from[n], memory));
      }
    }
  }

  SuffixStages stages_;
  int devices_, exactly_;
  std::int64_t limit_;
  bool buffered_;  // then a longer range may need less
  std::vector<int> sizes_;
};

}  // namespace

SuffixAnswer suffix_dp(const SuffixProblem& problem) {
  return problem.others.empty() ? SuffixSearch(problem).answer() : suffix_dp_on_classes(problem);
}

std::vector<SuffixAnswer> suffix_dp_by_stages(const SuffixProblem& problem, int most_stages,
                                              const std::vector<int>& devices) {
  PP_CHECK(most_stages >= 1);
  return problem.others.empty() ? SuffixSearch(problem).by_stages(most_stages, devices)
                                : suffix_dp_on_classes_by_stages(problem, most_stages);
}

}  // namespace pipewright::planner
