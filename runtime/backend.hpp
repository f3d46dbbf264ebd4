// The seam to a device's arithmetic: one object per worker, used by that worker's thread alone.
//
// Pointers are the device's; every tensor begins at a multiple of `alignment()`. A tensor of b samples holds sample 0,
// then sample 1, ... each laid out row by row as its shape says: {channels, height, width}, {tokens, features}. Values
// are stored as the backend's precision says, fp32, bf16 or fp16; losses, statistics and gradients of parameters are
// fp32, token numbers and labels int64. The order of every sum is fixed by the shapes: the same input gives the same
// bits, on any number of workers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/cluster/measured_terms.hpp"
#include "core/ids.hpp"
#include "core/model/program.hpp"
#include "core/question/scenario.hpp"
#include "core/units.hpp"
#include "kernels/dropout_mask.hpp"
#include "runtime/context_part.hpp"
#include "runtime/device_memory.hpp"

namespace pipewright::runtime {

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
  std::span<const void* const> parameters;      // in the order of `parameters_of`, stored as tensors are
  std::span<float* const> parameter_gradients;  // added to
  void* saved = nullptr;                        // saved_bytes * samples
  void* workspace = nullptr;                    // `workspace` bytes
  // cross_entropy: one label per row of the logits, and what the gradient is scaled by: 1 / samples of the update. The
  // output is the mean over a sample's rows of -log(probability of the label), one value per sample, not scaled.
  const std::int64_t* labels = nullptr;
  float loss_scale = 1;
  ContextPart part;  // of every sequence
};

// One tensor of an update. weight_out may be weight_in. states: as many blocks as the optimizer has, each as long as
// the tensor, the others null. stored: where weight_out goes as tensors are stored, too, or null.
struct UpdatedParameter {
  std::int64_t elements = 0;
  const float* weight_in = nullptr;
  float* weight_out = nullptr;
  const float* gradient = nullptr;
  std::array<float*, 2> states{};
  void* stored = nullptr;
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

// What does the arithmetic, where that is not the host's processor.
struct DeviceFacts {
  std::string name;    // "NVIDIA H200"; "": the host's processor
  int sms = 0;         // that this worker has; 0: no GPU
  std::string driver;  // "13.0"
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;                    // "cpu (x86-64-v3)"
  virtual std::string_view kind() const { return "cpu"; }  // as in run.backend: whose prices hold
  virtual DeviceFacts device() const { return {}; }
  // Of tensors and products. bf16, fp16: what layers read of the weights is a rounded copy, of fp32 masters.
  virtual Precision precision() const { return Precision::Fp32; }
  virtual Bytes alignment() const = 0;  // of every block: 64 B
  // "" or why this step cannot be run here, beyond what `rule_of` refuses.
  virtual std::string refusal(const Program& program, const ProgramStep& step) const = 0;
  virtual Bytes workspace(const Program& program, const ProgramStep& step, std::int64_t samples, Pass pass) const = 0;
  virtual void forward(const StepArguments& arguments) = 0;
  virtual void input_gradient(const StepArguments& arguments) = 0;
  virtual void weight_gradient(const StepArguments& arguments) = 0;
  // Attention of AttentionCore::parts > 1, piece by piece as keys and values of others arrive [RingAttention23]. Those of
  // one part are a block {samples, tokens of a part, key heads * (key size + value size)}; their gradients are another.
  //     forward    keys_of_part, attend_begin; attend for each part. Output and `saved` are then those of `forward`.
  //     backward   keys_of_part, gradients_begin; attend_gradient for each part; gradients_end with those of its own keys
  // `gradients_begin` of nothing: those of the keys are there already, of later parts.
  // Only the CPU has them.                                      tests/runtime/context_test.cpp
  virtual bool shares_sequences() const { return false; }
  virtual void keys_of_part(const StepArguments&, void* keys) { no_parts(keys); }
  virtual void attend_begin(const StepArguments& arguments) { no_parts(arguments.saved); }
  virtual void attend(const StepArguments&, int, const void* keys) { no_parts(keys); }  // to keys of that part
  virtual void gradients_begin(const StepArguments&, void* gradients) { no_parts(gradients); }
  virtual void attend_gradient(const StepArguments&, int, const void*, void* gradients) { no_parts(gradients); }
  virtual void gradients_end(const StepArguments&, const void* gradients) { no_parts(gradients); }
  // How a library did the product that was asked for last; nothing: none did.
  virtual std::optional<ProductAlgorithm> product_algorithm() const { return std::nullopt; }
  // All parameters at once: as few launches as a device can do with.
  virtual void update(const OptimizerSettings& settings, std::int64_t step,
                      std::span<const UpdatedParameter> parameters) = 0;
  // Dropout of a tensor, and its gradient, of dy (kernels/dropout.hpp). Only a calibration asks for it: no run has any.
  virtual void dropout(const DropoutMask& mask, std::int64_t elements, const void* x, void* y);
  virtual void add(float* sum, const float* term, std::int64_t elements) = 0;  // sum += term
  // The same of tensors, and fp32 values as tensors are stored.
  virtual void add_stored(void* sum, const void* term, std::int64_t elements) {
    add(static_cast<float*>(sum), static_cast<const float*>(term), elements);
  }
  virtual void store(const float* values, void* stored, std::int64_t elements) {
    copy(stored, values, Bytes{4 * elements});
  }
  virtual void scale(float* values, std::int64_t elements, float factor) = 0;
  virtual void copy(void* to, const void* from, Bytes bytes) = 0;
  virtual void zero(void* block, Bytes bytes) = 0;

  // A device works through what it was asked for in this order, and may be behind. Returns when it has done all; throws
  // std::runtime_error with what went wrong there.
  virtual void finish() {}
  // When it did. Moments are ns of the host's monotonic clock; a device's own clock is placed on it by `set_clock`,
  // before every step. A mark stands behind all that was asked for before it; its moment is known after `finish`. What
  // is timed so needs no wait between its parts. As here, a mark is the moment at which it is set: of a backend that
  // is never behind.                                                    tests/runtime/device_clock_test.cpp
  virtual void set_clock() {}
  virtual void mark(std::size_t number);
  virtual std::int64_t moment(std::size_t number) const;
  virtual std::int64_t finished() const;  // when all was done that the last `finish` waited for
  virtual double mark_cost() const;       // ns that setting a mark adds to what lies between two of them
  // A fixed piece of arithmetic, so short that it can be done before every step: how fast the device is now. It slows
  // down with its clock, and where somebody else uses it, too.
  virtual Time probe();

  // Its memory, and who moves it: for the worker's thread, in order with its arithmetic, or for a thread beside it.
  virtual std::unique_ptr<DeviceMemory> reserve(Bytes size) { return host_memory(size); }
  virtual std::unique_ptr<Mover> mover([[maybe_unused]] MoverFor thread) { return host_mover(); }
  virtual bool in_host_memory() const { return true; }

 private:
  static void no_parts(const void*);
  std::vector<std::int64_t> marks_;
};

// Makes the backends of a run's workers, from a function of the worker or of nothing.
class BackendMaker {
 public:
  BackendMaker() = default;
  template <class Make>
  requires std::is_invocable_v<Make, WorkerId> BackendMaker(Make make) : make_(std::move(make)) {}
  template <class Make>
  requires(std::is_invocable_v<Make> && !std::is_same_v<Make, BackendMaker>) BackendMaker(Make make)
      : make_([make = std::move(make)](WorkerId) { return make(); }) {}

  // Of any worker: what it is, and how much it takes.
  std::unique_ptr<Backend> operator()() const { return make_(0); }
  std::unique_ptr<Backend> operator()(WorkerId worker) const { return make_(worker); }

 private:
  std::function<std::unique_ptr<Backend>(WorkerId)> make_;
};

}  // namespace pipewright::runtime
