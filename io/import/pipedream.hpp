// PipeDream's layer profiles (graph.txt): one node per line, then edges.  [PipeDream19]
//   node11 -- MaxPool2d(...) -- forward_compute_time=2.211, backward_compute_time=2.788, activation_size=205520896.000,
//   parameter_size=0.000 <TAB>node4 -- node5
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/model/graph.hpp"

namespace pipewright::io {

// Times (ms) and sizes (bytes) are kept as profiled. Input nodes are dropped (their time is data loading), and so are
// `__getitem__` nodes without users. `batch`: samples the profile was taken with; absent: derived from the Input
// tensor's bytes where these are a whole number of 3x224x224 or 3x299x299 fp32 images, else an InputError that asks for
// `batch`. Errors name file:line.
Model read_pipedream_profile(const std::string& path, std::optional<std::int64_t> batch);
Model parse_pipedream_profile(const std::string& text, const std::string& file, std::optional<std::int64_t> batch);

// The model as a reviewable YAML file with a provenance header (file name, sha256, tool version).
std::string model_yaml(const Model& model, const std::string& provenance);

}  // namespace pipewright::io
