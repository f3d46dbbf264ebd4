#include "tests/made_up_cuda/made_up_run.hpp"

#include <algorithm>
#include <sstream>

namespace pipewright::made_up_cuda {

MadeUpRun made_up_run(const std::string& settings, const std::vector<std::string>& arguments,
                      const std::string& instead) {
  const ScratchFolder folder;
  const std::string report = folder.path("report");
  ProgramInput input;
  input.settings = {"MADE_UP_CUDA=kernel_ns=500 report=" + report + " " + settings};
  if (!instead.empty()) input.launcher = {instead};  // takes no arguments, so that the program's name does no harm
  const ProgramRun run = run_program(arguments, input);
  MadeUpRun out;
  out.status = run.status, out.out = run.out, out.err = run.err;
  std::istringstream lines(file_text(report));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string what, name;
    long value = 0;
    words >> what;
    if (what == "end") {
      ++out.processes;
    } else if (what == "misuse") {
      out.misuse += line + '\n';
    } else if (words >> name >> value; what == "calls") {
      out.calls[name] += value;
    } else if (what == "left" && value != 0) {
      out.left += name + ' ' + std::to_string(value) + ", ";
    } else if (what == "most") {
      out.most_device_bytes = std::max(out.most_device_bytes, value);
    }
  }
  return out;
}

std::string tiny() {
  return source_folder() + "/tests/made_up_cuda/tiny.yaml";
}

}  // namespace pipewright::made_up_cuda
