#include "sim/dependencies.hpp"

namespace pipewright {

Wiring::Wiring(const Schedule& schedule, const StepCosts& costs)
    : copies(schedule.shape.data_parallel),
      positions(static_cast<int>(schedule.positions.size())),
      micro_batches(schedule.shape.micro_batches),
      flush(schedule.flush) {
  const ScheduleShape& shape = schedule.shape;
  const auto count = static_cast<std::size_t>(shape.chunks());
  chunks.resize(count);
  std::vector<PositionId> first(static_cast<std::size_t>(shape.stages), 0);
  for (int stage = 1; stage < shape.stages; ++stage)
    first[stage] = first[stage - 1] + shape.replicas_of(stage - 1);
  for (std::size_t v = 0; v < count; ++v) {
    const int stage = shape.stage_of(static_cast<int>(v));
    chunks[v].stage = stage;
    chunks[v].replicas = shape.replicas_of(stage);
    chunks[v].first_position = first[static_cast<std::size_t>(stage)];
    replicated = replicated || chunks[v].replicas > 1;
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

int Wiring::rounds(VirtualStageId v) const {
  const int replicas = chunks[static_cast<std::size_t>(v)].replicas;
  return flush ? 1 : (micro_batches + replicas - 1) / replicas;
}

int Wiring::round_of(const Op& backward) const {
  return flush ? 0 : static_cast<int>(backward.micro_batch) / chunks[backward.virtual_stage].replicas;
}

std::size_t Wiring::meeting_key(VirtualStageId v, int round, int bucket) const {
  return first_meeting_[static_cast<std::size_t>(v)] +
         static_cast<std::size_t>(round) * static_cast<std::size_t>(buckets_[static_cast<std::size_t>(v)]) +
         static_cast<std::size_t>(bucket);
}

std::size_t Wiring::gradient_key(WorkerId worker, VirtualStageId v, int round) const {
  const Chunk& chunk = chunks[static_cast<std::size_t>(v)];
  const int copy = worker / positions, replica = worker % positions - chunk.first_position;
  return first_gradient_[static_cast<std::size_t>(v)] +
         static_cast<std::size_t>(copy * chunk.replicas + replica) * static_cast<std::size_t>(rounds(v)) +
         static_cast<std::size_t>(round);
}

std::vector<std::int32_t> Wiring::backwards_per_round(const Schedule& schedule) const {
  std::vector<std::int32_t> count(gradient_keys_, 0);
  for (WorkerId worker = 0; worker < workers(); ++worker)
    for (const Op& op : schedule.positions[static_cast<std::size_t>(worker % positions)].compute)
      if (op.kind == Kind::BW || op.kind == Kind::W) ++count[gradient_key(worker, op.virtual_stage, round_of(op))];
  return count;
}

}  // namespace pipewright
