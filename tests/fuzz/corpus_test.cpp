// The inputs in corpus/, seeds and what fuzzers found, in the ordinary suite: no clang needed.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "io/read/read_file.hpp"
#include "tests/fuzz/targets.hpp"

namespace pipewright::tests {

TEST_CASE("Every input that is kept for the fuzzers is read or refused, never anything else") {
  const std::filesystem::path corpus = std::filesystem::path(std::getenv("PIPEWRIGHT_SOURCE")) / "tests/fuzz/corpus";
  std::set<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(corpus))
    folders.insert(entry.path().filename().string());
  for (const FuzzTarget& target : fuzz_targets()) {
    CAPTURE(target.name);
    REQUIRE(folders.erase(std::string(target.name)) == 1);
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(corpus / target.name))
      files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    CHECK(!files.empty());
    int good = 0;
    for (const std::string& file : files) {
      CAPTURE(file);
      const std::string bytes = read_file(file);
      run_target(target, bytes);
      try {
        target.read(bytes);
        ++good;
      } catch (const std::exception&) {
      }
    }
    CHECK(good > 0);  // a seed that is read, so that the fuzzer begins behind the first check
  }
  CHECK(folders.empty());  // of no target
}

}  // namespace pipewright::tests
