#include "io/writers/schedule_csv.hpp"

#include <algorithm>
#include <vector>

#include "core/check.hpp"
#include "core/plan/given_schedule.hpp"

namespace pipewright::io {
namespace {

bool is_written(const Op& op) {
  return op.kind == Kind::F || op.kind == Kind::B || op.kind == Kind::W || op.kind == Kind::BW;
}

void add(std::string& row, const std::string& cell) {
  if (!row.empty()) row += ',';
  row += cell;
}

std::string message_cell(VirtualStageId v, const char* action, std::uint32_t m) {
  return std::to_string(v) + action + std::to_string(m);
}

// What stands in one cell: an op, or several at a time.
using ActionCell = std::vector<Op>;

// Of each worker, in order.
std::vector<std::vector<ActionCell>> cells_of(const Schedule& schedule) {
  std::vector<std::vector<ActionCell>> all(schedule.positions.size());
  for (PositionId worker = 0; worker < std::ssize(all); ++worker)
    for (const Op& op : schedule.positions[worker].compute) {
      if (!is_written(op)) continue;
      const bool same = !all[worker].empty() && all[worker].back().back().with_next;
      if (!same) all[worker].emplace_back();
      all[worker].back().push_back(op);
    }
  return all;
}

std::string text_of(Op op, const Seating& seating) {
  op.virtual_stage = static_cast<std::uint16_t>(seating.number_in_file(op.virtual_stage, op.micro_batch));
  return label(op);
}

std::string text_of(const ActionCell& cell, const Seating& seating) {
  if (cell.size() == 1) return text_of(cell.front(), seating);
  std::string inside;
  for (const Op& op : cell)
    inside += (inside.empty() ? "" : ";") + text_of(op, seating);
  return "(" + inside + ")OVERLAP_F_B";
}

// The lists run without a clock, a cell of each worker in turn. A message is sent right behind the cell that makes it
// and received at that moment, so that both ends of a pair have their messages in one order.
class WithMessages {
 public:
  WithMessages(const Schedule& schedule, const std::vector<std::vector<ActionCell>>& cells)
      : cells_(cells),
        shape_(schedule.shape),
        rows_(schedule.positions.size()),
        next_(schedule.positions.size()),
        done_(static_cast<std::size_t>(shape_.chunks()) * static_cast<std::size_t>(shape_.micro_batches)) {}

  std::vector<std::string> rows() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t worker = 0; worker < rows_.size(); ++worker)
        moved |= step(worker);
    }
    return rows_;
  }

 private:
  std::uint8_t& done(VirtualStageId v, std::uint32_t m) {
    return done_[static_cast<std::size_t>(v) * static_cast<std::size_t>(shape_.micro_batches) + m];
  }
  bool may_run(const Op& op) {
    const VirtualStageId v = op.virtual_stage;
    if (op.kind == Kind::F) return v == 0 || (done(v - 1, op.micro_batch) & 1);
    if (rule(op.kind).backward) return v + 1 == shape_.chunks() || (done(v + 1, op.micro_batch) & 2);
    return true;
  }
  // Marks the op as done, or as not done any more.
  void mark(const Op& op) {
    if (op.kind != Kind::W) done(op.virtual_stage, op.micro_batch) ^= op.kind == Kind::F ? 1 : 2;
  }
  // Whether all its ops may run, each behind those before it.
  bool may_run(const ActionCell& cell) {
    std::size_t runs = 0;
    for (; runs < cell.size() && may_run(cell[runs]); ++runs)
      mark(cell[runs]);
    for (std::size_t i = 0; i < runs; ++i)
      mark(cell[i]);
    return runs == cell.size();
  }
  bool step(std::size_t worker) {
    std::size_t& i = next_[worker];
    if (i == cells_[worker].size() || !may_run(cells_[worker][i])) return false;
    const ActionCell& cell = cells_[worker][i++];
    add(rows_[worker], text_of(cell, shape_.seating()));
    for (const Op& op : cell) {
      mark(op);
      const VirtualStageId v = op.virtual_stage;
      if (op.kind == Kind::F && v + 1 < shape_.chunks()) message(worker, v, v + 1, "SEND_F", "RECV_F", op.micro_batch);
      if (rule(op.kind).backward && v > 0) message(worker, v, v - 1, "SEND_B", "RECV_B", op.micro_batch);
    }
    return true;
  }
  void message(std::size_t from, VirtualStageId v, VirtualStageId to, const char* send, const char* receive,
               std::uint32_t m) {
    const auto other = static_cast<std::size_t>(shape_.seating().position_of(to, static_cast<MicroBatchId>(m)));
    if (other == from) return;
    add(rows_[from], message_cell(shape_.seating().number_in_file(v, m), send, m));
    add(rows_[other], message_cell(shape_.seating().number_in_file(to, m), receive, m));
  }

  const std::vector<std::vector<ActionCell>>& cells_;
  const ScheduleShape& shape_;
  std::vector<std::string> rows_;
  std::vector<std::size_t> next_;
  std::vector<std::uint8_t> done_;  // by chunk and micro-batch: 1 forward, 2 gradient of the input
};

// PyTorch's stages are chunks: of the units of one the first that runs stands for all.
Schedule of_whole_chunks(Schedule schedule) {
  const Seating cut = schedule.seating();
  if (cut.units == 1) return schedule;
  schedule.shape.units = 1, schedule.shape.buckets.clear(), schedule.shape.resharding.reset();
  schedule.shape.updated = UpdatedParts::None;
  for (Lane& lane : schedule.positions) {
    std::erase_if(lane.compute, [&](const Op& op) {
      return cut.unit_of(op.virtual_stage) != (rule(op.kind).forward ? 0 : cut.units - 1);
    });
    for (Op& op : lane.compute)
      op.virtual_stage = static_cast<std::uint16_t>(cut.whole_of(op.virtual_stage));
    lane.communication = {};
  }
  return schedule;
}

}  // namespace

std::string not_in_schedule_csv(const Schedule& schedule) {
  if (!schedule.flush)
    return schedule.name +
           " updates the weights between micro-batches; PyTorch's schedule file ends every step with a flush: use e.g. "
           "1f1b";
  if (schedule.shape.weights_on_host())
    return "training.offload_weights copies shards of weights from the host's memory, for which PyTorch's schedule "
           "file "
           "has no actions: leave it out";
  // Blocks that go to the host go there whatever the order: plan.offload_layers says so.
  const auto moves = [](const Lane& lane) { return !lane.communication[kOut].empty(); };
  if (schedule.shape.offloaded.empty() && std::ranges::any_of(schedule.positions, moves))
    return schedule.name +
           " moves activations to another memory, for which PyTorch's schedule file has no actions: use a schedule "
           "that keeps them";
  const auto& replicas = schedule.shape.replicas;
  if (std::ranges::any_of(replicas, [](int r) { return r > 1; }))
    return "a stage has several workers that share its micro-batches; in PyTorch's schedule file a stage runs on one "
           "rank: use plan.data_parallel";
  if (schedule.shape.slices > 1)
    return "its micro-batches run in slices, for which PyTorch's schedule file has no name: leave plan.slices out";
  return "";
}

std::string schedule_csv(const Schedule& given, ScheduleActions actions) {
  if (const std::string why = not_in_schedule_csv(given); !why.empty()) throw InputError(why);
  const Schedule schedule = of_whole_chunks(given);
  const std::vector<std::vector<ActionCell>> cells = cells_of(schedule);
  std::vector<std::string> rows(cells.size());
  if (actions == ScheduleActions::WithMessages) {
    rows = WithMessages(schedule, cells).rows();
  } else {
    for (std::size_t worker = 0; worker < rows.size(); ++worker)
      for (const ActionCell& cell : cells[worker])
        add(rows[worker], text_of(cell, schedule.seating()));
  }
  std::string text;
  for (const std::string& row : rows)
    text += row + "\n";
  return text;
}

}  // namespace pipewright::io
