#include "planner/bucket_size.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/cost/buckets.hpp"
#include "core/cost/cost_model.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

// As a scenario has it: "25 MB", "1.6 GB".
std::string size_text(Bytes bytes) {
  const auto value = static_cast<double>(bytes.value);
  for (const auto& [unit, name] : {std::pair{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}})
    if (value >= unit) return fmt::format("{:.4g} {}", value / unit, name);
  return fmt::format("{} B", bytes.value);
}

}  // namespace

std::int64_t all_reduces(const Plan& plan, const Scenario& scenario, int simulated_copies) {
  const bool flush = find_schedule(plan.schedule)->flush;
  double sum = 0;  // a product of four large numbers of a scenario passes 2^63
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    const Rounds rounds{plan.seating(), flush, plan.reduce_each, plan.micro_batches_per_update()};
    if (!rounds.seating.reduced(v)) continue;
    const auto count = buckets(plan, v, scenario.model, scenario.training).size();
    sum += static_cast<double>(count) * rounds.seating.holders(v) * simulated_copies * rounds.count(v);
  }
  return sum < 9e18 ? static_cast<std::int64_t>(sum) : std::numeric_limits<std::int64_t>::max();
}

void coarsen_buckets(Plan& plan, const Scenario& scenario, int simulated_copies, std::int64_t most) {
  Bytes all{0};
  for (const Layer& layer : scenario.model.layers)
    all = checked_sum(all, Bytes{checked_product(layer.trained(), gradient_bytes(scenario.training).value,
                                                 "the size of a gradient")});
  if (plan.bucket_rule != BucketRule::Size && all_reduces(plan, scenario, simulated_copies) > most) {
    plan.bucket = std::min(all, bucket_limit(plan, 0, scenario.training));
    plan.bucket_rule = BucketRule::Size;
  }
  while (plan.bucket < all && all_reduces(plan, scenario, simulated_copies) > most)
    plan.bucket = Bytes{plan.bucket.value * 2};
}

std::string coarsened_buckets(const Plan& plan, const Scenario& scenario) {
  const Bytes asked = scenario.plan.bucket;
  const bool same = plan.bucket == asked && plan.bucket_rule == scenario.plan.bucket_rule;
  if (same || plan.resharding) return {};  // of sharded weights a unit is a bucket
  if (plan.bucket_rule != scenario.plan.bucket_rule)
    return fmt::format(
        "plan.bucket: the framework's buckets make more all-reduces than one run simulates, so gradients travel in "
        "buckets of {}",
        size_text(plan.bucket));
  return fmt::format(
      "plan.bucket: buckets of {} make more all-reduces than one run simulates, so gradients travel in buckets of {}",
      size_text(asked), size_text(plan.bucket));
}

}  // namespace pipewright::planner
