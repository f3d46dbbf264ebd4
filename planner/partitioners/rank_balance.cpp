#include "planner/partitioners/rank_balance.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "core/folds.hpp"
#include "planner/partitioners/min_max.hpp"

namespace pipewright::planner {
namespace {

// Stage loads under cuts: cuts[j] is the first layer of chunk j, cuts[chunks] the number of layers.
class Cuts {
 public:
  Cuts(const std::vector<Time>& load, const std::vector<LayerRange>& chunks, const Seating& seating)
      : seating_(seating) {
    for (const Time time : load)
      sums_.push_back(checked_sum(sums_.back(), time.value, "the sum of the layer times"));
    for (const LayerRange& chunk : chunks)
      cuts_.push_back(chunk.begin);
    cuts_.push_back(static_cast<LayerId>(load.size()));
    stage_.resize(at(seating.stages));
    for (int j = 0; j < chunks_(); ++j)
      stage_[at(seating.stage_of(j))] += chunk(j);
  }

  int count() const { return chunks_(); }
  int fullest() const { return static_cast<int>(std::ranges::max_element(stage_) - stage_.begin()); }

  // What decides: the fullest stage, then how uneven stages and chunks are.
  struct Score {
    std::int64_t fullest;
    double stages, chunks;
    auto operator<=>(const Score&) const = default;
  };
  Score score() const {
    Score score{0, 0, 0};
    for (const std::int64_t load : stage_) {
      score.fullest = std::max(score.fullest, load);
      score.stages += static_cast<double>(load) * static_cast<double>(load);
    }
    for (int j = 0; j < chunks_(); ++j)
      score.chunks += static_cast<double>(chunk(j)) * static_cast<double>(chunk(j));
    return score;
  }

  // One layer from chunk i to chunk j: the cuts between them shift. False, and nothing happens, where a chunk would
  // become empty.
  bool move(int i, int j) {
    if (cuts_[at(i) + 1] - cuts_[at(i)] < 2) return false;
    const int low = std::min(i, j), high = std::max(i, j);
    for (int c = low; c <= high; ++c)
      stage_[at(seating_.stage_of(c))] -= chunk(c);
    for (int c = low + 1; c <= high; ++c)
      cuts_[at(c)] += i < j ? -1 : 1;
    for (int c = low; c <= high; ++c)
      stage_[at(seating_.stage_of(c))] += chunk(c);
    return true;
  }

  std::vector<LayerRange> ranges() const {
    return mapped<LayerRange>(counted_to(chunks_()), [&](int j) { return LayerRange{cuts_[at(j)], cuts_[at(j) + 1]}; });
  }

 private:
  int chunks_() const { return static_cast<int>(cuts_.size()) - 1; }
  std::int64_t chunk(int j) const { return sums_[at(cuts_[at(j) + 1])] - sums_[at(cuts_[at(j)])]; }

  Seating seating_;
  std::vector<std::int64_t> sums_{0}, stage_;
  std::vector<LayerId> cuts_;
};

constexpr std::int64_t kMostMoves = 256;
constexpr std::int64_t kMostRankLooks = std::int64_t{1}
                                        << 29;  // at chunks, in all: fewer moves where there are thousands

// Cuts where the sums come nearest to the shares, at least a layer in every chunk.
std::vector<LayerRange> by_shares(const std::vector<Time>& load, const std::vector<double>& shares) {
  double whole = 0, wanted = 0, all_shares = 0;
  for (const Time time : load)
    whole += static_cast<double>(time.value);
  for (const double share : shares)
    all_shares += share;
  const auto layers = static_cast<LayerId>(load.size());
  const auto chunks = static_cast<LayerId>(shares.size());
  std::vector<LayerRange> ranges;
  double sum = 0;
  LayerId end = 0;
  for (LayerId j = 0; j < chunks; ++j) {
    const LayerId begin = end;
    wanted += shares[at(j)] / all_shares * whole;
    do
      sum += static_cast<double>(load[at(end++)].value);
    while (end < layers - (chunks - 1 - j) &&
           (j + 1 == chunks || sum + static_cast<double>(load[at(end)].value) / 2 <= wanted));
    ranges.push_back({begin, end});
  }
  return ranges;
}

}  // namespace

std::vector<LayerRange> rank_balanced(const std::vector<Time>& load, const Seating& seating, double first_round) {
  std::vector<LayerRange> start;
  if (first_round < 1) {
    std::vector<double> shares(at(seating.chunks()), 1.0);
    std::fill_n(shares.begin(), seating.stages, first_round);
    start = by_shares(load, shares);
  } else {
    start = min_max(load, seating.chunks());
  }
  Cuts cuts(load, start, seating);
  const std::int64_t chunks = cuts.count(), looks_per_move = seating.virtual_stages * chunks * (2 * chunks + 1);
  const std::int64_t most = std::min(kMostMoves, kMostRankLooks / looks_per_move);
  for (std::int64_t moves = 0; moves < most; ++moves) {
    const Cuts::Score before = cuts.score();
    Cuts::Score best = before;
    int best_from = -1, best_to = -1;
    const StageId fullest = cuts.fullest();
    for (int i = 0; i < seating.virtual_stages; ++i) {
      const VirtualStageId from = seating.chunk_of(fullest, i);
      for (int to = 0; to < cuts.count(); ++to) {
        if (to == from || !cuts.move(from, to)) continue;
        if (const Cuts::Score score = cuts.score(); score < best) best = score, best_from = from, best_to = to;
        PP_CHECK(cuts.move(to, from));
      }
    }
    if (best_from < 0) break;
    cuts.move(best_from, best_to);
  }
  return cuts.ranges();
}

Time rank_load(const std::vector<Time>& load, const std::vector<LayerRange>& chunks, const Seating& seating) {
  std::vector<Time> stage(at(seating.stages));
  for (std::size_t j = 0; j < chunks.size(); ++j) {
    Time& of = stage[at(seating.stage_of(static_cast<VirtualStageId>(j)))];
    for (LayerId i = chunks[j].begin; i < chunks[j].end; ++i)
      of = checked_sum(of, load[at(i)]);
  }
  return *std::ranges::max_element(stage);
}

}  // namespace pipewright::planner
