// Measured times of one machine: what `calibrate` writes and `cost: {profile: FILE}` prices with.
//
// Times are trimmed means (the slowest 5 % are dropped): the sum of means is the mean of sums, medians do not add. They
// hold while `active` workers compute at once, which share caches and memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/program.hpp"
#include "core/plan/optimizer.hpp"
#include "core/units.hpp"

namespace pipewright {

constexpr int kProfileVersion = 2;

// What tells one machine from another.
struct Fingerprint {
  std::string processor;  // "Intel(R) Xeon(R) Platinum 8480+"
  std::string isa;        // of the kernels: "x86-64-v3"
  int cores = 0;          // that the measurement could use
  std::string revision;   // of pipewright
  bool operator==(const Fingerprint&) const = default;
};

// One layer at one size of micro-batch.
struct LayerTimes {
  std::string key;  // what it computes: `describe`
  std::int64_t samples = 0;
  Time forward, input_gradient, weight_gradient;
  double spread = 0;          // of the forward: (p95 - p5) / mean
  std::int64_t measured = 0;  // how often
};

// An amount of work that takes fixed + rate * amount.
struct LinearTime {
  double fixed_ns = 0, ns_per_unit = 0;
  Time at(double amount) const;
  bool operator==(const LinearTime&) const = default;
};

// The step of one optimizer, by parameters.
struct UpdateTime {
  Optimizer optimizer = Optimizer::Sgd;
  LinearTime by_parameters;
};

struct MachineProfile {
  std::string name;
  std::string date;     // of the measurement, ISO 8601
  std::string backend;  // "cpu"
  Fingerprint machine;
  int active = 1;                  // workers that computed while it was measured
  std::vector<LayerTimes> layers;  // by key, then samples
  Time op_overhead;                // per op, beside its layers and messages
  LinearTime send;                 // of the sender, by bytes: the copy into the receiver's slot
  LinearTime first_read;  // of the receiver, by bytes: what reading another core's data takes more than its own
  Time handoff;           // from the end of a copy until the receiver has noticed
  std::vector<UpdateTime> updates;  // one of each optimizer that was measured
  // Relative error of one op's time: `common` to all ops (clock), `independent` of the others.
  double common_error = 0, independent_error = 0;
  std::string source;  // one line for reports: what, where, when
};

// What a layer computes, in one line: its operations with shapes and settings. Layers that compute the same have the
// same line.   "layer_norm 64x128; linear 64x128 -> 64x384 bias; ..."
std::string describe(const Program& program);

// The optimizer's step, or nullptr when it was not measured.
const LinearTime* find_update(const MachineProfile& profile, Optimizer optimizer);

// The layer's times, or nullptr when it was not measured at that size.
const LayerTimes* find_times(const MachineProfile& profile, std::string_view key, std::int64_t samples);

}  // namespace pipewright
