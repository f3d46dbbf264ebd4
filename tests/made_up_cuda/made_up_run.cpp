#include "tests/made_up_cuda/made_up_run.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "tests/support/run_ranks.hpp"

namespace pipewright::tests::made_up_cuda {

namespace {

ProgramInput input_of(const std::string& settings, const std::string& report) {
  ProgramInput input;
  input.settings = {"MADE_UP_CUDA=kernel_ns=500 report=" + report + " " + settings};
  return input;
}

MadeUpRun with_report(const ProgramRun& run, const std::string& report) {
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

}  // namespace

MadeUpRun made_up_run(const std::string& settings, const std::vector<std::string>& arguments,
                      const std::string& instead) {
  const ScratchFolder folder;
  ProgramInput input = input_of(settings, folder.path("report"));
  if (!instead.empty()) input.launcher = {instead};  // takes no arguments, so that the program's name does no harm
  return with_report(run_program(arguments, input), folder.path("report"));
}

std::vector<MadeUpRun> made_up_ranks(const std::vector<std::string>& settings,
                                     const std::vector<std::string>& arguments) {
  const ScratchFolder folder;
  const auto report = [&](std::size_t rank) { return folder.path("report-" + std::to_string(rank)); };
  std::vector<RankStart> starts;
  for (std::size_t r = 0; r < settings.size(); ++r) {
    starts.push_back({arguments, input_of(settings[r], report(r))});
    starts.back().arguments.insert(starts.back().arguments.end(),
                                   {"--set", "run.transport=tcp", "--set", "run.gpus=[0, 1]"});
  }
  std::vector<MadeUpRun> runs;
  for (const ProgramRun& run : run_ranks(std::move(starts)))
    runs.push_back(with_report(run, report(runs.size())));
  return runs;
}

std::string tiny() {
  return source_folder() + "/tests/made_up_cuda/tiny.yaml";
}

}  // namespace pipewright::tests::made_up_cuda
