#include "core/cost/buckets.hpp"

#include <algorithm>
#include <limits>

#include "core/cost/cost_model.hpp"
#include "core/plan/tied_tables.hpp"

namespace pipewright::core {

namespace {

constexpr Bytes kNoLimit{std::numeric_limits<std::int64_t>::max()};

struct BucketLimits {
  Bytes first, others;
  bool exceeded = true;  // closed once it holds as much; else before it would hold more
};

std::vector<Bucket> buckets_of(const Model& model, LayerRange layers, Bytes per_parameter, const BucketLimits& limits) {
  std::vector<Bucket> result;
  bool open = false;
  for (LayerId i = layers.end; i-- > layers.begin;) {
    const Layer& layer = model.layers[i];
    const std::int64_t parameters = layer.trained();
    if (parameters == 0) continue;
    const Bytes bytes{checked_product(parameters, per_parameter.value, "the size of a gradient")};
    const Bytes limit = result.size() <= 1 ? limits.first : limits.others;
    if (open && !limits.exceeded) open = checked_sum(result.back().bytes, bytes) <= limit;
    if (!open) result.push_back({});
    Bucket& bucket = result.back();
    bucket.first_layer = i;
    bucket.bytes = checked_sum(bucket.bytes, bytes);
    bucket.of_experts += Bytes{layer.trained_experts() * per_parameter.value};
    open = !limits.exceeded || bucket.bytes < (result.size() == 1 ? limits.first : limits.others);
  }
  if (result.empty()) result.push_back({.first_layer = layers.begin});
  return result;
}

BucketLimits limits_of(const Plan& plan, VirtualStageId chunk, const Training& training) {
  const auto gradients = [&](std::int64_t parameters) { return Bytes{parameters * gradient_bytes(training).value}; };
  const auto both = [](Bytes limit) { return BucketLimits{limit, limit}; };
  switch (plan.bucket_rule) {
    case BucketRule::Size: break;
    case BucketRule::PyTorch: return {Bytes{1 << 20}, Bytes{25 << 20}};
    case BucketRule::Megatron: {
      const StageId stage = plan.stage_of(chunk);
      const bool whole =
          stage > 0 || plan.seating().local(chunk, stage) > 0 || plan.gradient_sync == GradientSync::Blocking;
      return both(whole ? kNoLimit : gradients(std::max<std::int64_t>(40'000'000, 1'000'000LL * plan.copies())));
    }
    case BucketRule::DeepSpeed: return {gradients(500'000'000), gradients(500'000'000), false};
  }
  return both(plan.bucket);
}

}  // namespace

std::vector<Bucket> buckets(const Model& model, LayerRange layers, Bytes per_parameter, Bytes limit) {
  return buckets_of(model, layers, per_parameter, {limit, limit});
}

std::vector<Bucket> buckets(const Plan& plan, VirtualStageId chunk, const Model& model, const Training& training) {
  const LayerRange layers = plan.layers[chunk];
  std::vector<Bucket> all = buckets(plan, chunk, layers, model, training);
  for (LayerId id = layers.begin; id < layers.end; ++id) {
    const std::int64_t copied = table_trained(plan, model, chunk, id);
    if (copied == 0) continue;
    const Bytes bytes{checked_product(copied, gradient_bytes(training).value, "the size of a gradient")};
    const auto behind = std::ranges::find_if(all, [id](const Bucket& one) { return one.first_layer <= id; });
    all.insert(behind, {.bytes = bytes, .of_experts = {}, .first_layer = id});
  }
  return all;
}

std::vector<Bucket> buckets(const Plan& plan, VirtualStageId chunk, LayerRange layers, const Model& model,
                            const Training& training) {
  return buckets_of(model, layers, gradient_bytes(training), limits_of(plan, chunk, training));
}

Bytes bucket_limit(const Plan& plan, VirtualStageId chunk, const Training& training) {
  return limits_of(plan, chunk, training).others;
}

ScheduleShape schedule_shape(const Plan& plan, const Model& model, const Training& training) {
  ScheduleShape shape;
  shape.stages = plan.stages;
  shape.virtual_stages = plan.virtual_stages;
  PP_CHECK(plan.micro_batches >= 1 && plan.micro_batches <= kMostMicroBatches);
  PP_CHECK(plan.passes() <= std::numeric_limits<int>::max());
  shape.micro_batches = static_cast<int>(plan.passes()), shape.slices = static_cast<int>(plan.slices_of_each());
  if (plan.facts.states_group && plan.micro_batch_group)
    shape.group = static_cast<int>(std::min<std::int64_t>(plan.micro_batch_group->value, shape.micro_batches));
  shape.pipelines = plan.directions();
  if (plan.facts.states_forwards && plan.forwards_at_once)
    shape.forwards = static_cast<int>(std::min<std::int64_t>(plan.forwards_at_once->value, 1 << 20));
  if (plan.facts.limits_in_flight && plan.most_in_flight)
    shape.most_in_flight = static_cast<int>(std::min<std::int64_t>(plan.most_in_flight->value, shape.micro_batches));
  shape.update_every = plan.micro_batches_per_update();
  if (std::any_of(plan.replicas.begin(), plan.replicas.end(), [](int r) { return r > 1; }))
    shape.replicas = plan.replicas;
  shape.data_parallel = plan.copies();
  if (std::find(plan.recompute.begin(), plan.recompute.end(), Recompute::Full) != plan.recompute.end())
    for (const Recompute recompute : plan.recompute)
      shape.recompute.push_back(recompute == Recompute::Full);
  shape.recompute_except_last = plan.recompute_except_last;
  for (VirtualStageId v = 0; v < plan.chunks(); ++v)
    shape.buckets.push_back(static_cast<int>(buckets(plan, v, model, training).size()));
  shape.blocking_sync = plan.gradient_sync != GradientSync::Overlapped;
  shape.vertical_sync = plan.vertical_sync;
  shape.chunk_order = plan.chunk_order;
  shape.given = plan.given;
  shape.units = plan.units;
  shape.resharding = plan.resharding;
  if (training.zero == kOptimizerSharded)
    shape.updated = plan.overlap_param_gather.value ? UpdatedParts::BesideForwards : UpdatedParts::BehindUpdate;
  shape.offloaded = plan.offloaded;
  for (TiedTable& table : tied_tables(plan, model))
    shape.tied.push_back(std::move(table.chunks));
  shape.norm = training.clip_grad_norm && plan.barrier.value == Barrier::Flush && plan.workers() > 1;
  shape.reduce_each = plan.reduce_each;
  return shape;
}

}  // namespace pipewright::core
