// Sweeps that keep their rows: killed and gone on with, in shards and merged, and what is refused.
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

std::string csv_of(const std::string& database) {
  return run_program({"sweep", database, "--csv"}).out;
}

// The number of points that a run which goes on says it has found.
int points_held(const std::string& err) {
  const std::size_t at = err.find(" holds ");
  return at == std::string::npos ? 0 : std::stoi(err.substr(at + 7));
}

TEST_CASE("Shards merged are one run, byte for byte; one that is missing is named") {
  const ScratchFolder folder;
  CHECK(run_program({"sweep", kBandwidth, "-o", folder.path("one.csv"), "-o", folder.path("one.json")}).status == 0);
  for (const char* number : {"1", "2", "3"})
    CHECK(run_program({"sweep", kBandwidth, "--shard", std::string(number) + "/3", "-o",
                       folder.path(std::string(number) + ".db")})
              .status == 0);
  const ProgramRun two = run_program({"merge", folder.path("1.db"), folder.path("3.db"), "-o", folder.path("two.db")});
  CHECK(two.status == 1);
  CHECK(contains(two.err, "not whole: shard 2/3 is missing (7 points)"));
  const ProgramRun whole = run_program({"sweep", folder.path("two.db")});
  CHECK(contains(whole.out, "7 of 21 points were not run"));
  CHECK(contains(run_program({"sweep", folder.path("2.db")}).out,
                 "shard 2 of 3: other shards compute the remaining points"));
  const ProgramRun all = run_program(
      {"merge", folder.path("two.db"), folder.path("2.db"), folder.path("1.db"), "-o", folder.path("all.sqlite")});
  CHECK(all.status == 0);
  CHECK(contains(all.err, "(21 of 21 points)"));
  const ProgramRun shown =
      run_program({"sweep", folder.path("all.sqlite"), "-o", folder.path("all.csv"), "-o", folder.path("all.json"),
                   "-o", folder.path("all.svg"), "-o", folder.path("all.html")});
  CHECK(shown.status == 0);
  CHECK(file_text(folder.path("all.csv")) == file_text(folder.path("one.csv")));
  CHECK(file_text(folder.path("all.json")) == file_text(folder.path("one.json")));
  CHECK(shown.out == run_program({"sweep", kBandwidth}).out);
}

TEST_CASE("What goes on with a database that is not whole is the command it was asked with") {
  const ScratchFolder folder;
  REQUIRE(run_program({"sweep", kBandwidth, "--shard", "1/2", "-o", folder.path("1.db"), "--tokens", "15T", "--set",
                       "campaign.ask=[cost]", "--price", "2.5", "--jobs", "1"})
              .status == 0);
  const std::string all = folder.path("all.db");
  const ProgramRun merged = run_program({"merge", folder.path("1.db"), "-o", all});
  CHECK(merged.status == 1);
  CHECK(contains(merged.err, "or go on with pipewright sweep " + kBandwidth +
                                 " --price 2.5 --set 'campaign.ask=[cost]' --tokens 15T --shard 1/1 --resume -o " +
                                 all));
  CHECK(run_program({"sweep", kBandwidth, "--price", "2.5", "--set", "campaign.ask=[cost]", "--tokens", "15T",
                     "--shard", "1/1", "--resume", "-o", all})
            .status == 0);
  CHECK(csv_of(all).find("cost") != std::string::npos);
}

TEST_CASE("A sweep that is killed again and again loses no row, computes none twice, and ends as one run") {
  const ScratchFolder folder;
  // 4000 points: about half a second of one core
  const std::string asked =
      "sweep: {base: scenarios/quickstart.yaml, grid: {plan.schedule: [gpipe, 1f1b], "
      "cluster.node.links.latency: [1 us, 2 us, 3 us, 4 us, 5 us, 6 us, 7 us, 8 us, 9 us, 10 us], "
      "cluster.node.links.bandwidth: [1 GB/s, 2 GB/s, 3 GB/s, 4 GB/s, 5 GB/s, 6 GB/s, 7 GB/s, 8 GB/s, 9 GB/s, 10 "
      "GB/s], "
      "training.micro_batches: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}}\n";
  const std::string database = folder.path("r.db");
  const auto killed_after = [&](const std::string& seconds) {
    return run_program({"sweep", "-", "--jobs", "1", "--csv", "-o", database, "--resume"},
                       {.folder = {},
                        .input = asked,
                        .output_to = {},
                        .settings = {},
                        .launcher = {"timeout", "-s", "KILL", seconds}});
  };
  int held = 0;
  for (const char* seconds : {"0.05", "0.35", "0.4", "0.1", "0.45", "0.35"}) {
    const ProgramRun run = killed_after(seconds);
    const bool complete = run.status == 0;
    CHECK((complete || run.status == 137));
    if (run.err.empty()) continue;  // killed before it had looked
    CHECK(points_held(run.err) >= held);
    held = points_held(run.err);
  }
  const ProgramRun last = killed_after("280");
  CHECK(last.status == 0);  // a row computed twice would be refused by the database
  CHECK(points_held(last.err) >= held);
  CHECK(contains(last.err, "(4000 points)"));
  CHECK(last.out ==
        run_program({"sweep", "-", "--csv"}, {.folder = {}, .input = asked, .output_to = {}, .settings = {}}).out);
  CHECK(last.out == csv_of(database));
  CHECK(folder.files().size() == 1);  // no journal is left
}

TEST_CASE("Ctrl-C keeps what is done and says how to go on") {
  const ScratchFolder folder;
  const std::string database = folder.path("r.db");
  const ProgramRun run =
      run_program({"sweep", "scenarios/what_if/replan.yaml", "-o", database}, {.interrupt_at = "points ["});
  CHECK(run.status == 130);
  CHECK(contains(run.err, "go on with: pipewright sweep scenarios/what_if/replan.yaml -o " + database + " --resume"));
}

TEST_CASE("SIGTERM, as a batch system sends it, keeps what is done, too") {
  const ScratchFolder folder;
  const std::string database = folder.path("r.db");
  const ProgramRun run = run_program({"sweep", "scenarios/what_if/replan.yaml", "-o", database},
                                     {.interrupt_at = "points [", .signal = SIGTERM, .twice = true});
  CHECK(run.status == 143);
  CHECK(contains(run.err, "interrupted (SIGTERM): the rows that are there are printed; "));
  CHECK(contains(run.err, "go on with: pipewright sweep scenarios/what_if/replan.yaml -o " + database + " --resume"));
}

TEST_CASE("In a job of a Slurm array a sweep is the job's shard, and says so") {
  const auto as = [](std::vector<std::string> settings) {
    return run_program({"sweep", kBandwidth, "--csv"},
                       {.folder = {}, .input = {}, .output_to = {}, .settings = std::move(settings)});
  };
  const ProgramRun task =
      as({"SLURM_ARRAY_TASK_ID=6", "SLURM_ARRAY_TASK_COUNT=3", "SLURM_ARRAY_TASK_MIN=2", "SLURM_ARRAY_TASK_STEP=2"});
  CHECK(task.status == 0);
  CHECK(contains(task.err, "shard 3/3, as SLURM_ARRAY_TASK_ID=6 of SLURM_ARRAY_TASK_COUNT=3 say"));
  CHECK(task.out == run_program({"sweep", kBandwidth, "--csv", "--shard", "3/3"}).out);
  const ProgramRun none = as({"SLURM_ARRAY_TASK_ID=9", "SLURM_ARRAY_TASK_COUNT=3", "SLURM_ARRAY_TASK_MIN=2"});
  CHECK(none.status == 2);
  CHECK(contains(none.err, "SLURM_ARRAY_TASK_ID=9 is not one of"));
}

TEST_CASE("Databases that cannot be gone on with are refused, with a way out") {
  const ScratchFolder folder;
  const std::string database = folder.path("r.db");
  REQUIRE(run_program({"sweep", kBandwidth, "-o", database}).status == 0);
  CHECK(contains(error_of({"sweep", kBandwidth, "-o", database}), "go on with --resume"));
  CHECK(contains(error_of({"sweep", kBandwidth, "-o", database, "--resume", "--set", "plan.recompute=full"}),
                 "holds the results of another sweep: base: plan.recompute"));
  CHECK(contains(error_of({"sweep", kBandwidth, "--resume"}), "name it, e.g. -o results.db --resume"));
  CHECK(contains(error_of({"sweep", kBandwidth, "-o", database, "-o", folder.path("b.db")}), "is a second database"));
  CHECK(contains(error_of({"sweep", database, "--jobs", "2"}), "--jobs: is for sweeps that run"));
  CHECK(contains(error_of({"sweep", database, "-o", folder.path("b.db")}), "from several by pipewright merge"));
  CHECK(contains(error_of({"sweep", folder.path("none.db")}), "No such file"));
  for (const char* shard : {"0/2", "3/2", "1", "a/b", "1/2/3", "-1/2", "1/99999999999"})
    CHECK(contains(error_of({"sweep", kBandwidth, "--shard", shard}), "is not one of 1/N to N/N"));
  CHECK(contains(error_of({"merge", database, "-o", database}), "is read by this command"));
  CHECK(contains(error_of({"merge", database}), "name the one database to write"));
  CHECK(contains(error_of({"merge", database, "-o", folder.path("x.csv")}), "known: .db, .sqlite"));
  REQUIRE(run_program({"sweep", "scenarios/what_if/hardware.yaml", "-o", folder.path("h.db")}).status == 0);
  CHECK(contains(error_of({"merge", database, folder.path("h.db"), "-o", folder.path("m.db")}),
                 "are of different sweeps"));
  CHECK_FALSE(std::filesystem::exists(folder.path("m.db")));
  CHECK(contains(error_of({"merge", folder.path("h.db"), "-o", database}), "is there already"));
}

TEST_CASE("A disk that is full ends the sweep with one message, and what was kept stays") {
  const ScratchFolder folder;
  const std::string database = folder.path("r.db");
  // 64 KiB are all that a file may have; the database of 21 points takes 40.
  const auto limited = [&](const std::string& file) {
    return run_program({"sweep", file, "-o", database, "--resume"},
                       {.folder = {},
                        .input = {},
                        .output_to = {},
                        .settings = {},
                        .launcher = {"sh", "-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "sh"}});
  };
  const ProgramRun run = limited(kBandwidth);
  CHECK(run.status == 2);
  CHECK(contains(run.err, database + ": "));
  CHECK(contains(run.err, "--resume"));
  CHECK(run_program({"sweep", kBandwidth, "-o", database, "--resume"}).status == 0);
}

TEST_CASE("sweep --run of which no point can be run is an error") {
  const ProgramRun run =
      run_program({"sweep", "-", "--run"},
                  {.folder = {},
                   .input = "sweep: {base: scenarios/quickstart.yaml, grid: {training.micro_batches: [2, 4]}}\n",
                   .output_to = {},
                   .settings = {}});
  CHECK(run.status == 2);
  CHECK(contains(run.err, "no point could be run"));
}

}  // namespace
}  // namespace pipewright::tests
