// Ops that take turns.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "runtime/cells.hpp"
#include "runtime/clock.hpp"
#include "runtime/worker.hpp"

namespace pipewright::runtime {

// In the record the ops lie one behind the other, each with as much of the cell's time as its own instructions took of all.
void Worker::run_cell(std::size_t first, std::size_t count) {
  PP_CHECK(!divides_gradients());
  std::vector<Running> ops;
  for (std::size_t i = first; i < first + count; ++i)
    ops.push_back(begun(lane_.compute[i], i));
  const std::int64_t start = op_began_ = steady_ns();
  for (const Running& op : ops)
    fetch(op);
  std::vector<std::int64_t> took(count);
  for (const CellPart& part : parts_of_cell(run_, lane_, first, count)) {
    at_op_.store(static_cast<int>(part.op), std::memory_order_relaxed);
    const std::int64_t begin = steady_ns(), waited = waited_;
    follow(ops[part.op - first], part.end);
    took[part.op - first] += steady_ns() - begin - (waited_ - waited);
  }
  backend_->finish();
  const std::int64_t end = std::max(start, backend_->finished() - std::exchange(waited_, 0));
  std::int64_t all = 0, sum = 0, from = start;
  for (const std::int64_t each : took)
    all += each;
  for (std::size_t i = 0; i < count; ++i) {
    sum += took[i];
    const double share = all > 0 ? static_cast<double>(sum) / static_cast<double>(all) : 1;
    const std::int64_t to =
        i + 1 == count ? end : start + static_cast<std::int64_t>(share * static_cast<double>(end - start));
    record_->times.compute.push_back({{from}, {to}});
    from = to;
    note_version(lane_.compute[first + i], versions_[first + i]);
  }
}

}  // namespace pipewright::runtime
