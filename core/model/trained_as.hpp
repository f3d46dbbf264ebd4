// What a model is trained with beside its shapes: numbers of its arithmetic that change what it learns and no price.
// They go from a configuration to the file that launches a plan of the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/rooms.hpp"

namespace pipewright::core {

// Rotary positions turn pair i of a head's d features by position / rope_theta^(2i/d). Scaling stretches these
// wavelengths for samples longer than those of the first training.
enum class RopeScalingType : std::uint8_t { Linear, Dynamic, Llama3, Yarn };

struct RopeScaling {
  RopeScalingType type = RopeScalingType::Linear;
  double factor = 1;                                        // how many times longer
  std::optional<std::int64_t> original_length;              // tokens of the first training's samples
  std::optional<double> low_freq_factor, high_freq_factor;  // llama3: where stretching begins and ends
  std::optional<double> beta_fast, beta_slow;               // yarn: the same, in turns
  std::optional<double> mscale, mscale_all_dim;             // yarn: of the attention's scores
  bool operator==(const RopeScaling&) const = default;
};

// How experts are chosen for a token, beside how many: scores of all experts, those of the best groups kept, the chosen
// ones' sum scaled.                                                                        [DeepSeekIII24] section 2.1.2
enum class RouterScores : std::uint8_t { Softmax, Sigmoid };

struct Routing {
  RouterScores scores = RouterScores::Softmax;
  std::optional<std::int64_t> groups, groups_used;  // absent: experts form one group
  std::optional<double> scale;                      // absent: 1
  bool operator==(const Routing&) const = default;
};

struct TrainedAs {
  std::optional<double> rope_theta;         // base of the rotary wavelengths; absent: unknown
  std::optional<RopeScaling> rope_scaling;  // absent: none, or not kept
  std::string rope_scaling_not_kept;        // its type, where that is no RopeScalingType: "longrope"; else ""
  std::optional<double> norm_epsilon;       // added under the root of every norm; absent: unknown
  std::optional<Routing> routing;           // absent: unknown, or no experts
  bool operator==(const TrainedAs&) const = default;
};

}  // namespace pipewright::core
