#include "cli/accuracy/parts.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "calibrate/calibrate.hpp"
#include "cli/revision.hpp"
#include "cli/terminal.hpp"
#include "core/plain_words.hpp"
#include "io/format_quantity.hpp"
#include "kernels/gpu_api.hpp"
#include "runtime/backends/cpu.hpp"

namespace pipewright {

Time PartBudget::used() const {
  const auto passed = std::chrono::steady_clock::now() - begin_;
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count()};
}

std::vector<const StudyItem*> PartTask::own_items() const {
  std::vector<const StudyItem*> own;
  for (const StudyItem& item : items)
    if (item.part == part) own.push_back(&item);
  return own;
}

bool PartTask::has_turn(const std::string& name) const {
  const auto failed = failed_before.find(name);
  return turn == (failed == failed_before.end() ? 0 : failed->second);
}

void tell(const PartTask& task, const std::string& name, const std::string& what) {
  note(fmt::format("part {}: {}: {}", task.part, name, what));
}

void leave_out(const PartTask& task, const std::string& name) {
  leave_out(task, name, fmt::format("the part's {} were used up; call again to go on", short_time(task.budget)));
}

void leave_out(const PartTask& task, const std::string& name, const std::string& why) {
  task.results.keep({.part = task.part, .name = name, .attempt = 0, .status = "left out", .reason = why});
  tell(task, name, "left out: " + why);
}

void keep_without_figures(const PartTask& task, const std::string& name, const std::string& status,
                          const std::string& reason) {
  const int attempt = status == "failed" ? task.results.next_attempt(task.part, name) : 1;
  task.results.keep({.part = task.part, .name = name, .attempt = attempt, .status = status, .reason = reason});
  tell(task, name, status + ": " + reason);
}

void keep_not_applicable(const PartTask& task, const std::string& name) {
  if (task.results.latest(task.part, name) == nullptr)
    keep_without_figures(task, name, "not applicable", "has no meaning on a CPU");
}

void processor_part(const PartTask& task) {
  const Fingerprint here = fingerprint(*cpu_backend(), "");
  StudyRecord record{.part = task.part, .name = std::string(kDeviceFacts)};
  record.words = {{"name", here.processor}, {"arithmetic", here.isa}, {"program", version_with_commit()}};
  record.figures = {{"cores", static_cast<double>(here.cores)}};
  task.results.keep(std::move(record));
}

GpuLost::GpuLost(const PartTask& task, const std::string& name, const std::string& words, const std::string& lost)
    : std::runtime_error(fmt::format("part {}: {}: the GPU is lost to this process ({}{}{}); call again to go on",
                                     task.part, name, words, words.empty() ? "" : "; then ", lost)) {}

std::string lost_gpu(const PartTask& task) {
  if (task.dry_run()) return "";
  try {
    static_cast<void>(gpu_free_memory(0));
  } catch (const GpuError& error) {
    return what_failed(error);
  }
  return "";
}

void check_gpu_is_there(const PartTask& task, const std::string& name, const std::string& words) {
  if (const std::string lost = lost_gpu(task); !lost.empty()) throw GpuLost(task, name, words, lost);
}

std::string what_failed(const std::exception& error) {
  std::string text = plain_words(error);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace pipewright
