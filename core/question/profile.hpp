// Measured times of one machine: what `calibrate` writes and `cost: {profile: FILE}` prices with.
//
// Times are means over the middle half of the rounds in which they were measured (calibrate/calibrate.hpp says why).
// They hold while so many workers compute at once, which share caches and memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cluster/cluster.hpp"
#include "core/model/graph.hpp"
#include "core/model/program.hpp"
#include "core/question/optimizer.hpp"
#include "core/units.hpp"

namespace pipewright::core {

constexpr int kProfileVersion = 3;

// What tells one machine from another.
struct Fingerprint {
  std::string processor;  // "Intel(R) Xeon(R) Platinum 8480+", "NVIDIA H200"
  std::string isa;        // of the kernels: "cpu (x86-64-v3)", "cuda (66 SMs)"
  int cores = 0;          // of the host, that the measurement could use
  std::string revision;   // of pipewright
  int sms = 0;            // of a GPU, that each worker had; 0: no GPU
  std::string driver;     // of the GPU; "": no GPU
  bool operator==(const Fingerprint&) const = default;
};

// One layer at one size of micro-batch, while so many workers computed.
struct LayerTimes {
  std::string key;  // what it computes: `describe`
  std::int64_t samples = 0;
  Time forward, input_gradient, weight_gradient;
  double spread = 0;          // of the forward: (p95 - p5) / mean
  std::int64_t measured = 0;  // how often
  int active = 0;             // workers that computed meanwhile, this one among them; 0: MachineProfile::active
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

// The all-reduce of one bucket over so many members: fixed + rate * bytes.
struct AllReduceTime {
  int members = 0;
  LinearTime by_bytes;
};

struct MachineProfile {
  std::string name;
  std::string date;                       // of the measurement, ISO 8601
  std::string backend;                    // "cpu", "cuda": whose runs it prices
  Precision precision = Precision::Fp32;  // of the runs that were measured
  Fingerprint machine;
  int active = 1;                  // workers that computed in the largest run: where times of load 0 are placed
  std::vector<LayerTimes> layers;  // by key, samples, active (0, all of them, first)
  Time op_overhead;                // per op, beside its layers and messages
  LinearTime send;                 // of the sender, by bytes: the copy into the receiver's slot
  LinearTime first_read;  // of the receiver, by bytes: what reading another core's data takes more than its own
  Time handoff;           // from the end of a copy until the receiver has noticed
  std::vector<UpdateTime> updates;         // one of each optimizer that was measured
  std::vector<AllReduceTime> all_reduces;  // by members
  Time probe;  // a fixed piece of arithmetic on a core meanwhile, the median: how fast cores were; 0: not measured
  // Relative error of one op's time: `common` to all ops (clock), `independent` of the others.
  double common_error = 0, independent_error = 0;
  std::string source;  // one line for reports: what, where, when
};

// What a layer computes, in one line: its operations with shapes and settings. Layers that compute the same have the
// same line.   "layer_norm 64x128; linear 64x128 -> 64x384 bias; ..."
std::string describe(const Program& program);

// "" or why the profile does not price a run on that backend ("cpu", "cuda").
std::string other_backend(const MachineProfile& profile, std::string_view backend);

// "" or why it does not price runs of that precision; both have names.
std::string other_precision(const MachineProfile& profile, Precision precision);

// The line of one slice of a sequence (plan.slices) of a layer of `of_slices`: later ones take longer.
std::string key_of_slice(std::string_view key, int slice, int slices);  // "layer_norm 16x128; slice 1 of 4", from 0

// Whether all layers of a model (as each device computes it, `of_each_device`) were measured, at any size of micro-batch.
bool has_layers(const MachineProfile& profile, const Model& model);
// Likewise of a model of `of_slices`, all slices of each layer.
bool has_slices(const MachineProfile& profile, const Model& model, int slices);

// The optimizer's step, or nullptr when it was not measured.
const LinearTime* find_update(const MachineProfile& profile, Optimizer optimizer);

// The layer's times, or nullptr when it was not measured at that size while so many workers computed (0: all).
const LayerTimes* find_times(const MachineProfile& profile, std::string_view key, std::int64_t samples, int active = 0);

// Numbers of busy workers, fewer than all, with which any layer was measured; ascending.
std::vector<int> loads_of(const MachineProfile& profile);

// Of so many members, or nullptr.
const LinearTime* find_all_reduce(const MachineProfile& profile, int members);

// Beyond the sizes that were measured, a pass of a layer takes what the line through them says:
//
//     t(s) = t0 + a s,   t0, a >= 0,   least squares of the relative errors             2, 4 and 8: 3, 5, 9 us: 1 + s
//
// Each pass has its own. Its relative standard error at s grows with the distance from the sizes: for the rows
// r(s) = (1, s) / t(s) of the measured sizes and sigma, the larger of their residuals' standard deviation and
// `sigma`,   error(s)^2 = sigma^2 r(s) (R' R)^-1 r(s)'.                            tests/core/profile_test.cpp "fit"
struct SizeLine {
  double fixed_ns = 0, ns_per_sample = 0;
  double at(double samples) const { return fixed_ns + ns_per_sample * samples; }
};
struct SizeFit {
  SizeLine line;
  double sigma = 0;                             // of one measured time, relative
  double inverse[3] = {0, 0, 0};                // (R' R)^-1: [0][0], [0][1], [1][1]
  double relative_error(double samples) const;  // of `line` at that size, one standard deviation
};
// At least two points (samples, ns) of different sizes, ns > 0.
SizeFit fit_sizes(const std::vector<std::pair<double, double>>& points, double sigma);

// Layers of a model that have no measured price at that size, nor lie between two: how many, the sizes that were
// measured, and the relative standard error of their sum. No layer: 0 of them.
struct BeyondMeasured {
  std::size_t layers = 0;
  std::int64_t smallest = 0, largest = 0;  // measured
  double error = 0;
};
// Of the model as each device computes it (`of_each_device`).
// Of sequences in slices the last slice stands for all, which were measured at the same sizes.
BeyondMeasured beyond_measured(const MachineProfile& profile, const Model& model, std::int64_t samples, int slices = 1);

// Which loads a profile has the times of, for reports: "ops as measured while 1, 2 or 4 of 4 workers worked; sharing of
// memory bandwidth is not modelled beside it".
std::string loads_text(const MachineProfile& profile);

}  // namespace pipewright::core
