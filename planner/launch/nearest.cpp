#include "planner/launch/nearest.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/answers/ranking.hpp"
#include "core/check.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

std::string_view mode_name(Recompute mode) {
  return mode == Recompute::Layers || mode == Recompute::Knapsack ? "a set of layers" : word(mode);
}

// The scenario with what its plan settled written into it, so that one field can be changed at a time.
Scenario settled(const Scenario& scenario, const Plan& plan) {
  Scenario fixed = scenario;
  PlanRequest& request = fixed.plan;
  request.open.clear(), fixed.training.open.clear();
  request.stages.value = plan.stages, request.virtual_stages.value = plan.virtual_stages;
  request.data_parallel.value = plan.data_parallel, request.context_parallel.value = plan.context_parallel;
  request.expert_parallel.value = plan.expert_parallel;
  LayerCounts counts;
  for (const LayerRange& layers : plan.uncut())
    counts.counts.push_back(layers.size());
  request.partition.value = counts;
  request.replicas.value.assign(plan.replicas.begin(), plan.replicas.end());
  if (std::ranges::all_of(plan.replicas, [](int r) { return r == 1; })) request.replicas.value.clear();
  request.recompute.value = plan.recompute;
  request.recompute_layers.assign(plan.recompute.size(), {});
  for (const LayerId layer : plan.rebuilt)
    for (int v = 0; v < plan.chunks(); ++v)
      if (layer >= plan.layers[v].begin && layer < plan.layers[v].end)
        request.recompute_layers[at(plan.stage_of(v))].value.push_back(layer);
  if (std::holds_alternative<SuffixDp>(scenario.plan.partition.value))
    request.placement = std::vector<std::int64_t>(plan.device.begin(), plan.device.end());
  return fixed;
}

class Nearness {
 public:
  Nearness(const Scenario& scenario, const Plan& plan, Framework framework)
      : plan_(plan), framework_(framework), found_{settled(scenario, plan), settled(scenario, plan), {}} {}

  NearestPlan all() {
    check_model(found_.scenario, framework_);
    replicas();
    schedule();
    keys_of_schedule();
    barrier();
    batch();
    recompute();
    settle_training(found_.scenario, framework_, plan_.copies() > 1, request().stages.value > 1,
                    [this](const std::string& what) { differs(what); });
    placement();
    if (words(framework_).own_cuts) deepspeed_partition();
    nodes();
    return std::move(found_);
  }

 private:
  bool is(Framework framework) const { return framework_ == framework; }
  PlanRequest& request() { return found_.scenario.plan; }
  void differs(const std::string& what) { found_.differences.push_back(what); }

  // Workers that share a stage: as many stages as there are workers.
  void replicas() {
    if (request().replicas.value.empty()) return;
    const int workers = plan_.positions();
    request().replicas.value.clear();
    const bool enough = workers <= std::ssize(found_.scenario.model.layers);
    const std::int64_t stages = enough ? workers : plan_.stages;
    differs(fmt::format("replicas {}: a stage runs on one worker of a copy; {} stages, cut evenly",
                        fmt::join(plan_.replicas, "-"), stages));
    request().stages.value = stages;
    request().partition.value = Balanced{};
    one_mode(plan_.recompute.front() == Recompute::Layers ? Recompute::Full : plan_.recompute.front());
    request().placement = PlacementOrder::Pipeline;
  }

  void schedule() {
    const bool takes_any = (is(Framework::Torch) || is(Framework::Torchtitan));
    const ScheduleRule& asked = *find_schedule(plan_.schedule);
    // torchtitan knows of its schedules' names how their stages lie, of a file that they lie in a loop.
    const bool to_and_fro = plan_.chunk_order == ChunkOrder::V && asked.facts.pytorch.empty();
    const bool two_ways = both_ways(plan_.chunk_order);
    const bool sliced = plan_.slices_of_each() > 1;
    if (takes_any && asked.flush && !two_ways && !sliced && !(is(Framework::Torchtitan) && to_and_fro)) return;
    const bool chunks = plan_.virtual_stages > 1 && !is(Framework::DeepSpeed);
    const std::vector<std::string> has = schedules_of(words(framework_));
    const std::string nearest = *std::ranges::find_if(
        has, [&](const std::string& name) { return find_schedule(name)->facts.takes_chunks == chunks; });
    const bool pairs = is(Framework::Megatron) && asked.facts.pairs;
    const std::string unpaired = pairs ? why_unpaired() : "";
    if (plan_.stages == 1 && plan_.virtual_stages == 1 && asked.flush && (!pairs || !unpaired.empty())) {
      if (!unpaired.empty() && plan_.split().sends_tokens())
        differs(fmt::format("schedule: {} {}; {}", plan_.schedule, unpaired, nearest));
      request().schedule.value = nearest, request().given = nullptr;  // one worker: all orders take as long
      return;
    }
    if (is(Framework::DeepSpeed) && plan_.virtual_stages > 1) {
      differs("virtual_stages: DeepSpeed gives every stage one piece; cut evenly");
      request().virtual_stages.value = 1, request().partition.value = Balanced{};
      one_mode(plan_.recompute.front() == Recompute::Layers ? Recompute::Blocks : plan_.recompute.front());
    }
    const auto runs = words(framework_).runs;
    if (asked.name == nearest || (runs != nullptr && runs(asked) && unpaired.empty() && !sliced)) return;
    std::string what = asked.from_file ? "the order of a file" : plan_.schedule;
    if (!asked.flush) what += ", which updates without a flush,";
    differs(fmt::format("schedule: {} {}; {}", what,
                        takes_any && sliced     ? "cuts sequences, which PyTorch's schedules do not"
                        : takes_any && two_ways ? "keeps each stage on two ranks, which PyTorch's schedules do not"
                        : takes_any && to_and_fro
                            ? "puts stages to and fro, which a schedule file cannot tell torchtitan"
                        : !unpaired.empty() && asked.in_megatron ? unpaired
                                                                 : "is not there",
                        nearest));
    request().schedule.value = nearest, request().given = nullptr;
  }

  // What --overlap-moe-expert-parallel-comm wants beside it; "": all is there.                          [Megatron26]
  std::string why_unpaired() const {
    if (!plan_.split().sends_tokens()) return "needs expert_parallel there";
    const Scenario& scenario = found_.scenario;
    if (scenario.plan.expert_exchange.value == ExpertExchange::AllGather)
      return "needs expert_exchange: all_to_all there";
    if (weight_bytes(scenario.training.precision).value != 2) return "needs precision: bf16 or fp16 there";
    const bool whole = std::ranges::any_of(
        plan_.recompute, [](Recompute mode) { return mode != Recompute::None && mode != Recompute::Selective; });
    if (whole) return "does not recompute whole blocks there";
    const bool experts = std::ranges::find(plan_.recompute, Recompute::Selective) != plan_.recompute.end() &&
                         scenario.plan.recompute_modules.has(Module::Experts);
    return experts ? "does not recompute experts (moe) there" : "";
  }

  // Keys of the schedule that is written stay, but those of groups outside Megatron-LM.
  void keys_of_schedule() {
    const ScheduleFacts& written = find_schedule(request().schedule.value)->facts;
    for (const ScheduleKey& key : kScheduleKeys)
      if (!(written.*key.stated)) (request().*key.asked).reset();
    if (written.pairs && std::exchange(request().shared_experts_beside.value, false))
      differs("shared_experts_beside is not there beside another micro-batch; shared experts wait: false");
    const bool put_off = written.pairs && is(Framework::Megatron);
    if (std::exchange(request().delay_wgrad.value, request().delay_wgrad.value && put_off) && !put_off)
      differs("delay_wgrad is not there; gradients of weights with those of inputs: false");
    auto& group = request().micro_batch_group;
    if (!group || is(Framework::Megatron)) return;
    if (group->value != plan_.stages)
      differs(fmt::format("micro_batch_group: {} is not there; as many as stages: {}", group->value, plan_.stages));
    group.reset();
  }

  void barrier() {
    if (plan_.barrier.value == Barrier::Flush) return;
    differs("barrier: steps do not overlap there; a flush between them");
    request().barrier = {};
  }

  void batch() {
    if (plan_.last_micro_batch_size == plan_.micro_batch_size) return;
    Training& training = found_.scenario.training;
    differs(fmt::format("training.ragged: micro-batches are of one size; a global batch of {} instead of {}",
                        plan_.micro_batches * plan_.micro_batch_size * plan_.data_parallel, plan_.global_batch_size));
    training.global_batch_size.reset();
    training.micro_batch_size = Placed<std::int64_t>{plan_.micro_batch_size, training.place};
    training.micro_batches = Placed<std::int64_t>{plan_.micro_batches, training.place};
    training.ragged = false;
  }

  void one_mode(Recompute mode) {
    request().recompute.value = {mode};
    request().recompute_layers.assign(1, {});
  }
  bool all_are(Recompute mode) const {
    return std::ranges::all_of(request_modes(), [&](Recompute each) { return each == mode; });
  }
  bool any_is(Recompute mode) const { return std::ranges::find(request_modes(), mode) != request_modes().end(); }
  const std::vector<Recompute>& request_modes() const { return found_.scenario.plan.recompute.value; }

  void recompute() {
    if (request().recompute_except_last) {
      differs("recompute_except_last: micro-batches are treated alike; the last one is recomputed, too");
      request().recompute_except_last = false;
    }
    if (all_are(Recompute::None)) return;
    const auto replace = [&](Recompute mode, const std::string& why) {
      differs(fmt::format("recompute: {}; {}", why, mode_name(mode)));
      one_mode(mode);
    };
    const bool mixed = !all_are(request_modes().front());
    const bool whole = any_is(Recompute::Full) || any_is(Recompute::Blocks) || any_is(Recompute::Layers);
    switch (framework_) {
      case Framework::Torch:
        if (any_is(Recompute::Selective))
          replace(Recompute::None, "of attention cores alone is the model's own business");
        return;
      case Framework::Torchtitan:
        if (all_are(Recompute::Blocks) || (all_are(Recompute::Selective) && by_operator())) return;
        if (!whole && !by_operator()) return replace(Recompute::None, "its selective keeps and rebuilds other tensors");
        if (!whole) return replace(Recompute::Selective, "one mode for all stages");
        if (!any_is(Recompute::Full) && !any_is(Recompute::Blocks) && !any_is(Recompute::Selective))
          return torchtitan_layers();
        return replace(Recompute::Blocks, mixed ? "one mode for all stages" : "by block or not at all");
      case Framework::DeepSpeed:
        if (all_are(Recompute::Full) || all_are(Recompute::Blocks)) return;
        if (!whole) return replace(Recompute::None, "of attention cores alone is not there");
        return replace(any_is(Recompute::Full) ? Recompute::Full : Recompute::Blocks, "one mode for all stages");
      case Framework::Megatron: return megatron_recompute(mixed, replace);
    }
  }

  bool by_operator() const { return found_.scenario.plan.recompute_modules.has(Module::Operators); }

  // Any set of blocks, on all stages.
  void torchtitan_layers() {
    std::vector<std::int64_t> blocks;
    for (const LayerId layer : plan_.rebuilt)
      if (found_.scenario.model.layers[layer].block) blocks.push_back(layer);
    if (blocks.size() == plan_.rebuilt.size()) return;
    differs(fmt::format("recompute: blocks alone; {} of these layers", blocks.size()));
    request().recompute.value = {blocks.empty() ? Recompute::None : Recompute::Layers};
    request().recompute_layers.assign(1, {});
    request().recompute_layers.front().value = blocks;
  }

  // --recompute-method block rebuilds the first N blocks of every chunk.
  void megatron_recompute(bool mixed, const std::function<void(Recompute, const std::string&)>& replace) {
    if (by_operator()) {
      request().recompute_modules = {Module::AttentionCore};
      if (any_is(Recompute::Selective)) differs("recompute_modules: operators are not there; core_attn");
    }
    if (all_are(Recompute::Selective) || all_are(Recompute::Blocks)) return;
    if (any_is(Recompute::Full)) return replace(Recompute::Blocks, "a block at a time, not a whole stage");
    if (any_is(Recompute::Blocks)) return replace(Recompute::Blocks, "one mode for all stages");
    if (!any_is(Recompute::Layers)) return replace(Recompute::Selective, "one mode for all stages");
    const Model& model = found_.scenario.model;
    std::set<LayerId> rebuilt(plan_.rebuilt.begin(), plan_.rebuilt.end()), first;
    std::int64_t most = 0;
    for (const LayerRange& chunk : plan_.layers) {
      std::int64_t here = 0;
      for (LayerId layer = chunk.begin; layer < chunk.end; ++layer)
        here += rebuilt.count(layer) > 0 && model.layers[layer].block;
      most = std::max(most, here);
    }
    for (const LayerRange& chunk : plan_.layers) {
      std::int64_t left = most;
      for (LayerId layer = chunk.begin; layer < chunk.end && left > 0; ++layer)
        if (model.layers[layer].block) first.insert(layer), --left;
    }
    if (first == rebuilt && !any_is(Recompute::Selective)) return;
    if (!mixed || first != rebuilt)
      differs(fmt::format("recompute: the first blocks of every chunk, as many on each; {} of each", most));
    request().recompute.value = {Recompute::Layers};
    request().recompute_layers.assign(1, {});
    request().recompute_layers.front().value.assign(first.begin(), first.end());
  }

  // First devices of the workers, as many on each of these nodes, from its first device on.
  std::vector<std::int64_t> spread(const Plan& plan, const std::map<int, int>& nodes) const {
    const int each = plan.devices() / static_cast<int>(nodes.size());
    std::vector<std::int64_t> devices;
    for (const auto& node : nodes)
      for (int device = 0; device < each; device += plan.tensor_parallel)
        devices.push_back(std::int64_t{node.first} * found_.scenario.cluster.devices_per_node + device);
    return devices;
  }

  // A launcher starts as many ranks on every node: devices that do not fill the last one are spread over all.
  void nodes() {
    const Scenario& scenario = found_.scenario;
    const CostModel cost(scenario);
    const Plan plan = find_plan(scenario, cost);
    const std::map<int, int> taken = devices_by_node(plan, scenario.cluster);
    const int count = static_cast<int>(taken.size()), each = plan.devices() / count;
    const auto as_each = [&](const auto& node) { return node.second == each; };
    if (std::ranges::all_of(taken, as_each)) return;
    if (plan.devices() % count != 0 || each % plan.tensor_parallel != 0) return;  // whoever writes it refuses it
    const std::vector<std::int64_t> evenly = spread(plan, taken);
    std::vector<DeviceId> in_order = plan.device;
    std::ranges::sort(in_order);
    std::vector<std::int64_t> placement;
    for (const DeviceId device : plan.device)
      placement.push_back(evenly[at(std::ranges::lower_bound(in_order, device) - in_order.begin())]);
    differs(fmt::format("placement: {} devices do not fill {} nodes of {}; {} ranks on each", plan.devices(), count,
                        scenario.cluster.devices_per_node, each));
    request().placement = std::move(placement);
  }

  // Ranks count the copies of a stage first, then its stages; Megatron-LM has a flag for the other order.
  void placement() {
    if (plan_.copies() == 1 && !std::holds_alternative<std::vector<std::int64_t>>(request().placement)) return;
    const auto* order = std::get_if<PlacementOrder>(&request().placement);
    if (order != nullptr && plan_.positions() == 1) {  // then both are one
      request().placement = PlacementOrder::Data;
      return;
    }
    if (order != nullptr && (*order == PlacementOrder::Data || words(framework_).pipeline_placement)) return;
    if (order == nullptr && plan_.copies() == 1) {
      const std::map<int, int> taken = devices_by_node(plan_, found_.scenario.cluster);
      if (std::get<std::vector<std::int64_t>>(request().placement) == spread(plan_, taken)) return;
    }
    differs(fmt::format("placement: {}; data", order ? "copies of a stage take neighbouring devices"
                                                     : "ranks follow one another on the devices"));
    request().placement = PlacementOrder::Data;
  }

  // "uniform", or "type:" of the blocks where these divide: the one that takes less.
  void deepspeed_partition() {
    const Model& model = found_.scenario.model;
    const std::int64_t stages = request().stages.value;
    std::vector<std::vector<std::int64_t>> cuts = {uniform_cut(std::ssize(model.layers), stages)};
    const auto blocks = std::ranges::count_if(model.layers, [](const Layer& l) { return l.block; });
    if (blocks > 0 && blocks % stages == 0 && blocks + 2 == std::ssize(model.layers) && !model.layers.front().block) {
      cuts.emplace_back(at(stages), blocks / stages);
      ++cuts.back().front(), ++cuts.back().back();
    }
    if (const auto* asked = std::get_if<LayerCounts>(&request().partition.value))
      for (const auto& cut : cuts)
        if (cut == asked->counts) return;
    Time least{};
    std::vector<std::int64_t> best;
    for (const auto& cut : cuts) {
      const auto tried = std::make_shared<Scenario>(found_.scenario);
      tried->plan.partition.value = LayerCounts{cut};
      const CostModel cost(tried);
      const Time step = price(find_plan(*tried, cost), cost, Engine::Auto).report.step_time;
      if (best.empty() || step < least) best = cut, least = step;
    }
    differs(fmt::format("partition: only by its own methods; layers {}", fmt::join(best, " ")));
    request().partition.value = LayerCounts{best};
  }

  const Plan& plan_;
  Framework framework_;
  NearestPlan found_;
};

}  // namespace

std::vector<std::int64_t> uniform_cut(std::int64_t layers, std::int64_t stages) {
  std::vector<std::int64_t> cut(at(stages), layers / stages);
  for (std::int64_t k = 0; k < layers % stages; ++k)
    ++cut[at(k)];
  return cut;
}

NearestPlan nearest_plan(const Scenario& scenario, const Plan& plan, Framework framework) {
  return Nearness(scenario, plan, framework).all();
}

}  // namespace pipewright::planner
