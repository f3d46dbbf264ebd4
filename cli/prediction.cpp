#include <cmath>

#include "cli/imported.hpp"
#include "io/read_file.hpp"
#include "io/read_result.hpp"

namespace pipewright {
namespace {

constexpr std::size_t kLargestResult = std::size_t{256} << 20;  // 4096 workers are 6 MB

std::optional<double> flop_rate_device(const Answer& answer) {
  const Cluster& cluster = answer.scenario->cluster;
  const auto peak = cluster.device.peak.find(answer.scenario->training.precision);
  if (!answer.report.mfu || cluster.classes() > 1 || peak == cluster.device.peak.end()) return std::nullopt;
  return *answer.report.mfu * peak->second.value;
}

Time time_of(double seconds, const std::string& path) {
  if (!(seconds >= 0 && seconds < 4e9))
    throw InputError(Place{path, 0, 0}, "step_time_s is no time of a step; write the result again");
  return Time{std::llround(seconds * 1e9)};
}

}  // namespace

Prediction prediction_of(const Answer& answer) {
  Prediction p{.name = answer.scenario->name,
               .step_time = answer.report.step_time,
               .samples_per_s = answer.report.samples_per_s,
               .tokens_per_s = answer.report.tokens_per_s,
               .flop_rate_device = flop_rate_device(answer),
               .global_batch_size = answer.plan.global_batch_size,
               .devices = answer.plan.devices(),
               .sequence_length = answer.scenario->training.sequence_length,
               .answer = &answer};
  // What the allocator of a framework has: not what context and libraries take beside it.
  if (const StageReport* full = fullest(answer.report))
    p.allocated = full->need.model + full->need.anchored,
    p.reserved = full->need.with_reserve - full->memory.bytes.reserve;
  return p;
}

Prediction read_prediction(const std::string& path) {
  const ResultFigures figures = parse_result(read_file(path, kLargestResult), path);
  Prediction p{.name = figures.name,
               .step_time = time_of(figures.step_time, path),
               .samples_per_s = figures.samples_per_s,
               .tokens_per_s = figures.tokens_per_s,
               .global_batch_size = figures.global_batch_size,
               .devices = figures.devices,
               .sequence_length = figures.sequence_length};
  if (p.global_batch_size < 1 || p.devices < 1)
    throw InputError(Place{path, 0, 0}, "has a plan without samples or devices; write the result again");
  const ResultFigures::Stage* full = nullptr;
  for (const auto& stage : figures.stages)
    if (full == nullptr || stage.capacity - stage.need < full->capacity - full->need) full = &stage;
  const auto bytes = [](double size) { return Bytes{size >= 0 && size < 4e18 ? std::llround(size) : 0}; };
  if (full != nullptr) p.allocated = bytes(full->model), p.reserved = bytes(full->need - full->reserve);
  return p;
}

}  // namespace pipewright
