// The operations that the CPU runs, on float and on double.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/backends/step_view.hpp"

namespace pipewright::runtime {

template <class S>
struct CpuOperation {
  std::string_view name;
  void (*forward)(const backends::Call<S>&);
  void (*input_gradient)(const backends::Call<S>&) = nullptr;
  void (*weight_gradient)(const backends::Call<S>&) = nullptr;
  std::int64_t (*workspace)(const backends::StepView&, Pass) = nullptr;  // values
};

// nullptr: there is none of that name.
template <class S>
const CpuOperation<S>* find_cpu_operation(std::string_view name);

}  // namespace pipewright::runtime
