#include "core/cost/cost_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/cost/context_exchange.hpp"
#include "core/cost/expert_exchange.hpp"
#include "core/cost/framework_memory.hpp"
#include "core/cost/low_precision.hpp"
#include "core/cost/slices.hpp"

namespace pipewright::core {

BackwardTimes split_backward(Time backward, std::int64_t parameters) {
  const Time weight{parameters > 0 ? backward.value / 2 : 0};
  return {backward - weight, weight};
}

Time at_speed(Time stated, double speed) {
  if (speed == 1) return stated;
  return {rounded(static_cast<double>(stated.value) / speed, "a layer's time")};
}

double stated_speed(const Cluster& cluster, int device_class) {
  if (device_class == 0) return 1;
  const DeviceClass& other = cluster.others[static_cast<std::size_t>(device_class) - 1];
  if (!other.speed)
    throw InputError(other.place, "cluster.other_nodes." + other.name + ".speed is missing: stated layer times are " +
                                      "those of " + cluster.device.name + "; write e.g. speed: 0.5 where " +
                                      other.device.name + " takes twice as long, or use cost: roofline");
  return *other.speed;
}

std::optional<BackwardTimes> stated_backward(const Layer& layer, std::int64_t samples, std::int64_t batch) {
  const auto refuse = [&](const std::string& message) {
    throw InputError(layer.place, "layer \"" + layer.name + "\": " + message);
  };
  const auto& [input, weight, whole] = std::tie(layer.backward_input, layer.backward_weight, layer.backward);
  if (!whole && !input && !weight) return std::nullopt;
  if (!whole && !(input && weight))
    refuse(std::string("has only half of its backward; give `") + (input ? "backward_weight" : "backward_input") +
           ":` or the whole `backward:`");
  if (whole && input && weight && checked_sum(*input, *weight) != *whole)
    refuse("backward_input + backward_weight differ from backward; leave out one of the three");
  if (whole && ((input && *input > *whole) || (weight && *weight > *whole)))
    refuse("half of the backward takes longer than the whole `backward:`");
  if (input && weight) return BackwardTimes{scaled(*input, samples, batch), scaled(*weight, samples, batch)};
  const Time backward = scaled(*whole, samples, batch);
  if (input) {
    const Time half = scaled(*input, samples, batch);
    return BackwardTimes{half, backward - half};
  }
  if (weight) {
    const Time half = scaled(*weight, samples, batch);
    return BackwardTimes{backward - half, half};
  }
  return split_backward(backward, layer.parameters);
}

std::span<const CostSourceRule> cost_sources() {
  static constexpr std::array<CostSourceRule, 4> table = {{
      {"explicit", CostSourceKind::Explicit, explicit_times},
      {"roofline", CostSourceKind::Roofline, roofline},
      {"uniform", CostSourceKind::Uniform, uniform},
      {"profile", CostSourceKind::Profile, measured_profile},
  }};
  return table;
}

namespace {

// Links that the members of a tensor-parallel group share, divided among them. t = 4 on nodes of 8 devices with one NIC
// of 10 GB/s: 2.5 GB/s each; with a NIC per device only the uplinks of a leaf divide, and with rails nothing does.
Cluster seen_by_leads(Cluster cluster, std::int64_t tensor_parallel) {
  const auto together = static_cast<double>(std::min<std::int64_t>(tensor_parallel, cluster.devices_per_node));
  if (together <= 1) return cluster;
  if (cluster.links.host_bandwidth) cluster.links.host_bandwidth->value /= together;
  if (cluster.network && cluster.network->per == NicPer::Node) cluster.network->bandwidth.value /= together;
  if (cluster.network && cluster.network->per == NicPer::Device && cluster.network->oversubscription > 1 &&
      !cluster.network->rails)
    cluster.network->oversubscription *= together;
  return cluster;
}

}  // namespace

CostModel::CostModel(const Scenario& scenario) : CostModel(std::make_shared<const Scenario>(scenario)) {}

CostModel::CostModel(std::shared_ptr<const Scenario> shared)
    : scenario_(std::move(shared)),
      topology_(seen_by_leads(scenario_->cluster, scenario_->plan.tensor_parallel.value)) {
  const Scenario& scenario = *scenario_;
  const auto rules = cost_sources();
  const auto rule =
      std::find_if(rules.begin(), rules.end(), [&](const CostSourceRule& r) { return r.kind == scenario.cost; });
  PP_CHECK(rule != rules.end());
  const bool groups = scenario.plan.tensor_parallel.value > 1;
  const std::optional<Topology> whole = groups ? std::optional(Topology(scenario.cluster)) : std::nullopt;
  for (int c = 0; c < scenario.cluster.classes(); ++c)
    sources_.push_back(rule->make(scenario, c, whole ? *whole : topology_));
}

namespace {

// Whole bytes for `samples`; a part of a byte takes a byte.
Bytes bytes_of(double per_sample, double samples) {
  return {rounded(std::ceil(per_sample * samples), "a size")};
}

// What a layer's work costs, found once for all layers that share it.
struct WorkCosts {
  std::optional<CostSource::Passes> passes;
  Bytes logits, workspace;
  Bytes of_operators;         // logits as the operators keep them
  BesideOperators beside;     // what the framework holds
  Bytes more;                 // of the stash, or less: what linear layers and uneven experts keep of it
  std::optional<Bytes> core;  // that selective recomputation drops, where it is not attention cores alone
  Bytes again;                // what frozen products that run again read, and nobody else keeps
  Bytes own, saved, most;     // of a block: what the operators keep, and ReplayBytes
  bool known = false;
};

// Every layer's figures for one micro-batch of so many samples, on devices of one class while `active` workers compute.
class LayersPriced {
 public:
  LayersPriced(const Scenario& scenario, const CostSource& source, std::int64_t samples, int active)
      : model_(scenario.model),
        plan_(scenario.plan),
        training_(scenario.training),
        source_(source),
        samples_(samples),
        active_(active),
        split_(plan_.split()),
        per_value_(weight_bytes(training_.precision)),
        low_(low_precision(training_)),
        fullest_(plan_.expert_load_in_memory(split_)),
        on_device_(static_cast<double>(samples) /
                   static_cast<double>(std::max<std::int64_t>(1, plan_.context_parallel.value))),
        by_work_(model_.works.size()) {
    const auto reserve = [&](auto&... lists) { (lists.reserve(model_.layers.size()), ...); };
    reserve(costs_.forward, costs_.backward, costs_.backward_input, costs_.backward_weight, costs_.rebuild,
            costs_.again, costs_.apart, costs_.activation, costs_.stash, costs_.core, costs_.selective, costs_.logits,
            costs_.workspace);
  }

  void add(LayerId id) {
    const Layer& layer = model_.layers[id];
    const CostSource::Passes passes = passes_of(id);
    costs_.forward.push_back(passes.forward);
    costs_.backward_input.push_back(passes.backward_input);
    costs_.backward_weight.push_back(passes.backward_weight);
    costs_.backward.push_back(checked_sum(passes.backward_input, passes.backward_weight));
    costs_.rebuild.push_back(passes.rebuild);
    costs_.again.push_back(passes.again.value_or(passes.forward));
    costs_.apart.push_back(passes.apart);
    if (passes.issued) costs_.issued.push_back(*passes.issued);
    costs_.activation.push_back(of_batch(layer.activation));
    Bytes stash = of_batch(layer.stashed());
    Bytes core = layer.stash_selective ? stash - of_batch(*layer.stash_selective) : Bytes{};
    const WorkCosts* const of = layer.work < 0 ? nullptr : &costs_of(layer);
    if (of) kept(*of, stash, core);
    costs_.stash.push_back(stash);
    Bytes selective = checked_sum(stash - core, of ? of->again : Bytes{});
    if (plan_.recompute_modules.has(Module::Operators)) by_operator(of, stash, selective, core);
    costs_.core.push_back(core);
    costs_.selective.push_back(selective);
    costs_.logits.push_back(of ? std::min(of->logits, stash) : Bytes{});
    costs_.workspace.push_back(of ? of->workspace : Bytes{});
  }

  LayerCosts take() { return std::move(costs_); }

 private:
  Bytes of_batch(Bytes size) const { return context_part(scaled(size, samples_, model_.batch), plan_); }
  double here(const Amount& amount) const { return amount.on_device(per_value_, split_) * on_device_; }
  double each() const { return static_cast<double>(per_value_.value); }

  CostSource::Passes passes_of(LayerId id) {
    const Layer& layer = model_.layers[id];
    const auto priced = [&] {
      return active_ == 0 ? source_.price(model_, id, samples_) : source_.price_at(model_, id, samples_, active_);
    };
    if (layer.work < 0 || layer.states_times()) return priced();
    WorkCosts& known = costs_of(layer);
    if (!known.passes) known.passes = priced();
    return *known.passes;
  }

  WorkCosts& costs_of(const Layer& layer) {
    WorkCosts& known = by_work_[at(layer.work)];
    if (std::exchange(known.known, true)) return known;
    const Work& work = model_.works[at(layer.work)];
    add_kept(work, known);
    if (!work.replay.empty()) {
      const ReplayBytes replay = replay_bytes(work, per_value_, split_);
      known.own = bytes_of(work.kept.on_device(per_value_, split_), on_device_);
      known.saved = bytes_of(replay.saved, on_device_), known.most = bytes_of(replay.most, on_device_);
    }
    known.logits = known.of_operators = bytes_of(work.logits.on_device(per_value_, split_), on_device_);
    known.beside = beside_operators(work, training_.framework, split_, per_value_, on_device_);
    if (known.beside.logits) known.logits = *known.beside.logits;
    known.workspace = workspace(work, known.beside);
    return known;
  }

  // Kept tensors as they are: linear layers' in fewer bits, experts' of the device that gets most tokens.
  void add_kept(const Work& work, WorkCosts& known) const {
    const double narrow = low_ ? low_->bytes / each() : 1;
    double more = low_ ? here(work.inputs_by_linear) * narrow : 0, dropped = 0;
    for (const KeptTensors& kept : work.kept_tensors) {
      const double whole = here(kept.amount);
      const double beside = training_.framework.megatron() ? here(kept.before_shares) : 0;
      const double held =
          (whole + beside + (low_ ? here(kept.by_linear) * (narrow - 1) + here(kept.by_linear_too) * narrow : 0)) *
          (kept.expert ? fullest_ : 1);
      more += held - whole;
      if (dropped_with(kept, plan_.recompute_modules)) dropped += held;
    }
    double again = 0;
    for (const KeptTensors& read : work.read_again)
      if (needed_with(read, plan_.recompute_modules)) again += here(read.amount);
    known.again = bytes_of(again, 1);
    known.more = {rounded(std::ceil(more), "a size")};
    if (low_ || fullest_ > 1 || plan_.recompute_modules != Modules{Module::AttentionCore})
      known.core = bytes_of(dropped, 1);
  }

  // Of the hungriest operator.
  Bytes workspace(const Work& work, const BesideOperators& beside) const {
    Bytes most;
    for (const Operator& op : work.operators)
      most = std::max(most, bytes_of(op.workspace.on_device(per_value_, split_), on_device_));
    most = beside.instead ? beside.workspace : most + beside.workspace;
    for (const Operator& op : work.operators) {
      if (op.name == "dispatch")
        most = std::max(most, bytes_of(expert_workspace(op.sent, plan_, op.sent.tokens * on_device_, each()), 1));
      if (plan_.context_parallel.value > 1 && op.attention.heads > 0) {
        const ContextTensors own = context_tensors(op, plan_, static_cast<double>(samples_), each());
        most = std::max(most, bytes_of(context_workspace(own, plan_, each()), 1));
      }
    }
    return most;
  }

  // What a layer's work changes in what it keeps, and in what selective recomputation drops of that.
  void kept(const WorkCosts& of, Bytes& stash, Bytes& core) const {
    if (of.beside.logits) stash = checked_sum(stash - std::min(stash, of.of_operators), of.logits);
    stash = checked_sum(stash, of.beside.stash);
    stash = stash + std::max(Bytes{} - stash, of.more);
    if (of.core) core = *of.core;
    if (plan_.recompute_modules.has(Module::AttentionCore)) core = checked_sum(core, of.beside.core);
    core = std::min(core, stash);
  }

  // A block keeps what its checkpoint saves in place of its own tensors, and rebuilds these beside.
  static void by_operator(const WorkCosts* of, Bytes stash, Bytes& selective, Bytes& core) {
    const bool block = of != nullptr && of->most > Bytes{};
    selective = block ? checked_sum(stash - std::min(stash, of->own), of->saved) : stash;
    core = block ? of->most - std::min(of->most, of->saved) : Bytes{};
  }

  const Model& model_;
  const PlanRequest& plan_;
  const Training& training_;
  const CostSource& source_;
  std::int64_t samples_;
  int active_;  // 0: all
  TensorParallel split_;
  Bytes per_value_;
  const LowPrecisionRule* low_;
  double fullest_;    // tokens of the experts that get most, over the mean
  double on_device_;  // samples' tokens on one device
  std::vector<WorkCosts> by_work_;
  LayerCosts costs_;
};

}  // namespace

LayerCosts CostModel::layers(std::int64_t samples, int device_class, int active, std::optional<int> slice) const {
  const Model& model = scenario_->model;
  LayersPriced priced(*scenario_, source(device_class), samples, active);
  for (LayerId i = 0; i < std::ssize(model.layers); ++i) {
    try {
      priced.add(static_cast<LayerId>(i));
    } catch (const OverflowError& error) {
      throw InputError(model.layers[i].place, "layer \"" + model.layers[i].name + "\", for " + std::to_string(samples) +
                                                  " samples: " + error.what());
    }
  }
  LayerCosts costs = priced.take();
  if (scenario_->plan.slices) cut_into_slices(costs, *scenario_, source(device_class), samples, slice);
  return costs;
}

Bytes weight_bytes(Precision precision) {
  return {precision == Precision::Fp16 || precision == Precision::Bf16 ? 2 : 4};
}

Bytes gradient_bytes(const Training& training) {
  return weight_bytes(training.gradient_precision.value_or(training.precision));
}

std::int64_t updated_parameters(HeldParameters held, const Plan& plan, StageId stage, const Training& training) {
  return training.zero == 0 ? held.all : sharded(held, plan.sharded_over(stage), plan.expert_copies());
}

std::int64_t sharded(HeldParameters held, int members, int expert_copies) {
  return ceil_div(held.all - held.of_experts, members) + ceil_div(held.of_experts, expert_copies);
}

Bytes master_bytes(const Training& training) {
  if (weight_bytes(training.precision).value == 4) return {};
  // The shard in fp32 is both: 4 bytes in place of 2 and 4.
  if (training.zero >= kWeightsSharded && training.sharding.value == Sharding::PerParameter) return Bytes{2};
  switch (training.master_weights.value) {
    case MasterWeights::Fp32: return Bytes{4};
    case MasterWeights::Fp16:
    case MasterWeights::Remainder: return Bytes{2};
    case MasterWeights::None: break;
  }
  return {};
}

Bytes optimizer_bytes(const Training& training, bool matrix) {
  const Bytes master = master_bytes(training);
  const auto moment = [&] {
    switch (training.moments.value) {
      case Moments::Fp32: return Bytes{4};
      case Moments::Fp16:
      case Moments::Bf16: return Bytes{2};
      case Moments::Fp8:
      case Moments::Int8: break;
    }
    return Bytes{1};
  }();
  switch (training.optimizer) {
    case Optimizer::Sgd: return master;
    case Optimizer::Momentum:
    case Optimizer::RmsProp: return master + moment;
    case Optimizer::Adam: return master + 2 * moment;
    case Optimizer::Muon: return master + (matrix ? 1 : 2) * moment;
  }
  return master;
}

}  // namespace pipewright::core
