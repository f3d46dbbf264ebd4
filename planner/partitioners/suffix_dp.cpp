#include "planner/partitioners/suffix_dp.hpp"

#include <algorithm>
#include <cstddef>

#include "core/check.hpp"

namespace pipewright {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

std::size_t at(std::int64_t number) {
  return static_cast<std::size_t>(number);
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// sums[i]: of layers 0..i-1.
template <class Unit>
std::vector<std::int64_t> prefix_sums(const std::vector<Unit>& values, std::size_t layers) {
  PP_CHECK(values.empty() || values.size() == layers);
  std::vector<std::int64_t> sums(layers + 1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    PP_CHECK(values[i].value >= 0);
    sums[i + 1] = checked_sum(sums[i], values[i].value, "a sum over layers");
  }
  return sums;
}

// The figures of stages, each in O(1).
class Stages {
 public:
  explicit Stages(const SuffixProblem& problem)
      : layers_(static_cast<int>(problem.compute.size())),
        capacity_(problem.capacity.value),
        bandwidth_(problem.bandwidth),
        compute_(prefix_sums(problem.compute, problem.compute.size())),
        resident_(prefix_sums(problem.resident, problem.compute.size())),
        stash_(prefix_sums(problem.stash, problem.compute.size())),
        gradients_(prefix_sums(problem.gradients, problem.compute.size())),
        entry_(problem.compute.size()),
        hop_(problem.compute.size() + 1) {
    PP_CHECK(layers_ >= 1 && problem.bandwidth.value > 0);
    PP_CHECK(problem.boundary.empty() || problem.boundary.size() == at(layers_));
    PP_CHECK(problem.entry.empty() || problem.entry.size() == at(layers_));
    for (std::size_t i = 0; i < problem.entry.size(); ++i)
      entry_[i] = problem.entry[i].value;
    for (std::size_t i = 0; i + 1 < problem.boundary.size(); ++i)
      hop_[i + 1] = transfer_time(problem.boundary[i], bandwidth_).value;
  }

  int layers() const { return layers_; }
  std::int64_t capacity() const { return capacity_; }

  std::int64_t time(int begin, int end, int replicas) const {
    const std::int64_t busy = std::max({compute_[at(end)] - compute_[at(begin)], hop_[at(begin)], hop_[at(end)]});
    if (replicas == 1) return busy;
    const auto r = static_cast<double>(replicas);
    const auto bytes = static_cast<double>(gradients_[at(end)] - gradients_[at(begin)]);
    return ceil_div(std::max(busy, transfer_time(2 * (r - 1) / r * bytes, bandwidth_).value), replicas);
  }
  std::int64_t memory(int begin, int end, std::int64_t in_flight) const {
    return checked_sum(resident(begin, end), checked_product(in_flight, held(begin, end), "a stash"),
                       "a stage's memory");
  }
  // Most micro-batches in flight with which the range fits; 0: not even one.
  std::int64_t most_in_flight(int begin, int end) const {
    const std::int64_t room = capacity_ - resident(begin, end), each = held(begin, end);
    if (room < 0) return 0;
    return each == 0 ? kLargest : room / each;
  }

 private:
  std::int64_t resident(int begin, int end) const { return resident_[at(end)] - resident_[at(begin)]; }
  std::int64_t held(int begin, int end) const {
    return checked_sum(stash_[at(end)] - stash_[at(begin)], entry_[at(begin)], "a stash");
  }

  int layers_;
  std::int64_t capacity_;
  Bandwidth bandwidth_;
  std::vector<std::int64_t> compute_, resident_, stash_, gradients_, entry_, hop_;
};

// One label per first layer (0..L) and number of devices (0..N).
class Table {
 public:
  Table(int layers, int devices) : columns_(at(devices) + 1), labels_((at(layers) + 1) * columns_, kNone) {}

  std::int64_t* row(int layer) { return &labels_[at(layer) * columns_]; }
  const std::int64_t* row(int layer) const { return &labels_[at(layer) * columns_]; }
  std::int64_t reached() const {
    return std::count_if(labels_.begin(), labels_.end(), [](std::int64_t label) { return label != kNone; });
  }

 private:
  std::size_t columns_;
  std::vector<std::int64_t> labels_;
};

class Search {
 public:
  explicit Search(const SuffixProblem& problem)
      : stages_(problem), devices_(problem.devices), exactly_(problem.stages), sizes_(problem.replicas) {
    PP_CHECK(devices_ >= 1 && exactly_ >= 0);
    PP_CHECK(std::is_sorted(sizes_.begin(), sizes_.end()) && (sizes_.empty() || sizes_.front() >= 1));
    if (sizes_.empty())
      for (int r = 1; r <= devices_; ++r)
        sizes_.push_back(r);
    while (!sizes_.empty() && sizes_.back() > devices_)
      sizes_.pop_back();
  }

  SuffixAnswer answer() {
    SuffixAnswer answer;
    const std::vector<Table> times = tables([this](int i, int j, const std::int64_t* from, std::int64_t* to) {
      return each_that_fits(i, j, [&](int r, int last) {
        const std::int64_t time = stages_.time(i, j, r);
        for (int n = 0; n <= last; ++n)
          if (from[n] != kNone) to[n + r] = std::min(to[n + r], std::max(time, from[n]));
      });
    });
    answer.states = -1;  // the empty plan behind the last layer
    for (const Table& table : times)
      answer.states += table.reached();
    const std::int64_t* const whole = times.back().row(0);
    const std::int64_t best = *std::min_element(whole + 1, whole + devices_ + 1);
    if (best == kNone) {
      find_hungriest(answer);
      return answer;
    }
    answer.bottleneck = {best};
    // Fewest stages within the bottleneck. A label of another table is a number of stages.
    const std::vector<Table> counts = tables([&](int i, int j, const std::int64_t* from, std::int64_t* to) {
      return each_that_fits(i, j, [&](int r, int last) {
        if (stages_.time(i, j, r) > best) return;
        for (int n = 0; n <= last; ++n)
          if (from[n] != kNone) to[n + r] = std::min(to[n + r], from[n] + 1);
      });
    });
    const std::vector<int> cuts = earliest_cuts(counts, best);
    fill(answer, cuts, best);
    return answer;
  }

 private:
  // Table q: of exactly q stages, 0 .. `exactly_`; one table for any number when that is not given.
  // relax(i, j, from, to): enters what a stage of layers [i, j) before the row `from` of j gives into the row `to` of
  // i; false when no longer range can give anything.
  template <class Relax>
  std::vector<Table> tables(const Relax& relax) const {
    std::vector<Table> list(exactly_ == 0 ? 1 : at(exactly_) + 1, Table(stages_.layers(), devices_));
    list.front().row(stages_.layers())[0] = 0;
    for (std::size_t q = exactly_ == 0 ? 0 : 1; q < list.size(); ++q) {
      const Table& from = list[q == 0 ? 0 : q - 1];
      for (int i = stages_.layers(); i-- > 0;)
        for (int j = i + 1; j <= stages_.layers(); ++j)
          if (!relax(i, j, from.row(j), list[q].row(i))) break;
    }
    return list;
  }

  // use(r, last): layers [i, j) on r replicas fit with 0 .. last devices behind them.
  template <class Use>
  bool each_that_fits(int i, int j, const Use& use) const {
    const std::int64_t most = stages_.most_in_flight(i, j);
    if (most == 0) return false;
    for (const int r : sizes_) {
      const std::int64_t left = devices_ - r;
      use(r, static_cast<int>(j == stages_.layers() ? 0 : most - 1 >= left ? left : std::min(left, (most - 1) * r)));
    }
    return true;
  }

  // Table of what is behind a stage, when `left` stages of a plan (that one included) are to come.
  static const Table& behind(const std::vector<Table>& list, std::size_t left) {
    return list.size() == 1 ? list.front() : list[left - 1];
  }

  // The cuts of the plan with the fewest stages: first layers of all stages, and the end.
  std::vector<int> earliest_cuts(const std::vector<Table>& counts, std::int64_t best) const {
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
        each_that_fits(cuts.back(), end, [&](int r, int last) {
          if (stages_.time(cuts.back(), end, r) > best) return;
          for (int n = 0; n <= last; ++n)
            if (open[at(n + r)] != 0 && row[n] == left - 1) next[at(n)] = 1;
        });
      } while (std::find(next.begin(), next.end(), 1) == next.end());
      cuts.push_back(end);
      open = next;
    }
    return cuts;
  }

  // Replicas for given cuts, the fewest devices first.
  void fill(SuffixAnswer& answer, const std::vector<int>& cuts, std::int64_t best) const {
    const std::size_t count = cuts.size() - 1;
    std::vector<std::vector<char>> works(count + 1, std::vector<char>(at(devices_) + 1));
    works[count][0] = 1;
    const auto each = [&](std::size_t k, const auto& use) {
      each_that_fits(cuts[k], cuts[k + 1], [&](int r, int last) {
        if (stages_.time(cuts[k], cuts[k + 1], r) <= best) use(r, last);
      });
    };
    for (std::size_t k = count; k-- > 0;)
      each(k, [&](int r, int last) {
        for (int n = 0; n <= last; ++n)
          if (works[k + 1][at(n)] != 0) works[k][at(n + r)] = 1;
      });
    int left = static_cast<int>(std::find(works[0].begin(), works[0].end(), 1) - works[0].begin());
    answer.devices = left;
    for (std::size_t k = 0; k < count; ++k) {
      int replicas = 0;
      each(k, [&](int r, int last) {
        if (replicas == 0 && r <= left && left - r <= last && works[k + 1][at(left - r)] != 0) replicas = r;
      });
      left -= replicas;
      answer.stages.push_back(stage(cuts[k], cuts[k + 1], replicas, left));
    }
  }

  SuffixStage stage(int begin, int end, int replicas, int devices_behind) const {
    const std::int64_t in_flight = replica_in_flight(replicas, devices_behind);
    return {{begin, end},
            replicas,
            in_flight,
            {stages_.time(begin, end, replicas)},
            {stages_.memory(begin, end, in_flight)}};
  }

  // The same recursion with memory in the place of time, and no limit.
  void find_hungriest(SuffixAnswer& answer) const {
    const std::vector<Table> needs = tables([this](int i, int j, const std::int64_t* from, std::int64_t* to) {
      for (const int r : sizes_) {
        int n = 0;  // devices behind; up to r more of them put one more micro-batch in flight
        for (std::int64_t in_flight = 1; n + r <= devices_; ++in_flight) {
          const std::int64_t memory = stages_.memory(i, j, in_flight);
          for (; n <= (in_flight - 1) * r && n + r <= devices_; ++n)
            if (from[n] != kNone) to[n + r] = std::min(to[n + r], std::max(from[n], memory));
        }
      }
      return true;
    });
    const std::int64_t* const whole = needs.back().row(0);
    const std::int64_t* const least = std::min_element(whole + 1, whole + devices_ + 1);
    if (*least == kNone) return;
    answer.missing = {*least - stages_.capacity()};
    int begin = 0, left = static_cast<int>(least - whole);
    for (std::size_t q = needs.size() - 1; !answer.hungriest; q -= exactly_ == 0 ? 0 : 1) {
      const Table& rest = exactly_ == 0 ? needs.front() : needs[q - 1];
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

  Stages stages_;
  int devices_, exactly_;
  std::vector<int> sizes_;
};

}  // namespace

SuffixAnswer suffix_dp(const SuffixProblem& problem) {
  return Search(problem).answer();
}

Time stage_time(const SuffixProblem& problem, LayerRange layers, int replicas) {
  return {Stages(problem).time(layers.begin, layers.end, replicas)};
}

Bytes stage_memory(const SuffixProblem& problem, LayerRange layers, std::int64_t in_flight) {
  return {Stages(problem).memory(layers.begin, layers.end, in_flight)};
}

std::int64_t replica_in_flight(int replicas, int behind) {
  return ceil_div(std::int64_t{replicas} + behind, replicas);
}

}  // namespace pipewright
