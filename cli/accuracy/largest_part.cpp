// Part 5: the largest number of layers that K workers hold under the cap: as `capacity` predicts it, and as real runs
// of one step find it, which know nothing of the prediction: K layers, 2 K, 4 K, ... until one does not run, then the
// middle, again and again.
//
// Every run is a record, "largest-k4.layers-32"; a second call does not repeat it. The verdict is "largest-k4".
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "cli/accuracy/memory_watch.hpp"
#include "cli/accuracy/parts.hpp"
#include "cli/capacity.hpp"
#include "cli/real_run.hpp"
#include "core/check.hpp"
#include "kernels/gpu_api.hpp"

namespace pipewright {
namespace {

constexpr int kDevice = 0;

// Looked up once: it opens every GPU and cuts it for a moment.
Bytes gpu_memory() {
  static const GpuSystem system = gpu_system();
  return system.gpus.empty() ? Bytes{} : system.gpus.front().memory;
}

class Search {
 public:
  Search(const PartTask& task, const PartBudget& budget, const StudyItem& item)
      : task_(task), budget_(budget), item_(item) {}

  // The largest number that ran; nothing: the part's time was used up.
  std::optional<std::int64_t> largest() {
    std::int64_t fits = 0, step = item_.scenario.plan.stages.value, fails = step;
    for (;; fails *= 2) {
      const std::optional<bool> ran = runs(fails);
      if (!ran) return std::nullopt;
      if (!*ran) break;
      fits = fails;
    }
    while (fails - fits > 1) {
      const std::int64_t middle = fits + (fails - fits) / 2;
      const std::optional<bool> ran = runs(middle);
      if (!ran) return std::nullopt;
      (*ran ? fits : fails) = middle;
    }
    return fits;
  }
  std::string why_not_one_more(std::int64_t fits) const {
    const StudyRecord* const next = task_.results.latest(task_.part, name_of(fits + 1));
    return next == nullptr ? "" : next->reason;
  }
  int tried() const { return tried_; }
  // With everything that is on the GPU beside the arenas, in the largest run: taken before + extents over what was
  // taken.
  std::optional<double> error_with_context(std::int64_t fits) const {
    const StudyRecord* const run = task_.results.latest(task_.part, name_of(fits));
    if (run == nullptr || !run->figures.contains("taken_by_run")) return std::nullopt;
    const double before = run->figure("taken_before"), measured = before + run->figure("taken_by_run");
    return measured > 0 ? std::optional((before + run->figure("extents")) / measured - 1) : std::nullopt;
  }

 private:
  std::string name_of(std::int64_t layers) const { return fmt::format("{}.layers-{}", item_.name, layers); }

  std::optional<bool> runs(std::int64_t layers) {
    ++tried_;
    const std::string name = name_of(layers);
    if (const StudyRecord* const known = task_.results.latest(task_.part, name); known != nullptr && known->done())
      return known->word("runs") == "yes";
    if (!budget_.allows()) return std::nullopt;
    task_.results.drop(task_.part, item_.name, 0);
    StudyRecord record{.part = task_.part, .name = name, .status = "interrupted", .reason = "was begun, did not end"};
    record.attempt = task_.results.next_attempt(task_.part, name);
    task_.results.keep(record);
    record = tried(layers, std::move(record));
    tell(task_, name, record.word("runs") == "yes" ? "runs" : "does not: " + record.reason);
    task_.results.keep(record);
    return record.word("runs") == "yes";
  }

  // One step, for real.
  StudyRecord tried(std::int64_t layers, StudyRecord record) const {
    record.status = "done", record.reason.clear();
    record.figures["layers"] = static_cast<double>(layers);
    record.words["runs"] = "no";
    try {
      const Scenario scenario = item_.with(kLayersKey, layers);
      const RealRun run(scenario);
      std::optional<MemoryWatch> watch;
      if (scenario.run.backend == RunBackend::Cuda) {
        record.figures["taken_before"] = static_cast<double>((gpu_memory() - gpu_free_memory(kDevice)).value);
        watch.emplace(kDevice);
      }
      const std::vector<WorkerResult> workers = run.run(run.settings());
      if (watch) record.figures["taken_by_run"] = static_cast<double>(watch->stop().value);
      Bytes most{}, all{};
      for (const WorkerResult& worker : workers)
        most = std::max(most, worker.memory.extent), all = all + worker.memory.extent;
      record.figures["extent"] = static_cast<double>(most.value);
      record.figures["extents"] = static_cast<double>(all.value);
      record.words["runs"] = "yes";
    } catch (const OutOfArena& error) {
      record.reason = what_failed(error);
    } catch (const std::exception& error) {  // of a GPU that has less than the caps together
      record.reason = what_failed(error), record.words["failed"] = "yes";
      if (const std::string lost = lost_gpu(task_); !lost.empty()) {  // then it says nothing of what fits
        record.status = "failed";
        task_.results.keep(record);
        throw GpuLost(task_, record.name, record.reason, lost);
      }
    }
    return record;
  }

  const PartTask& task_;
  const PartBudget& budget_;
  const StudyItem& item_;
  int tried_ = 0;
};

// Written before anything runs, and never again.
StudyRecord predicted(const PartTask& task, const StudyItem& item) {
  const std::string name = item.name + ".prediction";
  if (const StudyRecord* const there = task.results.latest(task.part, name)) return *there;
  VariedPoint point;
  point.changes = item.changes;
  const Capacity found = capacity_row(*item.file, kLayersKey, point);
  StudyRecord record{.part = task.part, .name = name};
  record.figures["layers"] = static_cast<double>(found.largest.value_or(0));
  record.figures["parameters"] = static_cast<double>(found.parameters);
  record.figures["peak"] = static_cast<double>(found.peak.value);
  record.words["method"] = found.method;
  task.results.keep(record);
  return record;
}

void settle(const PartTask& task, const PartBudget& budget, const StudyItem& item) {
  const StudyRecord prediction = predicted(task, item);
  Search search(task, budget, item);
  const std::optional<std::int64_t> largest = search.largest();
  if (!largest) return leave_out(task, item.name);
  StudyRecord record{.part = task.part, .name = item.name};
  record.figures = {{"stages", static_cast<double>(item.scenario.plan.stages.value)},
                    {"predicted_layers", prediction.figure("layers")},
                    {"parameters", prediction.figure("parameters")},
                    {"measured_layers", static_cast<double>(*largest)},
                    {"runs", static_cast<double>(search.tried())}};
  if (item.scenario.run.memory_cap) record.figures["cap"] = static_cast<double>(item.scenario.run.memory_cap->value);
  if (const std::optional<double> error = search.error_with_context(*largest)) record.figures["context_error"] = *error;
  record.words["one_more"] = search.why_not_one_more(*largest);
  tell(task, item.name, fmt::format("predicted {}, found {} layers", prediction.figure("layers"), *largest));
  task.results.keep(std::move(record));
}

}  // namespace

void largest_part(const PartTask& task) {
  const PartBudget budget(task.limit);
  if (!task.dry_run()) static_cast<void>(gpu_memory());  // before a run holds it
  for (const StudyItem* const item : task.own_items())
    if (!task.results.done(task.part, item->name) && task.has_turn(item->name)) settle(task, budget, *item);
}

}  // namespace pipewright
