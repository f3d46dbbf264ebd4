#include "cli/real_run.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "calibrate/calibrate.hpp"
#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "io/format_quantity.hpp"
#include "io/names.hpp"
#include "io/quantity.hpp"
#include "io/read_file.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "runtime/backends/cpu.hpp"
#include "runtime/rank_run.hpp"
#include "runtime/transports/local.hpp"

namespace pipewright {
namespace {

constexpr std::array<std::string_view, 12> kRunKeys = {"backend",       "transport", "steps",    "warmup",
                                                       "seed",          "data",      "momentum", "epsilon",
                                                       "learning_rate", "betas",     "timeout",  "memory_cap"};

std::vector<unsigned char> bytes_of(const std::string& path) {
  const std::string text = read_file(path, std::size_t{1} << 30);
  return {text.begin(), text.end()};
}

// A path is relative to the scenario's folder.
std::string data_path(const Scenario& scenario) {
  const std::filesystem::path path = scenario.run.data;
  if (path.is_absolute() || scenario.file.empty() || scenario.file == "-") return path.string();
  return (std::filesystem::path(scenario.file).parent_path() / path).string();
}

std::unique_ptr<Data> data_of(const Scenario& scenario, const SampleShape& shape) {
  const auto seed = static_cast<std::uint64_t>(scenario.run.seed);
  if (shape.values == 0 || shape.label_rows == 0)
    throw InputError(scenario.model.place, "model \"" + scenario.model.name +
                                               "\" cannot be run: it needs a first layer that reads its input and a "
                                               "last one that computes a loss; end it with {op: cross_entropy}");
  if (scenario.run.data == "synthetic") return synthetic_data(shape, seed);
  const std::string path = data_path(scenario);
  std::vector<unsigned char> bytes = bytes_of(path);
  const bool images = bytes.size() > 4 && bytes[0] == 0 && bytes[1] == 0 && bytes[2] == 8 && bytes[3] == 3;
  if (!images) return text_data(std::move(bytes), shape, seed, path);
  std::string labels = path;
  if (const auto at = labels.rfind("images-idx3"); at != std::string::npos) labels.replace(at, 11, "labels-idx1");
  return image_data(std::move(bytes), bytes_of(labels), shape, seed, path);
}

// A throttled run has a link of its own for every pair of workers.
void check_links_apart(const Scenario& scenario, const RunPlan& run, const Topology& topology) {
  std::map<int, std::pair<PositionId, PositionId>> user;
  for (const RunChannel& channel : run.channels) {
    const auto device = [&](PositionId p) { return run.plan->device[static_cast<std::size_t>(p)]; };
    for (const int link : topology.route(device(channel.from), device(channel.to)).links) {
      const auto [found, added] = user.try_emplace(link, channel.from, channel.to);
      if (!added && found->second != std::pair(channel.from, channel.to))
        throw InputError(scenario.cluster.place,
                         "run.transport: throttled gives every pair of workers a link of its own, and this cluster's "
                         "routes share " +
                             topology.links()[static_cast<std::size_t>(link)].name +
                             "; use links of kind mesh, or transport local");
    }
  }
}

// The arena's figures in place of the memory model's: what is counted, resp. measured, here.
MemoryBytes memory_bytes(const ArenaUse& use) {
  const auto of = [&](Tag tag) { return use.by_tag[static_cast<std::size_t>(tag)]; };
  MemoryBytes bytes;
  bytes.weights = of(Tag::Weights), bytes.gradients = of(Tag::Gradients), bytes.optimizer = of(Tag::Optimizer);
  bytes.stash = of(Tag::Stash), bytes.recompute = of(Tag::Recompute), bytes.workspace = of(Tag::Workspace);
  bytes.buffers = of(Tag::Buffers);
  return bytes;
}

void set_memory(Answer& answer, const std::vector<ArenaUse>& uses) {
  for (std::size_t w = 0; w < uses.size(); ++w) {
    WorkerReport& worker = answer.report.workers[w];
    worker.memory.bytes = memory_bytes(uses[w]);
    worker.need = need(answer.memory, worker.memory.bytes, worker.stage);
    StageReport& stage = answer.report.stages[static_cast<std::size_t>(worker.stage)];
    if (stage.workers.front() == worker.id || worker.memory.bytes.total() > stage.memory.bytes.total())
      stage.memory = worker.memory, stage.need = worker.need;
  }
}

Throttles throttles(const Scenario& scenario, const Plan& plan, const RunPlan& run) {
  Throttles list;
  if (scenario.run.transport != RunTransport::Throttled) return list;
  const Topology topology(scenario.cluster);
  check_links_apart(scenario, run, topology);
  for (WorkerId from = 0; from < plan.workers(); ++from)
    for (WorkerId to = 0; to < plan.workers(); ++to) {
      const Route route =
          topology.route(plan.device[static_cast<std::size_t>(from)], plan.device[static_cast<std::size_t>(to)]);
      list.push_back({route.bandwidth, route.latency});
    }
  return list;
}

// The steps that all workers have finished of whom anything is known: in a run of several processes, a worker that is
// gone has left nothing.
std::string measured_until_then(const std::vector<WorkerResult>& results) {
  std::vector<WorkerResult> known;
  std::string gone;
  for (std::size_t w = 0; w < results.size(); ++w)
    if (!results[w].steps.empty())
      known.push_back(results[w]);
    else
      gone += (gone.empty() ? "" : ", ") + std::to_string(w);
  std::size_t steps = known.empty() ? 0 : known.front().steps.size();
  for (const WorkerResult& worker : known)
    steps = std::min(steps, worker.steps.size());
  if (steps == 0) return "";
  std::string text =
      gone.empty() ? "measured until then:\n" : "measured until then (nothing of worker " + gone + "):\n";
  for (std::size_t s = 0; s < steps; ++s) {
    bool loss = false;
    for (const WorkerResult& worker : known)
      loss = loss || worker.steps[s].samples > 0;
    text += fmt::format("  step {:>4}  loss {}  {}\n", known.front().steps[s].number,
                        loss ? fmt::format("{:.6g}", loss_of(known, s)) : "unknown",
                        short_time(timeline_of(known, s).makespan));
  }
  return text;
}

}  // namespace

std::vector<std::string> run_settings_as_changes(const Arguments& arguments) {
  std::vector<std::string> changes;
  for (const std::string_view key : kRunKeys) {
    std::string option = "--" + std::string(key);
    for (char& c : option)
      if (c == '_') c = '-';
    if (!arguments.has(option)) continue;
    std::string value = arguments.last(option, "");
    // A path on the command line is one from here; in a file, from the file's folder.
    if (key == "data" && value != "synthetic") value = std::filesystem::absolute(value).string();
    changes.push_back("run." + std::string(key) + "=" + value);
  }
  return changes;
}

RealRun::RealRun(const Scenario& scenario, Ranks* ranks) : scenario_(scenario), ranks_(ranks) {
  if (ranks == nullptr) check_one_process(scenario);
  const CostModel cost = cost_model(scenario);
  predicted_ = price(find_plan(scenario, cost), cost, Engine::Auto);
  run_plan_ = pipewright::run_plan(predicted_.plan, predicted_.schedule, scenario.model, scenario.training,
                                   *cpu_backend(), {.weight_stashing = scenario.run.weight_stashing});
  data_ = data_of(scenario, sample_shape(run_plan_.code));
  // What is compared with a run is one step of it, with fill and drain, not a steady state.
  if (!predicted_.schedule.flush)
    predicted_.report = summarize(predicted_.timeline, predicted_.schedule, predicted_.plan, predicted_.costs,
                                  predicted_.memory, scenario, {});
  std::vector<ArenaUse> counted;
  for (WorkerId w = 0; w < predicted_.plan.workers(); ++w)
    counted.push_back(replayed(run_plan_, w % predicted_.plan.positions()));
  set_memory(predicted_, counted);
}

RunSettings RealRun::settings() const {
  const RunRequest& run = scenario_.run;
  RunSettings settings;
  settings.optimizer = {
      scenario_.training.optimizer, run.learning_rate, run.momentum, run.betas[0], run.betas[1], run.epsilon};
  settings.seed = static_cast<std::uint64_t>(run.seed);
  settings.steps = static_cast<int>(run.steps + run.warmup), settings.warmup = static_cast<int>(run.warmup);
  if (run.memory_cap) settings.memory_cap = *run.memory_cap;
  return settings;
}

void RealRun::check_memory() const {
  for (PositionId p = 0; p < predicted_.plan.positions(); ++p) {
    try {
      replayed(run_plan_, p, settings().memory_cap);
    } catch (const OutOfArena& error) {
      throw OutOfArena(fmt::format("worker {}: {}", p, error.what()));
    }
  }
}

std::vector<WorkerResult> RealRun::run(const RunSettings& settings) const {
  if (ranks_ != nullptr) {
    check_alike(settings);
    check_memory();  // where the cap does not hold a worker, all ranks say so
    return execute(*ranks_, run_plan_, cpu_backend, *data_, settings);
  }
  const bool spin = threads_of(run_plan_) <= available_cores();
  const auto endpoints = local_transport(run_plan_, {.spin = spin, .timeout_s = scenario_.run.timeout},
                                         throttles(scenario_, predicted_.plan, run_plan_));
  return execute(run_plan_, cpu_backend, *data_, endpoints, settings);
}

Answer RealRun::measured(const std::vector<WorkerResult>& workers, const StepTimes& times) const {
  Answer answer = predicted_;
  answer.timeline = timeline_of(workers, times.median_step);
  answer.timeline.engine_reason = "the step of median length";
  answer.report = summarize(answer.timeline, answer.schedule, answer.plan, answer.costs, answer.memory, scenario_, {});
  std::vector<ArenaUse> measured;
  for (const WorkerResult& worker : workers)
    measured.push_back(worker.memory);
  set_memory(answer, measured);
  answer.report.provenance = {"measured: " + backend_name() + ", " + data_->name()};
  if (ranks_ != nullptr && ranks_->machines() > 1) answer.report.provenance.push_back(ranks_->clocks());
  return answer;
}

MachineProfile calibrated(const std::vector<const RealRun*>& runs, double seconds, const std::string& name) {
  std::vector<CalibrationRun> measured;
  for (const RealRun* const each : runs) {
    RunSettings settings = each->settings();
    settings.memory_cap = {};
    measured.push_back({each->run_plan(), each->scenario().model, each->data(), settings});
  }
  const CalibrationSettings how{.seconds = seconds, .name = name, .revision = PIPEWRIGHT_VERSION};
  for (const RealRun* const each : runs)
    each->check_alike(each->settings());
  return calibrate(measured, cpu_backend, how, runs.front()->ranks());
}

double calibration_seconds(const Arguments& arguments) {
  const Parsed<Time> budget = parse_time(arguments.last("--budget", "3 s"));
  if (!budget.value || *budget.value <= Time{})
    throw InputError("--budget: \"" + arguments.last("--budget", "") + "\" is no time; write e.g. --budget 5s");
  return static_cast<double>(budget.value->value) * 1e-9;
}

int with_run_failures(const std::function<int()>& body) {
  try {
    return body();
  } catch (const OutOfArena& error) {
    if (prints())
      print(std::string("infeasible: ") + error.what() +
            "\nwhat would make it fit: smaller micro-batches, recompute: full, more stages, or a larger "
            "run.memory_cap\n");
    return kNo;
  } catch (const RunFailed& failed) {
    if (tells_for_itself()) print(measured_until_then(failed.results));
    throw InputError(std::string("the run failed: ") + failed.what());
  }
}

Scenario priced_with(const Scenario& scenario, MachineProfile profile) {
  Scenario priced = scenario;
  priced.cost = CostSourceKind::Profile;
  priced.cluster.source = profile.source;
  priced.cluster.device.name = profile.machine.processor + " core", priced.cluster.device.source = profile.source;
  priced.profile = std::make_shared<const MachineProfile>(std::move(profile));
  if (scenario.run.transport != RunTransport::Throttled) {
    priced.cluster.links = {};
    if (priced.cluster.network) {
      priced.cluster.network = Network{};
      priced.cluster.network->ideal = true;
    }
  }
  return priced;
}

std::string other_machine(const MachineProfile& profile) {
  const Fingerprint here = fingerprint(*cpu_backend(), PIPEWRIGHT_VERSION);
  const auto differs = [&](const std::string& what, const std::string& measured, const std::string& now) {
    return "profile \"" + profile.name + "\" was measured on another " + what + " (" + measured + ") than this one (" +
           now + "): its times need not hold; calibrate here";
  };
  if (profile.machine.processor != here.processor)
    return differs("processor", profile.machine.processor, here.processor);
  if (profile.machine.isa != here.isa) return differs("instruction set", profile.machine.isa, here.isa);
  return "";
}

void RealRun::check_alike(const RunSettings& settings) const {
  if (ranks_ == nullptr) return;
  ranks_->agree(must_match(run_plan_, settings, *data_, *cpu_backend()));
  check_size(*ranks_, predicted_.plan.workers());
}

int RealRun::cores() const {
  return ranks_ != nullptr ? ranks_->cores() : available_cores();
}

std::string RealRun::workers() const {
  return fmt::format("{} workers ({})", predicted_.plan.workers(),
                     ranks_ == nullptr ? "threads"
                     : ranks_->machines() > 1
                         ? fmt::format("processes on {} machines; {}", ranks_->machines(), ranks_->clocks())
                         : "processes");
}

std::string RealRun::backend_name() const {
  return cpu_backend()->name();
}

}  // namespace pipewright
