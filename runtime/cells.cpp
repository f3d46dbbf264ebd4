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

std::vector<CellPart> parts_of_cell(const RunPlan& run, const Lane& lane, std::size_t first, std::size_t count) {
  std::vector<std::vector<CellPart>> threads;
  for (std::size_t op = first; op < first + count; ++op) {
    const Op &here = lane.compute[op], &before = lane.compute[op > first ? op - 1 : op];
    const bool follows =
        op > first && here.virtual_stage == before.virtual_stage && here.micro_batch == before.micro_batch;
    if (!follows) threads.emplace_back();
    const std::vector<Instruction>& line = run.line(here);
    std::size_t begin = 0;
    for (std::size_t i = 1; i < line.size(); ++i)
      if (line[i].verb == Verb::ExchangeReceive) threads.back().push_back({op, begin, i}), begin = i;
    threads.back().push_back({op, begin, line.size()});
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
