// A result as `simulate` writes it (docs/reference/result-json.md), read back for `compare` and `validate`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/yaml/flat_values.hpp"

namespace pipewright::io {

// Figures in SI base units; a field for each key of pipewright.result/1 that `compare` sets side by side.
struct ResultFigures {
  struct Stage {
    std::string layers;  // "0-5", "0-2, 12-14"
    double forward = 0, backward = 0, recompute = 0, busy = 0;
    double peak = 0, need = 0, capacity = 0;  // bytes; `need`: what the device must have
    double model = 0, reserve = 0;            // of it: what the model holds, what context and libraries take
    std::int64_t in_flight = 0;
  };
  struct Link {
    std::string name;
    double bytes = 0, utilization = 0;
  };
  struct Part {
    std::string what;
    double time = 0;
  };
  KeysAndValues inputs;  // what the document tells of scenario and plan
  std::string name;      // of the scenario
  std::int64_t global_batch_size = 0, devices = 0;
  std::optional<std::int64_t> sequence_length;
  double step_time = 0, makespan = 0, samples_per_s = 0;
  std::optional<double> tokens_per_s, mfu, hfu, speedup_one_device;
  std::optional<double> step_time_low, step_time_high;              // its 90 % interval, where it is predicted
  std::optional<double> days, device_hours, cost, energy, goodput;  // of the whole training; energy in joules
  double bubble = 0, bubble_span = 0;
  bool fits = true;
  std::string shortfall, limiting_factor;
  // Of all workers' time, which is workers x makespan: the shares sum to 1.
  double busy = 0, fill = 0, imbalance = 0, communication = 0, stall = 0, drain = 0;
  std::int64_t workers = 0;
  std::vector<Stage> stages;
  std::vector<Link> links;
  std::vector<Part> critical_path;
};

// Throws InputError, with `file` as its place, for what is no "pipewright.result/1", for one of a plan that did not fit
// (which has no figures), and for figures that are missing or of another type.
ResultFigures parse_result(const std::string& text, const std::string& file);

}  // namespace pipewright::io
