// The command line as a user meets it: exit statuses, messages, files, broken outputs.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

TEST_CASE("simulate answers with status 0 and says nothing on standard error") {
  const ProgramRun run = run_program({"simulate", kQuickstart});
  CHECK(run.status == 0);
  CHECK(run.err == "");
  CHECK(run.out.starts_with("4 stages · 8 micro-batches of 8 · 1f1b"));
}

// 24 blocks of 12 h^2 + 13 h for h = 2304, the table of 51200 tokens, 2048 positions and the final norm.
TEST_CASE("show model prints a family's layers, equal ones in one row, with totals") {
  const ProgramRun run = run_program(
      {"show", "model", "gpt", "--set", "model.layers=24", "--set", "model.hidden=2304", "--set", "model.heads=24"});
  CHECK(run.status == 0);
  CHECK(run.err == "");
  CHECK(run.out.starts_with("gpt: 26 layers, 1.65 B parameters (1652230656)\n"));
  CHECK(contains(run.out, "block.0 .. block.23  24 "));
  CHECK(contains(run.out, "total  26 layers"));
}

TEST_CASE("show model says which parameters a family lacks, and how to give them") {
  const std::string error = error_of({"show", "model", "gpt"});
  CHECK(contains(error, "model.layers: is missing"));
  CHECK(contains(error, "--set model.<name>=<value>"));
  CHECK(contains(error_of({"show", "model", "gtp"}), "did you mean \"gpt\"?"));
  CHECK(contains(error_of({"show", "devices", "--operators"}), "is for `show model NAME`"));
}

TEST_CASE("An unknown command, option or name is met with the nearest one and the known ones") {
  CHECK(error_of({"simulat"}) ==
        "error: command: unknown \"simulat\"; did you mean \"simulate\"? known: simulate, plan, schedule, launch, "
        "compare, draw, sweep, "
        "merge, capacity, calibrate, run, validate, accuracy, reproduce, check, show, import, doctor, init, schema, "
        "completion, help\n");
  CHECK(contains(error_of({"simulate", kQuickstart, "--jsn"}), "unknown \"--jsn\"; did you mean \"--json\"?"));
  CHECK(contains(error_of({"simulate", kQuickstart, "--engine", "evnt"}), "did you mean \"event\"?"));
  CHECK(contains(error_of({"show", "schedule"}), "did you mean \"schedules\"?"));
  CHECK(contains(error_of({"show", "schedules", "1fb1"}), "did you mean \"1f1b\"?"));
  CHECK(contains(error_of({"import", "pipedrem", "x"}), "did you mean \"pipedream\"?"));
  CHECK(contains(error_of({"help", "simulat"}), "did you mean \"simulate\"?"));
  CHECK(contains(error_of({"--verison"}), "did you mean \"--version\"?"));
  CHECK(contains(error_of({"simulate", kQuickstart, "--color", "sometimes"}), "known: auto, always, never"));
}

TEST_CASE("Missing and superfluous arguments are named with the usage") {
  CHECK(error_of({"simulate"}) == "error: simulate: an argument is missing; usage: pipewright simulate SCENARIO\n");
  CHECK(contains(error_of({"simulate", kQuickstart, "b.yaml"}), "unexpected argument \"b.yaml\""));
  CHECK(error_of({"simulate", kQuickstart, "--width"}) == "error: --width lacks its value: --width N\n");
  CHECK(contains(error_of({"simulate", kQuickstart, "--width", "12"}), "\"12\" is not a whole number from 40 to 1000"));
  CHECK(contains(error_of({"import", "pipedream", "x.txt", "--batch", "0"}),
                 "\"0\" is not a whole number of at least 1"));
}

TEST_CASE("Without a command the help goes to standard error, status 2; help itself is status 0") {
  const ProgramRun none = run_program({});
  CHECK(none.status == 2);
  CHECK(none.out == "");
  const ProgramRun help = run_program({"help"});
  CHECK(help.status == 0);
  CHECK(help.out == none.err);
  CHECK(run_program({"--help"}).out == help.out);
  for (const char* command : {"simulate", "check", "show", "import", "help"})
    CHECK(run_program({command, "--help"}).out == run_program({"help", command}).out);
}

TEST_CASE("--version names version, compiler and the optional parts") {
  const ProgramRun run = run_program({"--version"});
  CHECK(run.status == 0);
  for (const char* part : {"pipewright ", "compiler: ", "GPU: ", "MPI: "})
    CHECK(contains(run.out, part));
}

TEST_CASE("A file named like a command is a file") {
  CHECK(contains(error_of({"check", "simulate"}), "simulate"));
}

TEST_CASE("An unknown ending is refused before anything is simulated, with the known ones") {
  ScratchFolder scratch;
  const std::string error =
      error_of({"simulate", kQuickstart, "-o", scratch.path("a.json"), "-o", scratch.path("a.pdf")});
  CHECK(contains(error, "has no known extension; known: "));
  CHECK(contains(error, ".svg"));
  CHECK(scratch.files().empty());
}

TEST_CASE("The same output twice is refused") {
  CHECK(contains(error_of({"simulate", kQuickstart, "-o", "/tmp/a.svg", "-o", "/tmp/a.svg"}), "is given twice"));
}

TEST_CASE("Two runs write the same bytes in every format") {
  const std::vector<std::string> names = {"a.json",       "a.csv",           "a.md",  "a.svg",
                                          "a.trace.json", "a.trace.json.gz", "a.dot", "a.html"};
  ScratchFolder first, second;
  for (const ScratchFolder* scratch : {&first, &second}) {
    std::vector<std::string> arguments = {"simulate", kQuickstart};
    for (const std::string& name : names)
      arguments.insert(arguments.end(), {"-o", scratch->path(name)});
    const ProgramRun run = run_program(arguments);
    REQUIRE(run.status == 0);
    CHECK(contains(run.err, "wrote " + scratch->path("a.svg") + " ("));
    CHECK(scratch->files().size() == names.size());  // and no temporary file beside them
  }
  for (const std::string& name : names) {
    CAPTURE(name);
    CHECK(file_text(first.path(name)).size() > 100);
    CHECK(file_text(first.path(name)) == file_text(second.path(name)));
  }
}

TEST_CASE("On one stream, what was written is named after the report") {
  ScratchFolder scratch;
  const ProgramRun run = run_program({"simulate", kQuickstart, "-o", scratch.path("t.svg")},
                                     {.launcher = {"sh", "-c", "exec \"$0\" \"$@\" 2>&1"}});
  REQUIRE(run.status == 0);
  const std::string& both = run.out;
  CHECK(both.starts_with("4 stages"));
  CHECK(both.find("\nwrote ") == both.rfind('\n', both.size() - 2));  // the last line
}

TEST_CASE("The message about one batch figure too many prints a --set that works") {
  const std::vector<std::string> changed = {"simulate", kQuickstart, "--set", "training.global_batch_size=128"};
  CHECK(contains(error_of(changed), "on the command line with --set training.micro_batches=null"));
  auto repaired = changed;
  repaired.insert(repaired.end(), {"--set", "training.micro_batches=null", "--json"});
  const ProgramRun run = run_program(repaired);
  REQUIRE(run.status == 0);
  CHECK(nlohmann::json::parse(run.out).at("plan").at("micro_batches") == 16);  // 128 / 8
}

TEST_CASE("A profile that does not tell its batch says how import and a scenario are told") {
  ScratchFolder scratch;
  std::ofstream(scratch.path("graph.txt"))
      << "node1 -- LSTM -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=512.000, "
         "parameter_size=0.000\n";
  const std::string message = error_of({"import", "pipedream", scratch.path("graph.txt")});
  CHECK(contains(message, "--batch N on the command line of import"));
  CHECK(contains(message, "batch: N with pipedream_profile in a scenario"));
}

TEST_CASE("--json is one document on standard output and nothing else") {
  const ProgramRun run = run_program({"simulate", kQuickstart, "--json"});
  CHECK(run.status == 0);
  const auto document = nlohmann::json::parse(run.out);
  CHECK(document.at("schema") == "pipewright.result/1");
  CHECK(document.at("step_time_s").get<double>() > 0);
}

TEST_CASE("A plan that does not fit: status 1, what is missing and what would help; as JSON, too") {
  const std::vector<std::string> small = {"simulate", kQuickstart, "--set", "cluster.node.device.memory=1000MiB"};
  const ProgramRun run = run_program(small);
  CHECK(run.status == 1);
  CHECK(run.out.starts_with("infeasible: "));
  CHECK(contains(run.out, "stash"));
  CHECK(contains(run.out, "what would make it fit:"));
  auto json = small;
  json.push_back("--json");
  const ProgramRun as_json = run_program(json);
  CHECK(as_json.status == 1);
  CHECK(nlohmann::json::parse(as_json.out).at("fits") == false);
}

TEST_CASE("A plan that does not fit writes no files; --ignore-memory does, and stays at status 1") {
  ScratchFolder scratch;
  std::vector<std::string> arguments = {"simulate", kQuickstart,          "--set", "cluster.node.device.memory=1000MiB",
                                        "-o",       scratch.path("a.svg")};
  const ProgramRun refused = run_program(arguments);
  CHECK(refused.status == 1);
  CHECK(contains(refused.err, "nothing written"));
  CHECK(scratch.files().empty());
  arguments.push_back("--ignore-memory");
  const ProgramRun ignored = run_program(arguments);
  CHECK(ignored.status == 1);
  CHECK(scratch.files() == std::vector<std::string>{"a.svg"});
}

TEST_CASE("An output that cannot be written is status 2 and leaves nothing behind") {
  ScratchFolder scratch;
  const ProgramRun missing = run_program({"simulate", kQuickstart, "-o", scratch.path("no/such/folder/a.svg")});
  CHECK(missing.status == 2);
  CHECK(contains(missing.err, "a.svg"));
  CHECK(scratch.files().empty());
}

TEST_CASE("A full disk under standard output is named, status 2") {
  const ProgramRun run = run_program({"simulate", kQuickstart}, {.output_to = "/dev/full"});
  CHECK(run.status == 2);
  CHECK(contains(run.err, "error: standard output: "));
}

TEST_CASE("Standard input is a scenario, its paths relative to the working directory") {
  const ProgramRun file = run_program({"simulate", kQuickstart, "--json"});
  const ProgramRun pipe =
      run_program({"simulate", "-", "--json"}, {.input = file_text(source_folder() + "/" + kQuickstart)});
  CHECK(pipe.status == 0);
  CHECK(nlohmann::json::parse(pipe.out).at("step_time_s") == nlohmann::json::parse(file.out).at("step_time_s"));
}

TEST_CASE("--color always paints, never and a pipe do not, NO_COLOR changes nothing when asked") {
  const auto painted = [](const std::vector<std::string>& more, const std::vector<std::string>& settings) {
    std::vector<std::string> arguments = {"simulate", kQuickstart};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return contains(run_program(arguments, {.settings = settings}).out, "\x1b[");
  };
  CHECK(painted({"--color", "always"}, {}));
  CHECK(painted({"--color", "always"}, {"NO_COLOR=1"}));
  CHECK_FALSE(painted({"--color", "never"}, {"CLICOLOR_FORCE=1"}));
  CHECK_FALSE(painted({}, {}));
  CHECK(painted({}, {"CLICOLOR_FORCE=1"}));
}

TEST_CASE("check names all errors of all files at once") {
  ScratchFolder scratch;
  std::ofstream(scratch.path("a.yaml")) << "version: 1\nname: a\nplan: {stages: -1}\nnonsense: 1\n";
  std::ofstream(scratch.path("b.yaml")) << "version: 1\nplan: {stagez: 2}\n";
  const ProgramRun run = run_program({"check", scratch.path("a.yaml"), kQuickstart, scratch.path("b.yaml")});
  CHECK(run.status == 2);
  CHECK(contains(run.out, kQuickstart + ": ok (scenario, 24 layers on 4 stages, 1f1b)"));
  CHECK(contains(run.err, "a.yaml:4:1"));
  CHECK(contains(run.err, "a.yaml:3:"));
  CHECK(contains(run.err, "b.yaml:2:"));
}

TEST_CASE("check finds what only the plan shows") {
  CHECK(contains(error_of({"check", kQuickstart, "--set", "plan.stages=25"}),
                 "plan.stages: 25 stages for 24 layers; every stage holds at least one: use 1..24"));
  CHECK(contains(error_of({"check", kQuickstart, "--set", "plan.stages=8"}), "needs 8 devices, the cluster has 4"));
}

TEST_CASE("check --resolved prints a document for each of several scenarios") {
  const std::string one = run_program({"check", "--resolved", kQuickstart}).out;
  const std::string device = "configs/devices/h100-sxm-80g.yaml";  // which has none
  CHECK(run_program({"check", "--resolved", device, kQuickstart, kQuickstart}).out == one + "---\n" + one);
}

TEST_CASE("check --resolved prints a scenario that reads the same") {
  ScratchFolder scratch;
  for (const std::string& file : {std::string(kQuickstart), std::string("scenarios/what_if/llama3-70b.yaml")}) {
    const ProgramRun resolved = run_program({"check", "--resolved", file});
    REQUIRE(resolved.status == 0);
    std::ofstream(scratch.path("again.yaml")) << resolved.out;
    const ProgramRun a = run_program({"simulate", file, "--json"});
    const ProgramRun b = run_program({"simulate", scratch.path("again.yaml"), "--json"});
    REQUIRE(b.status == 0);
    const auto stated = nlohmann::json::parse(a.out), read = nlohmann::json::parse(b.out);
    CHECK(stated.at("step_time_s") == read.at("step_time_s"));
    CHECK(stated.at("interval_90") == read.at("interval_90"));
  }
}

TEST_CASE("check reads models, devices and clusters by what they hold") {
  const ProgramRun run = run_program(
      {"check", "configs/devices/v100-sxm2-16g.yaml", "configs/clusters/dgx-a100x8.yaml", "configs/models/vgg16.yaml"});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "ok (device "));
  CHECK(contains(run.out, "ok (cluster, "));
  CHECK(contains(run.out, "ok (model, "));
}

TEST_CASE("show lists what there is and prints one of it") {
  for (const char* kind : {"schedules", "models", "devices", "clusters"}) {
    const ProgramRun run = run_program({"show", kind});
    CAPTURE(kind);
    CHECK(run.status == 0);
    CHECK(run.out.size() > 100);
  }
  CHECK(contains(run_program({"show", "devices", "v100-sxm2-16g"}).out, "source"));
  // A network in the unit of its file, and in that of the links beside it.
  CHECK(
      contains(run_program({"show", "clusters"}).out, "links 450 GB/s per direction, network 400 Gb/s (50 GB/s) per "));
}

TEST_CASE("Every schedule is drawn by show") {
  for (const char* name :
       {"naive",        "gpipe",  "1f1b",    "eager_1f1b", "seq1f1b",   "interleaved_1f1b", "moe_overlap_1f1b",
        "looped_bfs",   "zb_h1",  "zb_h2",   "zb_auto",    "search",    "interleaved_zb",   "zbv",
        "zbv_auto",     "v_half", "v_min",   "v_zb",       "v_1f1b",    "v_auto",           "v_search",
        "hanayo",       "gems",   "chimera", "dualpipe",   "dualpipev", "pipedream",        "pipedream_2bw",
        "data_parallel"}) {
    const ProgramRun run = run_program({"show", "schedules", name});
    CAPTURE(name);
    CHECK(run.status == 0);
    CHECK(contains(run.out, "docs/reference/references.md"));
    CHECK(contains(run.out, "stage 0 ▕0"));
  }
}

TEST_CASE("An asynchronous schedule's drawing says why it idles at a bubble of 0") {
  const std::string fills = "the run drawn below also fills and drains, which the steady state leaves out";
  CHECK(contains(run_program({"show", "schedules", "pipedream"}).out, "0 in the steady state: no flush; " + fills));
  CHECK(!contains(run_program({"show", "schedules", "1f1b"}).out, fills));
}

TEST_CASE("A folder of PIPEWRIGHT_PATH that does not exist is reported once, and is not an error") {
  const ProgramRun run =
      run_program({"check", "scenarios/quickstart.yaml"}, {.settings = {"PIPEWRIGHT_PATH=/nonsense"}});
  CHECK(run.status == 0);
  CHECK(run.err == "warning: PIPEWRIGHT_PATH: /nonsense is not a folder; nothing is looked up there\n");
}

TEST_CASE("PIPEWRIGHT_PATH adds folders to look names up in") {
  ScratchFolder scratch;
  std::filesystem::create_directory(scratch.path("devices"));
  std::ofstream(scratch.path("devices/mine.yaml")) << "device: {name: mine, memory: 1 GiB, source: this test}\n";
  const ProgramRun run = run_program({"show", "devices"}, {.settings = {"PIPEWRIGHT_PATH=" + scratch.path("")}});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "mine"));
  CHECK(contains(run.out, "v100-sxm2-16g"));
}

TEST_CASE("A Hugging Face configuration is imported to a model file, and shown") {
  ScratchFolder scratch;
  const std::string config = std::string(std::getenv("PIPEWRIGHT_SOURCE")) + "/configs/models/hf/llama3-8b.json";
  const ProgramRun run =
      run_program({"import", "hf", config, "--sequence-length", "4096", "-o", scratch.path("m.yaml")});
  CHECK(run.status == 0);
  const ProgramRun shown = run_program({"show", "model", scratch.path("m.yaml")});
  CHECK(shown.status == 0);
  CHECK(contains(shown.out, "block."));
  const ProgramRun flops = run_program({"show", "model", config, "--flops"});
  CHECK(flops.status == 0);
  CHECK(contains(flops.out, "51.5 G"));  // per token at 8192 tokens, as Megatron counts
  CHECK(contains(error_of({"import", "hf", config, "--batch", "4"}), "--batch: is not for hf; leave it out"));
  CHECK(contains(error_of({"import", "hf", config, "--attention", "flush"}), "did you mean \"flash\"?"));
  CHECK(contains(error_of({"import", "pipedream", config, "--sequence-length", "4"}), "is not for pipedream"));
  CHECK(contains(error_of({"import", "hf", config, "-o", config}), "is the configuration itself"));
}

TEST_CASE("A profile is imported to a model that checks") {
  ScratchFolder scratch;
  std::ofstream(scratch.path("graph.txt"))
      << "node1 -- Conv2d(3, 64) -- forward_compute_time=2.211, backward_compute_time=2.788, "
         "activation_size=1024.000, parameter_size=4096.000\n"
         "node2 -- Linear -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=512.000, "
         "parameter_size=0.000\n"
         "\tnode1 -- node2\n";
  const std::vector<std::string> import = {"import", "pipedream", scratch.path("graph.txt"), "--batch", "32"};
  const ProgramRun shown = run_program(import);
  CHECK(shown.status == 0);
  CHECK(contains(shown.out, "2.211 ms"));
  auto written = import;
  written.insert(written.end(), {"-o", scratch.path("model.yaml")});
  CHECK(run_program(written).status == 0);
  CHECK(file_text(scratch.path("model.yaml")) == shown.out);
  CHECK(contains(run_program({"check", scratch.path("model.yaml")}).out, "ok (model, 2 layers)"));
}

TEST_CASE("import does not write over its own input") {
  ScratchFolder scratch;
  std::ofstream(scratch.path("graph.txt")) << "node1 -- x\n";
  CHECK(contains(error_of({"import", "pipedream", scratch.path("graph.txt"), "-o", scratch.path("./graph.txt")}),
                 "is the profile itself"));
  CHECK(file_text(scratch.path("graph.txt")) == "node1 -- x\n");
}

}  // namespace
}  // namespace pipewright::tests
