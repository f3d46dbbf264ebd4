// Where options come from that nobody has typed, and `init`.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

// A user whose file holds `config`, and whose environment has `settings`.
struct User {
  ScratchFolder folder;
  explicit User(const std::string& config) {
    std::filesystem::create_directory(folder.path("pipewright"));
    std::ofstream(folder.path("pipewright/config.yaml")) << config;
  }
  ProgramRun run(const std::vector<std::string>& arguments, std::vector<std::string> settings = {}) const {
    settings.push_back("XDG_CONFIG_HOME=" + folder.path(""));
    return run_program(arguments, {.folder = {}, .input = {}, .output_to = {}, .settings = std::move(settings)});
  }
};

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0, begin = 0;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    std::size_t letters = 0;  // UTF-8
    for (std::size_t i = begin; i < end; ++i)
      letters += (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    widest = std::max(widest, letters);
  }
  return widest;
}

TEST_CASE("Flags win over the environment, the environment over the user's file, the file over what is built in") {
  const std::vector<std::string> asked = {"simulate", kQuickstart};
  const std::size_t usual = widest_line(run_program(asked).out);
  const User user("# mine\nwidth: 160\n");
  CHECK(widest_line(user.run(asked).out) > usual);
  CHECK(user.run(asked, {"PIPEWRIGHT_WIDTH=60"}).out == run_program({"simulate", kQuickstart, "--width", "60"}).out);
  CHECK(user.run({"simulate", kQuickstart, "--width", "100"}, {"PIPEWRIGHT_WIDTH=60"}).out == run_program(asked).out);
}

TEST_CASE("Colour: NO_COLOR is heard over the user's file, --color over both") {
  const User user("color: always\n");
  const auto coloured = [](const ProgramRun& run) { return contains(run.out, "\033["); };
  CHECK(coloured(user.run({"simulate", kQuickstart})));
  CHECK_FALSE(coloured(user.run({"simulate", kQuickstart}, {"NO_COLOR=1"})));
  CHECK(coloured(user.run({"simulate", kQuickstart, "--color", "always"}, {"NO_COLOR=1"})));
  CHECK_FALSE(coloured(user.run({"simulate", kQuickstart, "--color", "never"})));
  CHECK_FALSE(coloured(user.run({"simulate", kQuickstart}, {"PIPEWRIGHT_COLOR=never"})));
}

TEST_CASE("Nothing that changes an answer can be set once for all, and mistakes have their place") {
  const auto refused = [](const std::string& config) {
    const ProgramRun run = User(config).run({"sweep", "scenarios/what_if/hardware.yaml"});
    CHECK(run.status == 2);
    CHECK(run.out == "");
    return run.err;
  };
  CHECK(contains(refused("job: 4\n"), "config.yaml:1:1: unknown \"job\"; did you mean \"jobs\"?"));
  CHECK(contains(refused("time_limit: 3s\n"), "what changes an answer stands in the scenario"));
  CHECK(contains(refused("\njobs: many\n"), "config.yaml:2 says so"));
  CHECK(contains(refused("jobs: [4]\n"), "jobs: a single value is needed"));
  CHECK(contains(refused("path: ~/x\n"), "path: a list of folders is needed"));
  CHECK(contains(refused("- jobs\n"), "is not a map of options"));
  CHECK(contains(refused("jobs: 4\njobs: 5\n"), "config.yaml:2:1"));
  CHECK(contains(run_program({"sweep", "scenarios/what_if/hardware.yaml"},
                             {.folder = {}, .input = {}, .output_to = {}, .settings = {"PIPEWRIGHT_JOBS=0"}})
                     .err,
                 "PIPEWRIGHT_JOBS says so"));
  CHECK(User("# nothing yet\n").run({"show", "clusters"}).status == 0);
}

TEST_CASE("Folders of the user's file hold devices by name") {
  const User user("path: [mine]\n");
  std::filesystem::create_directories(user.folder.path("pipewright/mine/devices"));
  std::ofstream(user.folder.path("pipewright/mine/devices/own.yaml")) << "device: {name: own, memory: 3 GiB}\n";
  CHECK(contains(user.run({"show", "devices"}).out, "own"));
}

TEST_CASE("init writes a scenario that passes check, whose comments pass it, too") {
  const ScratchFolder folder;
  const std::string file = folder.path("a.yaml");
  const ProgramRun run = run_program({"init", file});
  CHECK(run.status == 0);
  CHECK(run.err == "");
  CHECK(contains(run.out, "next: pipewright plan " + file));
  CHECK(run_program({"check", file}).status == 0);
  const std::string text = file_text(file);
  const std::size_t cluster = text.find("cluster: dgx-h100x8"), own = text.find("# cluster:"),
                    rest = text.find("training:");
  REQUIRE(cluster < own);
  REQUIRE(own < rest);
  std::string of_own = text.substr(0, cluster);
  std::istringstream lines(text.substr(own, rest - own));
  for (std::string line; std::getline(lines, line);)
    of_own += line.substr(2) + "\n";
  std::ofstream(folder.path("own.yaml")) << of_own + text.substr(rest);
  CHECK(run_program({"check", folder.path("own.yaml")}).status == 0);
}

TEST_CASE("init names a model and a cluster, or files as seen from where it writes") {
  const ScratchFolder folder;
  std::filesystem::copy_file(std::string(std::getenv("PIPEWRIGHT_SOURCE")) + "/configs/models/hf/llama3-8b.json",
                             folder.path("config.json"));
  std::filesystem::create_directory(folder.path("my"));
  std::ofstream(folder.path("my/own.yaml")) << "cluster: {node: {devices: 2, device: rtx-4090-24g, links: {kind: mesh, "
                                               "bandwidth: 25 GB/s}}}\n";
  const ProgramRun run = run_program({"init", folder.path("a.yaml"), "--model", folder.path("config.json"), "--cluster",
                                      folder.path("my/own.yaml"), "--batch", "64"});
  CHECK_MESSAGE(run.status == 0, run.err);
  const std::string text = file_text(folder.path("a.yaml"));
  CHECK(contains(text, "model: \"./config.json\" "));
  CHECK(contains(text, "cluster: my/own.yaml "));
  CHECK(contains(text, "global_batch_size: 64\n"));
  CHECK(run_program({"check", folder.path("a.yaml")}).status == 0);
}

TEST_CASE("init refuses what there is not, and leaves nothing behind") {
  const ScratchFolder folder;
  const auto refused = [&](const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"init", folder.path("a.yaml")};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const ProgramRun run = run_program(arguments);
    CHECK(run.status == 2);
    CHECK(folder.files().empty());
    return run.err;
  };
  CHECK(contains(refused({"--model", "lama3-8b"}), "did you mean \"llama3-8b\"?"));
  CHECK(contains(refused({"--model", "no/config.json"}), "no such file"));
  CHECK(contains(refused({"--model", "gpt2", "--cluster", "dgx-h100"}), "did you mean \"dgx-h100x8\"?"));
  CHECK(contains(refused({"--model", "gpt2", "--cluster", "dgx-h100x8", "--batch", "0"}),
                 "--batch: \"0\" is not a whole number from 1"));
  CHECK(contains(refused({"--cluster", "dgx-h100"}), "nothing was written"));
  CHECK(contains(error_of({"init", "README.md", "--model", "gpt2"}), "is there already"));
}

TEST_CASE("show --json is of a device, not of a list") {
  CHECK(contains(run_program({"show", "device", "h100-sxm-80g", "--json"}).out, "\"name\": \"h100-sxm-80g\""));
  CHECK(contains(error_of({"show", "devices", "--json"}), "--json: is for `show device NAME`, not for show devices"));
}

}  // namespace
}  // namespace pipewright::tests
