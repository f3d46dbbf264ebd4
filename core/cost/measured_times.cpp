#include "core/cost/measured_times.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/cost/low_precision.hpp"

namespace pipewright::core {
namespace {

constexpr std::array kPasses = {MeasuredPass::Forward, MeasuredPass::InputGradient, MeasuredPass::WeightGradient};

std::string tenths(double share) {
  const long long tenths = std::llround(1000 * share);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " %";
}

std::string joined(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers)
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

}  // namespace

std::string update_operation(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::Sgd: return "update sgd";
    case Optimizer::Momentum: return "update momentum";
    case Optimizer::RmsProp: return "update rmsprop";
    case Optimizer::Adam: return "update adam";
    case Optimizer::Muon: break;  // not measured
  }
  return "";
}

MeasuredTimes::MeasuredTimes(const Scenario& scenario, const Device& device)
    : scenario_(scenario), device_(device), measured_(*device.measured) {
  const std::vector<int> splits = measured_splits(measured_);
  if (std::find(splits.begin(), splits.end(), device.virtual_devices) == splits.end())
    throw InputError(device.place, "device \"" + device.name + "\" was not measured as " +
                                       std::to_string(device.virtual_devices) +
                                       " virtual devices, but as: " + joined(splits) + "; set virtual_devices to " +
                                       "one of these, or calibrate again with --virtual-devices");
}

std::optional<MeasuredPrice> MeasuredTimes::price(const Program& program, const ProgramStep& step, std::int64_t samples,
                                                  MeasuredPass pass, int busy) const {
  const std::optional<OperationSize> size = operation_size(program, step, samples, pass);
  if (!size) return MeasuredPrice{.exact = true};
  return measured_price(measured_,
                        {step.operation, pass, scenario_.training.precision, device_.virtual_devices,
                         busy == 0 ? device_.virtual_devices : busy},
                        *size);
}

std::optional<CostSource::Passes> MeasuredTimes::price(const Work& work, std::int64_t samples, int busy) const {
  const Program* const program = work.program.get();
  if (program == nullptr || work.frozen || scenario_.plan.tensor_parallel.value > 1 ||
      scenario_.plan.context_parallel.value > 1 || scenario_.plan.split().sends_tokens() ||
      low_precision(scenario_.training) || scenario_.plan.recompute_modules != Modules{Module::AttentionCore})
    return std::nullopt;
  std::array<double, kPasses.size()> sums{};
  double rebuilt = 0;
  for (const ProgramStep& step : program->steps)
    for (std::size_t pass = 0; pass < kPasses.size(); ++pass) {
      const auto known = price(*program, step, samples, kPasses[pass], busy);
      if (!known) return std::nullopt;
      sums[pass] += known->ns;
      if (pass == 0 && std::holds_alternative<AttentionCore>(step.spec)) rebuilt += known->ns;
    }
  const auto time = [](double ns) { return Time{rounded(ns, "a layer's time")}; };
  CostSource::Passes passes;
  passes.forward = time(sums[0]), passes.backward_input = time(sums[1]), passes.backward_weight = time(sums[2]);
  passes.rebuild = time(rebuilt);
  return passes;
}

std::optional<Time> MeasuredTimes::update(std::int64_t parameters) const {
  if (parameters == 0) return Time{};
  if (scenario_.training.moments.value != Moments::Fp32 ||
      scenario_.training.master_weights.value != MasterWeights::Fp32)
    return std::nullopt;
  const std::string operation = update_operation(scenario_.training.optimizer);
  const OperationSize size{1, parameters, 1, 0, static_cast<double>(parameters)};
  const auto in = [&](Precision precision) {
    return measured_price(
        measured_, {operation, MeasuredPass::Forward, precision, device_.virtual_devices, device_.virtual_devices},
        size);
  };
  // In 16 bits a step also writes the copy that layers read; where that was not measured, it is priced without.
  const Precision precision = scenario_.training.precision;
  const bool copied = precision == Precision::Bf16 || precision == Precision::Fp16;
  auto known = in(copied ? precision : Precision::Fp32);
  if (!known && copied) known = in(Precision::Fp32);
  if (!known) return std::nullopt;
  return Time{rounded(known->ns, "the optimizer's time")};
}

bool MeasuredTimes::all_of(const Model& model, std::int64_t samples) const {
  return std::all_of(model.layers.begin(), model.layers.end(), [&](const Layer& layer) {
    return layer.work < 0 || price(model.works[static_cast<std::size_t>(layer.work)], samples, 0);
  });
}

std::vector<int> MeasuredTimes::loads() const {
  std::vector<int> loads = measured_loads(measured_, device_.virtual_devices);
  return loads.size() > 1 ? loads : std::vector<int>{};
}

std::string MeasuredTimes::caution(const Model& model, std::int64_t samples) const {
  std::size_t unmeasured = 0, beyond = 0;
  std::string first;
  double farthest = 0, error = 0;
  for (const Layer& layer : model.layers) {
    if (layer.work < 0) continue;
    const Work& work = model.works[static_cast<std::size_t>(layer.work)];
    if (!price(work, samples, 0)) {
      if (++unmeasured == 1) first = layer.name;
      continue;
    }
    double distance = 0;
    for (const ProgramStep& step : work.program.get()->steps)
      for (const MeasuredPass pass : kPasses)
        if (const auto known = price(*work.program.get(), step, samples, pass, 0); known && known->beyond > distance) {
          distance = known->beyond;
          if (distance > farthest) error = known->error();
          farthest = std::max(farthest, distance);
        }
    beyond += distance > 0;
  }
  std::string text;
  if (unmeasured > 0)
    text = std::to_string(unmeasured) + " layers (\"" + first + "\" first) hold operations that were not measured on " +
           device_.name + ": they are priced by FLOPs, bytes and its efficiencies";
  if (beyond > 0)
    text += (text.empty() ? "" : "; ") + std::to_string(beyond) +
            " layers are larger or smaller than what was measured on " + device_.name +
            ": their formulas reach beyond their sizes, the farthest by a factor of " +
            std::to_string(std::llround(100 * std::exp(farthest)) / 100) + "." +
            std::to_string(std::llround(100 * std::exp(farthest)) % 100 / 10) + ", +- " + tenths(1.645 * error) +
            " (90 %); calibrate with --model to know";
  return text;
}

std::string MeasuredTimes::provenance() const {
  std::string text = "operations as measured on " + measured_.gpu;
  if (device_.virtual_devices > 1) text += ", one of " + std::to_string(device_.virtual_devices) + " groups of its SMs";
  text += " (" + measured_.date + ", driver " + measured_.driver + ")";
  if (device_.virtual_devices > 1)
    text += ", while as many of the groups worked; sharing of memory bandwidth is not modelled in addition";
  return text;
}

}  // namespace pipewright::core
