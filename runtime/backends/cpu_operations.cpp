#include "runtime/backends/cpu_operations.hpp"

#include <array>
#include <cstring>

#include <fmt/format.h>

#include "core/check.hpp"
#include "runtime/backends/cpu_kernels.hpp"

namespace pipewright::runtime {
namespace {

namespace kernels = cpu_kernels;
using namespace backends;

void check_indices(const std::int64_t* index, std::int64_t n, std::int64_t limit, const char* what) {
  for (std::int64_t i = 0; i < n; ++i)
    if (index[i] < 0 || index[i] >= limit)
      throw InputError(fmt::format("{} {} of the data is not in [0, {}); use a model with more, or other data", what,
                                   index[i], limit));
}

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
CpuOperation<S> activation(std::string_view name, bool keeps_output) {
  CpuOperation<S> operation{name, [](const Call<S>& c) {
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
CpuOperation<S> linear() {
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
CpuOperation<S> conv2d() {
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
CpuOperation<S> embedding() {
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
CpuOperation<S> learned_table() {
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
CpuOperation<S> layer_norm() {
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
CpuOperation<S> rms_norm() {
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
CpuOperation<S> gated() {
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
CpuOperation<S> softmax() {
  return {"softmax", [](const Call<S>& c) { kernels::softmax(c.rows(c.in()), width(c.in()), c.x(), c.y()); },
          [](const Call<S>& c) {
            kernels::softmax_input_gradient<S>(c.rows(c.in()), width(c.in()), c.y(), c.dy(), c.dx());
          }};
}

template <class S>
CpuOperation<S> cross_entropy() {
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
CpuOperation<S> add() {
  return {"add", [](const Call<S>& c) { kernels::add(c.values(), c.x(0), c.x(1), c.y()); },
          [](const Call<S>& c) { copy(c.values(), c.dy(), c.dx(0)), copy(c.values(), c.dy(), c.dx(1)); }};
}

template <class S>
CpuOperation<S> multiply() {
  return {"multiply", [](const Call<S>& c) { kernels::multiply(c.values(), c.x(0), c.x(1), c.y()); },
          [](const Call<S>& c) {
            if (c.dx(0) != nullptr) kernels::multiply(c.values(), c.dy(), c.x(1), c.dx(0));
            if (c.dx(1) != nullptr) kernels::multiply(c.values(), c.dy(), c.x(0), c.dx(1));
          }};
}

template <class S>
CpuOperation<S> concat() {
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
CpuOperation<S> slice() {
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
CpuOperation<S> max_pool() {
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
CpuOperation<S> average_pool() {
  return {"average_pool",
          [](const Call<S>& c) { kernels::average_pool(pool_shape<kernels::PoolShape>(c), c.samples, c.x(), c.y()); },
          [](const Call<S>& c) {
            kernels::average_pool_input_gradient(pool_shape<kernels::PoolShape>(c), c.samples, c.dy(), c.dx());
          }};
}

template <class S>
CpuOperation<S> global_average_pool() {
  return {
      "global_average_pool",
      [](const Call<S>& c) { kernels::global_average_pool(c.values(), count(c.in()) / count(c.out()), c.x(), c.y()); },
      [](const Call<S>& c) {
        kernels::global_average_pool_input_gradient(c.values(), count(c.in()) / count(c.out()), c.dy(), c.dx());
      }};
}

template <class S>
CpuOperation<S> image_to_tokens() {
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
CpuOperation<S> grouped_linear() {
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
CpuOperation<S> dispatch() {
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
CpuOperation<S> combine() {
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
    CpuOperation<S>{"attention", attention_forward<S>, attention_gradient<S>, nullptr, attention_workspace},
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

}  // namespace

template <class S>
const CpuOperation<S>* find_cpu_operation(std::string_view name) {
  for (const CpuOperation<S>& operation : kOperations<S>)
    if (operation.name == name) return &operation;
  return nullptr;
}
template const CpuOperation<float>* find_cpu_operation(std::string_view name);
template const CpuOperation<double>* find_cpu_operation(std::string_view name);

}  // namespace pipewright::runtime
