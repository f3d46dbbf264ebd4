// Completion as a shell asks for it, and the manual page.
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

// What bash offers for a line that is typed so far; its last word is being completed.
std::string offered(const std::string& words) {
  const ScratchFolder scratch;
  const std::string script = scratch.path("complete.bash");
  std::ofstream(script) << run_program({"completion", "bash"}).out << "compopt() { :; }\n"
                        << "COMP_WORDS=(" << words << ")\n"
                        << "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                        << "_pipewright\n"
                        << "echo \"${COMPREPLY[*]}\"\n";
  return run_program({}, {.launcher = {"bash", script}}).out;
}

TEST_CASE("bash completes commands, their options, and the words they take") {
  CHECK(offered("pipewright ca") == "capacity calibrate\n");
  CHECK(offered("pipewright simulate --ig") == "--ignore-memory\n");
  CHECK(offered("pipewright show d") == "devices device\n");
  CHECK(offered("pipewright help val") == "validate\n");
  CHECK(offered("pipewright simulate x.yaml -o --j") == "\n");  // the value of -o is a file
}

// The program that was typed is asked for names, wherever it lies.
TEST_CASE("bash completes what options take: words, names of shelves, keys") {
  CHECK(offered("pipewright launch plan.yaml --for mega") == "megatron\n");
  CHECK(offered("pipewright launch plan.yaml --for s") == "slurm\n");
  CHECK(offered("pipewright plan x.yaml --for s") == "\n");  // it searches for no job of its own
  CHECK(offered("pipewright plan x.yaml --for d") == "deepspeed\n");
  CHECK(offered("pipewright run x.yaml --backend cu") == "cuda\n");
  const std::string program = std::getenv("PIPEWRIGHT_BINARY");
  CHECK(offered(program + " init x.yaml --cluster tpu") == "tpu-v3-8\n");
  CHECK(offered(program + " init x.yaml --model llama3-7") == "llama3-70b\n");
  CHECK(offered(program + " plan x.yaml --set plan.schedu") == "plan.schedule=\n");
  CHECK(offered(program + " show model llama3-7") == "llama3-70b\n");
  CHECK(offered(program + " show device h100-sxm") == "h100-sxm-80g\n");
  CHECK(offered(program + " show schedules interl") == "interleaved_1f1b interleaved_zb\n");
  CHECK(offered("pipewright launch x.yaml --for = mega") == "megatron\n");  // as bash splits --for=mega
  CHECK(offered("pipewright plan x.yaml --objective = ") == "throughput step_time cost memory\n");
}

TEST_CASE("Names that hold code of a shell are offered as text") {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch.path("models"));
  const std::string made = scratch.path("made");
  std::ofstream(scratch.path("models/$(cd ..; touch made).yaml")) << "";
  const std::string program = std::getenv("PIPEWRIGHT_BINARY");
  const std::string path = "PIPEWRIGHT_PATH=" + scratch.path("") + " ";
  const std::string there = "; cd " + scratch.path("models");
  CHECK(offered(program + " show models '$'); export " + path + there + "; (:") ==
        "\\$\\(cd\\ ..\\;\\ touch\\ made\\)\n");
  CHECK(contains(offered(program + " init x.yaml --model ''); export " + path + there + "; (:"), "touch\\ made"));
  CHECK(!std::filesystem::exists(made));
}

// A wrong value is answered with the known ones: those that completion offers.
TEST_CASE("Completion offers what the commands take") {
  const std::string plan = "scenarios/quickstart.yaml";
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{{"plan", plan, "--objective"},
                                                                                       {"launch", plan, "--for"},
                                                                                       {"run", plan, "--transport"},
                                                                                       {"run", plan, "--backend"},
                                                                                       {"run", plan, "--kernels"},
                                                                                       {"simulate", plan, "--color"}}) {
    CAPTURE(command.back());
    std::string line = "pipewright";
    for (const std::string& word : command)
      line += " " + word;
    const std::string words = offered(line + " ''");
    std::vector<std::string> wrong = command;
    wrong.push_back("nonsense");
    const std::string error = error_of(wrong);
    CHECK(words.size() > 1);
    std::istringstream each(words);
    for (std::string word; each >> word;)
      CHECK_MESSAGE(contains(error, word), error);
  }
}

TEST_CASE("show keys lists what --set changes, once each, and finds words in them") {
  const ProgramRun names = run_program({"show", "keys", "--names"});
  CHECK(names.status == 0);
  for (const char* key :
       {"\nplan.stages\n", "\ntraining.micro_batch_size\n", "\ncluster.node.device.memory\n", "\nmodel.hidden\n",
        "\nrun.transport\n", "\ncampaign.length\n", "\nmodel.batch\n", "\nmodel.layers.<i>.forward\n",
        "\nmodel.layers.<i>.repeat\n", "\nmodel.trained_as.rope_theta\n", "\nmodel.trained_as.rope_scaling.factor\n"})
    CHECK_MESSAGE(contains(names.out, key), key);
  CHECK(names.out.find("\nmodel.hidden\n") == names.out.rfind("\nmodel.hidden\n"));
  const ProgramRun found = run_program({"show", "keys", "recompute", "--width", "80"});
  CHECK(found.out.starts_with("plan.recompute "));
  CHECK(
      contains(error_of({"show", "keys", "nonsense"}), "no key contains \"nonsense\"; pipewright show keys lists all"));
  CHECK(contains(error_of({"show", "model", "vgg16", "--names"}), "write pipewright show models --names"));
  CHECK(contains(error_of({"show", "keys", "plan", "--names"}), "--names is for a whole list; leave out \"plan\""));
  CHECK(contains(run_program({"show", "devices", "--names"}).out, "\nv100-sxm2-16g\n"));
}

TEST_CASE("The manual page and the completion know every command") {
  const std::string help = run_program({"help"}).out;
  for (const std::string kind : {"bash", "man"}) {
    const ProgramRun written = run_program({"completion", kind});
    CHECK(written.status == 0);
    for (const char* command :
         {"simulate", "plan", "schedule", "compare", "sweep", "merge", "capacity", "calibrate", "run", "validate",
          "reproduce", "check", "show", "import", "doctor", "init", "schema", "completion", "help"}) {
      CHECK_MESSAGE(contains(written.out, command), kind << " " << command);
      CHECK(contains(help, std::string("\n  ") + command));
    }
  }
  CHECK(contains(run_program({"completion", "man"}).out, ".TH PIPEWRIGHT 1"));
}

TEST_CASE("An unknown shell is named, with the known ones") {
  CHECK(contains(error_of({"completion", "tcsh"}), "bash, man"));
}

}  // namespace
}  // namespace pipewright::tests
