// Who runs what, written down a second time: the oracles must not share core/plan/seating.hpp with what they check.
#pragma once

#include <vector>

#include "core/plan/given_schedule.hpp"

namespace pipewright::tests::oracle {

// Positions that hold chunk v, in the order in which they are dealt micro-batches.
inline std::vector<int> places(const ScheduleShape& shape, int v) {
  const int K = shape.stages;
  if (shape.chunk_order != ChunkOrder::Loop && shape.chunk_order != ChunkOrder::V) {
    std::vector<int> all;  // first those of the pipelines down, then those of the pipelines up
    for (const bool up : {false, true})
      for (int begin = 0; begin < K; begin += 2 * K / shape.pipelines)
        all.push_back(up ? K - 1 - (begin + v) % K : (begin + v) % K);
    return all;
  }
  std::vector<int> line;  // stages in the order in which chunks are laid on them, there or there and back
  for (int k = 0; k < K; ++k)
    line.push_back(k);
  if (shape.chunk_order == ChunkOrder::V) line.insert(line.end(), line.rbegin(), line.rend());
  const int stage = line[std::size_t(v / shape.units) % line.size()];
  int first = 0, r = 1;
  for (int k = 0; k <= stage; ++k) {
    if (k > 0) first += r;
    r = shape.replicas.empty() ? 1 : shape.replicas[std::size_t(k)];
  }
  std::vector<int> all;
  for (int j = 0; j < r; ++j)
    all.push_back(first + j);
  return all;
}

inline int holder_of(const ScheduleShape& shape, int v, int m) {
  if (shape.chunk_order == ChunkOrder::BothWays) return 2 * m < shape.micro_batches ? 0 : 1;
  if (shape.chunk_order == ChunkOrder::InTurns) return m % shape.stages * shape.pipelines / shape.stages;
  if (shape.chunk_order == ChunkOrder::Alternate) return m % 2;
  if (shape.chunk_order == ChunkOrder::Listed) return shape.given->dealing->pipeline(m);
  return m % int(places(shape, v).size());
}

inline int position_of(const ScheduleShape& shape, int v, int m) {
  return places(shape, v)[std::size_t(holder_of(shape, v, m))];
}

}  // namespace pipewright::tests::oracle
