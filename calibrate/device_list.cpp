#include "calibrate/device_list.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/cost/measured_times.hpp"
#include "core/cost/operation_size.hpp"
#include "core/model/layer_builder.hpp"
#include "runtime/runnable.hpp"

namespace pipewright::calibrate {
namespace {

constexpr std::array kPasses = {MeasuredPass::Forward, MeasuredPass::InputGradient, MeasuredPass::WeightGradient};
constexpr std::array kPrecisions = {Precision::Bf16, Precision::Fp32, Precision::Fp16, Precision::Tf32};
constexpr double kMostWork = 2.0 * 4096 * 4096 * 4096;
constexpr std::int64_t kMiB = 1024 * 1024, kGi = 1024 * kMiB;
constexpr double kMostValues = kGi;       // read and written beside a product
constexpr double kMostMoved = 5.0 * kGi;  // by what only moves values: five tensors, two sums' gradients among them
constexpr std::int64_t kTile = 128, kMostCollective = 256 << 20;
constexpr int kLarge = 5;            // rank of moved values beyond 1 GiB
constexpr int kLaterPrecision = 10;  // ranks of fp16 and tf32 begin there

int rank_at(Precision precision, int rank) {
  return precision == Precision::Bf16 || precision == Precision::Fp32 ? rank : rank + kLaterPrecision;
}

// One operation of its own, with an input that needs a gradient.
template <class Build>
SharedProgram program_of(const Build& build) {
  LayerBuilder b;
  return build(b).program;
}

DeviceMeasurement without_program(DeviceWork work, std::string operation, std::int64_t values) {
  DeviceMeasurement m;
  m.work = work, m.operation = std::move(operation);
  m.size = {1, values, 1, 0, static_cast<double>(work == DeviceWork::Copy ? 2 * values : values)};
  return m;
}

class List {
 public:
  explicit List(const std::vector<DeviceSplit>& splits) : splits_(splits) {}

  // Every pass of the program's only step.
  void step(const SharedProgram& program, std::int64_t samples, int rank, bool large = false) {
    const Program& p = *program.get();
    for (const MeasuredPass pass : kPasses) {
      const auto size = operation_size(p, p.steps.front(), samples, pass);
      if (!size) continue;
      for (const Precision precision : kPrecisions) {
        if (size->depth == 0 && precision == Precision::Tf32) continue;
        DeviceMeasurement m;
        m.operation = p.steps.front().operation, m.pass = pass, m.precision = precision, m.size = *size;
        if (m.operation == "dropout") m.work = DeviceWork::Dropout;
        m.program = program, m.samples = samples, m.rank = rank_at(precision, rank), m.large = large;
        add(m);
      }
    }
  }

  void other(DeviceWork work, std::string operation, std::int64_t values, int rank, Optimizer optimizer = {},
             Precision precision = Precision::Fp32) {
    DeviceMeasurement m = without_program(work, std::move(operation), values);
    m.rank = rank_at(precision, rank), m.optimizer = optimizer, m.precision = precision;
    m.large = 4 * values > kGi;
    add(m);
  }

  // Both ways round, on every split. Two that compute need two groups.
  void pair(const DeviceMeasurement& one, const DeviceMeasurement& other) {
    for (const DeviceSplit& split : splits_) {
      if (split.virtual_devices == 1 && !by_driver(one.work) && !by_driver(other.work)) continue;
      for (const auto& [timed, meanwhile] : {std::pair(&one, &other), std::pair(&other, &one)}) {
        DeviceMeasurement m = *timed;
        auto beside = std::make_shared<DeviceMeasurement>(*meanwhile);
        m.virtual_devices = beside->virtual_devices = m.busy = split.virtual_devices;
        m.rank = kPairs, m.beside = std::move(beside);
        list_.push_back(m);
        m.rank = kFewerPairs;
        for (int others = 1; others < split.virtual_devices - 1; others *= 2)
          m.busy = 1 + others, list_.push_back(m);
      }
    }
  }

  // All sizes of it.
  void collective(DeviceMeasurement m) {
    for (std::int64_t bytes = 4096; bytes <= kMostCollective; bytes *= 4) {
      const std::int64_t moved =
          m.work == DeviceWork::NcclAllGather ? m.members * all_gather_part(bytes, m.members) : bytes;
      m.size = {1, moved, 1, 0, static_cast<double>(moved)};
      list_.push_back(m);
    }
  }
  void rings() {
    for (const DeviceSplit& split : splits_) {
      if (split.virtual_devices == 1) continue;
      DeviceMeasurement m;
      m.work = DeviceWork::RingAllReduce, m.operation = "ring all-reduce", m.rank = kRings;
      m.virtual_devices = m.busy = m.members = split.virtual_devices;
      collective(m);
    }
  }
  void between_gpus(int gpus) {
    DeviceMeasurement m;
    m.rank = kBetweenGpus;
    const int all = std::max(2, gpus);
    for (m.from = 0; m.from < all; ++m.from)
      for (m.to = 0; m.to < all; ++m.to) {
        if (m.to == m.from) continue;
        m.members = 2;
        m.work = DeviceWork::PeerCopyByHost, m.operation = "peer copy through the host";
        collective(m);
        m.work = DeviceWork::PeerCopy, m.operation = "peer copy";
        collective(m);
      }
    m.from = m.to = 0;
    for (m.members = 2;; m.members = std::min(2 * m.members, all)) {
      m.work = DeviceWork::NcclAllReduce, m.operation = "nccl all-reduce";
      collective(m);
      m.work = DeviceWork::NcclAllGather, m.operation = "nccl all-gather";
      collective(m);
      if (m.members == 2) m.work = DeviceWork::NcclSend, m.operation = "nccl send", collective(m);
      if (m.members == all) break;
    }
  }

  std::vector<DeviceMeasurement> sorted() && {
    const auto order = [](const DeviceMeasurement& m) {
      const bool between = m.busy != 1 && m.busy != m.virtual_devices && m.beside == nullptr;
      return std::tuple(m.rank, m.large, between, m.virtual_devices, m.busy);
    };
    std::ranges::stable_sort(list_, [&](const auto& a, const auto& b) { return order(a) < order(b); });
    return std::move(list_);
  }

 private:
  void add(DeviceMeasurement m) {
    for (const auto& [devices, sms] : splits_) {
      if (m.size.work() > kMostWork / devices || m.size.values > (m.size.depth > 0 ? kMostValues : kMostMoved))
        continue;
      const bool pageable = m.work == DeviceWork::CopyPageableToHost || m.work == DeviceWork::CopyPageableToDevice;
      if (pageable && devices > 1) continue;  // it passes no SM
      for (int busy = 1;; busy = std::min(2 * busy, devices)) {
        m.virtual_devices = devices, m.busy = busy;
        const OperationSize& s = m.size;
        if (known_
                .emplace(m.operation, m.pass, m.precision, devices, busy, s.count, s.rows, s.columns, s.depth, s.values)
                .second)
          list_.push_back(m);
        if (busy == devices || by_the_host(m.work)) break;
      }
    }
  }

  const std::vector<DeviceSplit>& splits_;
  std::vector<DeviceMeasurement> list_;
  std::set<std::tuple<std::string, MeasuredPass, Precision, int, int, std::int64_t, std::int64_t, std::int64_t,
                      std::int64_t, double>>
      known_;
};

// A program with that step alone: its inputs, what it makes.
SharedProgram alone(const Program& whole, const ProgramStep& step) {
  Program one;
  ProgramStep moved = step;
  std::vector<std::int32_t> number(whole.tensors.size(), -1);
  const auto tensor = [&](std::int32_t old) {
    std::int32_t& place = number[at(old)];
    if (place < 0) {
      place = static_cast<std::int32_t>(one.tensors.size());
      one.tensors.push_back(whole.tensors[at(old)]);
      one.tensors.back().same_as = -1;
    }
    return place;
  };
  for (std::int32_t& input : moved.inputs) {
    input = tensor(input);
    if (std::ranges::find(one.inputs, input) == one.inputs.end()) one.inputs.push_back(input);
  }
  moved.output = tensor(moved.output);
  one.outputs = {moved.output};
  one.steps = {std::move(moved)};
  return SharedProgram(std::move(one));
}

void add_models(List& list, const std::vector<AskedModel>& models) {
  for (const AskedModel& asked : models)
    for (const Work& work : asked.model->works)
      if (const Program* const program = work.program.get())
        for (const ProgramStep& step : program->steps)
          for (const std::int64_t samples : asked.micro_batches)
            if (!step.inputs.empty()) list.step(alone(*program, step), samples, 0);
}

void add_linear(List& list, std::int64_t rows, std::int64_t in, std::int64_t out, int rank) {
  const auto build = [&](LayerBuilder& b) { return b.finish({b.linear(b.input({rows, in}), {.features = out})}); };
  list.step(program_of(build), 1, rank);
}

// Without one product and one copy there is no preset: they are measured however short the time is.
void add_essentials(List& list) {
  constexpr std::int64_t kCopied = 4 * 1024 * 1024;  // values; what a core copies in milliseconds, too
  list.other(DeviceWork::Copy, "copy", kCopied, kEssential);
  add_linear(list, 1024, 1024, 1024, kEssential);
}

void add_constants(List& list) {
  list.other(DeviceWork::Launch, "launch", 0, 0);
  for (std::int64_t values = 1024; values <= kGi; values *= 4) {
    list.other(DeviceWork::Copy, "copy", values, 0);
    list.other(DeviceWork::CopyOnDevice, "copy on device", values, 0);
    if (values > 16 * kMiB) continue;  // pinning more of the host's memory takes long
    list.other(DeviceWork::CopyToHost, "copy to host", values, 0);
    list.other(DeviceWork::CopyToDevice, "copy to device", values, 0);
  }
  for (const Optimizer optimizer : {Optimizer::Sgd, Optimizer::Momentum, Optimizer::RmsProp, Optimizer::Adam})
    for (std::int64_t parameters = 4096; parameters <= 64 * 1024 * 1024; parameters *= 4)
      for (const Precision precision : {Precision::Bf16, Precision::Fp32, Precision::Fp16})
        list.other(DeviceWork::Update, update_operation(optimizer), parameters, 0, optimizer, precision);
}

// An operation on {rows, width}; large by what fp32 takes.
template <class Build>
void one_step(List& list, std::int64_t rows, std::int64_t width, const Build& build) {
  const auto program = [&](LayerBuilder& b) { return b.finish({build(b, b.input({rows, width}))}); };
  const bool large = 4 * rows * width > kGi;
  list.step(program_of(program), 1, large ? kLarge : 1, large);
}

// The cost of rows depends on their length, too; of values that stand alone it does not.
void add_rows(List& list, std::int64_t rows, std::int64_t width) {
  using B = LayerBuilder;
  const auto each = [&](const auto& build) { one_step(list, rows, width, build); };
  each([](B& b, B::Value x) { return b.norm(x, {Norm::Layer}); });
  each([](B& b, B::Value x) { return b.norm(x, {Norm::Rms}); });
  each([](B& b, B::Value x) { return b.softmax(x); });
  each([](B& b, B::Value x) { return b.cross_entropy(x); });
  if (rows <= 64 * 1024)
    list.step(program_of([&](B& b) { return b.finish({b.embedding(b.tokens(rows), 32'768, width)}); }), 1, 1);
}

void add_values(List& list, std::int64_t rows, std::int64_t width) {
  using B = LayerBuilder;
  const auto each = [&](const auto& build) { one_step(list, rows, width, build); };
  each([](B& b, B::Value x) { return b.activation(x, Activation::Gelu); });
  each([](B& b, B::Value x) { return b.activation(x, Activation::Relu); });
  each([](B& b, B::Value x) { return b.gated(x, Activation::Silu); });
  each([&](B& b, B::Value x) { return b.add(x, b.input({rows, width})); });
  each([](B& b, B::Value x) { return b.dropout(x); });
}

void add_moves(List& list) {
  for (std::int64_t rows = 4; rows <= kMiB; rows *= 4)
    add_rows(list, rows, 1024), add_values(list, rows, 1024);
  for (const std::int64_t width : {256, 4096})
    for (const std::int64_t rows : {16, 1024, 16'384})
      add_rows(list, rows, width);
}

void add_products(List& list, const std::vector<DeviceSplit>& splits) {
  for (const std::int64_t d : {512, 1024, 2048, 4096})
    for (const std::int64_t rows : {64, 256, 1024, 4096, 16384}) {
      add_linear(list, rows, d, d, 2), add_linear(list, rows, d, 3 * d, 2);
      add_linear(list, rows, d, 4 * d, 2), add_linear(list, rows, 4 * d, d, 2);
    }
  // 1024 columns are eight tiles across: w waves of S SMs are w S / 8 tiles down.
  for (const DeviceSplit& split : splits)
    for (const std::int64_t waves : {1, 2})
      for (const std::int64_t off : {-1, 0, 1})
        add_linear(list, std::max<std::int64_t>(1, waves * split.sms * kTile / 8 + off), 1024, 1024, 4);
}

void add_others(List& list) {
  for (const std::int64_t heads : {4, 16, 32})
    for (const std::int64_t tokens : {64, 256, 1024})
      for (const std::int64_t size : {32, 64, 128})
        list.step(program_of([&](LayerBuilder& b) {
                    const std::int64_t f = 3 * heads * size;
                    const AttentionCore core = {.heads = heads,
                                                .key_heads = heads,
                                                .key_size = size,
                                                .value_size = size,
                                                .queries = tokens,
                                                .keys = tokens,
                                                .causal = true};
                    return b.finish({b.attention({b.input({tokens, f})}, core)});
                  }),
                  1, 3);
  for (const std::int64_t channels : {64, 256, 512})
    for (const std::int64_t side : {7, 14, 28, 56})
      for (const std::int64_t kernel : {1, 3})
        for (const std::int64_t samples : {1, 16})
          list.step(program_of([&](LayerBuilder& b) {
                      const Conv2d conv = {.channels = channels,
                                           .kernel_height = kernel,
                                           .kernel_width = kernel,
                                           .padding_height = kernel / 2,
                                           .padding_width = kernel / 2};
                      return b.finish({b.conv2d(b.input({channels, side, side}), conv)});
                    }),
                    samples, 3);
}

void add_by_the_host(List& list) {
  for (std::int64_t values = 1024; values <= 16 * 1024 * 1024; values *= 4) {
    list.other(DeviceWork::CopyPageableToHost, "copy pageable to host", values, kByTheHost);
    list.other(DeviceWork::CopyPageableToDevice, "copy pageable to device", values, kByTheHost);
  }
  for (std::int64_t launches = 1; launches <= 64; launches *= 2) {  // t0 + d launches: d is what one more takes
    list.other(DeviceWork::LaunchOneByOne, "launch one by one", launches, kByTheHost);
    list.other(DeviceWork::LaunchByGraph, "launch by graph", launches, kByTheHost);
    list.other(DeviceWork::LaunchAndRecord, "launch and record", launches, kByTheHost);
    list.other(DeviceWork::LaunchAcross, "launch across streams", launches, kByTheHost);
  }
}

// A forward of the program's only step.
DeviceMeasurement forward_of(const SharedProgram& program, Precision precision) {
  const Program& p = *program.get();
  DeviceMeasurement m;
  m.operation = p.steps.front().operation, m.precision = precision, m.program = program;
  m.size = *operation_size(p, p.steps.front(), 1, MeasuredPass::Forward);
  return m;
}

void add_pairs(List& list) {
  // Each takes tens or hundreds of microseconds on a whole GPU and passes more than an L2 holds.
  const SharedProgram product = program_of([](LayerBuilder& b) {
    return b.finish({b.linear(b.input({2048, 1024}), {.features = 4096})});
  });
  const SharedProgram values = program_of([](LayerBuilder& b) {
    return b.finish({b.activation(b.input({8192, 4096}), Activation::Gelu)});
  });
  const DeviceMeasurement to_host = without_program(DeviceWork::CopyToHost, "copy to host", 4 * 1024 * 1024),
                          to_device = without_program(DeviceWork::CopyToDevice, "copy to device", 4 * 1024 * 1024),
                          on_device = without_program(DeviceWork::CopyOnDevice, "copy on device", 16 * 1024 * 1024);
  for (const Precision precision : {Precision::Bf16, Precision::Fp32}) {
    const DeviceMeasurement multiplies = forward_of(product, precision), moves = forward_of(values, precision);
    list.pair(multiplies, moves);
    for (const DeviceMeasurement& copies : {to_host, to_device, on_device})
      list.pair(multiplies, copies), list.pair(moves, copies);
  }
  list.pair(to_host, to_device);
}

std::string_view word(MeasuredPass pass) {
  constexpr std::array<std::string_view, 3> words = {"forward", "input gradient", "weight gradient"};
  return words[at(pass)];
}

}  // namespace

std::vector<DeviceMeasurement> device_measurements(const std::vector<AskedModel>& models,
                                                   const std::vector<DeviceSplit>& splits, int gpus) {
  List list(splits);
  add_essentials(list);
  add_models(list, models);
  add_constants(list);
  add_moves(list);
  add_products(list, splits);
  add_others(list);
  add_by_the_host(list);
  add_pairs(list);
  list.rings();
  list.between_gpus(gpus);
  return std::move(list).sorted();
}

std::int64_t all_gather_part(std::int64_t bytes, int members) {
  return bytes / members / 16 * 16;
}

bool computed(DeviceWork work) {
  return work == DeviceWork::Step || work == DeviceWork::Dropout || work == DeviceWork::Update;
}

bool collective(DeviceWork work) {
  switch (work) {
    case DeviceWork::RingAllReduce:
    case DeviceWork::PeerCopy:
    case DeviceWork::PeerCopyByHost:
    case DeviceWork::NcclAllReduce:
    case DeviceWork::NcclAllGather:
    case DeviceWork::NcclSend: return true;
    default: return false;
  }
}

bool by_the_host(DeviceWork work) {
  switch (work) {
    case DeviceWork::CopyPageableToHost:
    case DeviceWork::CopyPageableToDevice:
    case DeviceWork::LaunchOneByOne:
    case DeviceWork::LaunchByGraph:
    case DeviceWork::LaunchAndRecord:
    case DeviceWork::LaunchAcross: return true;
    default: return false;
  }
}

bool by_the_host(std::string_view operation) {
  return operation.starts_with("launch ") || operation.starts_with("copy pageable");
}

bool by_driver(DeviceWork work) {
  return work == DeviceWork::CopyOnDevice || work == DeviceWork::CopyToHost || work == DeviceWork::CopyToDevice;
}

std::vector<DeviceMeasurement> of_precisions(std::vector<DeviceMeasurement> list,
                                             const std::vector<Precision>& precisions) {
  if (precisions.empty()) return list;
  const auto other = [&](const DeviceMeasurement& m) {
    return computed(m.work) && std::ranges::find(precisions, m.precision) == precisions.end();
  };
  std::erase_if(list,
                [&](const DeviceMeasurement& m) { return other(m) || (m.beside != nullptr && other(*m.beside)); });
  return list;
}

std::string label(const DeviceMeasurement& m) {
  if (m.beside == nullptr) return m.operation;
  const bool any = m.beside->work != DeviceWork::Step;  // copies have no precision
  return fmt::format("{} beside {}{}{}", m.operation, m.beside->operation, any ? "" : " ",
                     any ? "" : name_of(m.beside->precision));
}

std::string text(const DeviceMeasurement& m) {
  if (collective(m.work))
    return m.virtual_devices > 1 ? fmt::format("{} of {} B, {} virtual devices", m.operation, m.size.values, m.members)
           : m.from != m.to      ? fmt::format("{} of {} B, GPU {} to {}", m.operation, m.size.values, m.from, m.to)
                                 : fmt::format("{} of {} B, {} GPUs", m.operation, m.size.values, m.members);
  std::string size = m.size.depth > 0
                         ? fmt::format("{} x {} x {} x {}", m.size.count, m.size.rows, m.size.columns, m.size.depth)
                         : fmt::format("{} values", m.size.values);
  return fmt::format("{} {} {}, {}; 1 of {} virtual devices, {} busy", label(m), word(m.pass), name_of(m.precision),
                     size, m.virtual_devices, m.busy);
}

}  // namespace pipewright::calibrate
