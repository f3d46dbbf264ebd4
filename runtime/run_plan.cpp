#include "runtime/run_plan.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <span>

#include <fmt/format.h>

#include "core/cost/cost_model.hpp"
#include "core/plan/op_index.hpp"
#include "runtime/cells.hpp"
#include "runtime/synthetic.hpp"
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
    for (std::size_t p = 0; p < schedule.positions.size(); ++p) {
      const auto& ops = schedule.positions[p].compute;
      for (std::size_t i = 0; i < ops.size(); ++i) {
        const Op& op = ops[i];
        if (op.kind == Kind::Update || op.kind == Kind::R) continue;
        const OpPlace place{static_cast<PositionId>(p), static_cast<std::int32_t>(i)};
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
  for (std::size_t p = 0; p < schedule.positions.size(); ++p)
    base[p + 1] = base[p] + schedule.positions[p].compute.size();
  const auto id = [&](OpPlace place) {
    return base[static_cast<std::size_t>(place.position)] + static_cast<std::size_t>(place.op);
  };
  std::vector<std::vector<std::size_t>> next(base.back());
  std::vector<int> open(base.back());
  const auto edge = [&](OpPlace from, OpPlace to) { next[id(from)].push_back(id(to)), ++open[id(to)]; };
  std::vector<OpPlace> place(base.back());
  for (std::size_t p = 0; p < schedule.positions.size(); ++p)
    for (std::size_t i = 0; i < schedule.positions[p].compute.size(); ++i) {
      const OpPlace here{static_cast<PositionId>(p), static_cast<std::int32_t>(i)};
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
      const Op& op =
          schedule.positions[static_cast<std::size_t>(here.position)].compute[static_cast<std::size_t>(here.op)];
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
std::vector<int> add_channels(RunPlan& run, const Places& places) {
  const Schedule& schedule = *run.schedule;
  const auto micro_batches = static_cast<std::size_t>(schedule.shape.micro_batches);
  int edges = 0;
  for (const ChunkCode& code : run.code)
    edges += static_cast<int>(code.in.size());
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
    std::sort(sent.begin(), sent.end(), [](const Sent& a, const Sent& b) { return a.made.op < b.made.op; });
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

// ---- versions -------------------------------------------------------------------------------------------------------

void add_versions(RunPlan& run, const RunOptions& options) {
  const Schedule& schedule = *run.schedule;
  const ScheduleShape& shape = schedule.shape;
  const bool stashing = !schedule.flush && options.weight_stashing;
  const std::vector<int> seen = updates_seen(schedule);
  for (std::size_t p = 0; p < schedule.positions.size(); ++p) {
    const auto& ops = schedule.positions[p].compute;
    auto& list = run.versions.emplace_back(ops.size());
    std::vector<int> updates(static_cast<std::size_t>(shape.chunks()));
    std::map<std::pair<int, std::uint32_t>, int> used;  // (v, m) -> version of its forward
    std::vector<std::map<int, std::size_t>> last_read(updates.size());
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Op& op = ops[i];
      const auto v = static_cast<std::size_t>(op.virtual_stage);
      int version = updates[v];
      if (op.kind == Kind::F) {
        if (!seen.empty())
          version = std::min(
              version, seen[op.micro_batch] * shape.seating().holders(0) / shape.seating().holders(op.virtual_stage));
        used[{op.virtual_stage, op.micro_batch}] = version;
      } else if (op.kind != Kind::Update && (stashing || !seen.empty())) {
        version = used.at({op.virtual_stage, op.micro_batch});
      }
      list[i].version = version;
      last_read[v][version] = i;
      if (op.kind == Kind::Update) ++updates[v];
      const int round = op.kind == Kind::Update ? static_cast<int>(op.micro_batch)
                                                : schedule.rounds().of(op.virtual_stage, op.micro_batch);
      list[i].gradient_set = round % run.chunks[v].gradient_sets;
    }
    // Buffers: a version takes the first free one; in place where the version before is read no more.
    std::vector<std::vector<int>> holds(updates.size(), std::vector<int>{0});  // version by buffer, -1: free
    std::vector<int> current(updates.size());
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const auto v = static_cast<std::size_t>(ops[i].virtual_stage);
      auto& buffers = holds[v];
      const auto buffer_of = [&](int version) {
        const auto found = std::find(buffers.begin(), buffers.end(), version);
        PP_CHECK(found != buffers.end());
        return static_cast<std::int32_t>(found - buffers.begin());
      };
      list[i].read = buffer_of(list[i].version);
      if (ops[i].kind == Kind::Update) {
        for (int& version : buffers)
          if (version >= 0 && version <= current[v] && last_read[v][version] <= i) version = -1;
        auto free = buffers.begin() + list[i].read;
        if (*free >= 0) free = std::find(buffers.begin(), buffers.end(), -1);
        if (free == buffers.end()) free = buffers.insert(buffers.end(), -1);
        *free = ++current[v];
        list[i].write = static_cast<std::int32_t>(free - buffers.begin());
      }
      run.chunks[v].buffers = std::max(run.chunks[v].buffers, static_cast<int>(buffers.size()));
    }
  }
}

// ---- whole weights and gradients ------------------------------------------------------------------------------------

void add_gathers(const Lane& lane, bool divided, std::vector<WholeAt>& all) {
  const std::vector<Op>& gathers = lane.communication[kGathers];
  std::map<VirtualStageId, std::size_t> reader;  // of chunks that are whole, the last one so far
  std::int32_t next = 0;
  for (std::size_t i = 0; i < lane.compute.size(); ++i) {
    const Op& op = lane.compute[i];
    const VirtualStageId v = op.virtual_stage;
    if (rule(op.kind).weights) {
      const Op* const gather = next < std::ssize(gathers) ? &gathers[static_cast<std::size_t>(next)] : nullptr;
      if (gather != nullptr && gather->virtual_stage == v && gather->micro_batch == op.micro_batch &&
          gather->bucket == static_cast<std::uint32_t>(pass_of(op.kind))) {
        if (const auto before = reader.find(v); divided && before != reader.end())
          all[before->second].given.push_back(v);
        if (divided) all[i == 0 ? 0 : i - 1].taken.push_back(v);
        ++next;
      }
      reader[v] = i;
    }
    all[i].needs = next;
    if (i > 0) all[i - 1].lets = next;
  }
  PP_CHECK(next == std::ssize(gathers));
  if (!all.empty()) all.back().lets = next;
  for (const auto& [v, last] : reader)
    if (divided) all[last].given.push_back(v);
}

// `units`: gradients of one unit may travel while those of another are computed.
void add_rounds(const Lane& lane, const Rounds& rounds, bool units, std::vector<WholeAt>& all) {
  using Round = std::pair<VirtualStageId, std::int32_t>;
  std::map<Round, std::size_t> last;
  const auto round_of = [&](const Op& op) {
    return Round{op.virtual_stage, rounds.of(op.virtual_stage, op.micro_batch)};
  };
  for (std::size_t i = 0; i < lane.compute.size(); ++i)
    if (rule(lane.compute[i].kind).gradients) last[round_of(lane.compute[i])] = i;
  std::map<Round, std::int32_t> turn;
  std::map<VirtualStageId, std::int32_t> turns;
  std::vector<Round> travel;  // chunk and turn
  for (std::size_t i = 0; i < lane.compute.size(); ++i) {
    const Op& op = lane.compute[i];
    WholeAt& at = all[i];
    if (op.kind == Kind::Update) {
      for (const Round& one : travel)
        if (one.first == op.virtual_stage) at.reduced.push_back(one);
      std::erase_if(travel, [&](const Round& one) { return one.first == op.virtual_stage; });
    }
    if (!rule(op.kind).gradients) continue;
    const auto [found, opens] = turn.try_emplace(round_of(op), turns[op.virtual_stage]);
    at.turn = found->second, at.opens = opens;
    if (opens) {
      ++turns[op.virtual_stage];
      const std::ptrdiff_t kept = units && !travel.empty() && travel.back().first != op.virtual_stage ? 1 : 0;
      at.reduced.assign(travel.begin(), travel.end() - kept), travel.erase(travel.begin(), travel.end() - kept);
    }
    if (last.at(round_of(op)) == i) travel.emplace_back(op.virtual_stage, at.turn);
  }
}

void add_whole(RunPlan& run) {
  if (run.zero < kGradientsSharded) return;
  for (const Lane& lane : run.schedule->positions) {
    std::vector<WholeAt>& all = run.whole.emplace_back(lane.compute.size());
    add_gathers(lane, run.zero >= kWeightsSharded, all);
    add_rounds(lane, run.schedule->rounds(), run.zero >= kWeightsSharded, all);
  }
}

// The replay: the same walk as the executor's, on addresses alone.
class Replay {
 public:
  Replay(const RunPlan& run, PositionId position, Bytes cap, bool one_by_one)
      : run_(run), position_(position), one_by_one_(one_by_one), arena_(run.alignment, cap), room_(run, arena_) {}

  ArenaUse used() {
    take_steady(run_, position_, arena_);
    const Lane& lane = run_.schedule->positions[static_cast<std::size_t>(position_)];
    for (std::size_t i = 0, cell = 1; i < lane.compute.size(); i += cell) {
      const Op& op = lane.compute[i];
      const WholeAt* const whole = run_.whole.empty() ? nullptr : &run_.whole[static_cast<std::size_t>(position_)][i];
      try {
        if (whole != nullptr) begin(op, *whole);
        cell = one_by_one_ ? 1 : cell_size(run_, lane, i);
        if (op.kind != Kind::Update)
          for (const CellPart& part : parts_of_cell(run_, lane, i, cell))
            replay(lane.compute[part.op], part.begin, part.end);
      } catch (const OutOfArena& error) {
        throw OutOfArena("op " + label(op) + ": " + error.what());
      }
      if (whole == nullptr) continue;
      for (const VirtualStageId v : whole->given)
        room_.give_weights(v);
    }
    PP_CHECK(room_.empty());
    return arena_.peak();
  }

 private:
  void begin(const Op& op, const WholeAt& whole) {
    for (const auto& [v, turn] : whole.reduced)
      room_.give_gradients(v, turn);
    if (whole.opens) room_.take_gradients(op.virtual_stage, whole.turn);
    for (const VirtualStageId v : whole.taken)
      room_.take_weights(v);
  }

  // Instructions [begin, end) of the op's line.
  void replay(const Op& op, std::size_t begin, std::size_t end) {
    const ChunkCode& code = run_.code[op.virtual_stage];
    const auto m = static_cast<MicroBatchId>(op.micro_batch);
    auto& frame = frames_[{op.virtual_stage, m}];
    if (frame.empty()) frame.assign(code.blocks.size(), -1);
    const std::vector<Instruction>& line = run_.line(op);
    for (const Instruction& i : std::span(line).subspan(begin, end - begin)) {
      if (i.verb == Verb::Allocate) {
        PP_CHECK(frame[static_cast<std::size_t>(i.block)] < 0);
        frame[static_cast<std::size_t>(i.block)] =
            arena_.allocate({code.blocks[static_cast<std::size_t>(i.block)][run_.size_of(m)]}, i.tag);
      } else if (i.verb == Verb::Free && frame[static_cast<std::size_t>(i.block)] >= 0) {
        arena_.free(frame[static_cast<std::size_t>(i.block)]);
        frame[static_cast<std::size_t>(i.block)] = -1;
      }
    }
    if (rule(op.kind).gradients && end == line.size()) {
      PP_CHECK(std::all_of(frame.begin(), frame.end(), [](std::int64_t address) { return address < 0; }));
      frames_.erase({op.virtual_stage, m});
    }
  }

  const RunPlan& run_;
  PositionId position_;
  bool one_by_one_;
  Arena arena_;
  WholeRoom room_;
  std::map<std::pair<VirtualStageId, MicroBatchId>, std::vector<std::int64_t>> frames_;
};

}  // namespace

const std::vector<Instruction>& RunPlan::line(const Op& op) const {
  const auto m = static_cast<MicroBatchId>(op.micro_batch);
  return code[op.virtual_stage].line(op.kind, recomputed(schedule->shape, op.virtual_stage, m));
}

int RunPlan::between_copies(PositionId position, int ahead) const {
  for (std::size_t c = channels.size(); c-- > 0 && channels[c].between_copies();)  // they stand last
    if (channels[c].from == position && channels[c].ahead == ahead) return static_cast<int>(c);
  return -1;
}

WorkerId RunPlan::sender(const RunChannel& channel, CopyId to) const {
  const CopyId from = to / channel.group * channel.group + (to + channel.group - channel.ahead) % channel.group;
  return from * plan->positions() + channel.from;
}
WorkerId RunPlan::receiver(const RunChannel& channel, CopyId from) const {
  const CopyId to = from / channel.group * channel.group + (from + channel.ahead) % channel.group;
  return to * plan->positions() + channel.to;
}

std::vector<RunPlan::Stretch> RunPlan::stretches(VirtualStageId v, std::int64_t begin, std::int64_t end) const {
  std::vector<Stretch> all;
  for (const CodeParameter& parameter : code[static_cast<std::size_t>(v)].parameters)
    if (all.empty() || all.back().of_experts != parameter.of_experts) {
      if (!all.empty()) all.back().end = parameter.offset;
      all.push_back({parameter.offset, end, parameter.of_experts});
    }
  if (all.empty()) all.push_back({begin, end, false});  // of a synthetic run
  for (Stretch& one : all)
    one.begin = std::clamp(one.begin, begin, end), one.end = std::clamp(one.end, begin, end);
  std::erase_if(all, [](const Stretch& one) { return one.begin == one.end; });
  return all;
}

float RunPlan::loss_scale(MicroBatchId m) const {
  const std::int64_t samples = schedule->flush ? plan->global_batch_size : plan->samples(m) * plan->data_parallel;
  return static_cast<float>(scaled_by / static_cast<double>(samples * plan->context_parallel));
}

float RunPlan::gradient_factor(VirtualStageId v, int round) const {
  if (schedule->flush) return static_cast<float>(1 / scaled_by);
  const std::int64_t here = schedule->rounds().micro_batches(v, round);
  return static_cast<float>(1 / (scaled_by * static_cast<double>(std::max(std::int64_t{1}, here))));
}

std::vector<std::int64_t> RunPlan::gradient_parts(VirtualStageId v) const {
  const RunChunk& chunk = chunks[static_cast<std::size_t>(v)];
  std::vector<std::int64_t> begin;
  for (int part = 0; part <= chunk.parts; ++part)
    begin.push_back(std::min(part * chunk.state_bytes, code[static_cast<std::size_t>(v)].gradient_bytes));
  return begin;
}

// Tensors and parts begin at multiples of the alignment: none in the gap behind a tensor.
std::vector<std::int64_t> RunPlan::weight_parts(VirtualStageId v) const {
  const ChunkCode& here = code[static_cast<std::size_t>(v)];
  std::vector<std::int64_t> begins = gradient_parts(v);
  for (std::int64_t& begin : begins) {
    const auto next = std::ranges::find_if(
        here.parameters, [&](const CodeParameter& p) { return begin < p.offset + 4 * p.tensor.elements; });
    begin = next == here.parameters.end() ? here.parameter_bytes
                                          : next->weight_offset + (begin - next->offset) / 4 * here.value_bytes;
  }
  return begins;
}

std::int64_t RunPlan::held_weights(VirtualStageId v) const {
  if (zero < kWeightsSharded) return code[static_cast<std::size_t>(v)].parameter_bytes;
  const std::vector<std::int64_t> begin = weight_parts(v);
  std::int64_t longest = 0;
  for (std::size_t part = 1; part < begin.size(); ++part)
    longest = std::max(longest, begin[part] - begin[part - 1]);
  return longest;
}

std::int64_t RunPlan::held_gradients(VirtualStageId v) const {
  const auto at = static_cast<std::size_t>(v);
  return zero < kGradientsSharded ? code[at].gradient_bytes : chunks[at].state_bytes;
}

RunPlan run_plan(const Plan& plan, const Schedule& schedule, const Model& model, const Training& training,
                 const Backend& backend, const RunOptions& options) {
  const auto any = [&](StreamId stream) {
    return std::ranges::any_of(schedule.positions,
                               [&](const Lane& lane) { return !lane.communication[stream].empty(); });
  };
  if (any(kOut))
    throw InputError(plan.offload_layers ? plan.offload_layers->place : model.place,
                     plan.offload_layers ? "plan.offload_layers" : "plan.schedule",
                     std::string("a run keeps activations where they are made; ") +
                         (plan.offload_layers ? "leave it out" : "use another schedule"));
  if (training.offload_optimizer.value > 0)
    throw InputError(training.offload_optimizer.place, "training.offload_optimizer",
                     "a run updates parameters where they are; leave it out");
  if (options.synthetic != nullptr && plan.pairs.value == Pairs::Fused)
    throw InputError(plan.pairs.place, "plan.pairs",
                     "a synthetic run takes the time of one op after the other; write serial");
  RunPlan run;
  run.plan = std::make_shared<const Plan>(plan), run.schedule = std::make_shared<const Schedule>(schedule);
  run.synthetic = options.synthetic != nullptr;
  run.code = run.synthetic ? compile_synthetic(plan, *options.synthetic, backend.alignment())
                           : compile(plan, model, training, backend);
  run.alignment = backend.alignment();
  run.precision = training.precision, run.scaled_by = run.synthetic ? 1 : options.loss_scale;
  run.states = run.synthetic ? 1 : states(training.optimizer);
  // What a synthetic run holds, the memory model has divided.
  if (!run.synthetic)
    run.zero =
        static_cast<int>(plan.resharding ? training.zero : std::min<std::int64_t>(training.zero, kOptimizerSharded));
  if (plan.gradient_sync == GradientSync::Blocking && any(kReductions))
    throw InputError(model.place, "plan.gradient_sync",
                     "a run sends gradients off as soon as they are complete; use overlapped or at_once");
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    RunChunk chunk;
    chunk.members = schedule.seating().members(v);
    if (chunk.members > 1 && !schedule.flush) chunk.gradient_sets = 2;
    if (run.zero >= kOptimizerSharded) chunk.parts = chunk.members;
    chunk.state_bytes = rounded_up(ceil_div(run.code[static_cast<std::size_t>(v)].state_bytes, chunk.parts),
                                   chunk.parts > 1 ? run.alignment.value : 1);
    run.chunks.push_back(chunk);
  }
  const std::vector<int> unlimited = add_channels(run, Places(schedule));
  add_rings(run);
  for (int ahead = 1; ahead < plan.expert_parallel; ++ahead)
    add_between_copies(run, plan.expert_parallel, ahead, [](const ChunkCode& code) { return code.exchange_bytes; });
  widen_for_cells(run, unlimited);
  add_versions(run, options);
  add_whole(run);
  return run;
}

SteadyBlocks take_steady(const RunPlan& run, PositionId position, Arena& arena) {
  SteadyBlocks blocks;
  const StageId stage = run.schedule->seating().stage_at(position);
  blocks.chunks.resize(run.code.size());
  for (std::size_t v = 0; v < run.code.size(); ++v) {
    if (!run.schedule->seating().holds(stage, static_cast<VirtualStageId>(v))) continue;
    SteadyChunk& chunk = blocks.chunks[v];
    const ChunkCode& code = run.code[v];
    if (code.parameter_bytes == 0) continue;
    const auto id = static_cast<VirtualStageId>(v);
    for (int i = 0; i < run.chunks[v].buffers; ++i)
      chunk.weights.push_back(arena.allocate({run.held_weights(id)}, Tag::Weights));
    for (int i = 0; i < run.chunks[v].gradient_sets; ++i)
      chunk.gradients.push_back(arena.allocate({run.held_gradients(id)}, Tag::Gradients));
    if (code.has_masters() && !run.synthetic)
      chunk.masters.push_back(arena.allocate({run.chunks[v].state_bytes}, Tag::Optimizer));
    for (int i = 0; i < run.states && run.chunks[v].state_bytes > 0; ++i)
      chunk.states.push_back(arena.allocate({run.chunks[v].state_bytes}, Tag::Optimizer));
  }
  blocks.slots.resize(run.channels.size());
  for (std::size_t c = 0; c < run.channels.size(); ++c) {
    const RunChannel& channel = run.channels[c];
    if (channel.to != position) continue;
    for (int slot = 0; slot < channel.slots; ++slot)
      blocks.slots[c].push_back(arena.allocate({std::max(channel.bytes[0], channel.bytes[1])}, Tag::Buffers));
  }
  return blocks;
}

void WholeRoom::take_weights(VirtualStageId v) {
  const Bytes all{run_.code[static_cast<std::size_t>(v)].parameter_bytes};
  if (all > Bytes{}) PP_CHECK(weights_.emplace(v, arena_.allocate(all, Tag::Weights)).second);
}
void WholeRoom::give_weights(VirtualStageId v) {
  if (const auto found = weights_.find(v); found != weights_.end()) arena_.free(found->second), weights_.erase(found);
}
void WholeRoom::take_gradients(VirtualStageId v, std::int32_t turn) {
  const Bytes all{run_.code[static_cast<std::size_t>(v)].gradient_bytes};
  if (all > Bytes{}) PP_CHECK(gradients_.emplace(std::pair(v, turn), arena_.allocate(all, Tag::Gradients)).second);
}
void WholeRoom::give_gradients(VirtualStageId v, std::int32_t turn) {
  const auto found = gradients_.find({v, turn});
  if (found != gradients_.end()) arena_.free(found->second), gradients_.erase(found);
}
std::int64_t WholeRoom::weights(VirtualStageId v) const {
  const auto found = weights_.find(v);
  return found == weights_.end() ? -1 : found->second;
}
std::int64_t WholeRoom::gradients(VirtualStageId v, std::int32_t turn) const {
  const auto found = gradients_.find({v, turn});
  return found == gradients_.end() ? -1 : found->second;
}

ArenaUse replayed(const RunPlan& run, PositionId position, Bytes cap, bool one_by_one) {
  return Replay(run, position, cap, one_by_one).used();
}

}  // namespace pipewright::runtime
