// What things cost: layers by a cost source, transfers and collectives by the topology.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/topology.hpp"
#include "core/cost/kernel_queue.hpp"
#include "core/cost/step_costs.hpp"
#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::core {

// The kernels of a layer by pass; `rebuild`: of its modules that selective recomputation repeats; `again`: of a forward
// that is repeated.
struct IssuedPasses {
  KernelQueue forward, input, weight, rebuild, again;
};

// Figures of every layer for one micro-batch of a given size, each rounded once.
struct LayerCosts {
  std::vector<Time> forward, backward, backward_input, backward_weight;  // backward = input + weight, to the nanosecond
  std::vector<Time> rebuild;  // selective recomputation: forward of its modules once more, before the backward
  std::vector<Time> again;  // blocks, layers: the forward once more; as long, or less (training.checkpoint_early_stop)
  // What the input's gradient takes more where the weights' does not follow at once; may be empty (plan.tensor_overlap).
  std::vector<Time> apart;
  // The kernels behind the times above, which are their `device`; empty: no host limits. An op of a stage takes at least
  // the sum of the times above (`step_costs`), so that bounds that are made of them hold.
  std::vector<IssuedPasses> issued;
  std::vector<Bytes> activation, stash;
  std::vector<Bytes>
      core;  // of the stash: what selective recomputation (plan.recompute_modules) rebuilds instead of keeping it
  std::vector<Bytes>
      selective;  // kept in place of the stash where a stage recomputes so: without `core`, or what is saved
  std::vector<Bytes> logits;     // of the stash: what the loss keeps of the logits
  std::vector<Bytes> workspace;  // scratch memory of the layer's hungriest operator, while it runs
};

// The seam: where layer times come from. One file per source in cost/sources/, one line in `cost_sources()`.
// A source prices the devices of one class (the number in `make`), for the cost model that it belongs to.
class CostSource {
 public:
  virtual ~CostSource() = default;
  struct Passes {
    Time forward, backward_input, backward_weight;
    Time rebuild{};                        // of the modules that selective recomputation repeats
    std::optional<Time> again{};           // of a forward that is repeated; none: as long
    std::optional<IssuedPasses> issued{};  // where a host limits
    Time apart{};                          // LayerCosts::apart
  };
  // Times of one layer for a micro-batch of `samples`. Throws InputError when the layer lacks what the source needs.
  // Layers that share a work and state no times of their own cost the same: the caller asks once.
  virtual Passes price(const Model& model, LayerId layer, std::int64_t samples) const = 0;
  // The same while `active` workers compute, one of `loads()`: ascending, the last as `price`; none: no difference.
  virtual std::vector<int> loads() const { return {}; }
  virtual Passes price_at(const Model& model, LayerId layer, std::int64_t samples, int) const {
    return price(model, layer, samples);
  }
  // Added once to every scheduled compute op.
  virtual Time op_overhead() const = 0;
  // Optimizer step over `parameters` of a stage.
  virtual Time update(std::int64_t parameters) const = 0;
  // Orthogonalising the matrices of these layers, of which a worker has a share, and of those of experts that others do not
  // hold another one: core/cost/muon.hpp.
  struct Sharing {
    int members = 1, of_experts = 1;
  };
  virtual Time orthogonalise(LayerRange, Sharing) const { return {}; }
  // Casting so many weights of linear layers, which follows it (core/cost/low_precision.hpp).
  virtual Time cast(std::int64_t) const { return {}; }
  // Moving so many bytes of its own memory; nothing where a source knows no device.
  virtual Time copy(double) const { return {}; }
  // Where workers hand messages over themselves, as cores of one machine do: what the sender's copy and the receiver's
  // first read add to their ops, and how long it takes until the receiver has noticed.
  virtual Time sending(Bytes) const { return {}; }
  virtual Time first_reading(Bytes) const { return {}; }
  virtual Time handing_over() const { return {}; }
  // Of the forward of a layer that is built from operators, and of the gradient of its input, the shares that causal
  // attention takes: of the FLOPs, where the source knows no better.
  struct AttentionShares {
    double forward = 0, input = 0;
  };
  virtual AttentionShares attention_shares(const Work& work, std::int64_t samples) const;  // slices.cpp
  // What the ways of tokens to experts and back cut the passes over a layer into, in shares of any unit, in the order of
  // the forward: computing before, between and behind n exchanges, and how long each of these takes. By FLOPs and alike,
  // where the source knows no better.
  struct ExchangeCuts {
    std::vector<double> forward, input, weight, rebuilt;  // n + 1 each; the last: of modules that run again
    std::vector<double> exchanges, rebuilt_exchanges;     // n each
  };
  virtual ExchangeCuts exchange_cuts(const Work& work, std::int64_t samples) const;  // cell_parts.cpp
  // The all-reduce of one bucket, where the source knows better than the topology.
  virtual std::optional<Time> all_reduce(int, Bytes) const { return {}; }
  // "" or a sentence on prices at this size that are less sure than others.
  virtual std::string caution(const Model&, std::int64_t) const { return ""; }
  // One line for the report: what the times are and where they come from.
  virtual std::string provenance() const = 0;
};

// Times as the layers state them, scaled to the micro-batch. The launches inside a layer are part of its measured time;
// each scheduled op adds the device's launch overhead once. The optimizer step is not priced (its time is not stated).
std::unique_ptr<CostSource> explicit_times(const Scenario& scenario, int device_class,
                                           const Topology&);  // sources/explicit_times.cpp

// Times from FLOPs and bytes, operator by operator where the layer has a work; see sources/roofline.cpp for the
// formula. A layer's stated times win over it. `topology`: of all devices, for the collectives of tensor-parallel
// groups.
std::unique_ptr<CostSource> roofline(const Scenario& scenario, int device_class,
                                     const Topology& topology);  // sources/roofline.cpp

// Every layer takes the scenario's uniform_forward and uniform_backward per micro-batch, whatever its size; ops add the
// launch overhead as above.
std::unique_ptr<CostSource> uniform(const Scenario& scenario, int device_class,
                                    const Topology&);  // sources/uniform.cpp

// Times that `calibrate` measured, by what a layer computes; sources/profile.cpp.
std::unique_ptr<CostSource> measured_profile(const Scenario& scenario, int device_class, const Topology&);

struct CostSourceRule {
  std::string_view name;  // as written in YAML
  CostSourceKind kind;
  std::unique_ptr<CostSource> (*make)(const Scenario&, int, const Topology&);
};
std::span<const CostSourceRule> cost_sources();

// Backward time of a layer as it states it, at `samples`, split into its two gradients; nothing when it states none.
//     both halves stated       each is scaled and rounded once, the backward is their sum
//     backward and one half    the other half is the rest
//     only the backward        the weight gradient takes half of it (rounded down) when the layer has parameters, else
//                              all of it is the input gradient: with equal matrix products both gradients cost the same
// Throws InputError (at the layer) for one half without the backward, and for halves that contradict it.
struct BackwardTimes {
  Time input, weight;
};
std::optional<BackwardTimes> stated_backward(const Layer& layer, std::int64_t samples, std::int64_t batch);
BackwardTimes split_backward(Time backward, std::int64_t parameters);

// A stated time as a device of that speed takes it: time / speed, rounded. 90 ns at 0.6: 150 ns.
Time at_speed(Time stated, double speed);
// That speed of a class: 1 for the first one. Throws InputError where it is not given.
double stated_speed(const Cluster& cluster, int device_class);

class CostModel {
 public:
  explicit CostModel(std::shared_ptr<const Scenario> scenario);
  explicit CostModel(const Scenario& scenario);  // of a copy
  // Of one device class; bytes are the same for all. `active`: while so many workers compute, one of its source's
  // `loads`; 0: all of them. With plan.slices those of one slice: where they take unequal times of `slice`, or the mean.
  LayerCosts layers(std::int64_t samples, int device_class = 0, int active = 0, std::optional<int> slice = {}) const;
  // As the lead devices of the workers see it. The t members of each group send and reduce alike at the same time, so
  // where they share a link (a NIC per node, uplinks, host memory) the lead has 1/t of it, t at most the devices of a
  // node. t = 1: the cluster as it is.
  const Topology& topology() const { return topology_; }
  const CostSource& source(int device_class = 0) const { return *sources_[static_cast<std::size_t>(device_class)]; }
  const Scenario& scenario() const { return *scenario_; }
  const std::shared_ptr<const Scenario>& shared_scenario() const { return scenario_; }

 private:
  std::shared_ptr<const Scenario> scenario_;
  Topology topology_;
  std::vector<std::unique_ptr<CostSource>> sources_;  // by class
};

// Bytes per parameter, by precision and optimizer.   [GPipe19] Table 1: 12 B = fp32 weight + gradient + RMSProp state.
// bf16 with Adam and gradients accumulated in fp32: 2 + 4 + 12 = 18 B, as Megatron-LM.
Bytes weight_bytes(Precision precision);         // fp32, tf32: 4; fp16, bf16: 2
Bytes gradient_bytes(const Training& training);  // as the weight, unless training.gradient_precision says otherwise
// The moments of an optimizer, and the master copy of fp16 and bf16: in fp32 each, unless training.moments and
// master_weights say otherwise. Adam in bf16: 4 + 8 = 12; moments in bf16 and the master's remainder 2 + 4 = 6. `matrix`: of
// one that Muon updates, with one moment.
Bytes optimizer_bytes(const Training& training, bool matrix = false);
Bytes master_bytes(const Training& training);

// Optimizer states of `parameters` (those on one device) that a worker of the stage holds and updates: all of them, or
// with training.zero from 1 on their share of it.                                                            [ZeRO20]
struct HeldParameters {
  std::int64_t all = 0, of_experts = 0;  // of experts that others do not hold (plan.expert_parallel)
};
std::int64_t updated_parameters(HeldParameters held, const Plan& plan, StageId stage, const Training& training);
// training.zero from which on a state is divided among workers.                              [ZeRO20] section 5
constexpr int kOptimizerSharded = 1, kGradientsSharded = 2, kWeightsSharded = 3;
// The share of one worker: ceil(parameters / members), members: Plan::sharded_over; of experts Plan::expert_copies.
std::int64_t sharded(HeldParameters held, int members, int expert_copies);

}  // namespace pipewright::core
