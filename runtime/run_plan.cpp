#include "runtime/run_plan.hpp"

#include <algorithm>
#include <span>

#include "core/cost/cost_model.hpp"
#include "core/cost/table_exchange.hpp"
#include "core/plan/op_index.hpp"
#include "runtime/cells.hpp"
#include "runtime/run_channels.hpp"
#include "runtime/synthetic.hpp"

namespace pipewright::runtime {
namespace {

// ---- versions -------------------------------------------------------------------------------------------------------

void add_versions(RunPlan& run, const RunOptions& options) {
  const Schedule& schedule = *run.schedule;
  const ScheduleShape& shape = schedule.shape;
  const bool stashing = !schedule.flush && options.weight_stashing;
  const std::vector<int> seen = updates_seen(schedule);
  for (PositionId p = 0; p < std::ssize(schedule.positions); ++p) {
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
        if (!seen.empty()) version = version_asked(shape.seating(), op.virtual_stage, seen[op.micro_batch], version);
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
        const auto found = std::ranges::find(buffers, version);
        PP_CHECK(found != buffers.end());
        return static_cast<std::int32_t>(found - buffers.begin());
      };
      list[i].read = buffer_of(list[i].version);
      if (ops[i].kind == Kind::Update) {
        for (int& version : buffers)
          if (version >= 0 && version <= current[v] && last_read[v][version] <= i) version = -1;
        auto free = buffers.begin() + list[i].read;
        if (*free >= 0) free = std::ranges::find(buffers, -1);
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
    bool away = false;  // by the op before, which reads the same weights
    if (rule(op.kind).weights) {
      const Op* const gather = next < std::ssize(gathers) ? &gathers[static_cast<std::size_t>(next)] : nullptr;
      if (gather != nullptr && gather->virtual_stage == v && gather->micro_batch == op.micro_batch &&
          gather->bucket == static_cast<std::uint32_t>(pass_of(op.kind))) {
        const auto before = reader.find(v);
        if (divided && before != reader.end()) all[before->second].given.push_back(v);
        away = i > 0 && before != reader.end() && before->second + 1 == i;
        if (divided) all[i == 0 || away ? i : i - 1].taken.push_back(v);
        ++next;
      }
      reader[v] = i;
    }
    all[i].needs = next;
    if (i > 0) all[i - 1].lets = away ? next - 1 : next;
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
      : run_(run), position_(position), one_by_one_(one_by_one), arena_(run.alignment, cap) {}

  ArenaUse used() {
    take_steady(run_, position_, arena_);
    const Lane& lane = run_.schedule->positions[position_];
    for (std::size_t i = 0, cell = 1; i < lane.compute.size(); i += cell) {
      const Op& op = lane.compute[i];
      const WholeAt* const whole = run_.whole.empty() ? nullptr : &run_.whole[static_cast<std::size_t>(position_)][i];
      try {
        if (moves_.at.any()) move(moves_.at.at(i));
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

  void move(const Moved::AtOp& now) {
    const auto& streams = run_.schedule->positions[position_].communication;
    const std::vector<Op>&outs = streams[kOut], &ins = streams[kIn];
    const auto each = [&](const Op& op, const auto& change) {
      auto& frame = frame_of(op);
      for (const MovedPart& part : moved_parts(run_, op))
        change(frame[at(part.block)], part.bytes);
    };
    if (now.gone >= 0) each(outs[at(now.gone)], [&](std::int64_t& address, std::int64_t) { give(address); });
    if (now.returns >= 0)
      each(ins[at(now.returns)],
           [&](std::int64_t& address, std::int64_t bytes) { address = arena_.allocate({bytes}, Tag::Stash); });
  }
  void give(std::int64_t& address) {
    if (address >= 0) arena_.free(address);
    address = -1;
  }
  std::vector<std::int64_t>& frame_of(const Op& op) {
    const ChunkCode& code = run_.code[op.virtual_stage];
    auto& frame = frames_[{op.virtual_stage, static_cast<MicroBatchId>(op.micro_batch)}];
    if (frame.empty()) frame.assign(code.blocks.size(), -1);
    return frame;
  }

  // Instructions [begin, end) of the op's line.
  void replay(const Op& op, std::size_t begin, std::size_t end) {
    const ChunkCode& code = run_.code[op.virtual_stage];
    const auto m = static_cast<MicroBatchId>(op.micro_batch);
    auto& frame = frame_of(op);
    const std::vector<Instruction>& line = run_.line(op);
    for (const Instruction& i : std::span(line).subspan(begin, end - begin)) {
      if (i.verb == Verb::Allocate) {
        PP_CHECK(frame[static_cast<std::size_t>(i.block)] < 0);
        frame[static_cast<std::size_t>(i.block)] =
            arena_.allocate({code.blocks[static_cast<std::size_t>(i.block)][run_.size_of(m)]}, i.tag);
      } else if (i.verb == Verb::AllocateForAll) {
        for (MicroBatchId slice = m / run_.schedule->shape.slices * run_.schedule->shape.slices; slice <= m; ++slice)
          if (std::int64_t& address = frames_.at({op.virtual_stage, slice})[at(i.block)]; address < 0)
            address = arena_.allocate({code.blocks[at(i.block)][run_.size_of(m)]}, i.tag);
      } else if (i.verb == Verb::Free) {
        give(frame[static_cast<std::size_t>(i.block)]);
      }
    }
    if (rule(op.kind).gradients && end == line.size()) {
      PP_CHECK(std::ranges::all_of(frame, [](std::int64_t address) { return address < 0; }));
      frames_.erase({op.virtual_stage, m});
    }
  }

  const RunPlan& run_;
  PositionId position_;
  const RunMoves& moves_ = run_.moves[static_cast<std::size_t>(position_)];
  bool one_by_one_;
  Arena arena_;
  WholeRoom room_ = WholeRoom(run_, arena_);
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
  const std::int64_t samples = schedule->flush ? plan->global_batch_size : this->samples(m) * plan->data_parallel;
  return static_cast<float>(scaled_by / static_cast<double>(samples * plan->context_parallel * schedule->shape.slices));
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
  if (training.offload_weights.value)
    throw InputError(training.offload_weights.place, "training.offload_weights",
                     "a run keeps weights and gradients where it computes; leave it out");
  if (any(kOut) && !backend.in_host_memory())
    throw InputError(plan.offload_layers ? plan.offload_layers->place : model.place,
                     plan.offload_layers ? "plan.offload_layers" : "plan.schedule",
                     "backend " + backend.name() + " keeps activations where they are made; " +
                         (plan.offload_layers ? "leave it out" : "use another schedule") + ", or backend: cpu");
  if (any(kOut) && plan.pairs.value == Pairs::Fused)
    throw InputError(plan.pairs.place, "plan.pairs",
                     "a run whose activations wait elsewhere computes one op after the other; write serial");
  if (training.optimizer == Optimizer::Muon)
    throw InputError(training.place, "training.optimizer", "a run has no muon; use adam");
  if (training.moments.value != Moments::Fp32)
    throw InputError(training.moments.place, "training.moments", "a run keeps moments in fp32; leave it out");
  if (training.sharding.value != Sharding::Flat && training.zero >= kWeightsSharded)
    throw InputError(training.sharding.place, "training.sharding",
                     "a run computes in the precision of its weights, which are sent as they are; write flat");
  if (training.master_weights.value != MasterWeights::Fp32)
    throw InputError(training.master_weights.place, "training.master_weights",
                     "a run keeps its own in fp32; leave it out");
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
  for (const TiedTable& table : run.synthetic ? tied_tables(plan, model) : std::vector<TiedTable>())
    run.tied_bytes.push_back(TableExchange(plan, table, *options.synthetic).price().bytes.value);
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
  if (plan.overlap_param_gather.value)
    throw InputError(plan.overlap_param_gather.place, "plan.overlap_param_gather",
                     "a run gathers weights behind their update; leave it out");
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    RunChunk chunk;
    chunk.members = schedule.seating().members(v);
    if (chunk.members > 1 && !schedule.flush) chunk.gradient_sets = 2;
    if (run.zero >= kOptimizerSharded) chunk.parts = chunk.members;
    chunk.state_bytes = rounded_up(ceil_div(run.code[static_cast<std::size_t>(v)].state_bytes, chunk.parts),
                                   chunk.parts > 1 ? run.alignment.value : 1);
    run.chunks.push_back(chunk);
  }
  find_moves(run);
  add_channels(run);
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
      blocks.slots[c].push_back(
          arena.allocate({std::max(channel.bytes[0], channel.bytes[1])}, channel.keeps ? Tag::Stash : Tag::Buffers));
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
