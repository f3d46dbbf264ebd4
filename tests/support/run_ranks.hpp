// Several runs of the program at once that find one another by variables set by hand, as ranks of one run.
#pragma once

#include <future>
#include <string>
#include <vector>

#include "tests/support/free_port.hpp"
#include "tests/support/run_program.hpp"

namespace pipewright::tests {

struct RankStart {
  std::vector<std::string> arguments;
  ProgramInput input;
};

// One process each. `size`: of the world; 0: as many.
inline std::vector<ProgramRun> run_ranks(std::vector<RankStart> starts, int size = 0) {
  const std::string port = "MASTER_PORT=" + std::to_string(free_port());
  const std::string world = "WORLD_SIZE=" + std::to_string(size > 0 ? size : static_cast<int>(starts.size()));
  std::vector<std::future<ProgramRun>> running;
  for (std::size_t r = 0; r < starts.size(); ++r) {
    RankStart& one = starts[r];
    one.input.settings.insert(one.input.settings.end(),
                              {"RANK=" + std::to_string(r), world, "MASTER_ADDR=localhost", port});
    running.push_back(std::async(std::launch::async, [&one] { return run_program(one.arguments, one.input); }));
  }
  std::vector<ProgramRun> runs;
  for (auto& one : running)
    runs.push_back(one.get());
  return runs;
}

}  // namespace pipewright::tests
