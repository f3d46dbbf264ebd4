#include "calibrate/step_reference.hpp"

#include <algorithm>
#include <memory>
#include <new>

#include "core/check.hpp"
#include "runtime/backends/cpu.hpp"
#include "runtime/operations.hpp"

namespace pipewright::calibrate {
namespace {

constexpr std::align_val_t kBackendAlignment{64};  // the CPU backend's

class Doubles {
 public:
  explicit Doubles(std::size_t count)
      : count_(count), data_(static_cast<double*>(::operator new(8 * count + 64, kBackendAlignment))) {
    std::uninitialized_fill_n(data_.get(), count, 0.0);
  }
  explicit Doubles(const std::vector<double>& values) : Doubles(values.size()) {
    std::ranges::copy(values, data_.get());
  }
  double* data() const { return data_.get(); }
  float* as_float() const { return reinterpret_cast<float*>(data_.get()); }  // as the backend in double takes them
  std::vector<double> values() const { return {data_.get(), data_.get() + count_}; }

 private:
  struct Free {
    void operator()(double* block) const { ::operator delete(block, kBackendAlignment); }
  };
  std::size_t count_;
  std::unique_ptr<double, Free> data_;
};

// Token numbers and labels on the same boundary.
struct Numbers {
  explicit Numbers(const std::vector<std::int64_t>& from) : block(from.size()) { std::ranges::copy(from, data()); }
  std::int64_t* data() const { return reinterpret_cast<std::int64_t*>(block.data()); }
  Doubles block;
};

std::size_t size(std::int64_t count) {
  return at(count);
}

}  // namespace

std::vector<std::vector<double>> step_reference(const Program& program, std::int64_t samples, const StepValues& v,
                                                MeasuredPass pass) {
  const ProgramStep& step = program.steps.front();
  const std::unique_ptr<Backend> backend = cpu_backend_in_double();
  std::vector<Doubles> inputs, input_gradients, parameters, parameter_gradients;
  std::vector<Numbers> numbers;
  numbers.reserve(v.inputs.size());
  std::vector<const void*> input_at, parameter_at;
  std::vector<void*> input_gradient_at;
  std::vector<float*> parameter_gradient_at;
  for (const StepValues::Input& input : v.inputs) {
    inputs.emplace_back(input.values);
    input_gradients.emplace_back(pass == MeasuredPass::InputGradient ? input.values.size() : 0);
    const bool indices = !input.numbers.empty();
    if (indices) numbers.emplace_back(input.numbers);
    input_at.push_back(indices ? static_cast<const void*>(numbers.back().data()) : inputs.back().data());
    input_gradient_at.push_back(indices ? nullptr : input_gradients.back().data());
  }
  for (const std::vector<double>& parameter : v.parameters) {
    parameters.emplace_back(parameter);
    parameter_gradients.emplace_back(pass == MeasuredPass::WeightGradient ? parameter.size() : 0);
    parameter_at.push_back(parameters.back().data());
    parameter_gradient_at.push_back(parameter_gradients.back().as_float());
  }
  const Shape& shape = program.tensors[size(step.output)].shape;
  const Doubles output(size(samples) * static_cast<std::size_t>(shape.elements())), output_gradient(v.output_gradient),
      saved(size(samples * saved_bytes(program, step)) / 4);
  const Numbers labels(v.labels);
  std::int64_t scratch = 0;
  for (const Pass each : {Pass::Forward, Pass::InputGradient, Pass::WeightGradient})
    scratch = std::max(scratch, backend->workspace(program, step, samples, each).value);
  const Doubles workspace(size(scratch) / 8 + 1);
  StepArguments a;
  a.program = &program, a.step = &step, a.samples = samples;
  a.inputs = input_at, a.parameters = parameter_at;
  a.output = output.data(), a.saved = saved.data(), a.workspace = workspace.data(), a.labels = labels.data();
  backend->forward(a);
  std::vector<std::vector<double>> results;
  if (pass == MeasuredPass::Forward) return {output.values()};
  a.output_gradient = output_gradient.data();
  if (pass == MeasuredPass::InputGradient) {
    a.input_gradients = input_gradient_at;
    backend->input_gradient(a);
    for (const Doubles& each : input_gradients)
      results.push_back(each.values());
    return results;
  }
  a.parameter_gradients = parameter_gradient_at;
  backend->weight_gradient(a);
  for (const Doubles& each : parameter_gradients)
    results.push_back(each.values());
  return results;
}

std::vector<std::vector<double>> update_reference(const OptimizerSettings& settings, const std::vector<double>& weight,
                                                  const std::vector<double>& gradient,
                                                  const std::vector<std::vector<double>>& states) {
  const Doubles w(weight), g(gradient);
  std::vector<Doubles> blocks;
  UpdatedParameter one = {static_cast<std::int64_t>(weight.size()), w.as_float(), w.as_float(), g.as_float()};
  for (std::size_t i = 0; i < states.size(); ++i) {
    blocks.emplace_back(states[i]);
    one.states[i] = blocks.back().as_float();
  }
  cpu_backend_in_double()->update(settings, 1, {&one, 1});
  std::vector<std::vector<double>> results = {w.values()};
  for (const Doubles& block : blocks)
    results.push_back(block.values());
  return results;
}

std::vector<double> dropout_reference(const DropoutMask& mask, const std::vector<double>& x) {
  const Doubles from(x), to(x.size());
  cpu_backend_in_double()->dropout(mask, std::ssize(x), from.data(), to.data());
  return to.values();
}

}  // namespace pipewright::calibrate
