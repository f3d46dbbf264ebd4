#include "planner/partitioners/least_step.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/cost/step_pricer.hpp"
#include "core/model/graph.hpp"
#include "core/plan/given_schedule.hpp"
#include "planner/partitioners/balanced.hpp"
#include "planner/partitioners/exact.hpp"
#include "planner/words.hpp"
#include "sim/compiled_order.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

constexpr std::int64_t kMostStepSimulations = 2000;
constexpr std::int64_t kMostStepPrefixes = std::int64_t{1} << 18;

// A last op that computes the gradients of weights may stand behind all that another stage waits for.
bool has_whole_backwards(const GivenSchedule& given) {
  return std::ranges::all_of(given.compute, [](const std::vector<Op>& ops) {
    return std::ranges::none_of(ops, [](const Op& op) { return op.kind == Kind::B || op.kind == Kind::W; });
  });
}

}  // namespace

std::string least_step_refusal(const Plan& plan) {
  const ScheduleRule& rule = *find_schedule(plan.schedule);
  const bool known = rule.from_file ? plan.given && has_whole_backwards(*plan.given) : rule.bound != StepBound::None;
  const bool replicated = std::ranges::any_of(plan.replicas, [](int r) { return r > 1; });
  if (!known && rule.from_file)
    return "exact is for orders of whole backwards, and the file has gradients of weights apart; write balanced or "
           "fitting";
  if (!known)
    return "exact is for " +
           listed(schedule_names([](const ScheduleRule& each) { return each.bound != StepBound::None; }), "and") +
           ", not for " + plan.schedule + "; write balanced or fitting";
  if (plan.seating().held() > 1 || replicated)
    return "exact is for one chunk per stage without replicas; write balanced";
  if (plan.last_micro_batch_size != plan.micro_batch_size)
    return "exact is for micro-batches of one size; write balanced, or a batch that divides";
  return "";
}

bool every_cut_is_crossed(const Scenario& scenario) {
  const std::vector<Layer>& layers = scenario.model.layers;
  bool each_reads_the_last = true;
  for (std::size_t i = 1; i < layers.size(); ++i)
    each_reads_the_last &=
        std::ranges::find(layers[i].inputs, LayerId{static_cast<int>(i) - 1}) != layers[i].inputs.end();
  if (each_reads_the_last || scenario.plan.skips == Skips::Direct) return each_reads_the_last;
  const std::vector<Bytes> crossing = bytes_over_cuts(scenario.model, std::vector<Bytes>(layers.size(), Bytes{1}));
  return std::all_of(crossing.begin() + 1, crossing.end() - 1, [](Bytes count) { return count > Bytes{}; });
}

LeastStepPlan least_step(const Plan& plan, const CostModel& cost) {
  StepPricer pricer(plan, cost);
  Makespans makespan(*find_schedule(plan.schedule));
  const auto step = [&](const std::vector<LayerRange>& cut) {
    return makespan(pricer.costs(cut, plan.recompute, plan.rebuilt));
  };
  ExactAnswer answer = exact({.schedule = plan.schedule,
                              .stages = plan.stages,
                              .micro_batches = static_cast<int>(plan.micro_batches),
                              .forward = pricer.layers().forward,
                              .backward = pricer.layers().backward,
                              .hop = pricer.fastest_hops(),
                              .step = step,
                              .most_simulations = kMostStepSimulations,
                              .most_prefixes = kMostStepPrefixes});
  if (!answer.proven())
    if (std::vector<LayerRange> cut = balanced_layers(plan, cost); step(cut) < answer.step)
      answer.step = step(cut), answer.layers = std::move(cut);
  const std::string tried = fmt::format("{} cut{} simulated", answer.simulations, answer.simulations == 1 ? "" : "s");
  return {answer.layers, answer.proven()
                             ? "partition: the least step of all cuts, proven; " + tried
                             : fmt::format("partition: at most {:.2f} % above the least step of all cuts; {}",
                                           100 * answer.gap(), tried)};
}

}  // namespace pipewright::planner
