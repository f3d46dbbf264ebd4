#include "runtime/interpreter.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <thread>

#include "core/check.hpp"
#include "kernels/storage.hpp"
#include "runtime/measurement.hpp"

namespace pipewright::runtime {
namespace {

std::int64_t samples_of_copy(const Plan& plan) {
  return (plan.micro_batches - 1) * plan.micro_batch_size + plan.last_micro_batch_size;
}

template <class T>
void store_as(const std::vector<float>& values, std::byte* to) {
  T* const stored = reinterpret_cast<T*>(to);
  for (std::size_t i = 0; i < values.size(); ++i)
    stored[i] = T(values[i]);
}

constexpr std::int64_t kDrawnAtOnce = 1 << 22;     // values: 16 MiB, some 25 ms of one core
constexpr std::int64_t kLeastPerThread = 1 << 15;  // starting a thread takes less
constexpr std::int64_t kMostThreads = 16;

// Values `begin`, `begin + 1`, ... of a tensor.
void draw(const CodeParameter& parameter, std::uint64_t seed, int number, std::int64_t begin, std::span<float> to) {
  const auto fill = [&, begin](std::int64_t from, std::int64_t end) {
    for (std::int64_t i = from; i < end; ++i)
      to[static_cast<std::size_t>(i)] = initial_value(parameter.tensor, seed, parameter.layer, number, begin + i);
  };
  const std::int64_t values = std::ssize(to);
  const std::int64_t parts =
      std::clamp<std::int64_t>(values / kLeastPerThread, 1, std::min<std::int64_t>(kMostThreads, available_cores()));
  std::vector<std::jthread> others;
  for (std::int64_t p = 1; p < parts; ++p)
    others.emplace_back(fill, values * p / parts, values * (p + 1) / parts);
  fill(0, values / parts);
}

}  // namespace

std::vector<Piece> pieces_of(const RingStep& ring, RingPart part, const std::byte* block, std::size_t size) {
  std::vector<Piece> pieces;
  if (part != RingPart::Gradients) pieces.push_back({block, 0, ring.bytes[size]});
  if (part != RingPart::Keys)
    pieces.push_back({block + ring.gradients_at, pieces.empty() ? 0 : ring.gradients_at, ring.bytes[size]});
  return pieces;
}

std::int64_t first_sample(const Plan& plan, std::int64_t step, CopyId copy, MicroBatchId m) {
  const std::int64_t micro_batch = m / plan.slices_of_each();
  return (step * plan.data_parallel + copy / plan.context_parallel) * samples_of_copy(plan) +
         micro_batch * plan.micro_batch_size;
}

std::int64_t sample_bytes(const ChunkCode& code) {
  return code.sample_values * (code.sample_indices ? 8 : code.value_bytes);
}

// Of a sequence, what belongs to a part.
void take_part(const ContextPart& part, std::span<const std::byte> sequence, std::int64_t tokens, std::byte* to) {
  const std::int64_t token = std::ssize(sequence) / (tokens * part.of);
  for (const TokenRange& range : ranges(part, tokens))
    std::copy_n(sequence.begin() + range.in_sequence * token, range.count * token, to + range.here * token);
}

void store_sample(const ChunkCode& code, Precision precision, const Data& data, const SampleShape& shape,
                  const ContextPart& part, std::int64_t sample, std::byte* to) {
  if (part.of > 1) {
    std::vector<std::byte> whole(static_cast<std::size_t>(sample_bytes(code) * part.of));
    read_input(data, shape, sample, whole.data());
    return take_part(part, whole, code.part.tokens, to);
  }
  if (code.sample_indices || code.value_bytes == 4) return read_input(data, shape, sample, to);
  std::vector<float> values(static_cast<std::size_t>(code.sample_values));
  data.input(sample, values.data());
  precision == Precision::Bf16 ? store_as<Bf16>(values, to) : store_as<Fp16>(values, to);
}

void store_labels(const ChunkCode& code, const Data& data, const SampleShape& shape, const ContextPart& part,
                  std::int64_t sample, std::int64_t* to) {
  if (part.of == 1) return read_labels(data, shape, sample, to);
  std::vector<std::int64_t> whole(static_cast<std::size_t>(shape.label_rows));
  read_labels(data, shape, sample, whole.data());
  take_part(part, std::as_bytes(std::span(whole)), code.label_rows, reinterpret_cast<std::byte*>(to));
}

void move_own(Backend& backend, const std::vector<ExchangeRun>& from_runs, const std::byte* from,
              const std::vector<ExchangeRun>& to_runs, std::byte* to) {
  for (std::size_t i = 0; i < from_runs.size(); ++i)
    backend.copy(to + to_runs[i].in_block, from + from_runs[i].in_block, {from_runs[i].bytes});
}

void draw_weights(const ChunkCode& code, std::uint64_t seed, Mover& mover, std::byte* block, int expert_device) {
  std::vector<float> piece;
  std::map<LayerId, int> number;
  for (const CodeParameter& parameter : code.parameters) {
    const int n = number[parameter.layer]++;
    for (std::int64_t begin = 0; begin < parameter.tensor.elements; begin += kDrawnAtOnce) {
      piece.resize(static_cast<std::size_t>(std::min(kDrawnAtOnce, parameter.tensor.elements - begin)));
      const std::int64_t first = parameter.of_experts ? expert_device * parameter.tensor.elements : 0;
      draw(parameter, seed, n, first + begin, piece);
      const std::int64_t size = sizeof(float);
      mover.upload(block + parameter.offset + begin * size, piece.data(), {std::ssize(piece) * size});
    }
  }
}

void store_weights(Backend& backend, const ChunkCode& code, const std::byte* masters, std::byte* weights) {
  for (const CodeParameter& parameter : code.parameters)
    backend.store(reinterpret_cast<const float*>(masters + parameter.offset), weights + parameter.weight_offset,
                  parameter.tensor.elements);
}

StepArguments Interpreter::arguments(const CodeStep& step, const Place& place) {
  const auto& at = place.frame->at;
  const auto block = [&](int b) -> std::byte* { return b < 0 ? nullptr : at[static_cast<std::size_t>(b)]; };
  const auto parameters = static_cast<std::size_t>(step.parameters);
  inputs_.resize(step.inputs.size()), parameters_.resize(parameters), parameter_gradients_.resize(parameters);
  StepArguments a;
  a.program = step.program.get(), a.step = step.step, a.samples = place.samples;
  for (std::size_t i = 0; i < step.inputs.size(); ++i)
    inputs_[i] = block(step.inputs[i]);
  a.inputs = {inputs_.data(), step.inputs.size()};
  a.output = block(step.output);
  a.output_gradient = block(step.output_gradient);
  for (int p = 0; p < step.parameters; ++p) {
    const CodeParameter& parameter = place.code->parameters[static_cast<std::size_t>(step.first_parameter + p)];
    parameters_[static_cast<std::size_t>(p)] = place.weights + parameter.weight_offset;
    parameter_gradients_[static_cast<std::size_t>(p)] =
        place.gradients == nullptr ? nullptr : reinterpret_cast<float*>(place.gradients + parameter.offset);
  }
  a.parameters = {parameters_.data(), static_cast<std::size_t>(step.parameters)};
  a.saved = block(step.saved);
  a.loss_scale = place.loss_scale, a.part = place.part;
  return a;
}

void Interpreter::compute_shared(const Instruction& i, const StepArguments& a, const Place& place) {
  const RingStep& ring = place.code->steps[static_cast<std::size_t>(i.step)].ring;
  if (ring.slices && (i.verb == Verb::Attend || i.verb == Verb::AttendGradient)) {
    const auto of = [](const Frame* slice, int block) { return slice->at[static_cast<std::size_t>(block)]; };
    for (int from = 0; const Frame* const slice : place.slices) {
      if (i.verb == Verb::Attend)
        backend_.attend(a, from++, of(slice, ring.keys));
      else
        backend_.attend_gradient(a, from++, of(slice, ring.keys), of(slice, ring.gradients));
    }
    return;
  }
  std::byte* const keys = place.frame->at[static_cast<std::size_t>(i.block)];
  std::byte* const gradients = ring.slices ? nullptr : keys + ring.gradients_at;
  const int from = (place.part.number - i.other + place.part.of) % place.part.of;
  switch (i.verb) {
    case Verb::KeysOfPart: return backend_.keys_of_part(a, keys);
    case Verb::AttendBegin: return backend_.attend_begin(a);
    case Verb::Attend: return backend_.attend(a, from, keys);
    case Verb::GradientsBegin: return backend_.gradients_begin(a, gradients);
    case Verb::AttendGradient: return backend_.attend_gradient(a, from, keys, gradients);
    case Verb::GradientsEnd: return backend_.gradients_end(a, keys);
    default: break;
  }
  check_failed("arithmetic of a step", __FILE__, __LINE__);
}

void Interpreter::compute(const Instruction& i, const Place& place) {
  const auto at = [&](int b) { return place.frame->at[static_cast<std::size_t>(b)]; };
  const auto bytes = [&](int b) { return place.code->blocks[static_cast<std::size_t>(b)][place.size]; };
  switch (i.verb) {
    case Verb::Add: backend_.add_stored(at(i.block), at(i.other), bytes(i.block) / place.code->value_bytes); return;
    case Verb::Copy: backend_.copy(at(i.block), at(i.other), {bytes(i.block)}); return;
    case Verb::Zero: backend_.zero(at(i.block), {bytes(i.block)}); return;
    default: break;
  }
  const CodeStep& step = place.code->steps[static_cast<std::size_t>(i.step)];
  StepArguments a = arguments(step, place);
  const auto scratch = [&](Pass pass) -> void* {
    const int b = step.scratch[static_cast<std::size_t>(pass)];
    return b < 0 ? nullptr : at(b);
  };
  if (i.verb == Verb::Forward) {
    a.workspace = scratch(Pass::Forward);
    if (step.labels >= 0) a.labels = reinterpret_cast<const std::int64_t*>(at(step.labels));
    backend_.forward(a);
  } else if (i.verb == Verb::KeysOfPart || i.verb == Verb::AttendBegin || i.verb == Verb::Attend) {
    a.workspace = scratch(Pass::Forward);
    compute_shared(i, a, place);
  } else if (i.verb != Verb::WeightGradient) {
    input_gradients_.resize(step.input_gradients.size());
    for (std::size_t t = 0; t < step.input_gradients.size(); ++t)
      input_gradients_[t] = step.input_gradients[t] < 0 ? nullptr : at(step.input_gradients[t]);
    a.input_gradients = {input_gradients_.data(), step.input_gradients.size()};
    a.workspace = scratch(Pass::InputGradient);
    i.verb == Verb::InputGradient ? backend_.input_gradient(a) : compute_shared(i, a, place);
  } else {
    a.parameter_gradients = {parameter_gradients_.data(), static_cast<std::size_t>(step.parameters)};
    a.workspace = scratch(Pass::WeightGradient);
    backend_.weight_gradient(a);
  }
}

}  // namespace pipewright::runtime
