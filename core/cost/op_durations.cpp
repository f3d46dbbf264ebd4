#include "core/cost/op_durations.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/cost/buckets.hpp"
#include "core/cost/gather_copies.hpp"
#include "core/cost/kernel_queue.hpp"
#include "core/cost/low_precision.hpp"
#include "core/cost/slowest_device.hpp"
#include "core/plan/tied_tables.hpp"

namespace pipewright::core {
namespace {

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
  if (plan.recompute[stage] == Recompute::Selective)
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
  const LayerRange& range = plan.layers[v];
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
           plan.recompute[plan.stage_of(v)] != Recompute::Full;
  }
};
Host host_of(const CostModel& cost, int device_class) {
  return {cost.scenario().cluster.device_of(device_class).host, cost.scenario().plan.stages.value};
}

bool runs_ahead(const LayerCosts& costs, const Host& host) {
  return !costs.issued.empty() && !host.waits();
}

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
      round = joined(round, around(forward_of(plan.layers[v], layers)));
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
  const LayerRange& range = plan.layers[v];
  const KernelQueue forward = forward_of(range, layers), weight = weights_of(range, layers);
  const auto backward = [&](Gradients gradients, const KernelQueue& before) {
    return backward_of(plan, v, model, layers, gradients, before).front();
  };
  if (runs_ahead(layers, host)) {
    const RunningAhead times(plan, plan.stage_of(v), model, layers, host);
    return {times(forward), times(backward(Gradients::Both, {})), times(backward(Gradients::Input, {})), times(weight)};
  }
  // A backward behind a forward begins when the device has done that; its host has been at work since it was free.
  const KernelQueue before = host.turns_at_once(plan, v) ? forward : KernelQueue{};
  return {forward.end, backward(Gradients::Both, before).end - before.end,
          backward(Gradients::Input, before).end - before.end, weight.end};
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

}  // namespace

OnStages::OnStages(const Plan& plan, const CostModel& cost, std::int64_t samples, int active, std::optional<int> slice)
    : by_class_(static_cast<std::size_t>(cost.scenario().cluster.classes())) {
  std::vector<char> known(by_class_.size());
  for (StageId k = 0; k < plan.stages; ++k) {
    const int c = class_of_stage(plan, cost.scenario().cluster, k);
    class_of_stage_.push_back(c);
    if (std::exchange(known[at(c)], 1) == 0) by_class_[at(c)] = cost.layers(samples, c, active, slice);
  }
}

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

std::vector<Time> op_durations(const Plan& plan, const OnStages& on_stages, const CostModel& cost,
                               const std::vector<Time>& amax_reduction) {
  std::vector<Time> duration(static_cast<std::size_t>(plan.chunks()) * kKinds);
  const Model& model = cost.scenario().model;
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    const int device_class = on_stages.class_of(plan.stage_of(v));
    const CostSource& source = cost.source(device_class);
    const Time overhead = source.op_overhead();
    const LayerRange& range = plan.layers[v];
    const OpTimes times = op_times(plan, v, model, on_stages.of(plan.stage_of(v)), host_of(cost, device_class));
    const auto op = [&](Time time) { return checked_sum(time, overhead); };
    Time* const row = &duration[static_cast<std::size_t>(v) * kKinds];
    const GatherCopies copies = gather_copies(plan, v, cost.scenario());
    const bool scaled = !amax_reduction.empty() && low_precision_parameters(cost.scenario(), range) > 0;
    const Time amax = scaled ? amax_reduction[at(plan.stage_of(v))] : Time{};
    const Time gathered = checked_sum(source.copy(copies.backward), amax), reduced = source.copy(copies.gradients);
    row[at(Kind::R)] = op(times.forward);
    row[at(Kind::F)] = checked_sum(row[at(Kind::R)], checked_sum(source.copy(copies.forward), amax));
    row[at(Kind::BW)] = checked_sum(op(times.both), checked_sum(gathered, reduced));
    row[at(Kind::B)] = checked_sum(op(times.input), gathered);
    row[at(Kind::W)] = checked_sum(op(times.weight), reduced);
    row[at(Kind::Update)] = checked_sum(update_time(plan, plan.stage_of(v), cost.scenario(), source, range,
                                                    tables_of(plan, model, v, range, table_trained)),
                                        source.copy(copies.step));
    const double spread = cost.scenario().cluster.device_of(device_class).spread;
    if (const double slowest = slowest_of(plan.devices(), spread); slowest > 1)
      for (int kind = 0; kind < kKinds; ++kind)
        row[kind] = Time{rounded(slowest * static_cast<double>(row[kind].value), "an op's time")};
  }
  return duration;
}

std::vector<std::vector<Time>> ready_before_end(const Plan& plan, const CostModel& cost, const OnStages& on_stages) {
  const Scenario& scenario = cost.scenario();
  const bool blocking = plan.gradient_sync == GradientSync::Blocking;
  std::vector<std::vector<Time>> ready;
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    const LayerRange& layers = plan.layers[v];
    const LayerCosts& costs = on_stages.of(plan.stage_of(v));
    const Host host = host_of(cost, on_stages.class_of(plan.stage_of(v)));
    const bool ahead = runs_ahead(costs, host);
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

void delay_late_gathers(const StepCosts& costs, std::vector<Time>& duration, const Plan& plan, const CostModel& cost,
                        const OnStages& on_stages) {
  if (costs.gathers.empty() || !gathers_per_parameter(plan, cost.scenario())) return;
  for (VirtualStageId v = 1; v < plan.chunks(); ++v) {
    const LayerCosts& layers = on_stages.of(plan.stage_of(v));
    if (layers.issued.empty()) continue;
    Time& forward = duration[at(v) * kKinds + at(Kind::F)];
    forward = behind_late_gather(forward, forward_of(plan.layers[v], layers), costs.gathers[v].time);
  }
}

std::pair<Collective, Collective> beside_forward(
    const Plan& plan, VirtualStageId v, const CostModel& cost, const OnStages& on_stages,
    const std::function<Collective(StageId, const StateExchange::Share&)>& gather) {
  const Scenario& scenario = cost.scenario();
  const StageId stage = plan.stage_of(v);
  const LayerRange layers = plan.layers[v];
  const LayerCosts& costs = on_stages.of(stage);
  const bool ahead = runs_ahead(costs, host_of(cost, on_stages.class_of(stage)));
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

}  // namespace pipewright::core
