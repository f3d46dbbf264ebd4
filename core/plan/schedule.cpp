#include "core/plan/schedule.hpp"

#include <algorithm>
#include <set>

#include "core/plan/timeline.hpp"

namespace pipewright::core {

namespace {

bool is_kind(Kind kind) {
  return at(kind) < kKindRules.size();
}

}  // namespace

std::string_view name(Kind kind) {
  return is_kind(kind) ? rule(kind).name : "?";
}

std::string label(const Op& op) {
  std::string text = std::to_string(op.virtual_stage);
  text += is_kind(op.kind) ? rule(op.kind).letters : "?";
  text += std::to_string(op.micro_batch);
  const bool of_updated = op.kind == Kind::AllGather && op.bucket >= kBehindUpdate;
  if (of_updated) return op.bucket == kBesideForward ? text + "+" : text;
  if (op.kind == Kind::AllReduce || op.kind == Kind::AllGather || op.kind == Kind::Fetch)
    text += "." + std::to_string(op.bucket);
  if (op.kind == Kind::TableReduce && op.bucket > 0) text += "." + std::to_string(op.bucket);
  return text;
}

std::size_t Lane::ops() const {
  std::size_t all = compute.size();
  for (const std::vector<Op>& stream : communication)
    all += stream.size();
  return all;
}

std::int64_t overlapped_cells(const std::vector<Op>& ops) {
  std::int64_t cells = 0;
  for (std::size_t i = 0; i < ops.size(); ++i)
    cells += ops[i].with_next && (i == 0 || !ops[i - 1].with_next) ? 1 : 0;
  return cells;
}

std::vector<PositionId> holders_of_table(const ScheduleShape& shape, std::size_t table) {
  std::set<PositionId> all;
  for (const VirtualStageId v : shape.tied[table])
    for (const PositionId position : places(shape.seating(), v))
      all.insert(position);
  return {all.begin(), all.end()};
}

PositionId first_member(const ScheduleShape& shape, const Op& op) {
  if (kStreams[rule(op.kind).stream].among == Among::All) return 0;
  if (kStreams[rule(op.kind).stream].among == Among::Tied) return holders_of_table(shape, op.bucket).front();
  return shape.seating().position(op.virtual_stage, 0);
}

std::vector<int> updates_seen(const Schedule& schedule) {
  const ScheduleShape& shape = schedule.shape;
  if (schedule.flush || !(shape.vertical_sync || shape.double_buffered)) return {};
  const Seating seating = shape.seating();
  const Rounds rounds = schedule.rounds();
  std::vector<int> seen(at(shape.micro_batches));
  for (int holder = 0; holder < seating.holders(0); ++holder) {
    int updates = 0;
    for (const Op& op : schedule.positions[seating.position(0, holder)].compute) {
      if (op.virtual_stage != 0) continue;
      if (op.kind == Kind::Update) ++updates;
      if (op.kind != Kind::F) continue;
      seen[op.micro_batch] = shape.double_buffered ? std::max(0, rounds.of(0, op.micro_batch) - 1) : updates;
    }
  }
  return seen;
}

std::string_view name(EngineRan engine) {
  switch (engine) {
    case EngineRan::StaticOrder: return "static order";
    case EngineRan::EventQueue: return "event queue";
    case EngineRan::RealRun: return "real run";
  }
  return "";
}

}  // namespace pipewright::core
