#include "calibrate/calibrate.hpp"
#include "cli/commands.hpp"
#include "core/check.hpp"
#include "runtime/backends/cpu.hpp"
#include "study/doctor_text.hpp"

namespace pipewright::cli {
namespace {

CpuFindings cpu_findings() {
  CpuFindings cpu;
  cpu.mpi = PIPEWRIGHT_MPI;
  try {
    const Fingerprint here = fingerprint(*cpu_backend(), "");
    cpu.processor = here.processor, cpu.cores = here.cores, cpu.arithmetic = here.isa;
  } catch (const InputError& error) {
    cpu.refusal = error.what();
  }
  return cpu;
}

int doctor_command(const Arguments&) {
  const CpuFindings cpu = cpu_findings();
  GpuSystem gpu = gpu_system();
  for (GpuFacts& each : gpu.gpus)
    if (each.no_groups.empty() && each.refusal.empty()) each.group_events = group_events(each.device);
  print(doctor_text(cpu, gpu));
  return kDone;
}

}  // namespace

constinit const Command kDoctor{
    .name = "doctor",
    .arguments = "",
    .summary = "what this machine offers: cores, transports, GPUs, their libraries",
    .details = "  Names what is missing and what that means; the exit status is 0 either way.\n",
    .options = {},
    .run = doctor_command,
};

}  // namespace pipewright::cli
