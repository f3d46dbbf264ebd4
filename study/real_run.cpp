#include "study/real_run.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "calibrate/calibrate.hpp"
#include "calibrate/nccl_handoff.hpp"
#include "core/check.hpp"
#include "core/cost/buckets.hpp"
#include "core/folds.hpp"
#include "core/question/profile.hpp"
#include "io/console.hpp"
#include "io/import/byte_source.hpp"
#include "io/text/names.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "runtime/backends/gpu.hpp"
#include "runtime/gpu_places.hpp"
#include "runtime/nccl_ranks.hpp"
#include "runtime/rank_run.hpp"
#include "runtime/transports/local.hpp"
#include "runtime/transports/staged.hpp"
#include "sim/summarize.hpp"

namespace pipewright::study {
namespace {

// A whole file, unpacked where it is gzip, as Debian packs images.
std::vector<unsigned char> bytes_of(const std::string& path) {
  constexpr std::size_t kLargest = std::size_t{1} << 30;
  ByteSource source(path);
  std::vector<unsigned char> bytes;
  for (int byte = source.next(); byte >= 0; byte = source.next()) {
    if (bytes.size() == kLargest) throw InputError(path + ": has more than 1 GiB; train on a part of it");
    bytes.push_back(static_cast<unsigned char>(byte));
  }
  return bytes;
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
  std::map<int, std::pair<WorkerId, WorkerId>> user;
  const auto device = [&](WorkerId worker) { return run.plan->device[static_cast<std::size_t>(worker)]; };
  for (const RunChannel& channel : run.channels)
    for (CopyId copy = 0; copy < (channel.between_copies() ? run.plan->copies() : 1); ++copy) {
      const std::pair<WorkerId, WorkerId> ends(copy * run.plan->positions() + channel.from,
                                               run.receiver(channel, copy));
      for (const int link : topology.route(device(ends.first), device(ends.second)).links)
        if (const auto [found, added] = user.try_emplace(link, ends); !added && found->second != ends)
          throw InputError(scenario.cluster.place, "run.transport",
                           "throttled gives every pair of workers a link of its own, and this cluster's routes share " +
                               topology.link(link).name + "; use links of kind mesh, or transport local");
    }
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

// What was measured is what was needed: no reserve, no allowance.
MemoryNeed taken(const MemoryBytes& bytes, Bytes capacity) {
  const Bytes all = bytes.total();
  return {.model = all,
          .rounding = {},
          .fragmentation = {},
          .with_reserve = all,
          .capacity = capacity,
          .low = all,
          .high = all,
          .to_fit = all};
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

// A gradient of the mean loss is often below fp16's least normal number, 2^-14; times 2^10 fewer are.
double loss_scale(const Scenario& scenario) {
  return scenario.run.loss_scale.value_or(scenario.training.precision == Precision::Fp16 ? 1024 : 1);
}

// Ops take what they took in the mean over workers and full micro-batches; what did not run keeps its price.
void take_measured(StepCosts& costs, const Schedule& schedule, const Timeline& timeline) {
  std::vector<std::int64_t> sums(costs.duration.size()), counts(costs.duration.size());
  const bool last_differs = costs.duration_last != costs.duration && costs.shape.micro_batches > 1;
  for (WorkerId w = 0; w < std::ssize(timeline.workers); ++w) {
    const Lane& lane = schedule.lane_of(w);
    for (std::size_t i = 0; i < lane.compute.size(); ++i) {
      const Op& op = lane.compute[i];
      if (last_differs && op.kind != Kind::Update && costs.is_last(op)) continue;
      const Span& took = timeline.workers[w].compute[i];
      const std::size_t row = std::size_t{op.virtual_stage} * kKinds + static_cast<std::size_t>(op.kind);
      sums[row] += (took.end - took.start).value, ++counts[row];
    }
  }
  for (std::size_t row = 0; row < sums.size(); ++row)
    if (counts[row] > 0) costs.duration[row] = Time{sums[row] / counts[row]};
}

Staging staging_of(const Scenario& scenario) {
  return scenario.run.transport == RunTransport::Staged ? Staging::Host : Staging::None;
}

// Times of a profile are those of one arithmetic, and of one number of SMs.
void check_one_device(const RealRun& first, const RealRun& other) {
  if (staging_of(first.scenario()) != staging_of(other.scenario()))
    throw InputError(other.scenario().run.place, "run.transport",
                     "messages of some scenarios are staged and of others not; one profile holds the times of one way: "
                     "calibrate them apart");
  if (first.backend_name() == other.backend_name()) return;
  throw InputError(
      other.scenario().run.place, "run.backend",
      fmt::format("workers are {} here and {} in {}; one profile holds the times of one: calibrate them apart",
                  other.backend_name(), first.backend_name(), first.scenario().file));
}

}  // namespace

MemoryBytes memory_bytes(const ArenaUse& use) {
  const auto of = [&](Tag tag) { return use.by_tag[static_cast<std::size_t>(tag)]; };
  MemoryBytes bytes;
  bytes.weights = of(Tag::Weights), bytes.gradients = of(Tag::Gradients), bytes.optimizer = of(Tag::Optimizer);
  bytes.stash = of(Tag::Stash), bytes.recompute = of(Tag::Recompute), bytes.workspace = of(Tag::Workspace);
  bytes.buffers = of(Tag::Buffers);
  return bytes;
}

RealRun::RealRun(const Scenario& asked, Ranks* ranks)
    : scenario_(std::make_shared<const Scenario>(asked)), ranks_(ranks) {
  const Scenario& scenario = *scenario_;
  if (ranks == nullptr) check_one_process(scenario);
  if (scenario.cost == CostSourceKind::Profile && scenario.profile != nullptr)
    if (const std::string why = other_backend(*scenario.profile, name(scenario.run.backend)); !why.empty())
      throw InputError(scenario.run.place, "cost", why);
  check_precision(scenario);
  const CostModel cost(std::make_shared<const Scenario>(with_a_peak(scenario)));
  predicted_ = price(find_plan(cost.scenario(), cost), cost, Engine::Auto, Copies::Each);
  settle(predicted_, Engine::Auto);
  predicted_.scenario = scenario_;
  backend_ = backend_of(scenario, predicted_.plan, ranks != nullptr);
  if (ranks != nullptr && scenario.run.transport == RunTransport::Nccl)
    agree_on_nccl(*ranks, nccl_here(gpu_bus_of_process(scenario, predicted_.plan.workers())));
  run_plan_ = runtime::run_plan(predicted_.plan, predicted_.schedule, scenario.model, scenario.training, *backend_(),
                                {.weight_stashing = scenario.run.weight_stashing,
                                 .loss_scale = loss_scale(scenario),
                                 .synthetic = scenario.run.synthetic ? &cost : nullptr});
  if (scenario.run.transport == RunTransport::Nccl) check_for_nccl(run_plan_, scenario.training.place);
  data_ = scenario.run.synthetic ? no_data() : data_of(scenario, sample_shape(run_plan_.code));
  // What is compared with a run is one step of it, with fill and drain, not a steady state.
  if (!predicted_.schedule.flush)
    predicted_.report = summarize(predicted_.timeline, predicted_.schedule, predicted_.plan, predicted_.costs,
                                  predicted_.memory, scenario, {});
  for (const std::int64_t samples : {predicted_.plan.micro_batch_size, predicted_.plan.last_micro_batch_size})
    if (std::string caution = cost.source().caution(scenario.model, samples);
        !caution.empty() && (predicted_.report.warnings.empty() || predicted_.report.warnings.back() != caution))
      predicted_.report.warnings.push_back(std::move(caution));
  auto counted = mapped<ArenaUse>(counted_to(predicted_.plan.workers()),
                                  [&](WorkerId w) { return replayed(run_plan_, w % predicted_.plan.positions()); });
  set_memory(predicted_, counted);
}

RunSettings RealRun::settings() const {
  const RunRequest& run = scenario_->run;
  RunSettings settings;
  settings.optimizer = {
      scenario_->training.optimizer, run.learning_rate, run.momentum, run.betas[0], run.betas[1], run.epsilon};
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
  ProgressLine line;
  const auto after_step = [&](int step) {  // between two steps, in the thread of one worker
    if (prints()) line.show("steps", step + 1, settings.steps, "");
  };
  if (ranks_ != nullptr) {
    return with_memory_of_all(*ranks_, [&] {
      check_alike(settings);
      check_memory();
      AroundWire around;
      if (scenario_->run.transport == RunTransport::Nccl)
        around = by_nccl(*ranks_, run_plan_, NcclLibrary::open(), gpu_nccl_queue, scenario_->run.timeout);
      return execute(*ranks_, run_plan_, backend_, *data_, settings, after_step, around);
    });
  }
  const bool spin = threads_of(run_plan_) <= available_cores();
  auto endpoints =
      local_transport(run_plan_, {.spin = spin, .beside_sleep = settings.pin, .timeout_s = scenario_->run.timeout},
                      throttles(*scenario_, predicted_.plan, run_plan_));
  if (scenario_->run.transport == RunTransport::Staged &&
      std::ranges::any_of(run_plan_.channels, [](const RunChannel& channel) { return channel.keeps; }))
    throw InputError(scenario_->plan.schedule.place, "run.transport",
                     "staged brings nothing back that waits at a partner; use local");
  if (scenario_->run.transport == RunTransport::Staged)
    for (auto& endpoint : endpoints)
      endpoint = staged_transport(std::move(endpoint), run_plan_, Takes::WithMover);
  return execute(run_plan_, backend_, *data_, endpoints, settings, after_step);
}

Answer RealRun::measured(const std::vector<WorkerResult>& results, const StepTimes& times) const {
  Answer answer = predicted_;
  answer.timeline = timeline_of(results, times.median_step);
  take_measured(answer.costs, answer.schedule, answer.timeline);
  const Fingerprint here = fingerprint(*backend_(), PIPEWRIGHT_VERSION);
  answer.timeline.engine_reason = fmt::format("{}, {}, {}", here.processor, workers(), backend_name());
  // What the scenario says of its devices holds for none of this: no peak, no reserve, no memory but the cap.
  answer.memory.capacity = scenario_->run.memory_cap.value_or(Bytes{});
  answer.memory.reserve = {}, answer.memory.communicators = {}, answer.memory.fragmentation = 0,
  answer.memory.activation_band = 0;
  answer.memory.rooms.clear();
  answer.report = summarize(answer.timeline, answer.schedule, answer.plan, answer.costs, answer.memory, *scenario_, {});
  answer.report.mfu.reset(), answer.report.hfu.reset();
  auto measured = mapped<ArenaUse>(results, &WorkerResult::memory);
  set_memory(answer, measured);
  for (StageReport& stage : answer.report.stages)
    stage.need = taken(stage.memory.bytes, answer.memory.capacity);
  for (WorkerReport& worker : answer.report.workers)
    worker.need = taken(worker.memory.bytes, answer.memory.capacity), worker.fits = true;
  answer.report.fits = true, answer.report.shortfall = {}, answer.report.warnings.clear();
  answer.report.provenance = {synthetic() ? std::string(kSynthetic) : "data: " + data_->name(),
                              fmt::format("measured: the step of median length of {}, on {}", times.timed.size(),
                                          answer.timeline.engine_reason)};
  if (ranks_ != nullptr && ranks_->machines() > 1) answer.report.provenance.push_back(ranks_->clocks());
  return answer;
}

MachineProfile calibrated(const std::vector<const RealRun*>& runs, double seconds, const std::string& name) {
  std::vector<CalibrationRun> measured;
  for (const RealRun* const each : runs) {
    if (each->synthetic())
      throw InputError(each->scenario().run.place, "run.synthetic",
                       "a synthetic run takes the stated times, so nothing is there to be calibrated; leave it out, "
                       "and give the layers an `op:`");
    RunSettings settings = each->settings();
    settings.memory_cap = {};
    measured.push_back({each->run_plan(), each->scenario().model, each->data(), settings, each->scenario().name});
  }
  ProgressLine line;
  CalibrationSettings how{.seconds = seconds,
                          .name = name,
                          .revision = PIPEWRIGHT_VERSION,
                          .staging = staging_of(runs.front()->scenario()),
                          .progress = [&](const std::string& what, std::int64_t done, std::int64_t all) {
                            if (prints()) line.show("calibrating", done, all, what);
                          }};
  for (const RealRun* const each : runs) {
    each->check_alike(each->settings());
    check_one_device(*runs.front(), *each);
  }
  const RunRequest& run = runs.front()->scenario().run;
  if (run.transport == RunTransport::Nccl)
    how.handoff = [&](Ranks& ranks, const BackendMaker& backend) {
      return measure_handoff(ranks, backend, NcclLibrary::open(), gpu_nccl_queue, run.timeout);
    };
  return calibrate::calibrate(measured, runs.front()->backend(), how, runs.front()->ranks());
}

Scenario priced_with(const Scenario& scenario, MachineProfile profile) {
  Scenario priced = scenario;
  priced.cost = CostSourceKind::Profile;
  priced.cluster.source = profile.source;
  priced.cluster.device.name = profile.machine.processor + " core", priced.cluster.device.source = profile.source;
  priced.profile = std::make_shared<const MachineProfile>(std::move(profile));
  return with_links_as_run(std::move(priced));
}

Scenario with_a_peak(Scenario scenario) {
  const Precision precision = scenario.training.precision;
  each_device(scenario.cluster, [&](Device& device) {
    if (device.peak.empty() || device.peak.contains(precision)) return;
    const auto largest = std::ranges::max_element(
        device.peak, [](const auto& a, const auto& b) { return a.second.value < b.second.value; });
    device.peak[precision] = largest->second;
  });
  return scenario;
}

void check_can_run(const Scenario& scenario) {
  check_precision(scenario);
  const CostModel cost(std::make_shared<const Scenario>(with_a_peak(scenario)));
  const Plan plan = find_plan(cost.scenario(), cost);
  check_gpu_keys(scenario.run, plan.workers());
  const Schedule schedule = make_schedule(plan, schedule_shape(plan, scenario.model, scenario.training));
  const RunPlan run = runtime::run_plan(
      plan, schedule, scenario.model, scenario.training, *backend_for_sizes(scenario),
      {.weight_stashing = scenario.run.weight_stashing, .synthetic = scenario.run.synthetic ? &cost : nullptr});
  if (scenario.run.transport == RunTransport::Nccl) check_for_nccl(run, scenario.training.place);
}

void check_precision(const Scenario& scenario) {
  if (scenario.run.synthetic || scenario.run.backend != RunBackend::Cpu) return;
  if (scenario.training.precision != Precision::Fp32)
    throw InputError(
        scenario.training.place, "training.precision",
        fmt::format("backend cpu computes in fp32, not in {}; use --backend cuda, or --set training.precision=fp32",
                    name(scenario.training.precision)));
}

Scenario with_links_as_run(Scenario scenario) {
  if (scenario.run.transport == RunTransport::Throttled) return scenario;
  scenario.cluster.links = {};
  if (scenario.cluster.network) {
    scenario.cluster.network = Network{};
    scenario.cluster.network->ideal = true;
  }
  return scenario;
}

void note_other_machine(const RealRun& real) {
  static std::string told;  // of many runs with one profile, once
  const auto& profile = real.scenario().profile;
  if (profile == nullptr) return;
  const std::string warning = other_machine(*profile, *real.backend()());
  if (!warning.empty() && warning != told) note("warning: " + rank_name() + warning);
  told = warning;
}

std::string other_machine(const MachineProfile& profile, const Backend& backend) {
  const Fingerprint here = fingerprint(backend, PIPEWRIGHT_VERSION);
  const auto differs = [&](const std::string& what, const std::string& measured, const std::string& now) {
    return "profile \"" + profile.name + "\" was measured on another " + what + " (" + measured + ") than this one (" +
           now + "): its times need not hold; calibrate here";
  };
  const bool gpu = here.sms > 0;
  if (profile.machine.processor != here.processor)
    return differs(gpu ? "GPU" : "processor", profile.machine.processor, here.processor);
  if (profile.machine.isa != here.isa)
    return differs(gpu ? "number of SMs per worker" : "instruction set", profile.machine.isa, here.isa);
  if (profile.machine.driver != here.driver) return differs("driver", profile.machine.driver, here.driver);
  return "";
}

void RealRun::check_alike(const RunSettings& settings) const {
  if (ranks_ == nullptr) return;
  ranks_->agree(must_match(run_plan_, settings, *data_, *backend_()));
  check_size(*ranks_, *scenario_, predicted_.plan.workers());
}

bool RealRun::synthetic() const {
  return run_plan_.synthetic;
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
  return backend_()->name();
}

std::vector<Gradients> pipelined_gradients(const RealRun& run, RunSettings settings) {
  settings.steps = 1, settings.warmup = 0, settings.keep_gradients = true;
  std::vector<WorkerResult> workers = run.run(settings);
  const RunPlan& plan = run.run_plan();
  std::vector<Gradients> all(static_cast<std::size_t>(plan.plan->expert_parallel), Gradients(plan.code.size()));
  for (std::size_t w = 0; w < workers.size(); ++w) {
    Gradients& of_device =
        all[static_cast<std::size_t>(plan.expert_device(static_cast<CopyId>(w) / plan.plan->positions()))];
    for (std::size_t v = 0; v < workers[w].gradients.size(); ++v)
      if (!workers[w].gradients[v].empty()) of_device[v] = std::move(workers[w].gradients[v]);
  }
  return all;
}

Difference difference(std::span<const float> got, std::span<const float> reference) {
  Difference d;
  d.values = reference.size();
  double distance = 0, norm = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double a = i < got.size() ? double{got[i]} : 0, b = double{reference[i]};
    d.differing += a != b ? 1 : 0;
    distance += (a - b) * (a - b), norm += b * b;
  }
  if (distance != 0)
    d.relative = norm > 0 ? std::sqrt(distance / norm) : std::numeric_limits<double>::infinity();  // NaN stays NaN
  return d;
}

}  // namespace pipewright::study
