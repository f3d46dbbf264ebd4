// What `pipewright doctor` found, and how it is told. Each line of the text says what is there or what is missing, and
// what that means.
//
// Tests: tests/cli/doctor_test.cpp
#pragma once

#include <string>

#include "kernels/gpu_api.hpp"

namespace pipewright::study {

struct CpuFindings {
  std::string processor;   // "AMD EPYC 9965"
  int cores = 0;           // that this program may use
  std::string arithmetic;  // "cpu (x86-64-v3)"
  std::string refusal;     // why the processor cannot run it, or ""
  std::string mpi;         // "transport mpi (4.1.4)", or "no: ..." and why
};

std::string doctor_text(const CpuFindings& cpu, const GpuSystem& gpu);

}  // namespace pipewright::study
