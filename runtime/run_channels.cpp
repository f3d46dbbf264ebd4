#include "runtime/run_channels.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "core/check.hpp"
#include "core/folds.hpp"
#include "core/plan/op_index.hpp"
#include "runtime/cells.hpp"
#include "runtime/walk.hpp"

namespace pipewright::runtime {
namespace {

constexpr int kGradientSlots = 2, kSlotsBetweenCopies = 2;  // at least

// ---- what comes before what -----------------------------------------------------------------------------------------

struct OpPlace {
  PositionId position = 0;
  std::int32_t op = -1;
};

// Places of the ops of every (v, m).
class Places {
 public:
  explicit Places(const Schedule& schedule) : micro_batches_(static_cast<std::size_t>(schedule.shape.micro_batches)) {
    const auto count = static_cast<std::size_t>(schedule.shape.chunks()) * micro_batches_;
    forward_.resize(count), backward_.resize(count), last_.resize(count);
    for (PositionId p = 0; p < std::ssize(schedule.positions); ++p) {
      const auto& ops = schedule.positions[p].compute;
      for (std::size_t i = 0; i < ops.size(); ++i) {
        const Op& op = ops[i];
        const OpPlace place{p, static_cast<std::int32_t>(i)};
        const std::size_t at = index(op.virtual_stage, static_cast<MicroBatchId>(op.micro_batch));
        if (rule(op.kind).forward) forward_[at] = place;
        if (rule(op.kind).backward) backward_[at] = place;
        if (rule(op.kind).gradients) last_[at] = place;
      }
    }
  }
  OpPlace forward(VirtualStageId v, MicroBatchId m) const { return forward_[index(v, m)]; }
  OpPlace backward(VirtualStageId v, MicroBatchId m) const { return backward_[index(v, m)]; }
  OpPlace last(VirtualStageId v, MicroBatchId m) const { return last_[index(v, m)]; }  // BW or W

 private:
  std::size_t index(VirtualStageId v, MicroBatchId m) const {
    return static_cast<std::size_t>(v) * micro_batches_ + static_cast<std::size_t>(m);
  }
  std::size_t micro_batches_;
  std::vector<OpPlace> forward_, backward_, last_;
};

// Ops in an order in which they can run, with extra conditions "a before b". Empty: they lock up.
struct Before {
  OpPlace first, then;
};
std::vector<OpPlace> runnable_order(const RunPlan& run, const Places& places, const std::vector<Before>& extra) {
  const Schedule& schedule = *run.schedule;
  std::vector<std::size_t> base(schedule.positions.size() + 1);
  for (PositionId p = 0; p < std::ssize(schedule.positions); ++p)
    base[p + 1] = base[p] + schedule.positions[p].compute.size();
  const auto id = [&](OpPlace place) {
    return base[static_cast<std::size_t>(place.position)] + static_cast<std::size_t>(place.op);
  };
  std::vector<std::vector<std::size_t>> next(base.back());
  std::vector<int> open(base.back());
  const auto edge = [&](OpPlace from, OpPlace to) { next[id(from)].push_back(id(to)), ++open[id(to)]; };
  std::vector<OpPlace> place(base.back());
  for (PositionId p = 0; p < std::ssize(schedule.positions); ++p)
    for (std::size_t i = 0; i < schedule.positions[p].compute.size(); ++i) {
      const OpPlace here{p, static_cast<std::int32_t>(i)};
      place[id(here)] = here;
      if (i > 0) edge({here.position, here.op - 1}, here);
      const Op& op = schedule.positions[p].compute[i];
      const auto m = static_cast<MicroBatchId>(op.micro_batch);
      if (rule(op.kind).forward)
        for (const Port& port : run.code[op.virtual_stage].in)
          edge(places.forward(port.peer, m), here);
      if (rule(op.kind).backward)
        for (const Port& port : run.code[op.virtual_stage].out)
          edge(places.backward(port.peer, m), here);
    }
  for (const Before& condition : extra)
    edge(condition.first, condition.then);
  std::deque<std::size_t> ready;
  for (std::size_t i = 0; i < open.size(); ++i)
    if (open[i] == 0) ready.push_back(i);
  std::vector<OpPlace> order;
  while (!ready.empty()) {
    const std::size_t now = ready.front();
    ready.pop_front();
    order.push_back(place[now]);
    for (const std::size_t then : next[now])
      if (--open[then] == 0) ready.push_back(then);
  }
  if (order.size() != place.size()) order.clear();
  return order;
}

// How many ops of every position have certainly ended when an op begins.
class Clocks {
 public:
  Clocks(const RunPlan& run, const Places& places) {
    const Schedule& schedule = *run.schedule;
    positions_ = schedule.positions.size();
    for (const Lane& lane : schedule.positions)
      clock_.emplace_back(lane.compute.size() * positions_);
    const std::vector<OpPlace> order = runnable_order(run, places, {});
    PP_CHECK(!order.empty() || schedule.positions.empty());
    for (const OpPlace here : order) {
      std::int32_t* const mine = at(here);
      if (here.op > 0) absorb(mine, {here.position, here.op - 1});
      const Op& op = schedule.positions[here.position].compute[static_cast<std::size_t>(here.op)];
      const auto m = static_cast<MicroBatchId>(op.micro_batch);
      if (rule(op.kind).forward)
        for (const Port& port : run.code[op.virtual_stage].in)
          absorb(mine, places.forward(port.peer, m));
      if (rule(op.kind).backward)
        for (const Port& port : run.code[op.virtual_stage].out)
          absorb(mine, places.backward(port.peer, m));
    }
  }
  bool ended_before(OpPlace first, OpPlace then) const {
    return clock_[static_cast<std::size_t>(then.position)]
                 [static_cast<std::size_t>(then.op) * positions_ + static_cast<std::size_t>(first.position)] > first.op;
  }

 private:
  std::int32_t* at(OpPlace place) {
    return &clock_[static_cast<std::size_t>(place.position)][static_cast<std::size_t>(place.op) * positions_];
  }
  void absorb(std::int32_t* mine, OpPlace earlier) {
    const std::int32_t* const theirs = at(earlier);
    for (std::size_t p = 0; p < positions_; ++p)
      mine[p] = std::max(mine[p], theirs[p]);
    mine[earlier.position] = std::max(mine[earlier.position], earlier.op + 1);
  }
  std::size_t positions_ = 0;
  std::vector<std::vector<std::int32_t>> clock_;  // [position][op * positions + position]
};

// ---- channels -------------------------------------------------------------------------------------------------------

// The op that makes a message, and the one after which its slot is free.
struct MessageOps {
  OpPlace made, released;
};

MessageOps ops_of(const RunPlan& run, const Places& places, VirtualStageId from, VirtualStageId to, bool forward,
                  const Port& in, MicroBatchId m) {
  if (!forward) return {places.backward(from, m), places.last(to, m)};
  const bool held = in.kept || recomputed(run.schedule->shape, to, m);
  return {places.forward(from, m), held ? places.last(to, m) : places.forward(to, m)};
}

// Slots of each channel with which an op that begins finds one free.
std::vector<int> add_stage_channels(RunPlan& run, const Places& places) {
  const Schedule& schedule = *run.schedule;
  const auto micro_batches = static_cast<std::size_t>(schedule.shape.micro_batches);
  auto edges = sum_over<int>(run.code, [](const ChunkCode& code) { return static_cast<int>(code.in.size()); });
  run.ways_.resize(static_cast<std::size_t>(edges) * 2 * micro_batches);
  struct Sent {
    int channel;
    OpPlace made, released;
    MicroBatchId m;
  };
  std::vector<std::vector<Sent>> messages;
  for (const ChunkCode& code : run.code)
    for (const Port& in : code.in)
      for (const bool forward : {true, false}) {
        const VirtualStageId from = forward ? in.peer : code.virtual_stage, to = forward ? code.virtual_stage : in.peer;
        if (!forward && in.gradient_bytes[0] == 0) continue;
        std::map<std::pair<PositionId, PositionId>, int> channel_of;
        std::vector<Sent> all;
        for (std::size_t m = 0; m < micro_batches; ++m) {
          const MessageOps ops = ops_of(run, places, from, to, forward, in, static_cast<MicroBatchId>(m));
          const auto [found, added] =
              channel_of.try_emplace({ops.made.position, ops.released.position}, static_cast<int>(run.channels.size()));
          if (added) {
            run.channels.push_back({in.edge,
                                    forward,
                                    ops.made.position,
                                    ops.released.position,
                                    0,
                                    forward ? in.bytes : in.gradient_bytes,
                                    {}});
            messages.emplace_back();
          }
          messages[static_cast<std::size_t>(found->second)].push_back(
              {found->second, ops.made, ops.released, static_cast<MicroBatchId>(m)});
        }
      }
  const Clocks clocks(run, places);
  std::vector<Before> limits;
  std::vector<int> unlimited;
  for (std::size_t c = 0; c < run.channels.size(); ++c) {
    RunChannel& channel = run.channels[c];
    auto& sent = messages[c];
    std::ranges::sort(sent, [](const Sent& a, const Sent& b) { return a.made.op < b.made.op; });
    for (std::size_t i = 0; i < sent.size(); ++i) {
      channel.micro_batches.push_back(sent[i].m);
      run.ways_[(static_cast<std::size_t>(channel.edge) * 2 + (channel.forward ? 0 : 1)) * micro_batches +
                static_cast<std::size_t>(sent[i].m)] = {static_cast<int>(c), static_cast<std::int32_t>(i)};
    }
    const auto enough = [&](std::size_t slots) {
      for (std::size_t i = slots; i < sent.size(); ++i)
        if (!clocks.ended_before(sent[i - slots].released, sent[i].made)) return false;
      return true;
    };
    std::size_t slots = 1;
    while (slots < sent.size() && !enough(slots))
      ++slots;
    unlimited.push_back(static_cast<int>(slots));
    channel.slots = channel.forward ? static_cast<int>(slots) : std::min<int>(kGradientSlots, static_cast<int>(slots));
    for (std::size_t i = static_cast<std::size_t>(channel.slots); i < sent.size(); ++i)
      limits.push_back({sent[i - static_cast<std::size_t>(channel.slots)].released, sent[i].made});
  }
  if (!run.channels.empty() && runnable_order(run, places, limits).empty())
    for (std::size_t c = 0; c < run.channels.size(); ++c)
      run.channels[c].slots = unlimited[c];
  return unlimited;
}

// Ops of a cell take turns, so that neither of the counts above need be enough: then a slot for every message is.
void widen_for_cells(RunPlan& run, const std::vector<int>& unlimited) {
  if (most_threads(run) == 1 || runs_through(run)) return;
  for (std::size_t c = 0; c < unlimited.size(); ++c)
    run.channels[c].slots = unlimited[c];
  if (runs_through(run)) return;
  for (std::size_t c = 0; c < unlimited.size(); ++c)
    run.channels[c].slots = static_cast<int>(run.channels[c].micro_batches.size());
  PP_CHECK(runs_through(run));
}

void add_between_copies(RunPlan& run, int group, int ahead, std::array<std::int64_t, 2> (*bytes_of)(const ChunkCode&)) {
  const Seating seating = run.schedule->seating();
  const int slots = std::max(kSlotsBetweenCopies, static_cast<int>(most_threads(run)));
  for (PositionId p = 0; p < std::ssize(run.schedule->positions); ++p) {
    RunChannel channel;
    channel.from = channel.to = p, channel.slots = slots, channel.group = group, channel.ahead = ahead;
    for (const ChunkCode& code : run.code)
      for (std::size_t size = 0; size < 2 && seating.holds(seating.stage_at(p), code.virtual_stage); ++size)
        channel.bytes[size] = std::max(channel.bytes[size], bytes_of(code)[size]);
    if (channel.bytes[0] > 0) run.channels.push_back(channel);
  }
}

void add_rings(RunPlan& run) {
  const bool causal = std::ranges::any_of(run.code, [](const ChunkCode& code) {
    return std::ranges::any_of(code.steps, [](const CodeStep& step) {
      return step.ring.parts > 0 && std::get<AttentionCore>(step.step->spec).causal;
    });
  });
  run.zigzag = causal && run.plan->context_split.value == ContextSplit::Zigzag;
  add_between_copies(run, run.plan->context_parallel, 1, [](const ChunkCode& code) { return code.part.ring_bytes; });
}

}  // namespace

void add_channels(RunPlan& run) {
  const std::vector<int> unlimited = add_stage_channels(run, Places(*run.schedule));
  add_move_channels(run);
  add_rings(run);
  for (int ahead = 1; ahead < run.plan->expert_parallel; ++ahead)
    add_between_copies(run, run.plan->expert_parallel, ahead,
                       [](const ChunkCode& code) { return code.exchange_bytes; });
  widen_for_cells(run, unlimited);
}

}  // namespace pipewright::runtime
