#include "runtime/executor.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "core/plan/op_index.hpp"
#include "runtime/checkpoint.hpp"
#include "runtime/interpreter.hpp"
#include "runtime/measurement.hpp"
#include "runtime/transports/loopback.hpp"
#include "runtime/walk.hpp"

namespace pipewright {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Addresses for an arena, taken from the system before the run, so that no step pays for a first touch.
class Region {
 public:
  explicit Region(Bytes size) : size_(static_cast<std::size_t>(std::max<std::int64_t>(size.value, 1))) {
    void* const got = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (got == MAP_FAILED)
      throw OutOfArena(
          fmt::format("the system has no {} B for this worker; use fewer or smaller micro-batches", size_));
    base_ = static_cast<std::byte*>(got);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() { munmap(base_, size_); }
  std::byte* base() const { return base_; }

 private:
  std::size_t size_;
  std::byte* base_ = nullptr;
};

// Whether a backward op is the last of its round on its worker: then its gradients are complete.
std::vector<char> closes_round(const std::vector<Op>& ops, const RunPlan& run) {
  std::vector<char> closes(ops.size());
  std::map<std::pair<int, int>, std::size_t> last;
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (ops[i].kind == Kind::BW || ops[i].kind == Kind::W) {
      const int replicas = run.schedule->shape.replicas_of(run.plan->stage_of(ops[i].virtual_stage));
      last[{ops[i].virtual_stage, run.schedule->flush ? 0 : static_cast<int>(ops[i].micro_batch) / replicas}] = i;
    }
  for (const auto& [round, i] : last)
    closes[i] = 1;
  return closes;
}

void fill_with_nan(std::byte* block, std::int64_t bytes) {
  std::memset(block, 0xff, static_cast<std::size_t>(bytes));
}

// Steps that a checkpoint says are done.
int first_step(const RunSettings& settings) {
  return settings.checkpoints == nullptr ? 0 : settings.checkpoints->first_step();
}

// One worker of the run.
class Worker {
 public:
  Worker(const RunPlan& run, WorkerId self, std::unique_ptr<Backend> backend, const Data& data, Transport& transport,
         const RunSettings& settings)
      : run_(run),
        self_(self),
        copy_(self / run.plan->positions()),
        position_(self % run.plan->positions()),
        backend_(std::move(backend)),
        data_(data),
        transport_(transport),
        settings_(settings),
        lane_(run.schedule->positions[static_cast<std::size_t>(position_)]),
        versions_(run.versions[static_cast<std::size_t>(position_)]),
        region_(replayed(run, position_, settings.memory_cap).extent),
        arena_(run.alignment, settings.memory_cap),
        interpreter_(*backend_),
        closes_(closes_round(lane_.compute, run)),
        ready_(run.code.size()),
        done_(run.code.size()) {
    const SteadyBlocks steady = take_steady(run, position_, arena_);
    chunks_.resize(run.code.size());
    for (std::size_t v = 0; v < run.code.size(); ++v)
      place_chunk(v, steady.chunks[v]);
    std::vector<std::vector<std::byte*>> slots(steady.slots.size());
    for (std::size_t c = 0; c < slots.size(); ++c)
      for (const std::int64_t address : steady.slots[c])
        slots[c].push_back(region_.base() + address);
    transport_.bind(std::move(slots));
    updates_.resize(run.code.size());
    for (std::size_t v = 0; v < run.chunks.size(); ++v)
      members_.push_back(members(static_cast<VirtualStageId>(v)));
  }

  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { transport_.bind({}); }  // a run that failed leaves messages on their way

  WorkerResult& result() { return result_; }
  std::string at() const {
    const int i = at_op_.load();
    if (i == kAtCheckpoint) return "checkpoint";
    return i < 0 ? "start" : label(lane_.compute[static_cast<std::size_t>(i)]);
  }

  // Samples of the step, outside the timed part.
  void load(std::int64_t step) {
    at_op_ = -1;
    const Plan& plan = *run_.plan;
    for (const Op& op : lane_.compute) {
      if (op.kind != Kind::F) continue;
      const ChunkCode& code = run_.code[op.virtual_stage];
      const auto m = static_cast<MicroBatchId>(op.micro_batch);
      const std::int64_t first = first_sample(plan, step, copy_, m), samples = plan.samples(m);
      if (code.sample_values > 0) {
        auto& input = inputs_[m];
        const std::int64_t bytes = code.sample_values * (code.sample_indices ? 8 : 4);
        input.resize(static_cast<std::size_t>(bytes * samples));
        for (std::int64_t i = 0; i < samples; ++i)
          data_.input(first + i, input.data() + i * bytes);
      }
      if (code.label_rows > 0) {
        auto& labels = labels_[m];
        labels.resize(static_cast<std::size_t>(code.label_rows * samples));
        for (std::int64_t i = 0; i < samples; ++i)
          data_.labels(first + i, labels.data() + i * code.label_rows);
      }
    }
  }

  void step(std::int64_t number) {
    step_ = number;
    result_.steps.emplace_back();
    record_ = &result_.steps.back();
    record_->number = number;
    record_->times.compute.reserve(lane_.compute.size());
    record_->times.collective.resize(lane_.collective.size());
    for (std::size_t v = 0; v < ready_.size(); ++v)
      ready_[v].store(0), done_[v].store(0);
    result_.versions.clear();
    for (std::size_t v = 0; v < chunks_.size(); ++v)  // the versions' buffers are counted from the first one
      if (Chunk& chunk = chunks_[v]; chunk.current != 0) {
        backend_->copy(chunk.weights[0], chunk.weights[chunk.current], {run_.code[v].parameter_bytes});
        chunk.current = 0;
      }
    std::exception_ptr failed;
    std::jthread beside;
    if (has_collectives()) beside = std::jthread([&] { collectives_or(failed); });
    try {
      transport_.meet();
      record_->began = now_ns();
      for (std::size_t i = 0; i < lane_.compute.size(); ++i) {
        at_op_.store(static_cast<int>(i), std::memory_order_relaxed);
        if (lane_.compute[i].kind == Kind::Update)
          update(lane_.compute[i], versions_[i]);
        else
          run(lane_.compute[i], i);
      }
    } catch (const Stopped&) {
      stop("");  // the collective stream must end, too
      if (beside.joinable()) beside.join();
      if (failed) std::rethrow_exception(failed);
      throw;
    } catch (const std::exception& error) {
      stop(told(error));
      throw;
    }
    if (beside.joinable()) beside.join();
    if (failed) std::rethrow_exception(failed);
    result_.memory = arena_.peak();
    ++complete_;
  }
  void forget_times() { result_.layer_ns.clear(), result_.overhead_ns.clear(), result_.update_ns.clear(); }
  // All ops of a step, and the step's collectives.
  std::size_t complete_steps() const { return complete_; }

  void resume() {
    if (first_step(settings_) > 0) settings_.checkpoints->read(self_, state());
  }
  // The state after `done` steps goes to disk, if it is due. The next step begins when worker 0 has completed it.
  void checkpoint(int done) {
    const Checkpoints* const to = settings_.checkpoints;
    if (to == nullptr || !to->due(done)) return;
    at_op_ = kAtCheckpoint;
    to->write(done, self_, state());
    transport_.meet();
    if (self_ == 0) to->complete(done);
  }

  void keep_weights() {
    result_.weights.resize(run_.code.size());
    for (std::size_t v = 0; v < run_.code.size(); ++v)
      if (!chunks_[v].weights.empty()) result_.weights[v] = values(v, chunks_[v].weights[chunks_[v].current]);
  }
  bool has_collectives() const { return !lane_.collective.empty(); }
  // "worker 1 at op 1F3: why"
  std::string told(const std::exception& error) const {
    return fmt::format("worker {} at op {}: {}", self_, at(), error.what());
  }
  void stop(const std::string& why) {
    stopped_ = true;
    for (auto* const counters : {&ready_, &done_})
      for (std::atomic<int>& counter : *counters)
        ++counter, counter.notify_all();  // a sleeper looks again when the value has changed
    transport_.stop(why);
  }

 private:
  static constexpr int kAtCheckpoint = -2;

  struct Chunk {
    std::vector<std::byte*> weights, gradients, states;
    std::size_t current = 0;
    std::vector<Frame> frames;  // by micro-batch
  };

  // The collective stream, in a thread of its own.
  void collectives_or(std::exception_ptr& failed) {
    try {
      collectives();
    } catch (const Stopped&) {
      failed = std::current_exception();
      stop("");  // the compute stream may wait for this one
    } catch (const std::exception& error) {
      failed = std::current_exception();
      stop(told(error));
    }
  }
  void collectives() {
    for (std::size_t i = 0; i < lane_.collective.size(); ++i) {
      const Op& op = lane_.collective[i];
      const auto v = static_cast<std::size_t>(op.virtual_stage);
      const auto buckets = static_cast<int>(run_.code[v].bucket_begin.size());
      const int number = static_cast<int>(op.micro_batch) * buckets + static_cast<int>(op.bucket) + 1;
      wait_until(ready_[v], number);
      const std::int64_t begin = run_.code[v].bucket_begin[op.bucket];
      const std::int64_t end = op.bucket == 0 ? run_.code[v].parameter_bytes : run_.code[v].bucket_begin[op.bucket - 1];
      const std::size_t set = op.micro_batch % static_cast<std::size_t>(run_.chunks[v].gradient_sets);
      Span& span = record_->times.collective[i];
      span.start = {now_ns()};
      if (run_.code[v].parameter_bytes > 0)
        transport_.all_reduce(static_cast<int>(v), members_[v],
                              reinterpret_cast<float*>(chunks_[v].gradients[set] + begin), (end - begin) / 4);
      span.end = {now_ns()};
      done_[v].store(number, std::memory_order_release);
      done_[v].notify_all();
    }
  }

  void place_chunk(std::size_t v, const SteadyChunk& steady) {
    Chunk& chunk = chunks_[v];
    const Bytes bytes{run_.code[v].parameter_bytes};
    const auto take = [&](const std::vector<std::int64_t>& addresses, std::vector<std::byte*>& into) {
      for (const std::int64_t address : addresses) {
        into.push_back(region_.base() + address);
        backend_->zero(into.back(), bytes);
      }
    };
    take(steady.weights, chunk.weights), take(steady.gradients, chunk.gradients), take(steady.states, chunk.states);
    if (!chunk.weights.empty()) set_initial_weights(run_.code[v], settings_.seed, chunk.weights[0]);
    chunk.frames.resize(static_cast<std::size_t>(run_.schedule->shape.micro_batches));
  }

  // What this worker carries from step to step.
  std::vector<ChunkState> state() {
    std::vector<ChunkState> all;
    for (std::size_t v = 0; v < chunks_.size(); ++v) {
      Chunk& chunk = chunks_[v];
      if (chunk.weights.empty()) continue;
      const auto bytes = static_cast<std::size_t>(run_.code[v].parameter_bytes);
      ChunkState state{static_cast<VirtualStageId>(v), &updates_[v], {{chunk.weights[chunk.current], bytes}}};
      for (std::byte* const block : chunk.states)
        state.blocks.emplace_back(block, bytes);
      all.push_back(std::move(state));
    }
    return all;
  }

  std::vector<WorkerId> members(VirtualStageId v) const {
    std::vector<WorkerId> all;
    const StageId stage = run_.plan->stage_of(v);
    const PositionId first = first_position(run_.schedule->shape, stage);
    for (int copy = 0; copy < run_.plan->data_parallel; ++copy)
      for (int r = 0; r < run_.schedule->shape.replicas_of(stage); ++r)
        all.push_back(copy * run_.plan->positions() + first + r);
    return all;
  }

  std::vector<float> values(std::size_t v, const std::byte* block) const {
    std::vector<float> all(static_cast<std::size_t>(run_.code[v].parameter_bytes / 4));
    std::memcpy(all.data(), block, all.size() * sizeof(float));
    return all;
  }

  // Sleeps until the counter has reached `value`: the two streams of a worker share its core.
  void wait_until(const std::atomic<int>& counter, int value) {
    for (int now = counter.load(std::memory_order_acquire); now < value || stopped_.load();
         now = counter.load(std::memory_order_acquire)) {
      if (stopped_.load()) throw Stopped("this worker has failed");
      counter.wait(now, std::memory_order_acquire);
    }
  }

  MessageSlot slot_of(int edge, bool forward, MicroBatchId m) const {
    const RunPlan::Way way = run_.way(edge, forward, m);
    const RunChannel& channel = run_.channels[static_cast<std::size_t>(way.channel)];
    const auto in_step = static_cast<std::int64_t>(channel.micro_batches.size());
    const std::int64_t number = step_ * in_step + way.number + 1;
    return {way.channel, way.number % channel.slots, number, way.number >= channel.slots ? number - channel.slots : 0};
  }

  void run(const Op& op, std::size_t index) {
    const auto v = static_cast<std::size_t>(op.virtual_stage);
    const ChunkCode& code = run_.code[v];
    const auto m = static_cast<MicroBatchId>(op.micro_batch);
    const OpVersions& versions = versions_[index];
    Chunk& chunk = chunks_[v];
    Frame& frame = chunk.frames[static_cast<std::size_t>(m)];
    if (frame.at.empty()) frame.at.resize(code.blocks.size()), frame.holds.resize(code.in.size());
    const bool again = recomputed(run_.schedule->shape, op.virtual_stage, m);
    Interpreter::Place place{
        &code,
        &frame,
        run_.size_of(m),
        run_.plan->samples(m),
        chunk.weights.empty() ? nullptr : chunk.weights[static_cast<std::size_t>(versions.read)],
        chunk.gradients.empty() ? nullptr : chunk.gradients[static_cast<std::size_t>(versions.gradient_set)],
        run_.loss_scale(m)};
    const auto& line = code.line(op.kind, again);
    std::size_t i = 0;
    for (; i < line.size() && line[i].verb == Verb::Receive; ++i)
      receive(line[i], code, frame, m, place.size);
    const std::int64_t start = now_ns();
    if (settings_.time_layers)
      time(std::span(line).subspan(i), code, frame, m, place, index);
    else
      for (; i < line.size(); ++i)
        follow(line[i], code, frame, m, place, index);
    // Waiting for a receiver's slot is no work: it is idle time behind the op.
    record_->times.compute.push_back({{start}, {now_ns() - std::exchange(waited_, 0)}});
    note_version(op, versions.version);
  }

  void receive(const Instruction& i, const ChunkCode& code, Frame& frame, MicroBatchId m, std::size_t size) {
    const Port& port =
        i.forward ? code.in[static_cast<std::size_t>(i.other)] : code.out[static_cast<std::size_t>(i.other)];
    std::byte* const message = transport_.receive(slot_of(port.edge, i.forward, m));
    for (const PortTensor& tensor : port.tensors)
      if (i.forward)
        frame.at[static_cast<std::size_t>(tensor.value)] = message + tensor.offset[size];
      else if (tensor.gradient >= 0)
        frame.at[static_cast<std::size_t>(tensor.gradient)] = message + tensor.gradient_offset[size];
    if (i.forward) frame.holds[static_cast<std::size_t>(i.other)] = 1;
  }

  void send(const Instruction& i, const ChunkCode& code, Frame& frame, MicroBatchId m, std::size_t size) {
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
    const std::int64_t begin = now_ns();
    const Sent sent = transport_.send(slot_of(port.edge, i.forward, m), pieces_);
    const std::int64_t end = now_ns();
    record_->blocked += Time{sent.waited};
    waited_ += sent.waited;
    const RunChannel& channel = run_.channels[static_cast<std::size_t>(run_.way(port.edge, i.forward, m).channel)];
    record_->transfers.push_back({static_cast<std::uint32_t>(port.edge),
                                  i.forward ? Direction::Forward : Direction::Backward,
                                  m,
                                  self_,
                                  copy_ * run_.plan->positions() + channel.to,
                                  {bytes},
                                  {begin},
                                  {begin + sent.waited},
                                  {end},
                                  {std::max(end, sent.readable)}});
  }

  void follow(const Instruction& i, const ChunkCode& code, Frame& frame, MicroBatchId m,
              const Interpreter::Place& place, std::size_t index) {
    const auto b = static_cast<std::size_t>(i.block);
    switch (i.verb) {
      case Verb::Allocate: frame.at[b] = region_.base() + arena_.allocate({code.blocks[b][place.size]}, i.tag); return;
      case Verb::Free:
        if (frame.at[b] == nullptr) return;
        if (settings_.poison) fill_with_nan(frame.at[b], code.blocks[b][place.size]);
        arena_.free(frame.at[b] - region_.base());
        frame.at[b] = nullptr;
        return;
      case Verb::LoadInput: backend_->copy(frame.at[b], inputs_.at(m).data(), {code.blocks[b][place.size]}); return;
      case Verb::LoadLabels: backend_->copy(frame.at[b], labels_.at(m).data(), {code.blocks[b][place.size]}); return;
      case Verb::Loss: add_loss(frame.at[b], place.samples, m); return;
      case Verb::Send: send(i, code, frame, m, place.size); return;
      case Verb::Release: release(i, code, frame, m); return;
      case Verb::Ready:
        if (closes_[index] != 0) ready(code.virtual_stage, versions_round(index), i.other + 1);
        return;
      case Verb::Receive: break;
      default: interpreter_.compute(i, place); return;
    }
    check_failed("receives stand first in a line", __FILE__, __LINE__);
  }

  // The same with a stamp after every piece of arithmetic: what was done since the one before counts to its layer.
  void time(std::span<const Instruction> line, const ChunkCode& code, Frame& frame, MicroBatchId m,
            const Interpreter::Place& place, std::size_t index) {
    std::map<std::pair<LayerId, Pass>, double> taken;
    const std::int64_t begin = now_ns();
    std::int64_t last = begin;
    std::pair<LayerId, Pass> latest{-1, Pass::Forward};
    for (const Instruction& i : line) {
      follow(i, code, frame, m, place, index);
      const bool arithmetic =
          i.verb == Verb::Forward || i.verb == Verb::InputGradient || i.verb == Verb::WeightGradient;
      if (arithmetic)
        latest = {code.steps[static_cast<std::size_t>(i.step)].layer, i.verb == Verb::Forward ? Pass::Forward
                                                                      : i.verb == Verb::InputGradient
                                                                          ? Pass::InputGradient
                                                                          : Pass::WeightGradient};
      if (latest.first < 0 || (!arithmetic && i.verb != Verb::Add)) continue;
      const std::int64_t now = now_ns();
      taken[latest] += static_cast<double>(now - last);
      last = now;
    }
    double sum = 0;
    for (const auto& [of, ns] : taken) {
      result_.layer_ns[{of.first, of.second, static_cast<int>(place.size)}].push_back(ns);
      sum += ns;
    }
    result_.overhead_ns.push_back(static_cast<double>(now_ns() - begin) - sum);
  }

  void release(const Instruction& i, const ChunkCode& code, Frame& frame, MicroBatchId m) {
    const Port& port =
        i.forward ? code.in[static_cast<std::size_t>(i.other)] : code.out[static_cast<std::size_t>(i.other)];
    if (i.forward) {
      char& holds = frame.holds[static_cast<std::size_t>(i.other)];
      if (holds == 0) return;
      holds = 0;
    }
    transport_.release(slot_of(port.edge, i.forward, m));
  }

  void add_loss(const std::byte* block, std::int64_t samples, MicroBatchId m) {
    const auto* const values = reinterpret_cast<const float*>(block);
    for (std::int64_t s = 0; s < samples; ++s) {
      if (!std::isfinite(values[s]))
        throw std::runtime_error(
            fmt::format("the loss of micro-batch {} in step {} is {}; use a smaller learning_rate, or another seed", m,
                        step_, values[s]));
      record_->loss += static_cast<double>(values[s]);
    }
    record_->samples += samples;
  }

  int versions_round(std::size_t index) const {
    const Op& op = lane_.compute[index];
    return run_.schedule->flush ? 0
                                : static_cast<int>(op.micro_batch) /
                                      run_.schedule->shape.replicas_of(run_.plan->stage_of(op.virtual_stage));
  }
  // The first `buckets` buckets of a round are complete.
  void ready(VirtualStageId v, int round, int buckets) {
    const auto count = static_cast<int>(run_.code[static_cast<std::size_t>(v)].bucket_begin.size());
    // An update of a round may come after backwards of the next one: never back.
    std::atomic<int>& here = ready_[static_cast<std::size_t>(v)];
    here.store(std::max(here.load(std::memory_order_relaxed), round * count + buckets), std::memory_order_release);
    here.notify_all();
  }

  void update(const Op& op, const OpVersions& versions) {
    const auto v = static_cast<std::size_t>(op.virtual_stage);
    const ChunkCode& code = run_.code[v];
    Chunk& chunk = chunks_[v];
    if (run_.chunks[v].members > 1) {
      const auto buckets = static_cast<int>(code.bucket_begin.size());
      ready(op.virtual_stage, static_cast<int>(op.micro_batch), buckets);  // a member without micro-batch gives zeros
      const int all = (static_cast<int>(op.micro_batch) + 1) * buckets;
      wait_until(done_[v], all);
    }
    const std::int64_t start = now_ns();
    if (!chunk.weights.empty()) {
      std::byte* const gradients = chunk.gradients[static_cast<std::size_t>(versions.gradient_set)];
      scale(gradients, code.parameter_bytes / 4,
            run_.gradient_factor(op.virtual_stage, static_cast<int>(op.micro_batch)));
      if (settings_.keep_gradients && updates_[v] == 0) {
        result_.gradients.resize(run_.code.size());
        result_.gradients[v] = values(v, gradients);
      }
      const std::byte* const from = chunk.weights[static_cast<std::size_t>(versions.read)];
      std::byte* const to = chunk.weights[static_cast<std::size_t>(versions.write)];
      std::array<float*, 4> states{};
      for (const CodeParameter& parameter : code.parameters) {
        for (std::size_t s = 0; s < chunk.states.size(); ++s)
          states[s] = reinterpret_cast<float*>(chunk.states[s] + parameter.offset);
        backend_->update(
            settings_.optimizer, updates_[v] + 1, parameter.tensor.elements,
            reinterpret_cast<const float*>(from + parameter.offset), reinterpret_cast<float*>(to + parameter.offset),
            reinterpret_cast<const float*>(gradients + parameter.offset), {states.data(), chunk.states.size()});
      }
      backend_->zero(gradients, {code.parameter_bytes});
      chunk.current = static_cast<std::size_t>(versions.write);
    }
    ++updates_[v];
    record_->times.compute.push_back({{start}, {now_ns()}});
    if (settings_.time_layers && !code.parameters.empty()) {
      std::int64_t count = 0;
      for (const CodeParameter& parameter : code.parameters)
        count += parameter.tensor.elements;
      result_.update_ns.emplace_back(static_cast<double>(count), static_cast<double>(now_ns() - start));
    }
  }

  void note_version(const Op& op, std::int32_t version) {
    if (run_.schedule->flush) return;
    const auto m = static_cast<MicroBatchId>(op.micro_batch);
    if (op.kind == Kind::F) {
      result_.versions.push_back({op.virtual_stage, m, version, -1});
      return;
    }
    if (op.kind != Kind::BW && op.kind != Kind::B) return;
    for (auto& read : result_.versions)
      if (read.virtual_stage == op.virtual_stage && read.micro_batch == m) read.backward = version;
  }

  const RunPlan& run_;
  WorkerId self_;
  CopyId copy_;
  PositionId position_;
  std::unique_ptr<Backend> backend_;
  const Data& data_;
  Transport& transport_;
  const RunSettings& settings_;
  const Lane& lane_;
  const std::vector<OpVersions>& versions_;
  Region region_;
  Arena arena_;
  Interpreter interpreter_;
  std::vector<char> closes_;
  std::vector<Chunk> chunks_;  // by virtual stage
  std::map<MicroBatchId, std::vector<std::byte>> inputs_;
  std::map<MicroBatchId, std::vector<std::int64_t>> labels_;
  std::vector<std::int64_t> updates_;
  std::vector<std::vector<WorkerId>> members_;
  std::vector<std::atomic<int>> ready_, done_;  // buckets of all rounds of the step, by virtual stage
  std::atomic<bool> stopped_{false};
  std::vector<Piece> pieces_;
  std::int64_t step_ = 0, waited_ = 0;  // waited_: ns of the current op
  WorkerStep* record_ = nullptr;
  std::atomic<int> at_op_{-1};  // of the compute stream
  std::size_t complete_ = 0;
  WorkerResult result_;
};

// The first failure of a run; what follows from it is not told.
class Failure {
 public:
  void note(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (text_.empty()) text_ = why;
  }
  // A worker that was stopped: of another process's failure nothing else is known.
  void note_stop(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (stop_.empty()) stop_ = why;
  }
  std::string text() const { return text_.empty() ? stop_ : text_; }

 private:
  std::mutex mutex_;
  std::string text_, stop_;
};

// A worker with its memory; where the cap does not hold it, the error names it.
std::unique_ptr<Worker> made(const RunPlan& run, WorkerId id, std::unique_ptr<Backend> backend, const Data& data,
                             Transport& transport, const RunSettings& settings) {
  try {
    return std::make_unique<Worker>(run, id, std::move(backend), data, transport, settings);
  } catch (const OutOfArena& error) {
    throw OutOfArena(fmt::format("worker {}: {}", id, error.what()));
  }
}

// A worker's whole run.
void run_all_steps(Worker& worker, const RunSettings& settings, Failure& failure,
                   const std::function<void(int)>& after_step) {
  try {
    for (int step = first_step(settings); step < settings.steps; ++step) {
      worker.load(step);
      worker.step(step);
      if (after_step) after_step(step);
      worker.checkpoint(step + 1);
    }
    if (settings.keep_weights) worker.keep_weights();
  } catch (const Stopped& stopped) {
    failure.note_stop(stopped.what());
  } catch (const std::exception& error) {
    failure.note(worker.told(error));
    worker.stop(worker.told(error));
  }
}

// The core that a worker's thread stays on; -1: none.
int core_of(const RunSettings& settings, const RunPlan& run, const std::vector<int>& allowed, std::size_t worker) {
  if (!settings.pin) return -1;
  if (settings.core) return *settings.core;
  return threads_of(run) <= static_cast<int>(allowed.size()) ? allowed[worker] : -1;
}

}  // namespace

std::vector<WorkerResult> execute(const RunPlan& run, const std::function<std::unique_ptr<Backend>()>& backend,
                                  const Data& data, const std::vector<std::unique_ptr<Transport>>& endpoints,
                                  const RunSettings& settings, const std::function<void(int)>& after_step) {
  PP_CHECK(endpoints.size() == static_cast<std::size_t>(run.plan->workers()));
  std::vector<std::unique_ptr<Worker>> workers(endpoints.size());
  for (std::size_t w = 0; w < workers.size(); ++w)
    if (endpoints[w] != nullptr) {
      workers[w] = made(run, static_cast<WorkerId>(w), backend(), data, *endpoints[w], settings);
      workers[w]->resume();
    }
  if (settings.checkpoints != nullptr && workers[0] != nullptr) settings.checkpoints->tidy();
  Failure failure;
  {
    const std::vector<int> allowed = allowed_cores();
    std::vector<std::jthread> threads;
    bool first = true;
    for (std::size_t w = 0; w < workers.size(); ++w) {
      if (workers[w] == nullptr) continue;
      threads.emplace_back([&, w, first] {
        if (const int core = core_of(settings, run, allowed, w); core >= 0) pin_to(core);
        run_all_steps(*workers[w], settings, failure, first ? after_step : std::function<void(int)>{});
      });
      first = false;
    }
  }
  std::vector<WorkerResult> results(workers.size());
  for (std::size_t w = 0; w < workers.size(); ++w)
    if (workers[w] != nullptr) results[w] = std::move(workers[w]->result());
  const auto all = static_cast<std::size_t>(settings.steps - first_step(settings));
  std::size_t complete = all;
  for (std::size_t w = 0; w < workers.size(); ++w)
    if (workers[w] != nullptr) complete = std::min(complete, workers[w]->complete_steps());
  if (!failure.text().empty() || complete < all) {
    for (WorkerResult& result : results)
      result.steps.resize(std::min(result.steps.size(), complete));
    throw RunFailed(failure.text().empty() ? "a worker stopped before the last step" : failure.text(),
                    std::move(results));
  }
  return results;
}

std::vector<WorkerResult> measure_layers(const RunPlan& run, const std::function<std::unique_ptr<Backend>()>& backend,
                                         const Data& data, RunSettings settings, double seconds,
                                         std::optional<WorkerId> only) {
  settings.time_layers = true;
  settings.optimizer.learning_rate = 0;
  const auto endpoints = loopback_transport(run);
  std::vector<std::unique_ptr<Worker>> workers(endpoints.size());
  for (std::size_t w = 0; w < endpoints.size(); ++w)
    if (!only || *only == static_cast<WorkerId>(w))
      workers[w] = std::make_unique<Worker>(run, static_cast<WorkerId>(w), backend(), data, *endpoints[w], settings);
  Failure failure;
  {
    const std::vector<int> allowed = allowed_cores();
    const std::int64_t end = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
    std::vector<std::jthread> threads;
    for (std::size_t w = 0; w < workers.size(); ++w) {
      if (workers[w] == nullptr) continue;
      threads.emplace_back([&, w] {
        Worker& worker = *workers[w];
        if (const int core = core_of(settings, run, allowed, w); core >= 0) pin_to(core);
        try {
          worker.load(0);
          for (int round = 0; round < 12 || now_ns() < end; ++round) {
            worker.step(round);
            if (round == 0) worker.forget_times();
          }
        } catch (const std::exception& error) {
          failure.note(worker.told(error));
        }
      });
    }
  }
  std::vector<WorkerResult> results(workers.size());
  for (std::size_t w = 0; w < workers.size(); ++w)
    if (workers[w] != nullptr) results[w] = std::move(workers[w]->result());
  if (!failure.text().empty()) throw RunFailed(failure.text(), std::move(results));
  return results;
}

Timeline timeline_of(const std::vector<WorkerResult>& workers, std::size_t step) {
  Timeline timeline;
  timeline.engine = "real run";
  std::int64_t zero = 0;
  for (const WorkerResult& worker : workers)
    zero = zero == 0 ? worker.steps.at(step).began : std::min(zero, worker.steps.at(step).began);
  const auto shifted = [zero](Time at) { return Time{at.value - zero}; };
  for (const WorkerResult& worker : workers) {
    const WorkerStep& from = worker.steps.at(step);
    LaneTimes times;
    for (const Span& span : from.times.compute)
      times.compute.push_back({shifted(span.start), shifted(span.end)});
    for (const Span& span : from.times.collective)
      times.collective.push_back({shifted(span.start), shifted(span.end)});
    for (const auto& list : {times.compute, times.collective})
      for (const Span& span : list)
        timeline.makespan = std::max(timeline.makespan, span.end);
    timeline.workers.push_back(std::move(times));
    for (Transfer transfer : from.transfers) {
      for (Time* const at : {&transfer.posted, &transfer.start, &transfer.sent, &transfer.arrived})
        *at = shifted(*at);
      timeline.transfers.push_back(transfer);
    }
  }
  return timeline;
}

double loss_of(const std::vector<WorkerResult>& workers, std::size_t step) {
  double sum = 0;
  std::int64_t samples = 0;
  for (const WorkerResult& worker : workers)
    sum += worker.steps.at(step).loss, samples += worker.steps.at(step).samples;
  return samples > 0 ? sum / static_cast<double>(samples) : 0;
}

}  // namespace pipewright
