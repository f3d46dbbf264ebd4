#include "planner/what_if/references.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/question/profile.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "planner/sharding.hpp"
#include "planner/words.hpp"
#include "sim/at_load.hpp"
#include "sim/schedules/rules.hpp"
#include "sim/static_order.hpp"
#include "sim/summarize.hpp"

namespace pipewright::planner {
namespace {

// The whole model as one stage, on every device of `devices`.
Plan one_stage(const Plan& plan, const Model& model, const std::vector<DeviceId>& devices, std::int64_t micro_batches) {
  Plan one;
  one.schedule = data_parallel().name, one.facts = data_parallel().facts;
  one.data_parallel = static_cast<int>(devices.size());
  one.replicas = {1};
  one.micro_batches = micro_batches;
  one.micro_batch_size = one.last_micro_batch_size = plan.micro_batch_size;
  one.global_batch_size = checked_product(checked_product(micro_batches, one.data_parallel, "micro-batches"),
                                          plan.micro_batch_size, "samples");
  one.layers = {{0, static_cast<LayerId>(model.layers.size())}};
  one.recompute = {Recompute::None};
  one.bucket = plan.bucket, one.bucket_rule = plan.bucket_rule;
  one.gradient_sync = plan.gradient_sync;
  one.device = devices;
  return one;
}

Time pass(const std::vector<Time>& durations) {
  return checked_sum(durations[at(Kind::F)], durations[at(Kind::BW)]);
}

// D * ((M - 1) full micro-batches + the last one) + one update. An asynchronous schedule updates once per micro-batch.
// Where ops take less while fewer workers compute: the prices of one that computes alone.
Time one_device(const Answer& answer, const CostModel& cost, DeviceId device) {
  const Plan& plan = answer.plan;
  Plan one = one_stage(plan, cost.scenario().model, {device}, std::max<std::int64_t>(2, plan.micro_batches));
  one.last_micro_batch_size = plan.last_micro_batch_size;
  const StepCosts costs = step_costs(one, cost);
  const auto times = [](Time time, std::int64_t n) { return Time{checked_product(time.value, n, "a time")}; };
  const std::vector<Time>& full = costs.loads.empty() ? costs.duration : costs.loads.front().duration;
  const std::vector<Time>& last = costs.loads.empty() ? costs.duration_last : costs.loads.front().duration_last;
  const Time copy = checked_sum(times(pass(full), plan.micro_batches - 1), pass(last));
  const std::int64_t updates = answer.schedule.flush ? 1 : plan.micro_batches * plan.data_parallel;
  return checked_sum(times(copy, plan.data_parallel), times(full[at(Kind::Update)], updates));
}

std::vector<DeviceId> all_devices(const Plan& plan) {
  std::vector<DeviceId> devices;
  for (const DeviceId lead : plan.device)
    for (int member = 0; member < plan.tensor_parallel; ++member)
      devices.push_back(lead + member);
  return devices;
}

// The references share no layer among devices, and cut no sequence: the scenario without tensor and context parallelism.
std::optional<CostModel> undivided(const Scenario& scenario) {
  if (scenario.plan.tensor_parallel.value < 2 && scenario.plan.context_parallel.value < 2 &&
      !scenario.plan.split().sends_tokens() && !scenario.plan.slices)
    return std::nullopt;
  Scenario copy = scenario;
  copy.plan.tensor_parallel.value = copy.plan.context_parallel.value = copy.plan.expert_parallel.value = 1;
  copy.plan.expert_tensor_parallel.value = 0;
  copy.plan.slices.reset();
  copy.plan.sequence_parallel.value = false;
  settle(copy.model, weight_bytes(copy.training.precision), TensorParallel{});
  return std::optional<CostModel>(std::make_shared<const Scenario>(std::move(copy)));
}

Reference data_parallelism(const Answer& answer, const CostModel& cost) {
  const Plan& plan = answer.plan;
  const int workers = plan.devices();
  Reference reference{
      fmt::format("data parallelism on {} {}", workers, plan.tensor_parallel > 1 ? "devices" : "workers"), std::nullopt,
      "", true};
  // The asynchronous schedule updates with every micro-batch, so its counterpart does not accumulate gradients:
  // one micro-batch per worker and update.
  const std::int64_t share = answer.schedule.flush ? plan.global_batch_size / workers / plan.micro_batch_size : 1;
  const std::int64_t micro_batches = std::max<std::int64_t>(1, share);
  Plan one = one_stage(plan, cost.scenario().model, all_devices(plan), micro_batches);
  PlanErrors none;  // groups that do not divide these copies: then nothing is gathered
  settle_division(cost.scenario(), one, none);
  if (none.count() == 0) settle_units(cost.scenario(), one);
  const bool alone = cost.source().loads().empty();  // else ops depend on how many workers compute
  StepCosts costs = step_costs(one, cost, alone ? fold_copies(one, cost, Alike::InTime) : nullptr);
  const Schedule schedule = make_schedule(one, costs.shape);
  if (run_size(schedule, costs) > 4'000'000) {
    reference.note = "not simulated: the run is too long to be repeated at once";
    return reference;
  }
  const Time makespan = costs.loads.empty() ? static_order_makespan(schedule, costs)
                                            : settle(schedule, costs, Engine::StaticOrder).makespan;
  reference.samples_per_s = samples_per_second(one, makespan, std::nullopt);
  if (!answer.schedule.flush)
    reference.note = fmt::format("with an update per {} samples", one.global_batch_size);
  else if (one.global_batch_size != plan.global_batch_size)
    reference.note =
        fmt::format("with a global batch of {} instead of {}", one.global_batch_size, plan.global_batch_size);
  const MemoryModel memory = memory_model(one, cost);
  const Bytes needed = need(memory, peak(memory, schedule, 0).bytes, 0).to_fit;
  if (needed > memory.capacity) {
    reference.shortfall = fmt::format("it needs {} of {}", bytes_text(needed), bytes_text(memory.capacity));
    reference.note += fmt::format("{}does not fit: {}", reference.note.empty() ? "" : "; ", reference.shortfall);
  }
  return reference;
}

// Alone a device has all experts, and the tokens of one micro-batch for them: products are smaller, and weights are read more
// often for as many tokens.
std::string note_of_one(const Plan& plan, double efficiency) {
  std::string note = "whether or not the model fits on it";
  if (efficiency > 1 && plan.micro_batches_at_expert() > 1)
    note += fmt::format(
        "; its experts get the tokens of 1 micro-batch at once, those of the plan of {:.4g}, so that the "
        "plan can be faster than as many such devices",
        plan.micro_batches_at_expert());
  return note;
}

// Beside one device of the fastest class that the plan uses. Its efficiency: the rate over the sum of what every device
// of the plan would do alone.
void add_one_device(Report& report, const Answer& answer, const CostModel& cost) {
  const Cluster& cluster = cost.scenario().cluster;
  const Plan& plan = answer.plan;
  double fastest = 0, together = 0;
  int best = 0;
  for (int c = 0; c < cluster.classes(); ++c) {
    const int workers = workers_on_class(plan, cluster, c);
    if (workers == 0) continue;
    const double alone = seconds(one_device(answer, cost, cluster.first_node_of(c) * cluster.devices_per_node));
    if (!(alone > 0)) return;
    const double rate = static_cast<double>(plan.global_batch_size) / alone;
    if (rate > fastest) fastest = rate, best = c;
    together += rate * workers * plan.tensor_parallel;
  }
  report.speedup_one_device = report.samples_per_s / fastest;
  report.scaling_efficiency = report.samples_per_s / together;
  report.references.push_back(
      {"one " + cluster.device_of(best).name, fastest, note_of_one(plan, report.scaling_efficiency)});
}

}  // namespace

void add_references(Answer& answer, const CostModel& planned) {
  Report& report = answer.report;
  if (report.samples_per_s <= 0) return;  // a step that takes no time compares with nothing
  const int workers = answer.plan.devices();
  const std::optional<CostModel> alone_cost = undivided(planned.scenario());
  const CostModel& cost = alone_cost ? *alone_cost : planned;
  if (const Scenario& alone = cost.scenario();
      alone.cost == CostSourceKind::Profile && alone.profile != nullptr && !has_layers(*alone.profile, alone.model)) {
    report.references.push_back({"one device", std::nullopt,
                                 fmt::format("not priced: profile \"{}\" has no layers of whole sequences and all "
                                             "experts; calibrate without context_parallel and expert_parallel, too",
                                             alone.profile->name)});
    return;
  }
  if (cost.scenario().cluster.classes() > 1) {
    add_one_device(report, answer, cost);
    if (workers > 1)
      report.references.push_back({fmt::format("data parallelism on {} devices", workers), std::nullopt,
                                   "not simulated: the replicas of a stage are of one device class", true});
    return;
  }
  const double alone = seconds(one_device(answer, cost, answer.plan.device.front()));
  if (alone > 0) {
    const double rate = static_cast<double>(answer.plan.global_batch_size) / alone;
    report.speedup_one_device = report.samples_per_s / rate;
    report.scaling_efficiency = report.speedup_one_device / workers;
    report.references.push_back({"one device", rate, note_of_one(answer.plan, report.scaling_efficiency)});
  }
  const bool is_data_parallel =
      answer.plan.positions() == 1 && answer.plan.tensor_parallel == 1 && answer.plan.context_parallel == 1;
  if (workers == 1 || is_data_parallel) return;
  Reference reference = data_parallelism(answer, cost);
  if (reference.samples_per_s && *reference.samples_per_s > 0)
    report.speedup_data_parallel = report.samples_per_s / *reference.samples_per_s;
  report.references.push_back(std::move(reference));
}

}  // namespace pipewright::planner
