// Problems for the finder of orders, by hand and by chance, and all their orders.
#pragma once

#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "core/random.hpp"
#include "sim/finder/find_order.hpp"

namespace pipewright::tests {

struct Passes4 {
  std::int64_t f, b, w, hop;
};

inline OrderProblem alike(int stages, int chunks, int micro_batches, Passes4 times, std::int64_t held,
                          std::int64_t kept, std::int64_t cap) {
  OrderProblem problem{.stages = stages, .virtual_stages = chunks, .micro_batches = micro_batches};
  if (chunks == 2) problem.chunk_order = ChunkOrder::V;
  const std::size_t all = at(problem.chunks());
  problem.forward.assign(all, times.f), problem.input.assign(all, times.b), problem.weights.assign(all, times.w);
  problem.held.assign(all, held), problem.kept_after_input.assign(all, kept);
  problem.cap.assign(at(stages), cap);
  for (VirtualStageId v = 0; v + 1 < problem.chunks(); ++v)
    problem.down.push_back(problem.seating().stage_of(v) == problem.seating().stage_of(v + 1) ? 0 : times.hop);
  problem.up = problem.down;
  return problem;
}

inline std::int64_t number_between(Random& chance, int low, int high) {
  return low + static_cast<std::int64_t>(chance.bits() % static_cast<std::uint64_t>(high - low + 1));
}

// Two chunks on each stage, there and back or in two directions; room for one micro-batch or more.
inline OrderProblem two_by_chance(Random& chance, int stages, bool two_ways, int micro_batches = 1) {
  OrderProblem problem = alike(stages, 2, micro_batches, {}, 0, 0, 0);
  problem.two_ways = two_ways;
  for (std::size_t v = 0; v < at(problem.chunks()); ++v) {
    problem.forward[v] = number_between(chance, 1, 9), problem.input[v] = number_between(chance, 1, 9);
    problem.weights[v] = number_between(chance, 0, 9);
    problem.held[v] = number_between(chance, 1, 4);
    problem.kept_after_input[v] = number_between(chance, 0, static_cast<int>(problem.held[v]));
    if (v + 1 < at(problem.chunks()))
      problem.down[v] = number_between(chance, 0, 4), problem.up[v] = number_between(chance, 0, 4);
  }
  for (StageId k = 0; k < stages; ++k)
    problem.cap[at(k)] = least_cap(problem, k) + number_between(chance, 0, 2);
  return problem;
}

// Times, memory and hops by chance; room for 1 to M micro-batches.
inline OrderProblem by_chance(Random& chance, int stages, int micro_batches) {
  const auto between = [&](int low, int high) { return number_between(chance, low, high); };
  OrderProblem problem = alike(stages, 1, micro_batches, {}, 0, 0, 0);
  for (StageId k = 0; k < stages; ++k) {
    const std::size_t s = at(k);
    problem.forward[s] = between(1, 9), problem.input[s] = between(1, 9), problem.weights[s] = between(0, 9);
    problem.held[s] = between(1, 4), problem.kept_after_input[s] = between(0, static_cast<int>(problem.held[s]));
    problem.cap[s] = between(1, micro_batches) * problem.held[s] + between(0, 2);
    if (k + 1 < stages) problem.down[s] = between(0, 4), problem.up[s] = between(0, 4);
  }
  return problem;
}

// All orders of a stage that keep to its cap. `done`: by code.
inline void all_orders(const OrderProblem& problem, const OrderPricer& pricer, StageId stage, std::vector<int>& done,
                       PassCodes& codes, std::vector<PassCodes>& all) {
  const int M = problem.micro_batches, v = problem.virtual_stages;
  if (pricer.peak(stage, codes) > problem.cap[at(stage)]) return;
  if (std::accumulate(done.begin(), done.end(), 0) == 3 * v * M) return all.push_back(codes);
  for (int code = 0; code < 3 * v; ++code) {
    if (done[at(code)] >= (code < v ? M : done[at(code - v)])) continue;
    ++done[at(code)];
    codes.push_back(static_cast<std::uint8_t>(code));
    all_orders(problem, pricer, stage, done, codes, all);
    codes.pop_back();
    --done[at(code)];
  }
  for (int f = 0; f < (problem.pair.empty() ? 0 : v); ++f)
    for (int b = 0; b < v; ++b) {
      int &inputs = done[at(v + b)], &weights = done[at(2 * v + b)];
      if (done[at(f)] >= M || inputs >= done[at(b)] || weights != inputs) continue;
      ++done[at(f)], ++inputs, ++weights;
      codes.push_back(code_of({f, b}, v));
      all_orders(problem, pricer, stage, done, codes, all);
      codes.pop_back();
      --done[at(f)], --inputs, --weights;
    }
}

// Cells of a forward and a backward that take from `least` percent of their passes to all of it.
inline void with_cells(Random& chance, OrderProblem& problem, int least) {
  const OrderPricer pricer(problem);
  for (VirtualStageId f = 0; f < problem.chunks(); ++f)
    for (int row = 0; row < problem.virtual_stages; ++row) {
      const std::size_t b = at(pricer.chunk_at(pricer.stage_of(f), row));
      const auto all = static_cast<int>(problem.forward[at(f)] + problem.input[b] + problem.weights[b]);
      problem.pair.push_back(number_between(chance, all * least / 100, all));
    }
}

// The least measure of all of them.
inline std::int64_t best_of_all(const OrderProblem& problem) {
  OrderPricer pricer(problem);
  std::vector<std::vector<PassCodes>> by_stage(at(problem.stages));
  PassCodes none;
  std::vector<int> done(at(3 * problem.virtual_stages));
  for (StageId k = 0; k < problem.stages; ++k)
    all_orders(problem, pricer, k, done, none, by_stage[at(k)]);
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  PricedOrder order;
  order.codes.resize(at(problem.stages));
  const auto go = [&](const auto& self, StageId stage) -> void {
    if (stage == problem.stages) {
      if (pricer.price(order)) best = std::min(best, order.of(problem.measure));
      return;
    }
    for (const PassCodes& codes : by_stage[at(stage)])
      order.codes[at(stage)] = codes, self(self, stage + 1);
  };
  go(go, 0);
  return best;
}

inline std::int64_t value(const FoundOrder& found, OrderMeasure measure) {
  return found.order.of(measure);
}

inline void check_kept(const OrderProblem& problem, const FoundOrder& found) {
  const OrderPricer pricer(problem);
  for (StageId k = 0; k < problem.stages; ++k)
    CHECK(pricer.peak(k, found.order.codes[at(k)]) <= problem.cap[at(k)]);
  CHECK(found.bound.value <= value(found, problem.measure));
}

}  // namespace pipewright::tests
