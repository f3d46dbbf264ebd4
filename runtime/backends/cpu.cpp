#include "runtime/backends/cpu.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "runtime/backends/cpu_kernels.hpp"
#include "runtime/backends/step_view.hpp"
#include "runtime/operations.hpp"

namespace pipewright::runtime {

int states(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::Sgd: return 0;
    case Optimizer::Momentum:
    case Optimizer::RmsProp: return 1;
    case Optimizer::Adam: return 2;
    case Optimizer::Muon: break;  // of no run
  }
  PP_CHECK(false);
  return 0;
}

namespace {

namespace kernels = cpu_kernels;
using namespace backends;

constexpr std::int64_t kAlignment = 64;  // a cache line, and the widest vector

void check_aligned(const void* pointer) {
  PP_CHECK(reinterpret_cast<std::uintptr_t>(pointer) % kAlignment == 0);  // sums must not depend on addresses
}

void check_indices(const std::int64_t* index, std::int64_t n, std::int64_t limit, const char* what) {
  for (std::int64_t i = 0; i < n; ++i)
    if (index[i] < 0 || index[i] >= limit)
      throw InputError(fmt::format("{} {} of the data is not in [0, {}); use a model with more, or other data", what,
                                   index[i], limit));
}

// ---- operations -----------------------------------------------------------------------------------------------------

template <class S>
struct Operation {
  std::string_view name;
  void (*forward)(const Call<S>&);
  void (*input_gradient)(const Call<S>&) = nullptr;
  void (*weight_gradient)(const Call<S>&) = nullptr;
  std::int64_t (*workspace)(const StepView&, Pass) = nullptr;  // values
};

std::int64_t attention_workspace(const StepView& s, Pass pass) {
  const auto& core = s.spec<AttentionCore>();
  if (pass == Pass::WeightGradient) return 0;
  if (core.parts > 1 && pass == Pass::Forward) return kernels::kFlashQueries * (core.keys + core.value_size);
  if (core.flash) return (pass == Pass::Forward ? 1 : 2) * kernels::kFlashQueries * core.keys;
  return pass == Pass::Forward ? 0 : core.queries * core.keys;
}

template <class S>
void attention_forward(const Call<S>& c) {
  const auto at = attention_places<kernels::AttentionShape>(c);
  const auto part = [&](std::size_t i) { return c.x(at.tensor[i]) + at.offset[i]; };
  if (c.template spec<AttentionCore>().flash)
    kernels::flash_attention(at.shape, c.samples, part(0), part(1), part(2), c.y(), c.saved(), c.workspace());
  else
    kernels::attention(at.shape, c.samples, part(0), part(1), part(2), c.y(), c.saved());
}

template <class S>
void attention_gradient(const Call<S>& c) {
  const auto at = attention_places<kernels::AttentionShape>(c);
  const auto part = [&](std::size_t i) { return c.x(at.tensor[i]) + at.offset[i]; };
  const auto gradient = [&](std::size_t i) -> S* {
    S* const base = c.dx(at.tensor[i]);
    return base == nullptr ? nullptr : base + at.offset[i];
  };
  if (c.template spec<AttentionCore>().flash)
    kernels::flash_attention_gradient<S>(at.shape, c.samples, part(0), part(1), part(2), c.y(), c.saved(), c.dy(),
                                         gradient(0), gradient(1), gradient(2), c.workspace());
  else
    kernels::attention_gradient<S>(at.shape, c.samples, part(0), part(1), part(2), c.saved(), c.dy(), gradient(0),
                                   gradient(1), gradient(2), c.workspace());
}

// Attention over a shared sequence: this device's tokens, of each sample, and keys and values of a part as they go round.
template <class S>
struct SharedAttention {
  explicit SharedAttention(const Call<S>& call) : c(call), at(attention_places<kernels::AttentionShape>(c)) {
    keys_width = at.shape.key_heads * at.shape.key_size;
    round_stride = keys_width + at.shape.key_heads * at.shape.value_size;
    y_stride = at.shape.heads * at.shape.value_size;
  }

  std::int64_t tokens() const { return at.shape.queries; }
  std::int64_t stride(std::size_t i) const { return width(c.in(at.tensor[i])); }
  const S* input(std::size_t i) const { return c.x(at.tensor[i]) + at.offset[i]; }
  S* gradient(std::size_t i) const {
    S* const base = c.dx(at.tensor[i]);
    return base == nullptr ? nullptr : base + at.offset[i];
  }

  // Calls visit(shape, first row of the queries, first row of the keys, place in log_sum) of every sample for ranges of
  // queries and of the keys of part `from` that see each other.
  template <class Visit>
  void for_pairs(int from, const Visit& visit) const {
    ContextPart others = c.a.part;
    others.number = from;
    for (std::int64_t sample = 0; sample < c.samples; ++sample)
      for (const TokenRange& queries : ranges(c.a.part, tokens()))
        for (const TokenRange& keys : ranges(others, tokens())) {
          kernels::AttentionShape shape = at.shape;
          if (shape.causal && keys.in_sequence > queries.in_sequence) continue;
          shape.causal = shape.causal && keys.in_sequence == queries.in_sequence;
          shape.queries = queries.count, shape.keys = keys.count;
          shape.key_stride = shape.value_stride = round_stride;
          visit(shape, sample * tokens() + queries.here, sample * tokens() + keys.here,
                sample * shape.heads * tokens() + queries.here);
        }
  }

  const Call<S>& c;
  AttentionPlaces<kernels::AttentionShape> at;
  std::int64_t keys_width = 0, round_stride = 0, y_stride = 0;
};

template <class S>
void copy_columns(std::int64_t rows, std::int64_t columns, const S* from, std::int64_t from_stride, S* to,
                  std::int64_t to_stride) {
  if (to == nullptr) return;
  for (std::int64_t r = 0; r < rows; ++r)
    std::memcpy(to + r * to_stride, from + r * from_stride, static_cast<std::size_t>(columns) * sizeof(S));
}

kernels::Function function_of(Activation kind) {
  switch (kind) {
    case Activation::Relu: return kernels::Function::Relu;
    case Activation::Gelu: return kernels::Function::Gelu;
    case Activation::Silu: return kernels::Function::Silu;
    case Activation::Tanh: return kernels::Function::Tanh;
    case Activation::Sigmoid: return kernels::Function::Sigmoid;
  }
  PP_CHECK(false);
  return kernels::Function::Relu;
}

template <class S>
void copy(std::int64_t n, const S* from, S* to) {
  if (to != nullptr && to != from) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(S));
}

// Activations keep x or y; either way the gradient is dy times the slope at what is kept.
template <class S>
Operation<S> activation(std::string_view name, bool keeps_output) {
  Operation<S> operation{name, [](const Call<S>& c) {
                           kernels::activation(function_of(c.template spec<Activation>()), c.values(), c.x(), c.y());
                         }};
  operation.input_gradient = [](const Call<S>& c) {
    kernels::activation_input_gradient<S>(function_of(c.template spec<Activation>()), c.values(), c.x(), c.dy(),
                                          c.dx());
  };
  if (keeps_output)
    operation.input_gradient = [](const Call<S>& c) {
      kernels::activation_input_gradient<S>(function_of(c.template spec<Activation>()), c.values(), c.y(), c.dy(),
                                            c.dx());
    };
  return operation;
}

template <class S>
Operation<S> linear() {
  return {"linear",
          [](const Call<S>& c) {
            kernels::linear(c.rows(c.in()), width(c.in()), width(c.out()), c.x(), c.w(), c.w(1), c.y());
          },
          [](const Call<S>& c) {
            kernels::linear_input_gradient(c.rows(c.in()), width(c.in()), width(c.out()), c.dy(), c.w(), c.dx());
          },
          [](const Call<S>& c) {
            kernels::linear_weight_gradient(c.rows(c.in()), width(c.in()), width(c.out()), c.x(), c.dy(), c.dw(),
                                            c.dw(1));
          }};
}

template <class S>
Operation<S> conv2d() {
  return {"conv2d",
          [](const Call<S>& c) {
            kernels::conv2d(conv_shape<kernels::ConvShape>(c), c.samples, c.x(), c.w(), c.w(1), c.y(), c.workspace());
          },
          [](const Call<S>& c) {
            kernels::conv2d_input_gradient(conv_shape<kernels::ConvShape>(c), c.samples, c.dy(), c.w(), c.dx(),
                                           c.workspace());
          },
          [](const Call<S>& c) {
            kernels::conv2d_weight_gradient(conv_shape<kernels::ConvShape>(c), c.samples, c.x(), c.dy(), c.dw(),
                                            c.dw(1), c.workspace());
          },
          [](const StepView& s, Pass) { return kernels::conv2d_unfolded(conv_shape<kernels::ConvShape>(s)); }};
}

template <class S>
Operation<S> embedding() {
  return {"embedding",
          [](const Call<S>& c) {
            check_indices(c.tokens(), c.rows(c.out()), c.template spec<Embedding>().vocabulary, "token number");
            kernels::embedding(c.rows(c.out()), width(c.out()), c.tokens(), c.w(), c.y());
          },
          [](const Call<S>&) {},
          [](const Call<S>& c) {
            kernels::embedding_weight_gradient(c.rows(c.out()), width(c.out()), c.tokens(), c.dy(), c.dw());
          }};
}

// Calls visit(values, first value in the tensor, first value in the table) for ranges of tokens that follow one another.
template <class S, class Visit>
void for_rows_of_table(const Call<S>& c, const Visit& visit) {
  const std::int64_t features = width(c.out()), tokens = count(c.out()) / features;
  for (std::int64_t sample = 0; sample < c.samples; ++sample)
    for (const TokenRange& range : ranges(c.a.part, tokens))
      visit(range.count * features, (sample * tokens + range.here) * features, range.in_sequence * features);
}

template <class S>
Operation<S> learned_table() {
  return {"learned_table",
          [](const Call<S>& c) {
            if (c.a.part.of == 1) return kernels::learned_table(c.samples, count(c.out()), c.x(), c.w(), c.y());
            for_rows_of_table(c, [&](std::int64_t values, std::int64_t at, std::int64_t in_table) {
              kernels::learned_table(1, values, c.x() + at, c.w() + in_table, c.y() + at);
            });
          },
          [](const Call<S>& c) { copy(c.values(), c.dy(), c.dx()); },
          [](const Call<S>& c) {
            if (c.a.part.of == 1)
              return kernels::learned_table_weight_gradient(c.samples, count(c.out()), c.dy(), c.dw());
            for_rows_of_table(c, [&](std::int64_t values, std::int64_t at, std::int64_t in_table) {
              kernels::learned_table_weight_gradient(1, values, c.dy() + at, c.dw() + in_table);
            });
          }};
}

template <class S>
Operation<S> layer_norm() {
  return {"layer_norm",
          [](const Call<S>& c) {
            kernels::layer_norm(c.rows(c.in()), width(c.in()), c.x(), c.w(), c.w(1), c.y(), c.saved());
          },
          [](const Call<S>& c) {
            kernels::layer_norm_input_gradient<S>(c.rows(c.in()), width(c.in()), c.x(), c.saved(), c.w(), c.dy(),
                                                  c.dx());
          },
          [](const Call<S>& c) {
            if (c.dw() == nullptr) return;
            kernels::layer_norm_weight_gradient<S>(c.rows(c.in()), width(c.in()), c.x(), c.saved(), c.dy(), c.dw(),
                                                   c.dw(1));
          }};
}

template <class S>
Operation<S> rms_norm() {
  return {"rms_norm",
          [](const Call<S>& c) { kernels::rms_norm(c.rows(c.in()), width(c.in()), c.x(), c.w(), c.y(), c.saved()); },
          [](const Call<S>& c) {
            kernels::rms_norm_input_gradient<S>(c.rows(c.in()), width(c.in()), c.x(), c.saved(), c.w(), c.dy(), c.dx());
          },
          [](const Call<S>& c) {
            if (c.dw() == nullptr) return;
            kernels::rms_norm_weight_gradient<S>(c.rows(c.in()), width(c.in()), c.x(), c.saved(), c.dy(), c.dw());
          }};
}

template <class S>
Operation<S> gated() {
  return {"gated",
          [](const Call<S>& c) {
            kernels::gated(function_of(c.template spec<GatedActivation>().kind), c.rows(c.out()), width(c.out()), c.x(),
                           c.y());
          },
          [](const Call<S>& c) {
            kernels::gated_input_gradient(function_of(c.template spec<GatedActivation>().kind), c.rows(c.out()),
                                          width(c.out()), c.x(), c.dy(), c.dx());
          }};
}

template <class S>
Operation<S> softmax() {
  return {"softmax", [](const Call<S>& c) { kernels::softmax(c.rows(c.in()), width(c.in()), c.x(), c.y()); },
          [](const Call<S>& c) {
            kernels::softmax_input_gradient<S>(c.rows(c.in()), width(c.in()), c.y(), c.dy(), c.dx());
          }};
}

template <class S>
Operation<S> cross_entropy() {
  return {"cross_entropy",
          [](const Call<S>& c) {
            const std::int64_t classes = width(c.in()), rows = count(c.in()) / classes;
            check_indices(c.a.labels, c.samples * rows, classes, "label");
            const S scale = static_cast<S>(c.a.loss_scale) / static_cast<S>(rows);
            kernels::cross_entropy(c.samples, rows, classes, c.x(), c.a.labels, scale, c.y(), c.saved());
          },
          [](const Call<S>& c) { copy(c.samples * count(c.in()), static_cast<const S*>(c.saved()), c.dx()); }};
}

template <class S>
Operation<S> add() {
  return {"add", [](const Call<S>& c) { kernels::add(c.values(), c.x(0), c.x(1), c.y()); },
          [](const Call<S>& c) { copy(c.values(), c.dy(), c.dx(0)), copy(c.values(), c.dy(), c.dx(1)); }};
}

template <class S>
Operation<S> multiply() {
  return {"multiply", [](const Call<S>& c) { kernels::multiply(c.values(), c.x(0), c.x(1), c.y()); },
          [](const Call<S>& c) {
            if (c.dx(0) != nullptr) kernels::multiply(c.values(), c.dy(), c.x(1), c.dx(0));
            if (c.dx(1) != nullptr) kernels::multiply(c.values(), c.dy(), c.x(0), c.dx(1));
          }};
}

template <class S>
Operation<S> concat() {
  return {"concat",
          [](const Call<S>& c) {
            std::int64_t offset = 0;
            for (std::size_t i = 0; i < c.inputs(); ++i) {
              const Side part = side(c, c.in(i));
              kernels::copy_rows(part.rows, part.values, c.x(i), part.values, c.y() + offset, side(c, c.out()).values);
              offset += part.values;
            }
          },
          [](const Call<S>& c) {
            std::int64_t offset = 0;
            for (std::size_t i = 0; i < c.inputs(); ++i) {
              const Side part = side(c, c.in(i));
              if (c.dx(i) != nullptr)
                kernels::copy_rows(part.rows, part.values, c.dy() + offset, side(c, c.out()).values, c.dx(i),
                                   part.values);
              offset += part.values;
            }
          }};
}

// The leading values along every axis; where the ranks differ, the first values of the sample.
template <class S>
Operation<S> slice() {
  return {"slice",
          [](const Call<S>& c) {
            const std::int64_t run = slice_run(c.in(), c.out()), whole = count(c.in()), part = count(c.out());
            for_slice(c.in(), c.out(), [&](std::int64_t from, std::int64_t to) {
              kernels::copy_rows(c.samples, run, c.x() + from, whole, c.y() + to, part);
            });
          },
          [](const Call<S>& c) {
            const std::int64_t run = slice_run(c.in(), c.out()), whole = count(c.in()), part = count(c.out());
            std::memset(c.dx(), 0, static_cast<std::size_t>(c.samples * whole) * sizeof(S));
            for_slice(c.in(), c.out(), [&](std::int64_t from, std::int64_t to) {
              kernels::copy_rows(c.samples, run, c.dy() + to, part, c.dx() + from, whole);
            });
          }};
}

template <class S>
Operation<S> max_pool() {
  return {"max_pool",
          [](const Call<S>& c) {
            kernels::max_pool(pool_shape<kernels::PoolShape>(c), c.samples, c.x(), c.y(),
                              static_cast<std::int32_t*>(c.a.saved));
          },
          [](const Call<S>& c) {
            kernels::max_pool_input_gradient(pool_shape<kernels::PoolShape>(c), c.samples,
                                             static_cast<const std::int32_t*>(c.a.saved), c.dy(), c.dx());
          }};
}

template <class S>
Operation<S> average_pool() {
  return {"average_pool",
          [](const Call<S>& c) { kernels::average_pool(pool_shape<kernels::PoolShape>(c), c.samples, c.x(), c.y()); },
          [](const Call<S>& c) {
            kernels::average_pool_input_gradient(pool_shape<kernels::PoolShape>(c), c.samples, c.dy(), c.dx());
          }};
}

template <class S>
Operation<S> global_average_pool() {
  return {
      "global_average_pool",
      [](const Call<S>& c) { kernels::global_average_pool(c.values(), count(c.in()) / count(c.out()), c.x(), c.y()); },
      [](const Call<S>& c) {
        kernels::global_average_pool_input_gradient(c.values(), count(c.in()) / count(c.out()), c.dy(), c.dx());
      }};
}

template <class S>
Operation<S> image_to_tokens() {
  return {"image_to_tokens",
          [](const Call<S>& c) { kernels::transpose(c.samples, c.out()[1], c.out()[0], c.x(), c.y()); },
          [](const Call<S>& c) { kernels::transpose(c.samples, c.out()[0], c.out()[1], c.dy(), c.dx()); }};
}

// ---- experts --------------------------------------------------------------------------------------------------------

// Calls visit(rows, first row, group) for the rows of each group of each sample.
template <class S, class Visit>
void for_groups(const Call<S>& c, const Visit& visit) {
  const std::int64_t groups = c.template spec<GroupedLinear>().groups, rows = c.out()[0] / groups;
  for (std::int64_t sample = 0; sample < c.samples; ++sample)
    for (std::int64_t group = 0; group < groups; ++group)
      visit(rows, (sample * groups + group) * rows, group);
}

template <class S>
Operation<S> grouped_linear() {
  return {"grouped_linear",
          [](const Call<S>& c) {
            const std::int64_t in = width(c.in()), out = width(c.out());
            for_groups(c, [&](std::int64_t rows, std::int64_t first, std::int64_t group) {
              kernels::linear(rows, in, out, c.x() + first * in, c.w() + group * in * out,
                              c.w(1) == nullptr ? nullptr : c.w(1) + group * out, c.y() + first * out);
            });
          },
          [](const Call<S>& c) {
            const std::int64_t in = width(c.in()), out = width(c.out());
            for_groups(c, [&](std::int64_t rows, std::int64_t first, std::int64_t group) {
              kernels::linear_input_gradient(rows, in, out, c.dy() + first * out, c.w() + group * in * out,
                                             c.dx() + first * in);
            });
          },
          [](const Call<S>& c) {
            const std::int64_t in = width(c.in()), out = width(c.out());
            for_groups(c, [&](std::int64_t rows, std::int64_t first, std::int64_t group) {
              kernels::linear_weight_gradient(rows, in, out, c.x() + first * in, c.dy() + first * out,
                                              c.dw() + group * in * out,
                                              c.dw(1) == nullptr ? nullptr : c.dw(1) + group * out);
            });
          }};
}

template <class S>
kernels::RowsOfExperts rows_of_experts(const Call<S>& c, const Shape& tokens) {
  const auto& rows = c.template spec<ExpertRows>();
  return {tokens[0], rows.experts, rows.active, tokens[1]};
}

template <class S>
Operation<S> dispatch() {
  return {"dispatch",
          [](const Call<S>& c) {
            for (std::int64_t s = 0; s < c.samples; ++s)
              kernels::dispatch(rows_of_experts(c, c.in()), c.x() + s * count(c.in()), c.y() + s * count(c.out()));
          },
          [](const Call<S>& c) {
            for (std::int64_t s = 0; s < c.samples; ++s)
              kernels::dispatch_gradient(rows_of_experts(c, c.in()), c.dy() + s * count(c.out()),
                                         c.dx() + s * count(c.in()));
          }};
}

template <class S>
Operation<S> combine() {
  return {"combine",
          [](const Call<S>& c) {
            for (std::int64_t s = 0; s < c.samples; ++s)
              kernels::combine(rows_of_experts(c, c.out()), c.x() + s * count(c.in()), c.x(1) + s * count(c.in(1)),
                               c.y() + s * count(c.out()));
          },
          [](const Call<S>& c) {
            const auto of = [](S* gradient, std::int64_t at) { return gradient == nullptr ? nullptr : gradient + at; };
            for (std::int64_t s = 0; s < c.samples; ++s)
              kernels::combine_gradient(rows_of_experts(c, c.out()), c.x() + s * count(c.in()),
                                        c.x(1) + s * count(c.in(1)), c.dy() + s * count(c.out()),
                                        of(c.dx(), s * count(c.in())), of(c.dx(1), s * count(c.in(1))));
          }};
}

// As many rows as `operation_rules`; tests/runtime/backend_test.cpp compares them.
template <class S>
const std::array kOperations = {
    linear<S>(),
    grouped_linear<S>(),
    dispatch<S>(),
    combine<S>(),
    conv2d<S>(),
    embedding<S>(),
    learned_table<S>(),
    layer_norm<S>(),
    rms_norm<S>(),
    activation<S>("relu", true),
    activation<S>("tanh", true),
    activation<S>("sigmoid", true),
    activation<S>("gelu", false),
    activation<S>("silu", false),
    gated<S>(),
    softmax<S>(),
    Operation<S>{"attention", attention_forward<S>, attention_gradient<S>, nullptr, attention_workspace},
    add<S>(),
    multiply<S>(),
    concat<S>(),
    slice<S>(),
    max_pool<S>(),
    average_pool<S>(),
    global_average_pool<S>(),
    image_to_tokens<S>(),
    cross_entropy<S>(),
};

template <class S>
const Operation<S>* find_operation(std::string_view name) {
  for (const Operation<S>& operation : kOperations<S>)
    if (operation.name == name) return &operation;
  return nullptr;
}

// ---- the backend ----------------------------------------------------------------------------------------------------

template <class S>
class CpuBackend final : public Backend {
 public:
  std::string name() const override {
    return fmt::format("cpu ({}{})", kernels::isa(), std::is_same_v<S, float> ? "" : ", double");
  }
  Bytes alignment() const override { return Bytes{kAlignment}; }

  std::string refusal(const Program& program, const ProgramStep& step) const override {
    const auto wide = [](const Shape& shape) { return shape.rank == 3 && shape[1] * shape[2] > INT32_MAX; };
    if (step.operation == "max_pool" && wide(StepView{program, step}.in()))
      return "max_pool of planes with more than 2^31 values";
    return find_operation<S>(step.operation) == nullptr ? std::string(step.operation) + " is not written" : "";
  }

  Bytes workspace(const Program& program, const ProgramStep& step, std::int64_t samples, Pass pass) const override {
    const Operation<S>& operation = known(step);
    const std::int64_t values =
        operation.workspace == nullptr ? 0 : operation.workspace(StepView{program, step, samples}, pass);
    return Bytes{values * static_cast<std::int64_t>(sizeof(S))};
  }

  void forward(const StepArguments& arguments) override { known(*arguments.step).forward(checked(arguments)); }
  void input_gradient(const StepArguments& arguments) override {
    const Operation<S>& operation = known(*arguments.step);
    const auto asked = [](void* gradient) { return gradient != nullptr; };
    const bool any = std::any_of(arguments.input_gradients.begin(), arguments.input_gradients.end(), asked);
    if (any && operation.input_gradient != nullptr) operation.input_gradient(checked(arguments));
  }
  void weight_gradient(const StepArguments& arguments) override {
    const Operation<S>& operation = known(*arguments.step);
    if (operation.weight_gradient != nullptr) operation.weight_gradient(checked(arguments));
  }

  bool shares_sequences() const override { return true; }
  void keys_of_part(const StepArguments& arguments, void* keys) override {
    const Call<S> c = checked(arguments);
    const SharedAttention<S> s(c);
    S* const to = static_cast<S*>(keys);
    const std::int64_t rows = c.samples * s.tokens();
    copy_columns(rows, s.keys_width, s.input(1), s.stride(1), to, s.round_stride);
    copy_columns(rows, s.round_stride - s.keys_width, s.input(2), s.stride(2), to + s.keys_width, s.round_stride);
  }
  void attend_begin(const StepArguments& arguments) override {
    const Call<S> c = checked(arguments);
    const SharedAttention<S> s(c);
    std::fill_n(c.saved(), c.samples * s.tokens() * s.at.shape.heads, -std::numeric_limits<S>::infinity());
  }
  void attend(const StepArguments& arguments, int from, const void* keys) override {
    const Call<S> c = checked(arguments);
    const SharedAttention<S> s(c);
    const S* const k = static_cast<const S*>(keys);
    s.for_pairs(from, [&](const kernels::AttentionShape& shape, std::int64_t q, std::int64_t key, std::int64_t log) {
      kernels::attend(shape, s.input(0) + q * s.stride(0), k + key * s.round_stride,
                      k + key * s.round_stride + s.keys_width, c.y() + q * s.y_stride, c.saved() + log, s.tokens(),
                      c.workspace());
    });
  }
  void gradients_begin(const StepArguments& arguments, void* gradients) override {
    const Call<S> c = checked(arguments);
    const SharedAttention<S> s(c);
    const std::int64_t rows = c.samples * s.tokens();
    if (gradients != nullptr) std::memset(gradients, 0, static_cast<std::size_t>(rows * s.round_stride) * sizeof(S));
    for (std::int64_t r = 0; s.gradient(0) != nullptr && r < rows; ++r)
      std::fill_n(s.gradient(0) + r * s.stride(0), s.at.shape.heads * s.at.shape.key_size, S(0));
  }
  void attend_gradient(const StepArguments& arguments, int from, const void* keys, void* gradients) override {
    const Call<S> c = checked(arguments);
    const SharedAttention<S> s(c);
    const S* const k = static_cast<const S*>(keys);
    S* const dk = static_cast<S*>(gradients);
    s.for_pairs(from, [&](const kernels::AttentionShape& shape, std::int64_t q, std::int64_t key, std::int64_t log) {
      const std::int64_t at = key * s.round_stride;
      kernels::attend_gradient(shape, s.input(0) + q * s.stride(0), k + at, k + at + s.keys_width,
                               c.y() + q * s.y_stride, c.saved() + log, s.tokens(), c.dy() + q * s.y_stride,
                               s.gradient(0) == nullptr ? nullptr : s.gradient(0) + q * s.stride(0), dk + at,
                               dk + at + s.keys_width, c.workspace());
    });
  }
  void gradients_end(const StepArguments& arguments, const void* gradients) override {
    const Call<S> c = checked(arguments);
    const SharedAttention<S> s(c);
    const S* const from = static_cast<const S*>(gradients);
    const std::int64_t rows = c.samples * s.tokens();
    copy_columns(rows, s.keys_width, from, s.round_stride, s.gradient(1), s.stride(1));
    copy_columns(rows, s.round_stride - s.keys_width, from + s.keys_width, s.round_stride, s.gradient(2), s.stride(2));
  }

  void update(const OptimizerSettings& settings, std::int64_t step,
              std::span<const UpdatedParameter> parameters) override {
    PP_CHECK(step >= 1);
    for (const UpdatedParameter& one : parameters)
      update(settings, step, one);
  }
  void dropout(const DropoutMask& mask, std::int64_t elements, const void* x, void* y) override {
    check_aligned(x), check_aligned(y);
    PP_CHECK(mask.share >= 0 && mask.share < 1);
    kernels::dropout<S>(mask.seed, mask.place, mask.below(), static_cast<S>(mask.factor()), elements,
                        static_cast<const S*>(x), static_cast<S*>(y));
  }
  void add(float* sum, const float* term, std::int64_t elements) override {
    check_aligned(sum), check_aligned(term);
    kernels::add<S>(elements, reinterpret_cast<S*>(sum), reinterpret_cast<const S*>(term), reinterpret_cast<S*>(sum));
  }
  void scale(float* values, std::int64_t elements, float factor) override {
    auto* const each = reinterpret_cast<S*>(values);
    for (std::int64_t i = 0; factor != 1 && i < elements; ++i)
      each[i] *= static_cast<S>(factor);
  }
  void copy(void* to, const void* from, Bytes bytes) override {
    if (to != from && bytes.value > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes.value));
  }
  void zero(void* block, Bytes bytes) override {
    if (bytes.value > 0) std::memset(block, 0, static_cast<std::size_t>(bytes.value));
  }

 private:
  static const Operation<S>& known(const ProgramStep& step) {
    const Operation<S>* const operation = find_operation<S>(step.operation);
    PP_CHECK(operation != nullptr);
    return *operation;
  }
  static void update(const OptimizerSettings& settings, std::int64_t step, const UpdatedParameter& parameter);
  static Call<S> checked(const StepArguments& a) {
    const auto all = [](const auto& pointers) {
      for (const void* pointer : pointers)
        check_aligned(pointer);
    };
    all(a.inputs), all(a.input_gradients), all(a.parameters), all(a.parameter_gradients);
    check_aligned(a.output), check_aligned(a.output_gradient), check_aligned(a.saved), check_aligned(a.workspace);
    return Call<S>(a);
  }
};

template <class S>
void CpuBackend<S>::update(const OptimizerSettings& o, std::int64_t step, const UpdatedParameter& one) {
  PP_CHECK(one.stored == nullptr);
  check_aligned(one.weight_in), check_aligned(one.weight_out), check_aligned(one.gradient);
  const std::int64_t elements = one.elements;
  const auto* const w = reinterpret_cast<const S*>(one.weight_in);
  const auto* const g = reinterpret_cast<const S*>(one.gradient);
  auto* const out = reinterpret_cast<S*>(one.weight_out);
  const auto state = [&](std::size_t i) {
    PP_CHECK(one.states[i] != nullptr);
    check_aligned(one.states[i]);
    return reinterpret_cast<S*>(one.states[i]);
  };
  const auto rate = static_cast<S>(o.learning_rate), epsilon = static_cast<S>(o.epsilon);
  const auto beta1 = static_cast<S>(o.beta1), beta2 = static_cast<S>(o.beta2);
  const auto correction = [&](double beta) { return static_cast<S>(1 - std::pow(beta, static_cast<double>(step))); };
  switch (o.kind) {
    case Optimizer::Sgd: return kernels::sgd(elements, rate, w, g, out);
    case Optimizer::Momentum: return kernels::momentum(elements, rate, static_cast<S>(o.momentum), w, g, out, state(0));
    case Optimizer::RmsProp: return kernels::rmsprop(elements, rate, beta2, epsilon, w, g, out, state(0));
    case Optimizer::Adam:
      return kernels::adam(elements, rate, beta1, beta2, epsilon, correction(o.beta1), correction(o.beta2), w, g, out,
                           state(0), state(1));
    case Optimizer::Muon: PP_CHECK(false);  // of no run
  }
}

template <class S>
std::unique_ptr<Backend> backend() {
  if (const char* const missing = kernels::missing_features())
    throw InputError(
        fmt::format("the arithmetic of this binary is compiled for {}: it needs {}, and this processor has "
                    "not; build with -Dcpu_isa=x86-64",
                    kernels::isa(), missing));
  static const bool prepared = (kernels::prepare(), true);  // by one thread, whoever comes first
  PP_CHECK(prepared);
  return std::make_unique<CpuBackend<S>>();
}

}  // namespace

std::unique_ptr<Backend> cpu_backend() {
  return backend<float>();
}
std::unique_ptr<Backend> cpu_backend_in_double() {
  return backend<double>();
}

}  // namespace pipewright::runtime
