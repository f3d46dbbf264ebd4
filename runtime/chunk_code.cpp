#include "runtime/chunk_code.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "core/check.hpp"
#include "core/cost/buckets.hpp"
#include "core/cost/cost_model.hpp"
#include "core/model/each_device.hpp"
#include "runtime/attention_lines.hpp"
#include "runtime/crossings.hpp"
#include "runtime/runnable.hpp"

namespace pipewright::runtime {
namespace {

// ---- one virtual stage ----------------------------------------------------------------------------------------------

constexpr std::int64_t kLossBytes = 4;  // fp32, whatever tensors are stored in

// A tensor as this stage sees it, views joined with what they are views of.
struct Tensor {
  std::array<std::int64_t, 2> bytes{};
  bool needs_gradient = false;
  bool received = false;  // lies in a message
  bool model_input = false;
  int maker = -1;                             // step
  std::vector<std::pair<int, int>> users;     // step, place among its inputs; ascending
  int value = -1;                             // block
  int gradient = -1;                          // block of the sum
  std::vector<std::pair<int, int>> arriving;  // out port, place in it
  bool leaves = false;                        // sent on
};

class ChunkCompiler {
 public:
  ChunkCompiler(const Plan& plan, const Model& model, const Training& training, const Backend& backend,
                VirtualStageId v, const std::vector<Crossing>& crossings)
      : plan_(plan), model_(model), training_(training), backend_(backend), range_(plan.layers[v]) {
    code_.virtual_stage = v, code_.part.of = plan.context_parallel * static_cast<int>(plan.slices_of_each());
    code_.value_bytes = weight_bytes(training.precision).value;
    samples_ = {plan.micro_batch_size, plan.last_micro_batch_size};
    add_ports(crossings);
    for (LayerId i = range_.begin; i < range_.end; ++i)
      add_layer(i);
    bind_ports();
    add_buckets();
    bind_gradients();
  }

  ChunkCode compiled() {
    code_.forward = forward(Keep::Needed, Tag::Stash, false);
    code_.forward_boundary = forward(Keep::Boundary, Tag::Stash, false);
    code_.rebuild = forward(Keep::Needed, Tag::Recompute, true);
    code_.backward = backward(true, true);
    code_.backward_input = backward(true, false);
    code_.backward_weight = backward(false, true);
    for (Port& port : code_.in)
      port.kept = port_kept(port);
    return std::move(code_);
  }

 private:
  enum class Keep { Needed, Boundary };

  int block(std::array<std::int64_t, 2> bytes) {
    code_.blocks.push_back(bytes);
    return static_cast<int>(code_.blocks.size()) - 1;
  }
  std::array<std::int64_t, 2> for_samples(std::int64_t per_sample) const {
    return {per_sample * samples_[0], per_sample * samples_[1]};
  }

  void add_ports(const std::vector<Crossing>& crossings) {
    for (std::size_t e = 0; e < crossings.size(); ++e) {
      const Crossing& crossing = crossings[e];
      if (crossing.from != code_.virtual_stage && crossing.to != code_.virtual_stage) continue;
      const bool in = crossing.to == code_.virtual_stage;
      Port port{static_cast<int>(e), in ? crossing.from : crossing.to, {}, {}, {}};
      for (const LayerId layer : crossing.layers) {
        const Program& program = *program_of(layer);
        const ProgramTensor& made = program.tensors[at(program.outputs[0])];
        PortTensor tensor;
        tensor.layer = layer;
        tensor.bytes = for_samples(tensor_bytes(made, code_.value_bytes));
        for (std::size_t size = 0; size < 2; ++size) {
          tensor.offset[size] = port.bytes[size];
          port.bytes[size] += rounded_up(tensor.bytes[size], backend_.alignment().value);
          if (!made.needs_gradient) continue;
          tensor.gradient_offset[size] = port.gradient_bytes[size];
          port.gradient_bytes[size] += rounded_up(tensor.bytes[size], backend_.alignment().value);
        }
        if (in) {
          Tensor received;
          received.bytes = tensor.bytes, received.needs_gradient = made.needs_gradient, received.received = true;
          received.value = tensor.value = block({});
          // Two edges never bring one tensor: each comes from where it was made, or from the stage before.
          of_layer_[layer] = add(received);
        }
        port.tensors.push_back(tensor);
      }
      (in ? code_.in : code_.out).push_back(std::move(port));
    }
  }

  const std::shared_ptr<const Program>& program_of(LayerId layer) const {
    const Layer& of = model_.layers[layer];
    return model_.works[at(of.work)].program.shared();
  }

  int add(Tensor tensor) {
    tensors_.push_back(std::move(tensor));
    return static_cast<int>(tensors_.size()) - 1;
  }

  int model_input(const ProgramTensor& tensor) {
    if (input_ >= 0) return input_;
    Tensor input;
    input.bytes = for_samples(tensor_bytes(tensor, code_.value_bytes));
    input.model_input = true;
    input.value = block(input.bytes);
    code_.sample_values = static_cast<std::int64_t>(tensor.shape.elements());
    code_.sample_indices = tensor.indices;
    code_.part.tokens = tensor.shape[0];
    return input_ = add(input);
  }

  void add_layer(LayerId id) {
    const Layer& layer = model_.layers[id];
    const Program& program = *program_of(id);
    std::vector<int> here(program.tensors.size(), -1);  // tensor of this stage, by tensor of the program
    for (std::size_t i = 0; i < program.inputs.size(); ++i) {
      const auto input = at(program.inputs[i]);
      here[input] = layer.inputs.empty() ? model_input(program.tensors[input]) : of_layer_.at(layer.inputs[i]);
    }
    std::vector<char> made(program.tensors.size());
    for (const ProgramStep& step : program.steps)
      made[at(step.output)] = 1;
    const auto resolve = [&](std::int32_t tensor) {
      auto t = at(tensor);
      while (here[t] < 0 && made[t] == 0 && program.tensors[t].same_as >= 0)
        t = at(program.tensors[t].same_as);
      PP_CHECK(here[t] >= 0);
      return here[at(tensor)] = here[t];
    };
    for (const ProgramStep& step : program.steps) {
      std::vector<int> inputs;
      for (const std::int32_t input : step.inputs)
        inputs.push_back(resolve(input));
      here[at(step.output)] = add_step(id, program, step, inputs);
    }
    of_layer_[id] = resolve(program.outputs[0]);
  }

  int add_step(LayerId layer, const Program& program, const ProgramStep& step, const std::vector<int>& inputs) {
    const auto number = static_cast<int>(code_.steps.size());
    const ProgramTensor& out = program.tensors[at(step.output)];
    Tensor output;
    output.bytes = for_samples(tensor_bytes(out, step.operation == "cross_entropy" ? kLossBytes : code_.value_bytes));
    output.needs_gradient = out.needs_gradient;
    output.maker = number;
    output.value = block(output.bytes);
    CodeStep code;
    code.program = program_of(layer), code.step = &step, code.layer = layer, code.output = output.value;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor& input = tensors_[at(inputs[i])];
      input.users.emplace_back(number, static_cast<int>(i));
      code.inputs.push_back(input.value);
    }
    if (const std::int64_t saved = saved_bytes(program, step, code_.value_bytes); saved > 0)
      code.saved = block(for_samples(saved));
    if (step.operation == "cross_entropy") {
      const ProgramTensor& logits = program.tensors[at(step.inputs[0])];
      code_.classes = logits.shape[logits.shape.rank - 1];
      code_.label_rows = static_cast<std::int64_t>(logits.shape.elements()) / code_.classes;
      code.labels = block(for_samples(8 * code_.label_rows));
    }
    if (const auto* core = std::get_if<AttentionCore>(&step.spec); core != nullptr && core->parts > 1)
      code.ring = ring_of(*core);
    if (const RowExchange* const exchange = code.exchange())
      for (std::size_t size = 0; size < 2; ++size)
        code_.exchange_bytes[size] =
            std::max(code_.exchange_bytes[size], rounded_up(output.bytes[size] / exchange->devices, 4));
    for (int pass = 0; pass < 3 && code.exchange() == nullptr; ++pass) {
      std::array<std::int64_t, 2> bytes{};
      for (std::size_t size = 0; size < 2; ++size)
        bytes[size] = backend_.workspace(program, step, samples_[size], static_cast<Pass>(pass)).value;
      if (std::max(bytes[0], bytes[1]) > 0) code.scratch[at(pass)] = block(bytes);
    }
    code.first_parameter = static_cast<int>(code_.parameters.size());
    for (const ParameterTensor& parameter : parameters_of(program, step)) {
      const bool of_experts = plan_.split().sends_tokens() && std::holds_alternative<GroupedLinear>(step.spec);
      code_.parameters.push_back({parameter, layer, code_.parameter_bytes, code_.gradient_bytes, of_experts});
      code_.parameter_bytes += rounded_up(code_.value_bytes * parameter.elements, backend_.alignment().value);
      code_.gradient_bytes += rounded_up(4 * parameter.elements, backend_.alignment().value);
    }
    code_.state_bytes = code_.gradient_bytes;
    code.parameters = static_cast<int>(code_.parameters.size()) - code.first_parameter;
    code_.steps.push_back(std::move(code));
    tensor_of_step_.push_back(inputs);
    return made_by_.emplace_back(add(output));
  }

  RingStep ring_of(const AttentionCore& core) {
    RingStep ring;
    ring.parts = core.parts;
    ring.bytes = for_samples(code_.value_bytes * core.keys * core.key_heads * (core.key_size + core.value_size));
    ring.slices = plan_.slices_of_each() > 1;
    ring.keys = block(ring.bytes);
    if (ring.slices)
      ring.gradients = block(ring.bytes);
    else
      ring.keys_and_gradients = block({}), ring.arrived = block({});
    return ring;
  }

  void bind_ports() {
    for (std::size_t p = 0; p < code_.out.size(); ++p)
      for (std::size_t i = 0; i < code_.out[p].tensors.size(); ++i) {
        PortTensor& sent = code_.out[p].tensors[i];
        Tensor& tensor = tensors_[at(of_layer_.at(sent.layer))];
        sent.value = tensor.value;
        tensor.leaves = true;
        if (!tensor.needs_gradient) continue;
        sent.gradient = block({});
        tensor.arriving.emplace_back(static_cast<int>(p), static_cast<int>(i));
      }
  }

  // Buckets of whole layers from the last one backwards; parameters lie in the order of the layers.
  void add_buckets() {
    const auto all = buckets(plan_, code_.virtual_stage, range_, model_, training_);
    for (const Bucket& bucket : all) {
      const auto first =
          std::ranges::find_if(code_.parameters, [&](const CodeParameter& p) { return p.layer >= bucket.first_layer; });
      code_.bucket_begin.push_back(first == code_.parameters.end() ? code_.gradient_bytes : first->offset);
    }
    // Parameters before the first layer of the last bucket do not exist; it takes the rest.
    if (!code_.bucket_begin.empty()) code_.bucket_begin.back() = 0;
  }

  const OperationRule& rule(int step) const {
    const CodeStep& code = code_.steps[at(step)];
    return rule_of(*code.program, *code.step);
  }
  bool trains(int step) const { return code_.steps[at(step)].parameters > 0; }
  bool hands_back(int step) const {  // some input needs a gradient
    const auto& inputs = tensor_of_step_[at(step)];
    return std::ranges::any_of(inputs, [&](int t) { return tensors_[at(t)].needs_gradient; });
  }
  bool is_loss(int step) const { return code_.steps[at(step)].labels >= 0; }
  // Whether the step's output has a gradient at all: a user in this stage that hands one back, or one that arrives.
  bool reached(const Tensor& tensor) const { return tensor.gradient >= 0; }

  // ---- which steps read what in the backward

  bool read_by_input_gradient(int step, const Tensor& tensor, bool as_output) const {
    if (!hands_back(step) || !active(step)) return false;
    return as_output ? rule(step).gradient_reads_output && code_.steps[at(step)].output == tensor.value
                     : rule(step).gradient_reads_inputs;
  }
  bool read_by_weight_gradient(int step) const {
    return trains(step) && active(step) && rule(step).weights_read_inputs;
  }
  // A step takes part in the backward when a gradient of its output exists, or when it is the loss.
  bool active(int step) const { return is_loss(step) || reached(tensors_[at(made_by_[at(step)])]); }

  // The backward runs from the last step to the first: the reader with the smallest number is the last. -1: none.
  int last_input_reader(const Tensor& tensor) const {
    int last = -1;
    const auto see = [&](int step) { last = last < 0 ? step : std::min(last, step); };
    for (const auto& [step, place] : tensor.users)
      if (read_by_input_gradient(step, tensor, false)) see(step);
    if (tensor.maker >= 0 && read_by_input_gradient(tensor.maker, tensor, true)) see(tensor.maker);
    return last;
  }
  int last_weight_reader(const Tensor& tensor) const {
    int last = -1;
    for (const auto& [step, place] : tensor.users)
      if (read_by_weight_gradient(step)) last = last < 0 ? step : std::min(last, step);
    return last;
  }
  bool kept(const Tensor& tensor) const { return last_input_reader(tensor) >= 0 || last_weight_reader(tensor) >= 0; }
  bool saved_for_input(int step) const { return active(step) && hands_back(step) && rule(step).gradient_reads_saved; }
  bool saved_for_weight(int step) const { return active(step) && trains(step) && rule(step).weights_read_saved; }

  // ---- gradients

  // Users that hand a gradient back, in the order of the backward: the last step first.
  std::vector<std::pair<int, int>> givers(const Tensor& tensor) const {
    std::vector<std::pair<int, int>> list;
    for (auto user = tensor.users.rbegin(); user != tensor.users.rend(); ++user)
      if (active(user->first)) list.push_back(*user);
    return list;
  }

  // Tensors from the last to the first, so that `active` of later steps is known.
  void bind_gradients() {
    for (std::size_t t = tensors_.size(); t-- > 0;) {
      Tensor& tensor = tensors_[t];
      if (!tensor.needs_gradient) continue;
      const std::size_t sources = givers(tensor).size() + tensor.arriving.size();
      if (sources == 0) continue;
      if (sources == 1 && !tensor.arriving.empty())
        tensor.gradient = arriving_block(tensor, 0);
      else
        tensor.gradient = block(tensor.bytes);
      if (tensor.maker >= 0) code_.steps[at(tensor.maker)].output_gradient = tensor.gradient;
    }
    for (std::size_t s = 0; s < code_.steps.size(); ++s) {
      CodeStep& step = code_.steps[s];
      step.input_gradients.assign(step.inputs.size(), -1);
      if (!active(static_cast<int>(s))) continue;
      for (std::size_t i = 0; i < step.inputs.size(); ++i) {
        const Tensor& tensor = tensors_[at(tensor_of_step_[s][i])];
        if (!tensor.needs_gradient) continue;
        const auto list = givers(tensor);
        const bool first =
            tensor.arriving.empty() && list.front() == std::pair(static_cast<int>(s), static_cast<int>(i));
        step.input_gradients[i] = first ? tensor.gradient : block(tensor.bytes);
      }
    }
    for (Port& port : code_.in)
      for (PortTensor& sent : port.tensors) {
        Tensor& tensor = tensors_[at(of_layer_.at(sent.layer))];
        if (!tensor.needs_gradient) continue;
        if (tensor.gradient < 0) tensor.gradient = block(tensor.bytes), zeroed_.push_back(tensor.gradient);
        sent.gradient = tensor.gradient;
      }
  }
  int arriving_block(const Tensor& tensor, std::size_t i) const {
    const auto [port, place] = tensor.arriving[i];
    return code_.out[at(port)].tensors[at(place)].gradient;
  }
  bool lies_in_message(const Tensor& tensor) const {
    return !tensor.arriving.empty() && tensor.gradient == arriving_block(tensor, 0);
  }
  // With a split backward the gradient of a trained step's output stays for W.
  bool waits_for_weights(const Tensor& tensor) const { return tensor.maker >= 0 && trains(tensor.maker); }

  // ---- the lines

  static Instruction make(Verb verb, int block, Tag tag = Tag::Workspace) {
    Instruction i;
    i.verb = verb, i.block = block, i.tag = tag;
    return i;
  }
  static Instruction at_port(Verb verb, std::size_t port, bool forward) {
    Instruction i;
    i.verb = verb, i.other = static_cast<std::int32_t>(port), i.forward = forward;
    return i;
  }
  static Instruction at_step(Verb verb, std::size_t step) {
    Instruction i;
    i.verb = verb, i.step = static_cast<std::int32_t>(step);
    return i;
  }

  bool input_kept() const { return input_ >= 0 && kept(tensors_[at(input_)]); }
  bool port_kept(const Port& port) const {
    return std::ranges::any_of(port.tensors,
                               [&](const PortTensor& t) { return kept(tensors_[at(of_layer_.at(t.layer))]); });
  }

  std::vector<Instruction> forward(Keep keep, Tag tag, bool again) {
    std::vector<Instruction> line;
    const bool all = keep == Keep::Needed;
    if (!again)
      for (std::size_t p = 0; p < code_.in.size(); ++p)
        line.push_back(at_port(Verb::Receive, p, true));
    if (input_ >= 0 && !again) {
      // The boundary stays as long as the forward is to be run again.
      const Tensor& input = tensors_[at(input_)];
      line.push_back(make(Verb::Allocate, input.value, !all || input_kept() ? Tag::Stash : Tag::Workspace));
      line.push_back(make(Verb::LoadInput, input.value));
    }
    std::vector<int> waiting;  // sent at the end, then free
    const auto done_with = [&](const Tensor& tensor) {
      if (tensor.received || (all && kept(tensor))) return;
      if (tensor.model_input && (!all || again)) return;
      if (tensor.leaves && !again)
        waiting.push_back(tensor.value);
      else
        line.push_back(make(Verb::Free, tensor.value));
    };
    for (std::size_t s = 0; s < code_.steps.size(); ++s) {
      const CodeStep& step = code_.steps[s];
      const Tensor& output = tensors_[at(made_by_[s])];
      const bool keeps_saved = all && (saved_for_input(static_cast<int>(s)) || saved_for_weight(static_cast<int>(s)));
      line.push_back(make(Verb::Allocate, output.value, all && kept(output) ? tag : Tag::Workspace));
      if (step.saved >= 0) line.push_back(make(Verb::Allocate, step.saved, keeps_saved ? tag : Tag::Workspace));
      if (step.labels >= 0) {
        line.push_back(make(Verb::Allocate, step.labels));
        line.push_back(make(Verb::LoadLabels, step.labels));
      }
      const int scratch = step.scratch[at(Pass::Forward)];
      if (scratch >= 0) line.push_back(make(Verb::Allocate, scratch));
      if (step.ring.parts > 0)
        add_attention_forward(line, s, step.ring, again);
      else if (step.exchange() != nullptr)
        add_exchange(line, s, true, step.inputs[0], step.output);
      else
        line.push_back(at_step(Verb::Forward, s));
      if (scratch >= 0) line.push_back(make(Verb::Free, scratch));
      if (step.labels >= 0) line.push_back(make(Verb::Free, step.labels));
      if (step.labels >= 0 && !again) line.push_back(make(Verb::Loss, step.output));
      if (step.saved >= 0 && !keeps_saved) line.push_back(make(Verb::Free, step.saved));
      std::set<int> seen;
      for (const int t : tensor_of_step_[s]) {
        const Tensor& tensor = tensors_[at(t)];
        if (tensor.users.back().first == static_cast<int>(s) && seen.insert(t).second) done_with(tensor);
      }
      if (output.users.empty()) done_with(output);
    }
    if (again) return line;
    for (std::size_t p = 0; p < code_.out.size(); ++p)
      line.push_back(at_port(Verb::Send, p, true));
    for (const int block : waiting)
      line.push_back(make(Verb::Free, block));
    for (std::size_t p = 0; p < code_.in.size(); ++p)
      if (all && !port_kept(code_.in[p])) line.push_back(at_port(Verb::Release, p, true));
    return line;
  }

  // gradients of inputs, of weights, or both.
  std::vector<Instruction> backward(bool inputs, bool weights) {
    std::vector<Instruction> line;
    const bool split = inputs != weights;
    if (inputs) {
      for (std::size_t p = 0; p < code_.out.size(); ++p)
        if (code_.out[p].gradient_bytes[0] > 0) line.push_back(at_port(Verb::Receive, p, false));
      for (const Tensor& tensor : tensors_)
        if (tensor.gradient >= 0 && !lies_in_message(tensor))
          for (std::size_t i = 0; i < tensor.arriving.size(); ++i) {
            if (i == 0)
              line.push_back(make(Verb::Allocate, tensor.gradient,
                                  split && waits_for_weights(tensor) ? Tag::Stash : Tag::Workspace));
            Instruction sum = make(i == 0 ? Verb::Copy : Verb::Add, tensor.gradient);
            sum.other = arriving_block(tensor, i);
            line.push_back(sum);
          }
      for (const int block : zeroed_)
        line.push_back(make(Verb::Allocate, block)), line.push_back(make(Verb::Zero, block));
    }
    std::size_t next_bucket = 0;
    for (std::size_t s = code_.steps.size(); s-- > 0;) {
      const auto id = static_cast<int>(s);
      if (active(id)) {
        if (inputs && hands_back(id)) add_input_gradient(line, s, split);
        if (weights && trains(id)) add_weight_gradient(line, s);
      }
      if (weights) next_bucket = add_ready(line, s, next_bucket);
      free_behind(line, s, inputs, weights);
    }
    if (weights)  // before the gradients go: whoever has received them finds the slot free
      for (std::size_t p = 0; p < code_.in.size(); ++p)
        line.push_back(at_port(Verb::Release, p, true));  // the executor knows whether the forward kept it
    if (inputs) {
      for (std::size_t p = 0; p < code_.in.size(); ++p)
        if (code_.in[p].gradient_bytes[0] > 0) line.push_back(at_port(Verb::Send, p, false));
      for (const Tensor& tensor : tensors_)
        if (tensor.received && tensor.gradient >= 0 && !lies_in_message(tensor))
          line.push_back(make(Verb::Free, tensor.gradient));
    }
    if (weights) {  // a split backward gives slots back when W has read them
      for (std::size_t p = 0; p < code_.out.size(); ++p)
        if (code_.out[p].gradient_bytes[0] > 0) line.push_back(at_port(Verb::Release, p, false));
      if (input_ >= 0) line.push_back(make(Verb::Free, tensors_[at(input_)].value));
    }
    return line;
  }

  void add_input_gradient(std::vector<Instruction>& line, std::size_t s, bool split) {
    const CodeStep& step = code_.steps[s];
    std::vector<std::pair<int, int>> temporary;  // block, sum
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const int target = step.input_gradients[i];
      if (target < 0) continue;
      const Tensor& tensor = tensors_[at(tensor_of_step_[s][i])];
      const bool first = target == tensor.gradient;
      line.push_back(
          make(Verb::Allocate, target, first && split && waits_for_weights(tensor) ? Tag::Stash : Tag::Workspace));
      if (!first) temporary.emplace_back(target, tensor.gradient);
    }
    const int scratch = step.scratch[at(Pass::InputGradient)];
    if (scratch >= 0) line.push_back(make(Verb::Allocate, scratch));
    if (step.ring.parts > 0)
      add_attention_backward(line, s, step.ring);
    else if (step.exchange() != nullptr)
      add_exchange(line, s, false, step.output_gradient, step.input_gradients[0]);
    else
      line.push_back(at_step(Verb::InputGradient, s));
    if (scratch >= 0) line.push_back(make(Verb::Free, scratch));
    for (const auto& [from, sum] : temporary) {
      Instruction add = make(Verb::Add, sum);
      add.other = from;
      line.push_back(add);
      line.push_back(make(Verb::Free, from));
    }
  }

  static void add_exchange(std::vector<Instruction>& line, std::size_t s, bool forward, int from, int to) {
    for (const Verb verb : {Verb::ExchangeSend, Verb::ExchangeReceive}) {
      Instruction& i = line.emplace_back(at_step(verb, s));
      i.block = from, i.other = to, i.forward = forward;
    }
  }

  void add_weight_gradient(std::vector<Instruction>& line, std::size_t s) {
    const int scratch = code_.steps[s].scratch[at(Pass::WeightGradient)];
    if (scratch >= 0) line.push_back(make(Verb::Allocate, scratch));
    line.push_back(at_step(Verb::WeightGradient, s));
    if (scratch >= 0) line.push_back(make(Verb::Free, scratch));
  }

  // A bucket is complete when the weight gradients of its first parameter's step are.
  std::size_t add_ready(std::vector<Instruction>& line, std::size_t s, std::size_t next) {
    const std::int64_t left = code_.steps[s].first_parameter < static_cast<int>(code_.parameters.size())
                                  ? code_.parameters[at(code_.steps[s].first_parameter)].offset
                                  : code_.gradient_bytes;
    while (next < code_.bucket_begin.size() && (left <= code_.bucket_begin[next] || s == 0)) {
      Instruction ready;
      ready.verb = Verb::Ready, ready.other = static_cast<std::int32_t>(next++);
      line.push_back(ready);
    }
    return next;
  }

  // What step s was the last to read.
  void free_behind(std::vector<Instruction>& line, std::size_t s, bool inputs, bool weights) {
    const auto id = static_cast<int>(s);
    const CodeStep& step = code_.steps[s];
    const bool both = inputs && weights;
    // Gradient of the output.
    const Tensor& output = tensors_[at(made_by_[s])];
    if (output.gradient >= 0 && !lies_in_message(output)) {
      const bool later = !both && trains(id);
      if (later ? weights : inputs) line.push_back(make(Verb::Free, output.gradient));
    }
    // What the forward saved.
    if (step.saved >= 0) {
      const bool by_input = saved_for_input(id), by_weight = saved_for_weight(id);
      if ((both && (by_input || by_weight)) || (!both && weights && by_weight) ||
          (!both && inputs && by_input && !by_weight))
        line.push_back(make(Verb::Free, step.saved));
    }
    // Values: each tensor that this step reads or makes.
    std::set<int> candidates(tensor_of_step_[s].begin(), tensor_of_step_[s].end());
    candidates.insert(made_by_[s]);
    for (const int t : candidates) {
      const Tensor& tensor = tensors_[at(t)];
      if (tensor.received || tensor.model_input) continue;
      const int by_input = last_input_reader(tensor), by_weight = last_weight_reader(tensor);
      int last = -1;
      if (both)
        last = by_input < 0 ? by_weight : by_weight < 0 ? by_input : std::min(by_input, by_weight);
      else if (weights)
        last = by_weight;
      else if (by_weight < 0)
        last = by_input;
      if (last == id) line.push_back(make(Verb::Free, tensor.value));
    }
  }

  const Plan& plan_;
  const Model& model_;
  const Training& training_;
  const Backend& backend_;
  LayerRange range_;
  std::array<std::int64_t, 2> samples_{};
  ChunkCode code_;
  std::vector<Tensor> tensors_;
  std::map<LayerId, int> of_layer_;
  std::vector<std::vector<int>> tensor_of_step_;  // inputs
  std::vector<int> made_by_;                      // tensor that a step makes
  std::vector<int> zeroed_;                       // gradients that nobody gives: sent back as zeros
  int input_ = -1;
};

// In the messages of all rings alike.
void place_gradients_of_keys(std::vector<ChunkCode>& chunks, std::int64_t alignment) {
  std::int64_t keys = 0;
  for (const ChunkCode& code : chunks)
    for (const CodeStep& step : code.steps)
      keys = std::max(keys, rounded_up(std::max(step.ring.bytes[0], step.ring.bytes[1]), alignment));
  for (ChunkCode& code : chunks)
    for (CodeStep& step : code.steps)
      for (std::size_t size = 0; step.ring.parts > 0 && !step.ring.slices && size < 2; ++size) {
        step.ring.gradients_at = keys;
        const std::int64_t both = keys + step.ring.bytes[size];
        code.blocks[at(step.ring.keys_and_gradients)][size] = both;
        code.part.ring_bytes[size] = std::max(code.part.ring_bytes[size], both);
      }
}

std::vector<ChunkCode> compiled(const Plan& plan, const Model& model, const Training& training,
                                const Backend& backend) {
  const std::vector<Crossing> edges = crossings(plan, model);
  std::vector<ChunkCode> chunks;
  for (VirtualStageId v = 0; v < plan.chunks(); ++v)
    chunks.push_back(ChunkCompiler(plan, model, training, backend, v, edges).compiled());
  place_gradients_of_keys(chunks, backend.alignment().value);
  return chunks;
}

}  // namespace

const std::vector<Instruction>& ChunkCode::line(Kind kind, bool recomputed) const {
  switch (kind) {
    case Kind::F: return recomputed ? forward_boundary : forward;
    case Kind::R: return rebuild;
    case Kind::BW: return backward;
    case Kind::B: return backward_input;
    case Kind::W: return backward_weight;
    default: break;
  }
  check_failed("a compute op of a virtual stage", __FILE__, __LINE__);
}

std::vector<ExchangeRun> exchange_runs(const CodeStep& step, bool out, bool received, int peer, std::int64_t samples,
                                       std::int64_t value_bytes) {
  const RowExchange& exchange = *step.exchange();
  const Shape& shape = step.program->tensors[at(step.step->output)].shape;
  const std::int64_t devices = exchange.devices, own = exchange.experts / devices,
                     each = shape[0] / exchange.experts * shape[1] * value_bytes;  // of one expert and device
  const bool by_expert = out != received;  // rows of all experts of one device, else of one device for its experts
  std::vector<ExchangeRun> runs;
  for (std::int64_t s = 0; s < samples; ++s)
    for (std::int64_t e = 0; e < own; ++e) {
      const std::int64_t in_block = by_expert ? s * exchange.experts + peer * own + e : (s * own + e) * devices + peer;
      runs.push_back({in_block * each, (s * own + e) * each, each});
    }
  return runs;
}

std::vector<ChunkCode> compile(const Plan& plan, const Model& model, const Training& training, const Backend& backend) {
  check_runnable(plan, model, training, backend);
  return compiled(
      plan, of_each_device(model, plan.context_parallel, plan.expert_parallel, static_cast<int>(plan.slices_of_each())),
      training, backend);
}

}  // namespace pipewright::runtime
