// Who runs what, and who holds which weights: the one place that turns chunks, micro-batches and workers into one
// another. Everybody else asks.                                                    tests/core/seating_test.cpp
//
// Each chunk of the model (virtual stage) has one or more holders: the positions of one copy that keep its weights. Each
// micro-batch is run by one of them, as the dealing rule says:
//
//   Loop      K = 3, 6 chunks: chunks 0 1 2 3 4 5 on stages 0 1 2 0 1 2                          [Megatron21] section 2.2
//   V         the same to and fro: stages 0 1 2 2 1 0; chunks 2 and 3 are neighbours on one worker [ZeroBubble23] section 6
//   BothWays  K chunks, each on two workers: micro-batches of the first half go down from stage 0 to K - 1, those of the
//             second half up, chunk k on stage K - 1 - k. Weights are held twice.      [DeepSeekIII24] section 3.2.1, DualPipe
//   InTurns   as BothWays, but K / 2 micro-batches go down, the next K / 2 up, and so on                 [Chimera21] section 3
//             With P pipelines, K / P micro-batches each in turn: P / 2 go down, the i-th from stage 2 i K / P on and around
//             the end to the one before it, P / 2 likewise up. Weights are held P times.           [Chimera21] section 3.6
//   Alternate as BothWays, but one micro-batch goes down, the next one up, and so on                              [GEMS20]
//   Listed    as BothWays or InTurns, with P pipelines, but a list says which of them runs each micro-batch: that of a schedule file
//   replicas  r_k workers of stage k deal its micro-batches among them: m goes to replica m mod r_k  [PipeDream19] section 3.2
//   units     each of these chunks is cut once more, in parts that lie on one worker: K = 2 and 3 units, chunks 0 1 2 on
//             stage 0 and 3 4 5 on stage 1. What is gathered and reduced at once.                  [FSDP23] section 3.2.1
//
// Positions are the workers of one copy: the replicas of stage 0, then of stage 1, ... A stage is a place in the
// pipeline; with one replica each, it is a position.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "core/ids.hpp"

namespace pipewright::core {

// Which of r replicas runs micro-batch m.
constexpr int dealt_to(std::int64_t m, int r) {
  return static_cast<int>(m % r);
}

enum class ChunkOrder : std::uint8_t { Loop, V, BothWays, InTurns, Alternate, Listed };

// Whether each chunk lies on two or more workers, of pipelines in opposite directions.
constexpr bool both_ways(ChunkOrder order) {
  return order != ChunkOrder::Loop && order != ChunkOrder::V;
}

// Which pipeline runs each micro-batch, as a list says: for schedule files whose micro-batches follow no rule.
class Dealing {
 public:
  // By micro-batch. Every pipeline has one at least.
  Dealing(std::vector<int> pipeline, int pipelines);

  int pipeline(std::int64_t m) const { return pipeline_[at(m)]; }
  // How many of its pipeline's came before it; the inverse; and how many a pipeline runs.
  std::int64_t turn(std::int64_t m) const { return turn_[at(m)]; }
  std::int64_t micro_batch(int pipeline, std::int64_t turn) const { return of_[at(pipeline)][at(turn)]; }
  // Of the micro-batches before `until`.
  std::int64_t turns(int pipeline, std::int64_t until) const {
    const std::vector<int>& all = of_[at(pipeline)];
    return std::ranges::lower_bound(all, until) - all.begin();
  }

 private:
  std::vector<int> pipeline_, turn_;
  std::vector<std::vector<int>> of_;
};

// A view: what it was made from must stay as it is. Look-ups are O(1), positions with replicas O(K).
struct Seating {
  int stages = 1;          // K
  int virtual_stages = 1;  // v: chunks of a pipeline on each stage
  ChunkOrder chunk_order = ChunkOrder::Loop;
  std::int64_t micro_batches = 1;      // M, of one copy
  int copies = 1;                      // D
  std::span<const int> replicas = {};  // r_k; empty: one each
  int units = 1;                       // chunks that lie on one worker one after the other; above 1 in Loop and V
  int pipelines = 2;                   // P, both ways: even, and K is a multiple of it
  const Dealing* dealing = nullptr;    // Listed

  int chunks() const { return stages * virtual_stages * units; }
  // How many chunks lie on each stage, and how many a worker holds: both ways also those that lie on others.
  int lying() const { return virtual_stages * units; }
  int held() const { return both_ways() ? pipelines : lying(); }
  int replicas_of(StageId stage) const { return replicas.empty() ? 1 : replicas[at(stage)]; }

  // Chunks whose units are joined, by numbers of their own: how many, which of them v is a part of, and v's place in it;
  // and back: the i-th unit of such a chunk.
  int wholes() const { return stages * virtual_stages; }
  VirtualStageId whole_of(VirtualStageId v) const { return whole(v); }
  int unit_of(VirtualStageId v) const { return v - whole(v) * units; }
  VirtualStageId unit(VirtualStageId of, int i) const { return of * units + i; }
  VirtualStageId first_unit(VirtualStageId v) const { return unit(whole_of(v), 0); }
  VirtualStageId last_unit(VirtualStageId v) const { return unit(whole_of(v), units - 1); }

  // The stage as far from the last one as this one is from the first.
  StageId opposite(StageId stage) const { return stages - 1 - stage; }
  // The stage that a chunk lies on; both ways: that of its first holder.
  StageId stage_of(VirtualStageId v) const {
    v = whole(v);
    return chunk_order == ChunkOrder::V && v / stages % 2 == 1 ? opposite(v % stages) : StageId{v % stages};
  }
  // The i-th chunk that the workers of a stage hold, i < held(); those that lie on the stage come first.
  VirtualStageId chunk_of(StageId stage, int i) const {
    if (both_ways()) return (place_of(stage, i) + stages - shift(i)) % stages;
    const int among = whole(i);
    const bool turned = among % 2 == 1 && chunk_order == ChunkOrder::V;
    return unit(among * stages + (turned ? opposite(stage) : stage), i - among * units);
  }
  // Which of the chunks of `stage` v is: chunk_of(stage, local(v, stage)) == v.
  int local(VirtualStageId v, StageId stage) const {
    if (both_ways()) {
      int i = 0;
      while (i + 1 < pipelines && chunk_of(stage, i) != v)
        ++i;
      return i;
    }
    return whole(v) / stages * units + unit_of(v);
  }
  bool holds(StageId stage, VirtualStageId v) const {
    return both_ways() ? chunk_of(stage, local(v, stage)) == v : stage_of(v) == stage;
  }

  // Workers of one copy that hold the chunk.
  int holders(VirtualStageId v) const { return both_ways() ? pipelines : replicas_of(stage_of(v)); }
  // Which of them runs micro-batch m, and how many micro-batches this one has run before it.
  int holder_of(VirtualStageId v, std::int64_t m) const {
    if (listed()) return dealing->pipeline(m);
    if (both_ways()) return static_cast<int>(m / block() % pipelines);
    return replicas.empty() ? 0 : dealt_to(m, replicas_of(stage_of(v)));
  }
  std::int64_t turn_of(VirtualStageId v, std::int64_t m) const {
    if (listed()) return dealing->turn(m);
    if (both_ways()) return m / block() / pipelines * block() + m % block();
    return replicas.empty() ? m : m / replicas_of(stage_of(v));
  }
  // The inverse: the turn-th micro-batch of that holder; and how many it runs, or runs of those before `until`.
  std::int64_t micro_batch(VirtualStageId v, int holder, std::int64_t turn) const {
    if (listed()) return dealing->micro_batch(holder, turn);
    if (both_ways()) return (turn / block() * pipelines + holder) * block() + turn % block();
    return holder + turn * replicas_of(stage_of(v));
  }
  std::int64_t turns(VirtualStageId v, int holder) const { return turns(v, holder, micro_batches); }
  std::int64_t turns(VirtualStageId v, int holder, std::int64_t until) const {
    if (listed()) return dealing->turns(holder, until);
    if (both_ways()) {
      const std::int64_t all = pipelines * block(), left = until % all - holder * block();
      return until / all * block() + std::clamp<std::int64_t>(left, 0, block());
    }
    const int r = replicas_of(stage_of(v));
    return until / r + (holder < until % r ? 1 : 0);
  }
  std::int64_t most_turns(VirtualStageId v) const {
    std::int64_t most = turns(v, 0);
    for (int i = 1; listed() && i < pipelines; ++i)
      most = std::max(most, turns(v, i));
    return most;
  }
  // Some micro-batch goes from holder a of chunk `from` to holder b of chunk `to` where a and b are equal modulo this.
  int joined(VirtualStageId from, VirtualStageId to) const { return std::gcd(holders(from), holders(to)); }

  StageId stage_of(VirtualStageId v, int holder) const {
    return both_ways() ? StageId{place_of((v + shift(holder)) % stages, holder)} : stage_of(v);
  }
  PositionId position(VirtualStageId v, int holder) const { return position(v, holder, first_position(stage_of(v))); }
  PositionId position_of(VirtualStageId v, std::int64_t m) const { return position(v, holder_of(v, m)); }
  // The same in O(1) where the first holder's position is known.
  PositionId position(VirtualStageId v, int holder, PositionId first) const {
    return both_ways() ? as<PositionId>(stage_of(v, holder)) : PositionId{first + holder};
  }
  int positions() const { return first_position(stages); }
  PositionId first_position(StageId stage) const {  // of replica 0
    if (replicas.empty()) return as<PositionId>(stage);
    PositionId first = 0;
    for (StageId before = 0; before < stage; ++before)
      first += replicas_of(before);
    return first;
  }
  StageId stage_at(PositionId position) const {
    if (replicas.empty()) return as<StageId>(position);
    StageId stage = 0;
    for (; stage < stages && position >= replicas_of(stage); ++stage)
      position -= replicas_of(stage);
    return stage;
  }

  // Whether the i-th pipeline runs from the last stage to the first.
  bool goes_up(int holder) const { return both_ways() && holder >= pipelines / 2; }
  // Workers that hold the same chunks, by the first stage of theirs: they run all their all-reduces in one order.
  StageId group_of(VirtualStageId v) const {
    if (!both_ways()) return stage_of(v);
    const int q = 2 * stages / pipelines;
    return std::min(v % q, q - 1 - v % q);
  }
  // The number of the chunk that runs m in a schedule file of PyTorch, where every chunk of a worker has its own: those
  // on the way up follow those on the way down.
  VirtualStageId number_in_file(VirtualStageId v, std::int64_t m) const {
    return both_ways() ? number_in_file({v, holder_of(v, m)}) : v;
  }
  // Back from such a number: the chunk, and which of its ways it is; and there again.
  struct InFile {
    VirtualStageId chunk;
    int way;
  };
  InFile of_number_in_file(int number) const {
    return both_ways() ? InFile{number % stages, number / stages} : InFile{number, 0};
  }
  VirtualStageId number_in_file(InFile each) const { return each.chunk + each.way * stages; }
  // Whether gradients of a chunk are summed over several workers, and over how many.
  bool reduced(VirtualStageId v) const { return members(v) > 1; }
  bool any_reduced() const {
    if (copies > 1 || both_ways()) return true;
    return std::ranges::any_of(replicas, [](int r) { return r > 1; });
  }
  int members(VirtualStageId v) const { return copies * holders(v); }

 private:
  bool both_ways() const { return core::both_ways(chunk_order); }
  bool listed() const { return chunk_order == ChunkOrder::Listed; }
  int whole(int unit) const { return units == 1 ? unit : unit / units; }  // that it is a part of
  // Both ways, of the i-th pipeline: the stage at this place of its way, before it is shifted; and by how many stages.
  int place_of(int place, int i) const { return goes_up(i) ? int{opposite(place)} : place; }
  int shift(int i) const { return i % (pipelines / 2) * (2 * stages / pipelines); }
  // Micro-batches in a row that run in the same pipeline.
  std::int64_t block() const {
    if (chunk_order == ChunkOrder::Alternate) return 1;
    return chunk_order == ChunkOrder::BothWays ? (micro_batches + 1) / 2 : std::max(1, stages / pipelines);
  }
};

// Positions of the holders of a chunk, in their order.
inline std::vector<PositionId> places(const Seating& seating, VirtualStageId v) {
  std::vector<PositionId> all;
  const PositionId first = seating.position(v, 0);
  for (int holder = 0; holder < seating.holders(v); ++holder)
    all.push_back(seating.position(v, holder, first));
  return all;
}

// Workers that hold the weights of a chunk, in all copies: copy * positions + position.
inline std::vector<WorkerId> holders(const Seating& seating, VirtualStageId v) {
  std::vector<WorkerId> all;
  const int positions = seating.positions();
  const std::vector<PositionId> here = places(seating, v);
  for (CopyId copy = 0; copy < seating.copies; ++copy)
    for (const PositionId position : here)
      all.push_back(copy * positions + position);
  return all;
}

// Rounds of all-reduce and update. With a flush there is one, of all micro-batches; without, each micro-batch of a
// worker closes one, in which every holder of the chunk has a micro-batch.                    [PipeDream19] section 3.3
// Or every m of them do.                                                                   [PipeDream2BW20] section 3.1
// Sharded gradients that cannot be added up whole are reduced in a round for each micro-batch, and updated once.
//                                                                                                  [ZeRO20] section 5.2
struct Rounds {
  Seating seating;
  bool flush = true;
  bool reduce_each = false;
  int every = 1;  // m

  // Of reductions.
  int count(VirtualStageId v) const {
    return whole() ? 1 : static_cast<int>((seating.most_turns(v) + every - 1) / every);
  }
  int of(VirtualStageId v, std::int64_t m) const {
    return whole() ? 0 : static_cast<int>(seating.turn_of(v, m) / every);
  }
  // The update that waits for a round of reductions.
  int update_of(int round) const { return flush ? 0 : round; }
  // Micro-batches of one copy in a round of reductions.
  std::int64_t micro_batches(VirtualStageId v, int round) const {
    if (whole()) return seating.micro_batches;
    std::int64_t all = 0;
    for (int holder = 0; holder < seating.holders(v); ++holder)
      all += std::clamp<std::int64_t>(seating.turns(v, holder) - std::int64_t{round} * every, 0, every);
    return all;
  }

 private:
  bool whole() const { return flush && !reduce_each; }
};

// Vertical sync: the version of a chunk's weights that a micro-batch runs with which saw `seen` updates of the first chunk.
// Each update of a chunk closes a round, a micro-batch of every holder, so u updates of chunk 0 with r_0 holders have seen
// u r_0 micro-batches, as u r_0 / r_v updates of chunk v have. The latest of `there` where that is not made yet.
//                                                                                      [PipeDream19] section 3.3
inline int version_asked(const Seating& seating, VirtualStageId v, int seen, int there) {
  return std::min(there, seen * seating.holders(0) / seating.holders(v));
}

}  // namespace pipewright::core
