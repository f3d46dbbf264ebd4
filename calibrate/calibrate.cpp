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
#include "core/check.hpp"
#include "runtime/measurement.hpp"
#include "runtime/rank_run.hpp"

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

// Adds all times of layers that compute the same, whichever worker measured them.
void add_by_key(Series& series, const RunPlan& run, const Model& model, const std::vector<WorkerResult>& workers) {
  for (const WorkerResult& worker : workers)
    for (const auto& [of, times] : worker.layer_ns) {
      const auto& [layer, pass, last] = of;
      const Layer& of_model = model.layers[static_cast<std::size_t>(layer)];
      const Program& program = *model.works[static_cast<std::size_t>(of_model.work)].program.get();
      const std::int64_t samples = last != 0 ? run.plan->last_micro_batch_size : run.plan->micro_batch_size;
      auto& into = series[{describe(program), samples}][static_cast<std::size_t>(pass)];
      into.insert(into.end(), times.begin(), times.end());
    }
}

// Beside layers that do nothing (a flatten), none is ever timed.
void add_layers_without_work(Series& series, const RunPlan& run, const Model& model) {
  for (const Layer& layer : model.layers) {
    const Program& program = *model.works[static_cast<std::size_t>(layer.work)].program.get();
    if (!program.steps.empty()) continue;
    for (const std::int64_t samples : {run.plan->micro_batch_size, run.plan->last_micro_batch_size})
      series.try_emplace({describe(program), samples});
  }
}

// Times of an optimizer's step, by parameters, as a line. Sizes that are alike say nothing about a fixed part.
LinearTime update_line(const std::map<double, std::vector<double>>& ns_by_parameters) {
  std::vector<std::pair<double, double>> means;
  for (const auto& [parameters, ns] : ns_by_parameters)
    means.emplace_back(parameters, statistics(ns).mean);
  if (means.back().first >= 2 * means.front().first) {
    const Line line = line_through(means);
    return {line.fixed, line.per_unit};
  }
  LinearTime time;
  for (const auto& [parameters, ns] : means)
    time.ns_per_unit += ns / parameters / static_cast<double>(means.size());
  return time;
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

void put(BytesOut& out, const LinearTime& time) {
  out.put(time.fixed_ns).put(time.ns_per_unit);
}
LinearTime linear(BytesIn& in) {
  const auto fixed = in.get<double>();
  return {fixed, in.get<double>()};
}

}  // namespace

Fingerprint fingerprint(const Backend& backend, const std::string& revision) {
  return {processor(), backend.name(), available_cores(), revision};
}

MachineProfile calibrate(const std::vector<CalibrationRun>& runs,
                         const std::function<std::unique_ptr<Backend>()>& backend, const CalibrationSettings& settings,
                         Ranks* ranks) {
  PP_CHECK(!runs.empty());
  MachineProfile profile;
  profile.name = settings.name;
  profile.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  profile.backend = "cpu";
  profile.machine = fingerprint(*backend(), settings.revision);
  if (ranks != nullptr) profile.machine.cores = ranks->cores();

  Series series;
  std::vector<double> overhead;
  std::map<Optimizer, std::map<double, std::vector<double>>> update_ns;
  for (const CalibrationRun& each : runs) {
    const auto workers = ranks == nullptr
                             ? measure_layers(each.run, backend, each.data, each.settings, settings.seconds)
                             : measure_layers(*ranks, each.run, backend, each.data, each.settings, settings.seconds);
    add_by_key(series, each.run, each.model, workers);
    add_layers_without_work(series, each.run, each.model);
    for (const WorkerResult& worker : workers) {
      overhead.insert(overhead.end(), worker.overhead_ns.begin(), worker.overhead_ns.end());
      for (const auto& [parameters, ns] : worker.update_ns)
        update_ns[each.settings.optimizer.kind][parameters].push_back(ns);
    }
    profile.active = std::max(profile.active, each.run.plan->workers());
    // Half of p95 - p5 is 1.64 standard deviations of a normal spread; ops of one run share the clock.
    profile.common_error = std::max(profile.common_error, spread_of_rounds(workers) / 2 / 1.645);
  }

  double spread = 0, weight = 0;
  for (const auto& [key, passes] : series) {
    const Statistics forward = statistics(passes[0].empty() ? std::vector<double>{0} : passes[0]);
    profile.layers.push_back({key.first, key.second, rounded_mean(passes[0]), rounded_mean(passes[1]),
                              rounded_mean(passes[2]), forward.spread(), static_cast<std::int64_t>(passes[0].size())});
    spread += forward.spread() * forward.mean, weight += forward.mean;
  }
  profile.independent_error = weight > 0 ? spread / weight / 2 / 1.645 : 0;
  profile.op_overhead = rounded_mean(overhead);
  for (const auto& [optimizer, ns_by_parameters] : update_ns)
    profile.updates.push_back({optimizer, update_line(ns_by_parameters)});
  const Handoff handoff = ranks == nullptr ? measure_handoff() : measure_handoff(*ranks);
  profile.send = handoff.send, profile.first_read = handoff.first_read, profile.handoff = handoff.noticed;
  profile.source = fmt::format("measured on {} ({} cores), {}, {}, {} workers busy", profile.machine.processor,
                               profile.machine.cores, profile.machine.isa, profile.date, profile.active);
  return ranks == nullptr ? profile : broadcast(*ranks, profile);
}

MachineProfile broadcast(Ranks& ranks, const MachineProfile& profile) {
  BytesOut out;
  out.put(profile.name).put(profile.date).put(profile.backend);
  out.put(profile.machine.processor).put(profile.machine.isa).put(profile.machine.cores).put(profile.machine.revision);
  out.put(profile.active).put(static_cast<std::uint64_t>(profile.layers.size()));
  for (const LayerTimes& layer : profile.layers)
    out.put(layer.key)
        .put(layer.samples)
        .put(std::array{layer.forward, layer.input_gradient, layer.weight_gradient})
        .put(layer.spread)
        .put(layer.measured);
  out.put(profile.op_overhead).put(profile.handoff);
  put(out, profile.send), put(out, profile.first_read);
  out.put(static_cast<std::uint64_t>(profile.updates.size()));
  for (const auto& [optimizer, time] : profile.updates)
    out.put(optimizer), put(out, time);
  out.put(profile.common_error).put(profile.independent_error).put(profile.source);
  const Blob bytes = ranks.broadcast(out.bytes());
  BytesIn in(bytes);
  MachineProfile got;
  got.name = in.text(), got.date = in.text(), got.backend = in.text();
  got.machine.processor = in.text(), got.machine.isa = in.text(), got.machine.cores = in.get<int>();
  got.machine.revision = in.text();
  got.active = in.get<int>();
  got.layers.resize(in.counted(1));
  for (LayerTimes& layer : got.layers) {
    layer.key = in.text(), layer.samples = in.get<std::int64_t>();
    layer.forward = in.get<Time>(), layer.input_gradient = in.get<Time>(), layer.weight_gradient = in.get<Time>();
    layer.spread = in.get<double>(), layer.measured = in.get<std::int64_t>();
  }
  got.op_overhead = in.get<Time>(), got.handoff = in.get<Time>();
  got.send = linear(in), got.first_read = linear(in);
  for (std::uint64_t left = in.counted(1); left > 0; --left) {
    const auto optimizer = in.get<Optimizer>();
    got.updates.push_back({optimizer, linear(in)});
  }
  got.common_error = in.get<double>(), got.independent_error = in.get<double>();
  got.source = in.text();
  return got;
}

}  // namespace pipewright
