#include "runtime/backends/cpu.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include <fmt/format.h>

#include "core/check.hpp"
#include "runtime/backends/cpu_kernels.hpp"
#include "runtime/backends/cpu_operations.hpp"
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
    return find_cpu_operation<S>(step.operation) == nullptr ? std::string(step.operation) + " is not written" : "";
  }

  Bytes workspace(const Program& program, const ProgramStep& step, std::int64_t samples, Pass pass) const override {
    const CpuOperation<S>& operation = known(step);
    const std::int64_t values =
        operation.workspace == nullptr ? 0 : operation.workspace(StepView{program, step, samples}, pass);
    return Bytes{values * static_cast<std::int64_t>(sizeof(S))};
  }

  void forward(const StepArguments& arguments) override { known(*arguments.step).forward(checked(arguments)); }
  void input_gradient(const StepArguments& arguments) override {
    const CpuOperation<S>& operation = known(*arguments.step);
    const auto asked = [](void* gradient) { return gradient != nullptr; };
    const bool any = std::ranges::any_of(arguments.input_gradients, asked);
    if (any && operation.input_gradient != nullptr) operation.input_gradient(checked(arguments));
  }
  void weight_gradient(const StepArguments& arguments) override {
    const CpuOperation<S>& operation = known(*arguments.step);
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
  static const CpuOperation<S>& known(const ProgramStep& step) {
    const CpuOperation<S>* const operation = find_cpu_operation<S>(step.operation);
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
