#include "sim/dependencies.hpp"

namespace pipewright::sim {

Wiring::Wiring(const Schedule& schedule, const std::vector<Edge>& edges, int number_of_copies)
    : copies(number_of_copies),
      positions(static_cast<int>(schedule.positions.size())),
      micro_batches(schedule.shape.micro_batches),
      seating_(schedule.seating()) {
  const ScheduleShape& shape = schedule.shape;
  const auto count = at(shape.chunks());
  chunks.resize(count);
  for (std::size_t v = 0; v < count; ++v) {
    const auto chunk = static_cast<VirtualStageId>(v);
    chunks[v].first = seating_.position(chunk, 0);
    chunks[v].holders = seating_.holders(chunk);
  }
  for (PositionId position = 0; position < positions; ++position)
    group_at_.push_back(seating_.group_of(seating_.chunk_of(seating_.stage_at(position), 0)));
  for (std::size_t table = 0; table < shape.tied.size(); ++table)
    with_table_.push_back(holders_of_table(shape, table));
  for (std::uint32_t edge = 0; edge < edges.size(); ++edge) {
    chunks[edges[edge].from].out.push_back(edge);
    chunks[edges[edge].to].in.push_back(edge);
  }
}

}  // namespace pipewright::sim
