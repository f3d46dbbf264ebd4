#include "sim/stream_links.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace pipewright::sim {
namespace {

constexpr std::uint32_t kNoOp = std::numeric_limits<std::uint32_t>::max();

class Linker {
 public:
  Linker(const Schedule& schedule, PositionId position)
      : schedule_(schedule),
        seating_(schedule.seating()),
        rounds_(schedule.rounds()),
        stage_(seating_.stage_at(position)),
        may_leave_(schedule.shape.leaving_under_forward()),
        lane_(schedule.positions[position]) {}

  StreamLinks run() {
    if (!lane_.communication[kReductions].empty()) link_gradients();
    const UpdatedParts updated = schedule_.shape.updated;
    if (updated == UpdatedParts::BehindUpdate)
      link_updated();
    else if (updated == UpdatedParts::BesideForwards)
      link_next_forwards();
    else if (!lane_.communication[kGathers].empty())
      link_weights();
    if (!lane_.communication[kTables].empty()) link_tables();
    if (schedule_.shape.weights_on_host())
      link_shards();
    else if (!lane_.communication[kOut].empty())
      link_moves();
    const auto by_op = [](const auto& a, const auto& b) { return a.op < b.op; };
    std::stable_sort(links_.triggers.begin(), links_.triggers.end(), by_op);
    std::stable_sort(links_.gates.begin(), links_.gates.end(), by_op);
    return std::move(links_);
  }

 private:
  void trigger(StreamId stream, std::uint32_t communication, std::uint32_t op, StreamLinks::From from) {
    links_.waits[stream].push_back(op != kNoOp);
    if (op != kNoOp) links_.triggers.push_back({op, communication, static_cast<std::uint8_t>(stream), from});
  }

  // An all-reduce begins when the round's last backward has its gradients complete, an update waits for the round's.
  void link_gradients() {
    const auto round = [](const Op& op) { return static_cast<int>(op.micro_batch); };  // of AllReduce and Update
    // Keys of this worker's (virtual stage, round) pairs, dense.
    std::vector<std::size_t> first(at(seating_.chunks()));
    std::size_t keys = 0;
    for (int i = 0; i < seating_.held(); ++i) {
      const VirtualStageId v = seating_.chunk_of(stage_, i);
      first[at(v)] = keys;
      keys += at(rounds_.count(v));
    }
    const auto key = [&first](const Op& op, int round_of_op) { return first[op.virtual_stage] + at(round_of_op); };
    const std::vector<Op>& reduces = lane_.communication[kReductions];
    std::vector<std::uint32_t> last_gradient(keys, kNoOp), needs(keys, 0);
    for (std::uint32_t i = 0; i < reduces.size(); ++i)
      needs[key(reduces[i], rounds_.update_of(round(reduces[i])))] = i + 1;
    for (std::uint32_t i = 0; i < lane_.compute.size(); ++i) {
      const Op& op = lane_.compute[i];
      if (rule(op.kind).gradients) last_gradient[key(op, rounds_.of(op.virtual_stage, op.micro_batch))] = i;
      if (op.kind != Kind::Update) continue;
      if (const std::uint32_t count = needs[key(op, round(op))]; count > 0)
        links_.gates.push_back({i, count, static_cast<std::uint8_t>(kReductions)});
    }
    for (std::uint32_t i = 0; i < reduces.size(); ++i)
      trigger(kReductions, i, last_gradient[key(reduces[i], round(reduces[i]))], StreamLinks::From::Gradients);
  }

  // Weights are gathered one op ahead: while the op before the one that needs them runs. One that reads the same weights gives
  // them away first.
  void link_weights() {
    const std::vector<Op>& gathers = lane_.communication[kGathers];
    std::uint32_t next = 0;
    for (std::uint32_t i = 0; i < lane_.compute.size() && next < gathers.size(); ++i) {
      const Op &op = lane_.compute[i], &gather = gathers[next];
      if (!rule(op.kind).weights || gather.virtual_stage != op.virtual_stage || gather.micro_batch != op.micro_batch ||
          pass_of_gather(gather) != pass_of(op.kind))
        continue;
      const bool behind =
          i > 0 && rule(lane_.compute[i - 1].kind).weights && lane_.compute[i - 1].virtual_stage == op.virtual_stage;
      trigger(kGathers, next++, i == 0 ? kNoOp : i - 1, behind ? StreamLinks::From::End : StreamLinks::From::Start);
      links_.gates.push_back({i, next, static_cast<std::uint8_t>(kGathers)});
    }
    PP_CHECK(next == gathers.size());  // validate(schedule)
  }

  // After the last gradients of every chunk here that shares the table, and their all-reduces; before the first update of one.
  void link_tables() {
    const std::vector<Op>&ops = lane_.compute, &reduces = lane_.communication[kReductions];
    for (std::uint32_t table = 0; table < lane_.communication[kTables].size(); ++table) {
      const auto has = [&, which = lane_.communication[kTables][table].bucket](const Op& op) {
        return has_table(schedule_.shape, which, op.virtual_stage);
      };
      std::uint32_t last = kNoOp, reduced = 0;
      for (std::uint32_t i = 0; i < ops.size(); ++i)
        if (rule(ops[i].kind).gradients && has(ops[i])) last = i;
      for (std::uint32_t i = 0; i < reduces.size(); ++i)
        if (has(reduces[i])) reduced = i + 1;
      trigger(kTables, table, last, StreamLinks::From::End);
      if (!reduces.empty()) links_.after[kTables].push_back({reduced, static_cast<std::uint8_t>(kReductions)});
      const auto update = std::ranges::find_if(ops, [&](const Op& op) { return op.kind == Kind::Update && has(op); });
      links_.gates.push_back(
          {static_cast<std::uint32_t>(update - ops.begin()), table + 1, static_cast<std::uint8_t>(kTables)});
    }
  }

  void gate(std::uint32_t op, std::uint32_t count) {
    if (op < lane_.compute.size()) links_.gates.push_back({op, count, static_cast<std::uint8_t>(kGathers)});
  }

  // Behind the update of a round, and before the next one.
  void link_updated() {
    const std::vector<Op>& gathers = lane_.communication[kGathers];
    std::map<VirtualStageId, std::uint32_t> before;  // of a chunk, its gathers so far end with that one
    std::uint32_t next = 0;
    for (std::uint32_t i = 0; i < lane_.compute.size() && next < gathers.size(); ++i) {
      const Op& op = lane_.compute[i];
      if (op.kind != Kind::Update || op.virtual_stage != gathers[next].virtual_stage) continue;
      if (const std::uint32_t count = std::exchange(before[op.virtual_stage], next + 1); count > 0) gate(i, count);
      trigger(kGathers, next++, i, StreamLinks::From::End);
    }
    PP_CHECK(next == gathers.size());  // validate(schedule)
  }

  // One behind the other from the start: nothing has to be made room for.
  void link_next_forwards() {
    const std::vector<Op>& gathers = lane_.communication[kGathers];
    std::uint32_t next = 0;
    for (std::uint32_t i = 0; i < lane_.compute.size() && next < gathers.size(); ++i) {
      const Op& op = lane_.compute[i];
      if (op.kind != Kind::F || op.virtual_stage != gathers[next].virtual_stage) continue;
      trigger(kGathers, next, kNoOp, {}), trigger(kGathers, next + 1, kNoOp, {});
      gate(i, next + 1), gate(i + 1, next + 2);
      next += 2;
    }
    PP_CHECK(next == gathers.size());  // validate(schedule)
  }

  // A shard of weights comes two ops ahead of its reader, and its gather waits for it; one of gradients goes when it is
  // reduced, and the first update waits for all of them. Where the host adds it, the next op waits for that.
  void link_shards() {
    const std::vector<Op>&reduces = lane_.communication[kReductions], &gathers = lane_.communication[kGathers];
    const std::vector<Op>&outs = lane_.communication[kOut], &ins = lane_.communication[kIn];
    std::uint32_t next = 0, in = 0;
    for (const StreamLinks::Gate& reader : links_.gates) {
      if (reader.stream != kGathers) continue;
      if (gathers[next++].bucket < kFromFew)
        trigger(kIn, in++, reader.op < 2 ? kNoOp : reader.op - 2, StreamLinks::From::Start);
      links_.after[kGathers].push_back({in, static_cast<std::uint8_t>(kIn)});
    }
    std::vector<std::uint32_t> completed(reduces.size(), kNoOp);  // by which backward, of the gradients of a reduction
    for (const StreamLinks::Trigger& one : links_.triggers)
      if (one.stream == kReductions) completed[one.communication] = one.op;
    for (std::uint32_t out = 0; out < outs.size(); ++out) {
      trigger(kOut, out, kNoOp, {});
      links_.after[kOut].push_back({out + 1, static_cast<std::uint8_t>(kReductions)});
      if (outs[out].bucket == 1 && completed[out] + 1 < lane_.compute.size())
        links_.gates.push_back({completed[out] + 1, out + 1, static_cast<std::uint8_t>(kOut)});
    }
    const auto update = std::ranges::find(lane_.compute, Kind::Update, &Op::kind);
    if (!outs.empty() && update != lane_.compute.end())
      links_.gates.push_back({static_cast<std::uint32_t>(update - lane_.compute.begin()),
                              static_cast<std::uint32_t>(outs.size()), static_cast<std::uint8_t>(kOut)});
    PP_CHECK(in == ins.size() && outs.size() == reduces.size());  // validate(schedule)
  }

  // Out after the forward, as many as may leave under the next one; back one op ahead of whoever reads them first.
  void link_moves() {
    const std::vector<Op>&outs = lane_.communication[kOut], &ins = lane_.communication[kIn];
    const auto is_of = [](const Op& move, const Op& op) {
      return move.virtual_stage == op.virtual_stage && move.micro_batch == op.micro_batch;
    };
    std::map<std::pair<VirtualStageId, std::uint32_t>, std::uint32_t> number;  // of an offload
    const auto may = static_cast<std::uint32_t>(may_leave_);
    std::uint32_t out = 0, in = 0, gated = 0, before = 0;  // of the forwards before the op that was last
    for (std::uint32_t i = 0, here = 0; i < lane_.compute.size(); ++i, before = std::exchange(here, out)) {
      const Op& op = lane_.compute[i];
      if (op.kind == Kind::F) {
        if (out > gated + may) links_.gates.push_back({i, gated = out - may, static_cast<std::uint8_t>(kOut)});
        if (out == outs.size() || !is_of(outs[out], op)) continue;
        trigger(kOut, out++, i, StreamLinks::From::End);
        number[{op.virtual_stage, op.micro_batch}] = out;
      } else if (reads_stash(op.kind) && in < ins.size() && is_of(ins[in], op)) {
        const std::uint32_t own = number.at({op.virtual_stage, op.micro_batch});
        links_.after[kIn].push_back({may == 0 ? std::max(own, before) : own, static_cast<std::uint8_t>(kOut)});
        trigger(kIn, in++, i - 1, StreamLinks::From::Start);
        links_.gates.push_back({i, in, static_cast<std::uint8_t>(kIn)});
      }
    }
    PP_CHECK(out == outs.size() && in == ins.size());  // validate(schedule)
  }

  const Schedule& schedule_;
  const Seating seating_;
  const Rounds rounds_;
  const StageId stage_;
  const std::size_t may_leave_;  // offloads, under a forward
  const Lane& lane_;
  StreamLinks links_;
};

}  // namespace

StreamLinks stream_links(const Schedule& schedule, PositionId position) {
  return Linker(schedule, position).run();
}

}  // namespace pipewright::sim
