#include "cli/real_run.hpp"

#include <array>
#include <filesystem>

#include "calibrate/calibrate.hpp"
#include "io/names.hpp"
#include "io/read_file.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "runtime/backends/cpu.hpp"
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

Throttles throttles(const Scenario& scenario, const Plan& plan) {
  Throttles list;
  if (scenario.run.transport != RunTransport::Throttled) return list;
  const Topology topology(scenario.cluster);
  for (WorkerId from = 0; from < plan.workers(); ++from)
    for (WorkerId to = 0; to < plan.workers(); ++to) {
      const Route route =
          topology.route(plan.device[static_cast<std::size_t>(from)], plan.device[static_cast<std::size_t>(to)]);
      list.push_back({route.bandwidth, route.latency});
    }
  return list;
}

}  // namespace

std::vector<std::string> run_settings_as_changes(const Arguments& arguments) {
  std::vector<std::string> changes;
  for (const std::string_view key : kRunKeys) {
    std::string option = "--" + std::string(key);
    for (char& c : option)
      if (c == '_') c = '-';
    if (arguments.has(option)) changes.push_back("run." + std::string(key) + "=" + arguments.last(option, ""));
  }
  return changes;
}

RealRun::RealRun(const Scenario& scenario) : scenario_(scenario) {
  const CostModel cost = cost_model(scenario);
  predicted_ = price(find_plan(scenario, cost), cost, Engine::Auto);
  run_plan_ = pipewright::run_plan(predicted_.plan, predicted_.schedule, scenario.model, scenario.training,
                                   *cpu_backend(), {.weight_stashing = scenario.run.weight_stashing});
  data_ = data_of(scenario, sample_shape(run_plan_.code));
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

std::vector<WorkerResult> RealRun::run(const RunSettings& settings) const {
  const bool spin = predicted_.plan.workers() <= available_cores();
  const auto endpoints = local_transport(run_plan_, {.spin = spin, .timeout_s = scenario_.run.timeout},
                                         throttles(scenario_, predicted_.plan));
  return execute(run_plan_, cpu_backend, *data_, endpoints, settings);
}

Answer RealRun::measured(const std::vector<WorkerResult>& workers, const StepTimes& times) const {
  Answer answer = predicted_;
  answer.timeline = timeline_of(workers, times.median_step);
  answer.timeline.engine_reason = "the step of median length";
  answer.report = summarize(answer.timeline, answer.schedule, answer.plan, answer.costs, answer.memory, scenario_, {});
  answer.report.provenance = {"measured: " + backend_name() + ", " + data_->name()};
  return answer;
}

MachineProfile RealRun::calibrated(double seconds) const {
  RunSettings run = settings();
  run.memory_cap = {};
  MachineProfile profile = calibrate(run_plan_, scenario_.model, cpu_backend, *data_, run,
                                     {.seconds = seconds, .name = scenario_.name, .revision = PIPEWRIGHT_VERSION});
  for (const auto& [name, optimizer] : kOptimizers)
    if (optimizer == scenario_.training.optimizer) profile.optimizer = name;
  return profile;
}

Scenario priced_with(const Scenario& scenario, MachineProfile profile) {
  Scenario priced = scenario;
  priced.cost = CostSourceKind::Profile;
  priced.cluster.source = profile.source;
  priced.profile = std::make_shared<const MachineProfile>(std::move(profile));
  if (scenario.run.transport == RunTransport::Local) {
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
  const auto differs = [](const std::string& what, const std::string& measured, const std::string& now) {
    return "profile \"" + measured + "\" was measured on another " + what + " than this one (" + now +
           "): its times need not hold; calibrate here";
  };
  if (profile.machine.processor != here.processor)
    return differs("processor", profile.machine.processor, here.processor);
  if (profile.machine.isa != here.isa) return differs("instruction set", profile.machine.isa, here.isa);
  return "";
}

std::string RealRun::backend_name() const {
  return cpu_backend()->name();
}

}  // namespace pipewright
