// `accuracy`: how near predictions come on this machine. Each scenario is a `validate` of its own, in a process of its
// own, so that none can hang the others or take the GPU from them.
//
//     NAME/scenario.yaml       what was asked, with every default
//     NAME/validate.txt        what validate printed
//     NAME/comparison.json     its figures: where it is there, the scenario is done
//     accuracy.md .json        the table, made from these files alone
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/accuracy_list.hpp"
#include "cli/attempt.hpp"
#include "cli/commands.hpp"
#include "cli/process_group.hpp"
#include "cli/real_run.hpp"
#include "cli/revision.hpp"
#include "cli/shapes.hpp"
#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "io/format_quantity.hpp"
#include "io/json_input.hpp"
#include "io/profile_file.hpp"
#include "io/quantity.hpp"
#include "io/quote.hpp"
#include "io/read_file.hpp"
#include "io/writers/json_text.hpp"
#include "io/writers/markdown_table.hpp"
#include "io/writers/writers.hpp"
#include "kernels/gpu_api.hpp"
#include "runtime/signals.hpp"

namespace pipewright {
namespace {

namespace fs = std::filesystem;

constexpr std::array<Option, 6> kOptions = {{
    {"--set", "", "KEY=VALUE", "change one value of every scenario first (repeatable)"},
    {"--profile", "", "FILE", "prices from this profile (`calibrate`) instead of a calibration before each run"},
    {"--budget", "", "TIME", "time for each calibration, as for validate (default: 3 s)"},
    {"--deadline", "", "TIME", "a scenario that is not done after it is ended, and counts as failed (default: 5 min)"},
    {"--output", "-o", "DIR", "for the results (default: pipewright-out/accuracy)"},
    {"--json", "", "", "the table as one JSON document on standard output instead of Markdown"},
}};

// `validate` has an option to judge all the same, which is not this command's.
constexpr std::string_view kAdvice = "; stop what else runs here and run again, or --force";
constexpr std::string_view kVerdicts[] = {"within", "outside", "withheld", "failed", "not run"};

// What validate said of a scenario. Figures are there where it gave a comparison.
struct Outcome {
  std::string scenario, verdict = "not run", reason;
  std::string device, date;  // of the profile
  struct Figures {
    Time predicted, corrected, low, high, measured, p5, p95;
    std::optional<double> error;
    bool in_interval = false;
    double bubble_predicted = 0, bubble_measured = 0;
    // Of the worker that held most: its arena as counted and as run, and the memory model's range.
    Bytes memory_predicted, memory_low, memory_high, memory_measured;
    bool memory_exact = true;  // of all workers
  };
  std::optional<Figures> figures;

  bool judged() const { return verdict == "within" || verdict == "outside"; }
};

// The scenario as YAML with every default, without the comments that say from which file a value is.
std::string bare_yaml(const Scenario& scenario) {
  std::string bare;
  const std::string text = resolved_yaml(scenario);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    bare += line.substr(0, line.find_last_not_of(' ', line.rfind("  # ")) + 1) + "\n";
    begin = end + 1;
  }
  return bare;
}

bool there(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The last line that says why, else the last one.
std::string why_failed(const std::string& log) {
  std::string why, last;
  for (std::size_t begin = 0; begin < log.size();) {
    const std::size_t end = std::min(log.find('\n', begin), log.size());
    const std::string line = log.substr(begin, end - begin);
    if (!line.empty()) last = line;
    if (line.find("error: ") != std::string::npos || line.starts_with("infeasible: ")) why = line;
    begin = end + 1;
  }
  return why.empty() ? last : why;
}

Time time_of(const JsonValue& seconds) {
  return {std::llround(seconds.number() * 1e9)};
}

Outcome::Figures figures_of(const JsonValue& comparison, const JsonValue& prediction) {
  const JsonValue step = comparison.at("step"), bubble = comparison.at("bubble");
  Outcome::Figures f;
  f.predicted = time_of(step.at("predicted")), f.corrected = time_of(step.at("corrected"));
  f.measured = time_of(step.at("measured_median"));
  f.p5 = time_of(step.at("measured_p5")), f.p95 = time_of(step.at("measured_p95"));
  const double center = static_cast<double>(f.corrected.value), half = step.at("band").number();
  f.low = {std::llround(center * std::max(0.0, 1 - half))}, f.high = {std::llround(center * (1 + half))};
  f.error = step.at("error").number_or_null(), f.in_interval = step.at("in_band");
  f.bubble_predicted = bubble.at("predicted"), f.bubble_measured = bubble.at("measured");
  const std::vector<JsonValue> workers = comparison.at("workers").items(), modelled = prediction.at("workers").items();
  for (std::size_t w = 0; w < workers.size(); ++w) {
    const JsonValue extent = workers[w].at("extent");
    const Bytes predicted{extent.at("predicted").whole()}, measured{extent.at("measured").whole()};
    f.memory_exact = f.memory_exact && predicted == measured;
    if (measured <= f.memory_measured && w > 0) continue;
    f.memory_predicted = predicted, f.memory_measured = measured;
    const JsonValue need = modelled.at(w).at("memory_need_bytes");
    f.memory_low = {need.at("low").whole()}, f.memory_high = {need.at("high").whole()};
  }
  return f;
}

Outcome outcome_of(const std::string& folder, const std::string& name) {
  const std::string at = folder + "/" + name + "/";
  Outcome outcome{.scenario = name};
  if (!there(at + "comparison.json")) {
    if (there(at + "validate.txt"))
      outcome.verdict = "failed", outcome.reason = why_failed(read_file(at + "validate.txt"));
    return outcome;
  }
  const std::string way_out = "delete its folder to run the scenario again";
  const auto document = [&](const std::string& file) { return parse_json(read_file(at + file), at + file, way_out); };
  const Json comparison = document("comparison.json"), prediction = document("prediction.json");
  const JsonValue said(comparison, at + "comparison.json", way_out);
  outcome.verdict = said.at("verdict").text(), outcome.reason = said.at("reason").text();
  outcome.reason.erase(std::min(outcome.reason.find(kAdvice), outcome.reason.size()));
  outcome.figures = figures_of(said, JsonValue(prediction, at + "prediction.json", way_out));
  if (there(at + "profile.yaml")) {
    const MachineProfile profile = read_profile(at + "profile.yaml");
    outcome.device = profile.machine.processor, outcome.date = profile.date;
  }
  return outcome;
}

struct Summary {
  int judged = 0, in_interval = 0, exact = 0;
  double mean_error = 0, largest_error = 0;  // of those that were judged
};

Summary summary_of(const std::vector<Outcome>& outcomes) {
  Summary s;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.figures) continue;
    s.exact += outcome.figures->memory_exact;
    if (!outcome.judged()) continue;
    ++s.judged, s.in_interval += outcome.figures->in_interval;
    const double error = std::abs(outcome.figures->error.value_or(0));
    s.mean_error += error, s.largest_error = std::max(s.largest_error, error);
  }
  if (s.judged > 0) s.mean_error /= s.judged;
  return s;
}

// "NVIDIA H200, 2026-01-31", each once.
std::string devices_of(const std::vector<Outcome>& outcomes) {
  std::set<std::string> devices;
  for (const Outcome& outcome : outcomes)
    if (!outcome.device.empty()) devices.insert(outcome.device + ", " + outcome.date);
  return devices.empty() ? "not measured" : fmt::format("{}", fmt::join(devices, "; "));
}

std::string markdown(const std::vector<Outcome>& outcomes) {
  std::vector<TextColumn> columns;
  for (const char* const head : {"scenario", "predicted", "corrected", "90 % interval", "measured", "p5 to p95",
                                 "error", "in it", "memory, predicted", "range", "measured", "verdict"})
    columns.push_back({.head = head, .left = columns.empty()});
  columns.back().left = true;
  const auto range = [](const std::string& low, const std::string& high) { return low + " to " + high; };
  std::size_t with_figures = 0;
  for (const Outcome& outcome : outcomes) {
    std::vector<std::string> cells = {outcome.scenario};
    with_figures += outcome.figures.has_value();
    if (const auto& f = outcome.figures)
      cells.insert(cells.end(),
                   {short_time(f->predicted), short_time(f->corrected), range(short_time(f->low), short_time(f->high)),
                    short_time(f->measured), range(short_time(f->p5), short_time(f->p95)),
                    outcome.judged() && f->error ? fmt::format("{:+.1f} %", 100 * *f->error) : "",
                    outcome.judged() ? (f->in_interval ? "yes" : "no") : "", short_bytes(f->memory_predicted),
                    range(short_bytes(f->memory_low), short_bytes(f->memory_high)),
                    short_bytes(f->memory_measured) + (f->memory_exact ? ", exact" : ", NOT EXACT")});
    cells.resize(columns.size() - 1);
    // validate's reason begins with its verdict.
    cells.push_back(outcome.reason.starts_with(outcome.verdict) || outcome.reason.empty()
                        ? (outcome.reason.empty() ? outcome.verdict : outcome.reason)
                        : outcome.verdict + ": " + outcome.reason);
    for (std::size_t c = 0; c < columns.size(); ++c)
      columns[c].cells.push_back(cells[c]);
  }
  const Summary s = summary_of(outcomes);
  std::string text = fmt::format(
      "Device: {}. Each scenario was calibrated, predicted and run by `pipewright validate`. The step is the median of "
      "the timed ones; corrected: the prediction on the machine as it was meanwhile, which the error is of. Memory: of "
      "the worker that held most. Table by pipewright {}.\n\n",
      markdown_text(devices_of(outcomes)), version_with_commit());
  text += markdown_table(columns);
  text += fmt::format("\n{} of {} scenarios judged", s.judged, outcomes.size());
  if (s.judged > 0)
    text += fmt::format(": mean |error| {:.1f} %, largest {:.1f} %, measured step in the interval: {}",
                        100 * s.mean_error, 100 * s.largest_error, s.in_interval);
  return text + fmt::format(". Memory to the byte: {} of {} that ran.\n", s.exact, with_figures);
}

std::string json(const std::vector<Outcome>& outcomes, const std::vector<std::string>& written = {}) {
  JsonText json;
  json.open('{').field("schema", "pipewright.study-summary/2").field("pipewright", version_with_commit());
  json.key("runs").open('[');
  for (const Outcome& outcome : outcomes) {
    json.open('{').field("scenario", outcome.scenario).field("verdict", outcome.verdict);
    json.field("reason", outcome.reason).field("device", outcome.device).field("date", outcome.date);
    if (const auto& f = outcome.figures) {
      json.key("step").open('{').field("predicted", f->predicted).field("corrected", f->corrected);
      json.field("low", f->low).field("high", f->high).field("measured", f->measured);
      json.field("measured_p5", f->p5).field("measured_p95", f->p95);
      json.field("error", f->error).field("in_interval", f->in_interval).close();
      json.key("bubble")
          .open('{')
          .field("predicted", f->bubble_predicted)
          .field("measured", f->bubble_measured)
          .close();
      json.key("memory").open('{').field("predicted", f->memory_predicted).field("low", f->memory_low);
      json.field("high", f->memory_high).field("measured", f->memory_measured).field("exact", f->memory_exact).close();
    }
    json.close();
  }
  const Summary s = summary_of(outcomes);
  json.close().key("summary").open('{').field("scenarios", static_cast<std::int64_t>(outcomes.size()));
  json.field("judged", s.judged).field("in_interval", s.in_interval).field("memory_exact", s.exact);
  json.field("mean_error", s.mean_error).field("largest_error", s.largest_error).close();
  if (!written.empty()) json.field("written", written);
  json.close();
  return std::move(json).text();
}

class Study {
 public:
  Study(const Arguments& arguments, std::vector<AccuracyItem> items)
      : folder_(arguments.last("--output", "pipewright-out/accuracy")), items_(std::move(items)) {
    const Parsed<Time> deadline = parse_time(arguments.last("--deadline", "5 min"));
    if (!deadline.value || *deadline.value <= Time{})
      throw InputError("--deadline: \"" + arguments.last("--deadline", "") +
                       "\" is not a time; write e.g. --deadline 2min");
    deadline_ = *deadline.value;
    static_cast<void>(calibration_seconds(arguments));  // throws
    if (arguments.has("--profile")) static_cast<void>(read_profile(arguments.last("--profile", "")));
    for (const char* const option : {"--budget", "--profile"})
      if (arguments.has(option)) passed_on_.insert(passed_on_.end(), {option, arguments.last(option, "")});
  }

  const std::string& folder() const { return folder_; }
  // Those that are due: first what was never begun, then what failed before. Throws InputError where a folder is that
  // of another scenario.
  std::vector<const AccuracyItem*> due() const {
    std::vector<const AccuracyItem*> due;
    for (const AccuracyItem& item : items_) {
      const std::string at = folder_ + "/" + item.name;
      std::error_code absent;
      if (there(at) && !fs::is_empty(at, absent) &&
          (!there(at + "/scenario.yaml") || read_file(at + "/scenario.yaml") != bare_yaml(item.scenario)))
        throw InputError("--output: \"" + at +
                         "\" holds something else than this scenario with these settings; name another folder");
      if (!there(at + "/comparison.json")) due.push_back(&item);
    }
    std::stable_partition(due.begin(), due.end(),
                          [&](const AccuracyItem* item) { return !there(folder_ + "/" + item->name); });
    return due;
  }
  void run(const AccuracyItem& item) const {
    const std::string at = folder_ + "/" + item.name, log = at + "/validate.txt";
    std::error_code error;
    made_folder(at);
    write_file(at + "/scenario.yaml", bare_yaml(item.scenario));
    for (const auto& left : fs::directory_iterator(at, error))  // by an attempt that failed, or never ended
      if (left.path().filename() != "scenario.yaml") fs::remove_all(left.path(), error);
    std::vector<std::string> command = {
        fs::read_symlink("/proc/self/exe", error).string(), "validate", at + "/scenario.yaml", "--json", "-o", at};
    command.insert(command.end(), passed_on_.begin(), passed_on_.end());
    const GroupEnd end = run_in_group(command, log, seconds(deadline_));
    if (!end.not_started.empty())
      write_file(log, "error: " + command.front() + ": " + end.not_started + "\n");
    else if (!end.status)
      write_file(log, read_file(log) + "\nerror: was not done after " + short_time(deadline_) + "\n");
  }
  std::vector<Outcome> outcomes() const {
    std::vector<Outcome> outcomes;
    for (const AccuracyItem& item : items_)
      outcomes.push_back(outcome_of(folder_, item.name));
    return outcomes;
  }
  void write() const {
    const std::vector<Outcome> all = outcomes();
    write_file(folder_ + "/accuracy.md", markdown(all));
    write_file(folder_ + "/accuracy.json", json(all));
  }

 private:
  std::string folder_;
  std::vector<AccuracyItem> items_;
  Time deadline_;
  std::vector<std::string> passed_on_;
};

// What cannot be run is found before anything is measured.
void check(const std::vector<const AccuracyItem*>& due) {
  for (const AccuracyItem* const item : due) {
    check_can_run(item->scenario);
    if (item->scenario.run.backend == RunBackend::Cuda && gpu_count() == 0)
      throw InputError("accuracy: " + item->name + " needs a GPU: " + gpu_status() +
                       "; `pipewright doctor` shows what is there; scenarios of a CPU are in scenarios/validation");
  }
}

int status_of(const std::vector<Outcome>& outcomes) {
  int status = kDone;
  for (const Outcome& outcome : outcomes)
    status = std::max(status, outcome.verdict == "within" ? kDone : outcome.verdict == "outside" ? kNo : kBadInput);
  return status;
}

int run(const Arguments& arguments) {
  const std::vector<std::string> files = arguments.positional.empty() ? shipped_for_gpus() : arguments.positional;
  const Study study(arguments, accuracy_items(files, arguments.all("--set")));
  const std::vector<const AccuracyItem*> due = study.due();
  check(due);
  made_folder(study.folder());
  const LastWords last_words("every result so far is kept in " + study.folder() +
                             "; the same command goes on where this one stopped");
  study.write();
  for (const AccuracyItem* const item : due) {
    study.run(*item);
    study.write();
    const Outcome outcome = outcome_of(study.folder(), item->name);
    note(item->name + ": " + (outcome.figures ? outcome.reason : outcome.verdict + ": " + outcome.reason));
  }
  const std::vector<Outcome> all = study.outcomes();
  const std::string table = study.folder() + "/accuracy";
  print(arguments.has("--json") ? json(all, {table + ".md", table + ".json"}) : markdown(all));
  note("wrote " + study.folder() + "/: accuracy.md accuracy.json and a folder for each scenario");
  return status_of(all);
}

}  // namespace

JsonShape study_summary_shape() {
  using namespace shape;
  const JsonShape step = object({{"predicted", number()},
                                 {"corrected", number()},
                                 {"low", number()},
                                 {"high", number()},
                                 {"measured", number()},
                                 {"measured_p5", number()},
                                 {"measured_p95", number()},
                                 {"error", maybe(number())},
                                 {"in_interval", flag()}});
  const JsonShape memory =
      object({{"predicted", whole()}, {"low", whole()}, {"high", whole()}, {"measured", whole()}, {"exact", flag()}});
  const JsonShape each = object({{"scenario", text()},
                                 {"verdict", one_of({std::begin(kVerdicts), std::end(kVerdicts)})},
                                 {"reason", text()},
                                 {"device", text()},
                                 {"date", text()},
                                 {"step?", step},
                                 {"bubble?", compared(number())},
                                 {"memory?", memory}});
  return bare_document("pipewright.study-summary/2", {{"pipewright", text()},
                                                      {"runs", list(each)},
                                                      {"summary", object({{"scenarios", whole()},
                                                                          {"judged", whole()},
                                                                          {"in_interval", whole()},
                                                                          {"memory_exact", whole()},
                                                                          {"mean_error", number()},
                                                                          {"largest_error", number()}})},
                                                      {"written?", list(text())}});
}

constinit const Command kAccuracy{
    .name = "accuracy",
    .arguments = "[SCENARIO...]",
    .summary = "how near predictions come on this machine: many scenarios, each by validate",
    .details =
        "Each scenario, in each of its variants, is calibrated, predicted and run by `validate` in a process of its "
        "own,\n"
        "with a deadline. Without a SCENARIO: those of scenarios/gpu, on one GPU cut into virtual devices. What is\n"
        "done is in the folder and not run again; what failed, or was stopped, the same call tries again, behind the\n"
        "rest.\n"
        "  pipewright accuracy -o accuracy                       (on a machine with a GPU)\n"
        "  pipewright accuracy scenarios/validation/*.yaml       (on CPU cores)\n"
        "Exit status 1: a measured step is neither within 10 % nor in its interval, 2: a scenario was withheld or "
        "failed.\n",
    .options = kOptions,
    .least = 0,
    .most = 64,
    .run = run,
};

}  // namespace pipewright
