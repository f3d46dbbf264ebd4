// Bad, huge and hostile input through the binary: one clear message, status 2 or 1, never a hang, never half a file.
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/mount.h>
#include <unistd.h>

#include "tests/cli/refusals.hpp"
#include "tests/support/run_program.hpp"

namespace pipewright::tests {
namespace {

using Words = std::vector<std::string>;

Words quickstart_with(const Words& settings) {
  Words arguments = {"simulate", kQuickstart};
  for (const std::string& setting : settings)
    arguments.insert(arguments.end(), {"--set", setting});
  return arguments;
}

// What a run that must fail says on standard error.
std::string complaint(const Words& arguments, const ProgramInput& input = {}) {
  const ProgramRun run = run_program(arguments, input);
  CHECK(run.status == 2);
  CHECK(run.out == "");
  return run.err;
}

nlohmann::json answer_to(Words arguments) {
  arguments.push_back("--json");
  const ProgramRun run = run_program(arguments);
  REQUIRE_MESSAGE(run.status == 0, run.err);
  return nlohmann::json::parse(run.out);
}

// A file system of 16 KiB; nothing where mounting is not permitted.
class TinyDisk {
 public:
  explicit TinyDisk(const std::string& folder) : folder_(folder) {
    std::filesystem::create_directory(folder);
    mounted_ = ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=16k") == 0;
  }
  ~TinyDisk() {
    if (mounted_) ::umount(folder_.c_str());
  }
  TinyDisk(const TinyDisk&) = delete;
  TinyDisk& operator=(const TinyDisk&) = delete;
  bool mounted() const { return mounted_; }

 private:
  std::string folder_;
  bool mounted_ = false;
};

}  // namespace

TEST_CASE("Numbers beyond any run are refused with the key that holds them") {
  const auto refused = [](const std::string& setting) { return complaint(quickstart_with({setting})); };
  CHECK(refused("training.micro_batches=1000000000") ==
        "error: --set training.micro_batches=1000000000: training.micro_batches: 1000000000; at most 16777216 are "
        "supported\n");
  CHECK(refused("training.micro_batches=1099511627776") ==
        "error: --set training.micro_batches=1099511627776: training.micro_batches: \"1099511627776\" is more than "
        "1000000000; write a smaller number\n");
  CHECK(refused("plan.data_parallel=1000000") ==
        "error: --set plan.data_parallel=1000000: plan: needs 4 x 1000000 = 4000000 devices, the cluster has 4; use "
        "fewer stages, replicas or copies, or a larger cluster\n");
  CHECK(refused("plan.replicas=[99999999999, 1, 0, 1]") ==
        "error: --set plan.replicas=[99999999999, 1, 0, 1]: plan.replicas.0: \"99999999999\" is more than 1000000000; "
        "write a smaller number\n"
        "error: --set plan.replicas=[99999999999, 1, 0, 1]: plan.replicas.2: \"0\" must be at least 1\n");
}

TEST_CASE("K times v beyond 16 bits is refused, whatever the number of layers") {
  CHECK(complaint(quickstart_with({"model.layers.0.repeat=70000", "plan.stages=70000"})) ==
        "error: --set plan.stages=70000: plan.stages: 70000 stages for 70016 layers; every stage holds at least one: "
        "use 1..65535\n");
}

TEST_CASE("A time that overflows names its layer, a sum of times the file") {
  CHECK(complaint(quickstart_with({"model.layers.1.forward=4e18 ns", "training.micro_batch_size=16"})) ==
        "error: scenarios/quickstart.yaml:15:7: layer \"deep.0\", for 16 samples: a time overflows: it is larger than "
        "2^62 ns or bytes; look for a figure with the wrong unit\n");
  CHECK(complaint(quickstart_with({"model.layers.1.forward=2e18 ns"})) ==
        "error: scenarios/quickstart.yaml: the sum of the layer times overflows: it is larger than 2^62 ns or bytes; "
        "look for a figure with the wrong unit\n");
}

TEST_CASE("A step that takes no time is reported as such, and compared with nothing") {
  const Words nothing =
      quickstart_with({"cost={uniform: {forward: 0 ms, backward: 0 ms}}", "cluster.node.links={kind: ideal}",
                       "model.layers.0.activation=0 B", "model.layers.1.activation=0 B"});
  const ProgramRun run = run_program(nothing);
  CHECK(run.status == 0);
  CHECK(run.out.find("none: the step takes no time") != std::string::npos);
  CHECK(run.out.find("no layer and no transfer takes any time") != std::string::npos);
  CHECK(run.out.find("speed-up  ") == std::string::npos);
  CHECK(run.out.find("nan") == std::string::npos);
  CHECK(answer_to(nothing).at("references").empty());
}

TEST_CASE("A million bits take as long as one bit per second says") {
  // 1 MB at 1 b/s: 8e6 s, there and back between two stages, and 2 x 8 ms + 2 x 16 ms of computation.
  const auto answer = answer_to(quickstart_with(
      {"plan.stages=2", "training.micro_batches=1", "cluster.node.links={kind: mesh, bandwidth: 1 b/s}",
       "model.layers=[{forward: 8 ms, backward: 16 ms, activation: 1 MB}, {forward: 8 ms, backward: 16 ms}]"}));
  CHECK(answer.at("step_time_s").get<double>() == 16000000.048);
}

TEST_CASE("A name that would speak to the terminal is refused, a file name that would is shown escaped") {
  CHECK(complaint(quickstart_with({"name=\"a\\e[2J\""})) ==
        "error: --set name=\"a\\e[2J\": name: \"a\\x1b[2J\" holds a control character; write plain text\n");
  ScratchFolder scratch;
  const std::string path = scratch.path("e\x1b[31m.yaml");
  std::filesystem::copy_file(source_folder() + "/" + kQuickstart, path);
  const ProgramRun run = run_program({"check", path, scratch.path("\x9b.yaml")});
  CHECK(run.err.find('\x1b') == std::string::npos);
  CHECK(run.err.find("\\x9b.yaml: cannot be read: No such file or directory") != std::string::npos);
}

TEST_CASE("A file that cannot be read is an error of the line that names it") {
  ScratchFolder scratch;
  std::ofstream(scratch.path("x.yaml")) << "model: ./none.yaml\ncluster: dgx-a100x8\ntraining: {micro_batch_size: 1, "
                                           "micro_batches: 1}\nplan: {stages: 1}\n";
  CHECK(complaint({"simulate", scratch.path("x.yaml")}) ==
        "error: " + scratch.path("x.yaml") + ":1:8: " + scratch.path("./none.yaml") +
            ": cannot be read: No such file or directory; check the path\n");
}

TEST_CASE("The scenario is never overwritten by its own answer") {
  ScratchFolder scratch;
  const std::string path = scratch.path("x.json");  // YAML, whatever its name
  std::filesystem::copy_file(source_folder() + "/" + kQuickstart, path);
  CHECK(complaint({"simulate", path, "-o", scratch.path("./x.json")}) ==
        "error: --output: \"" + scratch.path("./x.json") + "\" is read by this command; name another file\n");
  CHECK(file_text(path) == file_text(source_folder() + "/" + kQuickstart));
}

TEST_CASE("A full disk leaves the files that were complete, and no part of the one that was not") {
  ScratchFolder scratch;
  const TinyDisk disk(scratch.path("disk"));
  if (!disk.mounted()) {
    MESSAGE("skipped: mounting a small file system is not permitted here");
    return;
  }
  const ProgramRun run = run_program({"simulate", kQuickstart, "-o", scratch.path("disk/a.csv"), "-o",
                                      scratch.path("disk/b.trace.json"), "-o", scratch.path("c.csv")});
  CHECK(run.status == 2);
  CHECK(run.err.find("error: " + scratch.path("disk/b.trace.json") +
                     ": cannot write: No space left on device; free some space, or write to another disk with -o\n") !=
        std::string::npos);
  CHECK(file_text(scratch.path("disk/a.csv")).size() > 100);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path("disk")))
    files += entry.is_regular_file() ? 1 : 0;
  CHECK(files == 1);
  CHECK(scratch.files() == Words{"disk"});
}

TEST_CASE("Every remedy of a plan that does not fit makes it fit when pasted") {
  Words small = {"simulate", kQuickstart, "--set", "cluster.node.device.memory=2341MiB"};
  const ProgramRun refused = run_program(small);
  REQUIRE(refused.status == 1);
  small.push_back("--ignore-memory");
  CHECK(run_program(small).status == 1);
  small.pop_back();
  std::size_t tried = 0;
  for (std::size_t at = refused.out.find(": --set "); at != std::string::npos;
       at = refused.out.find(": --set ", at + 1)) {
    Words pasted = small;  // no value of a remedy holds a space
    std::string line = refused.out.substr(at + 2, refused.out.find('\n', at) - at - 2);
    for (std::size_t end = 0; !line.empty(); line.erase(0, end == std::string::npos ? line.size() : end + 1)) {
      end = line.find(' ');
      pasted.push_back(line.substr(0, end));
    }
    CAPTURE(pasted.back());
    CHECK(run_program(pasted).status == 0);
    ++tried;
  }
  CHECK(tried >= 1);
}

TEST_CASE("Locale, home and working directory change nothing") {
  const Words question = {"simulate", source_folder() + "/" + kQuickstart};
  const std::string plain = run_program(question).out;
  CHECK(run_program(question, {.settings = {"LC_ALL=de_DE.UTF-8"}}).out == plain);
  CHECK(run_program(question, {.settings = {"HOME=", "PIPEWRIGHT_PATH=/nonsense:::/dev/zero"}}).out == plain);
  CHECK(run_program(question, {.folder = "/"}).out == plain);
}

TEST_CASE("Shipped scenarios resolve to files that give the same answer") {
  ScratchFolder scratch;
  for (const char* name : {"quickstart.yaml", "pipedream/vgg16-15-1.yaml", "gpipe/transformer-48-k4-d2.yaml",
                           "what_if/interleaved.yaml", "zero_bubble/1.5b-p8.yaml"}) {
    CAPTURE(name);
    const std::string file = std::string("scenarios/") + name;
    std::ofstream(scratch.path("again.yaml")) << run_program({"check", "--resolved", file}).out;
    auto before = answer_to({"simulate", file}), after = answer_to({"simulate", scratch.path("again.yaml")});
    before.at("scenario").erase("file"), after.at("scenario").erase("file");
    CHECK(before == after);
  }
}

TEST_CASE("An imported profile answers as the profile itself does") {
  const char* set = std::getenv("PIPEWRIGHT_TEST_DATA");
  const std::filesystem::path data = set != nullptr ? set : source_folder() + "/../shared/data";
  const auto profiles = data / "pipedream-profiles";
  if (!std::filesystem::exists(profiles)) {
    MESSAGE("skipped: no " << profiles.string() << "; set PIPEWRIGHT_TEST_DATA to the folder that holds it");
    return;
  }
  ScratchFolder scratch;
  for (const char* name : {"alexnet", "densenet121", "gnmt", "gnmt_large", "inception_v3", "resnet50", "vgg16"}) {
    CAPTURE(name);
    const std::string profile = std::filesystem::absolute(profiles / (std::string(name) + ".txt")).string();
    const std::string model = scratch.path("model.yaml");
    REQUIRE(run_program({"import", "pipedream", profile, "--batch", "64", "-o", model}).status == 0);
    const auto direct = answer_to(quickstart_with(
        {"model={pipedream_profile: \"" + profile + "\", batch: 64}", "cluster.node.device.memory=1000 GiB"}));
    const auto imported = answer_to(quickstart_with({"model.file=" + model, "cluster.node.device.memory=1000 GiB"}));
    CHECK(direct == imported);
  }
}

TEST_CASE("A program that hangs is ended by the tests with all that it has started; they tell what it waited for") {
  ProgramRun run;
  int seconds = 1;
  for (; run.out.empty(); seconds *= 2) {  // a slow machine starts a shell late
    REQUIRE(seconds < 100);
    run = run_program(
        {}, {.launcher = {"sh", "-c", "setsid sleep 300 & echo $!; wait"}, .longest = std::chrono::seconds(seconds)});
  }
  CHECK(run.status == 128 + 9);
  CHECK(run.err.starts_with("the test ended it after " + std::to_string(seconds / 2) + " s; its threads:\n  sh\n"));
  CHECK(run.err.find("system call ") != std::string::npos);
  const auto lives = [&] {  // neither gone, nor dead and not buried by anybody
    const std::string stat = proc_text(std::to_string(std::stol(run.out)) + "/stat");
    return stat.find(") ") != std::string::npos && stat.find(") Z ") == std::string::npos;
  };
  for (int i = 0; i < 60'000 && lives(); ++i)
    usleep(1000);
  CHECK_FALSE(lives());
}

TEST_CASE("A process that a test leaves behind, by an exception say, ends with what it has started") {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  {
    const Child left = forked([&] {
      const pid_t other = fork();
      const ssize_t put = write(ends[1], "x", 1);
      pause();
      return static_cast<int>(other + put);
    });
    close(ends[1]);
    for (int i = 0; i < 2; ++i) {
      char x = 0;
      REQUIRE(read(ends[0], &x, 1) == 1);  // both are there
    }
  }
  pollfd far{ends[0], 0, 0};
  poll(&far, 1, 120'000);
  CHECK((far.revents & POLLHUP) != 0);  // and hold the pipe open no more
  close(ends[0]);
}

}  // namespace pipewright::tests
