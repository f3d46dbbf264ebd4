#include "runtime/sequential.hpp"

#include <algorithm>

#include "core/plan/op_index.hpp"

namespace pipewright::runtime {
namespace {

// The first term of an empty sum.
void add_term(std::vector<float>& sum, const std::vector<float>& term) {
  if (sum.empty())
    sum = term;
  else
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += term[i];
}

}  // namespace

Sequential::Sequential(const RunPlan& run, Backend& backend, const Data& data, const RunSettings& settings)
    : run_(run),
      backend_(backend),
      mover_(backend.mover(MoverFor::Worker)),
      settings_(settings),
      data_(data),
      samples_(sample_shape(run.code)),
      interpreter_(backend) {
  for (const ChunkCode& code : run.code) {
    masters_.push_back(zeros(code.gradient_bytes));
    draw_weights(code, settings.seed, *mover_, masters_.back().at());
    initial_.push_back(stored_of(code, masters_.back()));
    weights_.push_back(initial_.back().at());
    for (int device = 1; device < run.plan->expert_parallel; ++device) {
      if (device == 1) of_experts_.emplace_back();
      const Block drawn = zeros(code.gradient_bytes);
      draw_weights(code, settings.seed, *mover_, drawn.at(), device);
      of_experts_.back().push_back(stored_of(code, drawn));
    }
  }
}

std::vector<std::vector<float>> Sequential::gradients(int expert_device) {
  std::vector<Rounds> rounds(run_.code.size());
  for (CopyId copy = 0; copy < run_.plan->copies(); copy += together()) {
    begin(0);
    for (MicroBatchId m = 0; m < run_.schedule->shape.micro_batches; ++m)
      for (std::size_t v = 0; v < run_.code.size(); ++v)
        follow(copy, v, m, run_.code[v].forward, {});
    for (std::size_t v = run_.code.size(); v-- > 0;)
      add_copies(copy, v, expert_device, rounds[v]);
  }
  std::vector<std::vector<float>> sums;
  for (std::size_t v = 0; v < rounds.size(); ++v) {
    sums.push_back(rounds[v].front());
    for (std::size_t round = 1; round < rounds[v].size(); ++round)
      add_term(sums[v], rounds[v][round]);
    for (float& sum : sums[v])
      sum *= run_.gradient_factor(static_cast<int>(v), 0);
  }
  return sums;
}

void Sequential::begin(std::int64_t step) {
  backend_.finish();
  step_ = step, frames_.clear(), messages_.clear();
}

Sequential::Block Sequential::zeros(std::int64_t bytes) const {
  Block block{backend_.reserve({bytes})};
  backend_.zero(block.at(), {bytes});
  return block;
}

Sequential::Block Sequential::copy_of(std::size_t v, const std::byte* from) const {
  Block block = zeros_of(v);
  backend_.copy(block.at(), from, {run_.code[v].gradient_bytes});
  return block;
}

Sequential::Block Sequential::stored_of(const ChunkCode& code, const Block& master) const {
  Block block = zeros(code.parameter_bytes);
  if (code.has_masters())
    store_weights(backend_, code, master.at(), block.at());
  else
    backend_.copy(block.at(), master.at(), {code.parameter_bytes});
  backend_.finish();
  return block;
}

std::vector<float> Sequential::values_of(std::size_t v, const Block& block) const {
  std::vector<float> values(at(run_.code[v].gradient_bytes / 4));
  mover_->download(values.data(), block.at(), {run_.code[v].gradient_bytes});
  return values;
}

// Gradients of experts that others hold count nothing.
std::vector<float> Sequential::without_other_experts(std::size_t v, std::vector<float> values, bool own) const {
  if (run_.plan->expert_parallel == 1 || own) return values;
  for (const RunPlan::Stretch& one : run_.stretches(static_cast<VirtualStageId>(v), 0, run_.code[v].gradient_bytes))
    if (one.of_experts) std::fill(values.begin() + one.begin / 4, values.begin() + one.end / 4, 0.0f);
  return values;
}

// Backwards of a virtual stage in the order of its workers' lists, each worker's sum apart: of one copy, or of those that
// share its sequences, or hold the experts between them.
void Sequential::add_copies(CopyId first, std::size_t v, int expert_device, Rounds& sums) {
  const Seating seating = run_.schedule->seating();
  const auto chunk = static_cast<VirtualStageId>(v);
  const auto copies = at(together());
  const bool each = run_.schedule->shape.reduce_each;
  std::vector<Rounds> closed(copies);  // by copy, holder after holder
  std::vector<std::size_t> begins;     // of each holder among them
  for (int holder = 0; holder < seating.holders(chunk); ++holder) {
    std::vector<Block> own(copies);
    std::vector<std::byte*> to(copies);
    const auto open = [&] {
      for (std::size_t i = 0; i < copies; ++i)
        own[i] = zeros_of(v), to[i] = own[i].at();
    };
    const auto close = [&] {
      for (std::size_t i = 0; i < copies; ++i)
        closed[i].push_back(without_other_experts(v, values_of(v, own[i]), static_cast<int>(i) == expert_device));
    };
    begins.push_back(closed[0].size());
    open();
    for (const Op& op : run_.schedule->positions[seating.position(chunk, holder)].compute) {
      if (op.virtual_stage != v || !rule(op.kind).gradients) continue;
      follow(first, v, static_cast<MicroBatchId>(op.micro_batch), run_.code[v].backward, to);
      if (each) close(), open();
    }
    if (!each) close();
  }
  begins.push_back(closed[0].size());
  for (const Rounds& copy : closed)
    for (std::size_t holder = 0; holder + 1 < begins.size(); ++holder)
      for (std::size_t i = begins[holder]; i < begins[holder + 1]; ++i) {
        sums.resize(std::max(sums.size(), i - begins[holder] + 1));
        add_term(sums[i - begins[holder]], copy[i]);
      }
}

// What `fill` writes.
template <class Fill>
void Sequential::upload(std::byte* to, std::int64_t bytes, const Fill& fill) {
  std::vector<std::byte> from(at(bytes));
  fill(from.data());
  mover_->upload(to, from.data(), {bytes});
}

void Sequential::follow(CopyId first, std::size_t v, MicroBatchId m, const std::vector<Instruction>& line,
                        const std::vector<std::byte*>& gradients) {
  const ChunkCode& code = run_.code[v];
  std::vector<Interpreter::Place> places;
  for (int i = 0; i < together(); ++i) {
    const CopyId copy = first + i;
    Frame& frame = frames_[{static_cast<int>(v), copy, m}].frame;
    if (frame.at.empty()) frame.at.resize(code.blocks.size());
    const int device = run_.expert_device(copy);
    const std::byte* const weights = device == 0 ? weights_[v] : of_experts_[v][at(device) - 1].at();
    places.push_back({&code, &frame, run_.size_of(m), run_.samples(m), weights,
                      gradients.empty() ? nullptr : gradients[at(i)], run_.loss_scale(m), run_.part(copy, m)});
    const int slices = run_.schedule->shape.slices;
    for (MicroBatchId slice = m / slices * slices; slices > 1 && slice <= m; ++slice)
      places.back().slices.push_back(&frames_[{static_cast<int>(v), copy, slice}].frame);
  }
  for (const Instruction& i : line)
    for (int part = 0; part < together(); ++part)
      follow(i, places[at(part)], first + part, v, m);
}

void Sequential::follow(const Instruction& i, const Interpreter::Place& place, CopyId copy, std::size_t v,
                        MicroBatchId m) {
  const ChunkCode& code = *place.code;
  const std::size_t size = place.size;
  Held& held = frames_.at({static_cast<int>(v), copy, m});
  const auto b = at(i.block);
  const std::int64_t first = first_sample(*run_.plan, step_, copy, m);
  switch (i.verb) {
    case Verb::Allocate:
      held.blocks[i.block] = zeros(code.blocks[b][size]);
      held.frame.at[b] = held.blocks[i.block].at();
      break;
    case Verb::Free:
      backend_.finish();  // it may still read there
      held.blocks.erase(i.block), held.frame.at[b] = nullptr;
      break;
    case Verb::AllocateForAll:
      for (MicroBatchId slice = m - place.part.number; slice <= m; ++slice)
        if (Held& of = frames_.at({static_cast<int>(v), copy, slice}); of.frame.at[b] == nullptr) {
          of.blocks[i.block] = zeros(code.blocks[b][size]);
          of.frame.at[b] = of.blocks[i.block].at();
        }
      break;
    case Verb::LoadInput:
      upload(held.frame.at[b], place.samples * sample_bytes(code), [&](std::byte* to) {
        for (std::int64_t s = 0; s < place.samples; ++s)
          store_sample(code, run_.precision, data_, samples_, place.part, first + s, to + s * sample_bytes(code));
      });
      break;
    case Verb::LoadLabels:
      upload(held.frame.at[b], place.samples * code.label_rows * 8, [&](std::byte* to) {
        for (std::int64_t s = 0; s < place.samples; ++s)
          store_labels(code, data_, samples_, place.part, first + s,
                       reinterpret_cast<std::int64_t*>(to) + s * code.label_rows);
      });
      break;
    case Verb::Receive: receive(i, code, held.frame, copy, m, size); break;
    case Verb::Send: send(i, code, held.frame, copy, m, size); break;
    case Verb::RingSend: {
      const int next = (place.part.number + 1) % place.part.of;
      Held& to = frames_.at({static_cast<int>(v), copy - place.part.number + next, m});
      to.sent_on = zeros(code.part.ring_bytes[size]);
      send_on(i, code, held.frame.at[b], size, to.sent_on.at());
      break;
    }
    case Verb::RingReceive:
      held.arrived = std::move(held.sent_on);
      held.frame.at[b] = held.arrived.at();
      break;
    case Verb::ExchangeSend:
    case Verb::ExchangeReceive: exchange(i, place, copy, v, m); break;
    case Verb::Loss: {
      std::vector<float>& losses = losses_[{copy, m}];
      losses.resize(at(place.samples));
      mover_->download(losses.data(), held.frame.at[b], {place.samples * 4});
      break;
    }
    case Verb::Release:
    case Verb::RingRelease:
    case Verb::Ready: break;
    default: interpreter_.compute(i, place);
  }
}

void Sequential::send_on(const Instruction& i, const ChunkCode& code, const std::byte* block, std::size_t size,
                         std::byte* to) {
  const RingStep& ring = code.steps[at(i.step)].ring;
  for (const Piece& piece : pieces_of(ring, static_cast<RingPart>(i.other), block, size))
    backend_.copy(to + piece.offset, piece.from, {piece.bytes});
}

void Sequential::exchange(const Instruction& i, const Interpreter::Place& place, CopyId copy, std::size_t v,
                          MicroBatchId m) {
  const ChunkCode& code = *place.code;
  const CodeStep& step = code.steps[at(i.step)];
  const auto devices = static_cast<int>(step.exchange()->devices);
  const int self = run_.expert_device(copy);
  const bool out = step.exchange()->back != i.forward;
  std::byte* const from = place.frame->at[at(i.block)];
  std::byte* const to = place.frame->at[at(i.other)];
  const auto runs = [&](bool received, int peer) {
    return exchange_runs(step, out, received, peer, place.samples, code.value_bytes);
  };
  if (i.verb == Verb::ExchangeSend) move_own(backend_, runs(false, self), from, runs(true, self), to);
  for (int peer = 0; peer < devices; ++peer) {
    if (peer == self) continue;
    Held& other = frames_.at({static_cast<int>(v), copy - self + peer, m});
    if (i.verb == Verb::ExchangeSend) {
      Block& message = other.sent_by[self] = zeros(code.exchange_bytes[place.size]);
      for (const ExchangeRun& run : runs(false, peer))
        backend_.copy(message.at() + run.in_message, from + run.in_block, {run.bytes});
    } else {
      const Block message = std::move(frames_.at({static_cast<int>(v), copy, m}).sent_by.at(peer));
      for (const ExchangeRun& run : runs(true, peer))
        backend_.copy(to + run.in_block, message.at() + run.in_message, {run.bytes});
    }
  }
}

void Sequential::receive(const Instruction& i, const ChunkCode& code, Frame& frame, CopyId copy, MicroBatchId m,
                         std::size_t size) {
  const Port& port = i.forward ? code.in[at(i.other)] : code.out[at(i.other)];
  std::byte* const base = messages_.at({port.edge, i.forward, copy, m}).at();
  for (const PortTensor& tensor : port.tensors)
    if (i.forward)
      frame.at[at(tensor.value)] = base + tensor.offset[size];
    else if (tensor.gradient >= 0)
      frame.at[at(tensor.gradient)] = base + tensor.gradient_offset[size];
}

void Sequential::send(const Instruction& i, const ChunkCode& code, Frame& frame, CopyId copy, MicroBatchId m,
                      std::size_t size) {
  const Port& port = i.forward ? code.out[at(i.other)] : code.in[at(i.other)];
  Block& message = messages_[{port.edge, i.forward, copy, m}];
  message = zeros((i.forward ? port.bytes : port.gradient_bytes)[size]);
  std::byte* const base = message.at();
  for (const PortTensor& tensor : port.tensors)
    if (const int block = i.forward ? tensor.value : tensor.gradient; block >= 0)
      backend_.copy(base + (i.forward ? tensor.offset[size] : tensor.gradient_offset[size]), frame.at[at(block)],
                    {tensor.bytes[size]});
}

std::vector<std::vector<float>> sequential_gradients(const RunPlan& run, const BackendMaker& backend, const Data& data,
                                                     const RunSettings& settings, int expert_device) {
  PP_CHECK(run.schedule->flush);
  const std::unique_ptr<Backend> device = backend();
  return Sequential(run, *device, data, settings).gradients(expert_device);
}

}  // namespace pipewright::runtime
