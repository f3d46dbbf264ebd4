// Part 2: what parts 3 and 4 predict with, measured once.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <list>
#include <system_error>

#include <fmt/format.h>

#include "cli/accuracy/families.hpp"
#include "cli/accuracy/parts.hpp"
#include "cli/accuracy/prices.hpp"
#include "cli/real_run.hpp"
#include "core/check.hpp"
#include "io/profile_file.hpp"

namespace pipewright {
namespace {

constexpr double kLongest = 3;        // seconds of measured rounds per run, as `validate` takes
constexpr double kDryRunSeconds = 2;  // of all runs of a dry run together, or a twentieth of its time

constexpr double kFitSeconds = 20;  // kept back for what stands behind the list of operations

// Whether anything was predicted with the profile: then it is not measured any more.
bool predicted_already(const PartTask& task, const std::string& group) {
  return std::any_of(task.items.begin(), task.items.end(), [&](const StudyItem& item) {
    if ((item.part != 3 && item.part != 4) || price_group(item.scenario) != group) return false;
    const StudyRecord* const run = task.results.latest(item.part, item.name);
    return run != nullptr && run->attempt > 0;
  });
}

void measure(const PartTask& task, const std::string& group, const std::vector<const StudyItem*>& items, double each) {
  const PartBudget clock(task.limit);
  std::list<RealRun> runs;  // stay where they are
  std::vector<const RealRun*> all;
  for (const StudyItem* const item : items)
    all.push_back(&runs.emplace_back(item->scenario));
  const MachineProfile profile = calibrated(all, each, group);
  task.results.folder_of(task.part);
  task.results.write(profile_path(task.results, group), profile_yaml(profile));
  StudyRecord record{.part = task.part, .name = group};
  record.words = {{"source", profile.source}, {"processor", profile.machine.processor}, {"date", profile.date}};
  record.figures = {{"layers", static_cast<double>(profile.layers.size())},
                    {"runs", static_cast<double>(items.size())},
                    {"common_error", profile.common_error},
                    {"independent_error", profile.independent_error},
                    {"seconds", seconds(clock.used())}};
  record.attempt = task.results.next_attempt(task.part, group);
  task.results.keep(std::move(record));
  tell(task, group, fmt::format("{} layers", profile.layers.size()));
}

// What cannot be measured leaves out what is predicted with it, and nothing else.
void or_tell(const PartTask& task, const std::string& name, const std::function<void()>& measure) {
  std::string words;
  try {
    measure();
  } catch (const std::exception& error) {
    keep_without_figures(task, name, "failed", words = what_failed(error));
  }
  check_gpu_is_there(task, name, words);  // what a device's measurements lose is no exception
}

}  // namespace

void calibration_part(const PartTask& task) {
  const PartBudget budget(task.limit);
  const auto groups = price_groups(task.items);
  std::size_t runs = 0;
  for (const auto& [group, items] : groups)
    runs += items.size();
  // A quarter of the part's time is for rounds that count; as much stands around them, the rest is for the operations.
  // Of the whole of it: a profile that is tried again with what is left is measured as well as others, or left out.
  const double limit = seconds(task.budget);
  const double all = task.dry_run() ? std::min(kDryRunSeconds, limit / 20) : limit / 4;
  const double each = std::min(kLongest, all / static_cast<double>(std::max<std::size_t>(1, runs)));
  for (const auto& [group, items] : groups) {
    std::error_code absent;
    if (task.results.done(task.part, group)) {
      if (!std::filesystem::exists(profile_path(task.results, group), absent))
        throw InputError(profile_path(task.results, group) +
                         ": was measured and is gone; nothing is calibrated twice: begin again in another folder");
      continue;
    }
    if (!task.has_turn(group)) continue;
    // What stands around the rounds that count takes as long again.
    const double expected = 2 * each * static_cast<double>(items.size());
    if (!budget.allows(Time{std::llround(expected * 1e9)})) {
      leave_out(task, group);
      continue;
    }
    if (predicted_already(task, group))
      throw InputError(
          fmt::format("--part 2: {} is gone, and predictions were made with it; nothing is calibrated after a "
                      "prediction was seen: begin again in another folder",
                      group));
    or_tell(task, group, [&] { measure(task, group, items, each); });
  }
  if (task.results.done(task.part, kOperations) || !task.has_turn(kOperations)) return;
  const double left = seconds(budget.left()) - kFitSeconds;
  if (task.dry_run() || left > 0)
    or_tell(task, kOperations, [&] { calibrate_families(task, task.dry_run() ? all : left); });
  else
    leave_out(task, kOperations);
}

}  // namespace pipewright
