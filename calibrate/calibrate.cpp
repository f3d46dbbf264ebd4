#include "calibrate/calibrate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <fstream>
#include <map>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "calibrate/handoff.hpp"
#include "calibrate/statistics.hpp"
#include "runtime/measurement.hpp"

namespace pipewright {
namespace {

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0)
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "unknown processor";
}

using Series = std::map<std::pair<std::string, std::int64_t>, std::array<std::vector<double>, 3>>;

// All times of layers that compute the same, whichever worker measured them.
Series by_key(const RunPlan& run, const Model& model, const std::vector<WorkerResult>& workers) {
  Series series;
  for (const WorkerResult& worker : workers)
    for (const auto& [of, times] : worker.layer_ns) {
      const auto& [layer, pass, last] = of;
      const Layer& of_model = model.layers[static_cast<std::size_t>(layer)];
      const Program& program = *model.works[static_cast<std::size_t>(of_model.work)].program.get();
      const std::int64_t samples = last != 0 ? run.plan->last_micro_batch_size : run.plan->micro_batch_size;
      auto& into = series[{describe(program), samples}][static_cast<std::size_t>(pass)];
      into.insert(into.end(), times.begin(), times.end());
    }
  return series;
}

Time rounded_mean(const std::vector<double>& ns) {
  return ns.empty() ? Time{} : Time{std::llround(statistics(ns).mean)};
}

// How much whole rounds of a worker differ, in which the errors of single ops have cancelled: (p95 - p5) / mean of
// their busy time; the largest of all workers. The first round is not counted.
double spread_of_rounds(const std::vector<WorkerResult>& workers) {
  double spread = 0;
  for (const WorkerResult& worker : workers) {
    std::vector<double> rounds;
    for (std::size_t s = 1; s < worker.steps.size(); ++s) {
      double busy = 0;
      for (const Span& span : worker.steps[s].times.compute)
        busy += static_cast<double>((span.end - span.start).value);
      rounds.push_back(busy);
    }
    if (!rounds.empty()) spread = std::max(spread, statistics(rounds).spread());
  }
  return spread;
}

}  // namespace

Fingerprint fingerprint(const Backend& backend, const std::string& revision) {
  return {processor(), backend.name(), available_cores(), revision};
}

MachineProfile calibrate(const RunPlan& run, const Model& model,
                         const std::function<std::unique_ptr<Backend>()>& backend, const Data& data,
                         const RunSettings& run_settings, const CalibrationSettings& settings) {
  const auto workers = measure_layers(run, backend, data, run_settings, settings.seconds);
  MachineProfile profile;
  profile.name = settings.name;
  profile.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  profile.backend = "cpu";
  profile.machine = fingerprint(*backend(), settings.revision);
  profile.active = run.plan->workers();
  double spread = 0, weight = 0;
  for (const auto& [key, passes] : by_key(run, model, workers)) {
    const Statistics forward = statistics(passes[0].empty() ? std::vector<double>{0} : passes[0]);
    profile.layers.push_back({key.first, key.second, rounded_mean(passes[0]), rounded_mean(passes[1]),
                              rounded_mean(passes[2]), forward.spread(), static_cast<std::int64_t>(passes[0].size())});
    spread += forward.spread() * forward.mean, weight += forward.mean;
  }
  // Beside layers that do nothing (a flatten), none is ever timed.
  for (const Layer& layer : model.layers) {
    const Program& program = *model.works[static_cast<std::size_t>(layer.work)].program.get();
    if (!program.steps.empty()) continue;
    for (const std::int64_t samples : {run.plan->micro_batch_size, run.plan->last_micro_batch_size})
      if (find_times(profile, describe(program), samples) == nullptr) {
        LayerTimes nothing;
        nothing.key = describe(program), nothing.samples = samples;
        profile.layers.insert(std::upper_bound(profile.layers.begin(), profile.layers.end(), nothing,
                                               [](const LayerTimes& a, const LayerTimes& b) {
                                                 return std::pair(a.key, a.samples) < std::pair(b.key, b.samples);
                                               }),
                              nothing);
      }
  }
  std::vector<double> overhead;
  std::vector<std::pair<double, double>> updates;
  std::map<double, std::vector<double>> update_ns;
  for (const WorkerResult& worker : workers) {
    overhead.insert(overhead.end(), worker.overhead_ns.begin(), worker.overhead_ns.end());
    for (const auto& [parameters, ns] : worker.update_ns)
      update_ns[parameters].push_back(ns);
  }
  profile.op_overhead = rounded_mean(overhead);
  for (const auto& [parameters, ns] : update_ns)
    updates.emplace_back(parameters, statistics(ns).mean);
  if (!updates.empty()) {
    // Sizes that are alike say nothing about a fixed part.
    const bool alike = updates.back().first < 2 * updates.front().first;
    Line line = line_through(updates);
    if (alike) {
      line = {};
      for (const auto& [parameters, ns] : updates)
        line.per_unit += ns / parameters / static_cast<double>(updates.size());
    }
    profile.update = {line.fixed, line.per_unit};
  }
  const Handoff handoff = measure_handoff();
  profile.send = handoff.send, profile.first_read = handoff.first_read, profile.handoff = handoff.noticed;
  // Half of p95 - p5 is 1.64 standard deviations of a normal spread; ops of one run share the clock.
  profile.independent_error = weight > 0 ? spread / weight / 2 / 1.645 : 0;
  profile.common_error = spread_of_rounds(workers) / 2 / 1.645;
  profile.source = fmt::format("measured on {} ({} cores), {}, {}, {} workers busy", profile.machine.processor,
                               profile.machine.cores, profile.machine.isa, profile.date, profile.active);
  return profile;
}

}  // namespace pipewright
