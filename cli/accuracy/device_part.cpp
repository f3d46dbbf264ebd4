// Part 1: the device's facts, and whether its SM groups are what a pipeline of virtual devices takes them for: sets of
// SMs that have none in common, and work at the same time.
#include <algorithm>
#include <set>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "cli/accuracy/parts.hpp"
#include "cli/revision.hpp"
#include "kernels/gpu_api.hpp"
#include "kernels/probes.hpp"

namespace pipewright {
namespace {

constexpr int kDevice = 0;
constexpr Time kDelay{20'000'000};  // of each group, when all are to work at once
constexpr int kBlocksPerSm = 64;    // of the probe that looks where blocks run
constexpr Time kStay{200'000};      // of each of its blocks, so that they spread

void gpu_facts(const PartTask& task) {
  const GpuSystem system = gpu_system();
  const GpuFacts& facts = system.gpus.at(kDevice);
  StudyRecord record{.part = task.part, .name = std::string(kDeviceFacts)};
  record.words = {{"name", facts.name},
                  {"driver", system.driver},
                  {"toolkit", system.toolkit},
                  {"program", version_with_commit()},
                  {"no_groups", facts.no_groups},
                  {"group_events", facts.no_groups.empty() ? group_events(kDevice) : ""},
                  {"capability", fmt::format("{}.{}", facts.major, facts.minor)}};
  for (const GpuLibrary& library : system.libraries)
    record.words[library.name] = library.path.empty() ? "not found" : library.version;
  record.figures = {{"sms", facts.sms},
                    {"memory", static_cast<double>(facts.memory.value)},
                    {"free_memory", static_cast<double>(facts.free_memory.value)},
                    {"l2", static_cast<double>(facts.l2.value)},
                    {"sm_clock_hz", static_cast<double>(facts.sm_clock_khz) * 1e3},
                    {"memory_clock_hz", static_cast<double>(facts.memory_clock_khz) * 1e3},
                    {"memory_bus_bits", facts.memory_bus_bits},
                    {"least_group", facts.least_group},
                    {"group_step", facts.group_step},
                    {"gpus", static_cast<double>(system.gpus.size())}};
  // What a GPU that was lost meanwhile says of itself is no fact.
  if (const std::string lost = lost_gpu(task); !lost.empty()) {
    const std::string words = record.word(facts.no_groups.empty() ? "group_events" : "no_groups");
    keep_without_figures(task, record.name, "failed", words.empty() ? lost : words);
    throw GpuLost(task, record.name, words, lost);
  }
  record.attempt = task.results.next_attempt(task.part, record.name);
  task.results.keep(std::move(record));
}

std::set<std::uint32_t> sms_of(GpuStream stream, int sms) {
  const int blocks = kBlocksPerSm * sms;
  const Bytes bytes{static_cast<std::int64_t>(blocks) * static_cast<std::int64_t>(sizeof(std::uint32_t))};
  const GpuMemory ids(kDevice, bytes), seen(kDevice, bytes, GpuMemoryKind::PinnedHost);
  launch_sm_probe(stream, blocks, kStay, static_cast<std::uint32_t*>(ids.data()));
  gpu_copy(stream, seen.data(), ids.data(), bytes, GpuCopy::DeviceToHost);
  gpu_finish(stream);
  const auto* const first = static_cast<const std::uint32_t*>(seen.data());
  return {first, first + blocks};
}

// From the moment at which all may begin until the last has ended, with a delay on each of the first `groups`.
Time delays_at_once(const VirtualDevices& devices, int groups) {
  GpuEvent begin(kDevice), end(kDevice);
  begin.record(devices.stream(0));
  for (int i = 1; i < groups; ++i)
    begin.wait_on(devices.stream(i));
  for (int i = 0; i < groups; ++i)
    launch_delay(devices.stream(i), kDelay);
  std::vector<GpuEvent> ends;
  for (int i = 1; i < groups; ++i) {
    ends.emplace_back(kDevice);
    ends.back().record(devices.stream(i));
    ends.back().wait_on(devices.stream(0));
  }
  end.record(devices.stream(0));
  end.wait();
  return elapsed(begin, end);
}

StudyRecord groups_record(const PartTask& task, int asked, const std::string& name) {
  StudyRecord record{.part = task.part, .name = name};
  const VirtualDevices devices(kDevice, asked, 1);
  std::set<std::uint32_t> all;
  std::size_t shared = 0, most = 0;
  for (int i = 0; i < devices.count(); ++i) {
    const std::set<std::uint32_t> own = sms_of(devices.stream(i), devices.sms(i));
    most = std::max(most, own.size());
    for (const std::uint32_t sm : own)
      shared += all.insert(sm).second ? 0 : 1;
  }
  static_cast<void>(delays_at_once(devices, devices.count()));  // loads the kernel
  const Time alone = delays_at_once(devices, 1), together = delays_at_once(devices, devices.count());
  record.figures = {{"asked", asked},
                    {"groups", devices.count()},
                    {"sms", devices.sms(0)},
                    {"left_over", devices.left_over()},
                    {"sms_seen", static_cast<double>(all.size())},
                    {"most_seen", static_cast<double>(most)},
                    {"sms_shared", static_cast<double>(shared)},
                    {"one_delay_s", static_cast<double>(alone.value) * 1e-9},
                    {"all_delays_s", static_cast<double>(together.value) * 1e-9}};
  return record;
}

}  // namespace

void device_part(const PartTask& task) {
  const PartBudget budget(task.limit);
  if (const std::string name(kDeviceFacts); !task.results.done(task.part, name) && task.has_turn(name))
    task.dry_run() ? processor_part(task) : gpu_facts(task);
  for (const int asked : {2, 4, 8}) {
    const std::string name = fmt::format("groups-{}", asked);
    const StudyRecord* const last = task.results.latest(task.part, name);
    if (last != nullptr && last->attempt > 0 && last->status != "failed") continue;
    if (!task.has_turn(name)) continue;
    if (task.dry_run()) {
      keep_not_applicable(task, name);
      continue;
    }
    if (!budget.allows()) {
      leave_out(task, name);
      continue;
    }
    try {
      StudyRecord record = groups_record(task, asked, name);
      record.attempt = task.results.next_attempt(task.part, name);
      tell(task, name, fmt::format("{:.0f} groups of {:.0f} SMs", record.figure("groups"), record.figure("sms")));
      task.results.keep(record);
    } catch (const std::runtime_error& error) {
      keep_without_figures(task, name, "failed", what_failed(error));
      check_gpu_is_there(task, name, what_failed(error));
    }
  }
}

}  // namespace pipewright
