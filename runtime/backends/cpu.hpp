// The CPU backend: one thread, arithmetic of cpu_kernels.hpp, tensors on 64-byte boundaries (checked).
//
// Tests: tests/runtime/*_test.cpp
#pragma once

#include <memory>

#include "runtime/backend.hpp"

namespace pipewright::runtime {

// Throws InputError when this processor lacks what the arithmetic was compiled for (-Dcpu_isa).
std::unique_ptr<Backend> cpu_backend();

// The same in double, for numerical gradients in tests: whatever is a float in `StepArguments` and `Backend` is then a
// double behind a pointer that was cast, and what is saved takes twice the bytes of `saved_bytes`.
std::unique_ptr<Backend> cpu_backend_in_double();

}  // namespace pipewright::runtime
