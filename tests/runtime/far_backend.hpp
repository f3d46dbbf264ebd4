// A device that is not the host, for tests: its memory cannot be read from here, and it does what it is asked for as
// late as it may.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "runtime/backends/cpu.hpp"

namespace pipewright::tests::runtime_test {

// No program may touch such an address: bit 47 is set, and those above are not.
constexpr std::uintptr_t kFar = std::uintptr_t{1} << 47;

template <class T>
T* far(T* pointer) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) + kFar);
}
template <class T>
T* near(T* pointer) {
  if (pointer == nullptr) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  PP_CHECK(address > kFar);  // else it is the host's
  return reinterpret_cast<T*>(address - kFar);
}

class FarMemory final : public DeviceMemory {
 public:
  explicit FarMemory(std::unique_ptr<DeviceMemory> memory)
      : DeviceMemory(far(memory->base())), memory_(std::move(memory)) {}

 private:
  std::unique_ptr<DeviceMemory> memory_;
};

// What the device has been asked for and has not done yet.
class Queue {
 public:
  void ask(std::function<void()> what) { asked_.push_back(std::move(what)); }
  void finish() {
    for (const auto& what : std::exchange(asked_, {}))
      what();
  }

 private:
  std::vector<std::function<void()>> asked_;
};

class FarMover final : public Mover {
 public:
  explicit FarMover(Queue* queue) : queue_(queue) {}  // nullptr: beside the worker
  void finish() override { settled(); }
  void copy(void* to, const void* from, Bytes bytes) override {
    queue().ask([=, this] { host_->copy(near(to), near(from), bytes); });
  }
  void upload(void* to, const void* from_host, Bytes bytes) override { settled().upload(near(to), from_host, bytes); }
  void download(void* to_host, const void* from, Bytes bytes) override {
    settled().download(to_host, near(from), bytes);
  }
  void sum(float* to, std::span<const float* const> terms, std::int64_t elements) override {
    std::vector<const float*> here;
    for (const float* const term : terms)
      here.push_back(near(term));
    queue().ask([=, this] { host_->sum(near(to), here, elements); });
  }

 private:
  Queue& queue() { return queue_ != nullptr ? *queue_ : own_; }
  Mover& settled() {
    queue().finish();
    return *host_;
  }
  Queue* queue_;
  Queue own_;
  std::unique_ptr<Mover> host_ = host_mover();
};

class FarBackend : public Backend {
 public:
  std::string name() const override { return "far"; }
  Bytes alignment() const override { return cpu_->alignment(); }
  std::string refusal(const Program& program, const ProgramStep& step) const override {
    return cpu_->refusal(program, step);
  }
  Bytes workspace(const Program& program, const ProgramStep& step, std::int64_t samples, Pass pass) const override {
    return cpu_->workspace(program, step, samples, pass);
  }
  void forward(const StepArguments& a) override { ask(a, &Backend::forward); }
  void input_gradient(const StepArguments& a) override { ask(a, &Backend::input_gradient); }
  void weight_gradient(const StepArguments& a) override { ask(a, &Backend::weight_gradient); }
  void update(const OptimizerSettings& settings, std::int64_t step, std::span<const UpdatedParameter> all) override {
    std::vector<UpdatedParameter> here;
    for (const UpdatedParameter& one : all) {
      here.push_back({one.elements, near(one.weight_in), near(one.weight_out), near(one.gradient)});
      for (std::size_t i = 0; i < one.states.size(); ++i)
        if (one.states[i] != nullptr) here.back().states[i] = near(one.states[i]);
      if (one.stored != nullptr) here.back().stored = near(one.stored);
    }
    queue_.ask([=, this] { cpu_->update(settings, step, here); });
  }
  void add(float* sum, const float* term, std::int64_t elements) override {
    queue_.ask([=, this] { cpu_->add(near(sum), near(term), elements); });
  }
  void scale(float* values, std::int64_t elements, float factor) override {
    queue_.ask([=, this] { cpu_->scale(near(values), elements, factor); });
  }
  void copy(void* to, const void* from, Bytes bytes) override {
    queue_.ask([=, this] { cpu_->copy(near(to), near(from), bytes); });
  }
  void zero(void* block, Bytes bytes) override {
    queue_.ask([=, this] { cpu_->zero(near(block), bytes); });
  }
  void finish() override { queue_.finish(); }
  std::unique_ptr<DeviceMemory> reserve(Bytes size) override {
    return std::make_unique<FarMemory>(cpu_->reserve(size));
  }
  std::unique_ptr<Mover> mover(MoverFor thread) override {
    return std::make_unique<FarMover>(thread == MoverFor::Worker ? &queue_ : nullptr);
  }
  bool in_host_memory() const override { return false; }

 private:
  void ask(const StepArguments& a, void (Backend::*pass)(const StepArguments&)) {
    struct Held {
      StepArguments arguments;
      std::vector<const void*> inputs;
      std::vector<void*> input_gradients;
      std::vector<const void*> parameters;
      std::vector<float*> parameter_gradients;
    };
    const auto held = std::make_shared<Held>();
    const auto take = [](const auto& from, auto& into) {
      for (const auto pointer : from)
        into.push_back(near(pointer));
    };
    take(a.inputs, held->inputs), take(a.input_gradients, held->input_gradients);
    take(a.parameters, held->parameters), take(a.parameter_gradients, held->parameter_gradients);
    StepArguments& here = held->arguments = a;
    here.inputs = held->inputs, here.input_gradients = held->input_gradients;
    here.parameters = held->parameters, here.parameter_gradients = held->parameter_gradients;
    here.output = near(a.output), here.output_gradient = near(a.output_gradient);
    here.saved = near(a.saved), here.workspace = near(a.workspace), here.labels = near(a.labels);
    queue_.ask([this, held, pass] { (cpu_.get()->*pass)(held->arguments); });
  }

  std::unique_ptr<Backend> cpu_ = cpu_backend();
  Queue queue_;
};

inline std::unique_ptr<Backend> far_backend() {
  return std::make_unique<FarBackend>();
}

}  // namespace pipewright::tests::runtime_test
