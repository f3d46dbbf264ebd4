// The optimizers that are priced, counted and run.
#pragma once

#include "core/rooms.hpp"

namespace pipewright::core {

// Muon: matrices of the layers, embedding and head apart, by orthogonalised momentum; all else by Adam. [Muon24] [Muon25]
enum class Optimizer { Sgd, Momentum, RmsProp, Adam, Muon };

// What the moments are kept in: int8 is 8-bit Adam's, with a scale per block of values.                    [Dettmers21]
enum class Moments { Fp32, Fp16, Bf16, Fp8, Int8 };
// Of 16-bit weights: a copy in more bits, or in bf16 the 16 bits that the weight itself lacks of it, or none.
enum class MasterWeights { Fp32, Fp16, Remainder, None };

// How the shards of weights that copies divide (training.zero: 3) lie on their devices.              [PyTorchFSDP26]
enum class Sharding {
  Flat,  // in buffers of many parameters, in the training's precision, which are sent as they are; masters beside
  PerParameter,  // each parameter's in fp32, which are the masters: cast and copied into a buffer to be sent
};

}  // namespace pipewright::core
