// A small run whose memory was measured, and what it says of all others: `training.framework.anchor`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "core/units.hpp"

namespace pipewright::core {

struct Scenario;

// Of which stage or device a figure is.
enum class Where { Fullest, All, Last, Stage };

struct MemoryAnchor {
  std::vector<std::pair<std::string, std::string>> set;  // keys and values of the scenario that the run had differently
  std::optional<std::pair<Where, std::int64_t>> where;   // the device is of this stage; absent: of the fullest
  std::optional<Bytes> held;                             // allocated between steps
  std::optional<Bytes> allocated;                        // at the peak
  std::optional<Bytes> reserved;                         // by the caching allocator, at the peak
  std::optional<Bytes> in_use;  // of the device, of all programs: with context and communicators
  std::string log;              // a file that has figures which are not given
  std::string source;
  Place place;
  std::shared_ptr<const Scenario> run;  // the scenario with `set`
};

// What is carried over to another plan. With H what is held between steps and A the rest of the peak, both predicted:
//
//     allocated = H + held + activations * A
struct MemoryCorrection {
  Bytes held;
  double activations = 1;
  std::optional<double> fragmentation;  // in place of the device's
  std::optional<Bytes> reserve;         // in place of the device's; no communicator is in it
  double band = 0;                      // of the corrected activations, where it is more than the model's
  std::string text;  // how it is known: "anchored on 3 figures of a run with model.layers 4 (...): ..."
};

}  // namespace pipewright::core
