#include "runtime/sequential.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "core/plan/op_index.hpp"
#include "runtime/interpreter.hpp"

namespace pipewright {
namespace {

// Every virtual stage in one place, no arena and no transport: every block has memory of its own.
class Sequential {
 public:
  Sequential(const RunPlan& run, Backend& backend, const Data& data, const RunSettings& settings)
      : run_(run),
        backend_(backend),
        mover_(backend.mover(false)),
        data_(data),
        samples_(sample_shape(run.code)),
        settings_(settings),
        interpreter_(backend) {
    for (const ChunkCode& code : run.code) {
      masters_.push_back(zeros(code.gradient_bytes));
      draw_weights(code, settings.seed, *mover_, masters_.back().at());
      initial_.push_back(stored_of(code, masters_.back()));
      weights_.push_back(initial_.back().at());
    }
  }

  std::vector<std::vector<float>> weights_after_a_step() {
    const Schedule& schedule = *run_.schedule;
    const auto workers = static_cast<std::size_t>(run_.plan->workers());
    versions_.resize(run_.code.size()), states_.resize(run_.code.size()), stored_.resize(run_.code.size());
    for (std::size_t v = 0; v < run_.code.size(); ++v) {
      versions_[v].push_back(copy_of(v, masters_[v].at()));
      stored_[v].push_back(stored_of(run_.code[v], masters_[v]));
    }
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

  double loss() {
    double sum = 0;
    for (CopyId copy = 0; copy < run_.plan->data_parallel; ++copy) {
      for (MicroBatchId m = 0; m < static_cast<MicroBatchId>(run_.plan->micro_batches); ++m)
        for (std::size_t v = 0; v < run_.code.size(); ++v)
          follow(copy, v, m, run_.code[v].forward, nullptr);
      for (const Lane& lane : run_.schedule->positions) {
        double mine = 0;
        for (const Op& op : lane.compute)
          if (op.kind == Kind::F && run_.code[op.virtual_stage].label_rows > 0)
            for (const float value : losses_.at({copy, static_cast<MicroBatchId>(op.micro_batch)}))
              mine += static_cast<double>(value);
        sum += mine;
      }
    }
    return sum / static_cast<double>(run_.plan->global_batch_size);
  }

  std::vector<std::vector<float>> gradients() {
    std::vector<std::vector<float>> sums(run_.code.size());
    for (CopyId copy = 0; copy < run_.plan->data_parallel; ++copy) {
      backend_.finish();
      frames_.clear();
      const auto micro_batches = static_cast<MicroBatchId>(run_.plan->micro_batches);
      for (MicroBatchId m = 0; m < micro_batches; ++m)
        for (std::size_t v = 0; v < run_.code.size(); ++v)
          follow(copy, v, m, run_.code[v].forward, nullptr);
      for (std::size_t v = run_.code.size(); v-- > 0;)
        add_copy(copy, v, sums[v]);
    }
    for (std::size_t v = 0; v < sums.size(); ++v)
      for (float& sum : sums[v])
        sum *= run_.gradient_factor(static_cast<int>(v), 0);
    return sums;
  }

 private:
  // Memory of the backend, or nothing.
  struct Block {
    std::unique_ptr<DeviceMemory> memory;
    std::byte* at() const { return memory == nullptr ? nullptr : memory->base(); }
  };
  Block zeros(std::int64_t bytes) const {
    Block block{backend_.reserve({bytes})};
    backend_.zero(block.at(), {bytes});
    return block;
  }
  // In fp32: gradients, states, weights as they are updated.
  Block zeros_of(std::size_t v) const { return zeros(run_.code[v].gradient_bytes); }
  Block copy_of(std::size_t v, const std::byte* from) const {
    Block block = zeros_of(v);
    backend_.copy(block.at(), from, {run_.code[v].gradient_bytes});
    return block;
  }
  // Weights as layers read them.
  Block stored_of(const ChunkCode& code, const Block& master) const {
    Block block = zeros(code.parameter_bytes);
    if (code.has_masters())
      store_weights(backend_, code, master.at(), block.at());
    else
      backend_.copy(block.at(), master.at(), {code.parameter_bytes});
    backend_.finish();
    return block;
  }
  std::vector<float> values_of(std::size_t v, const Block& block) const {
    std::vector<float> values(static_cast<std::size_t>(run_.code[v].gradient_bytes / 4));
    mover_->download(values.data(), block.at(), {run_.code[v].gradient_bytes});
    return values;
  }

  struct Held {
    Frame frame;
    std::map<int, Block> blocks;
  };

  // Backwards of a virtual stage in the order of its workers' lists, each worker's sum apart.
  void add_copy(CopyId copy, std::size_t v, std::vector<float>& sum) {
    const StageId stage = run_.plan->stage_of(static_cast<int>(v));
    const PositionId first = first_position(run_.schedule->shape, stage);
    for (int r = 0; r < run_.schedule->shape.replicas_of(stage); ++r) {
      const Block own = zeros_of(v);
      for (const Op& op : run_.schedule->positions[static_cast<std::size_t>(first + r)].compute)
        if (op.virtual_stage == v && (op.kind == Kind::BW || op.kind == Kind::W))
          follow(copy, v, static_cast<MicroBatchId>(op.micro_batch), run_.code[v].backward, own.at());
      std::vector<float> mine = values_of(v, own);
      if (sum.empty())
        sum = std::move(mine);
      else
        for (std::size_t i = 0; i < sum.size(); ++i)
          sum[i] += mine[i];
    }
  }

  // ---- any schedule, op by op

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
    weights_[v] = stored_[v].at(static_cast<std::size_t>(versions.version)).at();
    std::byte* gradients = nullptr;
    if (op.kind == Kind::BW || op.kind == Kind::W || op.kind == Kind::B) {
      Block& block = sums_[{v, round_of(op), worker}];
      if (block.memory == nullptr) block = zeros_of(v);
      gradients = block.at();
    }
    follow(copy, v, m, line, gradients);
    if (op.kind == Kind::BW || op.kind == Kind::W) ++backwards_[{v, round_of(op)}];
    return true;
  }
  bool arrived(const Instruction& i, const ChunkCode& code, CopyId copy, MicroBatchId m) const {
    const Port& port =
        i.forward ? code.in[static_cast<std::size_t>(i.other)] : code.out[static_cast<std::size_t>(i.other)];
    return messages_.find({port.edge, i.forward, copy, m}) != messages_.end();
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
      if (sum.memory == nullptr) {
        sum = copy_of(v, block.at());
        continue;
      }
      backend_.add(reinterpret_cast<float*>(sum.at()), reinterpret_cast<const float*>(block.at()),
                   run_.code[v].gradient_bytes / 4);
    }
    return sum.memory == nullptr ? zeros_of(v) : std::move(sum);
  }

  // Rounds are updated in their order, each once, whichever of its members asks first.
  bool updated(std::size_t v, int round) {
    const auto made = static_cast<int>(versions_[v].size()) - 1;
    if (made > round) return true;
    if (made < round || backwards_[{v, round}] < micro_batches_of(v, round)) return false;
    const Block sum = summed(v, round);
    backend_.scale(reinterpret_cast<float*>(sum.at()), run_.code[v].gradient_bytes / 4,
                   run_.gradient_factor(static_cast<int>(v), round));
    while (static_cast<int>(states_[v].size()) < run_.states)
      states_[v].push_back(zeros_of(v));
    Block after = copy_of(v, versions_[v].back().at());
    std::vector<UpdatedParameter> updated;
    for (const CodeParameter& parameter : run_.code[v].parameters) {
      updated.push_back({parameter.tensor.elements,
                         reinterpret_cast<const float*>(versions_[v].back().at() + parameter.offset),
                         reinterpret_cast<float*>(after.at() + parameter.offset),
                         reinterpret_cast<const float*>(sum.at() + parameter.offset)});
      for (std::size_t s = 0; s < states_[v].size(); ++s)
        updated.back().states[s] = reinterpret_cast<float*>(states_[v][s].at() + parameter.offset);
    }
    backend_.update(settings_.optimizer, round + 1, updated);
    backend_.finish();
    stored_[v].push_back(stored_of(run_.code[v], after));
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
          held.blocks[i.block] = zeros(code.blocks[b][size]);
          held.frame.at[b] = held.blocks[i.block].at();
          break;
        case Verb::Free:
          backend_.finish();  // it may still read there
          held.blocks.erase(i.block), held.frame.at[b] = nullptr;
          break;
        case Verb::LoadInput:
          upload(held.frame.at[b], samples * sample_bytes(code), [&](std::byte* to) {
            for (std::int64_t s = 0; s < samples; ++s)
              store_sample(code, run_.precision, data_, samples_, first + s, to + s * sample_bytes(code));
          });
          break;
        case Verb::LoadLabels:
          upload(held.frame.at[b], samples * code.label_rows * 8, [&](std::byte* to) {
            for (std::int64_t s = 0; s < samples; ++s)
              read_labels(data_, samples_, first + s, reinterpret_cast<std::int64_t*>(to) + s * code.label_rows);
          });
          break;
        case Verb::Receive: receive(i, code, held.frame, copy, m, size); break;
        case Verb::Send: send(i, code, held.frame, copy, m, size); break;
        case Verb::Loss: {
          std::vector<float>& losses = losses_[{copy, m}];
          losses.resize(static_cast<std::size_t>(samples));
          mover_->download(losses.data(), held.frame.at[b], {samples * 4});
          break;
        }
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
    std::byte* const base = messages_.at({port.edge, i.forward, copy, m}).at();
    for (const PortTensor& tensor : port.tensors)
      if (i.forward)
        frame.at[static_cast<std::size_t>(tensor.value)] = base + tensor.offset[size];
      else if (tensor.gradient >= 0)
        frame.at[static_cast<std::size_t>(tensor.gradient)] = base + tensor.gradient_offset[size];
  }
  void send(const Instruction& i, const ChunkCode& code, Frame& frame, CopyId copy, MicroBatchId m, std::size_t size) {
    const Port& port =
        i.forward ? code.out[static_cast<std::size_t>(i.other)] : code.in[static_cast<std::size_t>(i.other)];
    Block& message = messages_[{port.edge, i.forward, copy, m}];
    message = zeros((i.forward ? port.bytes : port.gradient_bytes)[size]);
    std::byte* const base = message.at();
    for (const PortTensor& tensor : port.tensors)
      if (const int block = i.forward ? tensor.value : tensor.gradient; block >= 0)
        backend_.copy(base + (i.forward ? tensor.offset[size] : tensor.gradient_offset[size]),
                      frame.at[static_cast<std::size_t>(block)], {tensor.bytes[size]});
  }

  // What `fill` writes.
  template <class Fill>
  void upload(std::byte* to, std::int64_t bytes, const Fill& fill) {
    std::vector<std::byte> from(static_cast<std::size_t>(bytes));
    fill(from.data());
    mover_->upload(to, from.data(), {bytes});
  }

  using MessageKey = std::tuple<int, bool, CopyId, MicroBatchId>;
  const RunPlan& run_;
  Backend& backend_;
  std::unique_ptr<Mover> mover_;
  const Data& data_;
  SampleShape samples_;
  const RunSettings& settings_;
  Interpreter interpreter_;
  std::vector<Block> masters_, initial_;
  std::vector<std::byte*> weights_;
  std::map<std::tuple<int, CopyId, MicroBatchId>, Held> frames_;
  std::map<MessageKey, Block> messages_;
  std::map<std::pair<CopyId, MicroBatchId>, std::vector<float>> losses_;  // of its samples
  // Any schedule: weights by version as they are updated and as they are read, optimizer states, gradients by round and
  // worker, how many backwards they hold.
  std::vector<std::vector<Block>> versions_, stored_, states_;
  std::map<std::tuple<std::size_t, int, WorkerId>, Block> sums_;
  std::map<std::pair<std::size_t, int>, int> backwards_;
};

}  // namespace

std::vector<std::vector<float>> sequential_gradients(const RunPlan& run, const BackendMaker& backend, const Data& data,
                                                     const RunSettings& settings) {
  PP_CHECK(run.schedule->flush);
  const std::unique_ptr<Backend> device = backend();
  return Sequential(run, *device, data, settings).gradients();
}

double sequential_loss(const RunPlan& run, const BackendMaker& backend, const Data& data, const RunSettings& settings) {
  PP_CHECK(run.schedule->flush);
  const std::unique_ptr<Backend> device = backend();
  return Sequential(run, *device, data, settings).loss();
}

std::vector<std::vector<float>> sequential_weights(const RunPlan& run, const BackendMaker& backend, const Data& data,
                                                   const RunSettings& settings) {
  const std::unique_ptr<Backend> device = backend();
  return Sequential(run, *device, data, settings).weights_after_a_step();
}

}  // namespace pipewright
