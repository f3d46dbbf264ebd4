// Buckets of gradients: when they close, when they are ready, and what they hold.
#include "core/cost/buckets.hpp"

#include <doctest/doctest.h>

#include "core/cost/cost_model.hpp"
#include "core/cost/step_costs.hpp"
#include "tests/core/skipping_layers.hpp"

using namespace pipewright::tests;

TEST_CASE("Buckets fill from the last layer backwards and close once they are full") {
  const Model model = with_skips().model;  // gradients of 400, 800 and 1200 bytes, d has none
  const auto all = buckets(model, {0, 4}, Bytes{4}, Bytes{2'000});
  REQUIRE(all.size() == 2);
  CHECK(all[0].bytes == Bytes{2'000});  // c and b
  CHECK(all[0].first_layer == 1);
  CHECK(all[1].bytes == Bytes{400});
  CHECK(all[1].first_layer == 0);
  CHECK(buckets(model, {0, 4}, Bytes{4}, Bytes{2'001}).size() == 1);
  CHECK(buckets(model, {0, 4}, Bytes{4}, Bytes{1}).size() == 3);  // a layer is never split
  CHECK(buckets(model, {0, 4}, Bytes{2}, Bytes{2'000}).size() == 1);
  const auto none = buckets(model, {3, 4}, Bytes{4}, Bytes{1});
  REQUIRE(none.size() == 1);
  CHECK(none[0].bytes == Bytes{0});
}

TEST_CASE("Buckets as frameworks cut them") {
  Model model;
  for (int i = 0; i < 120; ++i)
    model.layers.emplace_back().parameters = 10'000'000;
  Training training;
  training.precision = Precision::Bf16, training.gradient_precision = Precision::Fp32;
  Plan plan;
  plan.stages = 2, plan.data_parallel = 8, plan.replicas = {1, 1}, plan.layers = {{0, 60}, {60, 120}};
  const auto cut = [&](BucketRule rule, VirtualStageId v) {
    plan.bucket_rule = rule;
    std::vector<std::int64_t> millions;
    for (const Bucket& bucket : buckets(plan, v, model, training))
      millions.push_back(bucket.bytes.value / 4'000'000);
    return millions;
  };
  using Millions = std::vector<std::int64_t>;
  CHECK(cut(BucketRule::Megatron, 0) == Millions(15, 40));
  CHECK(cut(BucketRule::Megatron, 1) == Millions{600});
  CHECK(buckets(plan, 1, model, training).front().first_layer == 60);  // complete when the whole backward has ended
  CHECK(cut(BucketRule::DeepSpeed, 1) == Millions{500, 100});
  CHECK(cut(BucketRule::PyTorch, 0) == Millions(60, 10));
  plan.data_parallel = 64;  // 64 M parameters: closed by the seventh layer
  CHECK(cut(BucketRule::Megatron, 0) == Millions{70, 70, 70, 70, 70, 70, 70, 70, 40});
  plan.gradient_sync = GradientSync::Blocking;
  CHECK(cut(BucketRule::Megatron, 0) == Millions{600});
  // A first chunk alone has several.
  plan.gradient_sync = GradientSync::Overlapped, plan.data_parallel = 8;
  plan.virtual_stages = 2, plan.layers = {{0, 30}, {30, 60}, {60, 90}, {90, 120}};
  CHECK(cut(BucketRule::Megatron, 0) == Millions{40, 40, 40, 40, 40, 40, 40, 20});
  CHECK(cut(BucketRule::Megatron, 2) == Millions{300});
  // 1 MiB, then 25 MiB: of layers of 3 MB one, then nine (27 MB >= 26.2 MB).
  for (Layer& layer : model.layers)
    layer.parameters = 750'000;
  plan.virtual_stages = 1, plan.layers = {{0, 60}, {60, 120}}, plan.bucket_rule = BucketRule::PyTorch;
  std::vector<std::int64_t> sizes;
  for (const Bucket& bucket : buckets(plan, 0, model, training))
    sizes.push_back(bucket.bytes.value / 1'000'000);
  CHECK(sizes == Millions{3, 27, 27, 27, 27, 27, 27, 15});
  // One layer that is more than a bucket of DeepSpeed's is one all the same.
  model.layers[59].parameters = 700'000'000, plan.bucket_rule = BucketRule::DeepSpeed;
  CHECK(buckets(plan, 0, model, training).front().bytes == Bytes{2'800'000'000});
}

TEST_CASE("A bucket is ready when only the layers before it are left of the backward") {
  const Scenario scenario = with_skips();
  Plan plan = one_stage({0, 4}, 4);
  plan.bucket = Bytes{1'000};
  const StepCosts costs = step_costs(plan, CostModel(scenario));
  REQUIRE(validate(costs) == "");
  CHECK(costs.shape.buckets == std::vector<int>{2});
  CHECK(costs.ready_before_end[0] == std::vector<Time>{us(20 + 40), us(0)});  // backward of a and b; nothing
  REQUIRE(costs.collectives.size() == 1);
  REQUIRE(costs.collectives[0].size() == 2);
  CHECK(costs.collectives[0][0].bytes == Bytes{1'200});
  CHECK(costs.collectives[0][1].bytes == Bytes{1'200});

  plan.gradient_sync = GradientSync::AtOnce;  // gradients travel as early, and the worker waits for them
  CHECK(step_costs(plan, CostModel(scenario)).ready_before_end == costs.ready_before_end);
  CHECK(step_costs(plan, CostModel(scenario)).shape.blocking_sync);
  CHECK(!costs.shape.blocking_sync);

  plan.gradient_sync = GradientSync::Blocking;  // nothing travels before the backward has ended
  CHECK(step_costs(plan, CostModel(scenario)).ready_before_end[0] == std::vector<Time>{us(0), us(0)});
}

TEST_CASE("Layers without parameters at the front end the last bucket early") {
  Scenario scenario = with_skips();
  scenario.model.layers[0].parameters = 0;
  Plan plan = one_stage({0, 4}, 4);
  const StepCosts costs = step_costs(plan, CostModel(scenario));
  CHECK(costs.ready_before_end[0] == std::vector<Time>{us(20)});
}

TEST_CASE("Every gradient byte is reduced exactly once") {
  const Scenario scenario = with_skips();
  Plan plan = four_stages();
  plan.data_parallel = 2;
  plan.global_batch_size = 64;
  plan.device = {0, 1, 2, 3, 4, 5, 6, 7};
  for (const std::int64_t limit : {1, 500, 1'000, 1'000'000}) {
    plan.bucket = Bytes{limit};
    const StepCosts costs = step_costs(plan, CostModel(scenario));
    REQUIRE(validate(costs) == "");
    Bytes sum;
    for (const auto& chunk : costs.collectives)
      for (const Collective& collective : chunk)
        sum += collective.bytes;
    CHECK(sum == Bytes{4 * parameter_count(scenario.model)});
  }
}

TEST_CASE("Only replicated stages reduce") {
  const Scenario scenario = with_skips();
  Plan plan = four_stages();
  plan.stages = 2;
  plan.replicas = {3, 1};
  plan.recompute.assign(2, Recompute::None);
  plan.layers = {{0, 2}, {2, 4}};
  const StepCosts costs = step_costs(plan, CostModel(scenario));
  REQUIRE(validate(costs) == "");
  CHECK(costs.collectives[0].size() == 1);
  CHECK(costs.collectives[1].empty());
  CHECK(step_costs(four_stages(), CostModel(scenario)).collectives.empty());
}
