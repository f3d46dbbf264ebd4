// What a worker does with gradients and weights that its chunk's members share: sums and gathers, which have streams of
// their own, and the part that is its own.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/cost/cost_model.hpp"
#include "runtime/clock.hpp"
#include "runtime/worker.hpp"

namespace pipewright::runtime {

void Worker::collectives() {
  std::vector<int> seen(run_.code.size());  // buckets, by virtual stage
  for (std::size_t i = 0; i < lane_.communication[kReductions].size(); ++i) {
    const Op& op = lane_.communication[kReductions][i];
    const auto v = static_cast<std::size_t>(op.virtual_stage);
    const auto buckets = static_cast<int>(run_.code[v].bucket_begin.size());
    const int number = ++seen[v], turn = (number - 1) / buckets;
    wait_until(ready_[v], number);
    const std::int64_t begin = run_.code[v].bucket_begin[op.bucket];
    const std::int64_t end = op.bucket == 0 ? run_.code[v].gradient_bytes : run_.code[v].bucket_begin[op.bucket - 1];
    const std::size_t set = op.micro_batch % static_cast<std::size_t>(run_.chunks[v].gradient_sets);
    Span& span = record_->times.communication[kReductions][i];
    span.start = {steady_ns()};
    if (divides_gradients())
      scatter(v, turn, begin, end);
    else if (run_.chunks[v].parts > 1 && !chunks_[v].gradients.empty())
      sum_own_part(v, chunks_[v].gradients[set], begin, end);
    else if (!chunks_[v].gradients.empty())
      sum_over_members(v, chunks_[v].gradients[set], begin, end);
    span.end = {steady_ns()};
    done_[v].store(number, std::memory_order_release);
    done_[v].notify_all();
  }
}

// Experts have groups of their own, with numbers behind those of the chunks.
void Worker::sum_over_members(std::size_t v, std::byte* gradients, std::int64_t begin, std::int64_t end) {
  const auto chunks = static_cast<int>(run_.code.size());
  for (const RunPlan::Stretch& one : run_.stretches(static_cast<VirtualStageId>(v), begin, end)) {
    const std::vector<WorkerId>& members = one.of_experts ? with_my_experts_[v] : members_[v];
    if (members.size() < 2) continue;
    const int group = static_cast<int>(v) + (one.of_experts ? chunks * (1 + run_.expert_device(copy_)) : 0);
    transport_.all_reduce(group, members, reinterpret_cast<float*>(gradients + one.begin), (one.end - one.begin) / 4);
  }
}

// Of a synthetic run, whose values say nothing: as many as the tables have, in every copy between those that hold them. No pass
// of this worker is left, so that all its gradients are complete, and no other sum is under way when they are reduced.
void Worker::sum_tables() {
  std::vector<int> reduced(run_.code.size());  // buckets, by virtual stage
  const std::vector<Op>& reductions = lane_.communication[kReductions];
  for (const Op& op : reductions)
    ready(op.virtual_stage, static_cast<int>(op.micro_batch),
          static_cast<int>(run_.code[op.virtual_stage].bucket_begin.size()));
  for (const Op& op : reductions)
    wait_until(done_[op.virtual_stage], ++reduced[op.virtual_stage]);
  for (std::size_t i = 0; i < lane_.communication[kTables].size(); ++i) {
    const std::size_t table = lane_.communication[kTables][i].bucket;
    std::vector<WorkerId> members;
    for (const PositionId position : holders_of_table(run_.schedule->shape, table))
      members.push_back(copy_ * run_.plan->positions() + position);
    std::vector<float> values(static_cast<std::size_t>(run_.tied_bytes[table]) / sizeof(float));
    const std::size_t group = run_.code.size() * (1 + core::at(run_.plan->expert_parallel)) +
                              table * core::at(run_.plan->copies()) + core::at(copy_);
    Span& span = record_->times.communication[kTables][i];
    span.start = {steady_ns()};
    transport_.all_reduce(static_cast<int>(group), members, values.data(), std::ssize(values));
    span.end = {steady_ns()};
  }
}

// Of the part that is updated here; the rest is given up.
void Worker::sum_own_part(std::size_t v, std::byte* gradients, std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> parts = run_.gradient_parts(static_cast<VirtualStageId>(v));
  for (std::int64_t& part : parts)
    part = (std::clamp(part, begin, end) - begin) / 4;
  transport_.reduce_scatter(static_cast<int>(v), members_[v], reinterpret_cast<float*>(gradients + begin), parts);
}

void Worker::scatter(std::size_t v, std::int32_t turn, std::int64_t begin, std::int64_t end) {
  const Chunk& chunk = chunks_[v];
  if (chunk.gradients.empty()) return;
  std::vector<std::int64_t> parts = run_.gradient_parts(static_cast<VirtualStageId>(v));
  for (std::int64_t& part : parts)
    part = (std::clamp(part, begin, end) - begin) / 4;
  auto* const bucket = reinterpret_cast<float*>(chunk.whole_rounds[static_cast<std::size_t>(turn)] + begin);
  transport_.reduce_scatter(static_cast<int>(v), members_[v], bucket, parts);
  const std::size_t self = rank_in(v);
  const std::int64_t values = parts[self + 1] - parts[self];
  if (values == 0) return;
  const float* const term = bucket + parts[self];
  auto* const sum = reinterpret_cast<float*>(chunk.gradients[0] + (begin + 4 * parts[self] - own_part(v).begin));
  if (turn == 0)
    beside_->copy(sum, term, {4 * values});
  else
    beside_->sum(sum, std::array<const float*, 2>{sum, term}, values);
  beside_->finish();
}

void Worker::gathers() {
  const std::vector<Op>& ops = lane_.communication[kGathers];
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const auto v = static_cast<std::size_t>(ops[i].virtual_stage);
    const Chunk& chunk = chunks_[v];
    wait_until(may_gather_, static_cast<int>(i) + 1);
    Span& span = record_->times.communication[kGathers][i];
    span.start = {steady_ns()};
    if (!chunk.weights.empty()) {
      std::byte* const all = chunk.whole != nullptr ? chunk.whole : chunk.weights[0];
      if (const Part own = own_weights(v); chunk.whole != nullptr) {
        gathering_->copy(all + own.begin, part_of_weights(v), {own.end - own.begin});
        gathering_->finish();
      }
      transport_.all_gather(static_cast<int>(v), members_[v], all, weight_parts_[v]);
    }
    span.end = {steady_ns()};
    has_gathered_.store(static_cast<int>(i) + 1, std::memory_order_release);
    has_gathered_.notify_all();
  }
}

// In the host's memory: the device has no room for all.
void Worker::draw_part(std::size_t v) {
  const ChunkCode& code = run_.code[v];
  const Chunk& chunk = chunks_[v];
  const Part own = own_part(v);
  const auto drawn = host_memory({code.gradient_bytes});
  std::memset(drawn->base(), 0, static_cast<std::size_t>(code.gradient_bytes));
  draw_weights(code, settings_.seed, *host_mover(), drawn->base());
  mover_->upload(code.has_masters() ? chunk.masters[0] : part_of_weights(v), drawn->base() + own.begin,
                 {own.end - own.begin});
  if (!code.has_masters()) return;
  for (const OwnPiece& piece : own_pieces(v))
    backend_->store(reinterpret_cast<const float*>(chunk.masters[0] + piece.at), part_of_weights(v) + piece.stored_at,
                    piece.elements);
  backend_->finish();
}

std::vector<float> Worker::gathered(std::size_t v, const std::byte* part) {
  const auto all = backend_->reserve({run_.code[v].gradient_bytes});
  const Part own = own_part(v);
  backend_->copy(all->base() + own.begin, part, {own.end - own.begin});
  backend_->finish();
  transport_.all_gather(static_cast<int>(v), members_[v], all->base(),
                        run_.gradient_parts(static_cast<VirtualStageId>(v)));
  return values(v, all->base());
}

void Worker::keep_weights() {
  result_.weights.resize(run_.code.size());
  for (std::size_t v = 0; v < run_.code.size(); ++v) {
    const Chunk& chunk = chunks_[v];
    if (chunk.weights.empty()) continue;
    if (has_parts_of_masters(v))
      result_.weights[v] = gathered(v, chunk.masters[0]);
    else if (divides_gradients())
      result_.weights[v] = gathered(v, part_of_weights(v));
    else
      result_.weights[v] = values(v, chunk.trained());
  }
}

void Worker::begin_gathers(std::int32_t count) {
  may_gather_.store(count, std::memory_order_release);
  may_gather_.notify_all();
}

void Worker::make_room(const Op& op, const WholeAt& whole) {
  for (const auto& [v, turn] : whole.reduced) {
    const auto chunk = static_cast<std::size_t>(v);
    const auto buckets = static_cast<int>(run_.code[chunk].bucket_begin.size());
    wait_until(done_[chunk], (turn + 1) * buckets);
    give_back(chunks_[chunk].whole_rounds[static_cast<std::size_t>(turn)], run_.code[chunk].gradient_bytes);
    room_.give_gradients(v, turn);
  }
  if (whole.opens) {
    room_.take_gradients(op.virtual_stage, whole.turn);
    if (const std::int64_t address = room_.gradients(op.virtual_stage, whole.turn); address >= 0)
      chunks_[op.virtual_stage].whole_rounds[static_cast<std::size_t>(whole.turn)] = memory_->base() + address;
  }
  for (const VirtualStageId v : whole.taken) {
    room_.take_weights(v);
    const std::int64_t address = room_.weights(v);
    chunks_[static_cast<std::size_t>(v)].whole = address < 0 ? nullptr : memory_->base() + address;
  }
  begin_gathers(whole.needs);  // none that the op before has not let begin, but the first of a step
}

void Worker::give_room(const WholeAt& whole) {
  for (const VirtualStageId v : whole.given) {
    const auto chunk = static_cast<std::size_t>(v);
    give_back(chunks_[chunk].whole, run_.code[chunk].parameter_bytes);
    room_.give_weights(v);
  }
}

void Worker::give_back(std::byte*& block, std::int64_t bytes) {
  if (settings_.poison && block != nullptr) fill_with_nan(*mover_, block, bytes);
  block = nullptr;
}

std::size_t Worker::rank_in(std::size_t v) const {
  return static_cast<std::size_t>(std::ranges::find(members_[v], self_) - members_[v].begin());
}

Worker::Part Worker::own_part(std::size_t v) const {
  if (run_.chunks[v].parts == 1) return {0, run_.code[v].gradient_bytes};
  const std::vector<std::int64_t> begin = run_.gradient_parts(static_cast<VirtualStageId>(v));
  return {begin[rank_in(v)], begin[rank_in(v) + 1]};
}

Worker::Part Worker::own_weights(std::size_t v) const {
  if (run_.chunks[v].parts == 1) return {0, run_.code[v].parameter_bytes};
  return {weight_parts_[v][rank_in(v)], weight_parts_[v][rank_in(v) + 1]};
}

std::byte* Worker::part_of_weights(std::size_t v, std::size_t buffer) const {
  return chunks_[v].weights[buffer] + (run_.zero >= kWeightsSharded ? 0 : own_weights(v).begin);
}

std::vector<Worker::OwnPiece> Worker::own_pieces(std::size_t v) const {
  const Part own = own_part(v), weights = own_weights(v);
  std::vector<OwnPiece> pieces;
  for (const CodeParameter& parameter : run_.code[v].parameters) {
    const std::int64_t begin = std::max(parameter.offset, own.begin),
                       end = std::min(parameter.offset + 4 * parameter.tensor.elements, own.end);
    if (begin >= end) continue;
    const std::int64_t stored = parameter.weight_offset + (begin - parameter.offset) / 4 * run_.code[v].value_bytes;
    pieces.push_back({begin - own.begin, stored - weights.begin, (end - begin) / 4});
  }
  return pieces;
}

void Worker::update_weights(std::size_t v, const OpVersions& versions, const std::byte* gradients) {
  const Chunk& chunk = chunks_[v];
  const bool copied = run_.code[v].has_masters();
  std::byte* const stored = part_of_weights(v, static_cast<std::size_t>(versions.write));
  // Of masters and states there is nothing but the part.
  const std::byte* const from = copied ? chunk.masters[0] : part_of_weights(v, static_cast<std::size_t>(versions.read));
  std::byte* const to = copied ? chunk.masters[0] : stored;
  updated_.clear();
  for (const OwnPiece& piece : own_pieces(v)) {
    UpdatedParameter& one = updated_.emplace_back();
    one = {piece.elements, reinterpret_cast<const float*>(from + piece.at), reinterpret_cast<float*>(to + piece.at),
           reinterpret_cast<const float*>(gradients + piece.at)};
    for (std::size_t s = 0; s < chunk.states.size(); ++s)
      one.states[s] = reinterpret_cast<float*>(chunk.states[s] + piece.at);
    if (copied) one.stored = stored + piece.stored_at;
  }
  backend_->update(settings_.optimizer, updates_[v] + 1, updated_);
}

// In this thread: nothing runs beside it.
void Worker::gather_updated(std::size_t v) {
  const std::vector<Op>& gathers = lane_.communication[kGathers];
  const auto i = static_cast<std::size_t>(has_gathered_.load());
  if (divides_gradients() || run_.chunks[v].members < 2 || gathers.empty()) return;  // the next step gathers them
  Span& span = record_->times.communication[kGathers][i];
  span.start = {steady_ns()};
  if (Chunk& chunk = chunks_[v]; run_.chunks[v].parts > 1 && !chunk.weights.empty())
    transport_.all_gather(static_cast<int>(v), members_[v], chunk.weights[chunk.current], weight_parts_[v]);
  span.end = {steady_ns()};
  ++has_gathered_;
}

}  // namespace pipewright::runtime
