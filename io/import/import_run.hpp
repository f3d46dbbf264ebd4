// Logs and traces of others as measured runs: what their readers find, with what was assumed and what is not in them.
#pragma once

#include <string>
#include <string_view>

#include "io/import/run_file.hpp"

namespace pipewright {

// `format`: as TrainingLog has it, "Megatron-LM" or "torchtitan". Throws InputError where the log is of the other.
ImportedRun import_log(const std::string& path, std::string_view format);

// A trace of PyTorch's profiler.
ImportedRun import_kineto(const std::string& path);

}  // namespace pipewright
