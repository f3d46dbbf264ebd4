#include "cli/doctor_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/shapes.hpp"
#include "io/format_quantity.hpp"
#include "io/writers/json_text.hpp"

namespace pipewright {
namespace {

std::string line(std::string_view name, const std::string& text) {
  return fmt::format("  {:<11} {}\n", name, text);
}

std::string gigahertz(std::int64_t khz) {
  return khz == 0 ? "not told" : fmt::format("{} GHz", brief(static_cast<double>(khz) * 1e-6));
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
  return text +
         line("GPU", gpu.gpus.empty()
                         ? "by no command; the tests of its kernels skip (docs/how-it-works/gpu.md)"
                         : "by run, validate, calibrate and accuracy with --backend cuda (transports local, staged, "
                           "throttled, peer; tcp, mpi and nccl with a GPU per process), and by the tests of "
                           "its kernels: meson test -C build --suite gpu");
}

void write(JsonText& json, const GpuFacts& gpu) {
  json.open('{').field("device", gpu.device).field("name", gpu.name).field("bus", gpu.bus);
  json.field("architecture", fmt::format("{}.{}", gpu.major, gpu.minor)).field("sms", gpu.sms);
  json.field("memory_bytes", gpu.memory).field("free_memory_bytes", gpu.free_memory).field("l2_bytes", gpu.l2);
  json.field("sm_clock_khz", gpu.sm_clock_khz).field("memory_clock_khz", gpu.memory_clock_khz);
  json.field("memory_bus_bits", gpu.memory_bus_bits).field("refusal", gpu.refusal);
  json.key("sm_groups").open('{').field("least", gpu.least_group).field("step", gpu.group_step);
  json.field("refusal", gpu.no_groups).field("events", gpu.group_events).key("splits").open('[');
  for (const GpuSplit& split : gpu.splits)
    json.open('{')
        .field("asked", split.asked)
        .field("groups", split.groups)
        .field("sms", split.sms)
        .field("left_over", split.left_over)
        .field("how", split.how)
        .close();
  json.close().close().key("peers").open('[');
  for (const GpuPeer& peer : gpu.peers)
    json.open('{').field("device", peer.device).field("direct", peer.direct).close();
  json.close().close();
}

}  // namespace

std::string doctor_text(const CpuFindings& cpu, const GpuSystem& gpu) {
  return cpu_text(cpu) + "\n" + gpus_text(gpu) + "\n" + use_text(gpu);
}

std::string doctor_json(const CpuFindings& cpu, const GpuSystem& gpu) {
  JsonText json;
  json.open('{').field("schema", "pipewright.doctor/1").key("cpu").open('{');
  json.field("processor", cpu.processor).field("cores", cpu.cores).field("arithmetic", cpu.arithmetic);
  json.field("refusal", cpu.refusal).field("mpi", cpu.mpi).close();
  json.key("gpu").open('{').field("missing", gpu.missing).field("toolkit", gpu.toolkit);
  json.field("architectures", gpu.architectures).field("driver", gpu.driver).key("gpus").open('[');
  for (const GpuFacts& facts : gpu.gpus)
    write(json, facts);
  json.close().key("libraries").open('[');
  for (const GpuLibrary& library : gpu.libraries)
    json.open('{')
        .field("name", library.name)
        .field("version", library.version)
        .field("path", library.path)
        .field("looked", library.looked)
        .field("left_out", library.left_out)
        .close();
  json.close().close().close();
  return std::move(json).text();
}

JsonShape doctor_shape() {
  using namespace shape;
  const JsonShape cpu =
      object({{"processor", text()}, {"cores", whole()}, {"arithmetic", text()}, {"refusal", text()}, {"mpi", text()}});
  const JsonShape split =
      object({{"asked", whole()}, {"groups", whole()}, {"sms", whole()}, {"left_over", whole()}, {"how", text()}});
  const JsonShape groups =
      object({{"least", whole()}, {"step", whole()}, {"refusal", text()}, {"events", text()}, {"splits", list(split)}});
  const JsonShape gpu = object({{"device", whole()},
                                {"name", text()},
                                {"bus", text()},
                                {"architecture", text()},
                                {"sms", whole()},
                                {"memory_bytes", whole()},
                                {"free_memory_bytes", whole()},
                                {"l2_bytes", whole()},
                                {"sm_clock_khz", whole()},
                                {"memory_clock_khz", whole()},
                                {"memory_bus_bits", whole()},
                                {"refusal", text()},
                                {"sm_groups", groups},
                                {"peers", list(object({{"device", whole()}, {"direct", flag()}}))}});
  const JsonShape library =
      object({{"name", text()}, {"version", text()}, {"path", text()}, {"looked", list(text())}, {"left_out", text()}});
  const JsonShape system = object({{"missing", text()},
                                   {"toolkit", text()},
                                   {"architectures", text()},
                                   {"driver", text()},
                                   {"gpus", list(gpu)},
                                   {"libraries", list(library)}});
  return bare_document("pipewright.doctor/1", {{"cpu", cpu}, {"gpu", system}});
}

}  // namespace pipewright
