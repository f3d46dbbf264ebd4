#include "runtime/worker.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/plain_words.hpp"
#include "core/plan/op_index.hpp"
#include "runtime/cells.hpp"
#include "runtime/clock.hpp"
#include "runtime/measurement.hpp"

namespace pipewright::runtime {
namespace {

// Whether a backward op is the last of its round on its worker: then its gradients are complete.
std::vector<char> closes_round(const std::vector<Op>& ops, const RunPlan& run) {
  std::vector<char> closes(ops.size());
  std::map<std::pair<int, int>, std::size_t> last;
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (rule(ops[i].kind).gradients) {
      last[{ops[i].virtual_stage, run.schedule->rounds().of(ops[i].virtual_stage, ops[i].micro_batch)}] = i;
    }
  for (const auto& [round, i] : last)
    closes[i] = 1;
  return closes;
}

// Of verbs that compute, and of those that move what attention over a shared sequence computes with.
std::optional<Pass> pass_of(const Instruction& i) {
  switch (i.verb) {
    case Verb::KeysOfPart: return i.forward ? Pass::Forward : Pass::InputGradient;
    case Verb::Forward:
    case Verb::AttendBegin:
    case Verb::Attend: return Pass::Forward;
    case Verb::InputGradient:
    case Verb::GradientsBegin:
    case Verb::AttendGradient:
    case Verb::GradientsEnd: return Pass::InputGradient;
    case Verb::WeightGradient: return Pass::WeightGradient;
    default: return std::nullopt;
  }
}

// What the worker's arena is laid over.
std::unique_ptr<DeviceMemory> reserved(const ArenaUse& use, Backend& backend) {
  try {
    return backend.reserve(use.extent);
  } catch (const OutOfArena& error) {
    throw OutOfDevice(
        fmt::format("{}; its arena spans {} B, at most at once: {}", error.what(), use.extent.value, text(use)));
  }
}

}  // namespace

int first_step(const RunSettings& settings) {
  return settings.checkpoints == nullptr ? 0 : settings.checkpoints->first_step();
}

Worker::Worker(const RunPlan& run, WorkerId self, std::unique_ptr<Backend> backend, const Data& data,
               Transport& transport, const RunSettings& settings)
    : run_(run),
      self_(self),
      copy_(self / run.plan->positions()),
      position_(self % run.plan->positions()),
      backend_(std::move(backend)),
      data_(data),
      samples_(sample_shape(run.code)),
      transport_(transport),
      settings_(settings),
      lane_(run.schedule->positions[position_]),
      versions_(run.versions[static_cast<std::size_t>(position_)]),
      mover_(backend_->mover(MoverFor::Worker)),
      beside_(backend_->mover(MoverFor::Sums)),
      gathering_(run.whole.empty() ? nullptr : backend_->mover(MoverFor::Gathers)),
      counted_(replayed(run, position_, settings.memory_cap, settings.time_layers)),
      memory_(reserved(counted_, *backend_)),
      arena_(run.alignment, counted_.extent),
      room_(run, arena_),
      moves_(run.moves[static_cast<std::size_t>(position_)]),
      moving_(moves_),
      interpreter_(*backend_),
      closes_(closes_round(lane_.compute, run)),
      ready_(run.code.size()),
      done_(run.code.size()),
      crowded_(threads_of(run) > available_cores()) {
  if (settings.time_layers) mark_cost_ = backend_->mark_cost();
  for (std::size_t v = 0; v < run.chunks.size(); ++v) {
    members_.push_back(members(static_cast<VirtualStageId>(v)));
    with_my_experts_.emplace_back();
    for (const WorkerId member : members_.back())
      if (run.expert_device(member / run.plan->positions()) == run.expert_device(copy_))
        with_my_experts_.back().push_back(member);
    weight_parts_.push_back(run.weight_parts(static_cast<VirtualStageId>(v)));
  }
  const SteadyBlocks steady = take_steady(run, position_, arena_);
  chunks_.resize(run.code.size());
  for (std::size_t v = 0; v < run.code.size(); ++v)
    place_chunk(v, steady.chunks[v]);
  std::vector<std::vector<std::byte*>> slots(steady.slots.size());
  for (std::size_t c = 0; c < slots.size(); ++c)
    for (const std::int64_t address : steady.slots[c])
      slots[c].push_back(memory_->base() + address);
  transport_.bind(std::move(slots),
                  {mover_.get(), beside_.get(), divides_gradients() ? gathering_.get() : mover_.get()});
  updates_.resize(run.code.size());
  ring_ = run.between_copies(position_, 1);
  sent_.resize(run.channels.size()), received_.resize(run.channels.size());
}

std::string Worker::at() const {
  const int i = at_op_.load();
  if (i == kAtCheckpoint) return "checkpoint";
  return i < 0 ? "start" : label(lane_.compute[static_cast<std::size_t>(i)]);
}

void Worker::load(std::int64_t step) {
  at_op_ = -1;
  const Plan& plan = *run_.plan;
  for (const Op& op : lane_.compute) {
    if (op.kind != Kind::F) continue;
    const ChunkCode& code = run_.code[op.virtual_stage];
    const auto m = static_cast<MicroBatchId>(op.micro_batch);
    const std::int64_t first = first_sample(plan, step, copy_, m), samples = run_.samples(m);
    if (code.sample_values > 0) {
      auto& input = inputs_[m];
      const std::int64_t bytes = sample_bytes(code);
      input.resize(static_cast<std::size_t>(bytes * samples));
      for (std::int64_t i = 0; i < samples; ++i)
        store_sample(code, run_.precision, data_, samples_, run_.part(copy_, m), first + i, input.data() + i * bytes);
    }
    if (code.label_rows > 0) {
      auto& labels = labels_[m];
      labels.resize(static_cast<std::size_t>(code.label_rows * samples));
      for (std::int64_t i = 0; i < samples; ++i)
        store_labels(code, data_, samples_, run_.part(copy_, m), first + i, labels.data() + i * code.label_rows);
    }
  }
}

void Worker::step(std::int64_t number) {
  step_ = number;
  result_.steps.emplace_back();
  record_ = &result_.steps.back();
  record_->number = number;
  record_->times.compute.reserve(lane_.compute.size());
  for (StreamId stream = 0; stream < kStreams.size(); ++stream)
    record_->times.communication[stream].resize(lane_.communication[stream].size());
  for (std::size_t v = 0; v < ready_.size(); ++v)
    ready_[v].store(0), done_[v].store(0);
  may_gather_ = has_gathered_ = 0;
  moving_.begin();
  result_.versions.clear();
  for (std::size_t v = 0; v < chunks_.size(); ++v) {  // the versions' buffers are counted from the first one
    Chunk& chunk = chunks_[v];
    if (chunk.current != 0 && !chunk.weights.empty())
      backend_->copy(chunk.weights[0], chunk.weights[chunk.current], {run_.code[v].parameter_bytes});
    chunk.current = 0;
    chunk.tags.assign(chunk.weights.size(), 0);
  }
  FirstFailure failed;
  std::jthread beside, gathering, leaving, returning;
  if (!lane_.communication[kReductions].empty()) beside = std::jthread([&] { or_note(&Worker::collectives, failed); });
  if (divides_gradients() && !lane_.communication[kGathers].empty())
    gathering = std::jthread([&] { or_note(&Worker::gathers, failed); });
  if (moves_.at.any()) {
    leaving = std::jthread([&] { or_note(&Worker::offloads, failed); });
    returning = std::jthread([&] { or_note(&Worker::reloads, failed); });
  }
  const auto end_streams = [&] {
    for (std::jthread* const stream : {&beside, &gathering, &leaving, &returning})
      if (stream->joinable()) stream->join();
    failed.rethrow();
  };
  try {
    backend_->set_clock();
    record_->probe = backend_->probe();
    transport_.meet();
    record_->began = steady_ns();
    for (std::size_t i = 0, cell = 1; i < lane_.compute.size(); i += cell) {
      at_op_.store(static_cast<int>(i), std::memory_order_relaxed);
      transport_.check_asked_to_end();
      cell = settings_.time_layers ? 1 : cell_size(run_, lane_, i);
      if (moves_.at.any()) move_before(i);
      if (lane_.compute[i].kind == Kind::Update)
        update(lane_.compute[i], versions_[i], i);
      else if (cell > 1)
        run_cell(i, cell);
      else
        run(lane_.compute[i], i);
      if (moves_.at.any()) move_behind(i);
    }
  } catch (const Stopped&) {
    stop("");  // the other streams must end, too
    end_streams();
    throw;
  } catch (const std::exception& error) {
    stop(told(error));
    throw;
  }
  end_streams();
  result_.memory = arena_.peak();
  ++complete_;
}

void Worker::resume() {
  if (first_step(settings_) == 0) return;
  const HostState state = downloaded_state();
  settings_.checkpoints->read(self_, state.chunks);
  const auto blocks = state_blocks();
  for (std::size_t i = 0; i < blocks.size(); ++i)
    mover_->upload(blocks[i].at, state.blocks[i].data(), {blocks[i].bytes});
  for (std::size_t v = 0; v < chunks_.size(); ++v)
    if (!chunks_[v].masters.empty() && !has_parts_of_masters(v))
      store_weights(*backend_, run_.code[v], chunks_[v].trained(), chunks_[v].weights[0]);
  backend_->finish();
}

void Worker::checkpoint(int done) {
  const Checkpoints* const to = settings_.checkpoints;
  if (to == nullptr || !to->due(done)) return;
  at_op_ = kAtCheckpoint;
  to->write(done, self_, downloaded_state().chunks);
  transport_.meet();
  if (self_ == 0) to->complete(done);
}

void Worker::end() {
  if (std::ranges::any_of(run_.channels, [](const RunChannel& channel) { return channel.keeps; })) transport_.meet();
}

std::string Worker::told(const std::exception& error) const {
  return fmt::format("worker {} at op {}: {}", self_, at(), plain_words(error));
}

// The others hear of it first: a stream that is woken here stops, too, and has no reason of its own to give.
void Worker::stop(const std::string& why) {
  transport_.stop(why);
  stopped_ = true;
  for (auto* const counters : {&ready_, &done_})
    for (std::atomic<int>& counter : *counters)
      ++counter, counter.notify_all();  // a sleeper looks again when the value has changed
  for (std::atomic<int>* const counter : {&may_gather_, &has_gathered_, &moving_.may_leave, &moving_.has_left,
                                          &moving_.may_return, &moving_.has_returned})
    ++*counter, counter->notify_all();
}

void Worker::or_note(void (Worker::*stream)(), FirstFailure& failed) {
  try {
    (this->*stream)();
  } catch (const Stopped&) {
    failed.note();
    stop("");  // the compute stream may wait for this one
  } catch (const std::exception& error) {
    failed.note();
    stop(told(error));
  }
}

void Worker::place_chunk(std::size_t v, const SteadyChunk& steady) {
  Chunk& chunk = chunks_[v];
  const ChunkCode& code = run_.code[v];
  const auto take = [&](const std::vector<std::int64_t>& addresses, std::int64_t bytes, std::vector<std::byte*>& into) {
    for (const std::int64_t address : addresses) {
      into.push_back(memory_->base() + address);
      backend_->zero(into.back(), {bytes});
    }
  };
  const auto id = static_cast<VirtualStageId>(v);
  take(steady.weights, run_.held_weights(id), chunk.weights);
  take(steady.gradients, run_.held_gradients(id), chunk.gradients);
  take(steady.masters, run_.chunks[v].state_bytes, chunk.masters);
  take(steady.states, run_.chunks[v].state_bytes, chunk.states);
  if (divides_gradients()) {
    chunk.whole_rounds.resize(static_cast<std::size_t>(run_.schedule->rounds().count(id)));
    if (!chunk.weights.empty()) draw_part(v);
  } else if (!chunk.weights.empty() && !run_.synthetic) {
    std::byte* const drawn = has_parts_of_masters(v) ? chunk.gradients[0] : chunk.trained();
    draw_weights(code, settings_.seed, *mover_, drawn, run_.expert_device(copy_));
    if (code.has_masters()) store_weights(*backend_, code, drawn, chunk.weights[0]);
    if (has_parts_of_masters(v)) {
      const Part own = own_part(v);
      backend_->copy(chunk.masters[0], drawn + own.begin, {own.end - own.begin});
      backend_->zero(drawn, {code.gradient_bytes});
    }
  }
  chunk.frames.resize(static_cast<std::size_t>(run_.schedule->shape.micro_batches));
}

std::vector<Worker::StateBlock> Worker::state_blocks() const {
  std::vector<StateBlock> all;
  for (std::size_t v = 0; v < chunks_.size(); ++v) {
    const Chunk& chunk = chunks_[v];
    if (chunk.weights.empty()) continue;
    const ChunkCode& code = run_.code[v];
    const std::int64_t state_bytes = run_.chunks[v].state_bytes;
    if (divides_gradients()) {
      const Part own = own_weights(v);
      if (own.begin < own.end) all.push_back({v, part_of_weights(v), own.end - own.begin});
    } else if (has_parts_of_masters(v)) {
      all.push_back({v, chunk.weights[chunk.current], code.parameter_bytes});
    }
    if (code.has_masters())
      all.push_back({v, chunk.masters[0], state_bytes});
    else if (!divides_gradients())
      all.push_back({v, chunk.weights[chunk.current], code.parameter_bytes});
    for (std::byte* const block : chunk.states)
      all.push_back({v, block, state_bytes});
  }
  return all;
}

Worker::HostState Worker::downloaded_state() {
  HostState state;
  for (std::size_t v = 0; v < chunks_.size(); ++v)  // also where this member's part is empty: it counts its updates
    if (!chunks_[v].weights.empty()) state.chunks.push_back({static_cast<VirtualStageId>(v), &updates_[v], {}});
  auto chunk = state.chunks.begin();
  for (const auto& [v, from, bytes] : state_blocks()) {
    auto& block = state.blocks.emplace_back(static_cast<std::size_t>(bytes));
    mover_->download(block.data(), from, {bytes});
    while (chunk->virtual_stage != static_cast<VirtualStageId>(v))
      ++chunk;
    chunk->blocks.emplace_back(block);
  }
  return state;
}

std::vector<WorkerId> Worker::members(VirtualStageId v) const {
  return holders(run_.schedule->seating(), v);
}

std::vector<float> Worker::values(std::size_t v, const std::byte* block) const {
  std::vector<float> all(static_cast<std::size_t>(run_.code[v].gradient_bytes / 4));
  mover_->download(all.data(), block, {static_cast<std::int64_t>(all.size() * sizeof(float))});
  return all;
}

void Worker::wait_until(const std::atomic<int>& counter, int value) {
  for (int now = counter.load(std::memory_order_acquire); now < value || stopped_.load();
       now = counter.load(std::memory_order_acquire)) {
    if (stopped_.load()) throw Stopped("this worker has failed");
    counter.wait(now, std::memory_order_acquire);
  }
}

MessageSlot Worker::slot_of(int edge, bool forward, MicroBatchId m) const {
  const RunPlan::Way way = run_.way(edge, forward, m);
  const RunChannel& channel = run_.channels[static_cast<std::size_t>(way.channel)];
  const auto in_step = static_cast<std::int64_t>(channel.micro_batches.size());
  const std::int64_t number = step_ * in_step + way.number + 1;
  return {way.channel, way.number % channel.slots, number, way.number >= channel.slots ? number - channel.slots : 0};
}

Worker::Running Worker::begun(const Op& op, std::size_t index) {
  const auto v = static_cast<std::size_t>(op.virtual_stage);
  const ChunkCode& code = run_.code[v];
  const auto m = static_cast<MicroBatchId>(op.micro_batch);
  const OpVersions& versions = versions_[index];
  const WholeAt* const whole = divides_gradients() ? &run_.whole[static_cast<std::size_t>(position_)][index] : nullptr;
  if (whole != nullptr) make_room(op, *whole);
  Chunk& chunk = chunks_[v];
  Frame& frame = chunk.frames[static_cast<std::size_t>(m)];
  if (frame.at.empty()) frame.at.resize(code.blocks.size()), frame.holds.resize(code.in.size());
  Interpreter::Place place{
      &code,
      &frame,
      run_.size_of(m),
      run_.samples(m),
      chunk.weights.empty()    ? nullptr
      : chunk.whole != nullptr ? chunk.whole
                               : chunk.weights[static_cast<std::size_t>(versions.read)],
      chunk.gradients.empty() ? nullptr : chunk.gradients[static_cast<std::size_t>(versions.gradient_set)],
      run_.loss_scale(m),
      run_.part(copy_, m)};
  if (const int slices = run_.schedule->shape.slices; slices > 1)
    for (MicroBatchId slice = m / slices * slices; slice <= m; ++slice)
      place.slices.push_back(&chunk.frames[static_cast<std::size_t>(slice)]);
  if (whole != nullptr)
    place.gradients = whole->turn < 0 ? nullptr : chunk.whole_rounds[static_cast<std::size_t>(whole->turn)];
  Running running{code, frame, m, place, run_.line(op), whole, index};
  for (; running.next < running.line.size() && running.line[running.next].verb == Verb::Receive; ++running.next)
    receive(running.line[running.next], code, frame, m, place.size);
  return running;
}

void Worker::fetch(const Running& op) {
  for (std::size_t r = 0; r < op.next; ++r)
    transport_.fetch(message_of(op.line[r], op.code, op.m));
}

void Worker::run(const Op& op, std::size_t index) {
  Running running = begun(op, index);
  const auto& [code, frame, m, place, line, whole, i, next] = running;
  if (whole != nullptr) {
    wait_until(has_gathered_, whole->needs);
    begin_gathers(whole->lets);
  }
  const std::int64_t start = op_began_ = steady_ns();
  if (whole != nullptr && whole->opens && place.gradients != nullptr)
    backend_->zero(place.gradients, {code.gradient_bytes});
  fetch(running);
  if (settings_.time_layers)
    time(std::span(line).subspan(next), code, frame, m, place, index);
  else
    follow(running, line.size());
  backend_->finish();
  // Waiting for a receiver's slot is no work: it is idle time behind the op.
  const std::int64_t end = backend_->finished() - std::exchange(waited_, 0);
  record_->times.compute.push_back({{start}, {std::max(start, end)}});
  note_version(op, versions_[index]);
  if (whole != nullptr) give_room(*whole);
}

void Worker::follow(Running& op, std::size_t end) {
  for (; op.next < end; ++op.next)
    follow(op.line[op.next], op.code, op.frame, op.m, op.place, op.index);
}

// The message that a `Receive` or `Release` is about.
MessageSlot Worker::message_of(const Instruction& i, const ChunkCode& code, MicroBatchId m) const {
  const auto port = static_cast<std::size_t>(i.other);
  return slot_of((i.forward ? code.in[port] : code.out[port]).edge, i.forward, m);
}

void Worker::receive(const Instruction& i, const ChunkCode& code, Frame& frame, MicroBatchId m, std::size_t size) {
  const Port& port =
      i.forward ? code.in[static_cast<std::size_t>(i.other)] : code.out[static_cast<std::size_t>(i.other)];
  std::byte* const message = transport_.receive(message_of(i, code, m));
  for (const PortTensor& tensor : port.tensors)
    if (i.forward)
      frame.at[static_cast<std::size_t>(tensor.value)] = message + tensor.offset[size];
    else if (tensor.gradient >= 0)
      frame.at[static_cast<std::size_t>(tensor.gradient)] = message + tensor.gradient_offset[size];
  if (i.forward) frame.holds[static_cast<std::size_t>(i.other)] = 1;
}

void Worker::send(const Instruction& i, const ChunkCode& code, Frame& frame, MicroBatchId m, std::size_t size) {
  const Port& port =
      i.forward ? code.out[static_cast<std::size_t>(i.other)] : code.in[static_cast<std::size_t>(i.other)];
  pieces_.clear();
  std::int64_t bytes = 0;
  for (const PortTensor& tensor : port.tensors) {
    const int block = i.forward ? tensor.value : tensor.gradient;
    if (block < 0) continue;
    pieces_.push_back({frame.at[static_cast<std::size_t>(block)],
                       i.forward ? tensor.offset[size] : tensor.gradient_offset[size], tensor.bytes[size]});
    bytes += tensor.bytes[size];
  }
  const std::int64_t begin = steady_ns();
  // A device may still be computing what the host hands over: the mark stands between its arithmetic and the copy.
  const bool device = !backend_->in_host_memory();
  const std::size_t mark = stamps_.size() + 1;  // the next that is free
  if (device) backend_->mark(mark);
  const Sent sent = transport_.send(slot_of(port.edge, i.forward, m), pieces_);
  const std::int64_t end = steady_ns();
  if (device) backend_->finish();  // a transport that copies nothing has not waited, and only now is the mark known
  const std::int64_t made = device ? std::clamp(backend_->moment(mark), begin, end) : begin;
  record_->blocked += Time{sent.waited};
  waited_ += sent.waited;
  const RunChannel& channel = run_.channels[static_cast<std::size_t>(run_.way(port.edge, i.forward, m).channel)];
  record_->transfers.push_back({static_cast<std::uint32_t>(port.edge),
                                i.forward ? Direction::Forward : Direction::Backward,
                                m,
                                self_,
                                copy_ * run_.plan->positions() + channel.to,
                                {bytes},
                                {made},
                                {std::min(made + sent.waited, end)},
                                {end},
                                {std::max(end, sent.readable)}});
}

void Worker::follow(const Instruction& i, const ChunkCode& code, Frame& frame, MicroBatchId m,
                    const Interpreter::Place& place, std::size_t index) {
  const auto b = static_cast<std::size_t>(i.block);
  switch (i.verb) {
    case Verb::Allocate: frame.at[b] = memory_->base() + arena_.allocate({code.blocks[b][place.size]}, i.tag); return;
    case Verb::Free:
      if (frame.at[b] == nullptr) return;
      if (settings_.poison) fill_with_nan(*mover_, frame.at[b], code.blocks[b][place.size]);
      arena_.free(frame.at[b] - memory_->base());
      frame.at[b] = nullptr;
      return;
    case Verb::AllocateForAll:
      for (Frame* const slice : place.slices) {
        if (slice->at[b] != nullptr) continue;
        slice->at[b] = memory_->base() + arena_.allocate({code.blocks[b][place.size]}, i.tag);
        backend_->zero(slice->at[b], {code.blocks[b][place.size]});
      }
      return;
    case Verb::LoadInput: mover_->upload(frame.at[b], inputs_.at(m).data(), {code.blocks[b][place.size]}); return;
    case Verb::LoadLabels: mover_->upload(frame.at[b], labels_.at(m).data(), {code.blocks[b][place.size]}); return;
    case Verb::Loss: add_loss(frame.at[b], place.samples, m); return;
    case Verb::Send: send(i, code, frame, m, place.size); return;
    case Verb::Release: release(i, code, frame, m); return;
    case Verb::Ready:
      if (closes_[index] == 0) return;
      backend_->finish();
      ready(code.virtual_stage, versions_round(index), i.other + 1);
      return;
    case Verb::Bind: frame.at[b] = frame.at[static_cast<std::size_t>(i.other)]; return;
    case Verb::Spin: spin(i, code, place.size); return;
    case Verb::RingSend: send_on(i, code, frame, place.size); return;
    case Verb::RingReceive: {
      const MessageSlot message = between_copies(ring_, ++received_[static_cast<std::size_t>(ring_)]);
      frame.at[b] = transport_.receive(message);
      transport_.fetch(message);
      return;
    }
    case Verb::RingRelease: give_back(ring_, frame.at[b]); return;
    case Verb::ExchangeSend:
    case Verb::ExchangeReceive: exchange(i, code, frame, place.samples); return;
    case Verb::Receive: break;
    default: interpreter_.compute(i, place); return;
  }
  check_failed("receives stand first in a line", __FILE__, __LINE__);
}

void Worker::time(std::span<const Instruction> line, const ChunkCode& code, Frame& frame, MicroBatchId m,
                  const Interpreter::Place& place, std::size_t index) {
  stamps_.clear();
  backend_->mark(0);
  Stamp latest{-1, Pass::Forward};
  for (const Instruction& i : line) {
    follow(i, code, frame, m, place, index);
    const std::optional<Pass> arithmetic = pass_of(i);
    if (arithmetic) latest = {code.steps[static_cast<std::size_t>(i.step)].layer, *arithmetic};
    if (latest.layer < 0 || (!arithmetic && i.verb != Verb::Add)) continue;
    stamps_.push_back(latest);
    backend_->mark(stamps_.size());
  }
  backend_->finish();
  const std::int64_t end = steady_ns();
  // Only now are they looked at: ops of some microseconds would be measured together with this bookkeeping. Between two
  // marks lies one reading of the clock, which a run does not have.
  std::map<std::pair<LayerId, Pass>, double> taken;
  std::int64_t last = backend_->moment(0);
  for (std::size_t s = 0; s < stamps_.size(); ++s) {
    const std::int64_t at = backend_->moment(s + 1);
    taken[{stamps_[s].layer, stamps_[s].pass}] += std::max(0.0, static_cast<double>(at - last) - mark_cost_);
    last = at;
  }
  for (const auto& [of, ns] : taken)
    result_.layer_ns[{of.first, of.second, place.slices.empty() ? static_cast<int>(place.size) : place.part.number}]
        .push_back(ns);
  result_.overhead_ns.push_back(std::max(0.0, static_cast<double>(end - last) - mark_cost_));
}

void Worker::spin(const Instruction& i, const ChunkCode& code, std::size_t size) {
  std::int64_t ns = code.time[static_cast<std::size_t>(i.step)][size].value;
  if (i.other >= 0) {
    if (closes_[static_cast<std::size_t>(at_op_.load(std::memory_order_relaxed))] == 0) return;
    const auto& early = code.ready_before_end[size];
    const auto bucket = static_cast<std::size_t>(i.other);
    ns = std::max<std::int64_t>(0, ns - (bucket < early.size() ? early[bucket].value : 0));
  }
  spin_until(op_began_ + ns);
}

void Worker::spin_until(std::int64_t ns) const {
  for (std::int64_t now = steady_ns(); now < ns && !stopped_.load(std::memory_order_relaxed); now = steady_ns())
    if (crowded_ && ns - now > 200'000) std::this_thread::sleep_for(std::chrono::nanoseconds(ns - now - 100'000));
}

void Worker::release(const Instruction& i, const ChunkCode& code, Frame& frame, MicroBatchId m) {
  if (i.forward) {
    char& holds = frame.holds[static_cast<std::size_t>(i.other)];
    if (holds == 0) return;
    holds = 0;
  }
  backend_->finish();
  transport_.release(message_of(i, code, m));
}

void Worker::add_loss(const std::byte* block, std::int64_t samples, MicroBatchId m) {
  losses_.resize(static_cast<std::size_t>(samples));
  mover_->download(losses_.data(), block, {samples * static_cast<std::int64_t>(sizeof(float))});
  for (const float loss : losses_) {
    if (!std::isfinite(loss))
      throw std::runtime_error(fmt::format(
          "the loss of micro-batch {} in step {} is {}; use a smaller learning_rate, or another seed", m, step_, loss));
    record_->loss += static_cast<double>(loss);
  }
  record_->samples += samples;
}

// What the buffer holds that the op has read, whatever the plan says of it.
void Worker::note_version(const Op& op, const OpVersions& versions) {
  const Chunk& chunk = chunks_[static_cast<std::size_t>(op.virtual_stage)];
  if (run_.schedule->flush || chunk.tags.empty()) return;
  const std::int64_t version = chunk.tags[static_cast<std::size_t>(versions.read)];
  const auto m = static_cast<MicroBatchId>(op.micro_batch);
  if (op.kind == Kind::F) {
    result_.versions.push_back({op.virtual_stage, m, version, -1});
    return;
  }
  if (!rule(op.kind).backward) return;
  for (auto& read : result_.versions)
    if (read.virtual_stage == op.virtual_stage && read.micro_batch == m) read.backward = version;
}

}  // namespace pipewright::runtime
