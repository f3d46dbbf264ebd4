#include "planner/search/space.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/cost/cost_model.hpp"
#include "core/divisors.hpp"
#include "core/plan/given_schedule.hpp"
#include "planner/plan_errors.hpp"
#include "planner/refusals.hpp"
#include "planner/sharding.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

constexpr std::int64_t kMostContext = 64;                  // that `auto` opens; more are written down
constexpr std::int64_t kMostExperts = 256;                 // likewise
constexpr std::size_t kMostGroups = std::size_t{1} << 18;  // of layouts, about 400 bytes each

bool has_gradients_apart(const GivenSchedule& given) {
  return std::ranges::any_of(given.compute, [](const std::vector<Op>& ops) {
    return std::ranges::any_of(ops, [](const Op& op) { return op.kind == Kind::W; });
  });
}

// The order of a file has its own stages and micro-batches; `simulate` finds the cut and the recomputation for it.
std::string no_search_beside(const GivenSchedule& given) {
  std::string settings =
      fmt::format("--set plan.stages={} --set training.micro_batches={}", given.stages, given.micro_batches);
  if (given.virtual_stages > 1) settings += fmt::format(" --set plan.virtual_stages={}", given.virtual_stages);
  return fmt::format(
      "plan.schedule: the order of {} is for {} stages x {} micro-batches, so `plan` cannot search with it; for "
      "that "
      "order ask simulate, which finds the cut and the layers to recompute: pipewright simulate with {} --set "
      "plan.partition={} --set plan.recompute=knapsack; or write another schedule",
      given.file.empty() ? "a file" : given.file, given.stages, given.micro_batches, settings,
      given.virtual_stages > 1 || has_gradients_apart(given) ? "balanced" : "exact");
}

// Values that no other field can mend.
void check_fixed(const Scenario& scenario) {
  const PlanRequest& plan = scenario.plan;
  PlanErrors errors;
  check_host_update(scenario, errors);
  errors.throw_if_any();
  if (const auto refused = tensor_refusal(scenario))
    throw InputError(
        or_else(refused->key == "tensor_links" ? plan.tensor_links.place : plan.tensor_overlap.place, plan.place),
        fmt::format("plan.{}", refused->key), refused->why);
  if (const auto refused = operators_refusal(scenario))
    throw InputError(or_else(plan.recompute.place, plan.place), fmt::format("plan.{}", refused->key), refused->why);
  if (is_open(scenario, "data_parallel_shard") && scenario.training.zero == 0 && !is_open(scenario, "zero"))
    throw InputError(
        plan.open.at("data_parallel_shard").place, "plan.data_parallel_shard",
        "copies divide nothing with training.zero: 0; write training.zero: 3 for FSDP or {auto: [1, 3]}, or "
        "leave this out");
  const std::int64_t devices = scenario.cluster.devices();
  const auto layers = static_cast<std::int64_t>(scenario.model.layers.size());
  if (layers == 0) throw InputError(scenario.model.place, "model.layers", "the model has no layers; give at least one");
  const auto given = [&](const char* key, std::int64_t value) { return is_open(scenario, key) ? 1 : value; };
  if (!is_open(scenario, "stages") && plan.stages.value > layers)
    throw InputError(or_else(plan.stages.place, plan.place), "plan.stages",
                     fmt::format("{} stages for {} layers; every stage holds at least one: use 1..{}, or "
                                 "auto",
                                 plan.stages.value, layers, layers));
  const std::int64_t stages = given("stages", plan.stages.value),
                     copies = given("data_parallel", plan.data_parallel.value),
                     group = given("tensor_parallel", plan.tensor_parallel.value),
                     context = given("context_parallel", plan.context_parallel.value);
  if (stages > devices || copies > devices / stages || group > devices / stages / copies ||
      context > devices / stages / copies / group)
    throw InputError(
        or_else(plan.stages.place, plan.place), "plan",
        fmt::format(
            "{} stages x {} copies x {} (tensor_parallel){} need {} devices, the cluster has {}; make one of them "
            "smaller, or auto",
            stages, copies, group, context > 1 ? fmt::format(" x {} (context_parallel)", context) : "",
            std::max({stages, copies, group, context}) <= (1 << 15)
                ? fmt::format("{}", stages * copies * group * context)
                : "too many",
            devices));
  if (const OpenField* cuts = open_field(scenario, "partition"); cuts != nullptr && !cuts->among.empty())
    throw InputError(cuts->place, "plan.partition",
                     "auto is every cut and takes no list; write partition: auto, or one partitioner");
  const ScheduleRule* rule = find_schedule(plan.schedule.value);
  if (!is_open(scenario, "schedule") && rule != nullptr && rule->from_file)
    throw InputError(or_else(plan.schedule.place, plan.place),
                     plan.given ? no_search_beside(*plan.given)
                                : "plan.schedule: `plan` cannot search when a file states the order; write another "
                                  "schedule, or settle the fields that say auto");
  for (const std::string& schedule : schedules_for(scenario))
    if (find_schedule(schedule) == nullptr)
      throw InputError(or_else(plan.schedule.place, plan.place), "plan.schedule",
                       unknown_or_begun(schedule, schedule_names()));
}

const std::string kNoBatch = "the batch does not divide among copies and micro-batches";
const std::string kNoExperts = "expert_parallel does not go with the experts, the devices or other keys";

// Degrees of expert parallelism that go with the rest.
std::vector<std::int64_t> experts_for(Scenario& asked, const Layout& layout, const auto& left_out,
                                      std::optional<Refusal>& refused) {
  asked.plan.tensor_parallel.value = layout.tensor_parallel,
  asked.plan.context_parallel.value = layout.context_parallel;
  asked.plan.data_parallel.value = layout.data_parallel;
  asked.plan.sequence_parallel.value = layout.sequence_parallel;
  std::vector<std::int64_t> powers, possible;
  for (std::int64_t e = 1; e <= std::min<std::int64_t>(layout.tensor_parallel * layout.copies(), kMostExperts); e *= 2)
    powers.push_back(e);
  for (const std::int64_t e : numbers(asked, "expert_parallel", asked.plan.expert_parallel.value, powers)) {
    const std::int64_t before = std::exchange(asked.plan.expert_parallel.value, e);
    auto why = expert_refusal(asked);
    asked.plan.expert_parallel.value = before;
    if (!why)
      possible.push_back(e);
    else
      left_out(kNoExperts), refused = std::move(why);
  }
  return possible;
}

// Degrees of tensor and of context parallelism that go together: heads and tokens divide.
std::vector<std::pair<std::int64_t, std::int64_t>> shared_layers(const Scenario& scenario,
                                                                 const std::vector<std::int64_t>& degrees,
                                                                 const auto& left_out) {
  const PlanRequest& plan = scenario.plan;
  const std::int64_t devices = scenario.cluster.devices();
  std::vector<std::int64_t> powers;
  for (std::int64_t c = 1; c <= std::min(devices, kMostContext); c *= 2)
    powers.push_back(c);
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  std::optional<Refusal> refused;
  Scenario asked = scenario;
  for (const std::int64_t t : numbers(scenario, "tensor_parallel", plan.tensor_parallel.value, degrees))
    for (const std::int64_t c : numbers(scenario, "context_parallel", plan.context_parallel.value, powers)) {
      asked.plan.tensor_parallel.value = t, asked.plan.context_parallel.value = c;
      if (t < 1 || c < 1 || c > devices || t > devices / c)
        left_out("more devices than the cluster has");
      else if (auto why = context_refusal(asked))
        left_out("context_parallel does not divide the tokens or the heads"), refused = std::move(why);
      else
        pairs.emplace_back(t, c);
    }
  if (pairs.empty() && refused)
    throw InputError(or_else(plan.context_parallel.place, plan.place), fmt::format("plan.{}", refused->key),
                     refused->why);
  return pairs;
}

// The layouts of a scenario, in groups, and why others are none.
class SpaceOf {
 public:
  SpaceOf(const Scenario& scenario, const Within& within)
      : scenario_(scenario),
        plan_(scenario.plan),
        within_(within),
        devices_(scenario.cluster.devices()),
        layers_(static_cast<std::int64_t>(scenario.model.layers.size())),
        schedules_(schedules_for(scenario)),
        placements_(placements_for(scenario)),
        asked_(scenario) {}

  Space found() {
    std::vector<std::int64_t> degrees = divisors(scenario_.cluster.devices_per_node);
    std::erase_if(degrees, [&](std::int64_t t) { return !divides(scenario_.model, t); });
    for (const auto& [t, context] : shared_layers(scenario_, degrees, left_out_)) {
      Layout layout;
      layout.tensor_parallel = static_cast<int>(t), layout.context_parallel = static_cast<int>(context);
      add_pipelines(layout, t * context);
    }
    if (space_.groups.empty() && refused_ && !lacking_ && !space_.left_out.contains(kNoBatch))
      throw InputError(or_else(plan_.expert_parallel.place, plan_.place), fmt::format("plan.{}", refused_->key),
                       refused_->why);
    return std::move(space_);
  }

 private:
  // Of stages whose devices are `shared` each.
  void add_pipelines(Layout layout, std::int64_t shared) {
    const std::int64_t at_most = std::min(layers_, devices_ / std::max<std::int64_t>(shared, 1));
    for (const std::int64_t stages : numbers(scenario_, "stages", plan_.stages.value, up_to(at_most)))
      for (const std::int64_t copies : numbers(scenario_, "data_parallel", plan_.data_parallel.value,
                                               up_to(devices_ / std::max<std::int64_t>(shared * stages, 1)))) {
        if (!fits(shared * stages * copies, stages)) continue;
        layout.stages = static_cast<int>(stages), layout.data_parallel = static_cast<int>(copies);
        add_batches(layout);
      }
  }

  bool fits(std::int64_t taken, std::int64_t stages) {
    const std::int64_t node = scenario_.cluster.devices_per_node;
    if (taken > devices_)
      left_out_("more devices than the cluster has");
    else if (within_.whole_nodes && taken > node && taken % node != 0)
      left_out_("devices that do not fill the last of their nodes");
    else if (stages > layers_)
      left_out_("more stages than layers");
    else
      return true;
    return false;
  }

  void add_batches(Layout layout) {
    const std::vector<Batch> split = batches(scenario_, layout.data_parallel);
    if (split.empty()) left_out_(kNoBatch);
    for (const Batch& batch : split)
      for (const bool sequence_parallel : sequence_parallel_for(scenario_, layout.tensor_parallel)) {
        layout.sequence_parallel = sequence_parallel;
        layout.micro_batch_size = batch.size, layout.micro_batches = batch.count;
        for (const std::int64_t experts : experts_for(asked_, layout, left_out_, refused_)) {
          LayoutGroup group;
          group.first = layout;
          group.first.expert_parallel = static_cast<int>(experts);
          add_group(std::move(group));
        }
      }
  }

  void add_group(LayoutGroup group) {
    const Layout& first = group.first;
    const std::int64_t copies = first.data_parallel;
    group.chunks = chunks_for(scenario_, first.stages);
    for (const std::string& schedule : schedules_)
      if (takes(schedule, group)) group.schedules.push_back(schedule);
    // In a pipeline weights stay whole until the end of the step: 3 gains nothing there over 1, and 2 is left to lists.
    const std::vector<std::int64_t> zeros = first.stages == 1 && divides_gradients()
                                                ? std::vector<std::int64_t>{1, 0, 2, 3}
                                                : std::vector<std::int64_t>{1, 0};
    group.zeros = copies * first.context_parallel > 1
                      ? numbers(scenario_, "zero", scenario_.training.zero, zeros)
                      : std::vector<std::int64_t>{is_open(scenario_, "zero") ? 0 : scenario_.training.zero};
    group.shards =
        shards_for(scenario_, copies, static_cast<std::int64_t>(first.tensor_parallel) * first.context_parallel);
    if (group.shards.empty()) {
      left_out_("data_parallel_shard does not divide the copies");
      group.shards = {0};
      std::erase_if(group.zeros, [](std::int64_t zero) { return zero > 0; });
      if (group.zeros.empty()) return;
    }
    leave_out_zeros(group);
    if (group.zeros.empty()) return;
    group.placements = copies > 1 && first.stages > 1 ? placements_ : std::vector<PlacementOrder>{placements_.front()};
    space_.layouts += static_cast<std::int64_t>(members(group).size());
    if (group.schedules.empty() && (first.stages == 1 || group.chunks.empty()))
      left_out_(those_with_chunks(schedules_) + " two stages or more, and two chunks or more on each");
    if (group.schedules.empty()) return;
    if (space_.groups.size() == kMostGroups)
      throw InputError(plan_.place, "plan",
                       fmt::format("more than {} combinations of stages, copies, tensor_parallel, context_parallel, "
                                   "expert_parallel and micro-batches are left open; restrict them, e.g. stages: "
                                   "{{auto: [4, 8]}}, or micro_batch_size: {{auto: [1, 2, 4]}}",
                                   kMostGroups),
                       ErrorCode::TooLarge);
    space_.groups.push_back(std::move(group));
  }

  void leave_out_zeros(LayoutGroup& group) {
    Layout layout = group.first;
    if (within_.elsewhere)
      std::erase_if(group.zeros, [&](std::int64_t zero) {
        layout.zero = zero;
        return within_.elsewhere(layout);
      });
    layout.zero = group.first.zero;
    if (!within_.lacks || group.zeros.empty()) return;
    // Of one copy it says nothing, but frameworks want it for other things.
    if (layout.copies() == 1 && is_open(scenario_, "zero") && !within_.lacks(layout).empty())
      group.zeros = numbers(scenario_, "zero", 0, {1, 2, 3});
    std::erase_if(group.zeros, [&](std::int64_t zero) {
      layout.zero = zero;
      const std::string reason = within_.lacks(layout);
      if (!reason.empty()) left_out_(reason), lacking_ = true;
      return !reason.empty();
    });
    if (layout.copies() == 1 && group.zeros.size() > 1) group.zeros.resize(1);
  }

  // Whether gradients and weights of copies can be divided as they are reduced.
  bool divides_gradients() const {
    const auto& layers = scenario_.model.layers;
    return std::ranges::none_of(layers, [](const Layer& layer) { return layer.states.has_value(); }) &&
           std::ranges::all_of(schedules_, [](const std::string& name) {
             const ScheduleRule* rule = find_schedule(name);
             return rule != nullptr && rule->flush;
           });
  }

  // Whether a schedule is one of a group's: not where another does the same on one stage, nor without chunks to take.
  bool takes(const std::string& schedule, const LayoutGroup& group) {
    const ScheduleRule& rule = *find_schedule(schedule);
    const ScheduleFacts& facts = rule.facts;
    const int stages = group.first.stages;
    if (!facts.takes_chunks && chunks_are_given(scenario_)) {
      left_out_("plan.virtual_stages is given, and of the schedules " + those_with_chunks() + " several");
      return false;
    }
    const bool same = stages == 1 && std::ranges::find(schedules_, rule.on_one_stage) != schedules_.end();
    if (same || (facts.takes_chunks && (stages == 1 || chunks_of(schedule, group.chunks).empty()))) return false;
    if (!facts.groups_of_stages || group.first.micro_batches % stages == 0) return true;
    left_out_(schedule + " takes micro-batches in groups of as many as there are stages");
    return false;
  }

  const Scenario& scenario_;
  const PlanRequest& plan_;
  const Within& within_;
  std::int64_t devices_, layers_;
  std::vector<std::string> schedules_;
  std::vector<PlacementOrder> placements_;
  bool lacking_ = false;  // some layout was left out by within_.lacks
  Scenario asked_;        // to try degrees with
  std::optional<Refusal> refused_;
  Space space_;
  std::function<void(const std::string&)> left_out_ = [this](const std::string& reason) { ++space_.left_out[reason]; };
};

// By entry of `recompute`, one per stage or one for all: the rebuilt layers.
std::vector<Placed<std::vector<std::int64_t>>> listed_layers(const Plan& plan, bool one_entry) {
  std::vector<Placed<std::vector<std::int64_t>>> listed;
  if (plan.rebuilt.empty()) return listed;
  listed.resize(one_entry ? 1 : at(plan.stages));
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    const LayerRange& range = plan.layers[v];
    auto& layers = listed[one_entry ? 0 : at(plan.stage_of(v))].value;
    for (const LayerId layer : plan.rebuilt)
      if (layer >= range.begin && layer < range.end) layers.push_back(layer);
  }
  return listed;
}

}  // namespace

Space layouts_of(const Scenario& scenario, const Within& within) {
  check_fixed(scenario);
  Scenario asked = without_what_is_not_there(scenario);
  try {
    return SpaceOf(asked, within).found();
  } catch (const InputError& error) {
    const OpenField* context = open_field(asked, "context_parallel");
    if (!error.is(ErrorCode::TooLarge) || context == nullptr || !context->among.empty()) throw;
  }
  asked.plan.open.erase("context_parallel");
  Space space = SpaceOf(asked, within).found();
  space.whole_sequences = true;
  return space;
}

std::vector<Layout> members(const LayoutGroup& group) {
  std::vector<Layout> layouts;
  for (const std::string& schedule : group.schedules)
    for (const int chunks : chunks_of(schedule, group.chunks))
      for (const std::int64_t zero : group.zeros)
        for (const int shard : zero > 0 ? group.shards : std::vector<int>{0})
          for (const PlacementOrder placement : group.placements) {
            Layout layout = group.first;
            layout.schedule = schedule, layout.virtual_stages = chunks;
            layout.zero = zero, layout.shard = shard, layout.placement = placement;
            layouts.push_back(std::move(layout));
          }
  return layouts;
}

Scenario settled(const Scenario& scenario, const Layout& layout, const Plan* plan) {
  Scenario result = scenario;
  result.plan.open.clear(), result.training.open.clear();
  PlanRequest& request = result.plan;
  request.stages.value = layout.stages, request.virtual_stages.value = layout.virtual_stages;
  request.data_parallel.value = layout.data_parallel, request.tensor_parallel.value = layout.tensor_parallel;
  request.sequence_parallel.value = layout.sequence_parallel;
  if (!layout.sequence_parallel && request.tensor_overlap.value != TensorOverlap::Backward)
    request.tensor_overlap.value = TensorOverlap::None;
  if (layout.tensor_parallel == 1)
    request.tensor_overlap.value = TensorOverlap::None, request.tensor_links.value = TensorLinks::Alone;
  request.context_parallel.value = layout.context_parallel;
  request.expert_parallel.value = layout.expert_parallel;
  request.schedule.value = layout.schedule;
  if (is_open(scenario, "placement")) request.placement = layout.placement;
  if (layout.shard > 0) request.shard = Placed<std::int64_t>{layout.shard, request.place};
  Training& training = result.training;
  const auto number = [](std::optional<Placed<std::int64_t>>& field, std::int64_t value) {
    field = Placed<std::int64_t>{value, field ? field->place : Place{}};
  };
  number(training.global_batch_size, layout.global_batch());
  number(training.micro_batch_size, layout.micro_batch_size);
  training.micro_batches.reset();
  training.zero = layout.zero;
  if (is_open(scenario, "zero") && layout.zero != kOptimizerSharded) request.overlap_param_gather.value = false;
  if (layout.zero >= kGradientsSharded && request.sync_of_scattered) request.gradient_sync = *request.sync_of_scattered;
  if (plan != nullptr) {
    LayerCounts counts;
    for (const LayerRange& range : plan->uncut())
      counts.counts.push_back(range.size());
    request.partition.value = counts;
    request.recompute.value = plan->recompute;
    const bool alike = std::ranges::adjacent_find(plan->recompute, std::not_equal_to<>()) == plan->recompute.end();
    if (alike) request.recompute.value = {plan->recompute.front()};
    request.recompute_layers = listed_layers(*plan, alike);
    if (std::ranges::any_of(plan->replicas, [](int r) { return r > 1; }))
      request.replicas.value.assign(plan->replicas.begin(), plan->replicas.end());
  }
  settle(result.model, weight_bytes(training.precision), result.plan.split());
  return result;
}

}  // namespace pipewright::planner
