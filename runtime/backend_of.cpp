#include "runtime/backend_of.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/check.hpp"
#include "runtime/backends/cpu.hpp"
#include "runtime/backends/gpu.hpp"
#include "runtime/gpu_places.hpp"
#include "runtime/launch.hpp"

namespace pipewright::runtime {
namespace {

// Of one machine; looked up once.
const GpuSystem& system_here() {
  static const GpuSystem system = gpu_system();
  return system;
}

// Runs of one command that cut a GPU alike share its groups.
std::shared_ptr<VirtualDevices> devices_of(int gpu, int groups) {
  static std::map<std::pair<int, int>, std::weak_ptr<VirtualDevices>> known;
  std::weak_ptr<VirtualDevices>& found = known[{gpu, groups}];
  std::shared_ptr<VirtualDevices> devices = found.lock();
  if (devices == nullptr) found = devices = std::make_shared<VirtualDevices>(gpu, groups, kStreamsOfWorker);
  return devices;
}

std::string gpu_name(int gpu) {
  for (const GpuFacts& facts : system_here().gpus)
    if (facts.device == gpu) return facts.name;
  return "";
}

const GpuLibrary* cublas_lt() {
  for (const GpuLibrary& library : system_here().libraries)
    if (library.name == "cuBLASLt") return &library;
  return nullptr;
}

// GPUs read each other's memory where they can. Who adds gradients of several GPUs must.
void join_gpus(const Scenario& scenario, const Seating& seating, const std::vector<int>& gpus) {
  const RunTransport transport = scenario.run.transport;
  const auto direct = [&](int gpu, int other) {
    for (const GpuFacts& facts : system_here().gpus)
      for (const GpuPeer& peer : facts.peers)
        if (facts.device == gpu && peer.device == other) return peer.direct;
    return false;
  };
  for (const int gpu : gpus)
    for (const int other : gpus) {
      if (gpu == other) continue;
      if (transport == RunTransport::Peer || direct(gpu, other))
        gpu_join(gpu, other);
      else if (seating.any_reduced() && transport != RunTransport::Staged)
        throw InputError(scenario.run.place, fmt::format("run.transport: gradients are summed over GPU {} and GPU {}, "
                                                         "which cannot read each other's memory; use transport staged",
                                                         gpu, other));
    }
}

// The library multiplies where nothing else was asked for and it is there.
GpuArithmetic arithmetic(const Scenario& scenario) {
  const GpuLibrary* const library = cublas_lt();
  const bool there = library != nullptr && !library->path.empty();
  const bool asked = scenario.run.kernels == RunKernels::Library;
  if (asked && library != nullptr && !library->left_out.empty())
    throw InputError(scenario.run.place, "run.kernels: library: cuBLASLt: " + library->left_out + "; use own");
  if (asked && !there) {
    std::string looked;
    for (std::size_t i = 0; library != nullptr && i < library->looked.size(); ++i)
      looked += (i == 0 ? "; looked for " : ", ") + library->looked[i];
    throw InputError(scenario.run.place, "run.kernels: library: cuBLASLt was not found" + looked + "; use own");
  }
  return {scenario.training.precision, there && scenario.run.kernels != RunKernels::Own};
}

}  // namespace

BackendMaker backend_of(const Scenario& scenario, const Plan& plan, bool processes) {
  const RunRequest& run = scenario.run;
  const int workers = plan.workers();
  check_gpu_keys(run, workers);
  if (run.backend == RunBackend::Cpu) return cpu_backend;
  const GpuPlaces places =
      processes ? gpu_of_process(run, workers, local_rank(), system_here()) : gpu_places(run, workers, system_here());
  const GpuArithmetic how = arithmetic(scenario);
  try {
    std::vector<std::shared_ptr<VirtualDevices>> devices;
    for (const int gpu : places.gpus)
      devices.push_back(devices_of(gpu, places.groups));
    join_gpus(scenario, plan.seating(), places.gpus);
    return [devices, groups = places.groups, how](WorkerId worker) {
      const auto all = static_cast<int>(devices.size()) * groups;
      const auto& device = devices[at(worker % all / groups)];
      return gpu_backend(device, worker % groups, {gpu_name(device->device()), 0, system_here().driver}, how);
    };
  } catch (const GpuError& error) {
    throw InputError(run.place, std::string("run.backend: cuda: ") + error.what());
  }
}

std::string gpu_bus_of_process(const Scenario& scenario, int workers) {
  const int gpu = gpu_of_process(scenario.run, workers, local_rank(), system_here()).gpus.front();
  for (const GpuFacts& facts : system_here().gpus)
    if (facts.device == gpu) return facts.bus.empty() ? fmt::format("GPU {}", gpu) : facts.bus;
  return "";
}

std::unique_ptr<Backend> backend_for_sizes(const Scenario& scenario) {
  return scenario.run.backend == RunBackend::Cpu ? cpu_backend() : gpu_sizes(scenario.training.precision);
}

}  // namespace pipewright::runtime
