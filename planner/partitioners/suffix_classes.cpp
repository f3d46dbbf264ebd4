#include "planner/partitioners/suffix_classes.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>

#include "core/check.hpp"
#include "core/folds.hpp"

namespace pipewright::planner {

SuffixProblem SuffixProblem::of_class(int device_class) const {
  SuffixProblem one = *this;
  one.others.clear();
  if (device_class == 0) return one;
  const SuffixClass& other = others[at(device_class) - 1];
  one.compute = other.compute, one.apart = other.apart, one.per_stage = other.per_stage;
  one.capacity = other.capacity, one.devices = other.devices;
  return one;
}

namespace {

// Every (n1, n2, n3) with nc of 0 .. Nc, numbered; adding r devices of class c adds r * stride(c).
class Counts {
 public:
  explicit Counts(const std::vector<int>& devices) : of_(devices.size()) {
    for (const int most : devices) {
      strides_.push_back(size_);
      size_ *= most + 1;
    }
    for (int n = 0; n < size_; ++n) {
      total_.push_back(0);
      for (std::size_t c = 0; c < devices.size(); ++c) {
        of_[c].push_back(n / strides_[c] % (devices[c] + 1));
        total_.back() += of_[c].back();
      }
    }
  }
  int size() const { return size_; }
  int stride(int c) const { return strides_[at(c)]; }
  int total(int n) const { return total_[at(n)]; }
  int of(int c, int n) const { return of_[at(c)][at(n)]; }

 private:
  int size_ = 1;
  std::vector<int> strides_, total_;
  std::vector<std::vector<int>> of_;
};

class ClassSearch {
 public:
  explicit ClassSearch(const SuffixProblem& problem)
      : classes_(problem.classes()),
        layers_(static_cast<int>(problem.compute.size())),
        exactly_(problem.stages),
        limit_(problem.limit.value),
        buffered_(problem.buffered > 0),
        two_levels_(problem.devices_per_node > 0 && problem.places == StagePlaces::Backwards),
        devices_(devices_of(problem)) {
    PP_CHECK(exactly_ >= 0);
    problems_.reserve(at(classes_)), stages_.reserve(at(classes_));
    least_compute_.assign(at(layers_) + 1, 0);
    for (int c = 0; c < classes_; ++c) {
      problems_.push_back(problem.of_class(c));
      PP_CHECK(problems_.back().devices >= 1 && problems_.back().compute.size() == at(layers_));
      stages_.emplace_back(problems_.back());
      sizes_.push_back(sizes_of(problem, devices_[at(c)]));
    }
    for (int i = 0; i < layers_; ++i) {
      auto least = least_over<std::int64_t>(
          stages_, [&](const SuffixStages& stages) { return stages.compute_of(i, i + 1); }, kNoPlan);
      least_compute_[at(i) + 1] = least_compute_[at(i)] + least;
    }
  }

  SuffixAnswer answer() {
    limit_ = std::min(limit_, bottleneck_of_few_sizes());
    SuffixAnswer answer;
    const std::vector<Table> times = tables(exactly_, larger);
    std::int64_t states = 0;
    for (const Table& table : times)
      states += std::ranges::count_if(table, [](std::int64_t label) { return label != kNoPlan; });
    const std::int64_t best = least(times.back()).first;
    if (best == kNoPlan) {
      find_hungriest(answer);
      return answer;
    }
    limit_ = best;
    const std::vector<Table> numbers = tables(exactly_, one_more);
    const auto [fewest, n] = least(numbers.back());
    answer = way_back(numbers, exactly_, n, [](std::int64_t rest, std::int64_t label) { return rest + 1 == label; });
    answer.bottleneck = {best};
    answer.states = states;
    return answer;
  }

  std::vector<SuffixAnswer> by_stages(int most) {
    most = std::min({most, layers_, counts_.total(counts_.size() - 1)});
    const std::vector<Table> times = tables(most, larger);
    std::vector<SuffixAnswer> answers;
    for (int q = 1; q <= most; ++q) {
      const auto [best, n] = least(times[at(q)]);
      if (best == kNoPlan) continue;
      const std::int64_t bound = best;
      answers.push_back(way_back(
          times, q, n, [bound](std::int64_t rest, std::int64_t) { return rest <= bound; }, bound));
      answers.back().bottleneck = {best};
    }
    return answers;
  }

 private:
  // Labels by first layer (0..L), kind and number of devices. Kinds, on two levels of links: c, the first stage is of
  // class c like the one in front of it; classes + c, of class c behind one of another class. Else one kind for all.
  using Table = std::vector<std::int64_t>;
  int kinds() const { return two_levels_ ? 2 * classes_ : 1; }
  int kind(int c, bool like_front) const { return !two_levels_ ? 0 : like_front ? c : classes_ + c; }
  std::size_t row(int layer, int of_kind) const {
    return at((std::int64_t{layer} * kinds() + of_kind) * counts_.size());
  }

  // With powers of two replicas alone, where there are many sizes: no plan above it needs to be looked at.
  std::int64_t bottleneck_of_few_sizes() {
    const std::vector<std::vector<int>> all = sizes_;
    std::size_t before = 0, now = 0;
    for (std::vector<int>& sizes : sizes_) {
      before += sizes.size();
      std::erase_if(sizes, [](int r) { return (r & (r - 1)) != 0; });
      now += sizes.size();
    }
    const std::int64_t bottleneck = 2 * now <= before ? least(tables(exactly_, larger).back()).first : kNoPlan;
    sizes_ = all;
    return bottleneck;
  }

  static std::int64_t larger(std::int64_t label, std::int64_t time) { return std::max(label, time); }
  static std::int64_t one_more(std::int64_t label, std::int64_t) { return label + 1; }

  static std::vector<int> devices_of(const SuffixProblem& problem) {
    std::vector<int> devices{problem.devices};
    for (const SuffixClass& other : problem.others)
      devices.push_back(other.devices);
    return devices;
  }

  static std::vector<int> sizes_of(const SuffixProblem& problem, int devices) {
    std::vector<int> sizes;
    for (int r = 1; r <= devices; ++r)
      if (problem.replicas.empty() || std::ranges::binary_search(problem.replicas, r)) sizes.push_back(r);
    return sizes;
  }

  // The least label of the whole model, and its number of devices: of several the fewest, as suffix_dp.hpp says.
  std::pair<std::int64_t, int> least(const Table& table) const {
    std::pair<std::int64_t, int> best{kNoPlan, 0};
    for (int n = 1; n < counts_.size(); ++n) {
      std::int64_t label = kNoPlan;
      for (int c = 0; c < (two_levels_ ? classes_ : 1); ++c)
        label = std::min(label, table[row(0, kind(c, true)) + at(n)]);
      const bool fewer = label == best.first && counts_.total(n) < counts_.total(best.second);
      if (label != kNoPlan && (label < best.first || fewer)) best = {label, n};
    }
    return best;
  }

  // A stage on r devices of class c, with first .. last devices behind it in all; its times by the devices of the class
  // behind it, modulo `residues`, and by its neighbours.
  struct Choice {
    int c, r, first, last, residues;
    const std::int64_t* times;
    std::int64_t time(int of_class, Neighbours neighbours) const {
      return times[4 * (of_class % residues) + (neighbours.in_front ? 2 : 0) + (neighbours.behind ? 1 : 0)];
    }
  };

  // use(choice) for every way to put layers [i, j) on devices of one class within the limit. False: no longer range
  // fits any class, either.
  template <class Use>
  bool each_that_fits(int i, int j, const Use& use) const {
    bool longer_may_fit = false;
    std::vector<std::int64_t> times;
    for (int c = 0; c < classes_; ++c) {
      const SuffixStages& stages = stages_[at(c)];
      const std::int64_t most = stages.most_in_flight(i, j), compute = stages.compute(i, j);
      if (sizes_[at(c)].empty() || ceil_div(compute, sizes_[at(c)].back()) > limit_) continue;
      longer_may_fit = longer_may_fit || most > 0 || buffered_;
      if (most == 0) continue;
      for (const int r : sizes_[at(c)]) {
        if (ceil_div(compute, r) > limit_) continue;
        const std::int64_t left = counts_.total(counts_.size() - 1) - r;
        const bool any = most - 1 >= left || most >= stages.of_a_run(r);
        const std::int64_t by_memory = j == layers_ ? 0 : any ? left : std::min(left, (most - 1) * r);
        const auto last = static_cast<int>(std::min(by_memory, left - fewest(0, i)));
        const int first = fewest(j, layers_), residues = stages.residues();
        if (first > last) continue;
        times.clear();
        for (int n = 0; n < residues; ++n)
          for (const bool in_front : {false, true})
            for (const bool behind : {false, true})
              times.push_back(two_levels_ || times.empty() ? stages.time(i, j, r, n, {in_front, behind})
                                                           : times.front());
        use(Choice{c, r, first, last, residues, times.data()});
      }
    }
    return longer_may_fit;
  }

  // Devices, of any class, without which layers [i, j) do not pass within the limit.
  int fewest(int i, int j) const {
    const int all = counts_.total(counts_.size() - 1);
    if (i == j || limit_ == kNoPlan) return i == j ? 0 : 1;
    const std::int64_t compute = least_compute_[at(j)] - least_compute_[at(i)];
    if (limit_ == 0) return compute == 0 ? 1 : all + 1;
    return static_cast<int>(std::clamp<std::int64_t>(ceil_div(compute, limit_), 1, all + 1));
  }

  bool has_room(const Choice& choice, int n) const {
    return counts_.of(choice.c, n) + choice.r <= devices_[at(choice.c)] && counts_.total(n) >= choice.first &&
           counts_.total(n) <= choice.last;
  }

  // Table q: of exactly q stages, 0 .. `exactly`; one table for any number when that is 0. `label(from, time)` is what
  // a stage of that time in front of a plan with that label gives.
  std::vector<Table> tables(int exactly, std::int64_t (*label)(std::int64_t, std::int64_t)) const {
    std::vector<Table> list(exactly == 0 ? 1 : at(exactly) + 1, Table(row(layers_ + 1, 0), kNoPlan));
    for (int c = 0; c < classes_; ++c)
      list.front()[row(layers_, kind(c, true))] = 0;
    for (int i = layers_; i-- > 0;)
      for (int j = i + 1; j <= layers_; ++j) {
        const bool longer_may_fit = each_that_fits(i, j, [&](const Choice& choice) {
          for (std::size_t q = exactly == 0 ? 0 : 1; q < list.size(); ++q)
            extend(choice, list[q == 0 ? 0 : q - 1], j, list[q], i, label);
        });
        if (!longer_may_fit) break;
      }
    return list;
  }

  void extend(const Choice& choice, const Table& rest, int j, Table& table, int i,
              std::int64_t (*label)(std::int64_t, std::int64_t)) const {
    const int more = choice.r * counts_.stride(choice.c);
    const auto put = [&](std::int64_t& to, std::int64_t from, std::int64_t time) {
      if (from != kNoPlan && time <= limit_) to = std::min(to, label(from, time));
    };
    for (int n = 0; n + more < counts_.size(); ++n) {
      if (!has_room(choice, n)) continue;
      const int of_class = counts_.of(choice.c, n);
      if (!two_levels_) {
        put(table[row(i, 0) + at(n + more)], rest[row(j, 0) + at(n)], choice.time(of_class, {}));
        continue;
      }
      const std::int64_t alike = rest[row(j, kind(choice.c, true)) + at(n)];
      std::int64_t others = kNoPlan;
      for (int d = 0; d < classes_; ++d)
        if (d != choice.c) others = std::min(others, rest[row(j, kind(d, false)) + at(n)]);
      for (const bool in_front : {false, true}) {
        std::int64_t& to = table[row(i, kind(choice.c, in_front)) + at(n + more)];
        put(to, alike, choice.time(of_class, {in_front, true}));
        put(to, others, choice.time(of_class, {in_front, false}));
      }
    }
  }

  // The plan on n devices, read off the tables from the first stage on: `fits(label behind, label here)`.
  template <class Fits>
  SuffixAnswer way_back(const std::vector<Table>& list, int q, int n, const Fits& fits,
                        std::int64_t bound = kNoPlan) const {
    SuffixAnswer answer;
    answer.devices = counts_.total(n);
    const Table* table = &list[at(q)];
    std::vector<int> here;  // kinds that the next stage may have
    for (int c = 0; c < (two_levels_ ? classes_ : 1); ++c)
      here.push_back(kind(c, true));
    const auto least_here = [&](int begin) {
      return least_over<std::int64_t>(
          here, [&](const int each) { return (*table)[row(begin, each) + at(n)]; }, kNoPlan);
    };
    for (int begin = 0; begin < layers_; --q) {
      const Table& rest = exactly_ == 0 && list.size() == 1 ? list.front() : list[at(q) - 1];
      const std::int64_t label = least_here(begin);
      std::optional<Step> step;
      for (int end = begin + 1; !step && end <= layers_; ++end)
        each_that_fits(begin, end, [&](const Choice& choice) {
          if (step || counts_.of(choice.c, n) < choice.r) return;
          const int left = n - choice.r * counts_.stride(choice.c);
          if (!has_room(choice, left)) return;
          for (const int each : here)
            if (!step && (!two_levels_ || each % classes_ == choice.c))
              step = next(choice, each, rest, end, left, std::min(limit_, bound),
                          [&](std::int64_t behind) { return fits(behind, label); });
        });
      PP_CHECK(step.has_value());
      answer.stages.push_back(stage(begin, *step));
      n = step->left, begin = step->end, here = {step->kind}, table = &rest;
    }
    return answer;
  }

  struct Step {
    int c = 0, r = 1, end = 0, left = 0, kind = 0;  // kind: of what is behind
    std::int64_t time = 0;
  };

  template <class Fits>
  std::optional<Step> next(const Choice& choice, int of_kind, const Table& rest, int end, int left, std::int64_t limit,
                           const Fits& fits) const {
    for (int behind = 0; behind < kinds(); ++behind) {
      const bool like_front = behind < classes_, alike = !two_levels_ || behind % classes_ == choice.c;
      if (two_levels_ && alike != like_front) continue;
      const std::int64_t label = rest[row(end, behind) + at(left)];
      const std::int64_t time = choice.time(counts_.of(choice.c, left), {!two_levels_ || of_kind < classes_, alike});
      if (label != kNoPlan && time <= limit && fits(label)) return Step{choice.c, choice.r, end, left, behind, time};
    }
    return std::nullopt;
  }

  SuffixStage stage(int begin, const Step& step) const {
    const SuffixStages& stages = stages_[at(step.c)];
    const std::int64_t in_flight = stages.in_flight(step.r, counts_.total(step.left));
    return {{begin, step.end}, step.r, in_flight, {step.time}, {stages.memory(begin, step.end, in_flight)}, step.c};
  }

  // The same recursion with what a device lacks in the place of time, and no limit.
  void find_hungriest(SuffixAnswer& answer) const {
    const auto size = at(counts_.size());
    std::vector<Table> needs(exactly_ == 0 ? 1 : at(exactly_) + 1, Table((at(layers_) + 1) * size, kNoPlan));
    needs.front()[at(layers_) * size] = std::numeric_limits<std::int64_t>::min();
    const auto each_stage = [&](int i, const auto& use) {
      for (int j = i + 1; j <= layers_; ++j)
        for (int c = 0; c < classes_; ++c)
          for (const int r : sizes_[at(c)])
            for (int n = 0; n + r * counts_.stride(c) < counts_.size(); ++n) {
              if (counts_.of(c, n) + r > devices_[at(c)]) continue;
              const SuffixStages& stages = stages_[at(c)];
              use(Step{c, r, j, n, 0, 0},
                  stages.memory(i, j, stages.in_flight(r, counts_.total(n))) - stages.capacity());
            }
    };
    for (int i = layers_; i-- > 0;)
      each_stage(i, [&](const Step& step, std::int64_t lacks) {
        for (std::size_t q = exactly_ == 0 ? 0 : 1; q < needs.size(); ++q) {
          const std::int64_t from = needs[q == 0 ? 0 : q - 1][at(step.end) * size + at(step.left)];
          std::int64_t& to = needs[q][at(i) * size + at(step.left + step.r * counts_.stride(step.c))];
          if (from != kNoPlan) to = std::min(to, std::max(from, lacks));
        }
      });
    const std::int64_t* const whole = needs.back().data();
    const std::int64_t least = *std::min_element(whole + 1, whole + size);
    if (least == kNoPlan) return;
    answer.missing = {std::max(least, std::int64_t{0})};
    int begin = 0, n = static_cast<int>(std::find(whole + 1, whole + size, least) - whole);
    for (std::size_t q = needs.size() - 1; !answer.hungriest && begin < layers_; q -= exactly_ == 0 ? 0 : 1) {
      const Table& rest = exactly_ == 0 ? needs.front() : needs[q - 1];
      std::optional<Step> found;
      std::int64_t lacking = 0;
      each_stage(begin, [&](const Step& step, std::int64_t lacks) {
        if (found || step.left + step.r * counts_.stride(step.c) != n || lacks > least) return;
        const std::int64_t behind = rest[at(step.end) * size + at(step.left)];
        if (behind != kNoPlan && behind <= least) found = step, lacking = lacks;
      });
      PP_CHECK(found.has_value());
      found->time = stages_[at(found->c)].time(begin, found->end, found->r, counts_.of(found->c, found->left));
      if (lacking == least) answer.hungriest = stage(begin, *found);
      begin = found->end, n = found->left;
    }
  }

  int classes_, layers_, exactly_;
  std::int64_t limit_;
  bool buffered_;    // then a longer range may need less
  bool two_levels_;  // of links: then messages depend on the classes of a stage's neighbours
  std::vector<int> devices_;
  Counts counts_{devices_};
  std::vector<SuffixProblem> problems_;  // by class
  std::vector<SuffixStages> stages_;
  std::vector<std::vector<int>> sizes_;
  std::vector<std::int64_t> least_compute_;  // sums over layers of the fastest class's time
};

}  // namespace

SuffixAnswer suffix_dp_on_classes(const SuffixProblem& problem) {
  return ClassSearch(problem).answer();
}

std::vector<SuffixAnswer> suffix_dp_on_classes_by_stages(const SuffixProblem& problem, int most_stages) {
  return ClassSearch(problem).by_stages(most_stages);
}

}  // namespace pipewright::planner
