// What the streams of a worker have to do with one another, by the rows of sim/stream_edges.hpp: which compute op lets an op
// of a communication stream begin, and which ops of these streams a compute op waits for. The engines know no other rule
// between streams. The same in every copy.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"

namespace pipewright::sim {

// Ops are named by their index in their stream.
struct StreamLinks {
  // The compute op's start, or its end, or the point in it at which the bucket's part is done: its gradients.
  enum class From : std::uint8_t { Start, End, Part };
  struct Trigger {
    std::uint32_t op = 0, communication = 0;
    std::uint8_t stream = 0;
    From from{};
    // When that op of the stream may begin, if the compute op runs so. Times of any clock.
    template <class Clock>
    Clock ready(const StepCosts& costs, const Op& compute, const Op& reduce, Clock start, Clock end) const {
      if (from == From::Start) return start;
      if (from == From::End) return end;
      return std::max(start, end - Clock{costs.ready_before_end_of(compute, reduce.bucket).value});
    }
  };
  // The compute op starts when the first `count` ops of the stream are over, not before.
  struct Gate {
    std::uint32_t op = 0, count = 0;
    std::uint8_t stream = 0;
  };
  // The op of a stream begins when the first `count` ops of another one of the same worker are over, not before.
  struct After {
    std::uint32_t count = 0;
    std::uint8_t stream = 0;
  };
  std::vector<Trigger> triggers;      // by op
  std::vector<Gate> gates;            // by op
  ByStream<std::vector<char>> waits;  // per op of a stream: whether a trigger lets it begin; else it may at once
  // Per op of a stream, of up to two others, where `count` is not 0; empty: none waits for another stream.
  ByStream<std::vector<std::array<After, 2>>> after;
  void for_each_after(StreamId stream, std::size_t communication, const auto& use) const {
    if (after[stream].empty()) return;
    for (const After& one : after[stream][communication])
      if (one.count > 0) use(one);
  }
};

StreamLinks stream_links(const Schedule& schedule, PositionId position);

}  // namespace pipewright::sim
