#include "study/doctor_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/text/format_quantity.hpp"

namespace pipewright::study {
namespace {

std::string line(std::string_view name, const std::string& text) {
  return fmt::format("  {:<11} {}\n", name, text);
}

std::string gigahertz(std::int64_t khz) {
  return khz == 0 ? "unknown" : fmt::format("{} GHz", brief(static_cast<double>(khz) * 1e-6));
}

std::string cpu_text(const CpuFindings& cpu) {
  std::string text = "CPU\n";
  text += line("processor",
               fmt::format("{}, {} core{} for this program", cpu.processor, cpu.cores, cpu.cores == 1 ? "" : "s"));
  text += line("arithmetic", cpu.refusal.empty() ? cpu.arithmetic + ": used by run, validate, calibrate"
                                                 : cpu.refusal + ", so run, validate and calibrate stop");
  text += line("threads", "transports local, staged and throttled: built in");
  text += line("processes", "transport tcp: built in");
  text += line("MPI", cpu.mpi);
  return text;
}

std::string group_text(const GpuFacts& gpu) {
  if (!gpu.no_groups.empty()) return "none, so one virtual device only: " + gpu.no_groups;
  std::string text = fmt::format("of {} SMs or more, by {}", gpu.least_group, gpu.group_step);
  for (const GpuSplit& split : gpu.splits) {
    text += fmt::format("; {} x {}", split.groups, split.sms);
    if (split.groups < split.asked) text += fmt::format(" ({} asked for)", split.asked);
    if (!split.how.empty()) text += ", " + split.how;
    if (split.left_over > 0) text += fmt::format(", {} left over", split.left_over);
  }
  if (!gpu.group_events.empty()) text += "; events in their streams: " + gpu.group_events;
  return text;
}

std::string peer_text(const GpuFacts& gpu) {
  if (gpu.peers.empty()) return "no other GPU";
  std::string text;
  for (const GpuPeer& peer : gpu.peers)
    text += fmt::format("{}GPU {}: {}", text.empty() ? "" : ", ", peer.device, peer.direct ? "direct" : "by the host");
  return text;
}

std::string gpu_text(const GpuFacts& gpu) {
  std::string text = line(fmt::format("GPU {}", gpu.device),
                          fmt::format("{}, architecture {}.{}, {} SMs, at {}", gpu.name, gpu.major, gpu.minor, gpu.sms,
                                      gpu.bus.empty() ? "an unknown place" : gpu.bus));
  text += line("  kernels", gpu.refusal.empty() ? "run here" : gpu.refusal);
  text += line("  memory", fmt::format("{}, {} free; L2 {}", short_bytes(gpu.memory), short_bytes(gpu.free_memory),
                                       short_bytes(gpu.l2)));
  text += line("  clocks", fmt::format("SMs {}, memory {} at {} bits", gigahertz(gpu.sm_clock_khz),
                                       gigahertz(gpu.memory_clock_khz), gpu.memory_bus_bits));
  text += line("  SM groups", group_text(gpu));
  return text + line("  peers", peer_text(gpu));
}

std::string library_text(const GpuLibrary& library) {
  if (!library.left_out.empty())
    return fmt::format("left out: {}; would be used for {}", library.left_out, library.use);
  if (library.path.empty())
    return fmt::format("not found; looked for {}; would be used for {}", fmt::join(library.looked, ", "), library.use);
  return fmt::format("{}, {}; for {}", library.version, library.path, library.use);
}

std::string gpus_text(const GpuSystem& gpu) {
  std::string text = "GPU\n";
  if (gpu.toolkit.empty()) {
    text += line("kernels", gpu.missing + ": build with CUDA's nvcc to have them");
    text += line("driver", "not asked for: without kernels nothing would use it");
    text += line("GPUs", "not looked for: everything runs on the CPU");
    return text + line("libraries", "cuBLASLt, cuDNN and NCCL: not looked for");
  }
  text += line("kernels", fmt::format("built with CUDA {} for architectures {}", gpu.toolkit, gpu.architectures));
  text += line("driver", gpu.driver.empty() ? "none: " + gpu.missing : "for CUDA " + gpu.driver);
  if (gpu.gpus.empty()) {
    text += line("GPUs", (gpu.driver.empty() ? "none can be used without the driver" : gpu.missing) +
                             ": everything runs on the CPU");
    text += line("SM groups", "none: there is no GPU to cut into virtual devices");
    text += line("peers", "none: there are no GPUs to link");
  }
  for (const GpuFacts& facts : gpu.gpus)
    text += gpu_text(facts);
  for (const GpuLibrary& library : gpu.libraries)
    text += line(library.name, library_text(library));
  return text;
}

std::string use_text(const GpuSystem& gpu) {
  std::string text = "Used\n";
  text += line("CPU", "by every command");
  return text + line("GPU", gpu.gpus.empty()
                                ? "by no command; the tests of its kernels skip (docs/how-it-works/gpu.md)"
                                : "by run, validate, calibrate and accuracy with --backend cuda (transports local, "
                                  "staged, throttled, peer; tcp, mpi and nccl with a GPU per process), and by the "
                                  "tests of its kernels: meson test -C build --suite gpu");
}

}  // namespace

std::string doctor_text(const CpuFindings& cpu, const GpuSystem& gpu) {
  return cpu_text(cpu) + "\n" + gpus_text(gpu) + "\n" + use_text(gpu);
}

}  // namespace pipewright::study
