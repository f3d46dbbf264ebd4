// Where workers go on GPUs, from made-up facts: no GPU is needed, and none of the figures is a measured one.
#include "runtime/gpu_places.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "core/check.hpp"
#include "tests/cli/refusals.hpp"
#include "tests/io/scratch.hpp"

namespace pipewright::tests {
namespace {

// A GPU of 100 SMs that gives 8 groups at most, made up.
GpuFacts made_up_gpu(int device) {
  GpuFacts gpu;
  gpu.device = device, gpu.name = "Made-up 100", gpu.sms = 100;
  gpu.least_group = 8, gpu.group_step = 8;
  gpu.splits = {{2, 2, 48, 4}, {4, 4, 24, 4}, {8, 6, 16, 4}};
  return gpu;
}

GpuSystem made_up(int gpus) {
  GpuSystem system;
  for (int i = 0; i < gpus; ++i)
    system.gpus.push_back(made_up_gpu(i));
  return system;
}

RunRequest on(std::vector<std::int64_t> gpus) {
  RunRequest run;
  run.backend = RunBackend::Cuda, run.gpus = std::move(gpus);
  return run;
}

TEST_CASE("Workers are spread evenly over the GPUs in their order, whole ones where there are as many") {
  const GpuSystem system = made_up(4);
  CHECK(gpu_places(on({0}), 1, system).groups == 1);
  CHECK(gpu_places(on({0}), 4, system).groups == 4);
  const GpuPlaces two = gpu_places(on({3, 1}), 4, system);
  CHECK(two.gpus == std::vector<int>{3, 1});
  CHECK(two.groups == 2);
  CHECK(gpu_places(on({0, 1, 2, 3}), 4, system).groups == 1);
  RunRequest four = on({0});
  four.virtual_devices = 4;
  CHECK(gpu_places(four, 1, system).groups == 4);  // one worker on a quarter
}

// What was told, in one line.
std::string told(const ProgramRun& run) {
  std::string text;
  for (const char c : run.out + run.err)
    if (const char plain = c == '\n' ? ' ' : c; plain != ' ' || (!text.empty() && text.back() != ' ')) text += plain;
  return text;
}

TEST_CASE("simulate warns where a run of the scenario would cut a GPU, and only there") {
  const std::string scenario = std::string(std::getenv("PIPEWRIGHT_SOURCE")) + "/scenarios/gpu/pipeline.yaml";
  const ProgramRun cut = run_program({"simulate", scenario});
  INFO(told(cut));
  REQUIRE(cut.status == 0);
  CHECK(contains(told(cut),
                 "a run of this scenario cuts 1 GPU into 4 virtual devices, and here each worker has a whole "
                 "h200-sxm-141g: times and memory are not those of the run"));
  const ProgramRun eighths = run_program({"simulate", scenario, "--set", "run.virtual_devices=8"});
  CHECK(contains(told(eighths), "cuts 1 GPU into 8 virtual devices"));
  const ProgramRun halves = run_program({"simulate", scenario, "--set", "run.gpus=[0,1]"});
  CHECK(contains(told(halves), "cuts 2 GPUs into 4 virtual devices"));
  const ProgramRun whole = run_program({"simulate", scenario, "--set", "run.gpus=[0,1,2,3]"});  // a GPU per stage
  INFO(told(whole));
  REQUIRE(whole.status == 0);
  CHECK_FALSE(contains(told(whole), "a run of this scenario cuts"));
}

TEST_CASE("What the GPUs cannot give is refused with what they give") {
  const GpuSystem system = made_up(2);
  const auto refused = [&](const RunRequest& run, int workers) {
    try {
      gpu_places(run, workers, system);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("nothing is refused");
  };
  const std::string eight = refused(on({0}), 8);
  CHECK(contains(eight, "8 workers need 8 groups of SMs on GPU 0 (Made-up 100, 100 SMs)"));
  CHECK(contains(eight, "gives 2 groups of 48 SMs, 4 of 24, 6 of 16"));
  CHECK(contains(refused(on({0}), 16), "gives 2 groups"));  // 16 groups of 8 SMs are more than it has
  GpuSystem whole = made_up(1);
  whole.gpus[0].splits = {{2, 1, 100}};
  CHECK_THROWS_WITH_AS(gpu_places(on({0}), 2, whole), doctest::Contains("gives 1 group of 100 SMs; use"), InputError);
  CHECK(contains(refused(on({2}), 2), "there is no GPU 2; this machine has 2"));
  CHECK(contains(refused(on({0, 1}), 3), "3 workers cannot be spread evenly over 2 GPUs"));
}

TEST_CASE("A GPU that cannot run the kernels, or gives no groups, says why") {
  GpuSystem system = made_up(1);
  system.gpus[0].no_groups = "the driver is too old, made up";
  CHECK_THROWS_WITH_AS(gpu_places(on({0}), 2, system), doctest::Contains("too old, made up"), InputError);
  CHECK(gpu_places(on({0}), 1, system).groups == 1);
  system.gpus[0].refusal = "no kernel image, made up";
  CHECK_THROWS_WITH_AS(gpu_places(on({0}), 1, system), doctest::Contains("GPU 0: no kernel image"), InputError);
  system.missing = "no NVIDIA driver, made up";
  CHECK_THROWS_WITH_AS(gpu_places(on({0}), 1, system), doctest::Contains("no NVIDIA driver, made up"), InputError);
}

TEST_CASE("Transport peer needs a direct link between all its GPUs") {
  GpuSystem system = made_up(2);
  RunRequest run = on({0, 1});
  run.transport = RunTransport::Peer;
  system.gpus[0].peers = {{1, true}};
  CHECK_THROWS_WITH_AS(gpu_places(run, 2, system), doctest::Contains("GPU 1 does not reach the memory of GPU 0"),
                       InputError);
  system.gpus[1].peers = {{0, true}};
  CHECK(gpu_places(run, 2, system).gpus.size() == 2);
}

TEST_CASE("Processes have a whole GPU each, by their number on their machine") {
  const GpuSystem system = made_up(2);
  const GpuPlaces second = gpu_of_process(on({0, 1}), 4, 1, system);
  CHECK(second.gpus == std::vector<int>{1});
  CHECK(second.groups == 1);
  CHECK_THROWS_WITH_AS(gpu_of_process(on({0}), 2, 1, system), doctest::Contains("one GPU is named"), InputError);
}

TEST_CASE("Keys of GPUs fit the backend and the plan") {
  RunRequest run = on({0});
  run.virtual_devices = 4;
  CHECK_NOTHROW(check_gpu_keys(run, 4));
  CHECK_NOTHROW(check_gpu_keys(run, 2));  // two of the four do nothing
  CHECK_THROWS_WITH_AS(check_gpu_keys(run, 5), doctest::Contains("4 for a plan of 5 workers"), InputError);
  run.backend = RunBackend::Cpu;
  CHECK_THROWS_WITH_AS(check_gpu_keys(run, 4), doctest::Contains("run.virtual_devices"), InputError);
  run.virtual_devices.reset(), run.gpus = {0, 1};
  CHECK_THROWS_WITH_AS(check_gpu_keys(run, 2), doctest::Contains("run.gpus"), InputError);
  run = on({0}), run.transport = RunTransport::Peer;
  CHECK_THROWS_WITH_AS(check_gpu_keys(run, 2), doctest::Contains("peer joins several GPUs"), InputError);
  run = {}, run.transport = RunTransport::Peer;
  CHECK_THROWS_WITH_AS(check_gpu_keys(run, 2), doctest::Contains("run.backend is cpu"), InputError);
  run = {}, run.transport = RunTransport::Nccl;
  CHECK_THROWS_WITH_AS(check_gpu_keys(run, 2), doctest::Contains("nccl joins GPUs"), InputError);
  run = on({0, 1}), run.transport = RunTransport::Nccl;
  CHECK_NOTHROW(check_gpu_keys(run, 2));
  run.virtual_devices = 2;
  CHECK_THROWS_WITH_AS(check_gpu_keys(run, 2), doctest::Contains("one process per GPU"), InputError);
}

// Whether there is a GPU or not, these are wrong before one is looked for.
TEST_CASE("One GPU is told from several before anything asks CUDA; where nothing tells, there may be several") {
  const Scratch folder;
  const std::string dev = std::filesystem::path(folder.write("null", "")).parent_path();
  CHECK_FALSE(one_gpu_at_most(dev, nullptr));
  for (const std::string node : {"nvidiactl", "nvidia-uvm", "nvidia0"})
    folder.write(node, "");
  CHECK(one_gpu_at_most(dev, nullptr));
  CHECK(one_gpu_at_most(dev, "1"));
  CHECK_FALSE(one_gpu_at_most(dev, "0,1"));
  folder.write("nvidia1", "");
  CHECK_FALSE(one_gpu_at_most(dev, nullptr));
  CHECK(one_gpu_at_most(dev, "GPU-8f2c"));
  CHECK_FALSE(one_gpu_at_most(dev + "/absent", nullptr));
}

TEST_CASE("run, validate, calibrate and capacity take --backend, --virtual-devices and --gpus") {
  const std::string two = "scenarios/validation/two-stage-gpipe.yaml";
  for (const std::string command : {"run", "validate", "calibrate"}) {
    CAPTURE(command);
    CHECK(
        contains(error_of({command, two, "--backend", "cuda", "--virtual-devices", "1"}), "1 for a plan of 2 workers"));
    CHECK(contains(error_of({command, two, "--virtual-devices", "2"}), "run.backend is cpu"));
    const std::string twice = error_of({command, two, "--backend", "cuda", "--gpus", "0,0"});
    CHECK(contains(twice, "--gpus 0,0: run.gpus.1: \"0\" stands in the list already"));
    CHECK_FALSE(contains(twice, "--set"));
    CHECK(contains(error_of({command, two, "--backend", "cuda", "--set", "run.synthetic=true"}), "run.synthetic"));
    CHECK(contains(error_of({command, two, "--backend", "cuda", "--gpus", "none"}), "run.gpus"));
    CHECK(contains(error_of({command, two, "--backend", "cuda", "--gpus", "99"}), "cuda"));
  }
  CHECK(contains(error_of({"capacity", two, "--over", "model.layers.1.repeat", "--backend", "cuda", "--virtual-devices",
                           "1", "--set", "run.memory_cap=40 MiB"}),
                 "1 for a plan of 2 workers"));
  // Without a cap as well: the memory model is no answer to a wrong question.
  CHECK(contains(
      error_of({"capacity", two, "--over", "model.layers.1.repeat", "--backend", "cuda", "--virtual-devices", "1"}),
      "1 for a plan of 2 workers"));
  CHECK(
      contains(error_of({"capacity", two, "--over", "model.layers.1.repeat", "--gpus", "0,1"}), "run.backend is cpu"));
}

TEST_CASE("capacity counts a GPU's blocks, at multiples of 512 B, without a GPU") {
  const std::vector<std::string> question = {"capacity", "scenarios/validation/small-ops.yaml",
                                             "--over",   "model.layers.1.repeat",
                                             "--set",    "run.memory_cap=2 MiB",
                                             "--json"};
  std::vector<std::string> on_gpu = question;
  on_gpu.insert(on_gpu.end(), {"--backend", "cuda"});
  const ProgramRun cpu = run_program(question), gpu = run_program(on_gpu);
  REQUIRE(cpu.status == 0);
  REQUIRE(gpu.status == 0);
  CHECK(cpu.out != gpu.out);
  const auto at = gpu.out.find("\"peak_bytes\": ");
  REQUIRE(at != std::string::npos);
  CHECK(std::stoll(gpu.out.substr(at + 14)) % 512 == 0);
}

}  // namespace
}  // namespace pipewright::tests
