// How compute-sanitizer is called, by a tool of that name that is made up.
#include "cli/accuracy/sanitizer.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "io/read_file.hpp"
#include "tests/cli/refusals.hpp"
#include "tests/io/scratch.hpp"

namespace pipewright {
namespace {

// PATH with this folder first, for the time of a test.
class Path {
 public:
  explicit Path(const std::string& first) : before_(std::getenv("PATH")) {
    setenv("PATH", (first + ":" + before_).c_str(), 1);
  }
  ~Path() { setenv("PATH", before_.c_str(), 1); }

 private:
  std::string before_;
};

struct Tool {
  // What it prints at last, and how it ends.
  Tool(const std::string& summary, int status)
      : tests(program("test_gpu", "exit 0")),
        tool(program("bin/compute-sanitizer",
                     "printf 'given %s\\n' \"$@\"; echo '========= " + summary + "'; exit " + std::to_string(status))),
        path(folder.path("bin")) {}
  std::string program(const std::string& name, const std::string& lines) const {
    const std::string file = folder.write(name, "#!/bin/sh\n" + lines + "\n");
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file;
  }
  SanitizerFindings found() const { return run_sanitizer(tests, folder.path("log.txt"), 60); }

  Scratch folder;
  std::string tests, tool;
  Path path;
};

TEST_CASE("compute-sanitizer runs the kernels' tests without those that time something or fail on purpose") {
  const Tool made_up("ERROR SUMMARY: 0 errors", 0);
  const SanitizerFindings found = made_up.found();
  CHECK(found.not_run.empty());
  CHECK(found.tool == made_up.tool);
  CHECK(found.clean);
  CHECK(found.last_line == "ERROR SUMMARY: 0 errors");
  const std::string log = read_file(made_up.folder.path("log.txt"));
  CHECK(contains(log, "given --report-api-errors=no\n"));
  CHECK(contains(log, "given " + made_up.tests + "\ngiven --test-suite-exclude=not under compute-sanitizer\n"));
  const std::string source = std::string(std::getenv("PIPEWRIGHT_SOURCE")) + "/tests/kernels/gpu_test.cpp";
  CHECK(contains(read_file(source), "\"not under compute-sanitizer\""));
}

TEST_CASE("What it finds is not clean; nor are tests that fail beside it, which is told apart") {
  CHECK(Tool("ERROR SUMMARY: 2 errors", 99).found().last_line == "ERROR SUMMARY: 2 errors");
  CHECK_FALSE(Tool("ERROR SUMMARY: 2 errors", 99).found().clean);
  const SanitizerFindings failed = Tool("ERROR SUMMARY: 0 errors", 1).found();
  CHECK_FALSE(failed.clean);
  CHECK(failed.last_line == "ERROR SUMMARY: 0 errors; but the tests ended with status 1");
}

}  // namespace
}  // namespace pipewright
