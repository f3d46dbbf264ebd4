#include "sim/finder/windows.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace pipewright::sim {
namespace {

constexpr char kPairs = 1, kEdges = 2;

}  // namespace

PassWindows::PassWindows(const OrderProblem& problem, bool begins_vary)
    : problem_(problem),
      begins_vary_(problem.measure == OrderMeasure::Span && (problem.two_ways || begins_vary)),
      pricer_(problem),
      codes_(at(kPassKinds * problem.virtual_stages)),
      micro_batches_(problem.micro_batches),
      begin_(at(problem.stages), -1),
      length_(at(problem.stages) * codes_ * at(problem.micro_batches)),
      needs_(length_.size()),
      changed_(at(problem.stages)) {
  std::iota(needs_.begin(), needs_.end(), 0);
  std::int64_t way = 0;
  for (VirtualStageId v = 0; v < problem.chunks(); ++v) {
    if (problem.first(v)) way = 0;
    std::int64_t& begin = begin_[at(pricer_.stage_of(v))];
    begin = begin < 0 ? way : std::min(begin, way);
    way += problem.forward[at(v)] + (problem.last(v) ? 0 : problem.down[at(v)]);
    const std::int64_t held = problem.held[at(v)], cap = problem.cap[at(pricer_.stage_of(v))];
    const std::int64_t most = held > 0 ? cap / held : micro_batches_;
    for (int m = 0; m < micro_batches_; ++m) {
      length_[pass_of(0, v, m)] = problem.forward[at(v)];
      length_[pass_of(1, v, m)] = problem.input[at(v)];
      length_[pass_of(2, v, m)] = problem.weights[at(v)];
      if (m >= most && most > 0)
        needs_[pass_of(0, v, m)] =
            pass_of(problem.kept_after_input[at(v)] >= held ? 2 : 1, v, m - static_cast<int>(most));
    }
  }
}

std::size_t PassWindows::pass_of(int kind, VirtualStageId chunk, int m) const {
  return pass(pricer_.stage_of(chunk), kind * problem_.virtual_stages + pricer_.row_of(chunk), m);
}

bool PassWindows::begins_at(std::size_t x, std::int64_t time) {
  if (time <= now_.earliest[x]) return true;
  now_.earliest[x] = time;
  changed_[x / (codes_ * at(micro_batches_))] = kPairs | kEdges, any_changed_ = true;
  return end_of(x) <= now_.latest[x];
}

bool PassWindows::ends_by(std::size_t x, std::int64_t time) {
  if (time >= now_.latest[x]) return true;
  now_.latest[x] = time;
  changed_[x / (codes_ * at(micro_batches_))] = kPairs | kEdges, any_changed_ = true;
  return end_of(x) <= now_.latest[x];
}

// What a pass waits for, from the first micro-batch on, and what waits for it, from the last one on.
bool PassWindows::ways() {
  const VirtualStageId chunks = problem_.chunks();
  effort_ -= 2 * std::ssize(length_);
  const auto chain = [&](std::size_t x, int m) { return m == 0 ? now_.earliest[x] : end_of(x - 1); };
  const auto chain_back = [&](std::size_t x, int m) {
    return m + 1 == micro_batches_ ? now_.latest[x] : begin_of(x + 1);
  };
  for (int m = 0; m < micro_batches_; ++m) {
    for (VirtualStageId v = 0; v < chunks; ++v) {
      const std::size_t x = pass_of(0, v, m);
      std::int64_t time = chain(x, m);
      if (!problem_.first(v)) time = std::max(time, end_of(pass_of(0, v - 1, m)) + problem_.down[at(v) - 1]);
      if (needs_[x] != x) time = std::max(time, end_of(needs_[x]));
      if (!begins_at(x, time)) return false;
    }
    for (VirtualStageId v = chunks - 1; v >= 0; --v) {
      const std::size_t x = pass_of(1, v, m), w = pass_of(2, v, m);
      std::int64_t time = std::max(chain(x, m), end_of(pass_of(0, v, m)));
      if (!problem_.last(v)) time = std::max(time, end_of(pass_of(1, v + 1, m)) + problem_.up[at(v)]);
      if (!begins_at(x, time) || !begins_at(w, std::max(chain(w, m), end_of(x)))) return false;
    }
  }
  for (int m = micro_batches_ - 1; m >= 0; --m) {
    for (VirtualStageId v = 0; v < chunks; ++v) {
      const std::size_t x = pass_of(1, v, m), w = pass_of(2, v, m);
      if (!ends_by(w, chain_back(w, m))) return false;
      std::int64_t time = std::min(chain_back(x, m), begin_of(w));
      if (!problem_.first(v)) time = std::min(time, begin_of(pass_of(1, v - 1, m)) - problem_.up[at(v) - 1]);
      if (!ends_by(x, time)) return false;
    }
    for (VirtualStageId v = chunks - 1; v >= 0; --v) {
      const std::size_t x = pass_of(0, v, m);
      std::int64_t time = std::min(chain_back(x, m), begin_of(pass_of(1, v, m)));
      if (!problem_.last(v)) time = std::min(time, begin_of(pass_of(0, v + 1, m)) - problem_.down[at(v)]);
      if (!ends_by(x, time)) return false;
      if (needs_[x] != x && !ends_by(needs_[x], begin_of(x))) return false;
    }
  }
  return !begins_vary_ || from_first_pass();
}

// A stage begins with the first F of one of its chunks, both ways with that of the one direction or the other.
bool PassWindows::from_first_pass() {
  for (StageId k = 0; k < problem_.stages; ++k) {
    std::int64_t begin = begin_of(pass(k, 0, 0));
    for (int row = 1; row < problem_.virtual_stages; ++row)
      begin = std::min(begin, begin_of(pass(k, row, 0)));
    for (std::size_t code = 2 * at(problem_.virtual_stages); code < codes_; ++code)
      if (!ends_by(pass(k, static_cast<int>(code), micro_batches_ - 1), begin + target_)) return false;
  }
  return true;
}

bool PassWindows::two_at_a_time(StageId stage) {
  for (int a = 0; a < static_cast<int>(codes_); ++a)
    for (int b = a + 1; b < static_cast<int>(codes_); ++b) {
      const std::int64_t pairs = std::int64_t{micro_batches_} * micro_batches_;
      if (effort_ < pairs) {
        effort_ = 0;
        return true;
      }
      effort_ -= pairs;
      for (int i = 0; i < micro_batches_; ++i)
        for (int j = 0; j < micro_batches_; ++j) {
          const std::size_t x = pass(stage, a, i), y = pass(stage, b, j);
          const bool first = before(x, y), second = before(y, x);
          if (first && second) continue;
          if (!(first ? follow(x, y) : second && follow(y, x))) return false;
        }
    }
  return true;
}

// Of passes with these windows, those that cannot lie before or among some others begin behind them: for each end, the
// passes that must end by then, and every other one.
bool PassWindows::edge_finding() {
  const std::size_t n = begins_.size();
  by_begin_.resize(n), found_ = begins_, latest_of_.resize(n);
  std::iota(by_begin_.begin(), by_begin_.end(), 0);
  std::ranges::sort(by_begin_, [&](auto x, auto y) { return begins_[x] < begins_[y]; });
  by_end_ = by_begin_;
  std::ranges::sort(by_end_, [&](auto x, auto y) { return ends_[x] < ends_[y]; });
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t end = ends_[by_end_[i]];
    if (i + 1 < n && ends_[by_end_[i + 1]] == end) continue;
    effort_ -= 2 * static_cast<std::int64_t>(n);
    std::int64_t time = 0, last = std::numeric_limits<std::int64_t>::min();
    for (std::size_t j = n; j-- > 0;) {
      const std::size_t x = by_begin_[j];
      if (ends_[x] <= end) {
        time += lengths_[x], last = std::max(last, begins_[x] + time);
        if (last > end) return false;
      }
      latest_of_[x] = last;
    }
    std::int64_t earlier = std::numeric_limits<std::int64_t>::min() / 2;
    for (const std::size_t x : by_begin_) {
      if (ends_[x] <= end) {
        earlier = std::max(earlier, begins_[x] + time), time -= lengths_[x];
        continue;
      }
      if (time > 0 && begins_[x] + time + lengths_[x] > end) found_[x] = std::max(found_[x], latest_of_[x]);
      if (earlier + lengths_[x] > end) found_[x] = std::max(found_[x], last);
    }
  }
  return true;
}

// Once from the front, once from behind.
bool PassWindows::edges(StageId stage) {
  const std::size_t first = pass(stage, 0, 0), n = codes_ * at(micro_batches_);
  begins_.resize(n), ends_.resize(n);
  lengths_.assign(length_.begin() + static_cast<std::ptrdiff_t>(first),
                  length_.begin() + static_cast<std::ptrdiff_t>(first + n));
  for (std::size_t i = 0; i < n; ++i)
    begins_[i] = now_.earliest[first + i], ends_[i] = now_.latest[first + i];
  if (!edge_finding()) return false;
  for (std::size_t i = 0; i < n; ++i)
    if (!begins_at(first + i, found_[i])) return false;
  for (std::size_t i = 0; i < n; ++i)
    begins_[i] = -now_.latest[first + i], ends_[i] = -now_.earliest[first + i];
  if (!edge_finding()) return false;
  for (std::size_t i = 0; i < n; ++i)
    if (!ends_by(first + i, -found_[i])) return false;
  return true;
}

// false: a window is too narrow. Ends when nothing changes, or at the end of the effort.
bool PassWindows::narrow() {
  while (effort_ > 0) {
    if (*stop_ && (*stop_)()) {
      effort_ = 0;
      break;
    }
    any_changed_ = false;
    if (!ways()) return false;
    for (StageId k = 0; k < problem_.stages; ++k)
      if ((changed_[at(k)] & kPairs) != 0) {
        changed_[at(k)] &= ~kPairs;
        if (!two_at_a_time(k)) return false;
      }
    if (any_changed_) continue;
    for (StageId k = 0; k < problem_.stages; ++k)
      if ((changed_[at(k)] & kEdges) != 0) {
        changed_[at(k)] &= ~kEdges;
        if (!edges(k)) return false;
      }
    if (!any_changed_) return true;
  }
  return true;
}

// x before y: if that cannot be, y comes before x.
bool PassWindows::try_order(std::size_t x, std::size_t y, bool& changed) {
  const Windows kept = now_;
  const bool possible = follow(x, y) && narrow();
  now_ = kept;
  std::ranges::fill(changed_, 0);
  if (possible) return true;
  if (!follow(y, x) || !narrow()) return false;
  changed = changed || now_.earliest != kept.earliest || now_.latest != kept.latest;
  return true;
}

// Forwards and gradients of inputs of which either may be first, the nearest ones: the rest follows.
bool PassWindows::try_both_orders() {
  const int codes = 2 * problem_.virtual_stages;
  for (bool changed = true; changed && effort_ > 0;) {
    changed = false;
    for (StageId k = problem_.stages - 1; k >= 0; --k)
      for (int a = 0; a < codes; ++a)
        for (int b = a + 1; b < codes; ++b)
          for (int j = 0; j < micro_batches_ && effort_ > 0; ++j) {
            const std::size_t y = pass(k, b, j);
            const auto open = [&](int i) { return before(pass(k, a, i), y) && before(y, pass(k, a, i)); };
            int low = 0, high = micro_batches_ - 1;
            while (low <= high && !open(low))
              ++low;
            if (low > high) continue;
            if (!try_order(y, pass(k, a, low), changed)) return false;
            while (high >= 0 && !open(high))
              --high;
            if (high >= 0 && !try_order(pass(k, a, high), y, changed)) return false;
          }
  }
  return true;
}

bool PassWindows::refutes(std::int64_t target, bool both_orders, std::int64_t& effort,
                          const std::function<bool()>& stop) {
  effort_ = effort, target_ = target, stop_ = &stop;
  now_.earliest.resize(length_.size()), now_.latest.resize(length_.size());
  for (StageId k = 0; k < problem_.stages; ++k) {
    const auto first = static_cast<std::ptrdiff_t>(pass(k, 0, 0));
    const auto n = static_cast<std::ptrdiff_t>(codes_) * micro_batches_;
    std::fill_n(now_.earliest.begin() + first, n, begin_[at(k)]);
    const std::int64_t begin = begins_vary_ ? target : begin_[at(k)];  // at the latest: some stage begins at 0
    std::fill_n(now_.latest.begin() + first, n, target + (problem_.measure == OrderMeasure::Span ? begin : 0));
  }
  std::ranges::fill(changed_, static_cast<char>(kPairs | kEdges));
  const bool fits = narrow() && (!both_orders || try_both_orders());
  effort = effort_;
  return !fits;
}

}  // namespace pipewright::sim
