// `accuracy`: how accurate predictions are on a GPU, from the device's facts to gradients, in six parts.
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/accuracy/parts.hpp"
#include "cli/accuracy/summary.hpp"
#include "cli/commands.hpp"
#include "cli/real_run.hpp"
#include "cli/revision.hpp"
#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "io/quantity.hpp"
#include "io/sha256.hpp"
#include "kernels/gpu_api.hpp"
#include "runtime/signals.hpp"

namespace pipewright {
namespace {

constexpr std::array<Option, 9> kOptions = {{
    {"--backend", "", "NAME", "cuda (default): one GPU, cut into virtual devices"},
    {"--part", "", "N", "this part, 1 to 6 (repeatable; default: all, in their order)"},
    {"--dry-run", "", "", "every step with small sizes and the CPU; all files say so, and no figure is one of a GPU"},
    {"--budget", "", "TIME", "time for each part; nothing new starts after it (default: 270 s; at most 5 min)"},
    {"--set", "", "KEY=VALUE", "change one value of all scenarios first (repeatable)"},
    {"--kernel-tests", "", "FILE",
     "the tests that compute-sanitizer runs (default: tests/kernels/test_gpu next to the program)"},
    {"--summary", "", "",
     "measure nothing: write the summary again from the results of -o; without -o, its empty tables"},
    {"--output", "-o", "DIR", "for the results (default: pipewright-out/accuracy-cuda, in a dry run accuracy-dry-run)"},
    {"--json", "", "", "the summary as one JSON document on standard output instead of Markdown"},
}};

constexpr Time kDefaultBudget{270'000'000'000}, kLongestBudget{300'000'000'000};

std::vector<int> asked_parts(const Arguments& arguments) {
  std::vector<int> parts;
  for (const std::string& text : arguments.all("--part")) {
    const Parsed<std::int64_t> number = parse_count(text);
    if (!number.value || *number.value < 1 || *number.value > kParts)
      throw InputError("--part: \"" + text + "\" must be 1 to 6; write e.g. --part 3");
    parts.push_back(static_cast<int>(*number.value));
  }
  if (parts.empty()) parts = {1, 2, 3, 4, 5, 6};
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  return parts;
}

Time asked_budget(const Arguments& arguments) {
  if (!arguments.has("--budget")) return kDefaultBudget;
  const std::string text = arguments.last("--budget", "");
  const Parsed<Time> time = parse_time(text);
  if (!time.value || *time.value <= Time{} || *time.value > kLongestBudget)
    throw InputError("--budget: \"" + text + "\" is no time of at most 5 min; write e.g. --budget 4min");
  return *time.value;
}

void check_backend(const Arguments& arguments, bool dry_run) {
  const std::string backend = arguments.last("--backend", "cuda");
  if (backend != "cuda")
    throw InputError(
        "--backend: \"" + backend +
        "\" is not what this study is about; known: cuda. With --dry-run it goes through every step on the "
        "CPU; pipewright validate measures a CPU");
  if (!dry_run && gpu_count() == 0)
    throw InputError("accuracy: there is no GPU to measure: " + gpu_status() +
                     "; `pipewright doctor` shows what is there, --dry-run goes through every step without one");
}

// Beside the running program, where meson puts it.
std::string kernel_tests_here() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "" : (program.parent_path() / "tests/kernels/test_gpu").string();
}

std::string device_now(bool dry_run) {
  if (dry_run) return "cpu";
  const GpuSystem system = gpu_system();
  return fmt::format("{}, driver {}", system.gpus.empty() ? "" : system.gpus.front().name, system.driver);
}

// The scenario as YAML with every default, without the comments that say from which file a value is.
std::string bare_yaml(const Scenario& scenario) {
  std::string bare;
  const std::string text = resolved_yaml(scenario);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    bare += line.substr(0, line.rfind("  # ")) + "\n";
    begin = end + 1;
  }
  return bare;
}

StudySettings settings_of(const std::vector<StudyItem>& items, const std::vector<std::string>& set, bool dry_run) {
  StudySettings settings{{"backend", dry_run ? "cpu" : "cuda"},
                         {"device", device_now(dry_run)},
                         {"dry_run", dry_run ? "true" : "false"},
                         {std::string(kSetSetting), fmt::format("{}", fmt::join(set, "\n"))},
                         {"version", PIPEWRIGHT_VERSION}};
  for (const StudyItem& item : items)
    settings[std::string(kScenarioSetting) + item.name] = sha256(bare_yaml(item.scenario));
  return settings;
}

// What cannot be run is found before anything is measured: the scenarios of these parts, and those that part 2
// calibrates.
void check_items(const std::vector<StudyItem>& items, const std::vector<int>& parts) {
  const auto asked = [&](int part) { return std::find(parts.begin(), parts.end(), part) != parts.end(); };
  for (const StudyItem& item : items)
    if (asked(item.part) || (asked(2) && (item.part == 3 || item.part == 4))) check_can_run(item.scenario);
}

void run_part(const PartTask& task) {
  switch (task.part) {
    case 1: return device_part(task);
    case 2: return calibration_part(task);
    case 3:
    case 4: return runs_part(task);
    case 5: return largest_part(task);
    case 6: return gradients_part(task);
    default: PP_CHECK(false);
  }
}

// What calls before this one could not measure, of the parts that try it again, and how often. No two parts share a
// name. A search of part 5 has what failed, or never ended, in the record of one of its runs.
std::map<std::string, int> failed_before(const StudyResults& results) {
  std::map<std::string, int> names;
  for (const StudyRecord& record : results.records()) {
    if (record.part == 3 || record.part == 4 || &record != results.latest(record.part, record.name)) continue;
    const bool never_ended = record.part == 5 && record.status == "interrupted";
    if (never_ended || results.failed(record.part, record.name))
      names[record.part == 5 ? record.name.substr(0, record.name.find('.')) : record.name] = record.attempt;
  }
  return names;
}

// Another commit of the same version may go on; whose results are whose, the dates tell.
void tell_other_program(const StudyResults& results) {
  const StudyRecord* const facts = results.latest(1, kDeviceFacts);
  const std::string there = facts == nullptr ? "" : facts->word("program"), now = version_with_commit();
  if (!there.empty() && there != now)
    note(fmt::format("{}: part 1 is of pipewright {}, this is {}", results.folder(), there, now));
}

void write_summary(const StudyResults& results, const std::vector<StudyItem>& items) {
  const StudySummary summary = summarized(results.records(), planned(items), results.dry_run());
  const std::string path = results.folder() + "/accuracy";
  results.write(path + ".md", summary_markdown(summary));
  results.write(path + ".json", summary_json(summary));
  results.write(path + ".svg", summary_svg(summary));
}

int tell_summary(const StudyResults& results, const std::vector<StudyItem>& items, bool json) {
  const StudySummary summary = summarized(results.records(), planned(items), results.dry_run());
  const std::string file = results.folder() + "/accuracy";
  print(json ? summary_json(summary, {file + ".md", file + ".json", file + ".svg"}) : summary_markdown(summary));
  note("wrote " + results.folder() + "/: accuracy.md accuracy.json accuracy.svg and a folder for each part");
  return exit_status(summary);
}

int only_summary(const Arguments& arguments) {
  if (!arguments.has("--output")) {
    const StudySummary empty = summarized({}, planned(study_items({.set = {}, .dry_run = false})), false);
    print(arguments.has("--json") ? summary_json(empty) : summary_markdown(empty));
    return kDone;
  }
  const StudyResults results(arguments.last("--output", ""));
  const std::vector<StudyItem> items = study_items({.set = results.set(), .dry_run = results.dry_run()});
  write_summary(results, items);
  return tell_summary(results, items, arguments.has("--json"));
}

int run(const Arguments& arguments) {
  const std::vector<int> parts = asked_parts(arguments);
  const Time budget = asked_budget(arguments);
  const bool dry_run = arguments.has("--dry-run");
  if (arguments.has("--summary")) {
    for (const std::string_view option : {"--part", "--dry-run", "--budget", "--kernel-tests", "--set"})
      if (arguments.has(option))
        throw InputError(
            fmt::format("--summary measures nothing, so {} says nothing to it (--set is taken from the results); leave "
                        "one of them out",
                        option));
    return only_summary(arguments);
  }
  check_backend(arguments, dry_run);
  const std::vector<StudyItem> items = study_items({.set = arguments.all("--set"), .dry_run = dry_run});
  const std::string folder =
      arguments.last("--output", dry_run ? "pipewright-out/accuracy-dry-run" : "pipewright-out/accuracy-cuda");
  check_items(items, parts);
  StudyResults results(folder, settings_of(items, arguments.all("--set"), dry_run), dry_run);
  const LastWords last_words("every result so far is kept in " + results.folder() +
                             "; the same command goes on where this one stopped");
  tell_other_program(results);
  const std::map<std::string, int> failed = failed_before(results);
  std::set<int> turns = {0};
  for (const auto& [name, times] : failed)
    turns.insert(times);
  std::array<Time, kParts + 1> used{};
  const auto go = [&](int part, int turn) {
    const PartBudget clock(budget);
    Time& used_by_part = used[static_cast<std::size_t>(part)];
    run_part({results, items, part, budget, budget - used_by_part,
              arguments.last("--kernel-tests", kernel_tests_here()), failed, turn});
    used_by_part = used_by_part + clock.used();
    write_summary(results, items);
  };
  try {
    for (const int turn : turns)
      for (const int part : parts)
        go(part, turn);
  } catch (const GpuLost& lost) {
    note(lost.what());
    write_summary(results, items);
    return std::max(tell_summary(results, items, arguments.has("--json")), kBadInput);
  }
  return tell_summary(results, items, arguments.has("--json"));
}

}  // namespace

constinit const Command kAccuracy{
    .name = "accuracy",
    .arguments = "",
    .summary = "how accurate predictions are on a GPU: device, calibration, runs, memory, gradients",
    .details =
        "Parts: 1 the device and its SM groups, 2 the calibration, 3 pipelines predicted and run, 4 speed-ups of 2, 4\n"
        "and 8 virtual devices over one, 5 the largest model under a cap, 6 gradients and compute-sanitizer. "
        "Scenarios:\n"
        "scenarios/gpu. Every result is written when it is there, the same call again goes on where it stopped; what "
        "was\n"
        "left out since a part's time was used up is listed. Predictions are written before their runs, a withheld run "
        "is\n"
        "repeated at most twice, nothing is calibrated again.\n"
        "  pipewright accuracy -o accuracy                  (on a machine with a GPU)\n"
        "  pipewright accuracy --part 3 -o accuracy\n"
        "  pipewright accuracy --dry-run -o tried           (anywhere; nothing of a GPU is learned)\n"
        "  pipewright accuracy --summary -o accuracy        (anywhere; from the results alone)\n"
        "Exit status 1: a target is missed, 2: something was withheld (but in a dry run), left out, failed or never "
        "ended.\n",
    .options = kOptions,
    .least = 0,
    .most = 0,
    .run = run,
};

}  // namespace pipewright
