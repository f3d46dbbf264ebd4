// The seam to a device's arithmetic: one object per worker, used by that worker's thread alone.
//
// Pointers are the device's; every tensor begins at a multiple of `alignment()`. A tensor of b samples holds sample 0,
// then sample 1, ... each laid out row by row as its shape says: {channels, height, width}, {tokens, features}. Values
// are fp32, token numbers and labels int64. The order of every sum is fixed by the shapes: the same input gives the
// same bits, on any number of workers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/model/program.hpp"
#include "core/plan/scenario.hpp"
#include "core/units.hpp"

namespace pipewright {

enum class Pass : std::uint8_t { Forward, InputGradient, WeightGradient };

// One step of one micro-batch. What a pass does not use is null or empty.
struct StepArguments {
  const Program* program = nullptr;
  const ProgramStep* step = nullptr;
  std::int64_t samples = 0;
  std::span<const void* const> inputs;  // in the order of ProgramStep::inputs
  void* output = nullptr;
  const void* output_gradient = nullptr;
  std::span<void* const> input_gradients;       // null: not asked for. Overwritten, not added to
  std::span<const float* const> parameters;     // in the order of `parameters_of`
  std::span<float* const> parameter_gradients;  // added to
  void* saved = nullptr;                        // saved_bytes * samples
  void* workspace = nullptr;                    // `workspace` bytes
  // cross_entropy: one label per row of the logits, and what the gradient is scaled by: 1 / samples of the update. The
  // output is the mean over a sample's rows of -log(probability of the label), one value per sample, not scaled.
  const std::int64_t* labels = nullptr;
  float loss_scale = 1;
};

// What the optimizer does to the parameters of one tensor; step counts from 1.
//     sgd        w -= lr g
//     momentum   v = mu v + g;   w -= lr v                                                            [Sutskever13]
//     rmsprop    v = rho v + (1 - rho) g^2;   w -= lr g / (sqrt(v) + eps)                             [Hinton12]
//     adam       m = b1 m + (1 - b1) g;   v = b2 v + (1 - b2) g^2;
//                w -= lr m / (1 - b1^step) / (sqrt(v / (1 - b2^step)) + eps)                          [Kingma15]
struct OptimizerSettings {
  Optimizer kind = Optimizer::Sgd;
  double learning_rate = 0.1;
  double momentum = 0.9;              // mu
  double beta1 = 0.9, beta2 = 0.999;  // rho of rmsprop is beta2
  double epsilon = 1e-8;
};
// States per parameter: sgd 0, momentum and rmsprop 1, adam 2.
int states(Optimizer optimizer);

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "cpu (x86-64-v3)"
  virtual Bytes alignment() const = 0;   // of every block: 64 B
  // "" or why this step cannot be run here, beyond what `rule_of` refuses.
  virtual std::string refusal(const Program& program, const ProgramStep& step) const = 0;
  virtual Bytes workspace(const Program& program, const ProgramStep& step, std::int64_t samples, Pass pass) const = 0;
  virtual void forward(const StepArguments& arguments) = 0;
  virtual void input_gradient(const StepArguments& arguments) = 0;
  virtual void weight_gradient(const StepArguments& arguments) = 0;
  // weight_out may be weight_in. states: one block per state, each as long as the tensor.
  virtual void update(const OptimizerSettings& settings, std::int64_t step, std::int64_t elements,
                      const float* weight_in, float* weight_out, const float* gradient,
                      std::span<float* const> states) = 0;
  virtual void add(float* sum, const float* term, std::int64_t elements) = 0;  // sum += term
  virtual void copy(void* to, const void* from, Bytes bytes) = 0;
  virtual void zero(void* block, Bytes bytes) = 0;
};

}  // namespace pipewright
