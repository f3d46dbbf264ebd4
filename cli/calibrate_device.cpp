#include "cli/calibrate_device.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "calibrate/device_loop.hpp"
#include "calibrate/device_preset.hpp"
#include "calibrate/fit.hpp"
#include "calibrate/gpu_under_test.hpp"
#include "calibrate/host_under_test.hpp"
#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "core/check.hpp"
#include "core/ending.hpp"
#include "io/console.hpp"
#include "io/read/read_file.hpp"
#include "io/read/read_scenario.hpp"
#include "io/text/names.hpp"
#include "io/writers/fit_plot.hpp"
#include "io/writers/writers.hpp"
#include "io/yaml/yaml.hpp"
#include "kernels/gpu_api.hpp"
#include "kernels/nccl.hpp"
#include "runtime/gpu_places.hpp"
#include "runtime/signals.hpp"
#include "study/accuracy.hpp"
#include "study/ranks.hpp"
#include "study/what_to_measure.hpp"

namespace pipewright::cli {
namespace {

constexpr std::array<std::string_view, 2> kDeviceEndings = {".yaml", ".svg"};
constexpr std::array<std::int64_t, 4> kMicroBatches = {1, 2, 4, 8};  // where a model comes without a plan

struct DeviceAsked {
  Model model;
  std::vector<std::int64_t> micro_batches;
  std::optional<Scenario> scenario;  // where it has a plan
};

// A scenario's model at its micro-batch, or a model alone at several.
DeviceAsked asked_model(const std::string& path) {
  const ReadOptions options{.set = {}, .config_path = config_path()};
  const Yaml root = parse_yaml(read_file(path), path);
  if (root.find("plan") == nullptr && root.find("training") == nullptr)
    return {read_model(path, options), {kMicroBatches.begin(), kMicroBatches.end()}, std::nullopt};
  Scenario scenario = read_scenario(path, options);
  DeviceAsked asked{scenario.model, {kMicroBatches.begin(), kMicroBatches.end()}, scenario};
  if (scenario.training.micro_batch_size) asked.micro_batches = {scenario.training.micro_batch_size->value};
  return asked;
}

// The scenario as the preset prices it.
Scenario on_device(Scenario scenario, const Device& preset) {
  each_device(scenario.cluster, [&](Device& device) { device = preset; });
  scenario.cost = CostSourceKind::Roofline;
  return scenario;
}

// Groups that the device can be cut into; one that it cannot is an error where it was asked for.
std::vector<DeviceSplit> splits_of(DeviceUnderTest& device, const std::set<int>& numbers, bool asked) {
  std::vector<DeviceSplit> splits;
  for (const int number : numbers)
    try {
      splits.push_back({number, device.sms(number)});
    } catch (const GpuError& error) {
      if (asked) throw InputError(Place{}, "--virtual-devices", fmt::format("{}: {}", number, error.what()));
      note(fmt::format("{} virtual devices are left out: {}", number, error.what()));
    }
  return splits;
}

// Without --model: those of the runs that ship for GPUs, whose predictions the calibration is to be judged by.
std::vector<AccuracyItem> shipped_items() {
  try {
    return accuracy_items(shipped_for_gpus(), {.set = {}, .config_path = config_path()});
  } catch (const InputError& error) {
    note(std::string("the models of the shipped scenarios are left out: ") + error.what());
    return {};
  }
}

// Each model with the sizes of its micro-batches.
std::vector<AskedModel> asked_models(const std::vector<AccuracyItem>& items) {
  std::vector<AskedModel> models;
  for (const AccuracyItem& item : items) {
    if (!item.scenario.training.micro_batch_size) continue;
    const std::int64_t size = item.scenario.training.micro_batch_size->value;
    auto found = std::ranges::find_if(
        models, [&](const AskedModel& one) { return one.model->name == item.scenario.model.name; });
    if (found == models.end()) found = models.insert(models.end(), {&item.scenario.model, {}});
    if (std::ranges::find(found->micro_batches, size) == found->micro_batches.end())
      found->micro_batches.push_back(size);
  }
  return models;
}

std::vector<Precision> precisions_of(const Arguments& arguments) {
  std::vector<Precision> precisions;
  if (!arguments.has("--precision")) return precisions;
  const std::string text = arguments.last("--precision", "");
  for (const std::string& word : parts_of(text)) {
    const auto known = kTrainingPrecisions;
    const auto found = std::ranges::find_if(known, [&](const auto& each) { return each.first == word; });
    if (found == known.end())
      throw InputError(Place{}, "--precision",
                       "\"" + text + "\" is not a list of bf16, fp32, fp16, tf32; write e.g. --precision bf16");
    precisions.push_back(found->second);
  }
  return precisions;
}

std::string name_of(const std::vector<std::string>& outputs, const MeasuredDevice& measured) {
  for (const std::string& path : outputs)
    if (path.ends_with(".yaml")) return std::filesystem::path(path).stem().string();
  return measured.gpu;
}

// Nothing: the measurements were interrupted before there was enough for one.
std::optional<Device> preset_until_then(const MeasuredDevice& measured, const std::string& name, Bytes memory) {
  try {
    return preset_of(measured, name, memory);
  } catch (const InputError&) {
    if (asked_to_end() == 0) throw;
    return std::nullopt;
  }
}

}  // namespace

int calibrate_device(const Arguments& arguments) {
  refuse_options(arguments, {"--set", "--sizes", "--gpus"},
                 " belongs to the calibration of a scenario; name one, or leave it out");
  const std::string backend = arguments.last("--backend", "cpu");
  if (backend != "cpu" && backend != "cuda")
    throw InputError(Place{}, "--backend",
                     "\"" + backend + "\" is not one; use cuda, or cpu for one core of this machine");
  const std::vector<std::string> outputs = arguments.all("--output"), models = arguments.all("--model");
  const std::vector<std::size_t> endings = check_outputs(outputs, models, kDeviceEndings);
  DeviceSettings settings;
  settings.seconds = seconds(option_time(arguments, "--budget", "8min"));
  const std::vector<int> asked_numbers =
      option_numbers(arguments, "--virtual-devices", backend == "cpu" ? "1" : "1,2,4,8");
  const std::set<int> numbers(asked_numbers.begin(), asked_numbers.end());
  const std::vector<Precision> precisions = precisions_of(arguments);
  std::list<DeviceAsked> asked;       // stay where they are
  std::vector<AccuracyItem> shipped;  // likewise
  std::vector<AskedModel> models_asked;
  if (backend == "cuda" && models.empty()) shipped = shipped_items(), models_asked = asked_models(shipped);
  for (const std::string& path : models) {
    asked.push_back(asked_model(path));
    models_asked.push_back({&asked.back().model, asked.back().micro_batches});
  }
  const std::string date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  // Before anything asks CUDA. On one GPU nothing is sent, and loading all of cuBLASLt at once would take long.
  if (backend == "cuda" && !one_gpu_at_most("/dev", std::getenv("CUDA_VISIBLE_DEVICES"))) prepare_for_nccl();
  if (backend == "cuda" && gpu_count() == 0)
    throw InputError(
        Place{}, "--backend",
        "cuda: " + gpu_status() + "; `pipewright doctor` shows what is there, --backend cpu measures a core");
  const std::unique_ptr<DeviceUnderTest> device =
      backend == "cpu" ? host_under_test(date, PIPEWRIGHT_VERSION) : gpu_under_test(0, date, PIPEWRIGHT_VERSION);
  const std::vector<DeviceSplit> splits = splits_of(*device, numbers, arguments.has("--virtual-devices"));
  MeasuredDevice measured;
  {
    ProgressLine line;
    const Interruption interruption;  // what was measured until then is kept
    settings.progress = [&](const std::string& what, std::int64_t done, std::int64_t all) {
      line.show("calibrating", done, all, what);
    };
    const std::vector<DeviceMeasurement> list =
        of_precisions(device_measurements(models_asked, splits, device->gpus()), precisions);
    measured = measure(*device, list, settings);
  }
  for (const std::string& line : measured.left_out)
    if (line.find("its result is wrong") != std::string::npos || line.find(kLost) != std::string::npos)
      note("warning: left out: " + line);
  fit(measured);
  const std::optional<Device> made = preset_until_then(measured, name_of(outputs, measured), device->memory());
  if (!made) return interrupted("no preset is made: too little was measured until then");
  const Device& preset = *made;
  print(outputs.empty() ? device_yaml(preset) : fit_table(measured));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    write_file(outputs[i], endings[i] == 0 ? device_yaml(preset) : fit_svg(measured));
    const std::string path = outputs[i].find('/') == std::string::npos ? "./" + outputs[i] : outputs[i];
    note("wrote " + outputs[i] + (endings[i] == 0 ? " (device: --set cluster.node.device=" + path + ")" : ""));
  }
  for (const DeviceAsked& each : asked)
    if (each.scenario) note(what_to_measure(on_device(*each.scenario, preset)));
  if (asked_to_end() != 0) return interrupted("the preset lacks what was not measured until then");
  return lost_line(measured).empty() ? kDone : kBadInput;  // what was measured before it is kept all the same
}

}  // namespace pipewright::cli
