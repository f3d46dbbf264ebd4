#include "io/launch/torch_layers.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.hpp"
#include "core/model/step_name.hpp"
#include "io/read/trained_as.hpp"
#include "io/text/quote.hpp"

namespace pipewright::io {
namespace {

constexpr std::string_view kHelpers = R"(def gated(activation, x):
    gate, value = x.chunk(2, -1)
    return activation(gate) * value


def attention(q, k, v, heads, key_heads, causal):
    q, k, v = (x.unflatten(-1, (n, -1)).transpose(1, 2) for x, n in ((q, heads), (k, key_heads), (v, key_heads)))
    queries, keys = q.shape[2], k.shape[2]
    mask = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries) if causal else None
    y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=heads != key_heads)
    return y.transpose(1, 2).flatten(2)

)";

constexpr std::string_view kExperts = R"(
class GroupedLinear(nn.Module):  # products of each expert's rows with a weight of its own
    def __init__(self, groups, width, features, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(groups, features, width).uniform_(-(width**-0.5), width**-0.5))
        self.bias = nn.Parameter(torch.zeros(groups, features)) if bias else None

    def forward(self, x):
        y = torch.einsum("bgrf,gof->bgro", x.unflatten(1, (self.weight.shape[0], -1)), self.weight)
        return (y if self.bias is None else y + self.bias[:, None]).flatten(1, 2)


def dispatch(x, experts, active):  # copy j of token t goes to expert (t active + j) mod experts
    return x.repeat_interleave(active, 1).unflatten(1, (-1, experts)).transpose(1, 2).flatten(1, 2)


def combine(rows, shares, active):
    tokens, experts = shares.shape[1:]
    rows = rows.unflatten(1, (experts, -1)).transpose(1, 2).flatten(1, 2).unflatten(1, (tokens, active))
    chosen = (torch.arange(tokens * active, device=rows.device) % experts).view(1, tokens, active)
    return (rows * shares.gather(2, chosen.expand(len(shares), -1, -1)).unsqueeze(-1)).sum(2)

)";

const Program& program_of(const Model& model, LayerId layer) {
  return *model.works[at(model.layers[layer].work)].program.get();
}

bool is_loss(const ProgramStep& step) {
  return step.operation == "cross_entropy";
}

std::string python_bool(bool value) {
  return value ? "True" : "False";
}

std::string sizes(const Shape& shape) {
  return fmt::format("{}", fmt::join(shape.dim.begin(), shape.dim.begin() + shape.rank, ", "));
}

std::string_view function_of(Activation kind) {
  switch (kind) {
    case Activation::Relu: return "torch.relu";
    case Activation::Gelu: return "nn.functional.gelu";
    case Activation::Silu: return "nn.functional.silu";
    case Activation::Tanh: return "torch.tanh";
    case Activation::Sigmoid: return "torch.sigmoid";
  }
  PP_CHECK(false);
  return "";
}

// One layer's class, written while its steps are read in order.
class LayerClass {
 public:
  LayerClass(const Program& program, double norm_epsilon) : program_(program), norm_epsilon_(norm_epsilon) {
    names_.resize(program.tensors.size());
    for (std::size_t i = 0; i < program.inputs.size(); ++i)
      names_[at(program.inputs[i])] = fmt::format("x{}", program.inputs[i]);
    for (std::size_t s = 0; s < program.steps.size(); ++s)
      if (!is_loss(program.steps[s])) add(s);
  }

  std::string text(std::string_view name) {
    const bool loss = !program_.steps.empty() && is_loss(program_.steps.back());
    const std::string returned = tensor(loss ? program_.steps.back().inputs[0] : program_.outputs[0]);
    std::vector<std::string> inputs;
    for (const std::int32_t input : program_.inputs)
      inputs.push_back(fmt::format("x{}", input));
    std::string text = fmt::format("class {}(nn.Module):\n", name);
    if (!modules_.empty()) text += "    def __init__(self):\n        super().__init__()\n" + modules_ + "\n";
    return text + fmt::format("    def forward(self, {}):\n{}        return {}\n", fmt::join(inputs, ", "), forward_,
                              returned);
  }

 private:
  const Shape& shape(std::int32_t tensor) const { return program_.tensors[at(tensor)].shape; }

  // The tensor's name in `forward`; a view is named when it is first read.
  std::string tensor(std::int32_t number) {
    std::string& name = names_[at(number)];
    if (name.empty()) {
      const std::int32_t same = program_.tensors[at(number)].same_as;
      PP_CHECK(same >= 0);
      const std::string of = tensor(same);
      if (shape(number) == shape(same)) return names_[at(number)] = of;
      names_[at(number)] = fmt::format("x{}", number);
      forward_ += fmt::format("        x{} = {}.reshape(-1, {})\n", number, of, sizes(shape(number)));
    }
    return names_[at(number)];
  }

  void add(std::size_t s) {
    const ProgramStep& step = program_.steps[s];
    std::vector<std::string> x;
    for (const std::int32_t input : step.inputs)
      x.push_back(tensor(input));
    const std::string made = module(s);
    if (!made.empty())
      modules_ += fmt::format("        self.{} = {}{}\n", step_name(program_, s),
                              made.starts_with("GroupedLinear") ? "" : "nn.", made);
    const std::string self = "self." + step_name(program_, s);
    names_[at(step.output)] = fmt::format("x{}", step.output);
    forward_ += fmt::format("        x{} = {}\n", step.output, expression(step, x, self));
  }

  // What holds the step's parameters; "": it has none.
  std::string module(std::size_t s) const {
    const ProgramStep& step = program_.steps[s];
    const Shape &in = shape(step.inputs[0]), &out = shape(step.output);
    const std::int64_t width = in[in.rank - 1], features = out[out.rank - 1];
    if (const auto* linear = std::get_if<Linear>(&step.spec))
      return fmt::format("Linear({}, {}, bias={})", width, linear->features, python_bool(linear->bias));
    if (const auto* grouped = std::get_if<GroupedLinear>(&step.spec))
      return fmt::format("GroupedLinear({}, {}, {}, bias={})", grouped->groups, width, grouped->features,
                         python_bool(grouped->bias));
    if (const auto* conv = std::get_if<Conv2d>(&step.spec))
      return fmt::format("Conv2d({}, {}, ({}, {}), stride={}, padding=({}, {}), groups={}, bias={})", in[0],
                         conv->channels, conv->kernel_height, conv->kernel_width, conv->stride, conv->padding_height,
                         conv->padding_width, conv->groups, python_bool(conv->bias));
    if (const auto* table = std::get_if<Embedding>(&step.spec))
      return fmt::format("Embedding({}, {})", table->vocabulary, features);
    if (const auto* table = std::get_if<LearnedTable>(&step.spec))
      return fmt::format("Embedding({}, {})", table->rows, features);
    if (const auto* norm = std::get_if<NormSpec>(&step.spec))
      return norm->kind == Norm::Rms ? fmt::format("RMSNorm({}, eps={}, elementwise_affine={})", width, norm_epsilon_,
                                                   python_bool(norm->affine))
                                     : fmt::format("LayerNorm({}, eps={}, elementwise_affine={}, bias={})", width,
                                                   norm_epsilon_, python_bool(norm->affine), python_bool(norm->bias));
    return "";
  }

  std::string attention(const ProgramStep& step, const AttentionCore& core, const std::vector<std::string>& x) const {
    const std::int64_t q = core.heads * core.key_size, k = core.key_heads * core.key_size,
                       v = core.key_heads * core.value_size;
    const std::string parts = step.inputs.size() == 1   ? fmt::format("*{}.split(({}, {}, {}), -1)", x[0], q, k, v)
                              : step.inputs.size() == 2 ? fmt::format("{}, *{}.split(({}, {}), -1)", x[0], x[1], k, v)
                                                        : fmt::format("{}, {}, {}", x[0], x[1], x[2]);
    return fmt::format("attention({}, {}, {}, {})", parts, core.heads, core.key_heads, python_bool(core.causal));
  }

  std::string expression(const ProgramStep& step, const std::vector<std::string>& x, const std::string& self) const {
    const std::string_view operation = step.operation;
    const Shape& out = shape(step.output);
    if (operation == "learned_table") return fmt::format("{} + {}.weight[:{}.shape[1]]", x[0], self, x[0]);
    if (!module(at(&step - program_.steps.data())).empty()) return fmt::format("{}({})", self, x[0]);
    if (const auto* core = std::get_if<AttentionCore>(&step.spec)) return attention(step, *core, x);
    if (const auto* kind = std::get_if<Activation>(&step.spec)) return fmt::format("{}({})", function_of(*kind), x[0]);
    if (const auto* gate = std::get_if<GatedActivation>(&step.spec))
      return fmt::format("gated({}, {})", function_of(gate->kind), x[0]);
    if (const auto* pool = std::get_if<PoolSpec>(&step.spec))
      return fmt::format("nn.functional.{}({}, {}, {}, {}, ceil_mode={}{})",
                         pool->kind == Pool::Max ? "max_pool2d" : "avg_pool2d", x[0], pool->kernel, pool->stride,
                         pool->padding, python_bool(pool->ceil),
                         pool->kind == Pool::Max ? "" : ", count_include_pad=False");
    if (const auto* rows = std::get_if<ExpertRows>(&step.spec))
      return operation == "dispatch" ? fmt::format("dispatch({}, {}, {})", x[0], rows->experts, rows->active)
                                     : fmt::format("combine({}, {}, {})", x[0], x[1], rows->active);
    if (operation == "softmax") return fmt::format("torch.softmax({}, -1)", x[0]);
    if (operation == "add") return fmt::format("{} + {}", x[0], x[1]);
    if (operation == "multiply") return fmt::format("{} * {}", x[0], x[1]);
    if (operation == "concat") return fmt::format("torch.cat(({}), {})", fmt::join(x, ", "), out.rank == 3 ? 1 : -1);
    if (operation == "global_average_pool") return fmt::format("{}.mean((2, 3))", x[0]);
    if (operation == "image_to_tokens") return fmt::format("{}.flatten(2).transpose(1, 2)", x[0]);
    if (operation == "slice") {
      if (shape(step.inputs[0]).rank != out.rank)
        return fmt::format("{}.flatten(1)[:, :{}].reshape(-1, {})", x[0], static_cast<std::int64_t>(out.elements()),
                           sizes(out));
      std::string cut;
      for (int axis = 0; axis < out.rank; ++axis)
        cut += fmt::format(", :{}", out[axis]);
      return fmt::format("{}[:{}]", x[0], cut);
    }
    PP_CHECK(false);  // layers_refused names what a run cannot compute
    return "";
  }

  const Program& program_;
  double norm_epsilon_;
  std::vector<std::string> names_;
  std::string modules_, forward_;
};

constexpr double kNormEpsilonOfRuns = 1e-5;

}  // namespace

TorchLayers torch_layers(const Model& model) {
  TorchLayers layers;
  layers.classes = kHelpers;
  const auto has_experts = [](const Work& work) {
    const Program* const program = work.program.get();
    return program != nullptr && std::ranges::any_of(program->steps, [](const ProgramStep& step) {
             return std::holds_alternative<GroupedLinear>(step.spec);
           });
  };
  if (std::ranges::any_of(model.works, has_experts)) layers.classes += kExperts;
  std::vector<const Program*> written;
  std::vector<std::string> built;
  for (LayerId i = 0; i < std::ssize(model.layers); ++i) {
    const Program& program = program_of(model, i);
    const auto found = std::ranges::find_if(written, [&](const Program* w) { return *w == program; });
    const std::string name = fmt::format("Layer{}", found - written.begin());
    built.push_back(name);
    if (found != written.end()) continue;
    written.push_back(&program);
    layers.classes +=
        fmt::format("\n{}{}\n", comment(model.layers[i].name),
                    LayerClass(program, trained_as(model).norm_epsilon.value_or(kNormEpsilonOfRuns)).text(name));
    if (layers.input.empty() && model.layers[i].inputs.empty()) {
      const ProgramTensor& input = program.tensors[at(program.inputs[0])];
      std::int64_t vocabulary = 0;
      for (const ProgramStep& step : program.steps)
        if (const auto* table = std::get_if<Embedding>(&step.spec)) vocabulary = table->vocabulary;
      layers.input = input.indices ? fmt::format("torch.randint({}, (samples, {}))", vocabulary, sizes(input.shape))
                                   : fmt::format("torch.randn(samples, {})", sizes(input.shape));
    }
    if (!program.steps.empty() && is_loss(program.steps.back())) {
      Shape logits = program.tensors[at(program.steps.back().inputs[0])].shape;
      const std::int64_t classes = logits[logits.rank - 1];
      --logits.rank;
      layers.labels =
          fmt::format("torch.randint({}, (samples,{}{}))", classes, logits.rank > 0 ? " " : "", sizes(logits));
    }
  }
  layers.classes += fmt::format("\nBUILT = [{}]\n", fmt::join(built, ", "));
  return layers;
}

std::string torch_inputs(const Model& model) {
  std::vector<std::string> inputs;
  for (const Layer& layer : model.layers)
    inputs.push_back(fmt::format("({}{})", fmt::join(layer.inputs, ", "), layer.inputs.size() == 1 ? "," : ""));
  return fmt::format("INPUTS = [{}]  # layers whose output each takes; none: the model's own input\n",
                     fmt::join(inputs, ", "));
}

}  // namespace pipewright::io
