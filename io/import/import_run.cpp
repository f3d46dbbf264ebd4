#include "io/import/import_run.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace pipewright {
namespace {

template <class Member>
bool any_step_has(const TrainingLog& log, Member member) {
  return std::any_of(log.steps.begin(), log.steps.end(), [&](const LoggedStep& step) { return step.*member; });
}

void tell_of_log(const TrainingLog& log, ImportSource& source) {
  source.assumed.emplace_back(
      "of several lines of a step the slowest time, the most memory and the largest loss count");
  if (log.format == "Megatron-LM") {
    source.assumed.emplace_back("the time of a step is the mean since the line before, as Megatron-LM prints it");
    if (log.max_allocated || log.max_reserved)
      source.assumed.emplace_back("megabytes of memory are 2^20 bytes, gigabytes 10^9");
  } else {
    source.assumed.emplace_back("tps counts tokens per second and device; the plan's batch makes a time of it");
  }
  const auto lacks = [&](bool there, const char* what) {
    if (!there) source.absent.emplace_back(what);
  };
  lacks(any_step_has(log, &LoggedStep::time), "times of steps");
  lacks(any_step_has(log, &LoggedStep::global_batch_size), "global batch size");
  lacks(any_step_has(log, &LoggedStep::flop_rate_device), "FLOP/s of a device");
  lacks(any_step_has(log, &LoggedStep::loss), "losses");
  lacks(log.max_allocated.has_value(), "memory that was allocated");
  lacks(log.max_reserved.has_value(), "memory that the allocator reserved");
  source.absent.emplace_back(log.layout.empty() ? "model, plan and devices of the run"
                                                : "model of the run, and of its plan all but the layout");
}

}  // namespace

ImportedRun import_log(const std::string& path, std::string_view format) {
  TrainingLog log = read_training_log(path);
  if (log.format != format)
    throw InputError(fmt::format("{}: is a log of {}, not of {}; write import {} instead", log.file, log.format, format,
                                 log.format == "torchtitan" ? "torchtitan-log" : "megatron-log"));
  ImportedRun run{.source = source_of(path, log.format)};
  run.source.synthetic = log.synthetic;
  tell_of_log(log, run.source);
  run.log = std::move(log);
  return run;
}

ImportedRun import_kineto(const std::string& path) {
  ActionTrace trace = read_action_trace(path);
  ImportedRun run{.source = source_of(path, "trace of PyTorch's profiler")};
  run.source.assumed.emplace_back(trace.on_device ? "times are of the device, where several streams had work from the "
                                                    "first to the last of them"
                                                  : "times are of the host, which may run ahead of its device");
  run.source.assumed.emplace_back("starts count from the first action of the file");
  if (trace.other_actions > 0)
    run.source.assumed.push_back(
        fmt::format("{} sends, receives or overlapped pairs are left out", trace.other_actions));
  if (!trace.rank) run.source.absent.emplace_back("rank");
  run.source.absent.emplace_back("memory; everything that is not an action of a pipeline is left out");
  run.trace = std::move(trace);
  return run;
}

}  // namespace pipewright
