// Whole runs of the command line against stored transcripts.
//
//   meson test --suite golden                          compares
//   PIPEWRIGHT_ACCEPT=1 meson test --suite golden      writes the transcripts anew and reports "skipped": look at the
//                                                      difference before committing it
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/run_program.hpp"

namespace pipewright::tests {
namespace {

struct Transcript {
  const char* file;
  const char* arguments;  // separated by spaces
};

constexpr std::array<Transcript, 34> kTranscripts = {{
    {"quickstart.txt", "simulate scenarios/quickstart.yaml"},
    {"quickstart-json.txt", "simulate scenarios/quickstart.yaml --json"},
    {"transformer-48.txt", "simulate scenarios/gpipe/transformer-48-k8-m32.yaml"},
    {"vgg16-15-1.txt", "simulate scenarios/pipedream/vgg16-15-1.yaml"},
    {"old-and-new.txt", "simulate scenarios/what_if/old-and-new.yaml"},
    {"infeasible.txt", "simulate scenarios/quickstart.yaml --set cluster.node.device.memory=2365MiB"},
    {"infeasible-json.txt", "simulate scenarios/quickstart.yaml --set cluster.node.device.memory=2365MiB --json"},
    {"unknown-schedule.txt", "simulate scenarios/quickstart.yaml --set plan.schedule=1fb1"},
    {"too-many-stages.txt", "check scenarios/quickstart.yaml --set plan.stages=25"},
    {"capacity-table1.txt", "capacity scenarios/gpipe/table1-transformer.yaml --over model.layers --width 140"},
    {"capacity-json.txt", "capacity scenarios/quickstart.yaml --over training.micro_batch_size --json"},
    {"compare.txt", "compare scenarios/what_if/hops-1f1b.yaml scenarios/what_if/hops-gpipe.yaml"},
    {"compare-llama.txt",
     "compare scenarios/what_if/llama3-70b.yaml scenarios/what_if/llama3-70b.yaml --set-b "
     "cluster.network.bandwidth=25Gb/s"},
    {"sweep-bandwidth.txt", "sweep scenarios/what_if/bandwidth.yaml --jobs 2"},
    {"sweep-hardware.txt", "sweep scenarios/what_if/hardware.yaml --jobs 2"},
    {"sweep-hardware-csv.txt", "sweep scenarios/what_if/hardware.yaml --csv --jobs 2"},
    {"reproduce.txt", "reproduce"},
    {"reproduce-torchgpipe.txt", "reproduce torchgpipe --width 140"},
    {"plan.txt", "plan scenarios/quickstart.yaml --set plan=auto --explain --pareto memory"},
    {"plan-json.txt", "plan scenarios/quickstart.yaml --set plan=auto --json --top 2"},
    {"launch-megatron.txt", "launch scenarios/what_if/llama3-70b.yaml --for megatron --sbatch"},
    {"launch-torchtitan.txt", "launch scenarios/what_if/llama3-70b.yaml --for torchtitan"},
    {"launch-torch.txt", "launch scenarios/quickstart.yaml --for torch"},
    {"launch-deepspeed.txt", "launch scenarios/quickstart.yaml --for deepspeed --set plan.schedule=gpipe"},
    {"launch-slurm.txt", "launch scenarios/validation/two-stage-gpipe.yaml --for slurm"},
    {"launch-open.txt", "launch scenarios/megatron/llama3-70b-64xh100.yaml --for megatron"},
    {"deadlock.txt", "check tests/golden/deadlock.schedule.csv"},
    {"help.txt", "help"},
    {"help-plan.txt", "help plan"},
    {"help-simulate.txt", "help simulate"},
    {"show-schedules.txt", "show schedules"},
    {"show-interleaved.txt", "show schedules interleaved_1f1b"},
    {"show-devices.txt", "show devices"},
    {"show-partitioners.txt", "show partitioners"},
}};

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> list;
  for (std::string word; stream >> word;)
    list.push_back(word);
  return list;
}

std::string transcript(const Transcript& each) {
  const ProgramRun run = run_program(words(each.arguments));
  std::string text = std::string("$ pipewright ") + each.arguments + "\n" + run.out;
  if (!run.err.empty()) text += "[standard error]\n" + run.err;
  return text + "[exit status " + std::to_string(run.status) + "]\n";
}

// The first line that differs, for the log.
std::string difference(const std::string& expected, const std::string& now) {
  std::istringstream a(expected), b(now);
  std::string line_a, line_b;
  for (int number = 1;; ++number) {
    const bool more_a = static_cast<bool>(std::getline(a, line_a)), more_b = static_cast<bool>(std::getline(b, line_b));
    if (!more_a && !more_b) return "its line ends";
    if (more_a != more_b || line_a != line_b)
      return "line " + std::to_string(number) + "\n  stored: " + (more_a ? line_a : "(end)") +
             "\n  now:    " + (more_b ? line_b : "(end)");
  }
}

int run() {
  const std::string folder = source_folder() + "/tests/golden/";
  const bool accept = std::getenv("PIPEWRIGHT_ACCEPT") != nullptr;
  int failures = 0;
  for (const Transcript& each : kTranscripts) {
    const std::string now = transcript(each);
    if (accept) {
      std::ofstream(folder + each.file, std::ios::binary) << now;
      continue;
    }
    const std::string expected = file_text(folder + each.file);
    if (expected == now) continue;
    std::printf("%s differs at %s\n", each.file, difference(expected, now).c_str());
    ++failures;
  }
  if (accept) std::puts("transcripts written: look at the difference before committing it");
  if (failures > 0) std::puts("If the new output is right: PIPEWRIGHT_ACCEPT=1 meson test --suite golden");
  return accept ? 77 : failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace pipewright::tests

int main() {
  return pipewright::tests::run();
}
