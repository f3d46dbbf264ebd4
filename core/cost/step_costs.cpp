#include "core/cost/step_costs.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/cost/amax_reductions.hpp"
#include "core/cost/buckets.hpp"
#include "core/cost/cell_parts.hpp"
#include "core/cost/contention.hpp"
#include "core/cost/gather_copies.hpp"
#include "core/cost/host_copies.hpp"
#include "core/cost/low_precision.hpp"
#include "core/cost/messages.hpp"
#include "core/cost/moves.hpp"
#include "core/cost/slowest_device.hpp"
#include "core/cost/state_exchange.hpp"
#include "core/cost/step_pricer.hpp"
#include "core/cost/table_exchange.hpp"
#include "core/cost/tensor_flows.hpp"
#include "core/plan/tied_tables.hpp"

namespace pipewright::core {
namespace {

constexpr std::size_t of(Kind kind) {
  return static_cast<std::size_t>(kind);
}

// That a device trains of these layers, and of tables that it has copied.
HeldParameters parameters_of(const Model& model, LayerRange range, std::int64_t copied) {
  HeldParameters sum;
  sum.all = copied;
  for (LayerId i = range.begin; i < range.end; ++i) {
    sum.all = checked_sum(sum.all, model.layers[i].trained(), "parameters");
    sum.of_experts += model.layers[i].trained_experts();
  }
  return sum;
}

void add_chain(StepCosts& costs) {
  for (int e = 0; e + 1 < costs.shape.chunks(); ++e)
    costs.edges.push_back({static_cast<std::uint16_t>(e), static_cast<std::uint16_t>(e + 1)});
}

enum class Pass { Forward, Input, Weight };
KernelQueue kernels(const LayerCosts& costs, Pass pass, LayerId layer) {
  const auto i = static_cast<std::size_t>(layer);
  const bool host = !costs.issued.empty();
  switch (pass) {
    case Pass::Forward: return host ? costs.issued[i].forward : KernelQueue::kernel({}, costs.forward[i]);
    case Pass::Input: return host ? costs.issued[i].input : KernelQueue::kernel({}, costs.backward_input[i]);
    case Pass::Weight: return host ? costs.issued[i].weight : KernelQueue::kernel({}, costs.backward_weight[i]);
  }
  return {};
}

// What the backward of a layer does again first: under `selective` the attention cores, else what `rebuilds` says.
KernelQueue rebuilt(const Plan& plan, StageId stage, const Model& model, const LayerCosts& costs, LayerId layer) {
  const auto i = static_cast<std::size_t>(layer);
  if (plan.recompute[static_cast<std::size_t>(stage)] == Recompute::Selective)
    return costs.issued.empty() ? KernelQueue::kernel({}, costs.rebuild[i]) : costs.issued[i].rebuild;
  if (!plan.rebuilds(stage, layer, model)) return {};
  return costs.issued.empty() ? KernelQueue::kernel({}, costs.again[i]) : costs.issued[i].again;
}

KernelQueue joined(const KernelQueue& before, const KernelQueue& next) {
  checked_sum(checked_sum(before.host, next.host), checked_sum(before.end, next.end));
  return before.then(next);
}

KernelQueue forward_of(const LayerRange& range, const LayerCosts& costs) {
  KernelQueue queue;
  for (LayerId i = range.begin; i < range.end; ++i)
    queue = joined(queue, kernels(costs, Pass::Forward, i));
  return queue;
}

// From the last layer to the first, each rebuilt right before the gradient of its input needs it, behind what the host
// has issued `before`. By layer all that was issued until it is complete, in the order of the layers: the first entry
// is the whole op.
enum class Gradients { Both, Input };
std::vector<KernelQueue> backward_of(const Plan& plan, VirtualStageId v, const Model& model, const LayerCosts& costs,
                                     Gradients gradients, KernelQueue queue = {}) {
  const LayerRange& range = plan.layers[static_cast<std::size_t>(v)];
  std::vector<KernelQueue> upto(static_cast<std::size_t>(range.size()));
  for (LayerId i = range.end; i-- > range.begin;) {
    queue = joined(queue, rebuilt(plan, plan.stage_of(v), model, costs, i));
    queue = joined(queue, kernels(costs, Pass::Input, i));
    if (gradients == Gradients::Both)
      queue = joined(queue, kernels(costs, Pass::Weight, i));
    else if (!costs.apart.empty())
      queue = joined(queue, KernelQueue::kernel({}, costs.apart[static_cast<std::size_t>(i)]));
    upto[static_cast<std::size_t>(i - range.begin)] = queue;
  }
  return upto;
}

KernelQueue weights_of(const LayerRange& range, const LayerCosts& costs) {
  KernelQueue queue;
  for (LayerId i = range.end; i-- > range.begin;)
    queue = joined(queue, kernels(costs, Pass::Weight, i));
  return queue;
}

// How a host limits the ops of a plan: where it waits for its device.
struct Host {
  const HostTimes& times;
  std::int64_t stages;  // as the source's overhead per op counts them

  bool waits() const { return waits_between_passes(times.blocking, stages); }
  // The last stage goes from the forward of a micro-batch to its backward without waiting for anybody, where the
  // schedule does not hold backwards back until all forwards are done.
  bool turns_at_once(const Plan& plan, VirtualStageId v) const {
    return v + 1 == plan.chunks() && plan.facts.backward_at_once && times.blocking == Blocking::Messages &&
           plan.recompute[static_cast<std::size_t>(plan.stage_of(v))] != Recompute::Full;
  }
};
Host host_of(const CostModel& cost, int device_class) {
  return {cost.scenario().cluster.device_of(device_class).host, cost.scenario().plan.stages.value};
}

// The layers' figures as each stage's devices have them: by class, only those that the plan uses filled in.
class OnStages {
 public:
  OnStages(const Plan& plan, const CostModel& cost, std::int64_t samples, int active = 0, std::optional<int> slice = {})
      : by_class_(static_cast<std::size_t>(cost.scenario().cluster.classes())) {
    std::vector<char> known(by_class_.size());
    for (StageId k = 0; k < plan.stages; ++k) {
      const int c = class_of_stage(plan, cost.scenario().cluster, k);
      class_of_stage_.push_back(c);
      if (std::exchange(known[static_cast<std::size_t>(c)], 1) == 0)
        by_class_[static_cast<std::size_t>(c)] = cost.layers(samples, c, active, slice);
    }
  }
  int class_of(StageId k) const { return class_of_stage_[static_cast<std::size_t>(k)]; }
  const LayerCosts& of(StageId k) const { return by_class_[static_cast<std::size_t>(class_of(k))]; }

 private:
  std::vector<LayerCosts> by_class_;
  std::vector<int> class_of_stage_;
};

// The same for a search, on devices of one class.
struct OnAllAlike {
  const LayerCosts& layers;
  int class_of(StageId) const { return 0; }
  const LayerCosts& of(StageId) const { return layers; }
};

// A host that does not wait between passes runs ahead through the whole step: M rounds of all forwards and backwards of
// a stage, each pass behind what the host does around it. What the device waits, all in all, is spread over the ops in
// proportion to the time of their hosts:
//     op = device + (end of M rounds - M device of a round) / M * host / host of a round
// One chunk, forward (6, 7, 10) twice in place of forward and backward, M = 1: (12, 14, 17), 3 ns of waiting: 8.5 each.
class RunningAhead {
 public:
  RunningAhead(const Plan& plan, StageId stage, const Model& model, const LayerCosts& layers, const Host& host)
      : around_(host.times.around_pass(host.stages)) {
    KernelQueue round;
    for (int i = 0; i < plan.seating().held(); ++i) {
      const VirtualStageId v = plan.seating().chunk_of(stage, i);
      round = joined(round, around(forward_of(plan.layers[static_cast<std::size_t>(v)], layers)));
      round = joined(round, around(backward_of(plan, v, model, layers, Gradients::Both).front()));
    }
    const std::int64_t rounds =
        std::max<std::int64_t>(1, plan.passes() / plan.seating().holders(plan.seating().chunk_of(stage, 0)));
    checked_product(rounds, round.end.value, "a step's time");
    const Time waits = round.times(rounds).end - round.device * rounds;
    if (round.host > Time{})
      waits_per_host_ =
          static_cast<double>(waits.value) / static_cast<double>(rounds) / static_cast<double>(round.host.value);
  }
  Time operator()(const KernelQueue& op) const {
    const double waits = waits_per_host_ * static_cast<double>(checked_sum(op.host, around_).value);
    return checked_sum(op.device, Time{rounded(waits, "an op's time")});
  }

 private:
  KernelQueue around(const KernelQueue& pass) const { return joined({around_, {}, around_}, pass); }

  Time around_;
  double waits_per_host_ = 0;
};

// F, BW, B and W of a chunk, without the overhead of an op.
struct OpTimes {
  Time forward, both, input, weight;
};
OpTimes op_times(const Plan& plan, VirtualStageId v, const Model& model, const LayerCosts& layers, const Host& host) {
  const LayerRange& range = plan.layers[static_cast<std::size_t>(v)];
  const KernelQueue forward = forward_of(range, layers), weight = weights_of(range, layers);
  const auto backward = [&](Gradients gradients, const KernelQueue& before) {
    return backward_of(plan, v, model, layers, gradients, before).front();
  };
  if (!layers.issued.empty() && !host.waits()) {
    const RunningAhead times(plan, plan.stage_of(v), model, layers, host);
    return {times(forward), times(backward(Gradients::Both, {})), times(backward(Gradients::Input, {})), times(weight)};
  }
  // A backward behind a forward begins when the device has done that; its host has been at work since it was free.
  const KernelQueue before = host.turns_at_once(plan, v) ? forward : KernelQueue{};
  return {forward.end, backward(Gradients::Both, before).end - before.end,
          backward(Gradients::Input, before).end - before.end, weight.end};
}

// The optimizer's step, then the casts of what it has made.
Time update_time(const Plan& plan, StageId stage, const Scenario& scenario, const CostSource& source, LayerRange layers,
                 std::int64_t copied) {
  const Training& training = scenario.training;
  CostSource::Sharing among;
  if (training.zero >= kOptimizerSharded) among = {plan.sharded_over(stage), plan.expert_copies()};
  return checked_sum(checked_sum(source.update(updated_parameters(parameters_of(scenario.model, layers, copied), plan,
                                                                  stage, training)),
                                 source.orthogonalise(layers, among)),
                     source.cast(low_precision_parameters(scenario, layers)));
}

std::vector<Time> durations(const Plan& plan, const auto& on_stages, const CostModel& cost,
                            const std::vector<Time>& amax_reduction) {
  std::vector<Time> duration(static_cast<std::size_t>(plan.chunks()) * kKinds);
  const Model& model = cost.scenario().model;
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    const int device_class = on_stages.class_of(plan.stage_of(v));
    const CostSource& source = cost.source(device_class);
    const Time overhead = source.op_overhead();
    const LayerRange& range = plan.layers[static_cast<std::size_t>(v)];
    const OpTimes times = op_times(plan, v, model, on_stages.of(plan.stage_of(v)), host_of(cost, device_class));
    const auto op = [&](Time time) { return checked_sum(time, overhead); };
    Time* const row = &duration[static_cast<std::size_t>(v) * kKinds];
    const GatherCopies copies = gather_copies(plan, v, cost.scenario());
    const bool scaled = !amax_reduction.empty() && low_precision_parameters(cost.scenario(), range) > 0;
    const Time amax = scaled ? amax_reduction[at(plan.stage_of(v))] : Time{};
    const Time gathered = checked_sum(source.copy(copies.backward), amax), reduced = source.copy(copies.gradients);
    row[of(Kind::R)] = op(times.forward);
    row[of(Kind::F)] = checked_sum(row[of(Kind::R)], checked_sum(source.copy(copies.forward), amax));
    row[of(Kind::BW)] = checked_sum(op(times.both), checked_sum(gathered, reduced));
    row[of(Kind::B)] = checked_sum(op(times.input), gathered);
    row[of(Kind::W)] = checked_sum(op(times.weight), reduced);
    const std::int64_t copied = tables_copied(plan, model, v, range);
    row[of(Kind::Update)] = checked_sum(update_time(plan, plan.stage_of(v), cost.scenario(), source, range, copied),
                                        source.copy(copies.step));
    const double spread = cost.scenario().cluster.device_of(device_class).spread;
    if (const double slowest = slowest_of(plan.devices(), spread); slowest > 1)
      for (int kind = 0; kind < kKinds; ++kind)
        row[kind] = Time{rounded(slowest * static_cast<double>(row[kind].value), "an op's time")};
  }
  return duration;
}

// Backward runs from the last layer to the first: a bucket is complete when only the layers before its first one are
// left, whether the worker then waits (at once) or goes on. Blocking: all buckets wait for the end of the backward.
std::vector<std::vector<Time>> ready_before_end(const Plan& plan, const CostModel& cost, const auto& on_stages) {
  const Scenario& scenario = cost.scenario();
  const bool blocking = plan.gradient_sync == GradientSync::Blocking;
  std::vector<std::vector<Time>> ready;
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    const LayerRange& layers = plan.layers[static_cast<std::size_t>(v)];
    const LayerCosts& costs = on_stages.of(plan.stage_of(v));
    const Host host = host_of(cost, on_stages.class_of(plan.stage_of(v)));
    const bool ahead = !costs.issued.empty() && !host.waits();
    const KernelQueue before = host.turns_at_once(plan, v) ? forward_of(layers, costs) : KernelQueue{};
    const std::vector<KernelQueue> upto = backward_of(plan, v, scenario.model, costs, Gradients::Both, before);
    ready.emplace_back();
    for (const Bucket& bucket : buckets(plan, v, scenario.model, scenario.training)) {
      const KernelQueue &all = upto.front(), &of = upto[static_cast<std::size_t>(bucket.first_layer - layers.begin)];
      const Time left = ahead ? all.device - of.device : all.end - of.end;
      ready.back().push_back(blocking ? Time{} : left);
    }
  }
  return ready;
}

// Of every unit but the first, whose gather is waited for.
void delay_late_gathers(const StepCosts& costs, std::vector<Time>& duration, const Plan& plan, const CostModel& cost,
                        const auto& on_stages) {
  if (costs.gathers.empty() || !gathers_per_parameter(plan, cost.scenario())) return;
  for (VirtualStageId v = 1; v < plan.chunks(); ++v) {
    const LayerCosts& layers = on_stages.of(plan.stage_of(v));
    if (layers.issued.empty()) continue;
    Time& forward = duration[at(v) * kKinds + of(Kind::F)];
    forward = behind_late_gather(forward, forward_of(plan.layers[v], layers), costs.gathers[v].time);
  }
}

// Two parts of a collective, the first of that time.
std::pair<Collective, Collective> cut_at(const Collective& whole, Time time) {
  std::pair<Collective, Collective> parts;
  double sent = 0, all = 0;
  for (const CollectivePhase& phase : whole.phases) {
    CollectivePhase first = phase, second = phase;
    first.time = std::min(time - parts.first.time, phase.time), second.time = phase.time - first.time;
    first.latency = std::min(phase.latency, first.time), second.latency = phase.latency - first.latency;
    const Time sends = phase.time - phase.latency, of_first = first.time - first.latency;
    first.bytes *= sends > Time{} ? double(of_first.value) / double(sends.value) : 0;
    second.bytes = phase.bytes - first.bytes;
    sent += first.bytes, all += phase.bytes;
    parts.first.time += first.time, parts.second.time += second.time;
    if (first.time > Time{}) parts.first.phases.push_back(std::move(first));
    if (second.time > Time{}) parts.second.phases.push_back(std::move(second));
  }
  const double share = all > 0 ? sent / all : 0;
  parts.first.bytes = Bytes{std::llround(share * static_cast<double>(whole.bytes.value))};
  parts.second.bytes = whole.bytes - parts.first.bytes;
  return parts;
}

// Of a chunk whose buckets are gathered one after the other while its first forward runs: what is over before it begins,
// so that it finds each bucket there, and the rest. Buckets of 2 ms each, and 3 ms of forward: 2 ms, then 2 ms beside it.
//                                                               tests/planner/zero_one_test.cpp
std::pair<Collective, Collective> beside_forward(const Plan& plan, VirtualStageId v, const CostModel& cost,
                                                 const auto& on_stages, const auto& gather) {
  const Scenario& scenario = cost.scenario();
  const StageId stage = plan.stage_of(v);
  const LayerRange layers = plan.layers[v];
  const LayerCosts& costs = on_stages.of(stage);
  const bool ahead = !costs.issued.empty() && !host_of(cost, on_stages.class_of(stage)).waits();
  const std::vector<Bucket> all = buckets(plan, v, scenario.model, scenario.training);
  Collective whole;
  Time before;
  for (auto bucket = all.rbegin(); bucket != all.rend(); ++bucket) {
    const LayerId begin = bucket == all.rbegin() ? layers.begin : bucket->first_layer;
    const LayerId end = bucket + 1 == all.rend() ? layers.end : (bucket + 1)->first_layer;
    Collective one = gather(stage, gathered_with_copies(plan, v, {begin, end}, scenario));
    whole.bytes = whole.bytes + one.bytes;
    whole.time = checked_sum(whole.time, one.time);
    std::move(one.phases.begin(), one.phases.end(), std::back_inserter(whole.phases));
    const KernelQueue run = forward_of({layers.begin, begin}, costs);
    before = std::max(before, whole.time - (ahead ? run.device : run.end));
  }
  return cut_at(whole, before);
}

bool gathers_chunks(const StepCosts& costs, const Plan& plan) {
  return plan.resharding || costs.shape.updated == UpdatedParts::BehindUpdate;
}

void resize_gathers(StepCosts& costs, const Plan& plan) {
  const bool beside = costs.shape.updated == UpdatedParts::BesideForwards;
  if (beside || gathers_chunks(costs, plan)) costs.gathers.resize(plan.layers.size());
  if (beside || (plan.resharding && plan.resharding->over > 0)) costs.other_gathers.resize(plan.layers.size());
}

// Over the members of all copies, whichever are simulated.
void add_all_reduces(StepCosts& costs, const Plan& plan, const CostModel& cost, const OnStages& on_stages) {
  const Scenario& scenario = cost.scenario();
  if (!costs.shape.seating().any_reduced()) return;
  costs.collectives.resize(plan.layers.size());
  resize_gathers(costs, plan);
  for (StageId k = 0; k < plan.stages; ++k) {
    const VirtualStageId first = plan.seating().chunk_of(k, 0);
    if (!costs.shape.seating().reduced(first)) continue;
    StateExchange exchange(plan, k, cost);
    if (costs.fold != nullptr) exchange.keep_links(*costs.fold);
    for (int i = 0; i < plan.virtual_stages * plan.units; ++i) {
      const VirtualStageId v = plan.seating().chunk_of(k, i);
      for (const Bucket& bucket : buckets(plan, v, scenario.model, scenario.training))
        costs.collectives[v].push_back(exchange.reduce({bucket.bytes, bucket.of_experts}));
      if (costs.shape.updated == UpdatedParts::BesideForwards)
        std::tie(costs.gathers[v], costs.other_gathers[v]) = beside_forward(
            plan, v, cost, on_stages, [&](StageId, const auto& weights) { return exchange.gather(weights); });
      if (!gathers_chunks(costs, plan)) continue;
      const StateExchange::Share weights = gathered_with_copies(plan, v, plan.layers[v], scenario);
      costs.gathers[v] = exchange.gather(weights);
      if (plan.resharding && plan.resharding->over > 0) costs.other_gathers[v] = exchange.gather_of_few(weights.all);
    }
  }
}

// Workers that hand messages over themselves: see CostSource::sending. F and the backward that gives the input's
// gradient (B, or BW) carry the copies they send and the first reading of what they received; R and W carry none.
// tests/core/profile_test.cpp "handing over"
void add_handing_over(StepCosts& costs, const CostSource& source, const std::vector<Bytes>& full,
                      const std::vector<Bytes>& last) {
  const auto add = [&](std::vector<Time>& durations, int chunk, Direction direction, Time more) {
    const auto row = static_cast<std::size_t>(chunk) * kKinds;
    if (direction == Direction::Forward) {
      durations[row + of(Kind::F)] += more;
      return;
    }
    for (const Kind kind : {Kind::B, Kind::BW})
      durations[row + of(kind)] += more;
  };
  std::vector<std::vector<Time>*> of_full = {&costs.duration}, of_last = {&costs.duration_last};
  for (StepCosts::Load& load : costs.loads)
    of_full.push_back(&load.duration), of_last.push_back(&load.duration_last);
  for (std::size_t e = 0; e < costs.edges.size(); ++e)
    for (const Direction direction : {Direction::Forward, Direction::Backward}) {
      const bool forward = direction == Direction::Forward;
      const int sender = forward ? costs.edges[e].from : costs.edges[e].to;
      const int receiver = forward ? costs.edges[e].to : costs.edges[e].from;
      const bool apart = costs.shape.stage_of(sender) != costs.shape.stage_of(receiver);
      for (const auto* const tables : {&of_full, &of_last})
        for (auto* const durations : *tables) {
          const Bytes bytes = tables == &of_full ? full[e] : last[e];
          add(*durations, sender, direction, source.sending(bytes));
          if (apart) add(*durations, receiver, direction, source.first_reading(bytes));
        }
    }
  for (auto* const messages : {&costs.messages, &costs.messages_last})
    for (Message& message : *messages)
      if (message.channel >= 0) message.latency += source.handing_over();
}

// The loads up to the first that is not fewer than the plan's workers: theirs lies on the line between it and the one
// before. The source's last has the prices of all, so it says nothing more where that is the plan's workers.
std::vector<int> loads_for(int workers, std::vector<int> loads) {
  const auto enough = std::lower_bound(loads.begin(), loads.end(), workers);
  if (enough == loads.end()) return loads;
  const bool all = *enough == workers && enough + 1 == loads.end();
  loads.erase(all ? enough : enough + 1, loads.end());
  return loads;
}

// What the ops of cells compute, and what they wait for meanwhile.
StepCosts::Together together(const Plan& plan, const CostModel& cost, const OnStages& all,
                             const std::vector<Time>& duration, const std::vector<Time>& amax) {
  StepCosts::Together result{
      .parts = {}, .share = plan.exchange_share.value, .delay_wgrad = plan.delay_wgrad.value, .pair = std::nullopt};
  if (plan.pair_time) result.pair = plan.pair_time->value;
  if (!plan.split().sends_tokens()) return result;
  const auto alone = std::make_shared<Scenario>(cost.scenario());
  ExpertExchange& exchange = alone->plan.expert_exchange.value;
  exchange = exchange == ExpertExchange::AllGather ? ExpertExchange::Unpriced : ExpertExchange::OnlySorted;
  const CostModel without(alone);
  const OnStages computing(plan, without, plan.micro_batch_size);
  const std::vector<Time> computed = durations(plan, computing, without, amax);
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    const StageId stage = plan.stage_of(v);
    const CellParts parts(plan, v, cost.scenario().model, cost.source(all.class_of(stage)), all.of(stage),
                          computing.of(stage));
    for (int kind = 0; kind < kKinds; ++kind) {
      const std::size_t row = at(v) * kKinds + at(kind);
      result.parts.push_back(parts.of(static_cast<Kind>(kind), duration[row], std::min(duration[row], computed[row])));
    }
  }
  return result;
}

// Where the simulated copies lie.
class SimulatedCopies {
 public:
  SimulatedCopies(const Plan& plan, const Topology& topology, const Fold* fold)
      : plan_(plan), topology_(topology), fold_(fold), positions_(plan.positions()) {}

  int count() const { return fold_ == nullptr ? plan_.copies() : static_cast<int>(fold_->copies.size()); }
  DeviceId device(WorkerId worker) const {
    const CopyId copy = worker / positions_;
    const CopyId in_plan = fold_ == nullptr ? copy : fold_->copies[static_cast<std::size_t>(copy)];
    return plan_.device[static_cast<std::size_t>(in_plan * positions_ + worker % positions_)];
  }
  std::vector<Link> links() const {
    if (fold_ == nullptr) return topology_.links();
    std::vector<Link> links;
    for (const std::int32_t first : fold_->names)
      links.push_back(topology_.link(first));
    return links;
  }
  Route route(WorkerId from, WorkerId to) const {
    Route route = topology_.route(device(from), device(to));
    if (fold_ == nullptr) return route;
    for (int& link : route.links)
      link = fold_->kept_link(link);
    std::erase(route.links, -1);  // all of them, or none
    return route;
  }

 private:
  const Plan& plan_;
  const Topology& topology_;
  const Fold* fold_;
  int positions_;
};

}  // namespace

StepCosts step_costs(const Plan& plan, const CostModel& cost, std::shared_ptr<const Fold> fold) {
  const Scenario& scenario = cost.scenario();
  StepCosts costs;
  costs.shape = schedule_shape(plan, scenario.model, scenario.training);
  costs.fold = std::move(fold);
  const SimulatedCopies placed(plan, cost.topology(), costs.fold.get());
  costs.shape.data_parallel = placed.count();
  costs.links = placed.links();
  costs.sharing = scenario.cluster.sharing;
  const OnStages full(plan, cost, plan.micro_batch_size);
  const bool ragged = plan.last_micro_batch_size != plan.micro_batch_size;
  const OnStages last = ragged ? OnStages(plan, cost, plan.last_micro_batch_size) : full;
  const std::vector<Time> amax = amax_reductions(plan, cost);
  costs.duration = durations(plan, full, cost, amax);
  costs.duration_last = ragged ? durations(plan, last, cost, amax) : costs.duration;
  for (int slice = 0; plan.uneven_slices() && slice < costs.shape.slices; ++slice) {
    const OnStages of_slice(plan, cost, plan.micro_batch_size, 0, slice);
    costs.slices.push_back({durations(plan, of_slice, cost, amax), ready_before_end(plan, cost, of_slice)});
  }
  if (plan.pairs.value == Pairs::Fused) costs.together = together(plan, cost, full, costs.duration, amax);
  if (costs.shape.seating().any_reduced())
    costs.contention = contention_of(plan, cost, costs.duration, [&](const CostModel& beside) {
      return durations(plan, OnStages(plan, beside, plan.micro_batch_size), beside, amax);
    });
  costs.tensor_flows = tensor_flows(
      plan, cost, costs,
      [&](const CostModel& without, bool of_last) {
        const auto size = of_last ? plan.last_micro_batch_size : plan.micro_batch_size;
        return durations(plan, OnStages(plan, without, size), without, amax);
      },
      [&](WorkerId worker) { return placed.device(worker); });
  if (scenario.cluster.classes() == 1)
    for (const int active : loads_for(plan.workers(), cost.source().loads())) {
      StepCosts::Load load{
          active, durations(plan, OnStages(plan, cost, plan.micro_batch_size, active), cost, amax), {}};
      load.duration_last = ragged
                               ? durations(plan, OnStages(plan, cost, plan.last_micro_batch_size, active), cost, amax)
                               : load.duration;
      costs.loads.push_back(std::move(load));
    }
  const auto tensors_of = [&](const OnStages& on_stages) {
    const std::vector<Bytes>& tensor = on_stages.of(0).activation;  // the same on every device
    return edge_traffic(plan, scenario.model, tensor, tensors_over_cuts(scenario.model, tensor));
  };
  EdgeTraffic tensors = tensors_of(full);
  const EdgeTraffic tensors_last = ragged ? tensors_of(last) : tensors;
  costs.edges = std::move(tensors.edges);
  check_pairs(costs, scenario.plan.replicas.place);
  Sending sending(plan, scenario.cluster, cost.topology());
  lay_messages(
      costs, tensors.bytes, tensors_last.bytes, [&](WorkerId from, WorkerId to) { return placed.route(from, to); },
      [&](Bytes bytes, WorkerId from, WorkerId to) { return sending(bytes, placed.device(from), placed.device(to)); });
  if (scenario.cost == CostSourceKind::Profile)
    add_handing_over(costs, cost.source(), tensors.bytes, tensors_last.bytes);
  add_all_reduces(costs, plan, cost, full);
  if (!costs.shape.tied.empty()) {
    TableExchange tables(plan, costs.shape.tied, cost);
    if (costs.fold != nullptr) tables.group().keep_links(*costs.fold);
    costs.tied = tables.price();
  }
  delay_late_gathers(costs, costs.duration, plan, cost, full);
  delay_late_gathers(costs, costs.duration_last, plan, cost, last);
  price_moves(
      costs, plan, cost, [&](WorkerId from, WorkerId to) { return placed.route(from, to); },
      [&](WorkerId worker) { return placed.device(worker); });
  price_host_copies(costs, plan, cost);
  costs.ready_before_end = ready_before_end(plan, cost, full);
  if (ragged) costs.ready_before_end_last = ready_before_end(plan, cost, last);
  return costs;
}

// ---- many cuts of one plan ------------------------------------------------------------------------------------------

StepPricer::StepPricer(Plan shell, const CostModel& cost)
    : plan_(std::move(shell)), cost_(cost), full_(cost.layers(plan_.micro_batch_size)) {
  PP_CHECK(plan_.last_micro_batch_size == plan_.micro_batch_size);
  PP_CHECK(cost.scenario().cluster.classes() == 1);
  over_ = tensors_over_cuts(cost.scenario().model, full_.activation);
  fold_ = fold_copies(plan_, cost, Alike::InTime);
  for (int slice = 0; plan_.uneven_slices() && slice < plan_.slices->value; ++slice)
    slices_.push_back(cost.layers(plan_.micro_batch_size, 0, 0, slice));
  sending_ = std::make_shared<Sending>(plan_, cost.scenario().cluster, cost.topology());
  amax_reductions_ = amax_reductions(plan_, cost);
  exchanges_.resize(at(plan_.stages));
  prices_.resize(exchanges_.size()), gathers_.resize(exchanges_.size());
}

const StateExchange& StepPricer::exchange(StageId k) {
  std::shared_ptr<const StateExchange>& known = exchanges_[at(k)];
  if (known) return *known;
  std::vector<DeviceId> place = members(plan_, plan_.seating().chunk_of(k, 0));
  const int period = cost_.topology().period(), before = place.front() / period * period;
  for (DeviceId& device : place)
    device -= before;
  place.push_back(plan_.sharded_over(k));
  std::shared_ptr<const StateExchange>& alike = alike_[std::move(place)];
  if (!alike) alike = std::make_shared<const StateExchange>(plan_, k, cost_);
  return *(known = alike);
}

StepCosts StepPricer::costs(const std::vector<LayerRange>& layers, const std::vector<Recompute>& recompute,
                            const std::vector<LayerId>& rebuilt) {
  const Scenario& scenario = cost_.scenario();
  plan_.layers = layers, plan_.recompute = recompute, plan_.rebuilt = rebuilt;
  StepCosts costs;
  costs.shape = schedule_shape(plan_, scenario.model, scenario.training);
  const SimulatedCopies placed(plan_, cost_.topology(), fold_.get());
  costs.shape.data_parallel = placed.count();
  costs.duration = durations(plan_, OnAllAlike{full_}, cost_, amax_reductions_);
  costs.duration_last = costs.duration;
  for (const LayerCosts& slice : slices_)
    costs.slices.push_back({durations(plan_, OnAllAlike{slice}, cost_, amax_reductions_),
                            ready_before_end(plan_, cost_, OnAllAlike{slice})});
  EdgeTraffic tensors = edge_traffic(plan_, scenario.model, full_.activation, over_);
  costs.edges = std::move(tensors.edges);
  check_pairs(costs, scenario.plan.replicas.place);
  lay_messages(
      costs, tensors.bytes, tensors.bytes,
      [&](WorkerId from, WorkerId to) { return cost_.topology().route(placed.device(from), placed.device(to)); },
      [&](Bytes bytes, WorkerId from, WorkerId to) {
        return (*sending_)(bytes, placed.device(from), placed.device(to));
      });
  if (scenario.cost == CostSourceKind::Profile) add_handing_over(costs, cost_.source(), tensors.bytes, tensors.bytes);
  add_all_reduces(costs);
  if (!costs.shape.tied.empty()) costs.tied = table(costs.shape.tied);
  for (auto* const duration : {&costs.duration, &costs.duration_last})
    delay_late_gathers(costs, *duration, plan_, cost_, OnAllAlike{full_});
  price_moves(
      costs, plan_, cost_, [&](WorkerId from, WorkerId to) { return placed.route(from, to); },
      [&](WorkerId worker) { return placed.device(worker); });
  price_host_copies(costs, plan_, cost_);
  for (auto* const copies : {&costs.moves, &costs.host_copies})
    for (Collective& one : *copies)
      one.phases.clear();
  costs.ready_before_end = ready_before_end(plan_, cost_, OnAllAlike{full_});
  return costs;
}

std::vector<Time> StepPricer::fastest_hops() const {
  std::vector<Time> hops(full_.forward.size());
  if (plan_.skips == Skips::Direct || plan_.stages < 2) return hops;
  std::vector<Route> routes;
  const int positions = plan_.positions();
  const SimulatedCopies placed(plan_, cost_.topology(), fold_.get());
  for (int copy = 0; copy < placed.count(); ++copy)
    for (int k = 0; k + 1 < positions; ++k) {
      const DeviceId here = placed.device(copy * positions + k), next = placed.device(copy * positions + k + 1);
      routes.push_back(cost_.topology().route(here, next));
      routes.push_back(cost_.topology().route(next, here));
    }
  const int shares = plan_.scatter_gather ? plan_.tensor_parallel : 1;
  for (std::size_t i = 0; i + 1 < hops.size(); ++i) {
    if (over_.count[i + 1] == Bytes{}) continue;
    Time fastest = kNever;
    const Bytes sent{over_.bytes[i + 1].value / shares};  // at least; what the receivers gather comes on top
    for (const Route& route : routes) {
      const Time transfer = route.bandwidth.value > 0 ? transfer_time(sent, route.bandwidth) : Time{};
      fastest = std::min(fastest, checked_sum(transfer, route.latency));
    }
    hops[i] = fastest;
  }
  return hops;
}

namespace {

Collective without_phases(Collective collective) {
  collective.phases.clear();
  return collective;
}

}  // namespace

void StepPricer::add_all_reduces(StepCosts& costs) {
  const Scenario& scenario = cost_.scenario();
  if (!costs.shape.seating().any_reduced()) return;
  costs.collectives.resize(plan_.layers.size());
  resize_gathers(costs, plan_);
  const bool few = plan_.resharding && plan_.resharding->over > 0;
  for (int v = 0; v < plan_.chunks(); ++v) {
    const StageId stage = plan_.stage_of(v);
    if (!costs.shape.seating().reduced(v)) continue;
    for (const Bucket& bucket : buckets(plan_, v, scenario.model, scenario.training))
      costs.collectives[static_cast<std::size_t>(v)].push_back({bucket.bytes, all_reduce(stage, bucket), {}});
    if (costs.shape.updated == UpdatedParts::BesideForwards) {
      auto [first, second] = beside_forward(plan_, v, cost_, OnAllAlike{full_},
                                            [&](StageId k, const auto& weights) { return gather(k, weights); });
      costs.gathers[v] = without_phases(std::move(first)), costs.other_gathers[v] = without_phases(std::move(second));
    }
    if (!gathers_chunks(costs, plan_)) continue;
    const StateExchange::Share weights = gathered_with_copies(plan_, v, plan_.layers[v], scenario);
    costs.gathers[v] = without_phases(gather(stage, weights));
    if (few) costs.other_gathers[v] = without_phases(exchange(stage).gather_of_few(weights.all));
  }
}

Collective StepPricer::table(const std::vector<VirtualStageId>& tied) {
  const auto [known, absent] = tables_.try_emplace(tied);
  if (absent) known->second = without_phases(TableExchange(plan_, tied, cost_).price());
  return known->second;
}

Collective StepPricer::gather(StageId k, StateExchange::Share weights) {
  const auto [known, absent] = gathers_[at(k)].try_emplace({weights.all.value, weights.of_experts.value});
  if (absent) {
    known->second = exchange(k).gather(weights);
    for (CollectivePhase& phase : known->second.phases)
      phase.links.clear();
  }
  return known->second;
}

Time StepPricer::all_reduce(StageId k, const Bucket& bucket) {
  const auto [known, absent] = prices_[at(k)].try_emplace({bucket.bytes.value, bucket.of_experts.value});
  if (absent) known->second = exchange(k).reduce({bucket.bytes, bucket.of_experts}).time;
  return known->second;
}

Time StepPricer::tail(StageId k, LayerRange layers) {
  const Scenario& scenario = cost_.scenario();
  Time tail = update_time(plan_, k, scenario, cost_.source(), layers, 0);
  if (!plan_.seating().reduced(plan_.seating().chunk_of(k, 0))) return tail;
  const std::vector<Bucket> all =  // in order of completion
      buckets(plan_, plan_.seating().chunk_of(k, 0), layers, scenario.model, scenario.training);
  const bool blocking = plan_.gradient_sync == GradientSync::Blocking;
  for (std::size_t i = blocking ? 0 : all.size() - 1; i < all.size(); ++i)
    tail = checked_sum(tail, all_reduce(k, all[i]));
  if (scenario.training.zero == kOptimizerSharded && !plan_.overlap_param_gather.value)
    tail = checked_sum(tail, gather(k, gathered_weights(plan_, k, layers, scenario)).time);
  return tail;
}

Time StepPricer::least_gathers_behind() {
  const Scenario& scenario = cost_.scenario();
  if (schedule_shape(plan_, scenario.model, scenario.training).updated != UpdatedParts::BehindUpdate) return {};
  const auto chunks = at(plan_.seating().held());
  Time least = kNever;
  for (StageId k = 0; k < plan_.stages; ++k) {
    if (!plan_.seating().reduced(plan_.seating().chunk_of(k, 0))) return {};
    std::vector<Time> times;
    for (LayerId i = 0; i < std::ssize(scenario.model.layers); ++i)
      times.push_back(gather(k, gathered_weights(plan_, k, {i, i + 1}, scenario)).time);
    if (times.size() < chunks) return {};
    std::ranges::partial_sort(times, times.begin() + static_cast<std::ptrdiff_t>(chunks));
    Time sum;
    for (std::size_t i = 0; i < chunks; ++i)
      sum = checked_sum(sum, times[i]);
    least = std::min(least, sum);
  }
  return least;
}

StepCosts plain_costs(const ScheduleShape& shape, const std::vector<Time>& forward, const std::vector<Time>& backward,
                      Time hop) {
  const auto chunks = static_cast<std::size_t>(shape.chunks());
  PP_CHECK(forward.size() == chunks && backward.size() == chunks);
  StepCosts costs;
  costs.shape = shape;
  costs.duration.resize(chunks * kKinds);
  for (std::size_t v = 0; v < chunks; ++v) {
    Time* const row = &costs.duration[v * kKinds];
    const Time half{backward[v].value / 2};
    row[of(Kind::F)] = row[of(Kind::R)] = forward[v];
    row[of(Kind::BW)] = backward[v];
    row[of(Kind::B)] = half;
    row[of(Kind::W)] = backward[v] - half;
  }
  costs.duration_last = costs.duration;
  add_chain(costs);
  const std::vector<Bytes> nothing(costs.edges.size());
  lay_messages(
      costs, nothing, nothing,
      [&](WorkerId, WorkerId) {
        Route route;
        route.latency = hop;
        return route;
      },
      [](Bytes bytes, WorkerId, WorkerId) {
        return SentShare{bytes, {}, {}};
      });
  if (shape.seating().any_reduced()) costs.collectives.resize(chunks);
  costs.moves.resize(chunks * 4 * at(shape.data_parallel));
  if (shape.weights_on_host()) costs.host_copies.resize(chunks * 3);
  costs.ready_before_end.resize(chunks);
  for (VirtualStageId v = 0; v < shape.chunks(); ++v) {
    const auto count = static_cast<std::size_t>(shape.buckets_of(v));
    costs.ready_before_end[v].resize(count);
    if (shape.seating().reduced(v)) costs.collectives[v].resize(count);
  }
  return costs;
}

}  // namespace pipewright::core
