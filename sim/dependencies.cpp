#include "sim/dependencies.hpp"

namespace pipewright {

Wiring::Wiring(const Schedule& schedule, const StepCosts& costs)
    : copies(schedule.shape.data_parallel),
      positions(static_cast<int>(schedule.positions.size())),
      micro_batches(schedule.shape.micro_batches),
      seating_(schedule.seating()),
      rounds_(schedule.rounds()) {
  const ScheduleShape& shape = schedule.shape;
  const auto count = static_cast<std::size_t>(shape.chunks());
  chunks.resize(count);
  for (std::size_t v = 0; v < count; ++v) {
    const auto chunk = static_cast<VirtualStageId>(v);
    chunks[v].group = seating_.group_of(chunk);
    chunks[v].first = seating_.position(chunk, 0);
    chunks[v].holders = seating_.holders(chunk);
    replicated = replicated || !chunks[v].one_holder();
  }
  for (std::uint32_t edge = 0; edge < costs.edges.size(); ++edge) {
    chunks[costs.edges[edge].from].out.push_back(edge);
    chunks[costs.edges[edge].to].in.push_back(edge);
  }
  for (std::size_t v = 0; v < count; ++v) {
    const auto all_rounds = static_cast<std::size_t>(rounds(static_cast<int>(v)));
    buckets_.push_back(shape.buckets_of(static_cast<int>(v)));
    first_meeting_.push_back(meetings_);
    meetings_ += all_rounds * static_cast<std::size_t>(buckets_.back());
    first_gradient_.push_back(gradient_keys_);
    gradient_keys_ += all_rounds * static_cast<std::size_t>(members(static_cast<int>(v)));
  }
}

std::size_t Wiring::meeting_key(VirtualStageId v, int round, int bucket) const {
  return first_meeting_[static_cast<std::size_t>(v)] +
         static_cast<std::size_t>(round) * static_cast<std::size_t>(buckets_[static_cast<std::size_t>(v)]) +
         static_cast<std::size_t>(bucket);
}

std::size_t Wiring::gradient_key(WorkerId worker, VirtualStageId v, int round) const {
  const Chunk& chunk = chunks[static_cast<std::size_t>(v)];
  const int copy = worker / positions;
  const int holder = seating_.holder_at(v, worker % positions, chunk.first);
  return first_gradient_[static_cast<std::size_t>(v)] +
         (at(copy * chunk.holders + holder)) * static_cast<std::size_t>(rounds(v)) + static_cast<std::size_t>(round);
}

std::vector<std::int32_t> Wiring::backwards_per_round(const Schedule& schedule) const {
  std::vector<std::int32_t> count(gradient_keys_, 0);
  for (WorkerId worker = 0; worker < workers(); ++worker)
    for (const Op& op : schedule.positions[static_cast<std::size_t>(worker % positions)].compute)
      if (op.kind == Kind::BW || op.kind == Kind::W) ++count[gradient_key(worker, op.virtual_stage, round_of(op))];
  return count;
}

}  // namespace pipewright
