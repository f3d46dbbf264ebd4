#include "runtime/synthetic.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/check.hpp"
#include "core/cost/buckets.hpp"
#include "core/cost/memory_model.hpp"
#include "runtime/crossings.hpp"

namespace pipewright::runtime {
namespace {

using Both = std::array<std::int64_t, 2>;  // bytes for the full and for the last micro-batch

void check_workers(const Plan& plan, const Training& training) {
  if (plan.tensor_parallel > 1)
    throw InputError(training.place, "plan.tensor_parallel", "a synthetic run has one device per worker; use 1");
  if (plan.split().sends_tokens())
    throw InputError(training.place, "plan.expert_parallel", "a synthetic run keeps all experts together; use 1");
  if (plan.uneven_slices())
    throw InputError(plan.slice_lengths.place, "plan.slice_lengths",
                     "even: a synthetic run gives all slices one time; write balanced");
  if (training.zero > kOptimizerSharded)
    throw InputError(training.zero_place, "training.zero",
                     "a synthetic run keeps weights and gradients whole; use 0 or 1");
  if (training.zero > 0 && plan.shard > 0 && plan.shard < plan.data_parallel)
    throw InputError(training.place, "plan.data_parallel_shard",
                     "a synthetic run sums gradients over all copies at once; leave it out");
  if (training.clip_grad_norm)
    throw InputError(training.place, "training.clip_grad_norm",
                     "a synthetic run does not sum the norm of gradients; leave it out");
}

// What the compiler of one virtual stage needs of the others, found once.
struct Figures {
  const Plan& plan;
  const Model& model;
  const Training& training;
  std::int64_t alignment;
  std::vector<Crossing> crossings;
  StepCosts costs;
  MemoryModel memory;
  std::array<LayerCosts, 2> layers;
};

class TrafficCompiler {
 public:
  TrafficCompiler(const Figures& figures, VirtualStageId v) : figures_(figures), memory_(figures.memory.chunks[v]) {
    code_.virtual_stage = v;
    for (std::size_t e = 0; e < figures.crossings.size(); ++e)
      add_port(static_cast<int>(e), figures.crossings[e]);
    add_states();
    add_times();
    add_blocks();
  }

  ChunkCode compiled() {
    code_.forward = forward(false);
    code_.forward_boundary = forward(true);
    code_.rebuild = rebuild();
    code_.backward = backward(Kind::BW);
    code_.backward_input = backward(Kind::B);
    code_.backward_weight = backward(Kind::W);
    return std::move(code_);
  }

 private:
  int block(Both bytes) {
    code_.blocks.push_back(bytes);
    return static_cast<int>(code_.blocks.size()) - 1;
  }
  static Both both(const std::array<Bytes, 2>& bytes) { return {bytes[0].value, bytes[1].value}; }

  void add_port(int edge, const Crossing& crossing) {
    const VirtualStageId self = code_.virtual_stage;
    if (crossing.from != self && crossing.to != self) return;
    const bool in = crossing.to == self;
    Port port{edge, in ? crossing.from : crossing.to, {}, {}, {}};
    for (const LayerId layer : crossing.layers) {
      PortTensor tensor;
      tensor.layer = layer;
      for (std::size_t size = 0; size < 2; ++size) {
        tensor.bytes[size] = figures_.layers[size].activation[at(layer)].value;
        tensor.offset[size] = tensor.gradient_offset[size] = port.bytes[size];
        port.bytes[size] += rounded_up(std::max<std::int64_t>(1, tensor.bytes[size]), figures_.alignment);
        if (in) received_[size] += tensor.bytes[size];
      }
      const auto [known, added] = value_of_.try_emplace(layer, -1);
      if (added) known->second = block(in ? Both{} : tensor.bytes);
      if (added && !in) made_.push_back(tensor), made_.back().value = known->second;
      tensor.value = known->second;
      tensor.gradient = block(in ? tensor.bytes : Both{});
      port.tensors.push_back(tensor);
    }
    port.gradient_bytes = port.bytes;
    port.kept = in;
    (in ? code_.in : code_.out).push_back(std::move(port));
  }

  // Weights, gradients and states as the memory model has them, and where the buckets of the gradients begin.
  void add_states() {
    code_.parameter_bytes = memory_.weights.value;
    code_.gradient_bytes = memory_.gradients.value;
    code_.state_bytes = memory_.optimizer.value;
    const LayerRange range = figures_.plan.layers[code_.virtual_stage];
    const Bytes each = gradient_bytes(figures_.training);
    for (const Bucket& bucket : buckets(figures_.plan, code_.virtual_stage, figures_.model, figures_.training)) {
      std::int64_t before = 0;
      for (LayerId i = range.begin; i < bucket.first_layer; ++i)
        before += figures_.model.layers[i].trained() * each.value;
      code_.bucket_begin.push_back(before / 4 * 4);  // all-reduces sum whole floats
    }
    if (!code_.bucket_begin.empty()) code_.bucket_begin.back() = 0;
  }

  void add_times() {
    const VirtualStageId v = code_.virtual_stage;
    const StepCosts& costs = figures_.costs;
    for (std::size_t kind = 0; kind < kKinds; ++kind)
      code_.time[kind] = {costs.duration[v * kKinds + kind], costs.duration_last[v * kKinds + kind]};
    if (costs.ready_before_end.empty()) return;
    code_.ready_before_end[0] = code_.ready_before_end[1] = costs.ready_before_end[v];
    if (!costs.ready_before_end_last.empty()) code_.ready_before_end[1] = costs.ready_before_end_last[v];
  }

  void add_blocks() {
    const auto own = [&](const std::array<Bytes, 2>& bytes) {
      return block({std::max<std::int64_t>(0, bytes[0].value - received_[0]),
                    std::max<std::int64_t>(0, bytes[1].value - received_[1])});
    };
    stash_ = own(memory_.stash), boundary_ = own(memory_.boundary);
    rebuilt_ = block(both(memory_.working)), core_ = block(both(memory_.core));
    workspace_ = block(both(memory_.workspace));
  }

  // ---- the lines

  bool empty(int block) const { return code_.blocks[at(block)] == Both{}; }
  void add(Verb verb, int block, Tag tag = Tag::Workspace) {
    Instruction i;
    i.verb = verb, i.block = block, i.tag = tag;
    line_.push_back(i);
  }
  void add_if_any(Verb verb, int block, Tag tag = Tag::Workspace) {
    if (!empty(block)) add(verb, block, tag);
  }
  void add_ports(Verb verb, const std::vector<Port>& ports, bool forward) {
    for (std::size_t p = 0; p < ports.size(); ++p) {
      Instruction i;
      i.verb = verb, i.other = static_cast<std::int32_t>(p), i.forward = forward;
      line_.push_back(i);
    }
  }
  void spin(Kind kind, int bucket = -1) {
    Instruction i;
    i.verb = Verb::Spin, i.step = static_cast<std::int32_t>(kind), i.other = bucket;
    line_.push_back(i);
  }

  // Whether the stash is as large as this output, so that it holds it.
  bool stash_holds(const PortTensor& tensor) const {
    const Both& stash = code_.blocks[at(stash_)];
    return !empty(stash_) && stash[0] >= tensor.bytes[0] && stash[1] >= tensor.bytes[1];
  }
  std::vector<Instruction> forward(bool boundary_only) {
    line_.clear();
    add_ports(Verb::Receive, code_.in, true);
    add_if_any(Verb::Allocate, boundary_only ? boundary_ : stash_, Tag::Stash);
    add_if_any(Verb::Allocate, workspace_);
    std::vector<int> waiting;
    for (const PortTensor& tensor : made_) {
      if (!boundary_only && stash_holds(tensor)) {
        add(Verb::Bind, tensor.value);
        line_.back().other = stash_;
      } else {
        add(Verb::Allocate, tensor.value);
        waiting.push_back(tensor.value);
      }
    }
    spin(Kind::F);
    add_if_any(Verb::Free, workspace_);
    add_ports(Verb::Send, code_.out, true);
    for (const int block : waiting)
      add(Verb::Free, block);
    return std::move(line_);
  }

  std::vector<Instruction> rebuild() {
    line_.clear();
    add_if_any(Verb::Allocate, rebuilt_, Tag::Recompute);
    add_if_any(Verb::Allocate, workspace_);
    spin(Kind::R);
    add_if_any(Verb::Free, workspace_);
    return std::move(line_);
  }

  // BW, B or W.
  std::vector<Instruction> backward(Kind kind) {
    line_.clear();
    const bool inputs = rule(kind).backward, weights = rule(kind).gradients;
    if (inputs) {
      add_ports(Verb::Receive, code_.out, false);
      for (const Port& port : code_.in)
        for (const PortTensor& tensor : port.tensors)
          add(Verb::Allocate, tensor.gradient);
      add_if_any(Verb::Allocate, core_, Tag::Recompute);
    }
    add_if_any(Verb::Allocate, workspace_);
    for (std::size_t bucket = 0; weights && bucket < code_.bucket_begin.size(); ++bucket) {
      spin(kind, static_cast<int>(bucket));
      Instruction ready;
      ready.verb = Verb::Ready, ready.other = static_cast<std::int32_t>(bucket);
      line_.push_back(ready);
    }
    spin(kind);
    add_if_any(Verb::Free, workspace_);
    if (inputs) add_if_any(Verb::Free, core_);
    if (weights) add_ports(Verb::Release, code_.in, true);
    if (inputs) {
      add_ports(Verb::Send, code_.in, false);
      for (const Port& port : code_.in)
        for (const PortTensor& tensor : port.tensors)
          add(Verb::Free, tensor.gradient);
    }
    if (weights) {  // what is there of them
      add_ports(Verb::Release, code_.out, false);
      for (const int block : {stash_, boundary_, rebuilt_})
        add_if_any(Verb::Free, block);
    }
    return std::move(line_);
  }

  const Figures& figures_;
  const ChunkMemory& memory_;
  ChunkCode code_;
  std::vector<Instruction> line_;
  std::map<LayerId, int> value_of_;  // block of a tensor that is received or sent
  std::vector<PortTensor> made_;     // here, of those that are sent; each once
  Both received_{};                  // bytes that lie in slots
  int stash_ = -1, boundary_ = -1, rebuilt_ = -1, core_ = -1, workspace_ = -1;
};

}  // namespace

std::vector<ChunkCode> compile_synthetic(const Plan& plan, const CostModel& cost, Bytes alignment) {
  const Scenario& scenario = cost.scenario();
  check_workers(plan, scenario.training);
  const std::array<LayerCosts, 2> layers = {cost.layers(plan.micro_batch_size),
                                            cost.layers(plan.last_micro_batch_size)};
  const Figures figures{plan,
                        scenario.model,
                        scenario.training,
                        alignment.value,
                        crossings(plan, scenario.model),
                        step_costs(plan, cost),
                        memory_of_stages(plan, cost, layers),
                        layers};
  std::vector<ChunkCode> chunks;
  for (VirtualStageId v = 0; v < plan.chunks(); ++v)
    chunks.push_back(TrafficCompiler(figures, v).compiled());
  return chunks;
}

}  // namespace pipewright::runtime
