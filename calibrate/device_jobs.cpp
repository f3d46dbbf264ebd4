#include "calibrate/device_jobs.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "calibrate/step_reference.hpp"
#include "core/check.hpp"
#include "core/cost/cost_model.hpp"
#include "core/folds.hpp"
#include "runtime/operations.hpp"

namespace pipewright::calibrate {
namespace {

constexpr std::int64_t kAlignment = 512;

std::int64_t aligned(std::int64_t bytes) {
  return (std::max<std::int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

constexpr std::int64_t kFirst = 4 << 20;  // bytes that come from the host; the rest of a block is copies of them

// kFirst bytes, four of each random number. Drawn once: a calibration fills some dozen blocks for every size.
template <class Bits>
std::vector<std::byte> drawn_block(std::uint32_t seed, const Bits& bits_of) {
  std::vector<std::byte> block(static_cast<std::size_t>(kFirst));
  std::mt19937 generator(seed);
  for (std::size_t at = 0; at < block.size(); at += 4) {
    const std::uint32_t bits = bits_of(static_cast<std::uint32_t>(generator()));
    std::memcpy(block.data() + at, &bits, 4);
  }
  return block;
}

// `first` again and again, or its beginning.
void repeat(Mover& mover, const std::vector<std::byte>& first, std::byte* block, std::int64_t bytes) {
  auto filled = std::min(bytes, std::ssize(first));
  mover.upload(block, first.data(), Bytes{filled});
  for (std::int64_t next = 0; filled < bytes; filled += next) {
    next = std::min(filled, bytes - filled);
    mover.copy(block + filled, block, Bytes{next});
  }
}

// fp32 values between 0 and 1.
float square_of(std::uint32_t random) {
  return (static_cast<float>(random >> 9) + 0.5F) * 0x1p-23F;
}
void fill_random_squares(Mover& mover, std::byte* block, std::int64_t values) {
  static const std::vector<std::byte> first =
      drawn_block(2, [](std::uint32_t random) { return std::bit_cast<std::uint32_t>(square_of(random)); });
  repeat(mover, first, block, 4 * values);
}

// Blocks of random values, used in turn.
class Blocks {
 public:
  // Filled for tensors of the backend's precision.
  Blocks(Backend& backend, std::int64_t each, std::int64_t count, JobMemory& memory)
      : each_(aligned(each)),
        count_(count),
        first_(memory.at_least(backend, Bytes{each_ * count})),
        mover_(backend.mover(MoverFor::Worker)) {
    fill_random(*mover_, first_, each_ * count_, backend.precision());
  }
  std::byte* next() { return first_ + each_ * std::exchange(turn_, (turn_ + 1) % count_); }
  std::int64_t count() const { return count_; }
  Mover& mover() { return *mover_; }

 private:
  std::int64_t each_, count_, turn_ = 0;
  std::byte* first_;
  std::unique_ptr<Mover> mover_;
};

// Where everything that a step reads and writes lies within a block.
struct StepLayout {
  StepLayout(const DeviceMeasurement& m, const Backend& backend) : program(m.program), samples(m.samples) {
    const Program& p = *program.get();
    const ProgramStep& step = p.steps.front();
    const auto take = [&](std::int64_t size) { return std::exchange(bytes, bytes + aligned(size)); };
    const std::int64_t value = weight_bytes(backend.precision()).value;
    const auto tensor = [&](std::int32_t number) {
      return samples * tensor_bytes(p.tensors[static_cast<std::size_t>(number)], value);
    };
    for (const std::int32_t input : step.inputs) {
      inputs.push_back(take(tensor(input))), input_gradients.push_back(take(tensor(input)));
      read += tensor(input);
      if (p.tensors[static_cast<std::size_t>(input)].needs_gradient) changed += tensor(input);
    }
    const bool loss = step.operation == "cross_entropy";  // fp32
    const std::int64_t out = loss ? tensor(step.output) / value * 4 : tensor(step.output);
    output = take(out), output_gradient = take(out), made = out;
    const bool table = std::holds_alternative<Embedding>(step.spec) || std::holds_alternative<LearnedTable>(step.spec);
    for (const ParameterTensor& each : parameters_of(p, step)) {
      parameters.push_back(take(value * each.elements)), gradients.push_back(take(4 * each.elements));
      used += table ? std::min(each.elements, out / value) : each.elements;
    }
    saved = take(samples * saved_bytes(p, step, value));
    std::int64_t scratch = 0;
    for (const Pass pass : {Pass::Forward, Pass::InputGradient, Pass::WeightGradient})
      scratch = std::max(scratch, backend.workspace(p, step, samples, pass).value);
    workspace = take(scratch);
    const Shape& first = p.tensors[static_cast<std::size_t>(step.inputs.front())].shape;
    rows = samples * static_cast<std::int64_t>(first.elements()) / first[first.rank - 1];
    if (step.operation == "cross_entropy") labels = take(8 * rows);
    used_bytes = value * used;
  }

  // Of a gradient without what some operations read again of the forward pass.
  std::int64_t touched(MeasuredPass pass) const {
    switch (pass) {
      case MeasuredPass::Forward: return read + used_bytes + made;
      case MeasuredPass::InputGradient: return changed + used_bytes + made;
      case MeasuredPass::WeightGradient: return read + 4 * used + made;
    }
    return bytes;
  }

  SharedProgram program;
  std::int64_t samples;
  std::int64_t bytes = 0;
  std::vector<std::int64_t> inputs, input_gradients, parameters, gradients;
  std::int64_t output = 0, output_gradient = 0, saved = 0, workspace = 0, labels = -1, rows = 0;

 private:
  std::int64_t read = 0, changed = 0, made = 0;  // bytes of inputs, of those with gradients, of the output
  std::int64_t used = 0, used_bytes = 0;         // of parameters
};

// As many values of the device, stored as that precision's tensors are.
std::vector<double> values_at(Mover& mover, const std::byte* at, std::int64_t count, Precision precision) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * weight_bytes(precision).value));
  mover.download(bytes.data(), at, Bytes{std::ssize(bytes)});
  std::vector<double> values(static_cast<std::size_t>(count));
  widened(bytes.data(), count, precision, values.data());
  return values;
}
std::vector<std::int64_t> numbers_at(Mover& mover, const std::byte* at, std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  mover.download(numbers.data(), at, Bytes{8 * count});
  return numbers;
}

// The worst of several results, by how far it is beyond what it may be off.
void keep_worse(std::optional<NumericCheck>& worst, const std::vector<double>& got, const std::vector<double>& right,
                double limit) {
  const NumericCheck check{relative_off(got, right), limit};
  if (!worst || !check.right() || (worst->right() && check.error / check.limit > worst->error / worst->limit))
    if (!worst || worst->right()) worst = check;
}

class StepJob final : public DeviceJob {
 public:
  StepJob(const DeviceMeasurement& m, std::unique_ptr<Backend> backend, std::int64_t blocks, JobMemory& memory)
      : m_(m), backend_(std::move(backend)), layout_(m, *backend_), blocks_(*backend_, layout_.bytes, blocks, memory) {
    for (std::int64_t i = 0; i < blocks_.count(); ++i) {
      std::byte* const block = blocks_.next();
      upload_indices(block);
      run(block, MeasuredPass::Forward);  // what gradients read
    }
    backend_->finish();
  }
  void launch() override { run(blocks_.next(), m_.pass); }
  std::optional<ProductAlgorithm> algorithm() const override {
    return m_.operation == "linear" ? backend_->product_algorithm() : std::nullopt;
  }
  std::optional<NumericCheck> check() override {
    if (m_.size.work() > kMostCheckedWork || m_.size.values > kMostCheckedValues) return std::nullopt;
    std::byte* const block = blocks_.next();
    backend_->finish();
    const Program& p = *layout_.program.get();
    const std::vector<ParameterTensor> parameters = parameters_of(p, p.steps.front());
    std::vector<std::vector<double>> before;  // what gradients of parameters are added to
    for (std::size_t i = 0; i < parameters.size() && m_.pass == MeasuredPass::WeightGradient; ++i)
      before.push_back(
          values_at(blocks_.mover(), block + layout_.gradients[i], parameters[i].elements, Precision::Fp32));
    run(block, m_.pass);
    backend_->finish();
    const auto right = step_reference(p, layout_.samples, values_of(block), m_.pass);
    std::optional<NumericCheck> worst;
    const auto compare = [&](std::int64_t at, const std::vector<double>& wanted, bool single) {
      keep_worse(
          worst,
          values_at(blocks_.mover(), block + at, std::ssize(wanted), single ? Precision::Fp32 : backend_->precision()),
          wanted, numeric_limit(m_, single));
    };
    switch (m_.pass) {
      case MeasuredPass::Forward: compare(layout_.output, right[0], layout_.labels >= 0); break;
      case MeasuredPass::InputGradient:
        for (std::size_t i = 0; i < right.size(); ++i)
          if (p.tensors[static_cast<std::size_t>(p.steps.front().inputs[i])].needs_gradient && !right[i].empty())
            compare(layout_.input_gradients[i], right[i], false);
        break;
      case MeasuredPass::WeightGradient:
        for (std::size_t i = 0; i < right.size(); ++i) {
          for (std::size_t j = 0; j < right[i].size(); ++j)
            before[i][j] += right[i][j];
          compare(layout_.gradients[i], before[i], true);
        }
        break;
    }
    return worst;
  }

 private:
  StepValues values_of(const std::byte* block) {
    const Program& p = *layout_.program.get();
    const ProgramStep& step = p.steps.front();
    const Precision stored = backend_->precision();
    const auto elements = [&](std::int32_t tensor) {
      return layout_.samples * static_cast<std::int64_t>(p.tensors[static_cast<std::size_t>(tensor)].shape.elements());
    };
    StepValues v;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const std::int64_t count = elements(step.inputs[i]), at = layout_.inputs[i];
      if (p.tensors[static_cast<std::size_t>(step.inputs[i])].indices)
        v.inputs.push_back({{}, numbers_at(blocks_.mover(), block + at, count)});
      else
        v.inputs.push_back({values_at(blocks_.mover(), block + at, count, stored), {}});
    }
    const std::vector<ParameterTensor> parameters = parameters_of(p, step);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      v.parameters.push_back(values_at(blocks_.mover(), block + layout_.parameters[i], parameters[i].elements, stored));
    v.output_gradient = values_at(blocks_.mover(), block + layout_.output_gradient, elements(step.output),
                                  layout_.labels >= 0 ? Precision::Fp32 : stored);
    if (layout_.labels >= 0) v.labels = numbers_at(blocks_.mover(), block + layout_.labels, layout_.rows);
    return v;
  }

  // Random bits are no token numbers and no labels.
  void upload_indices(std::byte* block) {
    const Program& p = *layout_.program.get();
    const ProgramStep& step = p.steps.front();
    const auto upload = [&](std::int64_t at, std::int64_t count, std::int64_t below) {
      std::vector<std::int64_t> index(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < index.size(); ++i)  // steps of 2^32 over the golden ratio: spread over the table
        index[i] = static_cast<std::int64_t>(i * 2'654'435'761ULL % static_cast<std::uint64_t>(below));
      blocks_.mover().upload(block + at, index.data(), Bytes{8 * count});
    };
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const ProgramTensor& tensor = p.tensors[static_cast<std::size_t>(step.inputs[i])];
      if (!tensor.indices) continue;
      const auto* const table = std::get_if<Embedding>(&step.spec);
      upload(layout_.inputs[i], layout_.samples * static_cast<std::int64_t>(tensor.shape.elements()),
             table == nullptr ? 1 : table->vocabulary);
    }
    if (layout_.labels < 0) return;
    const Shape& logits = p.tensors[static_cast<std::size_t>(step.inputs.front())].shape;
    upload(layout_.labels, layout_.rows, logits[logits.rank - 1]);
  }

  template <class T>
  static std::vector<T> places(std::byte* block, const std::vector<std::int64_t>& offsets) {
    std::vector<T> pointers;
    for (const std::int64_t offset : offsets)
      pointers.push_back(reinterpret_cast<T>(block + offset));
    return pointers;
  }

  void run(std::byte* block, MeasuredPass pass) {
    const Program& p = *layout_.program.get();
    const auto inputs = places<const void*>(block, layout_.inputs);
    auto input_gradients = places<void*>(block, layout_.input_gradients);
    for (std::size_t i = 0; i < input_gradients.size(); ++i) {
      const ProgramTensor& tensor = p.tensors[static_cast<std::size_t>(p.steps.front().inputs[i])];
      if (tensor.indices || !tensor.needs_gradient) input_gradients[i] = nullptr;
    }
    const auto parameters = places<const void*>(block, layout_.parameters);
    const auto gradients = places<float*>(block, layout_.gradients);
    StepArguments a;
    a.program = &p, a.step = &p.steps.front(), a.samples = layout_.samples;
    a.inputs = inputs, a.output = block + layout_.output, a.output_gradient = block + layout_.output_gradient;
    a.input_gradients = input_gradients, a.parameters = parameters, a.parameter_gradients = gradients;
    a.saved = block + layout_.saved, a.workspace = block + layout_.workspace;
    if (layout_.labels >= 0) a.labels = reinterpret_cast<const std::int64_t*>(block + layout_.labels);
    switch (pass) {
      case MeasuredPass::Forward: backend_->forward(a); break;
      case MeasuredPass::InputGradient: backend_->input_gradient(a); break;
      case MeasuredPass::WeightGradient: backend_->weight_gradient(a); break;
    }
  }

  DeviceMeasurement m_;
  std::unique_ptr<Backend> backend_;
  StepLayout layout_;
  Blocks blocks_;
};

// A gradient is the same of dy.
class DropoutJob final : public DeviceJob {
 public:
  DropoutJob(const DeviceMeasurement& m, std::unique_ptr<Backend> backend, std::int64_t blocks, JobMemory& memory)
      : m_(m), backend_(std::move(backend)), blocks_(*backend_, block_bytes(m, *backend_).value, blocks, memory) {}
  void launch() override { run(blocks_.next()); }
  std::optional<NumericCheck> check() override {
    if (m_.size.values > kMostCheckedValues) return std::nullopt;
    std::byte* const block = blocks_.next();
    run(block);
    backend_->finish();
    const auto at = [&](const std::byte* place) {
      return values_at(blocks_.mover(), place, values_, backend_->precision());
    };
    return NumericCheck{relative_off(at(block + half()), dropout_reference(kMask, at(block))),
                        numeric_limit(m_, false)};
  }

 private:
  static constexpr DropoutMask kMask = {0.1, 1, 1};

  std::int64_t half() const { return aligned(values_ * weight_bytes(backend_->precision()).value); }
  void run(std::byte* block) { backend_->dropout(kMask, values_, block, block + half()); }

  DeviceMeasurement m_;
  std::int64_t values_ = m_.size.rows * m_.size.columns;
  std::unique_ptr<Backend> backend_;
  Blocks blocks_;
};

class UpdateJob final : public DeviceJob {
 public:
  UpdateJob(const DeviceMeasurement& m, std::unique_ptr<Backend> backend, std::int64_t blocks, JobMemory& memory)
      : m_(m), backend_(std::move(backend)), blocks_(*backend_, block_bytes(m, *backend_).value, blocks, memory) {
    settings_.kind = m.optimizer;
    settings_.learning_rate = 1e-6;  // weights stay what they are, nearly, however often it is launched
    if (settings_.kind == Optimizer::RmsProp || settings_.kind == Optimizer::Adam)
      for (std::int64_t i = 0; i < blocks_.count(); ++i)  // the last state is a mean of squares: its root is taken
        fill_random_squares(blocks_.mover(), blocks_.next() + (1 + states(settings_.kind)) * aligned(4 * elements_),
                            elements_);
    backend_->finish();
  }
  void launch() override { update(blocks_.next(), settings_); }
  // With steps long enough to be seen in the weights.
  std::optional<NumericCheck> check() override {
    if (m_.size.values > kMostCheckedValues) return std::nullopt;
    OptimizerSettings settings = settings_;
    settings.learning_rate = 0.1;
    std::byte* const block = blocks_.next();
    backend_->finish();
    const auto fp32 = [&](int number) {
      return values_at(blocks_.mover(), block + number * aligned(4 * elements_), elements_, Precision::Fp32);
    };
    auto all = mapped<std::vector<double>>(counted_to(states(settings.kind)), [&](int i) { return fp32(2 + i); });
    const auto right = update_reference(settings, fp32(0), fp32(1), all);
    update(block, settings);
    backend_->finish();
    std::optional<NumericCheck> worst;
    keep_worse(worst, fp32(0), right[0], numeric_limit(m_, true));
    for (std::size_t i = 1; i < right.size(); ++i)
      keep_worse(worst, fp32(static_cast<int>(i) + 1), right[i], numeric_limit(m_, true));
    if (const Precision stored = backend_->precision(); weight_bytes(stored).value == 2)
      keep_worse(
          worst,
          values_at(blocks_.mover(), block + (2 + states(settings.kind)) * aligned(4 * elements_), elements_, stored),
          right[0], numeric_limit(m_, false));
    return worst;
  }

 private:
  void update(std::byte* block, const OptimizerSettings& settings) {
    const auto next = [&] { return reinterpret_cast<float*>(std::exchange(block, block + aligned(4 * elements_))); };
    float* const weight = next();
    UpdatedParameter one = {elements_, weight, weight, next()};
    for (int i = 0; i < states(settings.kind); ++i)
      one.states[static_cast<std::size_t>(i)] = next();
    if (weight_bytes(backend_->precision()).value == 2) one.stored = block;
    backend_->update(settings, 1, {&one, 1});
  }

  DeviceMeasurement m_;
  std::int64_t elements_ = m_.size.rows;
  OptimizerSettings settings_;
  std::unique_ptr<Backend> backend_;
  Blocks blocks_;
};

class CopyJob final : public DeviceJob {
 public:
  CopyJob(const DeviceMeasurement& m, std::unique_ptr<Backend> backend, std::int64_t blocks, JobMemory& memory)
      : bytes_(4 * m.size.rows),
        backend_(std::move(backend)),
        blocks_(*backend_, 2 * aligned(bytes_), blocks, memory) {}
  void launch() override {
    std::byte* const from = blocks_.next();
    backend_->copy(from + aligned(bytes_), from, Bytes{bytes_});
  }
  std::optional<NumericCheck> check() override {
    if (static_cast<double>(bytes_) > 8 * kMostCheckedValues) return std::nullopt;
    std::byte* const from = blocks_.next();
    return checked_copy(*backend_, from + aligned(bytes_), from, bytes_,
                        [&] { backend_->copy(from + aligned(bytes_), from, Bytes{bytes_}); });
  }

 private:
  std::int64_t bytes_;
  std::unique_ptr<Backend> backend_;
  Blocks blocks_;
};

}  // namespace

std::string refusal_of(const DeviceMeasurement& m, const Backend& backend) {
  if (!computed(m.work)) return "";
  if (m.precision != backend.precision()) return "the backend computes in another precision";
  if (m.work != DeviceWork::Step) return "";
  const Program& p = *m.program.get();
  try {
    static_cast<void>(rule_of(p, p.steps.front()));
  } catch (const InputError& error) {
    return "it cannot be run";
  }
  return backend.refusal(p, p.steps.front());
}

Bytes block_bytes(const DeviceMeasurement& m, const Backend& backend) {
  switch (m.work) {
    case DeviceWork::Step: return Bytes{StepLayout(m, backend).bytes};
    case DeviceWork::Dropout:
      return Bytes{2 * aligned(m.size.rows * m.size.columns * weight_bytes(backend.precision()).value)};
    case DeviceWork::Update: {  // weights, gradients, states; in 16 bits the copy that layers read
      const bool copy = weight_bytes(backend.precision()).value == 2;
      return Bytes{(2 + states(m.optimizer)) * aligned(4 * m.size.rows) + (copy ? aligned(2 * m.size.rows) : 0)};
    }
    default: return Bytes{2 * aligned(4 * m.size.rows)};
  }
}

Bytes touched_bytes(const DeviceMeasurement& m, const Backend& backend) {
  switch (m.work) {
    case DeviceWork::Step: return Bytes{StepLayout(m, backend).touched(m.pass)};
    case DeviceWork::CopyToHost:
    case DeviceWork::CopyToDevice:
    case DeviceWork::CopyPageableToHost:
    case DeviceWork::CopyPageableToDevice: return Bytes{block_bytes(m, backend).value / 2};
    default: return block_bytes(m, backend);
  }
}

ColdBlocks cold_blocks(Bytes touched, Bytes cache, std::int64_t room, std::int64_t most) {
  const std::int64_t each = std::max<std::int64_t>(touched.value, 1);
  const std::int64_t blocks = std::clamp<std::int64_t>(std::min(2 * cache.value / each + 2, room), 1, most);
  return {blocks, blocks >= most || blocks * each >= 2 * cache.value ? most : blocks};
}

std::unique_ptr<DeviceJob> device_job(const DeviceMeasurement& m, std::unique_ptr<Backend> backend, std::int64_t blocks,
                                      JobMemory& memory) {
  switch (m.work) {
    case DeviceWork::Step: return std::make_unique<StepJob>(m, std::move(backend), blocks, memory);
    case DeviceWork::Dropout: return std::make_unique<DropoutJob>(m, std::move(backend), blocks, memory);
    case DeviceWork::Update: return std::make_unique<UpdateJob>(m, std::move(backend), blocks, memory);
    default: return std::make_unique<CopyJob>(m, std::move(backend), blocks, memory);
  }
}

NumericCheck checked_copy(Backend& backend, std::byte* to, const std::byte* from, std::int64_t bytes,
                          const std::function<void()>& copy) {
  backend.zero(to, Bytes{bytes});
  backend.finish();
  copy();
  backend.finish();
  const auto mover = backend.mover(MoverFor::Worker);
  std::vector<std::byte> got(static_cast<std::size_t>(bytes)), right(got.size());
  mover->download(got.data(), to, Bytes{bytes}), mover->download(right.data(), from, Bytes{bytes});
  auto off = sum_over<std::size_t>(counted_to(got.size()), [&](std::size_t i) { return got[i] != right[i] ? 1 : 0; });
  return {static_cast<double>(off) / std::max(1.0, static_cast<double>(bytes)), 0};
}

std::byte* JobMemory::at_least(Backend& backend, Bytes size) {
  if (memory_ == nullptr || size_ < size) {
    memory_.reset();  // first: both may not fit
    memory_ = backend.reserve(size);
    size_ = size;
  }
  return memory_->base();
}

JobMemory& JobMemories::operator[](std::size_t job) {
  while (memories_.size() <= job)
    memories_.emplace_back();
  return memories_[job];
}

void JobMemories::make_room(std::span<const std::int64_t> needed, double most) {
  double all = 0;
  for (std::size_t i = 0; i < std::max(needed.size(), memories_.size()); ++i)
    all += static_cast<double>(
        std::max(i < needed.size() ? needed[i] : 0, i < memories_.size() ? memories_[i].size().value : 0));
  if (all > most) clear();
}

Bytes JobMemories::kept() const {
  return sum_over<Bytes>(memories_, [](const JobMemory& memory) { return memory.size(); });
}

std::string too_large(const DeviceMeasurement& m, std::int64_t each, std::int64_t beside, double most) {
  const auto one = static_cast<double>(each);
  const double needed = one * (m.beside == nullptr ? m.busy : 1) + static_cast<double>(beside);
  if (needed > most) return "larger than half of the GPU's free memory";
  if (m.large && one * m.virtual_devices > most)
    return "larger than half of a virtual device's part of the GPU's free memory";
  return "";
}

void fill_random(Mover& mover, std::byte* block, std::int64_t bytes, Precision precision) {
  // fp32, tf32: 24 random bits below a random sign; values of two bytes: the bits of one between 0.5 and 1, or
  // negative.
  static const std::vector<std::byte> floats = drawn_block(1, [](std::uint32_t random) {
    return std::bit_cast<std::uint32_t>(static_cast<float>((static_cast<double>(random >> 8) + 0.5) / 8388608.0 - 1));
  });
  // Exponents of [0.5, 1), 7 and 10 bits.
  static const std::vector<std::byte> bf16 =
      drawn_block(1, [](std::uint32_t random) { return (random & 0x807f807fU) | 0x3f003f00U; });
  static const std::vector<std::byte> fp16 =
      drawn_block(1, [](std::uint32_t random) { return (random & 0x83ff83ffU) | 0x38003800U; });
  repeat(mover, precision == Precision::Bf16 ? bf16 : precision == Precision::Fp16 ? fp16 : floats, block, bytes);
}

}  // namespace pipewright::calibrate
