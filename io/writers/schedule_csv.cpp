#include "io/writers/schedule_csv.hpp"

#include <algorithm>
#include <vector>

#include "core/check.hpp"

namespace pipewright {
namespace {

bool is_written(const Op& op) {
  return op.kind == Kind::F || op.kind == Kind::B || op.kind == Kind::W || op.kind == Kind::BW;
}

void add(std::string& row, const std::string& cell) {
  if (!row.empty()) row += ',';
  row += cell;
}

std::string cell(VirtualStageId v, const char* action, std::uint32_t m) {
  return std::to_string(v) + action + std::to_string(m);
}

// The lists run without a clock, an op of each worker in turn. A message is sent right behind the op that makes it and
// received at that moment, so that both ends of a pair have their messages in one order.
class WithMessages {
 public:
  explicit WithMessages(const Schedule& schedule)
      : schedule_(schedule),
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
    if (op.kind == Kind::B || op.kind == Kind::BW) return v + 1 == shape_.chunks() || (done(v + 1, op.micro_batch) & 2);
    return true;
  }
  bool step(std::size_t worker) {
    const std::vector<Op>& ops = schedule_.positions[worker].compute;
    std::size_t& i = next_[worker];
    while (i < ops.size() && !is_written(ops[i]))
      ++i;
    if (i == ops.size() || !may_run(ops[i])) return false;
    const Op& op = ops[i++];
    add(rows_[worker], label(op));
    const VirtualStageId v = op.virtual_stage;
    if (op.kind == Kind::F) {
      done(v, op.micro_batch) |= 1;
      if (v + 1 < shape_.chunks()) message(worker, v, v + 1, "SEND_F", "RECV_F", op.micro_batch);
    } else if (op.kind != Kind::W) {
      done(v, op.micro_batch) |= 2;
      if (v > 0) message(worker, v, v - 1, "SEND_B", "RECV_B", op.micro_batch);
    }
    return true;
  }
  void message(std::size_t from, VirtualStageId v, VirtualStageId to, const char* send, const char* receive,
               std::uint32_t m) {
    const auto other = static_cast<std::size_t>(position_of(shape_, to, static_cast<MicroBatchId>(m)));
    if (other == from) return;
    add(rows_[from], cell(v, send, m));
    add(rows_[other], cell(to, receive, m));
  }

  const Schedule& schedule_;
  const ScheduleShape& shape_;
  std::vector<std::string> rows_;
  std::vector<std::size_t> next_;
  std::vector<std::uint8_t> done_;  // by chunk and micro-batch: 1 forward, 2 gradient of the input
};

}  // namespace

std::string not_in_schedule_csv(const Schedule& schedule) {
  if (!schedule.flush)
    return schedule.name +
           " updates the weights between micro-batches; PyTorch's schedule file ends every step with a flush: use e.g. "
           "1f1b";
  const auto& replicas = schedule.shape.replicas;
  if (std::any_of(replicas.begin(), replicas.end(), [](int r) { return r > 1; }))
    return "a stage has several workers that share its micro-batches; in PyTorch's schedule file a stage runs on one "
           "rank: use plan.data_parallel";
  return "";
}

std::string schedule_csv(const Schedule& schedule, ScheduleActions actions) {
  if (const std::string why = not_in_schedule_csv(schedule); !why.empty()) throw InputError(why);
  std::vector<std::string> rows(schedule.positions.size());
  if (actions == ScheduleActions::WithMessages) {
    rows = WithMessages(schedule).rows();
  } else {
    for (std::size_t worker = 0; worker < rows.size(); ++worker)
      for (const Op& op : schedule.positions[worker].compute)
        if (is_written(op)) add(rows[worker], label(op));
  }
  std::string text;
  for (const std::string& row : rows)
    text += row + "\n";
  return text;
}

}  // namespace pipewright
