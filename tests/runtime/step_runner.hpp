// One step of a program on random values: blocks as the executor gives them to a backend, forward, both gradients, and
// gradients by central differences.
//
//     StepRunner<double> run(*cpu_backend_in_double(), program_of(builder, {y}), 3);
//     run.forward(), run.backward();
//     CHECK(run.largest_input_gradient_error() < 1e-7);
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <vector>

#include "core/model/layer_builder.hpp"
#include "runtime/backend.hpp"
#include "runtime/operations.hpp"

namespace pipewright::tests::runtime_test {

// A block on a 64-byte boundary with 64 bytes behind it that nobody may write.
template <class S>
class Block {
 public:
  Block() = default;
  explicit Block(std::int64_t count) : count_(count), data_(static_cast<S*>(allocate(count))) {
    for (std::int64_t i = 0; i < count; ++i)
      data_.get()[i] = static_cast<S>(-77);  // nobody may rely on zeros
    std::memset(guard(), 0x5a, 64);
  }
  S* data() const { return data_.get(); }
  std::int64_t size() const { return count_; }
  S& operator[](std::int64_t i) const { return data_.get()[i]; }
  S* begin() const { return data(); }
  S* end() const { return data() + count_; }
  bool intact() const {
    if (data_ == nullptr) return true;
    for (int i = 0; i < 64; ++i)
      if (guard()[i] != 0x5a) return false;
    return true;
  }

 private:
  struct Free {
    void operator()(S* block) const { ::operator delete (block, std::align_val_t{64}); }
  };
  static void* allocate(std::int64_t count) {
    return ::operator new (static_cast<std::size_t>(count) * sizeof(S) + 64, std::align_val_t{64});
  }
  unsigned char* guard() const { return reinterpret_cast<unsigned char*>(data_.get() + count_); }
  std::int64_t count_ = 0;
  std::unique_ptr<S, Free> data_;
};

// Uniform in (-1, 1), the same on every platform, and never near 0, where relu has no derivative.
class Random {
 public:
  explicit Random(unsigned seed) : bits_(seed) {}
  double value() {
    const double x = static_cast<double>(bits_() >> 11) * 0x1p-52 - 1;
    return x < 0 ? x - 0.01 : x + 0.01;
  }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(bits_() % static_cast<std::uint64_t>(n)); }
  template <class S>
  void fill(const Block<S>& block) {
    for (S& x : block)
      x = static_cast<S>(value());
  }

 private:
  std::mt19937_64 bits_;
};

inline Program program_of(LayerBuilder& builder, std::initializer_list<LayerBuilder::Value> outputs) {
  return *builder.finish(outputs).program.get();
}

inline std::int64_t count(const Program& program, std::int32_t tensor) {
  return static_cast<std::int64_t>(program.tensors[static_cast<std::size_t>(tensor)].shape.elements());
}

// Runs the last step of a program.
template <class S>
class StepRunner {
 public:
  StepRunner(std::unique_ptr<Backend> backend, Program program, std::int64_t samples, unsigned seed = 1)
      : backend_(std::move(backend)), program_(std::move(program)), samples_(samples), random_(seed) {
    const ProgramStep& s = step();
    for (const std::int32_t tensor : s.inputs) {
      const ProgramTensor& t = program_.tensors[static_cast<std::size_t>(tensor)];
      x.emplace_back(t.indices ? 0 : samples * count(program_, tensor));
      random_.fill(x.back());
      dx.emplace_back(t.indices ? 0 : samples * count(program_, tensor));
      if (!t.indices) continue;
      tokens = Block<std::int64_t>(samples * count(program_, tensor));
      for (std::int64_t& token : tokens)
        token = random_.below(std::get<Embedding>(s.spec).vocabulary);
    }
    for (const ParameterTensor& parameter : parameters_of(program_, s)) {
      w.emplace_back(parameter.elements);
      dw.emplace_back(parameter.elements);
      random_.fill(w.back());
    }
    y = Block<S>(samples * count(program_, s.output));
    dy = Block<S>(y.size());
    random_.fill(dy);
    saved = Block<S>(samples * saved_bytes(program_, s) / 4);
    if (s.operation != "cross_entropy") return;
    const Shape& logits = program_.tensors[static_cast<std::size_t>(s.inputs[0])].shape;
    const std::int64_t classes = logits[logits.rank - 1];
    labels = Block<std::int64_t>(x[0].size() / classes);
    for (std::int64_t& label : labels)
      label = random_.below(classes);
    for (S& each : dy)
      each = kLossScale;  // what the gradient of the losses is scaled by
  }

  StepRunner(const StepRunner&) = delete;  // arguments point into it
  StepRunner& operator=(const StepRunner&) = delete;

  static constexpr float kLossScale = 0.125f;

  const ProgramStep& step() const { return program_.steps.back(); }
  const Program& program() const { return program_; }
  Backend& backend() const { return *backend_; }
  std::int64_t samples() const { return samples_; }

  void forward() { call(Pass::Forward); }
  void input_gradient() { call(Pass::InputGradient); }
  void both_gradients() { call(Pass::InputGradient), call(Pass::WeightGradient); }
  // Gradients of parameters are added to `before`.
  void backward(S before = 0) {
    for (const Block<S>& gradient : dw)
      for (S& g : gradient)
        g = before;
    call(Pass::InputGradient);
    call(Pass::WeightGradient);
  }

  // Largest error of a gradient of sum(y dy) against (f(x + h) - f(x - h)) / 2h, h = 1e-5: rounding 1e-16 / h and h^2
  // times the third derivative are both about 1e-10.
  double largest_input_gradient_error() { return largest_error(x, dx); }
  double largest_weight_gradient_error() { return largest_error(w, dw); }

  std::vector<Block<S>> x, dx, w, dw;
  Block<S> y, dy, saved;
  Block<std::int64_t> tokens, labels;

 private:
  void call(Pass pass) {
    Prepared& p = prepared(pass);
    if (pass == Pass::Forward) backend_->forward(p.arguments);
    if (pass == Pass::InputGradient) backend_->input_gradient(p.arguments);
    if (pass == Pass::WeightGradient) backend_->weight_gradient(p.arguments);
    PP_CHECK(p.workspace.intact() && intact());
  }

  // The arguments of a pass, made once.
  struct Prepared {
    std::vector<const void*> inputs;
    std::vector<void*> input_gradients;
    std::vector<const void*> parameters;
    std::vector<float*> parameter_gradients;
    Block<S> workspace;
    StepArguments arguments;
  };
  Prepared& prepared(Pass pass) {
    std::unique_ptr<Prepared>& slot = prepared_[static_cast<std::size_t>(pass)];
    if (slot != nullptr) return *slot;
    slot = std::make_unique<Prepared>();
    Prepared& p = *slot;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bool indices = program_.tensors[static_cast<std::size_t>(step().inputs[i])].indices;
      p.inputs.push_back(indices ? static_cast<const void*>(tokens.data()) : x[i].data());
      p.input_gradients.push_back(indices ? nullptr : dx[i].data());
    }
    for (std::size_t i = 0; i < w.size(); ++i) {
      p.parameters.push_back(w[i].data());
      p.parameter_gradients.push_back(reinterpret_cast<float*>(dw[i].data()));
    }
    const Bytes bytes = backend_->workspace(program_, step(), samples_, pass);
    p.workspace = Block<S>(bytes.value / static_cast<std::int64_t>(sizeof(S)));
    for (S& value : p.workspace)
      value = std::numeric_limits<S>::quiet_NaN();
    StepArguments& a = p.arguments;
    a = {.program = &program_, .step = &step(), .samples = samples_};
    a.inputs = p.inputs, a.parameters = p.parameters;
    a.output = y.data(), a.saved = saved.data(), a.workspace = p.workspace.data();
    a.labels = labels.data(), a.loss_scale = kLossScale;
    if (pass != Pass::Forward) a.output_gradient = dy.data();
    if (pass == Pass::InputGradient) a.input_gradients = p.input_gradients;
    if (pass == Pass::WeightGradient) a.parameter_gradients = p.parameter_gradients;
    return p;
  }
  bool intact() const {
    bool whole = y.intact() && saved.intact();
    for (const auto* blocks : {&x, &dx, &w, &dw})
      for (const Block<S>& block : *blocks)
        whole = whole && block.intact();
    return whole;
  }

  double objective() {
    forward();
    double total = 0;
    for (std::int64_t i = 0; i < y.size(); ++i)
      total += static_cast<double>(y[i]) * static_cast<double>(dy[i]);
    return total;
  }
  double largest_error(const std::vector<Block<S>>& values, const std::vector<Block<S>>& gradients) {
    const S h = static_cast<S>(1e-5);
    double largest = 0;
    for (std::size_t b = 0; b < values.size(); ++b)
      for (std::int64_t i = 0; i < values[b].size(); ++i) {
        const S middle = values[b][i];
        values[b][i] = middle + h;
        const double above = objective();
        values[b][i] = middle - h;
        const double below = objective();
        values[b][i] = middle;
        const double error = std::abs((above - below) / (2 * static_cast<double>(h)) - double(gradients[b][i]));
        if (!(error <= largest)) largest = error;  // NaN is large
      }
    forward();
    return largest;
  }

  std::unique_ptr<Backend> backend_;
  Program program_;
  std::int64_t samples_;
  Random random_;
  std::array<std::unique_ptr<Prepared>, 3> prepared_;
};

// Norm of the difference over the norm of b.
template <class A, class B>
double relative_difference(const Block<A>& a, const Block<B>& b) {
  double difference = 0, norm = 0;
  PP_CHECK(a.size() == b.size());
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    difference += (x - y) * (x - y), norm += y * y;
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

}  // namespace pipewright::tests::runtime_test
