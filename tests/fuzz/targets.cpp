#include "tests/fuzz/targets.hpp"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <sys/mman.h>
#include <unistd.h>

#include "core/answers/measured.hpp"
#include "core/check.hpp"
#include "core/question/profile.hpp"
#include "io/import/hf.hpp"
#include "io/import/pipedream.hpp"
#include "io/import/run_file.hpp"
#include "io/import/schedule_csv.hpp"
#include "io/read/read_result.hpp"
#include "io/read/read_runs.hpp"
#include "io/read/read_scenario.hpp"
#include "io/yaml/yaml.hpp"

namespace pipewright::tests {
namespace {

// A file in memory: readers that stream take a path.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& bytes) : number_(memfd_create("input", MFD_CLOEXEC)) {
    PP_CHECK(number_ >= 0);
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t count = write(number_, bytes.data() + done, bytes.size() - done);
      PP_CHECK(count > 0);
      done += static_cast<std::size_t>(count);
    }
  }
  ~MemoryFile() { close(number_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(number_); }

 private:
  int number_;
};

// What import writes must be read again: a refusal here is a bug of ours, whatever the input was.
void reads_back(const ImportedRun& run) {
  std::string text;
  try {
    text = run_yaml(run);
  } catch (const InputError&) {
    return;  // more than a run file holds
  }
  try {
    const ImportedRun again = parse_run_file(text, "again.yaml");
    PP_CHECK(again.log.has_value() == run.log.has_value());
    PP_CHECK(!run.log || again.log->steps.size() == run.log->steps.size());
    PP_CHECK(!run.trace || again.trace->actions.size() == run.trace->actions.size());
  } catch (const InputError& error) {
    check_failed(error.what(), __FILE__, __LINE__);
  }
}

void read_scenario_bytes(const std::string& bytes) {
  const MemoryFile file(bytes);
  resolved_yaml(read_scenario(file.path()));
}

void read_profile_bytes(const std::string& bytes) {
  const MemoryFile file(bytes);
  profile_yaml(read_profile(file.path()));
}

void read_hf(const std::string& bytes) {
  PP_CHECK(!build(parse_hf_config(bytes, "config.json", {}).transformer).layers.empty());
}

void read_graph(const std::string& bytes) {
  PP_CHECK(!parse_pipedream_profile(bytes, "graph.txt", {}).layers.empty());
}

void read_runs_csv(const std::string& bytes) {
  MeasuredTable table;
  table.columns.push_back({.key = "training.micro_batch_size", .heads = {"mbs"}, .values = {}, .unit = {}});
  table.columns.push_back({.key = "training.global_batch_size", .heads = {"mbs", "gpus"}, .values = {}, .unit = {}});
  table.figures.push_back({.name = "time", .sought = {.text = "step_time_s"}, .head = "time"});
  table.devices = "gpus";
  parse_runs(table, {.name = "runs", .file = "runs.csv"}, bytes, "runs.csv");
}

void read_log(const std::string& bytes) {
  const MemoryFile file(bytes);
  TrainingLog log = read_training_log(file.path());
  ImportedRun run{.source = {.file = "run.log", .format = log.format}};
  run.log = std::move(log);
  reads_back(run);
}

void read_kineto(const std::string& bytes) {
  const MemoryFile file(bytes);
  reads_back(import_kineto(file.path()));
}

constexpr std::array kTargets = {
    FuzzTarget{"scenario", read_scenario_bytes},
    FuzzTarget{"profile", read_profile_bytes},
    FuzzTarget{"hf", read_hf},
    FuzzTarget{"graph", read_graph},
    FuzzTarget{"runs-csv", read_runs_csv},
    FuzzTarget{"log", read_log},
    FuzzTarget{"kineto", read_kineto},
    FuzzTarget{"schedule-csv", [](const std::string& bytes) { parse_schedule_csv(bytes, "schedule.csv"); }},
    FuzzTarget{"result", [](const std::string& bytes) { parse_result(bytes, "result.json"); }},
    FuzzTarget{"run-file", [](const std::string& bytes) { reads_back(parse_run_file(bytes, "run.yaml")); }},
};

}  // namespace

std::span<const FuzzTarget> fuzz_targets() {
  return kTargets;
}

void run_target(const FuzzTarget& target, const std::string& bytes) {
  try {
    target.read(bytes);
  } catch (const InputError& error) {
    PP_CHECK(std::string_view(error.what()).size() > 10);
  }
}

}  // namespace pipewright::tests
