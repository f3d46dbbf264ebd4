// `plan: auto` with nothing but global_batch_size: whoever leaves the plan open leaves its micro-batches open, too.
//
//     training: {global_batch_size: 64}, plan: auto     as if it said micro_batch_size: auto
//
// tests/io/read_scenario_test.cpp "opens the micro-batches"
#pragma once

#include "core/question/scenario.hpp"

namespace pipewright {

// A step has a size, and nothing is said of its micro-batches.
inline bool only_batch_given(const Training& training) {
  return training.global_batch_size && !training.micro_batch_size && !training.micro_batches &&
         !training.open.contains("micro_batch_size") && !training.open.contains("micro_batches");
}

// A field that is opened here has no place in any file: Place{}. Called again after a change, it begins anew.
inline void open_micro_batches(Training& training, bool plan_open) {
  constexpr const char* kSize = "micro_batch_size";
  if (const auto size = training.open.find(kSize); size != training.open.end() && size->second.place == Place{})
    training.open.erase(size);
  if (plan_open && only_batch_given(training)) training.open[kSize] = {};
}

}  // namespace pipewright
