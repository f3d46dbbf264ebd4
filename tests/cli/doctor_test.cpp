// What doctor says of machines that are not here, and that it runs on this one.
#include <doctest/doctest.h>

#include "study/doctor_text.hpp"
#include "tests/support/run_program.hpp"

namespace pipewright::tests {
namespace {

const CpuFindings kCpu = {"Made-up processor", 2, "cpu (x86-64-v3)", "", "transport mpi (4.1.4)"};

bool tells(const std::string& text, const std::string& line) {
  return text.find(line) != std::string::npos;
}

TEST_CASE("Without kernels every line of the GPU says what is missing") {
  GpuSystem none;
  none.missing = "no GPU kernels in this build (nvcc not found)";
  const std::string text = doctor_text(kCpu, none);
  CHECK(tells(text, "processor   Made-up processor, 2 cores for this program"));
  CHECK(tells(text, "kernels     no GPU kernels in this build (nvcc not found): build with CUDA's nvcc to have them"));
  CHECK(tells(text, "GPUs        not looked for: everything runs on the CPU"));
}

TEST_CASE("Without a driver the kernels are told, and where libraries were looked for") {
  GpuSystem system;
  system.missing = "no NVIDIA driver (libcuda.so.1) on this machine";
  system.toolkit = "13.0", system.architectures = "90";
  system.libraries = {{"cuBLASLt", "matrix products", "", "", {"libcublasLt.so.13", "/a/libcublasLt.so.13"}},
                      {"NCCL", "collectives", "2.28.9", "/b/libnccl.so.2", {"libnccl.so.2"}}};
  const std::string text = doctor_text(kCpu, system);
  CHECK(tells(text, "kernels     built with CUDA 13.0 for architectures 90"));
  CHECK(tells(text, "driver      none: no NVIDIA driver (libcuda.so.1) on this machine"));
  CHECK(tells(text, "SM groups   none: there is no GPU to cut into virtual devices"));
  CHECK(tells(text,
              "cuBLASLt    not found; looked for libcublasLt.so.13, /a/libcublasLt.so.13; would be used for matrix "
              "products"));
  CHECK(tells(text, "NCCL        2.28.9, /b/libnccl.so.2; for collectives"));
  CHECK(tells(text, "threads     transports local, staged and throttled: built in"));
}

TEST_CASE("A GPU is told with its SM groups, fewer than asked for where that is so, and its links") {
  GpuSystem system;
  system.toolkit = system.driver = "13.0", system.architectures = "80,90";
  GpuFacts gpu;
  gpu.name = "Made-up GPU", gpu.bus = "0000:01:00.0", gpu.major = 9, gpu.sms = 132;
  gpu.memory = {std::int64_t{80} << 30}, gpu.free_memory = {std::int64_t{79} << 30}, gpu.l2 = {50 << 20};
  gpu.sm_clock_khz = 1'980'000, gpu.least_group = gpu.group_step = 8;
  gpu.splits = {{2, 2, 64, 4}, {4, 4, 32, 4, "each put together of 4 groups of 8"}, {8, 7, 16, 20}};
  gpu.group_events = "fail: cudaEventRecord: no";
  gpu.peers = {{1, true}, {2, false}};
  system.gpus = {gpu};
  const std::string text = doctor_text(kCpu, system);
  CHECK(tells(text, "GPU 0       Made-up GPU, architecture 9.0, 132 SMs, at 0000:01:00.0"));
  CHECK(tells(text, "memory    80.0 GiB, 79.0 GiB free; L2 50.0 MiB"));
  CHECK(tells(text, "clocks    SMs 1.98 GHz, memory unknown at 0 bits"));
  CHECK(tells(text,
              "SM groups of 8 SMs or more, by 8; 2 x 64, 4 left over; 4 x 32, each put together of 4 groups of 8, "
              "4 left over; 7 x 16 (8 asked for), 20 left over; events in their streams: fail: cudaEventRecord: no\n"));
  CHECK(tells(text, "peers     GPU 1: direct, GPU 2: by the host"));
}

TEST_CASE("doctor answers on this machine") {
  const ProgramRun text = run_program({"doctor"});
  CHECK(text.status == 0);
  CHECK(text.err.empty());
  CHECK(tells(text.out, "\nGPU\n  kernels"));
}

}  // namespace
}  // namespace pipewright::tests
