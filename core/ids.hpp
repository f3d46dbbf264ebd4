// Names for positions in the lists that everything else is stored in. All are 0-based.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/rooms.hpp"

namespace pipewright::core {

using LayerId = int;         // position in Model::layers, which is the execution order
using StageId = int;         // stage k: consecutive layers on one device
using VirtualStageId = int;  // chunk: stage k holds virtual stages k, k + K, k + 2K, ... of an interleaved schedule
using MicroBatchId = int;    // micro-batch m within one copy of the pipeline
using CopyId = int;          // copy d of the whole pipeline (data parallelism)
using PositionId = int;      // worker inside one copy: the replicas of stage 0 first, then those of stage 1, ...
using WorkerId = int;        // copy * positions + position
using DeviceId = int;        // device of the cluster: node * devices per node + place in the node

// As an index.
constexpr std::size_t at(std::int64_t number) {
  return static_cast<std::size_t>(number);
}

}  // namespace pipewright::core
