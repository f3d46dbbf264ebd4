#include "planner/search/open_values.hpp"

#include <algorithm>
#include <numeric>

#include "core/check.hpp"
#include "core/divisors.hpp"
#include "planner/words.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {

const OpenField* open_field(const Scenario& scenario, const std::string& key) {
  for (const OpenFields* fields : {&scenario.plan.open, &scenario.training.open})
    if (const auto found = fields->find(key); found != fields->end()) return &found->second;
  return nullptr;
}

std::vector<std::int64_t> numbers(const Scenario& scenario, const std::string& key, std::int64_t own,
                                  const std::vector<std::int64_t>& all) {
  const OpenField* open = open_field(scenario, key);
  if (open == nullptr) return {own};
  if (open->among.empty()) return all;
  std::vector<std::int64_t> values;
  for (const std::string& text : open->among)
    values.push_back(std::stoll(text));
  std::ranges::sort(values);
  return values;
}

std::vector<std::int64_t> up_to(std::int64_t most) {
  std::vector<std::int64_t> values(at(std::max<std::int64_t>(most, 0)));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

namespace {

// Why the search cannot take a schedule, behind its name; "": it can.
std::string no_search_of(const ScheduleRule& rule) {
  if (rule.facts.uses_partner)
    return ": the search's bounds do not know what a stage keeps for its partner; settle the other keys of the plan, "
           "and "
           "ask simulate";
  if (rule.made_for != nullptr)
    return " makes an order for the times of one plan, which the search does not; settle the other keys of the plan, "
           "and "
           "ask simulate";
  if (both_ways(rule.chunk_order))
    return " keeps each stage on two workers, which the search does not count; settle the other keys of the plan, and "
           "write partition: balanced";
  return "";
}

// Of the plan, whatever its schedule.
void refuse_what_is_not_searched(const Scenario& scenario) {
  const PlanRequest& plan = scenario.plan;
  if (plan.barrier.value != Barrier::Flush)
    throw InputError(plan.barrier.place, "plan.barrier",
                     "the search bounds and compares whole runs of a step; write flush, or settle the other keys "
                     "of the plan and ask simulate");
  if (plan.offload_layers)
    throw InputError(plan.offload_layers->place, "plan.offload_layers",
                     "the search does not price what waits in the host's memory; settle the other keys of the plan, "
                     "and ask simulate");
  if (const Placed<bool>& weights = scenario.training.offload_weights; weights.value)
    throw InputError(weights.place, "training.offload_weights",
                     "the search does not bound what copies from the host's memory take; settle the other keys of the "
                     "plan, and ask simulate");
  if (plan.slices)
    throw InputError(plan.slices->place, "plan.slices",
                     "the search counts whole micro-batches; settle the other keys of the plan, and ask simulate");
}

}  // namespace

std::vector<std::string> schedules_for(const Scenario& scenario) {
  const OpenField* open = open_field(scenario, "schedule");
  std::vector<std::string> names = {scenario.plan.schedule.value};
  if (open != nullptr) names = open->among.empty() ? searched_schedules(&ScheduleRule::searched) : open->among;
  refuse_what_is_not_searched(scenario);
  for (const std::string& name : names) {
    const ScheduleRule* rule = find_schedule(name);
    if (rule == nullptr) continue;
    if (rule->facts.pairs && scenario.plan.pairs.value == Pairs::Fused)
      throw InputError(scenario.plan.pairs.place, "plan.pairs",
                       "fused: the search counts the ops of " + name +
                           " one after the other; write serial, or settle the other keys of the plan and ask simulate");
    if (const std::string why = no_search_of(*rule); !why.empty())
      throw InputError(scenario.plan.schedule.place, "plan.schedule", name + why);
  }
  return names;
}

std::string those_with_chunks(const std::vector<std::string>& asked) {
  const auto names = schedule_names([&](const ScheduleRule& rule) {
    return rule.facts.takes_chunks && (asked.empty() || std::ranges::find(asked, rule.name) != asked.end());
  });
  return listed(names, "and") + (names.size() == 1 ? " takes" : " take");
}

std::vector<int> chunks_of(const std::string& schedule, std::vector<int> chunks) {
  const ScheduleRule& rule = *find_schedule(schedule);
  if (!rule.facts.takes_chunks) return {1};
  if (rule.chunks > 0) std::erase_if(chunks, [&](int v) { return v != rule.chunks; });
  return chunks;
}

std::vector<int> chunks_for(const Scenario& scenario, std::int64_t stages) {
  const auto layers = static_cast<std::int64_t>(scenario.model.layers.size());
  std::vector<std::int64_t> all;
  for (std::int64_t v = 2; v <= std::min<std::int64_t>(kMostChunksPerStage, layers / stages); ++v)
    all.push_back(v);
  std::vector<int> chunks;
  for (const std::int64_t v : numbers(scenario, "virtual_stages", scenario.plan.virtual_stages.value, all))
    if (v * stages <= layers) chunks.push_back(static_cast<int>(v));
  return chunks;
}

bool chunks_are_given(const Scenario& scenario) {
  return !is_open(scenario, "virtual_stages") && scenario.plan.virtual_stages.value > 1;
}

std::vector<int> shards_for(const Scenario& scenario, std::int64_t copies, std::int64_t devices_of_copy) {
  const OpenField* open = open_field(scenario, "data_parallel_shard");
  if (open == nullptr || copies == 1) return {0};
  std::vector<int> shards;
  if (open->among.empty()) {
    shards.push_back(0);
    const std::int64_t in_node = scenario.cluster.devices_per_node / std::max<std::int64_t>(1, devices_of_copy);
    if (in_node > 1 && in_node < copies && copies % in_node == 0) shards.push_back(static_cast<int>(in_node));
    return shards;
  }
  for (const std::int64_t shard : numbers(scenario, "data_parallel_shard", 0, {}))
    if (shard <= copies && copies % shard == 0) shards.push_back(shard == copies ? 0 : static_cast<int>(shard));
  return shards;
}

std::vector<PlacementOrder> placements_for(const Scenario& scenario) {
  const OpenField* open = open_field(scenario, "placement");
  if (open == nullptr) {
    const auto* order = std::get_if<PlacementOrder>(&scenario.plan.placement);
    return {order != nullptr ? *order : PlacementOrder::Pipeline};
  }
  if (open->among.empty()) return {PlacementOrder::Pipeline, PlacementOrder::Data};
  std::vector<PlacementOrder> orders;
  for (const std::string& text : open->among) {
    const bool by_pipeline = text == "pipeline" || text == "llama3";
    const PlacementOrder order = by_pipeline ? PlacementOrder::Pipeline : PlacementOrder::Data;
    if (std::ranges::find(orders, order) == orders.end()) orders.push_back(order);
  }
  return orders;
}

std::vector<Batch> batches(const Scenario& scenario, std::int64_t copies) {
  const Training& training = scenario.training;
  const bool size_open = is_open(scenario, "micro_batch_size"), count_open = is_open(scenario, "micro_batches");
  if (!size_open && !count_open) {
    if (training.global_batch_size && training.global_batch_size->value % copies != 0) return {};
    if (is_open(scenario, "data_parallel") && training.global_batch_size) {
      const std::int64_t share = training.global_batch_size->value / copies;
      if (training.micro_batch_size) {
        if (share % training.micro_batch_size->value != 0) return {};
        return {{training.micro_batch_size->value, share / training.micro_batch_size->value}};
      }
      if (training.micro_batches) {
        if (share % training.micro_batches->value != 0) return {};
        return {{share / training.micro_batches->value, training.micro_batches->value}};
      }
    }
    const BatchSplit split = batch_split(training, copies);
    if (split.last_micro_batch_size != split.micro_batch_size) return {};
    return {{split.micro_batch_size, split.micro_batches}};
  }
  if (!training.global_batch_size)
    throw InputError(training.place, "training",
                     "micro-batches are left open, but nothing says how many samples a step has; give "
                     "global_batch_size");
  const std::int64_t batch = training.global_batch_size->value;
  if (batch % copies != 0) return {};
  const std::int64_t share = batch / copies;
  std::vector<Batch> result;
  if (!size_open && training.micro_batch_size) {
    const std::int64_t size = training.micro_batch_size->value;
    if (share % size == 0) result.push_back({size, share / size});
    return result;
  }
  if (!count_open && training.micro_batches) {
    const std::int64_t count = training.micro_batches->value;
    if (share % count == 0) result.push_back({share / count, count});
    return result;
  }
  for (const std::int64_t size : numbers(scenario, "micro_batch_size", 0, divisors(share)))
    if (share % size == 0) {
      const std::vector<std::int64_t> counts = numbers(scenario, "micro_batches", share / size, {share / size});
      if (std::ranges::find(counts, share / size) != counts.end()) result.push_back({size, share / size});
    }
  return result;
}

std::vector<bool> sequence_parallel_for(const Scenario& scenario, std::int64_t group) {
  if (group == 1) return {false};
  const OpenField* open = open_field(scenario, "sequence_parallel");
  if (open == nullptr) return {scenario.plan.sequence_parallel.value};
  if (open->among.empty()) return {true};
  std::vector<bool> values;
  for (const bool value : {true, false})
    if (std::ranges::find(open->among, value ? "true" : "false") != open->among.end()) values.push_back(value);
  return values;
}

bool is_open(const Scenario& scenario, const std::string& key) {
  return open_field(scenario, key) != nullptr;
}

bool anything_open(const Scenario& scenario) {
  return !scenario.plan.open.empty() || !scenario.training.open.empty();
}

std::vector<Recompute> recomputations(const Scenario& scenario, std::int64_t context_parallel) {
  const OpenField* open = open_field(scenario, "recompute");
  if (open == nullptr) {
    const std::vector<Recompute>& asked = scenario.plan.recompute.value;
    return asked == std::vector{Recompute::Knapsack} ? asked : std::vector<Recompute>{};
  }
  const bool cores = drops_any(scenario.model, scenario.plan.recompute_modules);
  std::vector<Recompute> modes;
  const auto allowed = [&](std::string_view name) {
    return open->among.empty() || std::ranges::find(open->among, name) != open->among.end();
  };
  if (allowed("none")) modes.push_back(Recompute::None);
  const bool operators = scenario.plan.recompute_modules.has(Module::Operators);
  if (allowed("selective") && (cores || !open->among.empty()) && !(operators && context_parallel > 1))
    modes.push_back(Recompute::Selective);
  if (!open->among.empty() && allowed("blocks")) modes.push_back(Recompute::Blocks);
  if (allowed("knapsack")) modes.push_back(Recompute::Knapsack);
  if (allowed("full")) modes.push_back(Recompute::Full);
  return modes;
}

bool divides(const Model& model, std::int64_t t) {
  bool any = t == 1;
  for (const Layer& layer : model.layers) {
    if (t == 1) break;
    if (layer.work < 0) return false;
    const Work& work = model.works[at(layer.work)];
    if (work.shards > 0 && work.shards % t != 0) return false;
    any |= work.shards > 0 || work.split_vocabulary;
  }
  return any;
}

}  // namespace pipewright::planner
