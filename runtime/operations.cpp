#include "runtime/operations.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/folds.hpp"
#include "core/ids.hpp"

namespace pipewright::runtime {

namespace {

constexpr std::int64_t kStatisticBytes = 4;  // fp32, and positions
constexpr std::int64_t kIndexBytes = 8;      // token numbers

using Parameters = std::vector<ParameterTensor>;

const Shape& input_shape(const Program& program, const ProgramStep& step, std::size_t which = 0) {
  PP_CHECK(which < step.inputs.size());
  return program.tensors[at(step.inputs[which])].shape;
}
const Shape& output_shape(const Program& program, const ProgramStep& step) {
  PP_CHECK(step.output >= 0);
  return program.tensors[at(step.output)].shape;
}
std::int64_t element_count(const Shape& shape) {
  return static_cast<std::int64_t>(shape.elements());  // at most 1e15: exact
}
std::int64_t width(const Shape& shape) {
  return shape[shape.rank - 1];
}
std::int64_t rows(const Shape& shape) {
  return element_count(shape) / width(shape);
}
template <class Spec>
const Spec& spec_of(const ProgramStep& step) {
  const Spec* const spec = std::get_if<Spec>(&step.spec);
  PP_CHECK(spec != nullptr);
  return *spec;
}

// ---- parameters -----------------------------------------------------------------------------------------------------

// Weight and bias of linear and conv2d: uniform within 1 / sqrt(inputs of an output value), as PyTorch's nn.Linear and
// nn.Conv2d (kaiming_uniform_ with a = sqrt(5)). 64 inputs: within 0.125.
Parameters product_parameters(std::int64_t weights, std::int64_t fan_in, std::int64_t biases) {
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  Parameters out = {{"weight", weights, Initial::Uniform, bound}};
  if (biases > 0) out.push_back({"bias", biases, Initial::Uniform, bound});
  return out;
}
Parameters linear_parameters(const Program& program, const ProgramStep& step) {
  const auto& linear = spec_of<Linear>(step);
  const std::int64_t fan_in = width(input_shape(program, step));
  return product_parameters(fan_in * linear.features, fan_in, linear.bias ? linear.features : 0);
}
Parameters conv2d_parameters(const Program& program, const ProgramStep& step) {
  const auto& conv = spec_of<Conv2d>(step);
  const std::int64_t fan_in = input_shape(program, step)[0] / conv.groups * conv.kernel_height * conv.kernel_width;
  return product_parameters(fan_in * conv.channels, fan_in, conv.bias ? conv.channels : 0);
}

// Tables: normal with standard deviation 0.02, as GPT-2 and BERT start theirs                            [Devlin18]
constexpr double kTableDeviation = 0.02;
Parameters embedding_parameters(const Program& program, const ProgramStep& step) {
  const std::int64_t features = width(output_shape(program, step));
  return {{"weight", spec_of<Embedding>(step).vocabulary * features, Initial::Normal, kTableDeviation}};
}
Parameters learned_parameters(const Program& program, const ProgramStep& step) {
  const std::int64_t features = width(output_shape(program, step));
  return {{"weight", spec_of<LearnedTable>(step).rows * features, Initial::Normal, kTableDeviation}};
}

Parameters grouped_parameters(const Program& program, const ProgramStep& step) {
  const auto& linear = spec_of<GroupedLinear>(step);
  const std::int64_t fan_in = width(input_shape(program, step)), features = linear.groups * linear.features;
  return product_parameters(fan_in * features, fan_in, linear.bias ? features : 0);
}

Parameters norm_parameters(const Program& program, const ProgramStep& step) {
  const auto& norm = spec_of<NormSpec>(step);
  if (!norm.affine) return {};
  const std::int64_t features = width(input_shape(program, step));
  Parameters out = {{"weight", features, Initial::One, 0}};
  if (norm.kind == Norm::Layer && norm.bias) out.push_back({"bias", features, Initial::Zero, 0});
  return out;
}

// ---- saved by the forward -------------------------------------------------------------------------------------------

std::int64_t norm_saved(const Program& program, const ProgramStep& step, std::int64_t) {
  const std::int64_t each = spec_of<NormSpec>(step).kind == Norm::Rms ? 1 : 2;
  return kStatisticBytes * each * rows(input_shape(program, step));
}
std::int64_t attention_saved(const Program&, const ProgramStep& step, std::int64_t value_bytes) {
  const auto& core = spec_of<AttentionCore>(step);
  return core.heads * core.queries * (core.flash ? kStatisticBytes : value_bytes * core.keys);
}
std::int64_t max_pool_saved(const Program& program, const ProgramStep& step, std::int64_t) {
  return kStatisticBytes * element_count(output_shape(program, step));
}
std::int64_t cross_entropy_saved(const Program& program, const ProgramStep& step, std::int64_t value_bytes) {
  return value_bytes * element_count(input_shape(program, step));
}

// ---- steps that cannot be run ---------------------------------------------------------------------------------------

std::string linear_refusal(const Program&, const ProgramStep& step) {
  const auto& linear = spec_of<Linear>(step);
  if (linear.tied) return "its weight is tied to a table of another layer; give it a weight of its own";
  return "";
}
std::string attention_refusal(const Program& program, const ProgramStep& step) {
  const auto& core = spec_of<AttentionCore>(step);
  if (core.dropout) return "dropout of the scores; set it to 0";
  if (core.bias) return "a bias on the scores; use learned positions";
  if (core.soft_cap) return "a soft cap on the scores; leave it out";
  if (core.window > 0) return "a sliding window; use full attention";
  const std::int64_t q = core.heads * core.key_size;
  const std::int64_t kv = core.key_heads * (core.key_size + core.value_size);
  std::vector<std::int64_t> wanted;
  if (step.inputs.size() == 1) wanted = {q + kv};
  if (step.inputs.size() == 2) wanted = {q, kv};
  if (step.inputs.size() == 3) wanted = {q, core.key_heads * core.key_size, core.key_heads * core.value_size};
  bool fits = !wanted.empty();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Shape& in = input_shape(program, step, i);
    fits = fits && width(in) == wanted[i] && rows(in) == (i == 0 ? core.queries : core.keys);
  }
  fits = fits && (step.inputs.size() != 1 || core.queries == core.keys);
  return fits ? "" : "its inputs are not [q | k | v], {q, [k | v]} or {q, k, v}";
}
std::string slice_refusal(const Program& program, const ProgramStep& step) {
  const auto of_the_same = [&](const ProgramStep& other) {
    return other.operation == "slice" && other.inputs == step.inputs;
  };
  if (std::ranges::count_if(program.steps, of_the_same) <= 1) return "";
  return "several parts are cut out of one tensor, and the program does not say which is which";
}
std::string learned_refusal(const Program& program, const ProgramStep& step) {
  const std::int64_t table = spec_of<LearnedTable>(step).rows, positions = rows(input_shape(program, step));
  if (table >= positions) return "";
  return std::to_string(table) + " rows for " + std::to_string(positions) +
         " positions: which row a position takes would be data; use as many rows as positions";
}

const std::array kRules = {
    OperationRule{
        .name = "linear", .weights_read_inputs = true, .parameters = linear_parameters, .refusal = linear_refusal},
    OperationRule{.name = "conv2d", .weights_read_inputs = true, .parameters = conv2d_parameters},
    OperationRule{.name = "embedding", .weights_read_inputs = true, .parameters = embedding_parameters},
    OperationRule{.name = "learned_table", .parameters = learned_parameters, .refusal = learned_refusal},
    OperationRule{.name = "layer_norm",
                  .gradient_reads_inputs = true,
                  .gradient_reads_saved = true,
                  .weights_read_inputs = true,
                  .weights_read_saved = true,
                  .parameters = norm_parameters,
                  .saved_bytes = norm_saved},
    OperationRule{.name = "rms_norm",
                  .gradient_reads_inputs = true,
                  .gradient_reads_saved = true,
                  .weights_read_inputs = true,
                  .weights_read_saved = true,
                  .parameters = norm_parameters,
                  .saved_bytes = norm_saved},
    OperationRule{.name = "relu", .gradient_reads_output = true},
    OperationRule{.name = "tanh", .gradient_reads_output = true},
    OperationRule{.name = "sigmoid", .gradient_reads_output = true},
    OperationRule{.name = "gelu", .gradient_reads_inputs = true},
    OperationRule{.name = "silu", .gradient_reads_inputs = true},
    OperationRule{.name = "gated", .gradient_reads_inputs = true},
    OperationRule{.name = "softmax", .gradient_reads_output = true},
    OperationRule{.name = "attention",
                  .gradient_reads_inputs = true,
                  .gradient_reads_output = true,  // `flash`; see `rule_of`
                  .gradient_reads_saved = true,
                  .saved_bytes = attention_saved,
                  .refusal = attention_refusal},
    OperationRule{.name = "dispatch"},
    OperationRule{.name = "grouped_linear", .weights_read_inputs = true, .parameters = grouped_parameters},
    OperationRule{.name = "combine", .gradient_reads_inputs = true},
    OperationRule{.name = "add"},
    OperationRule{.name = "concat"},
    OperationRule{.name = "slice", .refusal = slice_refusal},
    OperationRule{.name = "average_pool"},
    OperationRule{.name = "global_average_pool"},
    OperationRule{.name = "image_to_tokens"},
    OperationRule{.name = "multiply", .gradient_reads_inputs = true},
    OperationRule{.name = "max_pool", .gradient_reads_saved = true, .saved_bytes = max_pool_saved},
    OperationRule{.name = "cross_entropy", .gradient_reads_saved = true, .saved_bytes = cross_entropy_saved},
};

// Materialised attention keeps its scores, so that the gradient has no use for the output.
const OperationRule kMaterialisedAttention = {.name = "attention",
                                              .gradient_reads_inputs = true,
                                              .gradient_reads_saved = true,
                                              .saved_bytes = attention_saved,
                                              .refusal = attention_refusal};

// What workers do between them: no backend computes it.
const OperationRule kExchange = {.name = "exchange"};

std::string known_operations() {
  return text_over(kRules, [&](const OperationRule& rule) { return std::string(rule.name); });
}

// Why an operation without a rule has none.
std::string reason(std::string_view operation) {
  if (operation == "batch_norm")
    return " (its statistics are over the micro-batch: gradients would depend on the number of micro-batches, and the "
           "running averages are not trained values; use layer_norm)";
  if (operation == "experts") return " without the shares of a router (write from: [x, shares])";
  if (operation == "dropout") return " (its masks are random; set it to 0)";
  if (operation == "tied_embedding") return " (its table is another layer's; give it one of its own)";
  return "";
}

}  // namespace

std::span<const OperationRule> operation_rules() {
  return kRules;
}

const OperationRule& rule_of(const Program& program, const ProgramStep& step) {
  if (const auto* rows = std::get_if<ExpertRows>(&step.spec); rows != nullptr && step.operation == "experts") {
    const std::int64_t tokens = input_shape(program, step)[0];
    throw InputError(
        fmt::format("{} tokens x {} experts each do not give each of {} experts as many rows, as a run does; "
                    "change the tokens or the experts",
                    tokens, rows->active, rows->experts));
  }
  if (std::holds_alternative<RowExchange>(step.spec)) return kExchange;
  const auto found =
      std::ranges::find_if(kRules, [&](const OperationRule& rule) { return rule.name == step.operation; });
  if (found == kRules.end())
    throw InputError("operation " + std::string(step.operation) + " cannot be run" + reason(step.operation) +
                     "; can be run: " + known_operations());
  const std::string refused = found->refusal == nullptr ? "" : found->refusal(program, step);
  if (!refused.empty()) throw InputError("this " + std::string(step.operation) + " cannot be run: " + refused);
  const auto* core = std::get_if<AttentionCore>(&step.spec);
  return core != nullptr && !core->flash ? kMaterialisedAttention : *found;
}

std::vector<ParameterTensor> parameters_of(const Program& program, const ProgramStep& step) {
  const OperationRule& rule = rule_of(program, step);
  return rule.parameters == nullptr ? Parameters{} : rule.parameters(program, step);
}

std::int64_t saved_bytes(const Program& program, const ProgramStep& step, std::int64_t value_bytes) {
  const OperationRule& rule = rule_of(program, step);
  return rule.saved_bytes == nullptr ? 0 : rule.saved_bytes(program, step, value_bytes);
}

std::int64_t tensor_bytes(const ProgramTensor& tensor, std::int64_t value_bytes) {
  return (tensor.indices ? kIndexBytes : value_bytes) * element_count(tensor.shape);
}

}  // namespace pipewright::runtime
