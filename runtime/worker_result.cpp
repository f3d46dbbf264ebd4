#include "runtime/worker_result.hpp"

#include <algorithm>
#include <iterator>

#include "core/check.hpp"

namespace pipewright::runtime {
namespace {

// A list that has as many entries for each step.
template <class T>
void keep_entries(std::vector<T>& list, const std::vector<char>& keep) {
  if (keep.empty()) return;
  PP_CHECK(list.size() % keep.size() == 0);
  const std::size_t each = list.size() / keep.size();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (keep[i / each] != 0) {
      if (kept != i) list[kept] = std::move(list[i]);
      ++kept;
    }
  list.resize(kept);
}

template <class T>
void append(std::vector<T>& list, std::vector<T>&& more) {
  list.insert(list.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

void keep_rounds(WorkerResult& result, const std::vector<char>& keep) {
  PP_CHECK(keep.size() == result.steps.size());
  for (auto& [of, ns] : result.layer_ns)
    keep_entries(ns, keep);
  keep_entries(result.overhead_ns, keep), keep_entries(result.update_ns, keep), keep_entries(result.steps, keep);
}

void add_rounds(WorkerResult& result, WorkerResult&& more) {
  append(result.steps, std::move(more.steps));
  for (auto& [of, ns] : more.layer_ns)
    append(result.layer_ns[of], std::move(ns));
  append(result.overhead_ns, std::move(more.overhead_ns)), append(result.update_ns, std::move(more.update_ns));
  result.memory = more.memory;
}

Timeline timeline_of(const std::vector<WorkerResult>& workers, std::size_t step) {
  Timeline timeline;
  timeline.engine = EngineRan::RealRun;
  std::int64_t zero = 0;
  for (const WorkerResult& worker : workers)
    zero = zero == 0 ? worker.steps.at(step).began : std::min(zero, worker.steps.at(step).began);
  const auto shifted = [zero](Time at) { return Time{at.value - zero}; };
  for (const WorkerResult& worker : workers) {
    const WorkerStep& from = worker.steps.at(step);
    LaneTimes times = from.times;
    const auto shift = [&](std::vector<Span>& list) {
      for (Span& span : list) {
        span = {shifted(span.start), shifted(span.end)};
        timeline.makespan = std::max(timeline.makespan, span.end);
      }
    };
    shift(times.compute);
    std::ranges::for_each(times.communication, shift);
    timeline.workers.push_back(std::move(times));
    for (Transfer transfer : from.transfers) {
      for (Time* const at : {&transfer.posted, &transfer.start, &transfer.sent, &transfer.arrived})
        *at = shifted(*at);
      timeline.transfers.push_back(transfer);
    }
  }
  return timeline;
}

double loss_of(const std::vector<WorkerResult>& workers, std::size_t step) {
  double sum = 0;
  std::int64_t samples = 0;
  for (const WorkerResult& worker : workers)
    sum += worker.steps.at(step).loss, samples += worker.steps.at(step).samples;
  return samples > 0 ? sum / static_cast<double>(samples) : 0;
}

}  // namespace pipewright::runtime
