#include "sim/summarize.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <numeric>
#include <utility>

#include "core/cost/low_precision.hpp"
#include "core/model/flops.hpp"
#include "sim/waiting.hpp"

namespace pipewright::sim {
namespace {

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100.0 * share);
  return text;
}

// --- workers ---------------------------------------------------------------------------------------------------------

struct WorkerTimes {
  Time busy, forward, backward, recompute, update;
};

WorkerTimes times_of(const Lane& lane, const LaneTimes& times) {
  WorkerTimes sum;
  for (std::size_t i = 0; i < lane.compute.size(); ++i) {
    const Time duration = times.compute[i].end - times.compute[i].start;
    switch (lane.compute[i].kind) {
      case Kind::F: sum.forward += duration; break;
      case Kind::R: sum.recompute += duration; break;
      case Kind::Update: sum.update += duration; break;
      default: sum.backward += duration; break;
    }
  }
  sum.busy = sum.forward + sum.backward + sum.recompute + sum.update;
  return sum;
}

// From the start of the first op to the end of the last one, updates left out: [ZeroBubble23] section 4 measures so.
Time work_span(const Lane& lane, const LaneTimes& times) {
  Time first = kNever, last{0};
  for (std::size_t i = 0; i < lane.compute.size(); ++i) {
    if (lane.compute[i].kind == Kind::Update) continue;
    first = std::min(first, times.compute[i].start);
    last = std::max(last, times.compute[i].end);
  }
  return first == kNever ? Time{0} : last - first;
}

// Of the simulated workers.
std::vector<WorkerReport> worker_reports(const Timeline& timeline, const Schedule& schedule, const Plan& plan,
                                         const StepCosts& costs, const MemoryModel& memory, const Causes& causes) {
  const std::vector<MemoryPeak> memory_peaks = peaks(memory, schedule, costs, timeline);
  std::vector<WorkerReport> workers(timeline.workers.size());
  for (WorkerId w = 0; w < std::ssize(workers); ++w) {
    WorkerReport& worker = workers[w];
    const PositionId position = schedule.position_of(w);
    worker.id = w;
    worker.copy = static_cast<CopyId>(w / schedule.positions.size());
    worker.stage = schedule.seating().stage_at(position);
    worker.replica = position - schedule.seating().first_position(worker.stage);
    if (w < std::ssize(plan.device)) worker.device = plan.device[w];
    const WorkerTimes times = times_of(schedule.positions[position], timeline.workers[w]);
    worker.busy = times.busy;
    worker.forward = times.forward;
    worker.backward = times.backward;
    worker.recompute = times.recompute;
    worker.update = times.update;
    worker.idle = idle_split(causes, timeline, worker.id);
    worker.memory = memory_peaks[w];
    worker.need = need(memory, worker.memory.bytes, worker.stage);
    worker.fits = worker.need.to_fit <= worker.need.capacity;
  }
  return workers;
}

// Every worker of the plan, as the one that it runs like.
std::vector<WorkerReport> of_all_workers(std::vector<WorkerReport> simulated, const Plan& plan, const Fold* fold) {
  if (fold == nullptr) return simulated;
  const int positions = plan.positions();
  std::vector<WorkerReport> workers;
  workers.reserve(at(plan.workers()));
  for (WorkerId w = 0; w < plan.workers(); ++w) {
    workers.push_back(simulated[at(simulated_worker(fold, w, positions))]);
    workers.back().id = w;
    workers.back().copy = w / positions;
    workers.back().device = plan.device[w];
  }
  return workers;
}

// --- stages ----------------------------------------------------------------------------------------------------------

bool splits_backward(const Lane& lane) {
  return std::ranges::any_of(lane.compute, [](const Op& op) { return op.kind == Kind::W; });
}

// Times of one full micro-batch through the chunks of a stage; both ways, where it passes one of them, their mean.
void add_times(StageReport& stage, const Schedule& schedule, const StepCosts& costs) {
  const ScheduleShape& shape = schedule.shape;
  const bool split = splits_backward(schedule.positions[schedule.seating().first_position(stage.stage)]);
  const auto price = [&](VirtualStageId v, Kind kind) { return costs.duration[at(v) * kKinds + at(int(kind))]; };
  for (int i = 0; i < schedule.seating().held(); ++i) {
    const VirtualStageId v = schedule.seating().chunk_of(stage.stage, i);
    stage.forward += price(v, Kind::F);
    stage.backward += split ? price(v, Kind::B) + price(v, Kind::W) : price(v, Kind::BW);
    if (shape.recomputes(shape.stage_of(v))) stage.recompute += price(v, Kind::R);
    stage.update += price(v, Kind::Update);
  }
  for (Time* const time : {&stage.forward, &stage.backward, &stage.recompute})
    *time = Time{time->value * schedule.seating().lying() / schedule.seating().held()};
}

std::vector<StageReport> stage_reports(const std::vector<WorkerReport>& workers, const Schedule& schedule,
                                       const Plan& plan, const StepCosts& costs, const Model& model) {
  std::vector<StageReport> stages(at(schedule.shape.stages));
  for (std::size_t k = 0; k < stages.size(); ++k) {
    StageReport& stage = stages[k];
    stage.stage = static_cast<StageId>(k);
    for (int i = 0; i < plan.seating().held(); ++i) {
      const VirtualStageId v = plan.seating().chunk_of(stage.stage, i);
      if (plan.seating().unit_of(v) > 0)
        stage.layers.back().end = plan.layers[v].end;
      else
        stage.layers.push_back(plan.layers[v]);
      for (LayerId layer = plan.layers[v].begin; layer < plan.layers[v].end; ++layer)
        stage.parameters += model.layers[layer].parameters;
    }
    add_times(stage, schedule, costs);
  }
  for (const WorkerReport& worker : workers) {
    StageReport& stage = stages[at(worker.stage)];
    const bool first = stage.workers.empty();
    stage.workers.push_back(worker.id);
    if (first || worker.busy > stage.busy) stage.busy = worker.busy, stage.idle = worker.idle;
    if (first || worker.need.to_fit > stage.need.to_fit)  // the devices of a stage are alike
      stage.memory = worker.memory, stage.need = worker.need;
    stage.in_flight = std::max(stage.in_flight, worker.memory.in_flight);
  }
  return stages;
}

// --- speed -----------------------------------------------------------------------------------------------------------

// FLOP/s of all devices of the plan; 0 where the peak of one is not stated.
double peak_rate(const Plan& plan, const Scenario& scenario) {
  double sum = 0;
  for (int c = 0; c < scenario.cluster.classes(); ++c) {
    const auto& peaks = scenario.cluster.device_of(c).peak;
    const auto of_class =
        scenario.cluster.classes() == 1 ? plan.workers() : workers_on_class(plan, scenario.cluster, c);
    if (of_class == 0) continue;
    const auto peak = peaks.find(rated_precision(scenario));
    if (peak == peaks.end() || !(peak->second.value > 0)) return 0;
    sum += static_cast<double>(of_class * plan.tensor_parallel) * peak->second.value;
  }
  return sum;
}

// Model FLOP utilization: three times the forward's FLOPs per sample (the backward counts twice; of frozen weights
// once), recomputation not counted, over what all devices could do.     [PaLM22] appendix B
std::optional<double> model_flop_utilization(const Scenario& scenario, const Plan& plan, double samples_per_s) {
  const double peak = peak_rate(plan, scenario);
  if (!(peak > 0)) return std::nullopt;
  Flops forward;
  for (const Layer& layer : scenario.model.layers) {
    if (!layer.flops) return std::nullopt;
    forward += *layer.flops;
  }
  const double per_sample = forward_passes(scenario.model) * forward.value / static_cast<double>(scenario.model.batch);
  return per_sample * samples_per_s / peak;
}

// Both definitions of the bubble, see report.hpp. In a steady period no span begins or ends: they differ by the
// updates, which [ZeroBubble23] does not count as work.
void add_bubbles(Report& report, const Timeline& timeline, const Schedule& schedule) {
  const auto workers = static_cast<double>(report.workers.size());
  if (report.steady) {
    const double whole = workers * static_cast<double>(report.steady->growth.value);
    const Time work = report.steady->busy - report.steady->update;
    if (whole > 0) report.bubble_fraction = 1.0 - static_cast<double>(report.steady->busy.value) / whole;
    if (whole > 0) report.bubble_fraction_span = 1.0 - static_cast<double>(work.value) / whole;
    return;
  }
  double busy = 0, work = 0;
  for (const WorkerReport& worker : report.workers) {
    busy += static_cast<double>(worker.busy.value);
    work += static_cast<double>((worker.busy - worker.update).value);
  }
  Time span;
  for (WorkerId w = 0; w < std::ssize(timeline.workers); ++w)
    span = std::max(span, work_span(schedule.lane_of(w), timeline.workers[w]));
  report.longest_span = span;
  const double step = static_cast<double>(report.step_time.value), longest = static_cast<double>(span.value);
  if (step > 0) report.bubble_fraction = 1.0 - busy / (workers * step);
  if (longest > 0) report.bubble_fraction_span = 1.0 - work / (workers * longest);
}

// --- links -----------------------------------------------------------------------------------------------------------

std::vector<double> bytes_over_links(const Timeline& timeline, const Schedule& schedule, const StepCosts& costs) {
  std::vector<double> bytes(costs.links.size());
  const auto positions = static_cast<int>(schedule.positions.size());
  for (const Transfer& transfer : timeline.transfers) {
    const Message& message =
        costs.message(transfer.edge, transfer.direction, transfer.from / positions, transfer.micro_batch);
    if (message.route < 0) continue;
    for (const int link : costs.routes[at(message.route)].links)
      bytes[at(link)] += static_cast<double>(transfer.bytes.value);
  }
  for (WorkerId w = 0; costs.tensor_flows && w < std::ssize(timeline.workers); ++w) {
    double sent = 0;
    for (const Op& op : schedule.lane_of(w).compute)
      sent += costs.sent_by(op).bytes;
    for (const auto& [link, weight] : costs.tensor_flows->links[w])
      bytes[at(link)] += sent * weight;
  }
  const auto add = [&](const Collective& collective) {
    for (const CollectivePhase& phase : collective.phases)
      for (const auto& [link, weight] : phase.links)
        bytes[at(link)] += phase.bytes * weight;
  };
  // The members of an all-reduce run it together: it is counted on the first holder of its chunk.
  for (PositionId position = 0; position < positions; ++position)
    for (StreamId s = 0; s < kStreams.size(); ++s)
      for (const Op& op : schedule.positions[position].communication[s]) {
        const bool alone = kStreams[s].among == Among::Worker;
        if (!alone && first_member(schedule.shape, op) != position) continue;
        for (CopyId copy = 0; copy < (alone ? schedule.shape.data_parallel : 1); ++copy)
          add(costs.collective(op, copy));
      }
  return bytes;
}

std::vector<LinkReport> link_reports(const Timeline& timeline, const Schedule& schedule, const StepCosts& costs,
                                     const Cluster& cluster) {
  const std::vector<double> bytes = bytes_over_links(timeline, schedule, costs);
  std::vector<LinkReport> links;
  const auto add = [&](std::size_t i, std::string name) {
    const Bandwidth bandwidth = costs.links[i].bandwidth;
    const double could = bandwidth.value * seconds(timeline.makespan);
    links.push_back({.name = std::move(name),
                     .bytes = {rounded(bytes[i], "the bytes over a link")},
                     .bandwidth = bandwidth,
                     .utilization = could > 0 ? bytes[i] / could : 0});
  };
  if (costs.fold == nullptr) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] > 0) add(i, costs.links[i].name);
    return links;
  }
  const Topology topology(cluster);
  for (std::size_t link = 0; link < costs.fold->link_like.size(); ++link)
    if (const std::int32_t like = costs.fold->link_like[link]; like >= 0 && bytes[at(like)] > 0)
      add(at(like), topology.link(static_cast<int>(link)).name);
  return links;
}

// --- what limits -----------------------------------------------------------------------------------------------------

// Compute per micro-batch that a replica of the stage must do in the long run. A flush schedule ends: there the busiest
// worker counts, which may run one micro-batch more than the others.
double load_of(const StageReport& stage, const Schedule& schedule, bool steady) {
  if (!steady) return static_cast<double>(stage.busy.value);
  const Time per_micro_batch = stage.forward + stage.backward + stage.recompute + stage.update;
  return static_cast<double>(per_micro_batch.value) / schedule.shape.replicas_of(stage.stage);
}

// What the critical path is made of, and which stage has most to compute: "transfers (77.0 % of the critical path;
// compute 23.0 %); the busiest is stage 1, 21.0 % of the run".
void add_limit(Report& report, const Schedule& schedule) {
  const bool steady = report.steady.has_value();
  bool alike = true;
  for (const StageReport& stage : report.stages) {
    const double load = load_of(stage, schedule, steady),
                 most = load_of(report.stages[report.limiting_stage], schedule, steady);
    alike = alike && load == most;
    if (load > most) report.limiting_stage = stage.stage;
  }
  if (report.makespan == Time{}) {
    report.limiting_factor = "nothing: the step takes no time";
    return;
  }
  static constexpr std::array kNames = {"compute",
                                        "optimizer updates",
                                        "transfers",
                                        "all-reduces",
                                        "all-gathers",
                                        "offloads",
                                        "reloads",
                                        "copies of weights from the host",
                                        "copies of gradients to the host",
                                        "gradients copied to the host and added there",
                                        "waiting"};
  std::array<Time, kNames.size()> sums{};
  for (const CriticalPart& part : report.critical_path)
    sums[at(part.kind)] += part.time;
  std::array<std::size_t, kNames.size()> order{};
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return sums[a] > sums[b]; });
  const auto share = [&](std::size_t i) { return percent(ratio(sums[order[i]], report.makespan)); };
  std::string& text = report.limiting_factor;
  text = std::string(kNames[order[0]]) + " (" + share(0) + " of the critical path";
  for (std::size_t i = 1; i < order.size() && sums[order[i]] > Time{}; ++i)
    text += (i == 1 ? "; " : ", ") + std::string(kNames[order[i]]) + " " + share(i);
  const std::string stage = std::to_string(report.limiting_stage);
  const StageReport& busiest = report.stages[report.limiting_stage];
  text += ")";
  if (report.stages.size() > 1)
    text += alike ? "; all stages are equally busy" : "; the busiest is stage " + stage;
  else
    text += "; its one stage is busy";
  text += (report.stages.size() > 1 ? ", " : " ") + percent(ratio(busiest.busy, report.makespan)) + " of the run";
}

// --- does it fit -----------------------------------------------------------------------------------------------------

struct Unit {
  double bytes;
  const char* name;
};

Unit unit_for(Bytes bytes) {
  for (const Unit unit : {Unit{1024.0 * 1024 * 1024, "GiB"}, Unit{1024.0 * 1024, "MiB"}, Unit{1024.0, "KiB"}})
    if (static_cast<double>(bytes.value) >= unit.bytes) return unit;
  return {1.0, "B"};
}

std::string in_unit(Bytes bytes, const Unit& unit, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", unit.bytes > 1 ? decimals : 0,
                static_cast<double>(bytes.value) / unit.bytes);
  return text;
}

// "stage 3 needs 17.2 GiB (weights 6.1, stash 10.4, buffers 0.7) of 16.0 GiB": with as many decimals as it takes to
// show that the need is larger. With plan.fit: "stage 3 needs 17.2 GiB to fit with 95 % (15.4 by the estimate: weights
// 6.1, ..) of 16.0 GiB".
std::string shortfall_line(const StageReport& stage) {
  const Bytes capacity = stage.need.capacity;
  const MemoryBytes& bytes = stage.memory.bytes;
  const Bytes needed = stage.need.to_fit;
  const bool with_fit = needed > stage.need.with_reserve;
  const Unit unit = unit_for(needed);
  int decimals = 1;
  while (decimals < 9 && in_unit(needed, unit, decimals) == in_unit(capacity, unit, decimals))
    ++decimals;
  std::string line = "stage " + std::to_string(stage.stage) + " needs " + in_unit(needed, unit, decimals) + " " +
                     unit.name +
                     (with_fit ? " to fit with " + fit_text(stage.need.fit) + " (" +
                                     in_unit(stage.need.with_reserve, unit, decimals) + " by the estimate: "
                               : " (");
  const char* separator = "";
  for (std::size_t i = 0; i < kMemoryCategories.size(); ++i) {
    if (category(bytes, i) == Bytes{}) continue;
    line += separator + std::string(kMemoryCategories[i]) + " " + in_unit(category(bytes, i), unit, decimals);
    separator = ", ";
  }
  for (const auto& [extra, name] : {std::pair{stage.need.rounding, "rounding"},
                                    {stage.need.fragmentation, "fragmentation"},
                                    {stage.need.anchored, "added by a measured run"}})
    if (extra != Bytes{}) line += separator + std::string(name) + " " + in_unit(extra, unit, decimals);
  return line + ") of " + in_unit(capacity, unit, decimals) + " " + unit.name;
}

void add_fit(Report& report) {
  for (const StageReport& stage : report.stages)
    if (stage.need.to_fit > stage.need.capacity) report.shortfall.details.push_back(shortfall_line(stage));
  const std::size_t missing = report.shortfall.details.size();
  report.fits = missing == 0;
  if (missing == 1) {
    report.shortfall.reason = report.shortfall.details.front();
    report.shortfall.details.clear();
  } else if (missing > 1) {
    report.shortfall.reason = std::to_string(missing) + " of " + std::to_string(report.stages.size()) +
                              " stages do not fit into their devices";
  }
}

// Whether a stated time of a layer is part of the prices.
bool stated_times_used(const Scenario& scenario) {
  const auto& layers = scenario.model.layers;
  return scenario.cost != CostSourceKind::Uniform &&
         std::ranges::any_of(layers, [](const Layer& layer) { return layer.states_times(); });
}

// Links whose latency is 0 although prices are predicted and something passes them: that nobody measured it is more likely.
void add_latency_warnings(Report& report, const Plan& plan, const Scenario& scenario) {
  const Cluster& cluster = scenario.cluster;
  if (scenario.cost != CostSourceKind::Roofline || plan.device.empty()) return;
  std::vector<DeviceId> leads = plan.device;
  std::ranges::sort(leads);
  const auto node = [&](DeviceId device) { return device / cluster.devices_per_node; };
  const int t = plan.tensor_parallel;
  bool inside = false;
  for (std::size_t i = 0; i < leads.size(); ++i)
    inside =
        inside || (t > 1 && cluster.devices_per_node > 1) || (i > 0 && node(leads[i - 1] + t - 1) == node(leads[i]));
  const bool between = node(leads.front()) != node(leads.back() + t - 1);
  const bool by_size = cluster.links.kind == LinkKind::Nvswitch && cluster.device.collectives;
  if (between && cluster.network && !cluster.network->ideal && cluster.network->latency == Time{})
    report.warnings.push_back(
        "cluster.network.latency is 0: whatever passes between nodes starts at once; state it, e.g. 7.1 us of "
        "InfiniBand, 58 us of EFA");
  if (inside && cluster.links.kind != LinkKind::Ideal && !by_size && cluster.links.latency == Time{})
    report.warnings.push_back(
        "cluster.node.links.latency is 0: whatever passes inside a node starts at once; state it, e.g. 6.6 us of "
        "NVLink, or name a device with collectives by size");
}

// Times of a layer are stated for `model.batch` samples and scaled in proportion; far from there that is a guess.
// FLOPs and bytes do scale in proportion: a model that states nothing else and names no batch needs no warning.
void add_warnings(Report& report, const Plan& plan, const Scenario& scenario) {
  const Model& model = scenario.model;
  if (const int t = plan.tensor_parallel, node = scenario.cluster.devices_per_node; t > 1 && node % t != 0)
    report.warnings.push_back("tensor-parallel groups of " + std::to_string(t) + " devices do not fit into nodes of " +
                              std::to_string(node) +
                              ": their all-reduces pass the network, and count as part of the layers' compute time");
  add_latency_warnings(report, plan, scenario);
  const RunRequest& run = scenario.run;
  const auto gpus = static_cast<std::int64_t>(run.gpus.size());
  const std::int64_t parts = run.virtual_devices.value_or(plan.workers());
  if (run.backend == RunBackend::Cuda && scenario.cost != CostSourceKind::Profile && parts > gpus &&
      scenario.cluster.device.measured == nullptr)
    report.warnings.push_back("a run of this scenario cuts " + std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs") +
                              " into " + std::to_string(parts) + " virtual devices, and here each worker has a whole " +
                              scenario.cluster.device.name +
                              ": times and memory are not those of the run; pipewright validate --backend cuda "
                              "predicts it from a calibration");
  if (!model.batch_stated && !stated_times_used(scenario)) return;
  const std::int64_t size = plan.micro_batch_size, stated = model.batch;
  if (size >= (stated + 3) / 4 && size / 4 <= stated - (size % 4 != 0 ? 1 : 0)) return;
  report.warnings.push_back("micro-batches of " + std::to_string(size) + (size == 1 ? " sample" : " samples") +
                            " are far from the " + std::to_string(stated) + (stated == 1 ? " sample" : " samples") +
                            " that the layers' figures hold for (model.batch" +
                            (model.batch_stated ? "" : ", 1 where it is not given") +
                            "): costs are scaled in proportion, which is a guess below a quarter and above four times "
                            "of it");
}

}  // namespace

Time step_span(const Plan& plan, const Timeline& timeline) {
  if (plan.barrier.value == Barrier::Flush) return timeline.makespan;
  struct FirstToLast {
    Time first = kNever, last{0};
    void add(Time start, Time end) { first = std::min(first, start), last = std::max(last, end); }
  };
  Time longest;
  const auto keep = [&](const FirstToLast& each) {
    if (each.first != kNever) longest = std::max(longest, each.last - each.first);
  };
  for (const LaneTimes& worker : timeline.workers) {
    FirstToLast own;
    const auto add = [&](const std::vector<Span>& spans) {
      for (const Span& span : spans)
        own.add(span.start, span.end);
    };
    add(worker.compute);
    for (const std::vector<Span>& stream : worker.communication)
      add(stream);
    keep(own);
  }
  std::map<std::pair<WorkerId, WorkerId>, FirstToLast> channels;
  for (const Transfer& transfer : timeline.transfers)
    channels[{transfer.from, transfer.to}].add(transfer.start, transfer.sent);
  for (const auto& [ends, channel] : channels)
    keep(channel);
  return longest;
}

Time step_time(const Plan& plan, Time span, const std::optional<SteadyState>& steady) {
  if (!steady) return span;
  const std::int64_t samples = checked_product(steady->micro_batches * plan.data_parallel, plan.micro_batch_size,
                                               "the samples of a steady period");
  return scaled(steady->growth, plan.global_batch_size, samples);
}

double samples_per_second(const Plan& plan, Time span, const std::optional<SteadyState>& steady) {
  const double time = seconds(steady ? steady->growth : span);
  const double samples = steady ? static_cast<double>(steady->micro_batches) * plan.data_parallel *
                                      static_cast<double>(plan.micro_batch_size)
                                : static_cast<double>(plan.global_batch_size);
  return time > 0 ? samples / time : 0;
}

Report summarize(const Timeline& timeline, const Schedule& schedule, const Plan& plan, const StepCosts& costs,
                 const MemoryModel& memory, const Scenario& scenario, const std::optional<SteadyState>& steady) {
  const Causes causes(timeline, schedule, costs);
  Report report;
  report.makespan = timeline.makespan;
  report.steady = steady;
  report.workers =
      of_all_workers(worker_reports(timeline, schedule, plan, costs, memory, causes), plan, costs.fold.get());
  report.stages = stage_reports(report.workers, schedule, plan, costs, scenario.model);
  const Time step = step_span(plan, timeline);
  report.step_time = step_time(plan, step, steady);
  report.samples_per_s = samples_per_second(plan, step, steady);
  if (scenario.training.sequence_length)
    report.tokens_per_s = report.samples_per_s * static_cast<double>(*scenario.training.sequence_length);
  report.mfu = model_flop_utilization(scenario, plan, report.samples_per_s);
  report.hfu = hardware_flop_utilization(scenario, plan, report.mfu);
  add_bubbles(report, timeline, schedule);
  report.links = link_reports(timeline, schedule, costs, scenario.cluster);
  report.critical_path = critical_path(causes, timeline, schedule, costs);
  add_limit(report, schedule);
  add_fit(report);
  add_warnings(report, plan, scenario);
  return report;
}

}  // namespace pipewright::sim
