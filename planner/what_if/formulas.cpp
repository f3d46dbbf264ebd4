#include "planner/what_if/formulas.hpp"

#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>

#include "core/cost/host_copies.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

Time time_of(const StepCosts& costs, VirtualStageId v, Kind kind) {
  return costs.duration[at(v) * kKinds + at(kind)];
}

// In the kinds of ops that the formula knows.
bool equal_stages(const StepCosts& costs, std::initializer_list<Kind> kinds) {
  for (VirtualStageId v = 1; v < costs.shape.chunks(); ++v)
    for (const Kind kind : kinds)
      if (time_of(costs, v, kind) != time_of(costs, 0, kind)) return false;
  return true;
}

PassTimes times_of_first_stage(const StepCosts& costs) {
  return {time_of(costs, 0, Kind::F).value, time_of(costs, 0, Kind::B).value, time_of(costs, 0, Kind::W).value};
}

bool free_messages(const StepCosts& costs) {
  return std::ranges::all_of(costs.messages, [](const Message& message) {
    return message.channel == -1 || (message.occupancy.value == 0 && message.latency.value == 0);
  });
}

bool free_collectives(const StepCosts& costs) {
  for (const auto& chunk : costs.collectives)
    for (const Collective& collective : chunk)
      if (collective.time.value > 0) return false;
  return true;
}

// Every stage but the first uses something of the one before it: the stages run one after the other.
bool has_chain(const StepCosts& costs) {
  const auto joins = [](const Edge& edge) { return edge.to == edge.from + 1; };
  return std::ranges::count_if(costs.edges, joins) == costs.shape.chunks() - 1;
}

// What keeps a formula for equal full micro-batches and plain ops from holding exactly.
std::vector<std::string> differences(const Answer& answer) {
  const StepCosts& costs = answer.costs;
  std::vector<std::string> list;
  if (std::ranges::any_of(answer.plan.recompute, [](Recompute recompute) { return recompute == Recompute::Full; }))
    list.push_back("activations are recomputed");
  if (answer.plan.barrier.value != Barrier::Flush) list.push_back("no barrier stands between steps");
  if (!costs.loads.empty()) list.push_back("ops take less while fewer workers compute");
  if (!costs.slices.empty()) list.push_back("slices take unequal times");
  if (costs.duration != costs.duration_last) list.push_back("the last micro-batch is smaller");
  if (!free_collectives(costs)) list.push_back("all-reduce takes time");
  if (answer.schedule.flush && costs.norm.time > Time{}) list.push_back("the norm of gradients takes time");
  if (std::ranges::any_of(costs.moves, [](const Collective& one) { return one.time > Time{}; }))
    list.push_back("moves of activations take time");
  if (costs.shape.weights_on_host()) list.push_back("copies from the host take time");
  for (VirtualStageId v = 0; v < costs.shape.chunks(); ++v)
    if (time_of(costs, v, Kind::Update).value > 0) {
      list.push_back("the optimizer step takes time");
      break;
    }
  if (std::ranges::any_of(answer.plan.replicas, [](int r) { return r > 1; })) list.push_back("stages are replicated");
  return list;
}

// "(K-1)/(M+K-1) = 3/11"; a zero is its own text, and a fraction of nanoseconds tells nobody anything.
std::string in_words(const Formula& formula, bool of_times) {
  constexpr std::int64_t kReadable = 9999;
  if (formula.numerator == 0 || (of_times && formula.denominator > kReadable)) return formula.text;
  return fmt::format("{} = {}/{}", formula.text, formula.numerator, formula.denominator);
}

std::string joined(const std::vector<std::string>& list) {
  return fmt::format("{}", fmt::join(list, ", "));
}

// GPipe with any stages and hops; a hop's tensor must not wait for the one before it:
//     T = sum_k (f_k + b_k) + 2 sum_k c_k + (M - 1) (max_k f_k + max_k b_k)
// One pass fills the pipeline, then the slowest stage of each pass sets the pace.
// K = 3, M = 4, f = 1 2 1, b = 2 4 2, c = 0: 12 + 3 * 6 = 30.
//     tests/papers/identities_test.cpp "GPipe in closed form",
//     tests/planner/answer_test.cpp "GPipe's step time with unequal stages is its closed form"
FormulaReport gpipe_step(const Answer& answer, std::vector<std::string> missing) {
  const StepCosts& costs = answer.costs;
  const int stages = costs.shape.stages;
  Time once, forward, backward, slowest_hop;
  for (VirtualStageId k = 0; k < stages; ++k) {  // a chunk is a stage
    const Time f = time_of(costs, k, Kind::F), b = time_of(costs, k, Kind::BW);
    once += f + b;
    forward = std::max(forward, f);
    backward = std::max(backward, b);
  }
  for (std::size_t edge = 0; edge + 1 < at(stages); ++edge)
    for (const Direction direction : {Direction::Forward, Direction::Backward}) {
      const Message& message = costs.message(edge, direction, 0, 0);
      if (message.channel == -1) continue;
      once += message.occupancy + message.latency;
      slowest_hop = std::max(slowest_hop, message.occupancy);
    }
  if (slowest_hop > std::min(forward, backward)) missing.push_back("a transfer takes longer than a pass");
  const double value = seconds(once) + static_cast<double>(answer.plan.micro_batches - 1) * seconds(forward + backward);
  return {"step time",
          "sum(f+b) + 2 sum(c) + (M-1)(max f + max b)",
          value,
          seconds(answer.report.makespan),
          "s",
          "GPipe19",
          joined(missing)};
}

// What the first stage's devices reach with what they leave in their host's memory.      [ZeROInfinity21] section 4
void add_host_efficiency(const Answer& answer, std::vector<FormulaReport>& list) {
  if (!answer.scenario || !answer.scenario->training.sequence_length || !answer.report.mfu) return;
  const Scenario& scenario = *answer.scenario;
  const Training& training = scenario.training;
  const Plan& plan = answer.plan;
  const Device& device = scenario.cluster.device_of(class_of_stage(plan, scenario.cluster, 0));
  const auto peak = device.peak.find(training.precision);
  if (training.offload_optimizer.value <= 0 || peak == device.peak.end()) return;
  std::vector<std::string> missing;
  if (training.precision != Precision::Bf16 && training.precision != Precision::Fp16)
    missing.push_back("weights are not of 2 B");
  if (std::ranges::any_of(plan.recompute, [](Recompute mode) { return mode == Recompute::None; }))
    missing.push_back("forwards are not repeated");
  const double divided = training.zero > 0 ? plan.sharded_over(0) : 1;
  const double tokens = static_cast<double>(plan.micro_batch_size) * static_cast<double>(*training.sequence_length) /
                        plan.context_parallel;
  const double simulated = 100 * answer.report.hfu.value_or(*answer.report.mfu);
  const auto add = [&](std::string_view of, std::string_view ait_of, double ait, Bandwidth each,
                       const std::vector<std::string>& misses) {
    const double moved = ait * divided * each.value;
    list.push_back({fmt::format("efficiency by {}", of),
                    fmt::format("ait bw / (ait bw + peak), ait = {}, bw = {:.4g} x {:.4g} GB/s", ait_of, divided,
                                each.value / 1e9),
                    100 * moved / (moved + peak->second.value), simulated, "%", "ZeROInfinity21", joined(misses)});
  };
  std::vector<std::string> of_weights = missing;
  if (gradient_bytes(training) != Bytes{2})
    of_weights.push_back(fmt::format("gradients have {} B, not 2", gradient_bytes(training).value));
  if (training.offload_weights.value)
    add("weights and gradients", fmt::format("{:.6g} tokens", tokens), tokens, to_host(scenario.cluster, device),
        of_weights);
  if (training.offload_optimizer.value < 1) missing.push_back("part of the states is on the device");
  if (training.optimizer != Optimizer::Adam) missing.push_back("the optimizer is not Adam");
  const double of_step = tokens * static_cast<double>(plan.micro_batches);
  add("optimizer states", fmt::format("{:.6g} tokens / 4", of_step), of_step / 4, *device.host_update, missing);
}

// The rule's words; with replicas 1F1B's count is PipeDream's, of one replica, as in `peak_in_flight`.
std::string in_flight_words(const ScheduleRule& rule, const ScheduleShape& shape) {
  const bool replicated = std::ranges::any_of(shape.replicas, [](int r) { return r > 1; });
  if (!replicated || !rule.flush) return std::string(rule.memory);
  if (!rule.bounded_in_flight) return "ceil(M/r_k) micro-batches on a replica of stage k";
  return "min(ceil(M/r_k), ceil(sum of r_j from k on / r_k)) on a replica of stage k";
}

}  // namespace

std::vector<FormulaReport> formulas(const Answer& answer) {
  const ScheduleRule* rule = find_schedule(answer.schedule.name);
  PP_CHECK(rule != nullptr);
  const ScheduleShape& shape = answer.schedule.shape;
  const std::string source(rule->source);
  const std::vector<std::string> missing = differences(answer);
  std::vector<FormulaReport> list;
  if (const auto bubble = textbook_bubble(*rule, shape, times_of_first_stage(answer.costs))) {
    auto misses = missing;
    const bool of_times = rule->bubble_of_times != nullptr;
    const bool equal = of_times ? equal_stages(answer.costs, {Kind::F, Kind::B, Kind::W})
                                : equal_stages(answer.costs, {Kind::F, Kind::BW});
    if (!equal) misses.insert(misses.begin(), "stages are unequal");
    if (!free_messages(answer.costs)) misses.push_back("transfers take time");
    if (!has_chain(answer.costs)) misses.push_back("stages work side by side");
    const double value = static_cast<double>(bubble->numerator) / static_cast<double>(bubble->denominator);
    list.push_back({"bubble", in_words(*bubble, of_times), 100 * value, 100 * answer.report.bubble_fraction, "%",
                    source, joined(misses)});
  }
  const bool one_chain =
      shape.virtual_stages == 1 && has_chain(answer.costs) && answer.costs.edges.size() + 1 == at(shape.stages);
  if (rule->bound == StepBound::Phases && one_chain) list.push_back(gpipe_step(answer, missing));
  for (const StageId k : {0, shape.stages - 1}) {
    if (k == 0 && shape.stages == 1 && !list.empty() && list.back().quantity == "peak in flight, stage 0") break;
    if (const auto peak = rule->peak_in_flight(shape, k))
      list.push_back(
          {fmt::format("peak in flight, stage {}", k),
           in_flight_words(*rule, shape) + (shape.units > 1 ? fmt::format(", {} units of each", shape.units) : ""),
           static_cast<double>(*peak) * shape.units, static_cast<double>(answer.report.stages[at(k)].in_flight), "",
           source, ""});
  }
  add_host_efficiency(answer, list);
  return list;
}

}  // namespace pipewright::planner
