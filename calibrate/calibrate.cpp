#include "calibrate/calibrate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <fstream>
#include <map>
#include <tuple>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "calibrate/all_reduce.hpp"
#include "calibrate/statistics.hpp"
#include "core/check.hpp"
#include "runtime/measurement.hpp"
#include "runtime/rank_run.hpp"

namespace pipewright::calibrate {
namespace {

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0)
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "unknown processor";
}

// Passes over all runs, so that a machine that changes its speed meanwhile does so for all.
int passes_of(double seconds) {
  return seconds < 0.4 ? 1 : 4;
}

// What a layer computes, samples, workers that compute meanwhile (0: all).
using Key = std::tuple<std::string, std::int64_t, int>;
using Series = std::map<Key, std::array<std::vector<double>, 3>>;

// As the run computes it: of a part of a sequence, too.
const Program& program_of(const RunPlan& run, LayerId layer) {
  for (const ChunkCode& code : run.code)
    for (const CodeStep& step : code.steps)
      if (step.layer == layer) return *step.program;
  check_failed("a layer that was measured", __FILE__, __LINE__);
}

// Adds all times of layers that compute the same, whichever worker measured them.
void add_by_key(Series& series, const RunPlan& run, const std::vector<WorkerResult>& workers, int active) {
  for (const WorkerResult& worker : workers)
    for (const auto& [of, times] : worker.layer_ns) {
      const auto& [layer, pass, last] = of;
      const Program& program = program_of(run, layer);
      const int slices = run.schedule->shape.slices;
      const std::int64_t samples = last != 0 ? run.plan->last_micro_batch_size : run.plan->micro_batch_size;
      const std::string key = slices > 1 ? key_of_slice(describe(program), last, slices) : describe(program);
      auto& into = series[{key, samples, active}][at(pass)];
      into.insert(into.end(), times.begin(), times.end());
    }
}

// By `key_of_slice`; the operation of that name is described by its shapes.
bool is_slice(const std::string& key) {
  const std::size_t last = key.rfind("; slice ");
  return last != std::string::npos && key.find(" of ", last) != std::string::npos;
}

// What only runs with fewer workers than the most computed takes with all what it takes with the most of them.
void add_all_busy(Series& series) {
  Series all;
  for (const auto& [key, times] : series) {  // ascending workers
    const auto& [computes, samples, active] = key;
    if (!series.contains({computes, samples, 0})) all[{computes, samples, 0}] = times;
  }
  series.merge(all);
  std::erase_if(series, [](const auto& one) {  // slices have no prices by load (StepCosts::slices)
    const auto& [computes, samples, active] = one.first;
    return active > 0 && is_slice(computes);
  });
}

// Beside layers that do nothing (a flatten), none is ever timed.
void add_layers_without_work(Series& series, const RunPlan& run, const Model& model) {
  for (const Layer& layer : model.layers) {
    const Program& program = *model.works[at(layer.work)].program.get();
    if (!program.steps.empty()) continue;
    for (const std::int64_t samples : {run.plan->micro_batch_size, run.plan->last_micro_batch_size})
      series.try_emplace({describe(program), samples, 0});
  }
}

// Times of an optimizer's step, by parameters, as a line. Sizes that are alike say nothing about a fixed part.
LinearTime update_line(const std::map<double, std::vector<double>>& ns_by_parameters) {
  std::vector<std::pair<double, double>> means;
  for (const auto& [parameters, ns] : ns_by_parameters)
    means.emplace_back(parameters, mean(ns));
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
  return ns.empty() ? Time{} : Time{std::llround(mean(ns))};
}

// Busy time of each round of a worker, ns.
std::vector<double> rounds_of(const WorkerResult& worker) {
  std::vector<double> rounds;
  for (const WorkerStep& step : worker.steps) {
    double busy = 0;
    for (const Span& span : step.times.compute)
      busy += static_cast<double>((span.end - span.start).value);
    rounds.push_back(busy);
  }
  return rounds;
}

// How much whole rounds of a worker differ, in which the errors of single ops have cancelled, relative, as a standard
// deviation: the middle half of a normal spread is 1.349 of them wide. The largest of all workers.
double spread_of_rounds(const std::vector<WorkerResult>& workers) {
  double spread = 0;
  for (const WorkerResult& worker : workers)
    if (const std::vector<double> rounds = rounds_of(worker); !rounds.empty()) {
      const Statistics s = statistics(rounds);
      if (s.median > 0) spread = std::max(spread, (s.p75 - s.p25) / s.median / 1.349);
    }
  return spread;
}

// What a run's layers were measured with, by workers that compute (0: all).
using Measured = std::map<int, std::vector<WorkerResult>>;

void add(std::vector<WorkerResult>& all, std::vector<WorkerResult> more) {
  all.resize(more.size());
  for (std::size_t w = 0; w < more.size(); ++w)
    add_rounds(all[w], std::move(more[w]));
}

// What is measured at once: the workers that compute (empty: all) and how many there are at that load (0: all).
struct Slice {
  int active = 0;
  std::vector<WorkerId> busy;
  double share = 1;  // of the time of a pass
};

// Half of the time all workers compute, then so many at once as fewer there are: 1, 2, 4 ... of them, until each was
// among them. Over processes, and where workers share cores, all compute.
std::vector<Slice> slices_of(const RunPlan& run, const Ranks* ranks) {
  const int workers = run.plan->workers();
  int loads = 0;
  for (int active = 1; active < workers; active *= 2)
    ++loads;
  if (ranks != nullptr || workers > available_cores() || loads == 0) return {Slice{}};
  std::vector<Slice> slices = {{0, {}, 0.5}};
  for (int active = 1; active < workers; active *= 2) {
    const int groups = (workers + active - 1) / active;
    for (int group = 0; group < groups; ++group) {
      Slice slice{active, {}, 0.5 / loads / groups};
      for (int i = 0; i < active; ++i)
        slice.busy.push_back((group * active + i) % workers);
      slices.push_back(std::move(slice));
    }
  }
  return slices;
}

void put(BytesOut& out, const LinearTime& time) {
  out.put(time.fixed_ns).put(time.ns_per_unit);
}
LinearTime linear(BytesIn& in) {
  const auto fixed = in.get<double>();
  return {fixed, in.get<double>()};
}

// All rounds of all runs, in several passes. Where somebody asks to end, what was measured until then.
std::vector<Measured> all_rounds(const std::vector<CalibrationRun>& runs, const BackendMaker& backend,
                                 const CalibrationSettings& settings, Ranks* ranks) {
  std::vector<Measured> measured(runs.size());
  std::vector<std::vector<Slice>> slices;
  const int passes = passes_of(settings.seconds);
  std::int64_t done = 0, all = 0;
  for (const CalibrationRun& each : runs)
    all += passes * static_cast<std::int64_t>(slices.emplace_back(slices_of(each.run, ranks)).size());
  try {
    for (int pass = 0; pass < passes; ++pass)
      for (std::size_t i = 0; i < runs.size(); ++i) {
        const CalibrationRun& each = runs[i];
        const double seconds = settings.seconds / passes;
        LayerRounds rounds(each.run, backend, each.data, each.settings);  // of this pass: all runs' may not fit at once
        for (const Slice& slice : slices[i]) {
          if (settings.progress) settings.progress(each.name, done++, all);
          add(measured[i][slice.active],
              ranks != nullptr ? measure_layers(*ranks, each.run, backend, each.data, each.settings, seconds)
                               : rounds.measured(slice.share * seconds, slice.busy));
        }
      }
  } catch (const RunFailed&) {
    if (asked_to_end() == 0 || ranks != nullptr) throw;
  }
  return measured;
}

// By what they compute; errors that all layers of a worker have in common; overhead, probes and updates.
Series add_rounds_of_all(const std::vector<CalibrationRun>& runs, std::vector<Measured> measured,
                         MachineProfile& profile) {
  Series series;
  std::vector<double> overhead, probes;
  std::map<Optimizer, std::map<double, std::vector<double>>> update_ns;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const CalibrationRun& each = runs[i];
    const int all_of_it = each.run.plan->workers() < profile.active ? each.run.plan->workers() : 0;
    profile.common_error = std::max(profile.common_error, spread_of_rounds(measured[i][0]));
    for (auto& [active, workers] : measured[i]) {
      for (WorkerResult& worker : workers)
        keep_rounds(worker, middle_half(rounds_of(worker)));
      add_by_key(series, each.run, workers, active == 0 ? all_of_it : active);
    }
    add_layers_without_work(series, each.run, each.model);
    for (const WorkerResult& worker : measured[i][0]) {
      overhead.insert(overhead.end(), worker.overhead_ns.begin(), worker.overhead_ns.end());
      for (const auto& [parameters, ns] : worker.update_ns)
        update_ns[each.settings.optimizer.kind][parameters].push_back(ns);
      for (const WorkerStep& step : worker.steps)
        probes.push_back(static_cast<double>(step.probe.value));
    }
  }
  add_all_busy(series);
  if (!probes.empty()) profile.probe = Time{std::llround(statistics(probes).median)};
  profile.op_overhead = rounded_mean(overhead);
  for (const auto& [optimizer, ns_by_parameters] : update_ns)
    profile.updates.push_back({optimizer, update_line(ns_by_parameters)});
  return series;
}

void add_layers(const Series& series, MachineProfile& profile) {
  double spread = 0, weight = 0;
  for (const auto& [key, times] : series) {
    const auto& [computes, samples, active] = key;
    const Statistics forward = statistics(times[0].empty() ? std::vector<double>{0} : times[0]);
    profile.layers.push_back({computes, samples, rounded_mean(times[0]), rounded_mean(times[1]), rounded_mean(times[2]),
                              forward.spread(), static_cast<std::int64_t>(times[0].size()), active});
    if (active > 0) continue;
    spread += forward.spread() * forward.mean, weight += forward.mean;
  }
  profile.independent_error = weight > 0 ? spread / weight / 2 / 1.645 : 0;
}

void add_all_reduces(const std::vector<CalibrationRun>& runs, const BackendMaker& backend, Staging staging,
                     MachineProfile& profile) {
  for (const CalibrationRun& each : runs)
    for (const int members : group_sizes(each.run))
      if (find_all_reduce(profile, members) == nullptr && each.run.plan->workers() <= available_cores())
        profile.all_reduces.push_back({members, measure_all_reduce(each.run, members, backend, staging)});
  std::ranges::sort(profile.all_reduces,
                    [](const AllReduceTime& a, const AllReduceTime& b) { return a.members < b.members; });
}

}  // namespace

Fingerprint fingerprint(const Backend& backend, const std::string& revision) {
  const DeviceFacts device = backend.device();
  return {device.name.empty() ? processor() : device.name,
          backend.name(),
          available_cores(),
          revision,
          device.sms,
          device.driver};
}

MachineProfile calibrate(const std::vector<CalibrationRun>& runs, const BackendMaker& backend,
                         const CalibrationSettings& settings, Ranks* ranks) {
  PP_CHECK(!runs.empty());
  MachineProfile profile;
  profile.name = settings.name;
  profile.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  const std::unique_ptr<Backend> device = backend();
  profile.backend = device->kind();
  profile.precision = device->precision();
  profile.machine = fingerprint(*device, settings.revision);
  if (ranks != nullptr) profile.machine.cores = ranks->cores();

  std::vector<Measured> measured = all_rounds(runs, backend, settings, ranks);
  const bool ended = asked_to_end() != 0;
  for (const CalibrationRun& each : runs)
    profile.active = std::max(profile.active, each.run.plan->workers());
  add_layers(add_rounds_of_all(runs, std::move(measured), profile), profile);
  if (ended) throw CalibrationEnded(std::move(profile));
  if (ranks == nullptr) add_all_reduces(runs, backend, settings.staging, profile);
  const Handoff handoff = ranks == nullptr   ? measure_handoff(backend, settings.staging)
                          : settings.handoff ? settings.handoff(*ranks, backend)
                                             : measure_handoff(*ranks, backend);
  profile.send = handoff.send, profile.first_read = handoff.first_read, profile.handoff = handoff.noticed;
  const Fingerprint& here = profile.machine;
  profile.source = fmt::format("measured on {} ({}), {}, {}, {} workers busy", here.processor,
                               here.sms > 0 ? "driver for CUDA " + here.driver : fmt::format("{} cores", here.cores),
                               here.isa, profile.date, profile.active);
  if (settings.handoff) profile.source += ", messages by NCCL";
  if (settings.staging == Staging::Host) profile.source += ", messages through the host's memory";
  return ranks == nullptr ? profile : broadcast(*ranks, profile);
}

MachineProfile broadcast(Ranks& ranks, const MachineProfile& profile) {
  BytesOut out;
  out.put(profile.name).put(profile.date).put(profile.backend).put(profile.precision);
  out.put(profile.machine.processor).put(profile.machine.isa).put(profile.machine.cores).put(profile.machine.revision);
  out.put(profile.machine.sms).put(profile.machine.driver);
  out.put(profile.active).put(static_cast<std::uint64_t>(profile.layers.size()));
  for (const LayerTimes& layer : profile.layers)
    out.put(layer.key)
        .put(layer.samples)
        .put(std::array{layer.forward, layer.input_gradient, layer.weight_gradient})
        .put(layer.spread)
        .put(layer.measured)
        .put(layer.active);
  out.put(profile.op_overhead).put(profile.handoff);
  put(out, profile.send), put(out, profile.first_read);
  out.put(static_cast<std::uint64_t>(profile.updates.size()));
  for (const auto& [optimizer, time] : profile.updates)
    out.put(optimizer), put(out, time);
  out.put(static_cast<std::uint64_t>(profile.all_reduces.size()));
  for (const auto& [members, time] : profile.all_reduces)
    out.put(members), put(out, time);
  out.put(profile.probe);
  out.put(profile.common_error).put(profile.independent_error).put(profile.source);
  const Blob bytes = ranks.broadcast(out.bytes());
  BytesIn in(bytes);
  MachineProfile got;
  got.name = in.text(), got.date = in.text(), got.backend = in.text();
  got.precision = in.get<Precision>();
  got.machine.processor = in.text(), got.machine.isa = in.text(), got.machine.cores = in.get<int>();
  got.machine.revision = in.text();
  got.machine.sms = in.get<int>(), got.machine.driver = in.text();
  got.active = in.get<int>();
  got.layers.resize(in.counted(1));
  for (LayerTimes& layer : got.layers) {
    layer.key = in.text(), layer.samples = in.get<std::int64_t>();
    layer.forward = in.get<Time>(), layer.input_gradient = in.get<Time>(), layer.weight_gradient = in.get<Time>();
    layer.spread = in.get<double>(), layer.measured = in.get<std::int64_t>();
    layer.active = in.get<int>();
  }
  got.op_overhead = in.get<Time>(), got.handoff = in.get<Time>();
  got.send = linear(in), got.first_read = linear(in);
  for (std::uint64_t left = in.counted(1); left > 0; --left) {
    const auto optimizer = in.get<Optimizer>();
    got.updates.push_back({optimizer, linear(in)});
  }
  for (std::uint64_t left = in.counted(1); left > 0; --left) {
    const auto members = in.get<int>();
    got.all_reduces.push_back({members, linear(in)});
  }
  got.probe = in.get<Time>();
  got.common_error = in.get<double>(), got.independent_error = in.get<double>();
  got.source = in.text();
  return got;
}

}  // namespace pipewright::calibrate
