// No library speaks to the user: what nlohmann-json, yaml-cpp, CLI11 and the standard library say of these
// inputs is rephrased, with place, value and way out.
#include <array>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/cli/refusals.hpp"
#include "tests/support/run_program.hpp"

using namespace pipewright::tests;

namespace {

// A socket of this machine that takes calls and says nothing.
struct SilentHost {
  SilentHost() {
    sockaddr_in at{};
    at.sin_family = AF_INET, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(::listen(socket, 8) == 0);
    REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &length) == 0);
    port = ntohs(at.sin_port);
  }
  ~SilentHost() { ::close(socket); }
  SilentHost(const SilentHost&) = delete;
  SilentHost& operator=(const SilentHost&) = delete;
  int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0;
};

// What is written into a file and refused by the command, without the file's name and place.
std::string refused(const ScratchFolder& folder, const std::string& text, std::vector<std::string> command) {
  const std::string path = folder.path("x.json");
  std::ofstream(path, std::ios::binary) << text;
  for (std::string& word : command)
    if (word == "FILE") word = path;
  const std::string message = error_of(command);
  CHECK(message.starts_with("error: " + path + ":"));
  return message;
}

}  // namespace

TEST_CASE("JSON: results and configurations that are none") {
  const ScratchFolder folder;
  const std::string result = run_program({"simulate", kQuickstart, "--json"}).out;
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = result;
    REQUIRE(contains(text, from));
    return text.replace(text.find(from), from.size(), to);
  };
  const std::string key = "\"step_time_s\": ";
  const std::vector<std::string> compare = {"compare", "FILE", kQuickstart};
  CHECK(contains(refused(folder, changed(key, key + "1e999, \"x\": "), compare),
                 ": not valid JSON: the number 1e999 is out of range; write one with pipewright simulate"));
  CHECK(contains(refused(folder, changed(key, key + "\"soon\", \"x\": "), compare),
                 ": step_time_s is \"soon\", not a number; "));
  CHECK(contains(refused(folder, changed(key, "\"x\": "), compare), ": step_time_s is missing; "));
  CHECK(contains(refused(folder, result.substr(0, 300), compare), ": not valid JSON: it ends within a value"));
  CHECK(contains(refused(folder, "{\"model_type\": 1e999}", {"import", "hf", "FILE"}),
                 ":1:16: not valid JSON: the number 1e999 is out of range; copy the file again"));
}

TEST_CASE("YAML: every text of yaml-cpp has one of our own") {
  const ScratchFolder folder;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a: [1, 2\n", "a list that begins with [ is not closed; look at"},
      {"a: {b: 1\n", "a map that begins with { is not closed; look at"},
      {"a: %x\n", "a value cannot begin with this character; put it in quotes"},
      {"a: b: c\n", "a colon stands where no value can follow; look at"},
      {"a: \"\\q\"\n", "this is not an escape of YAML; "},
      {"a: \"\\xzz\"\n", "\\x, \\u and \\U need hexadecimal digits; "},
      {"a: \"\\Uffffffff\"\n", "there is no character of this number; "},
      {"a: }\n", "this bracket closes nothing; "},
      {"a: &\n", "a value that begins with & is an anchor; put it in quotes"},
      {"a: *\n", "a value that begins with * is an alias; put it in quotes"},
      {"a: *x\n", "a value that begins with * is an alias; put it in quotes"},
      {"a: !<x\n", "a value that begins with ! is a tag; put it in quotes"},
      {"%YAML 3.0\n---\na: 1\n", "a line that begins with % is a directive; take it out"},
      {"%TAG x\n---\na: 1\n", "a line that begins with % is a directive; take it out"},
      {"a: |x\n x\n", "a line break has to follow | or >; "},
      {"a: |0\n x\n", "a text below | or > has to be indented; "},
      {"a: - b\n", "an item of a list (-) stands where there can be none; look at"},
      {"a: 'x\n---\n'", "a quote is not closed before the next document; close it"},
      {"a:\n  - b\n c: d\n", "this line is indented neither as the "},
      {"a: &x &y 1\n", "a value that begins with & is an anchor; "},
  };
  for (const auto& [text, ours] : cases) {
    CAPTURE(text);
    const std::string message = refused(folder, text, {"check", "FILE"});
    CHECK(contains(message, ": this is not valid YAML: " + ours));
  }
}

TEST_CASE("Command line: a switch takes no value") {
  CHECK(error_of({"simulate", kQuickstart, "--json=maybe"}) == "error: --json takes no value: leave out \"=maybe\"\n");
}

TEST_CASE("The system: a host that says nothing, a name that is none, a folder that is gone") {
  const SilentHost host;
  ProgramInput input;
  input.settings = {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(host.port)};
  const ProgramRun silent = run_program({"run", kTwoStages, "--transport", "tcp", "--timeout", "1"}, input);
  CHECK(silent.status == 2);
  CHECK(contains(silent.err, ": what listens there does not speak as a rank does)"));
  input.settings[2] = "MASTER_ADDR=no-such-host.invalid";
  const ProgramRun unknown = run_program({"run", kTwoStages, "--transport", "tcp", "--timeout", "1"}, input);
  CHECK(unknown.status == 2);
  CHECK(contains(unknown.err, "MASTER_ADDR=\"no-such-host.invalid\": "));
  CHECK(contains(unknown.err, "name"));
  CHECK_FALSE(contains(unknown.err, "Name or service not known"));

  const ScratchFolder folder;
  ProgramInput gone;
  gone.folder = folder.path(".");
  gone.launcher = {"sh", "-c", "mkdir d && cd d && rmdir ../d && exec \"$@\"", "sh"};
  const ProgramRun run = run_program({"run", source_folder() + "/" + kTwoStages, "--data", "x.txt"}, gone);
  CHECK(run.status == 2);
  CHECK(run.err ==
        "error: x.txt: No such file or directory; check the path, and that the folder this command runs in is still "
        "there\n");
}
