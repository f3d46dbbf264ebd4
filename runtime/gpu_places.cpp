#include "runtime/gpu_places.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/ids.hpp"

namespace pipewright::runtime {
namespace {

constexpr std::int64_t kMostGroups = 1'000'000;  // a number that fits an int; what the GPU gives is looked up
constexpr const char* kHow = "; `pipewright doctor` shows what is there";

[[noreturn]] void refuse(const RunRequest& run, const std::string& key, const std::string& text) {
  throw InputError(run.place, key, text);
}

// "2 groups of 64 SMs, 4 of 32"
std::string given(const GpuFacts& facts) {
  std::string text;
  for (const GpuSplit& split : facts.splits) {
    const char* const groups = !text.empty() ? "" : split.groups == 1 ? " group" : " groups";
    const std::string one = fmt::format("{}{} of {}{}", split.groups, groups, split.sms, text.empty() ? " SMs" : "");
    if (text.find(one) == std::string::npos) text += (text.empty() ? "" : ", ") + one;
  }
  return text.empty() ? "none" : text;
}

const GpuFacts& facts_of(const RunRequest& run, std::int64_t gpu, const GpuSystem& system) {
  if (!system.missing.empty()) refuse(run, "run.backend", "cuda: " + system.missing + kHow);
  const auto found = std::ranges::find_if(system.gpus, [&](const GpuFacts& each) { return each.device == gpu; });
  if (found == system.gpus.end())
    refuse(run, "run.gpus",
           fmt::format("there is no GPU {}; this machine has {}, numbered from 0{}", gpu, system.gpus.size(), kHow));
  if (!found->refusal.empty()) refuse(run, "run.gpus", fmt::format("GPU {}: {}", gpu, found->refusal));
  return *found;
}

void check_groups(const RunRequest& run, const GpuFacts& facts, int groups) {
  if (groups == 1) return;
  const std::string what = fmt::format("cuda: {} workers need {} groups of SMs on GPU {} ({}, {} SMs)", groups, groups,
                                       facts.device, facts.name, facts.sms);
  if (!facts.no_groups.empty())
    refuse(run, "run.backend", what + ", which gives none: " + facts.no_groups + "; use a GPU per worker");
  const auto asked = std::ranges::find_if(facts.splits, [&](const GpuSplit& split) { return split.asked == groups; });
  const bool too_few = asked != facts.splits.end() && asked->groups < groups;
  if (too_few || (facts.least_group > 0 && groups * facts.least_group > facts.sms))
    refuse(run, "run.backend", what + ", which gives " + given(facts) + "; use fewer stages or more GPUs");
}

// Every GPU reaches every other's memory.
void check_peers(const RunRequest& run, const GpuSystem& system) {
  for (const std::int64_t from : run.gpus)
    for (const std::int64_t to : run.gpus) {
      const auto& peers = facts_of(run, from, system).peers;
      const bool direct =
          std::ranges::any_of(peers, [&](const GpuPeer& peer) { return peer.device == to && peer.direct; });
      if (from != to && !direct)
        refuse(run, "run.transport",
               fmt::format("peer: GPU {} does not reach the memory of GPU {} directly; use local, whose copies the "
                           "driver brings through the host there, or staged",
                           from, to));
    }
}

}  // namespace

void check_gpu_keys(const RunRequest& run, int workers) {
  const bool cuda = run.backend == RunBackend::Cuda;
  if (run.virtual_devices && !cuda)
    refuse(run, "run.virtual_devices", "cuts GPUs, and run.backend is cpu; use --backend cuda, or leave it out");
  if (run.gpus != RunRequest{}.gpus && !cuda)
    refuse(run, "run.gpus", "names GPUs, and run.backend is cpu; use --backend cuda, or leave it out");
  if (run.kernels == RunKernels::Library && !cuda)
    refuse(run, "run.kernels", "library multiplies on GPUs, and run.backend is cpu; use --backend cuda, or own");
  if (run.synthetic && cuda)
    refuse(run, "run.synthetic",
           "spins on the host's cores for the stated times and uses no GPU, and run.backend is cuda; use --backend "
           "cpu, or leave out run.synthetic");
  if (run.virtual_devices && *run.virtual_devices < workers)
    refuse(run, "run.virtual_devices",
           fmt::format("{} for a plan of {} workers, which need one each; write {} or more, or change plan.stages",
                       *run.virtual_devices, workers, workers));
  if (run.transport == RunTransport::Nccl && !cuda)
    refuse(run, "run.transport", "nccl joins GPUs, and run.backend is cpu; use --backend cuda, or tcp");
  if (run.transport == RunTransport::Nccl && run.virtual_devices)
    refuse(run, "run.virtual_devices",
           "cuts a GPU between workers, and run.transport is nccl, which takes one process per GPU; leave it out, or "
           "use local or staged");
  if (run.transport == RunTransport::Peer && !cuda)
    refuse(run, "run.transport", "peer joins GPUs, and run.backend is cpu; use --backend cuda, or local");
  if (run.transport == RunTransport::Peer && run.gpus.size() < 2)
    refuse(run, "run.transport",
           "peer joins several GPUs, and run.gpus names one; name more, e.g. --gpus 0,1, or use local");
}

GpuPlaces gpu_places(const RunRequest& run, int workers, const GpuSystem& system) {
  GpuPlaces places;
  for (const std::int64_t gpu : run.gpus)
    places.gpus.push_back(facts_of(run, gpu, system).device);
  const auto gpus = static_cast<int>(places.gpus.size());
  const std::int64_t devices = run.virtual_devices.value_or(workers);
  if (devices % gpus != 0)
    refuse(run, "run.gpus",
           fmt::format("{} {} cannot be spread evenly over {} GPUs; name as many as divide them", devices,
                       run.virtual_devices ? "virtual devices" : "workers", gpus));
  if (devices > kMostGroups) refuse(run, "run.virtual_devices", fmt::format("{} is more than any GPU gives", devices));
  places.groups = static_cast<int>(devices) / gpus;
  for (const std::int64_t gpu : run.gpus)
    check_groups(run, facts_of(run, gpu, system), places.groups);
  if (run.transport == RunTransport::Peer) check_peers(run, system);
  return places;
}

GpuPlaces gpu_of_process(const RunRequest& run, int workers, int local, const GpuSystem& system) {
  static_cast<void>(facts_of(run, run.gpus.front(), system));  // that there is any is told first
  if (local >= static_cast<int>(run.gpus.size()))
    refuse(run, "run.gpus",
           fmt::format("{} for process {} of this machine ({} workers in all); every process has a GPU of its own: "
                       "name as many, e.g. --gpus 0,1, or use transport local",
                       run.gpus.size() == 1 ? "one GPU is named, none" : "none is left", local, workers));
  return {{facts_of(run, run.gpus[at(local)], system).device}, 1};
}

bool one_gpu_at_most(const std::string& folder, const char* visible) {
  if (visible != nullptr) return std::string_view(visible).find(',') == std::string_view::npos;
  int nodes = 0;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable)) {
    const std::string name = entry.path().filename();
    nodes +=
        name.size() > 6 && name.starts_with("nvidia") && name.find_first_not_of("0123456789", 6) == std::string::npos;
  }
  return nodes == 1;
}

}  // namespace pipewright::runtime
