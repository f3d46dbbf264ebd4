// What a scenario states and its plan cannot use.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/model/graph.hpp"
#include "core/plan/given_schedule.hpp"
#include "core/question/scenario.hpp"
#include "planner/what_if/explanation.hpp"
#include "planner/words.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

// Stages between the producer of a tensor and a user of it: those are what `skips` is about.
bool skips_a_stage(const Model& model, const Plan& plan) {
  const std::vector<LayerRange> chunks = plan.uncut();
  const auto chunk_of = [&](LayerId layer) {
    const auto holds = [&](const LayerRange& range) { return layer < range.end; };
    return std::ranges::find_if(chunks, holds) - chunks.begin();
  };
  for (LayerId i = 0; i < std::ssize(model.layers); ++i)
    for (const LayerId input : model.layers[i].inputs)
      if (chunk_of(i) - chunk_of(input) > 1) return true;
  return false;
}

// Lines of options without effect, by topic.
class WithoutEffect {
 public:
  WithoutEffect(const Scenario& scenario, const Plan& plan) : scenario_(scenario), plan_(plan) {
    add_schedule();
    add_recomputation();
    add_division();
    add_training();
    add_modules();
    add_tensor_links();
    add_experts();
    add_pairs();
    add_tensors();
    add_host_memory();
  }
  std::vector<std::string> take() { return std::move(lines_); }

 private:
  void add_schedule() {
    const ScheduleRule* rule = find_schedule(plan_.schedule);
    if (plan_.vertical_sync && rule != nullptr && rule->flush)
      lines_.push_back("plan.vertical_sync has no effect: " + plan_.schedule +
                       " flushes, so every stage has one version of its weights; it belongs to schedule: " +
                       listed(schedule_names([](const ScheduleRule& each) { return !each.flush; }), "or"));
    if (plan_.kept_for_weights && rule != nullptr && !rule->splits_backward)
      lines_.push_back("plan.kept_for_weights has no effect: it belongs to schedule: " +
                       listed(schedule_names([](const ScheduleRule& each) { return each.splits_backward; }), "or"));
    for (const ScheduleKey& key : kScheduleKeys)
      if (plan_.*key.asked && !(plan_.facts.*key.stated))
        lines_.push_back(fmt::format(
            "plan.{} has no effect: it belongs to schedule: {}", key.name,
            listed(schedule_names([&](const ScheduleRule& each) { return each.facts.*key.stated; }), "or")));
    if (plan_.slice_lengths.value == SliceLengths::Even && !plan_.uneven_slices())
      lines_.push_back(
          "plan.slice_lengths: even has no effect: sequences are not cut; it needs plan.slices: 2 or more");
  }

  void add_recomputation() {
    if (plan_.recompute_except_last && !recomputes(Recompute::Full))
      lines_.push_back("plan.recompute_except_last has no effect: no stage recomputes; it needs recompute: full");
    if (recomputes(Recompute::Selective) && !has_any(scenario_.model, scenario_.plan.recompute_modules))
      lines_.push_back(
          scenario_.plan.recompute_modules == Modules{Module::AttentionCore}
              ? "plan.recompute: selective has no effect: the model has no attention core that keeps its scores "
                "(layers with stated figures, flash attention, or no attention at all); it is the same as none"
          : scenario_.plan.recompute_modules.has(Module::Operators)
              ? "plan.recompute: selective has no effect: the model has no blocks of a Transformer; it is the same as "
                "none"
              : "plan.recompute: selective has no effect: the model has none of plan.recompute_modules; it is the same "
                "as none");
    if (recomputes(Recompute::Blocks) &&
        std::ranges::none_of(scenario_.model.layers, [](const Layer& layer) { return layer.block; }))
      lines_.push_back(
          "plan.recompute: blocks has no effect: the model has no blocks of a Transformer; it is the same as none");
  }

  void add_division() {
    if (scenario_.plan.scatter_gather.value && plan_.tensor_parallel == 1)
      lines_.push_back(
          "plan.scatter_gather has no effect: it divides tensors among the devices of a tensor-parallel group");
    if (scenario_.training.zero > 0 && !plan_.seating().any_reduced())
      lines_.push_back(
          fmt::format("training.zero: {} has no effect: each stage has a single worker, so there is nothing to shard",
                      scenario_.training.zero));
  }

  void add_training() {
    const Training& training = scenario_.training;
    if (training.execution != Execution::Eager && scenario_.cost != CostSourceKind::Roofline)
      lines_.push_back(
          "training.execution has no effect: times of layers are stated or measured, the host's with them");
    const bool operators = recomputes(Recompute::Selective) && scenario_.plan.recompute_modules.has(Module::Operators);
    if (training.checkpoint_early_stop && !operators && !recomputes(Recompute::Blocks) &&
        !recomputes(Recompute::Layers))
      lines_.push_back(
          "training.checkpoint_early_stop has no effect: no block or layer is recomputed; it needs recompute: blocks");
    if (training.low_precision.value != LowPrecision::None && scenario_.cost != CostSourceKind::Roofline)
      lines_.push_back(
          "training.low_precision has no effect on times: only cost: roofline prices products by precision");
    if (training.moments.value != Moments::Fp32 && training.optimizer == Optimizer::Sgd)
      lines_.push_back("training.moments has no effect: sgd keeps none");
    if (training.master_weights.value != MasterWeights::Fp32 && weight_bytes(training.precision).value == 4)
      lines_.push_back("training.master_weights has no effect: weights are in fp32");
    if (training.sharding.value != Sharding::Flat && training.zero < kWeightsSharded)
      lines_.push_back(
          fmt::format("training.sharding has no effect: weights are whole with training.zero: {}", training.zero));
    if (training.optimizer == Optimizer::Muon && scenario_.cost != CostSourceKind::Roofline)
      lines_.push_back("training.optimizer: muon has no effect on times: only cost: roofline prices its step");
    if (training.low_precision_weights && training.low_precision.value == LowPrecision::None)
      lines_.push_back("training.low_precision_weights has no effect: training.low_precision is none");
  }

  void add_modules() {
    if (scenario_.plan.recompute_modules != Modules{Module::AttentionCore} && !recomputes(Recompute::Selective))
      lines_.push_back("plan.recompute_modules has no effect: no stage has recompute: selective");
  }

  void add_tensor_links() {
    if (scenario_.plan.tensor_links.value == TensorLinks::Shared && plan_.tensor_parallel == 1)
      lines_.push_back(
          "plan.tensor_links has no effect: no group exchanges anything; it needs plan.tensor_parallel: 2 or more");
  }

  void add_experts() {
    const bool asked = scenario_.plan.expert_imbalance.value > 1 || scenario_.plan.expert_imbalance_memory ||
                       scenario_.plan.expert_nodes || scenario_.plan.expert_dispatch_fp8 ||
                       scenario_.plan.expert_exchange.value != ExpertExchange::AllToAll;
    if (asked && !sent_)
      lines_.push_back(
          "plan.expert_exchange, expert_imbalance, expert_nodes and expert_dispatch_fp8 have no effect: no token is "
          "sent; they need plan.expert_parallel");
    const PlanRequest& plan = scenario_.plan;
    const bool padded = plan.expert_capacity && plan.expert_padding && has_experts(scenario_.model);
    const double most = plan.most_imbalance(plan_.split());
    if (plan.expert_capacity && !padded && (!sent_ || most <= plan.expert_capacity->value))
      lines_.push_back(
          "plan.expert_capacity has no effect: no device gets more tokens than that; expert_capacity limits "
          "expert_imbalance, and expert_padding fills experts up to it");
    if (padded && sent_ && most > 1)
      lines_.push_back(
          "plan.expert_imbalance has no effect on times and memory: with expert_padding every expert computes as many "
          "rows as expert_capacity lets it");
    if (plan.shared_experts_beside.value && !(sent_ && has_shared_experts(scenario_.model)))
      lines_.push_back(sent_ ? "plan.shared_experts_beside has no effect: the model has no shared experts"
                             : "plan.shared_experts_beside has no effect: no token is sent; it needs expert_parallel");
    if (sent_ && scenario_.plan.expert_nodes && scenario_.plan.expert_exchange.value != ExpertExchange::PerNode)
      lines_.push_back("plan.expert_nodes has no effect: it limits expert_exchange: per_node");
  }

  void add_pairs() {
    const PlanRequest& request = scenario_.plan;
    const bool fused = request.pairs.value == Pairs::Fused;
    const bool cells = plan_.facts.pairs || (request.given && request.given->overlapped() > 0);
    if (fused && !cells)
      lines_.push_back(
          fmt::format("plan.pairs: fused has no effect: {} has no cell of a forward and a backward", plan_.schedule));
    if (!fused && (request.pair_time || request.exchange_share.value > 0))
      lines_.push_back("plan.pair_time and exchange_share have no effect: they need plan.pairs: fused");
    if (request.delay_wgrad.value && !(fused && cells && sent_ && !request.pair_time))
      lines_.push_back(fmt::format("plan.delay_wgrad has no effect: {}",
                                   !fused              ? "it needs plan.pairs: fused"
                                   : request.pair_time ? "plan.pair_time says how long a cell takes"
                                   : sent_             ? "no cell has a forward and a backward"
                                                       : "no token is sent; it needs expert_parallel"));
    if (!fused) return;
    if (request.exchange_share.value > 0 && (!sent_ || request.pair_time))
      lines_.push_back(request.pair_time
                           ? "plan.exchange_share has no effect: plan.pair_time says how long a cell takes"
                           : "plan.exchange_share has no effect: no token is sent; it needs expert_parallel");
  }

  void add_tensors() {
    const Training& training = scenario_.training;
    if (training.expert_products == ExpertProducts::Looped && !has_experts(scenario_.model))
      lines_.push_back("training.expert_products: looped has no effect: the model has no experts");
    if (plan_.skips == Skips::Direct && !skips_a_stage(scenario_.model, plan_))
      lines_.push_back("plan.skips: direct has no effect: no tensor of this partition skips a stage");
  }

  // Two limits of one name: of copies to the host, and of copies between devices by way of its memory.
  void add_host_memory() {
    const Cluster& cluster = scenario_.cluster;
    const NodeLinks& links = cluster.links;
    const bool offloads = !plan_.offloaded.empty() || scenario_.training.offload_optimizer.value > 0;
    const bool staged = !links.peer_access && links.kind != LinkKind::Ideal && links.kind != LinkKind::Mesh &&
                        cluster.devices_per_node > 1;
    if (cluster.host_bandwidth && !offloads)
      lines_.push_back(
          fmt::format("cluster.node.host_bandwidth has no effect: it limits what is offloaded to the host, and nothing "
                      "is (plan.offload_layers, training.offload_optimizer); {}cluster.node.links.host_bandwidth",
                      staged ? "copies between devices, which pass the host's memory here, go by "
                             : "for copies between devices by way of the host's memory (peer_access: false) write "));
    if (links.host_bandwidth && !staged)
      lines_.push_back(fmt::format(
          "cluster.node.links.host_bandwidth has no effect: no copy between devices of a node passes the host's "
          "memory{}; "
          "{}cluster.node.host_bandwidth",
          links.peer_access ? " (that needs peer_access: false)" : "",
          offloads ? "what is offloaded to the host goes by " : "for what is offloaded to the host write "));
  }

  bool recomputes(Recompute how) const { return std::ranges::find(plan_.recompute, how) != plan_.recompute.end(); }

  const Scenario& scenario_;
  const Plan& plan_;
  bool sent_ = plan_.split().sends_tokens();  // tokens to their experts
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> options_without_effect(const Scenario& scenario, const Plan& plan) {
  return WithoutEffect(scenario, plan).take();
}

}  // namespace pipewright::planner
