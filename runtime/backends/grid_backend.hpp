// The operations on kernels that run on a grid of threads: a GPU's (K = grid_kernels::Queue), or the same code run by
// the CPU thread after thread (K = grid_kernels::HostGrid), with which the whole of a run is tested without a GPU.
//
// Kernels are called by their names, which are found in the namespace of K. Everything is in the order of the queue. Tokens
// and labels cannot be looked at from the host: whoever loads them has checked them.
//
// S: how tensors are stored, float, Bf16 or Fp16; arithmetic, masters, gradients of parameters and optimizer states are
// fp32 (kernels/storage.hpp). tf32 is the queue's affair.
//
// Tests: tests/runtime/grid_backend_test.cpp
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "kernels/gpu_kernels.hpp"
#include "runtime/backend.hpp"
#include "runtime/backends/step_view.hpp"

namespace pipewright::runtime::backends {

template <class S>
using GridCall = Call<S, Arithmetic<S>>;
// Bytes of a value of workspace that sums need.
template <class S>
constexpr std::int64_t kSumBytes = sizeof(Arithmetic<S>);

template <class K, class S>
struct GridOperation {
  using Run = void (*)(const K&, const GridCall<S>&);
  std::string_view name;
  Run forward;
  Run input_gradient = nullptr;
  Run weight_gradient = nullptr;
  std::int64_t (*workspace)(const StepView&, Pass) = nullptr;  // bytes
};

inline GpuFunction grid_function(Activation kind) {
  switch (kind) {
    case Activation::Relu: return GpuFunction::Relu;
    case Activation::Gelu: return GpuFunction::Gelu;
    case Activation::Silu: return GpuFunction::Silu;
    case Activation::Tanh: return GpuFunction::Tanh;
    case Activation::Sigmoid: return GpuFunction::Sigmoid;
  }
  PP_CHECK(false);
  return GpuFunction::Relu;
}

template <class K, class S>
void pass_on(const K& k, std::int64_t n, const S* from, S* to) {
  if (to != nullptr && to != from) copy_values(k, n, from, to);
}

template <class K, class S>
GridOperation<K, S> grid_activation(std::string_view name, bool keeps_output) {
  GridOperation<K, S> operation{name, [](auto& k, auto& c) {
                                  activation(k, grid_function(c.template spec<Activation>()), c.values(), c.x(), c.y());
                                }};
  operation.input_gradient = [](auto& k, auto& c) {
    activation_input_gradient(k, grid_function(c.template spec<Activation>()), c.values(), c.x(), c.dy(), c.dx());
  };
  if (keeps_output)
    operation.input_gradient = [](auto& k, auto& c) {
      activation_input_gradient(k, grid_function(c.template spec<Activation>()), c.values(), c.y(), c.dy(), c.dx());
    };
  return operation;
}

// Of sums over the rows of an output.
template <class S>
std::int64_t columns_of_output(const StepView& s, Pass pass) {
  if (pass != Pass::WeightGradient) return 0;
  return grid_kernels::columns_workspace(s.rows(s.out()), width(s.out())) * kSumBytes<S>;
}

template <class K, class S>
GridOperation<K, S> grid_linear() {
  return {
      "linear",
      [](auto& k, auto& c) { linear(k, c.rows(c.in()), width(c.in()), width(c.out()), c.x(), c.w(), c.w(1), c.y()); },
      [](auto& k, auto& c) {
        linear_input_gradient(k, c.rows(c.in()), width(c.in()), width(c.out()), c.dy(), c.w(), c.dx());
      },
      [](auto& k, auto& c) {
        linear_weight_gradient(k, c.rows(c.in()), width(c.in()), width(c.out()), c.x(), c.dy(), c.dw(), c.dw(1),
                               c.workspace());
      },
      columns_of_output<S>};
}

template <class K, class S>
GridOperation<K, S> grid_conv2d() {
  return {
      "conv2d",
      [](auto& k, auto& c) { conv2d(k, conv_shape<GpuConvShape>(c), c.samples, c.x(), c.w(), c.w(1), c.y()); },
      [](auto& k, auto& c) { conv2d_input_gradient(k, conv_shape<GpuConvShape>(c), c.samples, c.dy(), c.w(), c.dx()); },
      [](auto& k, auto& c) {
        conv2d_weight_gradient(k, conv_shape<GpuConvShape>(c), c.samples, c.x(), c.dy(), c.dw(), c.dw(1));
      }};
}

template <class K, class S>
GridOperation<K, S> grid_embedding() {
  return {"embedding",
          [](auto& k, auto& c) { embedding(k, c.rows(c.out()), width(c.out()), c.tokens(), c.w(), c.y()); },
          [](auto&, auto&) {},
          [](auto& k, auto& c) {
            embedding_weight_gradient(k, c.rows(c.out()), width(c.out()), c.tokens(), c.dy(), c.dw(),
                                      static_cast<std::int64_t*>(c.a.workspace));
          },
          [](const StepView& s, Pass pass) -> std::int64_t {
            return pass == Pass::WeightGradient ? s.rows(s.out()) * std::int64_t{sizeof(std::int64_t)} : 0;
          }};
}

// A bias as large as a sample.
template <class K, class S>
GridOperation<K, S> grid_learned_table() {
  return {"learned_table",
          [](auto& k, auto& c) { add_bias<K, S>(k, c.samples, count(c.out()), c.x(), c.w(), nullptr, c.y()); },
          [](auto& k, auto& c) { pass_on(k, c.values(), c.dy(), c.dx()); },
          [](auto& k, auto& c) { bias_gradient(k, c.samples, count(c.out()), c.dy(), c.dw(), c.workspace()); },
          [](const StepView& s, Pass pass) -> std::int64_t {
            if (pass != Pass::WeightGradient) return 0;
            return grid_kernels::columns_workspace(s.samples, count(s.out())) * kSumBytes<S>;
          }};
}

template <class K, class S>
GridOperation<K, S> grid_layer_norm() {
  return {
      "layer_norm",
      [](auto& k, auto& c) { layer_norm(k, c.rows(c.in()), width(c.in()), c.x(), c.w(), c.w(1), c.y(), c.saved()); },
      [](auto& k, auto& c) {
        layer_norm_input_gradient(k, c.rows(c.in()), width(c.in()), c.x(), c.saved(), c.w(), c.dy(), c.dx());
      },
      [](auto& k, auto& c) {
        if (c.dw() == nullptr) return;
        layer_norm_weight_gradient(k, c.rows(c.in()), width(c.in()), c.x(), c.saved(), c.dy(), c.dw(), c.dw(1),
                                   c.workspace());
      },
      columns_of_output<S>};
}

template <class K, class S>
GridOperation<K, S> grid_rms_norm() {
  return {"rms_norm",
          [](auto& k, auto& c) { rms_norm(k, c.rows(c.in()), width(c.in()), c.x(), c.w(), c.y(), c.saved()); },
          [](auto& k, auto& c) {
            rms_norm_input_gradient(k, c.rows(c.in()), width(c.in()), c.x(), c.saved(), c.w(), c.dy(), c.dx());
          },
          [](auto& k, auto& c) {
            if (c.dw() == nullptr) return;
            rms_norm_weight_gradient(k, c.rows(c.in()), width(c.in()), c.x(), c.saved(), c.dy(), c.dw(), c.workspace());
          },
          columns_of_output<S>};
}

template <class K, class S>
GridOperation<K, S> grid_gated() {
  return {"gated",
          [](auto& k, auto& c) {
            gated(k, grid_function(c.template spec<GatedActivation>().kind), c.rows(c.out()), width(c.out()), c.x(),
                  c.y());
          },
          [](auto& k, auto& c) {
            gated_input_gradient(k, grid_function(c.template spec<GatedActivation>().kind), c.rows(c.out()),
                                 width(c.out()), c.x(), c.dy(), c.dx());
          }};
}

template <class K, class S>
GridOperation<K, S> grid_softmax() {
  return {"softmax", [](auto& k, auto& c) { softmax(k, c.rows(c.in()), width(c.in()), c.x(), c.y()); },
          [](auto& k, auto& c) { softmax_input_gradient(k, c.rows(c.in()), width(c.in()), c.y(), c.dy(), c.dx()); }};
}

template <class K, class S>
GridOperation<K, S> grid_cross_entropy() {
  return {"cross_entropy",
          [](auto& k, auto& c) {
            const std::int64_t classes = width(c.in()), rows = count(c.in()) / classes;
            using F = Arithmetic<S>;
            const F scale = static_cast<F>(c.a.loss_scale) / static_cast<F>(rows);
            cross_entropy(k, c.samples, rows, classes, c.x(), c.a.labels, scale, c.losses(), c.saved_tensor(),
                          c.workspace());
          },
          [](auto& k, auto& c) { pass_on(k, c.samples * count(c.in()), c.saved_tensor(), c.dx()); }, nullptr,
          [](const StepView& s, Pass pass) -> std::int64_t {
            return pass == Pass::Forward ? s.rows(s.in()) * kSumBytes<S> : 0;
          }};
}

template <class K, class S>
GridOperation<K, S> grid_attention() {
  return {"attention",
          [](auto& k, auto& c) {
            const auto at = attention_places<GpuAttentionShape>(c);
            const auto part = [&](std::size_t i) { return c.x(at.tensor[i]) + at.offset[i]; };
            if (c.template spec<AttentionCore>().flash)
              flash_attention(k, at.shape, c.samples, part(0), part(1), part(2), c.y(), c.saved());
            else
              attention(k, at.shape, c.samples, part(0), part(1), part(2), c.y(), c.saved_tensor());
          },
          [](auto& k, auto& c) {
            const auto at = attention_places<GpuAttentionShape>(c);
            const auto part = [&](std::size_t i) { return c.x(at.tensor[i]) + at.offset[i]; };
            const auto gradient = [&](std::size_t i) -> S* {
              S* const base = c.dx(at.tensor[i]);
              return base == nullptr ? nullptr : base + at.offset[i];
            };
            if (c.template spec<AttentionCore>().flash)
              flash_attention_gradient(k, at.shape, c.samples, part(0), part(1), part(2), c.y(), c.saved(), c.dy(),
                                       gradient(0), gradient(1), gradient(2), c.workspace());
            else
              attention_gradient(k, at.shape, c.samples, part(0), part(1), part(2), c.saved_tensor(), c.dy(),
                                 gradient(0), gradient(1), gradient(2), c.workspace_tensor());
          },
          nullptr,
          [](const StepView& s, Pass pass) -> std::int64_t {
            const auto& core = s.spec<AttentionCore>();
            if (pass != Pass::InputGradient) return 0;
            const std::int64_t rows = s.samples * core.heads * core.queries;
            return core.flash ? rows * kSumBytes<S> : rows * core.keys * std::int64_t{sizeof(S)};
          }};
}

template <class K, class S>
GridOperation<K, S> grid_add() {
  return {"add", [](auto& k, auto& c) { add(k, c.values(), c.x(0), c.x(1), c.y()); },
          [](auto& k, auto& c) { pass_on(k, c.values(), c.dy(), c.dx(0)), pass_on(k, c.values(), c.dy(), c.dx(1)); }};
}

template <class K, class S>
GridOperation<K, S> grid_multiply() {
  return {"multiply", [](auto& k, auto& c) { multiply(k, c.values(), c.x(0), c.x(1), c.y()); },
          [](auto& k, auto& c) {
            if (c.dx(0) != nullptr) multiply(k, c.values(), c.dy(), c.x(1), c.dx(0));
            if (c.dx(1) != nullptr) multiply(k, c.values(), c.dy(), c.x(0), c.dx(1));
          }};
}

template <class K, class S>
GridOperation<K, S> grid_concat() {
  return {"concat",
          [](auto& k, auto& c) {
            std::int64_t offset = 0;
            for (std::size_t i = 0; i < c.inputs(); ++i) {
              const Side part = side(c, c.in(i));
              copy_rows(k, part.rows, part.values, c.x(i), part.values, c.y() + offset, side(c, c.out()).values);
              offset += part.values;
            }
          },
          [](auto& k, auto& c) {
            std::int64_t offset = 0;
            for (std::size_t i = 0; i < c.inputs(); ++i) {
              const Side part = side(c, c.in(i));
              if (c.dx(i) != nullptr)
                copy_rows(k, part.rows, part.values, c.dy() + offset, side(c, c.out()).values, c.dx(i), part.values);
              offset += part.values;
            }
          }};
}

template <class K, class S>
GridOperation<K, S> grid_slice() {
  return {"slice",
          [](auto& k, auto& c) {
            const std::int64_t run = slice_run(c.in(), c.out()), whole = count(c.in()), part = count(c.out());
            for_slice(c.in(), c.out(), [&](std::int64_t from, std::int64_t to) {
              copy_rows(k, c.samples, run, c.x() + from, whole, c.y() + to, part);
            });
          },
          [](auto& k, auto& c) {
            const std::int64_t run = slice_run(c.in(), c.out()), whole = count(c.in()), part = count(c.out());
            fill(k, c.samples * whole, Arithmetic<S>(0), c.dx());
            for_slice(c.in(), c.out(), [&](std::int64_t from, std::int64_t to) {
              copy_rows(k, c.samples, run, c.dy() + to, part, c.dx() + from, whole);
            });
          }};
}

template <class K, class S>
GridOperation<K, S> grid_max_pool() {
  return {"max_pool",
          [](auto& k, auto& c) {
            max_pool(k, pool_shape<GpuPoolShape>(c), c.samples, c.x(), c.y(), static_cast<std::int32_t*>(c.a.saved));
          },
          [](auto& k, auto& c) {
            max_pool_input_gradient(k, pool_shape<GpuPoolShape>(c), c.samples,
                                    static_cast<const std::int32_t*>(c.a.saved), c.dy(), c.dx());
          }};
}

template <class K, class S>
GridOperation<K, S> grid_average_pool() {
  return {
      "average_pool", [](auto& k, auto& c) { average_pool(k, pool_shape<GpuPoolShape>(c), c.samples, c.x(), c.y()); },
      [](auto& k, auto& c) { average_pool_input_gradient(k, pool_shape<GpuPoolShape>(c), c.samples, c.dy(), c.dx()); }};
}

template <class K, class S>
GridOperation<K, S> grid_global_average_pool() {
  return {"global_average_pool",
          [](auto& k, auto& c) { global_average_pool(k, c.values(), count(c.in()) / count(c.out()), c.x(), c.y()); },
          [](auto& k, auto& c) {
            global_average_pool_input_gradient(k, c.values(), count(c.in()) / count(c.out()), c.dy(), c.dx());
          }};
}

template <class K, class S>
GridOperation<K, S> grid_image_to_tokens() {
  return {"image_to_tokens", [](auto& k, auto& c) { transpose(k, c.samples, c.out()[1], c.out()[0], c.x(), c.y()); },
          [](auto& k, auto& c) { transpose(k, c.samples, c.out()[0], c.out()[1], c.dy(), c.dx()); }};
}

// As many rows as `operation_rules`; tests/runtime/grid_backend_test.cpp compares them.
template <class K, class S>
const std::array kGridOperations = {
    grid_linear<K, S>(),
    grid_conv2d<K, S>(),
    grid_embedding<K, S>(),
    grid_learned_table<K, S>(),
    grid_layer_norm<K, S>(),
    grid_rms_norm<K, S>(),
    grid_activation<K, S>("relu", true),
    grid_activation<K, S>("tanh", true),
    grid_activation<K, S>("sigmoid", true),
    grid_activation<K, S>("gelu", false),
    grid_activation<K, S>("silu", false),
    grid_gated<K, S>(),
    grid_softmax<K, S>(),
    grid_attention<K, S>(),
    grid_add<K, S>(),
    grid_multiply<K, S>(),
    grid_concat<K, S>(),
    grid_slice<K, S>(),
    grid_max_pool<K, S>(),
    grid_average_pool<K, S>(),
    grid_global_average_pool<K, S>(),
    grid_image_to_tokens<K, S>(),
    grid_cross_entropy<K, S>(),
};

// What a backend on such kernels has, whatever its memory is.
template <class K, class S>
class GridBackend : public Backend {
  using F = Arithmetic<S>;
  static_assert(std::is_same_v<F, float>);

 public:
  std::string refusal(const Program&, const ProgramStep& step) const override {
    if (find(step.operation) == nullptr) return std::string(step.operation) + " is not written for this backend";
    const auto* const core = std::get_if<AttentionCore>(&step.spec);
    if (core != nullptr && core->flash && std::max(core->key_size, core->value_size) > grid_kernels::kFlashHead)
      return "fused attention of heads of more than " + std::to_string(grid_kernels::kFlashHead) +
             " values is not written for this backend; use more heads, or kernel: materialized";
    return "";
  }
  Bytes workspace(const Program& program, const ProgramStep& step, std::int64_t samples, Pass pass) const override {
    const auto& operation = known(step);
    return Bytes{operation.workspace == nullptr ? 0 : operation.workspace(StepView{program, step, samples}, pass)};
  }

  void forward(const StepArguments& a) override { known(*a.step).forward(queue(), GridCall<S>(a)); }
  void input_gradient(const StepArguments& a) override {
    const auto& operation = known(*a.step);
    const auto asked = [](void* gradient) { return gradient != nullptr; };
    const bool any = std::ranges::any_of(a.input_gradients, asked);
    if (any && operation.input_gradient != nullptr) operation.input_gradient(queue(), GridCall<S>(a));
  }
  void weight_gradient(const StepArguments& a) override {
    const auto& operation = known(*a.step);
    if (operation.weight_gradient != nullptr) operation.weight_gradient(queue(), GridCall<S>(a));
  }

  void update(const OptimizerSettings& o, std::int64_t step, std::span<const UpdatedParameter> parameters) override {
    PP_CHECK(step >= 1);
    const auto correction = [&](double beta) { return static_cast<F>(1 - std::pow(beta, static_cast<double>(step))); };
    const UpdateRule<F> rule{
        kind_of(o.kind),         static_cast<F>(o.learning_rate), static_cast<F>(o.momentum), static_cast<F>(o.beta1),
        static_cast<F>(o.beta2), static_cast<F>(o.epsilon),       correction(o.beta1),        correction(o.beta2)};
    updated_.clear();
    for (const UpdatedParameter& one : parameters) {
      for (int i = 0; i < states(o.kind); ++i)
        PP_CHECK(one.states[static_cast<std::size_t>(i)] != nullptr);
      updated_.push_back({one.elements, one.weight_in, one.gradient, one.weight_out, one.states[0], one.states[1],
                          static_cast<S*>(one.stored)});
    }
    grid_kernels::update(queue(), rule, updated_.data(), std::ssize(updated_));
  }
  void dropout(const DropoutMask& mask, std::int64_t elements, const void* x, void* y) override {
    PP_CHECK(mask.share >= 0 && mask.share < 1);
    grid_kernels::dropout(queue(), mask, elements, static_cast<const S*>(x), static_cast<S*>(y));
  }
  void add(float* sum, const float* term, std::int64_t elements) override {
    grid_kernels::add(queue(), elements, static_cast<const F*>(sum), term, sum);
  }
  void add_stored(void* sum, const void* term, std::int64_t elements) override {
    S* const y = static_cast<S*>(sum);
    grid_kernels::add(queue(), elements, static_cast<const S*>(y), static_cast<const S*>(term), y);
  }
  void store(const float* values, void* stored, std::int64_t elements) override {
    grid_kernels::convert(queue(), elements, values, static_cast<S*>(stored));
  }
  void scale(float* values, std::int64_t elements, float factor) override {
    if (factor != 1) grid_kernels::scale(queue(), elements, factor, values);
  }

 protected:
  virtual const K& queue() const = 0;

 private:
  static GpuOptimizer kind_of(Optimizer optimizer) {
    switch (optimizer) {
      case Optimizer::Sgd: return GpuOptimizer::Sgd;
      case Optimizer::Momentum: return GpuOptimizer::Momentum;
      case Optimizer::RmsProp: return GpuOptimizer::RmsProp;
      case Optimizer::Adam: return GpuOptimizer::Adam;
      case Optimizer::Muon: break;  // of no run
    }
    PP_CHECK(false);
    return GpuOptimizer::Sgd;
  }
  static const GridOperation<K, S>* find(std::string_view name) {
    for (const auto& operation : kGridOperations<K, S>)
      if (operation.name == name) return &operation;
    return nullptr;
  }
  static const GridOperation<K, S>& known(const ProgramStep& step) {
    const auto* const operation = find(step.operation);
    PP_CHECK(operation != nullptr);
    return *operation;
  }

  std::vector<UpdatedTensor<F, S>> updated_;
};

// A backend that stores tensors as a precision says: Made<float>, Made<Bf16> or Made<Fp16> of these arguments.
template <template <class> class Made, class... Arguments>
std::unique_ptr<Backend> stored_as(Precision precision, Arguments&&... arguments) {
  if (precision == Precision::Bf16) return std::make_unique<Made<Bf16>>(std::forward<Arguments>(arguments)...);
  if (precision == Precision::Fp16) return std::make_unique<Made<Fp16>>(std::forward<Arguments>(arguments)...);
  return std::make_unique<Made<float>>(std::forward<Arguments>(arguments)...);
}

}  // namespace pipewright::runtime::backends
