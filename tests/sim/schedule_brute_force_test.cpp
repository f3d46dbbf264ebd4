// Schedules of which no order of their authors is known, made a second time from their definitions alone, tick by tick and as
// plainly as can be: Hanayo, GEMS, BPipe, PipeDream-2BW and Chimera's forward doubling. Of every small shape the orders are
// the same, and so are the steps, what is in flight, the weights that each worker holds, and what BPipe moves.
#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/cost/memory_model.hpp"
#include "core/cost/step_costs.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"
#include "tests/sim/move_costs.hpp"
#include "tests/support/places.hpp"

namespace pipewright::tests {
namespace {

constexpr int kForwardTicks = 1, kBackwardTicks = 2;

// A forward or a whole backward of a chunk; end < 0: not begun.
struct PlainPass {
  int worker, chunk, micro_batch;
  bool backward;
  int begin = -1, end = -1;
};

struct PlainStep {
  std::vector<std::vector<PlainPass>> workers;  // passes in the order in which they began
  int end = 0;
};

// All passes of a shape, each on the worker that tests/support/places.hpp gives it.
class PlainPasses {
 public:
  explicit PlainPasses(const ScheduleShape& shape) : chunks_(shape.chunks()), micro_batches_(shape.micro_batches) {
    for (int m = 0; m < micro_batches_; ++m)
      for (int v = 0; v < chunks_; ++v)
        for (const bool backward : {false, true})
          all_.push_back({oracle::position_of(shape, v, m), v, m, backward});
  }
  std::vector<PlainPass>& all() { return all_; }
  PlainPass& of(bool backward, int chunk, int m) { return all_[at((m * chunks_ + chunk) * 2 + (backward ? 1 : 0))]; }
  bool ended(bool backward, int chunk, int m, int now) {
    const int end = of(backward, chunk, m).end;
    return end >= 0 && end <= now;
  }
  // What a pass reads is there.
  bool ready(const PlainPass& pass, int now) {
    const auto [v, m] = std::pair{pass.chunk, pass.micro_batch};
    if (!pass.backward) return v == 0 || ended(false, v - 1, m, now);
    return ended(false, v, m, now) && (v + 1 == chunks_ || ended(true, v + 1, m, now));
  }
  // Micro-batches that a worker has begun, in any of its chunks or in one, and not yet ended backwards.
  int in_flight(int worker, int now, int chunk = -1) {
    int count = 0;
    for (const PlainPass& pass : all_)
      if (!pass.backward && pass.worker == worker && (chunk < 0 || chunk == pass.chunk) && pass.begin >= 0)
        count += ended(true, pass.chunk, pass.micro_batch, now) ? 0 : 1;
    return count;
  }

 private:
  int chunks_, micro_batches_;
  std::vector<PlainPass> all_;
};

// Every tick each worker that is free begins the oldest backward that is ready, else the oldest forward that is ready and
// admitted.
PlainStep played(const ScheduleShape& shape,
                 const std::function<bool(PlainPasses&, const PlainPass&, int now)>& admitted) {
  PlainPasses passes(shape);
  PlainStep step;
  step.workers.resize(at(shape.stages));
  std::vector<int> free_at(at(shape.stages));
  std::size_t begun = 0;
  for (int now = 0; begun < passes.all().size(); ++now) {
    REQUIRE(now < 10'000);
    for (int w = 0; w < shape.stages; ++w) {
      if (free_at[at(w)] > now) continue;
      PlainPass* next = nullptr;
      for (PlainPass& pass : passes.all()) {
        if (pass.worker != w || pass.begin >= 0 || !passes.ready(pass, now)) continue;
        if (!pass.backward && !admitted(passes, pass, now)) continue;
        if (next == nullptr ||
            std::tuple(!pass.backward, pass.micro_batch) < std::tuple(!next->backward, next->micro_batch))
          next = &pass;
      }
      if (next == nullptr) continue;
      next->begin = now, next->end = now + (next->backward ? kBackwardTicks : kForwardTicks);
      free_at[at(w)] = next->end, step.end = std::max(step.end, next->end);
      step.workers[at(w)].push_back(*next);
      ++begun;
    }
  }
  return step;
}

using Labels = std::vector<std::tuple<bool, int, int>>;  // whether backward, chunk, micro-batch

Labels labels_of(const std::vector<PlainPass>& passes) {
  Labels labels;
  for (const PlainPass& pass : passes)
    labels.emplace_back(pass.backward, pass.chunk, pass.micro_batch);
  return labels;
}

Labels labels_of(const Lane& lane) {
  Labels labels;
  for (const Op& op : lane.compute)
    if (op.kind != Kind::Update) labels.emplace_back(op.kind != Kind::F, op.virtual_stage, op.micro_batch);
  return labels;
}

// Most chunks of micro-batches that a worker holds in any tick.
int most_in_any_tick(const std::vector<PlainPass>& passes, int end) {
  int most = 0;
  for (int now = 0; now < end; ++now) {
    int held = 0;
    for (const PlainPass& pass : passes)
      held += pass.backward ? -(pass.end <= now) : pass.begin <= now;
    most = std::max(most, held);
  }
  return most;
}

// A micro-batch of a chunk holds a byte, and the weights of chunk v 2^v bytes: what a worker holds says of which.
MemoryModel bytes_by_chunk(const ScheduleShape& shape) {
  MemoryModel memory{.chunks = {}, .reserve = {}, .capacity = {}};
  for (int v = 0; v < shape.chunks(); ++v)
    memory.chunks.push_back({.weights = Bytes{std::int64_t{1} << v}, .stash = {Bytes{1}, Bytes{1}}});
  memory.fixed.resize(at(shape.stages));  // messages are no buffers
  return memory;
}

// Order, step, what is in flight, and whose weights each worker holds.
Schedule check_against(const PlainStep& step, std::string_view name, const ScheduleShape& shape, int versions = 1) {
  const ScheduleRule& rule = *find_schedule(name);
  REQUIRE(rule.refusal(shape) == "");
  const Schedule schedule = rule.generate(shape);
  CHECK(validate(schedule) == "");
  CHECK(static_order_makespan(schedule, move_costs(shape, 0)) == Time{step.end});
  const MemoryModel memory = bytes_by_chunk(shape);
  for (int w = 0; w < shape.stages; ++w) {
    CAPTURE(w);
    const std::vector<PlainPass>& passes = step.workers[at(w)];
    CHECK(labels_of(schedule.positions[w]) == labels_of(passes));
    const int most = most_in_any_tick(passes, step.end);
    const MemoryPeak walk = peak(memory, schedule, PositionId{w});
    if (const auto told = rule.peak_in_flight(shape, w))
      if (!rule.facts.uses_partner) CHECK(most == told);
    if (!rule.facts.uses_partner) CHECK(most == walk.in_flight);
    std::int64_t weights = 0;
    for (int v = 0; v < shape.chunks(); ++v)
      for (const int holder : oracle::places(shape, v))
        weights |= std::int64_t{holder == w} << v;
    CHECK(walk.bytes.weights == Bytes{versions * weights});
    CHECK(walk.weight_versions == versions);
  }
  return schedule;
}

}  // namespace

// A free worker runs what is oldest, backwards first; a micro-batch begins while fewer than the limit are under way.
TEST_CASE("Hanayo by brute force: waves of one and two, every small shape") {
  for (int K = 2; K <= 8; ++K)
    for (const int waves : {1, 2})
      for (int M = 1; M <= 12; ++M)
        for (const int most : {0, 2 * K}) {
          const ScheduleShape shape{.stages = K,
                                    .virtual_stages = 2 * waves,
                                    .micro_batches = M,
                                    .most_in_flight = most,
                                    .chunk_order = ChunkOrder::V};
          CAPTURE(K);
          CAPTURE(waves);
          CAPTURE(M);
          const int limit = most > 0 ? most : K;
          const PlainStep step = played(shape, [&](PlainPasses& passes, const PlainPass& pass, int now) {
            return pass.chunk > 0 || passes.in_flight(0, now, 0) < limit;
          });
          check_against(step, "hanayo", shape);
          for (const auto& worker : step.workers)
            CHECK(most_in_any_tick(worker, step.end) <= 2 * waves * std::min(M, limit));
          if (waves == 1 && M == K) CHECK(step.end == 10 * K - 4);
        }
}

// A worker begins a micro-batch when it has ended the one before, which came from the other side.
TEST_CASE("GEMS by brute force: every small shape, one micro-batch on a worker") {
  for (int K = 2; K <= 8; K += 2)
    for (int M = 1; M <= 12; ++M) {
      const ScheduleShape shape{.stages = K, .micro_batches = M, .chunk_order = ChunkOrder::Alternate};
      CAPTURE(K);
      CAPTURE(M);
      const PlainStep step = played(shape, [&](PlainPasses& passes, const PlainPass& pass, int now) {
        const int before = pass.micro_batch - 1;  // its chunk there is the one of the other direction
        return before < 0 || passes.ended(true, K - 1 - pass.chunk, before, now);
      });
      check_against(step, "gems", shape);
      for (const auto& worker : step.workers)
        CHECK(most_in_any_tick(worker, step.end) == 1);
      CHECK(step.end == (K - 1) * kForwardTicks + M * (K * kBackwardTicks + kForwardTicks));
    }
}

namespace {

// 1F1B from its definition: stage k has K - k micro-batches in flight at most.
PlainStep one_f_one_b_played(const ScheduleShape& shape) {
  return played(shape, [&](PlainPasses& passes, const PlainPass& pass, int now) {
    return passes.in_flight(pass.worker, now) < shape.stages - pass.worker;
  });
}

// Versions of the weights on a worker of PipeDream-2BW after each of its passes: the newest, and those that a micro-batch in
// flight or the next one reads. A round reads what the update before the last one made. -1: one that is not there yet.
int most_versions(const std::vector<PlainPass>& passes, int every) {
  const auto read_by = [&](int m) { return std::max(m / every - 1, 0); };
  std::set<int> in_flight;
  int newest = 0, back = 0, most = 1;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const int m = passes[i].micro_batch;
    if (passes[i].backward) {
      in_flight.erase(m);
      if (++back % every == 0) ++newest;
    } else {
      if (read_by(m) > newest) return -1;
      in_flight.insert(m);
    }
    std::set<int> versions = {newest};
    for (const int each : in_flight)
      versions.insert(read_by(each));
    for (std::size_t j = i + 1; j < passes.size(); ++j)
      if (!passes[j].backward) {
        versions.insert(read_by(passes[j].micro_batch));
        break;
      }
    most = std::max(most, static_cast<int>(versions.size()));
  }
  return most;
}

}  // namespace

TEST_CASE("PipeDream-2BW by brute force: every small shape, two versions of the weights and no wait for one") {
  int fewer = 0;
  for (int K = 2; K <= 8; ++K)
    for (int every = 1; every <= 12; ++every)
      for (int M = every; M <= 12; M += every) {
        const ScheduleShape shape{.stages = K, .micro_batches = M, .update_every = every};
        CAPTURE(K);
        CAPTURE(every);
        CAPTURE(M);
        const PlainStep step = one_f_one_b_played(shape);
        CHECK(step.end == (M + K - 1) * (kForwardTicks + kBackwardTicks));
        if (every < K) {
          CHECK_FALSE(find_schedule("pipedream_2bw")->refusal(shape).empty());
          const int versions = most_versions(step.workers.front(), every);
          if (M >= K && M / every > 2 && every < K - 1) CHECK((versions < 0 || versions > 2));
          ++fewer;
          continue;
        }
        const int versions = M == every ? 1 : 2;
        const Schedule schedule = check_against(step, "pipedream_2bw", shape, versions);
        for (int k = 0; k < K; ++k) {
          CHECK(most_versions(step.workers[at(k)], every) == versions);
          CHECK(most_in_any_tick(step.workers[at(k)], step.end) == std::min(M, K - k));
          int backwards = 0;
          for (const Op& op : schedule.positions[k].compute) {
            if (op.kind == Kind::Update) CHECK(backwards % every == 0);
            backwards += op.kind == Kind::BW ? 1 : 0;
          }
        }
      }
  CHECK(fewer > 50);
}

namespace {

// By pass of a worker's list, how many of its own micro-batches it holds meanwhile when those in `moved` go right behind their
// forward and are on their way back during the pass before their backward.
int most_here(const std::vector<PlainPass>& passes, unsigned moved) {
  std::map<int, std::pair<int, int>> places;
  for (int i = 0; i < std::ssize(passes); ++i)
    (passes[at(i)].backward ? places[passes[at(i)].micro_batch].second : places[passes[at(i)].micro_batch].first) = i;
  int most = 0;
  for (int i = 0; i < std::ssize(passes); ++i) {
    int here = 0;
    for (const auto& [m, place] : places) {
      const bool away = (moved >> m & 1u) != 0 && place.first < i && i < place.second - 1;
      here += place.first <= i && i <= place.second && !away;
    }
    most = std::max(most, here);
  }
  return most;
}

// Of all sets of micro-batches, the size of the smallest that leaves no more than `limit` here.
int fewest_moved(const std::vector<PlainPass>& passes, int micro_batches, int limit) {
  int fewest = micro_batches + 1;
  for (unsigned moved = 0; moved < 1u << micro_batches; ++moved)
    if (std::popcount(moved) < fewest && most_here(passes, moved) <= limit) fewest = std::popcount(moved);
  return fewest;
}

unsigned set_of(const std::vector<Op>& moves) {
  unsigned set = 0;
  for (const Op& op : moves)
    set |= 1u << op.micro_batch;
  return set;
}

}  // namespace

TEST_CASE("BPipe by brute force: no set of fewer micro-batches leaves as little on a stage") {
  int moved = 0;
  for (int K = 2; K <= 8; ++K)
    for (int M = 1; M <= 10; ++M)
      for (const int limit : {0, 3, 4}) {
        const ScheduleShape shape{.stages = K, .micro_batches = M, .most_in_flight = limit};
        CAPTURE(K);
        CAPTURE(M);
        CAPTURE(limit);
        const PlainStep step = one_f_one_b_played(shape);
        CHECK(step.end == (M + K - 1) * (kForwardTicks + kBackwardTicks));
        const Schedule schedule = check_against(step, "bpipe", shape);
        // Half of K + 1, and the one that is computed; three at least.
        const int room = limit > 0 ? limit : std::max(3, (K + 1) / 2 + 1);
        for (int k = 0; k < K; ++k) {
          CAPTURE(k);
          const auto& streams = schedule.positions[k].communication;
          const unsigned gone = set_of(streams[kOut]);
          CHECK(gone == set_of(streams[kIn]));
          CHECK(std::popcount(gone) == std::ssize(streams[kOut]));
          CHECK(std::popcount(gone) == std::ssize(streams[kIn]));
          const auto& passes = step.workers[at(k)];
          const bool gives = 2 * k < K - 1;
          CHECK(std::popcount(gone) == (gives ? fewest_moved(passes, M, room) : 0));
          const int here = most_here(passes, gone);
          if (gives) CHECK(here <= room);
          CHECK(find_schedule("bpipe")->peak_in_flight(shape, k) == here);
          moved += std::popcount(gone);
        }
      }
  CHECK(moved > 100);
}

namespace {

// Begins of passes and moves that keep all rules, the least: raised until no rule is broken.
class Relaxed {
 public:
  int add(int length) {
    length_.push_back(length), begin_.push_back(0);
    return static_cast<int>(length_.size()) - 1;
  }
  void behind(int event, int other) { rules_.emplace_back(other, event, length_[at(other)]); }
  void not_before(int event, int other) { rules_.emplace_back(other, event, 0); }
  void settle() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [from, to, wait] : rules_)
        if (begin_[at(to)] < begin_[at(from)] + wait) begin_[at(to)] = begin_[at(from)] + wait, changed = true;
    }
  }
  int begin(int event) const { return begin_[at(event)]; }
  int end(int event) const { return begin_[at(event)] + length_[at(event)]; }

 private:
  std::vector<int> length_, begin_;
  std::vector<std::tuple<int, int, int>> rules_;
};

// BPipe's step with moves that take time: [worker] passes in their order, moves by micro-batch.
struct PlainMoves {
  std::vector<std::vector<PlainPass>> passes;
  std::vector<std::map<int, std::pair<int, int>>>
      away;  // [worker][micro-batch]: end of the way out, begin of that back
  std::vector<std::map<int, std::pair<int, int>>>
      visited;  // [partner][micro-batch]: begin of the way out, end of that back
  int end = 0;
};

PlainMoves moved_in_time(const ScheduleShape& shape, const PlainStep& order, const std::vector<unsigned>& moved,
                         int move) {
  Relaxed time;
  const int K = shape.stages;
  std::map<std::tuple<bool, int, int>, int> event;  // by label: chunk is worker
  for (const auto& passes : order.workers)
    for (const PlainPass& pass : passes)
      event[{pass.backward, pass.chunk, pass.micro_batch}] = time.add(pass.backward ? kBackwardTicks : kForwardTicks);
  std::vector<std::map<int, std::pair<int, int>>> moves(at(K));
  for (int k = 0; k < K; ++k) {
    const auto& passes = order.workers[at(k)];
    std::vector<int> out, in;  // so far
    int last = -1;
    for (std::size_t i = 0; i < passes.size(); ++i) {
      const auto& [worker, chunk, m, backward, begin, end] = passes[i];
      const int own = event.at({backward, k, m});
      if (last >= 0) time.behind(own, last);
      if (!backward && k > 0) time.behind(own, event.at({false, k - 1, m}));
      if (backward) time.behind(own, k + 1 < K ? event.at({true, k + 1, m}) : event.at({false, k, m}));
      if (!backward)  // room first
        for (const int each : out)
          time.behind(own, each);
      if (backward && (moved[at(k)] >> m & 1u) != 0) {
        const int back = moves[at(k)][m].second = time.add(move);
        time.not_before(back, last);
        if (!in.empty()) time.behind(back, in.back());
        for (const auto& [other, each] : moves[at(k)])
          if (other == m || !(last == event.at({false, k, other}))) time.behind(back, each.first);
        time.behind(own, back);
        in.push_back(back);
      }
      if (!backward && (moved[at(k)] >> m & 1u) != 0) {
        const int away = moves[at(k)][m].first = time.add(move);
        time.behind(away, own);
        if (!out.empty()) time.behind(away, out.back());
        out.push_back(away);
      }
      last = own;
    }
  }
  time.settle();
  PlainMoves result{order.workers, std::vector<std::map<int, std::pair<int, int>>>(at(K)),
                    std::vector<std::map<int, std::pair<int, int>>>(at(K))};
  for (int k = 0; k < K; ++k) {
    for (PlainPass& pass : result.passes[at(k)]) {
      const int own = event.at({pass.backward, k, pass.micro_batch});
      pass.begin = time.begin(own), pass.end = time.end(own), result.end = std::max(result.end, pass.end);
    }
    for (const auto& [m, pair] : moves[at(k)]) {
      result.away[at(k)][m] = {time.end(pair.first), time.begin(pair.second)};
      result.visited[at(K - 1 - k)][m] = {time.begin(pair.first), time.end(pair.second)};
    }
  }
  return result;
}

// In the tick from `now` on: own micro-batches less those that are away, and the partner's.
int held_in_tick(const PlainMoves& step, int worker, int now) {
  int held = 0;
  for (const PlainPass& pass : step.passes[at(worker)])
    held += pass.backward ? -(pass.end <= now) : pass.begin <= now;
  for (const auto& [m, away] : step.away[at(worker)])
    held -= away.first <= now && now < away.second;
  for (const auto& [m, visit] : step.visited[at(worker)])
    held += visit.first <= now && now < visit.second;
  return held;
}

}  // namespace

TEST_CASE("BPipe by brute force: times with slow moves, and the memory of both sides in every tick") {
  int later = 0;
  for (int K = 2; K <= 8; ++K)
    for (int M = 1; M <= 12; ++M)
      for (const int move : {1, 2, 5}) {
        const ScheduleShape shape{.stages = K, .micro_batches = M};
        CAPTURE(K);
        CAPTURE(M);
        CAPTURE(move);
        const Schedule schedule = find_schedule("bpipe")->generate(shape);
        std::vector<unsigned> moved;
        for (const Lane& lane : schedule.positions)
          moved.push_back(set_of(lane.communication[kOut]));
        const PlainStep order = one_f_one_b_played(shape);
        const PlainMoves step = moved_in_time(shape, order, moved, move);
        const StepCosts costs = move_costs(shape, move);
        const Timeline timeline = static_order(schedule, costs);
        CHECK(timeline.makespan == Time{step.end});
        later += step.end > order.end;
        const std::vector<MemoryPeak> all = peaks(bytes_by_chunk(shape), schedule, costs, timeline);
        for (int k = 0; k < K; ++k) {
          CAPTURE(k);
          const auto& passes = step.passes[at(k)];
          bool same = true;
          for (std::size_t i = 0; i < passes.size(); ++i)
            same = same && timeline.workers[k].compute[i] == Span{Time{passes[i].begin}, Time{passes[i].end}};
          CHECK(same);
          int most = 0;
          for (int now = 0; now < step.end; ++now)
            most = std::max(most, held_in_tick(step, k, now));
          CHECK(all[at(k)].bytes.stash == Bytes{most});
          if (2 * k < K - 1) CHECK(most <= std::max(3, (K + 1) / 2 + 1));
        }
      }
  CHECK(later > 20);
}

namespace {

// What travels through a pipeline: the forwards of one micro-batch or two, or a backward. It is on one stage in every slot.
struct PlainToken {
  int slot, stage;
  std::vector<int> micro_batches;
  bool backward;
};

// Chimera's slots where one holds two forwards. Units of 2 K micro-batches begin 3 K slots apart; a pair of a pipeline begins in
// every second slot, with the j-th micro-batches of both halves of the unit; the backward of the one turns round at the last
// stage in the slot behind its forward, that of the other K slots later. Two tokens on a worker in one slot: the merge fails.
std::vector<std::map<int, PlainToken>> doubled_slots(const ScheduleShape& shape, bool& met) {
  const int K = shape.stages, M = shape.micro_batches, in_unit = K / shape.pipelines;
  std::vector<PlainToken> tokens;
  for (int unit = 0; 2 * K * unit < M; ++unit)
    for (int pipeline = 0; pipeline < shape.pipelines; ++pipeline)
      for (int j = 0; j < in_unit; ++j) {
        PlainToken token{3 * K * unit + 2 * j, 0, {}, false};
        for (const int half : {0, 1})
          if (const int m = 2 * K * unit + half * K + pipeline * in_unit + j; m < M) token.micro_batches.push_back(m);
        if (!token.micro_batches.empty()) tokens.push_back(token);
      }
  std::vector<std::map<int, PlainToken>> workers(at(K));
  while (!tokens.empty()) {
    PlainToken token = tokens.back();
    tokens.pop_back();
    const int worker = oracle::position_of(shape, token.stage, token.micro_batches.front());
    met = met || workers[at(worker)].contains(token.slot);
    workers[at(worker)].emplace(token.slot, token);
    if (!token.backward && token.stage + 1 == K) {
      for (const int m : token.micro_batches)
        tokens.push_back({token.slot + 1 + m % (2 * K) / K * K, token.stage, {m}, true});
    } else if (!token.backward || token.stage > 0) {
      token.stage += token.backward ? -1 : 1, ++token.slot;
      tokens.push_back(token);
    }
  }
  return workers;
}

// Runs the lists of all workers, each pass when the one before it has ended and what it reads is there.
PlainStep run_in_order(const ScheduleShape& shape, const std::vector<Labels>& lists) {
  PlainPasses passes(shape);
  PlainStep step;
  step.workers.resize(lists.size());
  std::vector<int> free_at(lists.size());
  std::size_t begun = 0;
  for (int now = 0; begun < passes.all().size(); ++now) {
    REQUIRE(now < 10'000);
    for (std::size_t w = 0; w < lists.size(); ++w) {
      if (free_at[w] > now || step.workers[w].size() == lists[w].size()) continue;
      const auto& [backward, chunk, m] = lists[w][step.workers[w].size()];
      PlainPass& pass = passes.of(backward, chunk, m);
      REQUIRE(pass.worker == static_cast<int>(w));
      REQUIRE(pass.begin < 0);
      if (!passes.ready(pass, now)) continue;
      pass.begin = now, pass.end = free_at[w] = now + (backward ? kBackwardTicks : kForwardTicks);
      step.end = std::max(step.end, pass.end);
      step.workers[w].push_back(pass);
      ++begun;
    }
  }
  return step;
}

}  // namespace

TEST_CASE("Chimera's forward doubling by brute force: tokens that never meet, every small shape") {
  int whole = 0;
  for (int K = 2; K <= 8; K += 2)
    for (int P = 2; P <= K; P += 2)
      for (int M = 1; M <= 12 && K % P == 0; ++M) {
        const ScheduleShape shape{
            .stages = K, .micro_batches = M, .forwards = 2, .pipelines = P, .chunk_order = ChunkOrder::InTurns};
        CAPTURE(K);
        CAPTURE(P);
        CAPTURE(M);
        bool met = false;
        std::vector<Labels> lists;
        for (const auto& slots : doubled_slots(shape, met)) {
          Labels& list = lists.emplace_back();
          for (const auto& [slot, token] : slots)
            for (const int m : token.micro_batches)
              list.emplace_back(token.backward, token.stage, m);
        }
        CHECK_FALSE(met);
        const PlainStep step = run_in_order(shape, lists);
        check_against(step, "chimera", shape);
        if (M % (2 * K) != 0) continue;
        CHECK(step.end == 3 * M + 3 * K / P - 3);
        ++whole;
      }
  CHECK(whole == 3 + 2 + 2);  // K = 2, and 4 and 6 with two pipelines or as many as stages
}

}  // namespace pipewright::tests
