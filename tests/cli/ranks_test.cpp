// `run` and `validate` over several processes, as users and launchers start them.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/run_ranks.hpp"

using namespace pipewright::tests;

namespace {

const std::string kReplicas = "scenarios/validation/pipedream-2-1.yaml";

// One process per list of arguments. `size`: of the world.
std::vector<ProgramRun> ranks(const std::vector<std::vector<std::string>>& arguments, int size = 0) {
  std::vector<RankStart> starts;
  for (const auto& each : arguments)
    starts.push_back({each, {}});
  return run_ranks(std::move(starts), size);
}
std::vector<ProgramRun> ranks(int count, const std::vector<std::string>& arguments) {
  return ranks(std::vector<std::vector<std::string>>(static_cast<std::size_t>(count), arguments));
}

// Open MPI leaves memory behind when it ends (4.1.4: its event base and module lists), so leaks are not looked for.
ProgramInput by_mpirun(int count, const std::vector<std::string>& through = {}) {
  ProgramInput input;
  input.settings = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "ASAN_OPTIONS=detect_leaks=0"};
  input.launcher = {"mpirun", "--oversubscribe", "-n", std::to_string(count)};
  input.launcher.insert(input.launcher.end(), through.begin(), through.end());
  return input;
}

// The cut is given: a balanced one follows what each call measures.
std::vector<std::string> validate(const std::string& scenario, const std::string& transport, const std::string& out) {
  std::vector<std::string> words = {"validate",    scenario,  "--budget", "50 ms",
                                    "--steps",     "3",       "--warmup", "0",
                                    "--tolerance", "1000%",   "-o",       out,
                                    "--transport", transport, "--set",    "training.micro_batch_size=1"};
  if (scenario == kTwoStages) words.insert(words.end(), {"--set", "plan.partition={layers: [4, 5]}"});
  if (scenario == kReplicas) words.insert(words.end(), {"--set", "plan.partition={layers: [5, 2]}"});
  return words;
}
std::string losses(const std::string& folder) {
  return file_text(folder + "/loss.csv");
}

}  // namespace

TEST_CASE("tcp: two and three processes validate as threads do, losses and memory are the same" *
          doctest::test_suite("whole runs")) {
  ScratchFolder folder;
  for (const std::string& scenario : {kTwoStages, kReplicas}) {
    const int workers = scenario == kTwoStages ? 2 : 3;
    const std::string of = std::to_string(workers), threads = folder.path("threads-" + of),
                      tcp = folder.path("tcp-" + of);
    const ProgramRun local = run_program(validate(scenario, "local", threads));
    const auto runs = ranks(workers, validate(scenario, "tcp", tcp));
    CAPTURE(runs[0].err);
    CHECK(runs[0].out.substr(0, 60) == local.out.substr(0, 60));
    CHECK(contains(runs[0].out, "verdict: "));
    for (const ProgramRun& run : runs)
      CHECK(run.status == runs[0].status);  // all end with rank 0's
    for (std::size_t r = 1; r < runs.size(); ++r) {
      CHECK(runs[r].out.empty());
      CHECK(runs[r].err.empty());
    }
    CHECK(losses(tcp).starts_with("step,loss\n0,"));
    CHECK(losses(tcp) == losses(threads));
    const auto ours = nlohmann::json::parse(file_text(tcp + "/comparison.json"));
    const auto theirs = nlohmann::json::parse(file_text(threads + "/comparison.json"));
    for (std::size_t w = 0; w < static_cast<std::size_t>(workers); ++w)
      CHECK(ours["workers"][w]["live_peak"] == theirs["workers"][w]["live_peak"]);
  }
}

TEST_CASE("tcp: a run without arithmetic sends what is stated, whoever carries it") {
  ScratchFolder folder;
  const auto runs = ranks(2, validate("scenarios/validation/synthetic.yaml", "tcp", folder.path("tcp")));
  CAPTURE(runs[0].err);
  CHECK(contains(runs[0].out, "synthetic: times are the stated ones, no arithmetic was done"));
  CHECK(contains(runs[0].out, "traffic between stages"));
  CHECK(!contains(runs[0].out, "NOT EXACT"));
  CHECK(runs[1].out.empty());
}

TEST_CASE("tcp: gradients over four processes are bit-identical to one worker's") {
  const auto runs = ranks(4, {"run", kTwoStages, "--transport", "tcp", "--check", "gradients", "--set",
                              "plan.data_parallel=2", "--set", "cluster.node.devices=4"});
  CHECK(runs[0].status == 0);
  CHECK(runs[0].out.starts_with("gradients: bit-identical to one worker's\n"));
  for (std::size_t r = 1; r < runs.size(); ++r)
    CHECK((runs[r].status == 0 && runs[r].out.empty()));
}

TEST_CASE("tcp: processes go on from a checkpoint of threads, each with its worker's file, to the same bits") {
  ScratchFolder folder;
  const auto arguments = [&](const std::string& to, const std::string& steps, const std::vector<std::string>& more) {
    std::vector<std::string> all = {"run", kReplicas,      "--warmup",      "0",       "--steps",
                                    steps, "--checkpoint", folder.path(to), "--every", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  CHECK(run_program(arguments("whole", "4", {})).status == 0);
  CHECK(run_program(arguments("cut", "2", {})).status == 0);
  for (const ProgramRun& run : ranks(3, arguments("cut", "4", {"--resume", "--transport", "tcp"})))
    CHECK(run.status == 0);
  for (const std::string file : {"manifest", "worker-0", "worker-1", "worker-2"})
    CHECK(file_text(folder.path("cut/step-4/" + file)) == file_text(folder.path("whole/step-4/" + file)));

  std::filesystem::resize_file(folder.path("cut/step-4/worker-1"), 100);
  const auto broken = ranks(3, arguments("cut", "6", {"--resume", "--transport", "tcp"}));
  for (const ProgramRun& run : broken)
    CHECK(run.status == 2);
  CHECK(contains(broken[1].err, "/step-4/worker-1: is cut short or damaged"));
  // Ranks that would not write at the same steps are told before they begin.
  const auto differ = ranks(
      {arguments("a", "2", {"--set", "plan.replicas=[1, 1]", "--transport", "tcp"}),
       {"run", kReplicas, "--warmup", "0", "--steps", "2", "--set", "plan.replicas=[1, 1]", "--transport", "tcp"}});
  CHECK(contains(differ[0].err,
                 "rank 1 differs from rank 0 in its use of checkpoints (none there, from the beginning here)"));
}

TEST_CASE("mpi: processes go on from a checkpoint of threads, and threads from one of processes, to the same bits" *
          doctest::test_suite("whole runs")) {
  if (!has_mpi()) return;
  ScratchFolder folder;
  const auto go = [&](const std::string& to, const std::string& steps, const std::string& transport,
                      const std::vector<std::string>& more) {
    std::vector<std::string> all = {"run",          kReplicas,       "--warmup", "0", "--steps",     steps,
                                    "--checkpoint", folder.path(to), "--every",  "1", "--transport", transport};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all, transport == "mpi" ? by_mpirun(3) : ProgramInput{}).status;
  };
  CHECK(go("whole", "3", "local", {}) == 0);
  CHECK(go("cut", "1", "local", {}) == 0);
  CHECK(go("cut", "2", "mpi", {"--resume"}) == 0);
  CHECK(go("cut", "3", "local", {"--resume"}) == 0);
  for (const std::string step : {"step-2/", "step-3/"})
    for (const std::string file : {"manifest", "worker-0", "worker-1", "worker-2"})
      CHECK(file_text(folder.path("cut/" + step + file)) == file_text(folder.path("whole/" + step + file)));
}

TEST_CASE("tcp: several scenarios are calibrated and run over the same processes, one after the other" *
          doctest::test_suite("whole runs")) {
  ScratchFolder folder;
  const auto arguments = [&](const std::string& transport) {
    std::vector<std::string> all = validate(kTwoStages, transport, folder.path(transport));
    all.insert(all.begin() + 2, {"scenarios/validation/two-stage-1f1b.yaml", "--force"});  // no repetitions
    return all;
  };
  run_program(arguments("local"));
  const auto runs = ranks(2, arguments("tcp"));
  CAPTURE(runs[0].err);
  for (const ProgramRun& run : runs)
    CHECK(run.status == runs[0].status);
  CHECK(contains(runs[0].out, "| two-stage-1f1b | 1 |"));
  CHECK((runs[1].out.empty() && runs[1].err.empty()));
  for (const std::string scenario : {"two-stage-gpipe", "two-stage-1f1b"}) {
    CHECK(losses(folder.path("tcp/" + scenario + "/attempt-1")).starts_with("step,loss\n0,"));
    CHECK(losses(folder.path("tcp/" + scenario + "/attempt-1")) ==
          losses(folder.path("local/" + scenario + "/attempt-1")));
  }
}

TEST_CASE("tcp: a sweep runs its points over the same processes, past one that fails, to the losses of threads" *
          doctest::test_suite("whole runs")) {
  ScratchFolder folder;
  const std::string sweep = folder.path("sweep.yaml");
  std::ofstream(sweep) << "version: 1\nsweep:\n  base: " << source_folder() << "/" << kTwoStages
                       << "\n  grid:\n    run.learning_rate: [0.1, 1e30, 0.2]\n";
  std::vector<std::string> training = {"sweep",       "--run", sweep,          "--csv", "--set",
                                       "run.steps=3", "--set", "run.warmup=0", "--set", "training.micro_batch_size=1"};
  const ProgramRun local = run_program(training);
  CAPTURE(local.err);
  CHECK(contains(local.out, "smaller learning_rate"));
  training.insert(training.end(), {"--set", "run.transport=tcp"});
  const auto runs = ranks(2, training);
  CAPTURE(runs[0].err);
  CHECK(runs[0].out == local.out);
  CHECK((runs[0].status == local.status && runs[1].status == local.status));
  CHECK(runs[1].out.empty());
}

TEST_CASE("tcp: rank 0 alone writes") {
  ScratchFolder folder;
  const auto runs = ranks({{"run", kTwoStages, "--transport", "tcp", "--steps", "2", "-o", folder.path("0.json")},
                           {"run", kTwoStages, "--transport", "tcp", "--steps", "2", "-o", folder.path("1.json")}});
  CHECK(runs[0].status == 0);
  CHECK(contains(runs[0].out, "2 workers (processes)"));
  CHECK(folder.files() == std::vector<std::string>{"0.json"});
}

TEST_CASE("Another number of processes than workers, other scenarios, other errors: exit status 2 on all, by name") {
  for (const ProgramRun& run : ranks(3, {"run", kTwoStages, "--transport", "tcp"})) {
    CHECK(run.status == 2);
    CHECK(contains(run.err, "3 processes were started, and the plan has 2 workers"));
  }
  const auto differ = ranks({{"run", kTwoStages, "--transport", "tcp"},
                             {"run", kTwoStages, "--transport", "tcp", "--set", "plan.schedule=1f1b"}});
  for (const ProgramRun& run : differ) {
    CHECK(run.status == 2);
    CHECK(contains(run.err, "rank 1 differs from rank 0 in its plan (1f1b"));
  }
  CHECK(differ[1].err.starts_with("error: rank 1: "));
  // One cannot make its plan: the others are told at once.
  const auto broken = ranks(
      {{"run", kTwoStages, "--transport", "tcp"}, {"run", kTwoStages, "--transport", "tcp", "--data", "no-such-file"}});
  CHECK(broken[0].status == 2);
  CHECK(contains(broken[0].err, "worker 1 has given up; its own message says why"));
  CHECK(contains(broken[1].err, "no-such-file"));
  const auto cap = ranks(2, {"run", kTwoStages, "--transport", "tcp", "--memory-cap", "1 MB"});
  CHECK((cap[0].status == 1 && cap[1].status == 1));
  CHECK(contains(cap[0].out, "infeasible: worker 0: "));
  CHECK(cap[1].out.empty());
}

TEST_CASE("tcp: where one rank's memory does not hold a worker, all end with status 1 and rank 0 says so, itemised") {
  ScratchFolder folder;
  const std::vector<std::vector<std::string>> commands = {
      {"run", kTwoStages, "--transport", "tcp"},
      {"run", kTwoStages, "--transport", "tcp", "--check", "gradients"},
      validate(kTwoStages, "tcp", folder.path("study"))};
  for (const auto& command : commands)
    for (const std::size_t full : {0, 1}) {
      CAPTURE(command.front());
      CAPTURE(full);
      std::vector<std::vector<std::string>> arguments(2, command);
      arguments[full].insert(arguments[full].end(), {"--memory-cap", "1 MB"});
      const auto runs = ranks(arguments);
      CAPTURE(runs[0].err);
      CHECK((runs[0].status == 1 && runs[1].status == 1));
      CHECK(runs[0].out.starts_with("infeasible: worker 0: "));
      CHECK(contains(runs[0].out, " of 1000000 B; held: "));
      CHECK(contains(runs[0].out, "what would make it fit: "));
      CHECK((runs[0].err.empty() && runs[1].out.empty() && runs[1].err.empty()));
    }
}

TEST_CASE("A launcher's variables without a transport that fits them are an error, never a run of one") {
  const auto error_with = [](const std::vector<std::string>& settings, const std::string& transport) {
    ProgramInput input;
    input.settings = settings;
    const ProgramRun run = run_program({"run", kTwoStages, "--transport", transport}, input);
    CHECK(run.status == 2);
    CHECK(run.out.empty());
    return run.err;
  };
  CHECK(contains(error_with({"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=4"}, "local"),
                 "say that this is one of 4; use --transport mpi"));
  CHECK(contains(error_with({"RANK=0", "WORLD_SIZE=2"}, "throttled"), "use --transport tcp"));
  CHECK(contains(error_with({"SLURM_PROCID=0", "SLURM_NTASKS=2"}, "local"), "SLURM_PROCID and SLURM_NTASKS"));
  CHECK(contains(error_with({}, "tcp"), "start a process per worker"));
  CHECK(contains(error_with({}, "mpi"), "mpirun -n WORKERS"));
  CHECK(contains(error_with({"RANK=0", "WORLD_SIZE=2"}, "tcp"), "MASTER_ADDR"));
  CHECK(contains(error_with({"RANK=2", "WORLD_SIZE=2"}, "tcp"), "RANK=2 is not a rank"));
  CHECK(contains(error_with({"RANK=0"}, "local"), "WORLD_SIZE is not"));
  ProgramInput one;
  one.settings = {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"};
  CHECK(run_program({"run", kTwoStages, "--steps", "1", "--warmup", "0"}, one).status == 0);
}

TEST_CASE("tcp: one command with --resume begins, and once all is done says so, on all ranks with status 0") {
  ScratchFolder folder;
  const std::vector<std::string> command = {"run",     kTwoStages, "--transport", "tcp",          "--steps",
                                            "2",       "--warmup", "0",           "--checkpoint", folder.path("c"),
                                            "--resume"};
  const auto first = ranks(2, command), second = ranks(2, command);
  for (const ProgramRun& run : first)
    CHECK(run.status == 0);
  CHECK(contains(first[0].err, "no checkpoint in " + folder.path("c") + " yet: the run begins"));
  for (const ProgramRun& run : second)
    CHECK(run.status == 0);
  CHECK(contains(second[0].out, "done: all 2 steps, warm-up counted, are in " + folder.path("c/step-2")));
  CHECK(second[1].out.empty());
  const auto apart = ranks({command, {command.begin(), command.end() - 1}});
  CHECK(contains(apart[1].err, "rank 1 differs from rank 0 in its use of checkpoints"));
}

TEST_CASE("tcp: a loss that is not a number ends all ranks with one message, and what was measured is shown") {
  const auto runs = ranks(2, {"run", kTwoStages, "--transport", "tcp", "--learning-rate", "1e30", "--steps", "30"});
  for (const ProgramRun& run : runs) {
    CHECK(run.status == 2);
    CHECK(contains(run.err, "the run failed: worker 1 at op 1F"));
  }
  CHECK(contains(runs[0].out, "measured until then:\n  step    0  loss 5."));
  CHECK(runs[1].out.empty());
}

TEST_CASE("mpi: processes of mpirun validate as threads do, and gradients are one worker's") {
  if (!has_mpi()) return;
  ScratchFolder folder;
  const std::string threads = folder.path("threads"), mpi = folder.path("mpi");
  run_program(validate(kReplicas, "local", threads));
  const ProgramRun run = run_program(validate(kReplicas, "mpi", mpi), by_mpirun(3));
  CAPTURE(run.err);
  CHECK(contains(run.out, "verdict: "));
  CHECK(losses(mpi).starts_with("step,loss\n0,"));
  CHECK(losses(mpi) == losses(threads));
  const ProgramRun gradients = run_program({"run", kTwoStages, "--transport", "mpi", "--check", "gradients", "--set",
                                            "plan.stages=4", "--set", "cluster.node.devices=4"},
                                           by_mpirun(4));
  CAPTURE(gradients.err);
  CHECK(gradients.status == 0);
  CHECK(gradients.out.starts_with("gradients: bit-identical to one worker's\n"));
}

// Divided states, gradients and weights (ZeRO-1, 2 and 3), and keys and values that go round a ring.
TEST_CASE("mpi: two processes divide states, weights and sequences, and gradients are one worker's") {
  if (!has_mpi()) return;
  for (const std::string scenario : {"zero-1", "zero-2", "zero-3", "context"}) {
    CAPTURE(scenario);
    std::vector<std::string> words = {"run",         "scenarios/validation/" + scenario + ".yaml",
                                      "--check",     "gradients",
                                      "--transport", "mpi",
                                      "--set",       "training.micro_batch_size=1",
                                      "--set",       "training.micro_batches=2"};
    if (scenario == "context") words.insert(words.end(), {"--set", "model.input_tokens=32"});
    const ProgramRun run = run_program(words, by_mpirun(2));
    CAPTURE(run.err);
    CHECK(run.status == 0);
    CHECK(run.out.starts_with("gradients: bit-identical to one worker's\n"));
  }
}

TEST_CASE("mpi: wrong sizes, threads under mpirun and failing workers are errors on all ranks") {
  if (!has_mpi()) return;
  const ProgramRun size = run_program({"run", kTwoStages, "--transport", "mpi"}, by_mpirun(4));
  CHECK(size.status == 2);
  CHECK(contains(size.err, "4 processes were started, and the plan has 2 workers"));
  const ProgramRun threads = run_program({"run", kTwoStages}, by_mpirun(4));
  CHECK(threads.status == 2);
  CHECK(contains(threads.err, "this is one of 4; use --transport mpi"));
  const ProgramRun failed =
      run_program({"run", kTwoStages, "--transport", "mpi", "--learning-rate", "1e30"}, by_mpirun(2));
  CHECK(failed.status == 2);
  CHECK(contains(failed.err, "error: the run failed: worker 1 at op 1F"));
  CHECK(contains(failed.out, "measured until then:\n  step    0  loss 5."));
  const std::string full =
      "if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then set -- \"$@\" --memory-cap 1MB; fi; exec \"$0\" \"$@\"";
  const ProgramRun cap = run_program({"run", kTwoStages, "--transport", "mpi"}, by_mpirun(2, {"sh", "-c", full}));
  CHECK(cap.status == 1);
  CHECK(cap.out.starts_with("infeasible: worker 0: "));
}

TEST_CASE("mpi: survivors of a killed rank name it and their op before the launcher ends them") {
  if (!has_mpi()) return;
  // Rank 1 is killed once a first checkpoint is being left.
  ScratchFolder folder;
  const std::string killed = "me=$$; if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then (until [ -n \"$(ls " +
                             folder.path(".") + ")\" ]; do sleep 0.05; done; kill -9 $me) & fi; exec \"$0\" \"$@\"";
  const ProgramRun run = run_program(
      {"run", kTwoStages, "--transport", "mpi", "--steps", "1000000", "--checkpoint", folder.path("."), "--every", "1"},
      by_mpirun(2, {"sh", "-c", killed}));
  CAPTURE(run.err);
  CHECK(run.status != 0);
  CHECK(contains(run.err, "worker 0 at op "));
  CHECK(contains(run.err, "worker 1's process has ended"));
}

TEST_CASE("Built without MPI, --transport mpi says how to get it") {
  if (contains(run_program({"--version"}).out, "MPI: transport mpi")) {
    MESSAGE("skipped: pipewright was built with MPI");
    return;
  }
  ProgramInput input;
  input.settings = {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2"};
  const ProgramRun run = run_program({"run", kTwoStages, "--transport", "mpi"}, input);
  CHECK(run.status == 2);
  CHECK(contains(run.err, "install libopenmpi-dev and openmpi-bin"));
}
