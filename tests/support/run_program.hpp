// Runs the pipewright binary (PIPEWRIGHT_BINARY) as a user does, in the source tree (PIPEWRIGHT_SOURCE).
#pragma once

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "tests/support/children.hpp"

namespace pipewright::tests {

struct ProgramRun {
  int status = -1;  // exit status; 128 + signal when it was killed
  std::string out, err;
};

struct ProgramInput {
  std::string folder;                       // working directory; "": the source tree
  std::string input;                        // standard input
  std::string output_to;                    // standard output goes to this path instead of ProgramRun::out
  std::vector<std::string> settings;        // "NO_COLOR=1", added to the environment
  std::vector<std::string> launcher;        // {"mpirun", "-n", "2"}: starts the program
  std::string interrupt_at;                 // `signal`, once this stands on standard error, which is then a terminal
  bool interrupt_at_once = false;           // `signal`, as soon as the program listens to it
  int signal = SIGINT;                      // Ctrl-C
  bool twice = false;                       // at once after the other, as timeout(1) sends it
  std::chrono::seconds longest = kLongest;  // what takes longer hangs: it and what it started are killed, and `err`
                                            // says what its threads waited for
};

// `plan` of one cluster searches until it is done, unless --time-limit says else.
ProgramRun run_program(const std::vector<std::string>& arguments, const ProgramInput& input = {});

std::string source_folder();
std::string file_text(const std::string& path);

// A folder of its own for a test, removed with what is in it.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::vector<std::string> files() const;  // names, sorted

 private:
  std::string folder_;
};

}  // namespace pipewright::tests
