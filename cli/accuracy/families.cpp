#include "cli/accuracy/families.hpp"

#include <algorithm>
#include <ctime>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "calibrate/device_list.hpp"
#include "calibrate/device_loop.hpp"
#include "calibrate/device_preset.hpp"
#include "calibrate/fit.hpp"
#include "calibrate/gpu_under_test.hpp"
#include "calibrate/host_under_test.hpp"
#include "core/check.hpp"
#include "io/read_scenario.hpp"
#include "io/writers/fit_plot.hpp"
#include "kernels/gpu_api.hpp"

namespace pipewright {

std::vector<AskedModel> asked_models(const std::vector<StudyItem>& items) {
  std::vector<AskedModel> models;
  for (const StudyItem& item : items) {
    if ((item.part != 3 && item.part != 4) || !item.scenario.training.micro_batch_size) continue;
    const std::int64_t size = item.scenario.training.micro_batch_size->value;
    auto found = std::find_if(models.begin(), models.end(),
                              [&](const AskedModel& one) { return one.model->name == item.scenario.model.name; });
    if (found == models.end()) found = models.insert(models.end(), {&item.scenario.model, {}});
    if (std::find(found->micro_batches.begin(), found->micro_batches.end(), size) == found->micro_batches.end())
      found->micro_batches.push_back(size);
  }
  return models;
}

namespace {

constexpr int kDevice = 0;

std::vector<DeviceSplit> splits_of(const PartTask& task, DeviceUnderTest& device) {
  if (task.dry_run()) return {{1, device.sms(1)}};
  std::vector<DeviceSplit> splits;
  for (const int groups : {1, 2, 4, 8})
    try {
      splits.push_back({groups, device.sms(groups)});
    } catch (const GpuError& error) {
      tell(task, kOperations, fmt::format("{} virtual devices are left out: {}", groups, what_failed(error)));
    }
  return splits;
}

std::string kind_of(const TimeFormula& formula) {
  switch (formula.terms) {
    case SizeTerms::Waves: return "matrix products";
    case SizeTerms::Work: return "attention";
    case SizeTerms::Values: return "memory-bound";
  }
  return "";
}

// Errors of all series of one operation on so many SMs, weighted by their sizes.
struct Family {
  std::string kind;
  double sizes = 0, mean = 0, p95 = 0, bias = 0;
};

void keep_families(const PartTask& task, const MeasuredDevice& measured) {
  std::map<std::pair<std::string, int>, Family> families;
  for (const MeasuredSeries& series : measured.series) {
    if (!series.formula || by_the_host(series.operation)) continue;  // nothing is priced by the host's
    Family& family = families[{series.operation, series.sms}];
    const auto sizes = static_cast<double>(series.sizes.size());
    family.kind = kind_of(*series.formula), family.sizes += sizes;
    family.mean += sizes * series.errors.mean, family.p95 += sizes * series.errors.p95;
    family.bias += sizes * series.errors.bias;
  }
  for (const auto& [key, family] : families) {
    const auto& [operation, sms] = key;
    StudyRecord record{.part = task.part, .name = fmt::format("{}-on-{}-sms", operation, sms)};
    std::replace(record.name.begin(), record.name.end(), ' ', '-');
    record.words = {{"family", operation}, {"kind", family.kind}};
    record.figures = {{"sms", sms},
                      {"shapes", family.sizes},
                      {"mean_error", family.mean / family.sizes},
                      {"p95_error", family.p95 / family.sizes},
                      {"bias", family.bias / family.sizes}};
    task.results.keep(std::move(record));
  }
}

}  // namespace

void calibrate_families(const PartTask& task, double seconds) {
  if (task.results.done(task.part, kOperations)) return;
  const std::string date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  const std::unique_ptr<DeviceUnderTest> device =
      task.dry_run() ? host_under_test(date, PIPEWRIGHT_VERSION) : gpu_under_test(kDevice, date, PIPEWRIGHT_VERSION);
  DeviceSettings settings;
  settings.seconds = seconds;
  MeasuredDevice measured = measure(
      *device, device_measurements(asked_models(task.items), splits_of(task, *device), device->gpus()), settings);
  fit(measured);
  const std::string folder = task.results.folder_of(task.part);
  StudyRecord record{.part = task.part, .name = kOperations};
  try {
    task.results.write(folder + "/device.yaml", device_yaml(preset_of(measured, "device", device->memory())));
  } catch (const InputError& error) {  // too little was measured for a preset
    record.words["no_preset"] = what_failed(error);
  }
  task.results.write(folder + "/fit.svg", fit_svg(measured));
  keep_families(task, measured);
  record.figures = {{"series", static_cast<double>(measured.series.size())}, {"repeat_error", measured.repeat_error}};
  std::size_t sizes = 0;
  for (const MeasuredSeries& series : measured.series)
    sizes += series.sizes.size();
  record.figures["shapes"] = static_cast<double>(sizes);
  for (std::size_t i = 0; i < measured.left_out.size(); ++i)
    record.words[fmt::format("left_out_{:03}", i + 1)] = measured.left_out[i];
  tell(task, kOperations,
       fmt::format("{} shapes in {} series, {} lines of what was left out", sizes, measured.series.size(),
                   measured.left_out.size()));
  if (const std::string lost = lost_line(measured); !lost.empty()) record.status = "failed", record.reason = lost;
  record.attempt = task.results.next_attempt(task.part, kOperations);
  task.results.keep(std::move(record));
}

}  // namespace pipewright
