#include "runtime/sequential.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "core/plan/op_index.hpp"
#include "runtime/interpreter.hpp"

namespace pipewright {
namespace {

std::byte* aligned(std::vector<std::byte>& storage, std::int64_t bytes, std::int64_t alignment) {
  storage.assign(static_cast<std::size_t>(bytes + alignment), std::byte{});
  const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
  const auto unit = static_cast<std::uintptr_t>(alignment);
  return storage.data() + (unit - address % unit) % unit;
}

// Every virtual stage in one place, no arena and no transport: blocks come from the heap.
class Sequential {
 public:
  Sequential(const RunPlan& run, Backend& backend, const Data& data, const RunSettings& settings)
      : run_(run), backend_(backend), data_(data), settings_(settings), interpreter_(backend) {
    for (const ChunkCode& code : run.code) {
      weights_.emplace_back(), storage_.emplace_back();
      weights_.back() = aligned(storage_.back(), code.parameter_bytes, run.alignment.value);
      set_initial_weights(code, settings.seed, weights_.back());
    }
  }

  std::vector<std::vector<float>> weights_after_a_step() {
    const Schedule& schedule = *run_.schedule;
    const auto workers = static_cast<std::size_t>(run_.plan->workers());
    versions_.resize(run_.code.size()), states_.resize(run_.code.size());
    for (std::size_t v = 0; v < run_.code.size(); ++v)
      versions_[v].push_back(block_of(v, weights_[v]));
    std::vector<std::size_t> next(workers);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t w = 0; w < workers; ++w) {
        const auto position = w % schedule.positions.size();
        const auto& ops = schedule.positions[position].compute;
        while (next[w] < ops.size() && done(static_cast<WorkerId>(w), ops[next[w]], run_.versions[position][next[w]]))
          ++next[w], moved = true;
      }
    }
    for (std::size_t w = 0; w < workers; ++w)
      PP_CHECK(next[w] == schedule.positions[w % schedule.positions.size()].compute.size());
    std::vector<std::vector<float>> last;
    for (std::size_t v = 0; v < run_.code.size(); ++v)
      last.push_back(values_of(v, versions_[v].back()));
    return last;
  }

  std::vector<std::vector<float>> gradients() {
    std::vector<std::vector<float>> sums(run_.code.size());
    for (CopyId copy = 0; copy < run_.plan->data_parallel; ++copy) {
      frames_.clear();
      const auto micro_batches = static_cast<MicroBatchId>(run_.plan->micro_batches);
      for (MicroBatchId m = 0; m < micro_batches; ++m)
        for (std::size_t v = 0; v < run_.code.size(); ++v)
          follow(copy, v, m, run_.code[v].forward, nullptr);
      for (std::size_t v = run_.code.size(); v-- > 0;)
        add_copy(copy, v, sums[v]);
    }
    return sums;
  }

 private:
  struct Held {
    Frame frame;
    std::map<int, std::vector<std::byte>> blocks;
  };

  // Backwards of a virtual stage in the order of its workers' lists, each worker's sum apart.
  void add_copy(CopyId copy, std::size_t v, std::vector<float>& sum) {
    const StageId stage = run_.plan->stage_of(static_cast<int>(v));
    const PositionId first = first_position(run_.schedule->shape, stage);
    for (int r = 0; r < run_.schedule->shape.replicas_of(stage); ++r) {
      std::vector<std::byte> storage;
      std::byte* const own = aligned(storage, run_.code[v].parameter_bytes, run_.alignment.value);
      for (const Op& op : run_.schedule->positions[static_cast<std::size_t>(first + r)].compute)
        if (op.virtual_stage == v && (op.kind == Kind::BW || op.kind == Kind::W))
          follow(copy, v, static_cast<MicroBatchId>(op.micro_batch), run_.code[v].backward, own);
      std::vector<float> mine(static_cast<std::size_t>(run_.code[v].parameter_bytes / 4));
      std::memcpy(mine.data(), own, mine.size() * sizeof(float));
      if (sum.empty())
        sum = std::move(mine);
      else
        for (std::size_t i = 0; i < sum.size(); ++i)
          sum[i] += mine[i];
    }
  }

  // ---- any schedule, op by op

  struct Block {
    std::vector<std::byte> storage;
    std::byte* at = nullptr;
  };
  Block block_of(std::size_t v, const std::byte* from = nullptr) const {
    Block block;
    block.at = aligned(block.storage, run_.code[v].parameter_bytes, run_.alignment.value);
    if (from != nullptr) std::memcpy(block.at, from, static_cast<std::size_t>(run_.code[v].parameter_bytes));
    return block;
  }
  std::vector<float> values_of(std::size_t v, const Block& block) const {
    std::vector<float> values(static_cast<std::size_t>(run_.code[v].parameter_bytes / 4));
    std::memcpy(values.data(), block.at, values.size() * sizeof(float));
    return values;
  }
  int round_of(const Op& op) const {
    if (run_.schedule->flush) return 0;
    return static_cast<int>(op.micro_batch) / run_.schedule->shape.replicas_of(run_.plan->stage_of(op.virtual_stage));
  }

  // Does the op if what it needs is there.
  bool done(WorkerId worker, const Op& op, const OpVersions& versions) {
    const auto v = static_cast<std::size_t>(op.virtual_stage);
    const CopyId copy = worker / run_.plan->positions();
    const auto m = static_cast<MicroBatchId>(op.micro_batch);
    if (op.kind == Kind::Update) return updated(v, static_cast<int>(op.micro_batch));
    const bool again = recomputed(run_.schedule->shape, op.virtual_stage, m);
    const std::vector<Instruction>& line = run_.code[v].line(op.kind, again);
    for (const Instruction& i : line)
      if (i.verb == Verb::Receive && !arrived(i, run_.code[v], copy, m)) return false;
    weights_[v] = versions_[v].at(static_cast<std::size_t>(versions.version)).at;
    std::byte* gradients = nullptr;
    if (op.kind == Kind::BW || op.kind == Kind::W || op.kind == Kind::B) {
      Block& block = sums_[{v, round_of(op), worker}];
      if (block.at == nullptr) block = block_of(v);
      gradients = block.at;
    }
    follow(copy, v, m, line, gradients);
    if (op.kind == Kind::BW || op.kind == Kind::W) ++backwards_[{v, round_of(op)}];
    return true;
  }
  bool arrived(const Instruction& i, const ChunkCode& code, CopyId copy, MicroBatchId m) const {
    const Port& port =
        i.forward ? code.in[static_cast<std::size_t>(i.other)] : code.out[static_cast<std::size_t>(i.other)];
    return bases_.find({port.edge, i.forward, copy, m}) != bases_.end();
  }

  // Micro-batches of a round, over all copies.
  int micro_batches_of(std::size_t v, int round) const {
    const auto all = static_cast<int>(run_.plan->micro_batches);
    const int replicas = run_.schedule->shape.replicas_of(run_.plan->stage_of(static_cast<int>(v)));
    const int here = run_.schedule->flush ? all : std::min(replicas, all - round * replicas);
    return here * run_.plan->data_parallel;
  }

  // The sum of a round's gradients, in the order of the workers.
  Block summed(std::size_t v, int round) {
    Block sum;
    for (auto& [key, block] : sums_) {
      if (std::get<0>(key) != v || std::get<1>(key) != round) continue;
      if (sum.at == nullptr) {
        sum = block_of(v, block.at);
        continue;
      }
      for (std::int64_t i = 0; i < run_.code[v].parameter_bytes / 4; ++i)
        reinterpret_cast<float*>(sum.at)[i] += reinterpret_cast<const float*>(block.at)[i];
    }
    return sum.at == nullptr ? block_of(v) : std::move(sum);
  }

  // Rounds are updated in their order, each once, whichever of its members asks first.
  bool updated(std::size_t v, int round) {
    const auto made = static_cast<int>(versions_[v].size()) - 1;
    if (made > round) return true;
    if (made < round || backwards_[{v, round}] < micro_batches_of(v, round)) return false;
    const Block sum = summed(v, round);
    scale(sum.at, run_.code[v].parameter_bytes / 4, run_.gradient_factor(static_cast<int>(v), round));
    while (static_cast<int>(states_[v].size()) < run_.states)
      states_[v].push_back(block_of(v));
    Block after = block_of(v, versions_[v].back().at);
    for (const CodeParameter& parameter : run_.code[v].parameters) {
      std::vector<float*> states;
      for (const Block& state : states_[v])
        states.push_back(reinterpret_cast<float*>(state.at + parameter.offset));
      backend_.update(settings_.optimizer, round + 1, parameter.tensor.elements,
                      reinterpret_cast<const float*>(versions_[v].back().at + parameter.offset),
                      reinterpret_cast<float*>(after.at + parameter.offset),
                      reinterpret_cast<const float*>(sum.at + parameter.offset), states);
    }
    versions_[v].push_back(std::move(after));
    return true;
  }

  void follow(CopyId copy, std::size_t v, MicroBatchId m, const std::vector<Instruction>& line, std::byte* gradients) {
    const ChunkCode& code = run_.code[v];
    const std::size_t size = run_.size_of(m);
    Held& held = frames_[{static_cast<int>(v), copy, m}];
    if (held.frame.at.empty()) held.frame.at.resize(code.blocks.size());
    const std::int64_t samples = run_.plan->samples(m);
    const Interpreter::Place place{&code, &held.frame, size, samples, weights_[v], gradients, run_.loss_scale(m)};
    const std::int64_t first = first_sample(*run_.plan, 0, copy, m);
    for (const Instruction& i : line) {
      const auto b = static_cast<std::size_t>(i.block);
      switch (i.verb) {
        case Verb::Allocate:
          held.frame.at[b] = aligned(held.blocks[i.block], code.blocks[b][size], run_.alignment.value);
          break;
        case Verb::Free: held.blocks.erase(i.block), held.frame.at[b] = nullptr; break;
        case Verb::LoadInput:
          for (std::int64_t s = 0; s < samples; ++s)
            data_.input(first + s, held.frame.at[b] + s * code.sample_values * (code.sample_indices ? 8 : 4));
          break;
        case Verb::LoadLabels:
          for (std::int64_t s = 0; s < samples; ++s)
            data_.labels(first + s, reinterpret_cast<std::int64_t*>(held.frame.at[b]) + s * code.label_rows);
          break;
        case Verb::Receive: receive(i, code, held.frame, copy, m, size); break;
        case Verb::Send: send(i, code, held.frame, copy, m, size); break;
        case Verb::Loss:
        case Verb::Release:
        case Verb::Ready: break;
        default: interpreter_.compute(i, place);
      }
    }
  }

  void receive(const Instruction& i, const ChunkCode& code, Frame& frame, CopyId copy, MicroBatchId m,
               std::size_t size) {
    const Port& port =
        i.forward ? code.in[static_cast<std::size_t>(i.other)] : code.out[static_cast<std::size_t>(i.other)];
    std::byte* const base = bases_.at({port.edge, i.forward, copy, m});
    for (const PortTensor& tensor : port.tensors)
      if (i.forward)
        frame.at[static_cast<std::size_t>(tensor.value)] = base + tensor.offset[size];
      else if (tensor.gradient >= 0)
        frame.at[static_cast<std::size_t>(tensor.gradient)] = base + tensor.gradient_offset[size];
  }
  void send(const Instruction& i, const ChunkCode& code, Frame& frame, CopyId copy, MicroBatchId m, std::size_t size) {
    const Port& port =
        i.forward ? code.out[static_cast<std::size_t>(i.other)] : code.in[static_cast<std::size_t>(i.other)];
    std::byte* const base = bases_[{port.edge, i.forward, copy, m}] =
        aligned(messages_[{port.edge, i.forward, copy, m}], (i.forward ? port.bytes : port.gradient_bytes)[size],
                run_.alignment.value);
    for (const PortTensor& tensor : port.tensors)
      if (const int block = i.forward ? tensor.value : tensor.gradient; block >= 0)
        std::memcpy(base + (i.forward ? tensor.offset[size] : tensor.gradient_offset[size]),
                    frame.at[static_cast<std::size_t>(block)], static_cast<std::size_t>(tensor.bytes[size]));
  }

  using MessageKey = std::tuple<int, bool, CopyId, MicroBatchId>;
  const RunPlan& run_;
  Backend& backend_;
  const Data& data_;
  const RunSettings& settings_;
  Interpreter interpreter_;
  std::vector<std::byte*> weights_;
  std::vector<std::vector<std::byte>> storage_;
  std::map<std::tuple<int, CopyId, MicroBatchId>, Held> frames_;
  std::map<MessageKey, std::vector<std::byte>> messages_;
  std::map<MessageKey, std::byte*> bases_;
  // Any schedule: weights by version, optimizer states, gradients by round and worker, how many backwards they hold.
  std::vector<std::vector<Block>> versions_, states_;
  std::map<std::tuple<std::size_t, int, WorkerId>, Block> sums_;
  std::map<std::pair<std::size_t, int>, int> backwards_;
};

}  // namespace

std::vector<std::vector<float>> sequential_gradients(const RunPlan& run,
                                                     const std::function<std::unique_ptr<Backend>()>& backend,
                                                     const Data& data, const RunSettings& settings) {
  PP_CHECK(run.schedule->flush);
  const std::unique_ptr<Backend> device = backend();
  return Sequential(run, *device, data, settings).gradients();
}

std::vector<std::vector<float>> sequential_weights(const RunPlan& run,
                                                   const std::function<std::unique_ptr<Backend>()>& backend,
                                                   const Data& data, const RunSettings& settings) {
  const std::unique_ptr<Backend> device = backend();
  return Sequential(run, *device, data, settings).weights_after_a_step();
}

}  // namespace pipewright
