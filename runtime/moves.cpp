#include "runtime/moves.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "core/plan/op_index.hpp"
#include "runtime/run_plan.hpp"

namespace pipewright::runtime {
namespace {

std::int64_t bytes_of_parts(const std::vector<MovedPart>& parts) {
  return parts.empty() ? 0 : parts.back().offset + parts.back().bytes;
}

// Blocks that a forward has taken and not given back: what it keeps for its backward beside messages.
std::vector<int> left_by(const std::vector<Instruction>& forward) {
  std::vector<int> blocks;
  for (const Instruction& i : forward) {
    if (i.verb == Verb::Allocate) blocks.push_back(i.block);
    if (i.verb == Verb::Free) std::erase(blocks, i.block);
  }
  return blocks;
}

// Slots are taken behind the forward, and free again where the first reader begins.
void give_slots(RunMoves& moves, const Lane& lane) {
  const std::vector<Op>& outs = lane.communication[kOut];
  moves.slot.resize(outs.size());
  std::vector<char> taken;
  std::size_t back = 0;
  for (std::size_t i = 0; i < lane.compute.size(); ++i) {
    for (; back < at(moves.at.at(i).back); ++back)
      taken[at(moves.slot[moves.at.offload_of(back)])] = 0;
    const std::int32_t out = moves.at.at(i).leaves;
    if (out < 0) continue;
    auto free = std::ranges::find(taken, 0);
    if (free == taken.end()) free = taken.insert(free, 0);
    *free = 1;
    moves.slot[at(out)] = static_cast<std::int32_t>(free - taken.begin());
  }
  moves.slots = static_cast<int>(taken.size());
}

}  // namespace

std::vector<MovedPart> moved_parts(const RunPlan& run, const Op& move) {
  const auto m = static_cast<MicroBatchId>(move.micro_batch);
  const ChunkCode& code = run.code[move.virtual_stage];
  std::vector<MovedPart> parts;
  std::int64_t offset = 0;
  for (const int block : left_by(code.line(Kind::F, recomputed(run.schedule->shape, move.virtual_stage, m)))) {
    parts.push_back({block, offset, code.blocks[at(block)][run.size_of(m)]});
    offset += rounded_up(parts.back().bytes, run.alignment.value);
  }
  return parts;
}

void find_moves(RunPlan& run) {
  const std::size_t may_leave = run.schedule->shape.leaving_under_forward();
  for (const Lane& lane : run.schedule->positions) {
    RunMoves moves{.at = Moved(lane, may_leave)};
    if (moves.at.any()) give_slots(moves, lane);
    for (const Op& out : lane.communication[kOut])
      moves.bytes = std::max(moves.bytes, bytes_of_parts(moved_parts(run, out)));
    run.moves.push_back(std::move(moves));
  }
}

void add_move_channels(RunPlan& run) {
  const ScheduleShape& shape = run.schedule->shape;
  if (!shape.offloaded.empty()) return;
  const Seating seating = run.schedule->seating();
  for (std::size_t p = 0; p < run.moves.size(); ++p) {
    RunMoves& moves = run.moves[p];
    if (moves.bytes == 0) continue;
    const auto position = static_cast<PositionId>(p);
    moves.channel = static_cast<int>(run.channels.size());
    RunChannel channel;
    channel.from = position, channel.to = seating.first_position(shape.partner_of(seating.stage_at(position)));
    channel.slots = moves.slots, channel.bytes = {moves.bytes, moves.bytes}, channel.keeps = true;
    run.channels.push_back(std::move(channel));
  }
}

}  // namespace pipewright::runtime
