// The largest model that fits: what the search for it found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/cost/memory_model.hpp"
#include "core/ids.hpp"
#include "core/units.hpp"

namespace pipewright::core {

struct LargestModel {
  // With the largest value; absent largest: zero.
  int stages = 0, devices = 0;
  std::int64_t layers = 0, parameters = 0;
  double fit = 0;                // plan.fit, where there is a range: `peak` and the needs are what it takes for that
  Bytes device_memory, reserve;  // of one device; the reserve is part of the memory
  Bytes training_state;          // weights, gradients, optimizer: of all devices
  Bytes activations;             // of all devices, each at its own peak
  Bytes largest_activations;     // of the device that has the most
  Bytes peak, headroom;          // of the fullest device: everything, and what is left of its memory
  StageId fullest = 0;
  Bytes least_memory;  // with this much per device some cut of the same model fits (up to 1 MiB less may do)
};

struct NextModel {
  // The next value that makes a scenario.
  std::optional<std::int64_t> next;
  std::string next_refused;             // why there is none
  std::optional<std::int64_t> stopped;  // the largest value that was allowed fits: larger ones were not tried
  StageId next_stage = 0;               // that does not fit, in the cut that comes nearest
  MemoryBytes next_bytes;               // what it holds at its peak
  Bytes next_need;                      // what its device must have for that: rounding and fragmentation come on top
  Bytes next_least_memory;              // as above
};

struct Capacity : LargestModel, NextModel {
  std::string over;                                         // "model.layers"
  std::vector<std::pair<std::string, std::string>> varied;  // the keys and values of this row
  std::optional<std::int64_t> largest;                      // absent: no value fits
  std::string method;                                       // how it was found, and why that is enough
  std::string upper_end;                                    // above which nothing was tried, and why
  std::int64_t tried = 0;                                   // values for which a cut was sought
  bool proven = false;                                      // that no larger value fits
  bool needs_grow = false;                                  // proven of every device: no larger value needs less
  std::optional<std::int64_t> tried_to;                     // else: none above `largest` and up to this one does
  // Where the layers are cut otherwise than the scenario states: its cut by name, and whether it fits, too.
  std::string other_cut;  // "balanced"; "": it is the stated one
  bool other_fits = false;
  std::string anchored;  // by which measured run the sizes are corrected; "": by none
  bool of_run = false;   // sizes are those of a real run's arena: memory its cap, peak and need its extent
};

}  // namespace pipewright::core
