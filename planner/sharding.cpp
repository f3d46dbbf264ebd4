#include "planner/sharding.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "core/cost/buckets.hpp"
#include "core/cost/cost_model.hpp"
#include "core/divisors.hpp"
#include "planner/partitioners/table.hpp"
#include "sim/schedules/expand.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

// Keys that say more of a division than there is.
void check_keys(const Scenario& scenario, const Plan& plan, PlanErrors& errors) {
  const PlanRequest& request = scenario.plan;
  const std::int64_t zero = scenario.training.zero;
  if (request.shard && zero < kOptimizerSharded)
    errors.add(request.shard->place, "plan.data_parallel_shard",
               "copies divide nothing with training.zero: 0; write training.zero: 3 for FSDP, or leave this out");
  else if (request.shard && plan.data_parallel % request.shard->value != 0)
    errors.add(request.shard->place, "plan.data_parallel_shard",
               fmt::format("{} does not divide plan.data_parallel: {}; use {}", request.shard->value,
                           plan.data_parallel, divisors_in_words(plan.data_parallel)));
  if (request.reshard_after_forward && zero < kWeightsSharded)
    errors.add(
        request.reshard_after_forward->place, "plan.reshard_after_forward",
        fmt::format("weights are whole with training.zero: {}; write training.zero: 3, or leave this out", zero));
  if (request.reduce_gradients && zero < kGradientsSharded)
    errors.add(
        request.reduce_gradients->place, "plan.reduce_gradients",
        fmt::format("gradients are whole with training.zero: {}, and reduced once a step; write training.zero: 2 "
                    "or 3, or leave this out",
                    zero));
}

// "" or why gradients or weights of that plan are not divided.
std::string refusal(const Plan& plan) {
  const ScheduleRule& rule = *find_schedule(plan.schedule);
  if (rule.made_for != nullptr) return "its order is made for passes that wait for no weights";
  if (rule.from_file) return "the order of a file says itself when weights are gathered, which is not read yet";
  const ScheduleShape shape{.stages = plan.stages,
                            .replicas = plan.replicas,
                            .data_parallel = std::max(2, plan.copies()),  // one copy has nothing to divide
                            .chunk_order = plan.chunk_order};
  return gathering_refusal({plan.schedule, shape, {}, rule.flush});
}

// What gathers need that run beside forwards.
void check_param_gather(const Scenario& scenario, const Plan& plan, PlanErrors& errors) {
  const Placed<bool>& asked = scenario.plan.overlap_param_gather;
  if (!asked.value) return;
  const std::int64_t zero = scenario.training.zero;
  const auto refuse = [&](const std::string& why) { errors.add(asked.place, "plan.overlap_param_gather", why); };
  if (zero == 0) return refuse("each copy updates all weights with training.zero: 0; write 1, or leave this out");
  if (zero >= kGradientsSharded)
    return refuse(fmt::format(
        "with training.zero: {} weights are gathered beside other ops anyway; write 1, or leave this out", zero));
  if (scenario.plan.pairs.value != Pairs::Serial)
    return refuse("the ops of a fused pair begin together; write plan.pairs: serial, or leave this out");
  if (const std::string why = refusal(plan); !why.empty()) refuse(why + "; leave this out");
}

// `whole` units of a chunk joined into `count`, as evenly as their number allows.
void append_joined(const std::vector<LayerRange>& whole, int count, std::vector<LayerRange>& units) {
  const auto n = static_cast<std::int64_t>(whole.size());
  for (std::int64_t i = 0; i < count; ++i)
    units.push_back({whole[at(i * n / count)].begin, whole[at((i + 1) * n / count - 1)].end});
}

void divide_into_units(const Scenario& scenario, Plan& plan) {
  std::vector<std::vector<LayerRange>> by_chunk;
  std::size_t fewest = plan.layers.empty() ? 1 : at(plan.layers.front().size());
  for (const LayerRange& chunk : plan.layers) {
    by_chunk.push_back(natural_units(scenario.model, chunk));
    fewest = std::min(fewest, by_chunk.back().size());
  }
  plan.units = static_cast<int>(fewest);
  plan.layers.clear();
  for (const std::vector<LayerRange>& units : by_chunk)
    append_joined(units, plan.units, plan.layers);
}

// A unit is reduced at once.
void reduce_units(const Scenario& scenario, Plan& plan) {
  const Bytes each = gradient_bytes(scenario.training);
  plan.bucket = {1}, plan.bucket_rule = BucketRule::Size;
  for (const LayerRange& unit : plan.layers)
    for (const Bucket& bucket : buckets(scenario.model, unit, each, Bytes{kLargest}))
      plan.bucket = std::max(plan.bucket, bucket.bytes);
}

}  // namespace

std::vector<LayerRange> natural_units(const Model& model, LayerRange layers) {
  const bool has_blocks = std::any_of(model.layers.begin(), model.layers.end(), [](const Layer& l) { return l.block; });
  std::vector<LayerRange> units;
  bool weights = false;  // of the last unit
  for (LayerId i = layers.begin; i < layers.end; ++i) {
    const Layer& layer = model.layers[i];
    const bool begins = has_blocks ? layer.block || (i > 0 && model.layers[i - 1].block) : weights && layer.held() > 0;
    if (i == layers.begin || begins)
      units.push_back({i, i + 1}), weights = layer.held() > 0;
    else
      units.back().end = i + 1, weights = weights || layer.held() > 0;
  }
  return units;
}

void settle_division(const Scenario& scenario, Plan& plan, PlanErrors& errors) {
  const std::size_t before = errors.count();
  check_keys(scenario, plan, errors);
  check_param_gather(scenario, plan, errors);
  const auto measured =
      std::ranges::find_if(scenario.model.layers, [](const Layer& l) { return l.states.has_value(); });
  if (scenario.training.zero >= kGradientsSharded && measured != scenario.model.layers.end())
    errors.add(
        or_else(scenario.training.zero_place, scenario.training.place), "training.zero",
        fmt::format(
            "{} divides gradients, but what layer {} holds was measured as it lay (states); use 0 or 1, or leave "
            "states out and give parameters",
            scenario.training.zero, measured->name));
  const PlanRequest& request = scenario.plan;
  const std::int64_t zero = scenario.training.zero;
  if (errors.count() > before) return;
  if (request.shard) plan.shard = static_cast<int>(request.shard->value);
  if (zero < kGradientsSharded) return;
  if (const std::string why = refusal(plan); !why.empty()) {
    errors.add(or_else(scenario.training.zero_place, scenario.training.place), "training.zero",
               fmt::format("{} divides gradients{}, but {}; use 0 or 1", zero,
                           zero >= kWeightsSharded ? " and weights" : "", why));
    return;
  }
  if (plan.copies() == 1) return;  // nothing to divide
  if (const std::int64_t over = request.reshard_over; request.reshard_after_forward && over > 0) {
    const std::int64_t all = plan.sharded_over(0);
    const auto refuse = [&](const std::string& why) {
      errors.add(request.reshard_after_forward->place, "plan.reshard_after_forward", why);
    };
    if (all % over != 0)
      refuse(fmt::format("{} does not divide the {} devices that share weights; use {}", over, all,
                         divisors_in_words(all)));
    else if (plan.split().sends_tokens())
      refuse(fmt::format("{}: experts that tokens are sent to have shards of their own; write true or false", over));
  }
  const bool each = plan.stages == 1 || zero == kGradientsSharded;
  const auto reduced = each ? ReduceGradients::MicroBatch : ReduceGradients::Step;
  plan.reduce_each =
      (request.reduce_gradients ? request.reduce_gradients->value : reduced) == ReduceGradients::MicroBatch;
  if (zero == kGradientsSharded) plan.resharding = Resharding{.after_forward = false, .after_backward = false};
  const Partitioner* asked = partitioner_of(request.partition.value);
  const bool whole_stages = std::holds_alternative<Fitting>(request.partition.value) ||
                            std::holds_alternative<LeastStep>(request.partition.value);
  if (zero >= kWeightsSharded && plan.stages > 1 && asked != nullptr && whole_stages)
    errors.add(or_else(request.partition.place, request.place), "plan.partition",
               fmt::format("{} does not know which units are whole at a time with training.zero: {}; write balanced, "
                           "equal_blocks or the layers",
                           asked->name, zero));
}

bool moves_activations(const Scenario& scenario) {
  const ScheduleRule* rule = find_schedule(scenario.plan.schedule.value);
  return scenario.plan.offload_layers || (rule != nullptr && rule->facts.uses_partner);
}

namespace {

// "" or why the passes of that plan are not cut into blocks that leave one by one; with the key that is in the way.
std::string no_offloading(const Plan& plan) {
  const ScheduleRule& rule = *find_schedule(plan.schedule);
  const auto schedule = [&](const std::string& why) {
    return fmt::format("{} {}; use another schedule", rule.name, why);
  };
  if (!rule.flush) return schedule("runs without a flush, and its passes are not cut into blocks");
  if (rule.facts.uses_partner) return schedule("moves activations itself");
  if (both_ways(plan.chunk_order)) return schedule("keeps each stage on several workers");
  if (std::any_of(plan.replicas.begin(), plan.replicas.end(), [](int r) { return r > 1; }))
    return "stages with replicas are not cut into blocks; use plan.data_parallel in place of plan.replicas";
  if (plan.slices_of_each() > 1)
    return "slices of a sequence read the keys and values of those before them; leave plan.slices out";
  if (plan.pairs.value != Pairs::Serial)
    return "the ops of a fused pair begin together, and activations come back one op ahead; write pairs: serial";
  return "";
}

}  // namespace

namespace {

void check_optimizer(const Training& training, PlanErrors& errors) {
  const auto refuse = [&](const Place& place, const char* key, std::string why) {
    errors.add(or_else(place, training.place), std::string("training.") + key, std::move(why));
  };
  if (training.optimizer == Optimizer::Muon && training.zero >= kGradientsSharded)
    refuse(training.zero_place, "zero",
           fmt::format("{} divides matrices, and muon needs whole ones; write 0 or 1", training.zero));
  if (training.optimizer == Optimizer::Muon && training.offload_optimizer.value > 0)
    refuse(training.offload_optimizer.place, "offload_optimizer", "a host does not run muon's products; leave it out");
  if (training.sharding.value == Sharding::PerParameter && training.zero >= kWeightsSharded &&
      training.master_weights.value != MasterWeights::Fp32)
    refuse(training.master_weights.place, "master_weights",
           "with sharding: per_parameter the shards in fp32 are the masters; leave this out, or write sharding: flat");
  if (training.master_weights.value == MasterWeights::Remainder && training.precision != Precision::Bf16)
    refuse(training.master_weights.place, "master_weights",
           "remainder is of bf16 weights; write precision: bf16, or fp32");
}

}  // namespace

void check_host_update(const Scenario& scenario, PlanErrors& errors) {
  check_optimizer(scenario.training, errors);
  const Placed<double>& asked = scenario.training.offload_optimizer;
  if (asked.value <= 0) return;
  if (scenario.cost != CostSourceKind::Roofline)
    errors.add(or_else(asked.place, scenario.training.place), "training.offload_optimizer",
               "only cost: roofline prices the optimizer's step; use it, or leave this out");
  const auto measured =
      std::ranges::find_if(scenario.model.layers, [](const Layer& l) { return l.states.has_value(); });
  if (measured != scenario.model.layers.end())
    errors.add(or_else(asked.place, scenario.training.place), "training.offload_optimizer",
               fmt::format("what layer {} holds was measured on its device (states); leave one of the two out",
                           measured->name));
}

void check_host_weights(const Scenario& scenario, const Plan& plan, PlanErrors& errors) {
  const Training& training = scenario.training;
  if (!training.offload_weights.value) return;
  const auto refuse = [&](const std::string& why) {
    errors.add(or_else(training.offload_weights.place, training.place), "training.offload_weights",
               "true: " + why + "; false, or no such line, keeps them on the device");
  };
  if (training.zero < kWeightsSharded)
    refuse(
        fmt::format("weights come from the host where they are gathered, which training.zero: {} does not do; write "
                    "training.zero: 3",
                    training.zero));
  if (training.offload_optimizer.value < 1)
    refuse(
        fmt::format("the host updates all that it holds, not offload_optimizer: {:.4g}; write "
                    "training.offload_optimizer: 1",
                    training.offload_optimizer.value));
  if (plan.copies() == 1) refuse("one copy gathers no weights; use plan.data_parallel: 2, or more");
  if (scenario.plan.offload_layers)
    refuse(
        "activations of plan.offload_layers would share the link with them, which is not simulated; leave "
        "plan.offload_layers out");
}

void check_offloading(const Scenario& scenario, const Plan& plan, PlanErrors& errors) {
  if (!moves_activations(scenario)) return;
  const PlanRequest& request = scenario.plan;
  const Partitioner* asked = partitioner_of(request.partition.value);
  const bool counts_memory = std::holds_alternative<Fitting>(request.partition.value) ||
                             std::holds_alternative<LeastStep>(request.partition.value) ||
                             std::holds_alternative<SuffixDp>(request.partition.value);
  if (asked != nullptr && counts_memory)
    errors.add(or_else(request.partition.place, request.place), "plan.partition",
               fmt::format("{} does not know what waits in another memory; write balanced, equal_blocks or the layers",
                           asked->name));
  if (!request.offload_layers) return;
  const auto refuse = [&](const std::string& why) {
    errors.add(request.offload_layers->place, "plan.offload_layers", why);
  };
  const Cluster& cluster = scenario.cluster;
  for (int c = 0; c < cluster.classes(); ++c)
    if (const Device& device = cluster.device_of(c); !device.host_link)
      refuse(
          fmt::format("device {} does not say how fast it reaches its host's memory; state its host_link, e.g. "
                      "50 GB/s",
                      device.name));
  if (const std::string why = no_offloading(plan); !why.empty()) refuse(why);
  if (plan.gradient_sync == GradientSync::Blocking && scenario.training.zero < kWeightsSharded)
    refuse("gradients are reduced block by block, which gradient_sync: blocking is not; write overlapped or at_once");
}

void check_units(const Scenario& scenario, const Plan& plan) {
  for (VirtualStageId v = 0; v < std::ssize(plan.offloaded); ++v) {
    if (!plan.offloaded[at(v)]) continue;
    const auto blocks = natural_units(scenario.model, plan.layers[v]).size();
    if (blocks == 1) continue;
    throw InputError(
        scenario.plan.offload_layers->place, "plan.offload_layers",
        fmt::format("blocks leave one by one where all chunks of layers have as many parts, and here one has "
                    "{}, so that those of stage {} hold up to {}; write plan.partition: equal_blocks",
                    plan.units, plan.stage_of(v), blocks));
  }
}

namespace {

// The blocks of a stage come in order; a unit that holds several counts for all of them.
void offload_first(const Model& model, std::int64_t layers, Plan& plan) {
  plan.offloaded.assign(at(plan.chunks()), false);
  const bool has_blocks = std::any_of(model.layers.begin(), model.layers.end(), [](const Layer& l) { return l.block; });
  for (StageId k = 0; k < plan.stages; ++k) {
    std::int64_t left = layers;
    for (int i = 0; i < plan.seating().held() && left > 0; ++i) {
      const VirtualStageId v = plan.seating().chunk_of(k, i);
      std::int64_t blocks = has_blocks ? 0 : 1;
      for (LayerId id = plan.layers[v].begin; has_blocks && id < plan.layers[v].end; ++id)
        blocks += model.layers[id].block ? 1 : 0;
      plan.offloaded[at(v)] = blocks > 0;
      left -= blocks;
    }
  }
}

}  // namespace

void settle_units(const Scenario& scenario, Plan& plan) {
  const bool sharded = scenario.training.zero >= kWeightsSharded && plan.copies() > 1;
  const auto& offload = scenario.plan.offload_layers;
  if (!sharded && !offload) return;
  divide_into_units(scenario, plan);
  if (offload) offload_first(scenario.model, offload->value, plan);
  if (!sharded) return;
  reduce_units(scenario, plan);
  const bool one_stage = plan.stages == 1;
  const auto& asked = scenario.plan.reshard_after_forward;
  const bool after_forward = asked ? asked->value : one_stage;
  const auto over = static_cast<int>(scenario.plan.reshard_over);
  plan.resharding = Resharding{.after_forward = after_forward,
                               .after_backward = after_forward || one_stage,
                               .over = after_forward && asked && over < plan.sharded_over(0) ? over : 0,
                               .from_host = scenario.training.offload_weights.value,
                               .always = after_forward && scenario.plan.reshard_always};
}

}  // namespace pipewright::planner
