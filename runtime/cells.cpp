#include "runtime/cells.hpp"

#include <algorithm>

namespace pipewright::runtime {

std::size_t cell_size(const RunPlan& run, const Lane& lane, std::size_t first) {
  std::size_t count = 1;
  while (run.plan->pairs.value == Pairs::Fused && lane.compute[first + count - 1].with_next &&
         first + count < lane.compute.size())
    ++count;
  return count;
}

namespace {

// An op's place among the threads: that of an earlier one with the same micro-batch and chunk, or one that adds to the same
// gradients, so that their sums stay those of one after the other, and are complete when the last of them has run.
bool together(const Op& a, const Op& b) {
  if (a.virtual_stage != b.virtual_stage) return false;
  return a.micro_batch == b.micro_batch || (rule(a.kind).gradients && rule(b.kind).gradients);
}

std::vector<std::vector<std::size_t>> threads_of_cell(const Lane& lane, std::size_t first, std::size_t count) {
  std::vector<std::vector<std::size_t>> threads;
  for (std::size_t op = first; op < first + count; ++op) {
    const auto found = std::ranges::find_if(threads, [&](const std::vector<std::size_t>& thread) {
      return std::ranges::any_of(thread, [&](std::size_t i) { return together(lane.compute[i], lane.compute[op]); });
    });
    if (found == threads.end())
      threads.push_back({op});
    else
      found->push_back(op);
  }
  return threads;
}

}  // namespace

std::size_t most_threads(const RunPlan& run) {
  std::size_t most = 1;
  for (const Lane& lane : run.schedule->positions)
    for (std::size_t i = 0, cell = 1; i < lane.compute.size(); i += cell) {
      cell = cell_size(run, lane, i);
      if (cell > 1) most = std::max(most, threads_of_cell(lane, i, cell).size());
    }
  return most;
}

std::vector<CellPart> parts_of_cell(const RunPlan& run, const Lane& lane, std::size_t first, std::size_t count) {
  std::vector<std::vector<CellPart>> threads;
  for (const std::vector<std::size_t>& ops : threads_of_cell(lane, first, count)) {
    threads.emplace_back();
    for (const std::size_t op : ops) {
      const std::vector<Instruction>& line = run.line(lane.compute[op]);
      std::size_t begin = 0;
      for (std::size_t i = 1; i < line.size(); ++i)
        if (line[i].verb == Verb::ExchangeReceive) threads.back().push_back({op, begin, i}), begin = i;
      threads.back().push_back({op, begin, line.size()});
    }
  }
  std::vector<CellPart> parts;
  for (std::size_t turn = 0, left = threads.size(); left > 0; ++turn) {
    left = 0;
    for (const std::vector<CellPart>& thread : threads) {
      if (turn < thread.size()) parts.push_back(thread[turn]);
      left += turn + 1 < thread.size() ? 1 : 0;
    }
  }
  return parts;
}

}  // namespace pipewright::runtime
