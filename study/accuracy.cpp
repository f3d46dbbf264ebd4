#include "study/accuracy.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.hpp"
#include "core/folds.hpp"
#include "core/question/profile.hpp"
#include "io/console.hpp"
#include "io/read/json_input.hpp"
#include "io/read/read_file.hpp"
#include "io/read/scenario_file.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/quote.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/text_table.hpp"
#include "io/writers/writers.hpp"
#include "kernels/gpu_api.hpp"
#include "runtime/process_group.hpp"
#include "runtime/signals.hpp"
#include "study/attempt.hpp"
#include "study/documents.hpp"
#include "study/revision.hpp"

namespace pipewright::study {
namespace {

namespace fs = std::filesystem;

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
  std::istringstream lines(resolved_yaml(scenario));
  for (std::string line; std::getline(lines, line);)
    bare += line.substr(0, line.find_last_not_of(' ', line.rfind("  # ")) + 1) + "\n";
  return bare;
}

bool there(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The last line that says why, else the last one.
std::string why_failed(const std::string& log) {
  std::string why, last;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) last = line;
    if (line.find("error: ") != std::string::npos || line.starts_with("infeasible: ")) why = line;
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
                    outcome.judged() && f->error ? signed_percent(*f->error) : "",
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

void write_figures(JsonFields& json, const Outcome::Figures& f) {
  json.object("step", [&] {
    json.field("predicted", f.predicted).field("corrected", f.corrected).field("low", f.low).field("high", f.high);
    json.field("measured", f.measured).field("measured_p5", f.p5).field("measured_p95", f.p95);
    json.field("error", f.error).field("in_interval", f.in_interval);
  });
  write_compared(json, "bubble", f.bubble_predicted, f.bubble_measured);
  json.object("memory", [&] {
    json.field("predicted", f.memory_predicted).field("low", f.memory_low).field("high", f.memory_high);
    json.field("measured", f.memory_measured).field("exact", f.memory_exact);
  });
}

void write(JsonFields& json, const std::vector<Outcome>& outcomes, const std::vector<std::string>& written) {
  json.field("pipewright", version_with_commit());
  json.list("runs", outcomes, [&](const Outcome& outcome) {
    json.field("scenario", outcome.scenario);
    json.word("verdict", outcome.verdict, {std::begin(kVerdicts), std::end(kVerdicts)});
    json.field("reason", outcome.reason).field("device", outcome.device).field("date", outcome.date);
    json.when(outcome.figures.has_value(), [&] { write_figures(json, outcome.figures.value_or(Outcome::Figures{})); });
  });
  json.object("summary", [&] {
    const Summary s = summary_of(outcomes);
    json.field("scenarios", outcomes.size()).field("judged", s.judged).field("in_interval", s.in_interval);
    json.field("memory_exact", s.exact).field("mean_error", s.mean_error).field("largest_error", s.largest_error);
  });
  json.when(!written.empty(), "written", written);
}

std::string json(const std::vector<Outcome>& outcomes, const std::vector<std::string>& written = {}) {
  return kStudySummaryDocument.text([&](JsonFields& fields) { write(fields, outcomes, written); });
}

class Runs {
 public:
  explicit Runs(const AccuracyRequest& request) : request_(request), folder_(request.folder) {}

  // Those that are due: first what was never begun, then what failed before. Throws InputError where a folder is that
  // of another scenario.
  std::vector<const AccuracyItem*> due() const {
    std::vector<const AccuracyItem*> due;
    for (const AccuracyItem& item : request_.items) {
      const std::string at = folder_ + "/" + item.name;
      std::error_code absent;
      if (there(at) && !fs::is_empty(at, absent) &&
          (!there(at + "/scenario.yaml") || read_file(at + "/scenario.yaml") != bare_yaml(item.scenario)))
        throw InputError(
            Place{}, "--output",
            "\"" + at + "\" holds something else than this scenario with these settings; name another folder");
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
    command.insert(command.end(), request_.passed_on.begin(), request_.passed_on.end());
    const GroupEnd end = run_in_group(command, log, seconds(request_.deadline));
    if (!end.not_started.empty())
      write_file(log, "error: " + command.front() + ": " + end.not_started + "\n");
    else if (!end.status)
      write_file(log, read_file(log) + "\nerror: was not done after " + short_time(request_.deadline) + "\n");
  }
  std::vector<Outcome> outcomes() const {
    return mapped<Outcome>(request_.items, [&](const AccuracyItem& item) { return outcome_of(folder_, item.name); });
  }
  void write() const {
    const std::vector<Outcome> all = outcomes();
    write_file(folder_ + "/accuracy.md", markdown(all));
    write_file(folder_ + "/accuracy.json", json(all));
  }

 private:
  const AccuracyRequest& request_;
  const std::string& folder_;
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

// As file names go: of a variant "pipeline-k4-m16-1f1b".
std::string name_of(const Scenario& scenario) {
  return fmt::format("{}-k{}-m{}-{}", file_name_of(scenario), scenario.plan.stages.value,
                     scenario.training.micro_batches ? scenario.training.micro_batches->value : 1,
                     scenario.plan.schedule.value);
}

}  // namespace

std::vector<AccuracyItem> accuracy_items(const std::vector<std::string>& files, const ReadOptions& options) {
  std::vector<AccuracyItem> items;
  const auto add = [&](const std::string& path, std::string name, Scenario scenario) {
    if (std::ranges::any_of(items, [&](const AccuracyItem& other) { return other.name == name; }))
      throw InputError(path + ": a second run is called \"" + name +
                       "\"; give each scenario a name of its own, and vary stages, micro-batches or the schedule");
    scenario.name = name;
    items.push_back({std::move(name), std::move(scenario)});
  };
  for (const std::string& path : files) {
    const ScenarioFile file(path, options);
    for (const VariedPoint& point : file.varied()) {
      Scenario scenario = file.scenario(point.changes);
      std::string name = name_of(scenario);
      add(path, std::move(name), std::move(scenario));
    }
    if (!file.varied().empty()) continue;
    Scenario scenario = file.scenario();
    std::string name = file_name_of(scenario);
    add(path, std::move(name), std::move(scenario));
  }
  return items;
}

AccuracyTable measured_accuracy(const AccuracyRequest& request) {
  const Runs runs(request);
  const std::vector<const AccuracyItem*> due = runs.due();
  check(due);
  made_folder(request.folder);
  const LastWords last_words("every result so far is kept in " + request.folder +
                             "; the same command goes on where this one stopped");
  runs.write();
  for (const AccuracyItem* const item : due) {
    runs.run(*item);
    runs.write();
    const Outcome outcome = outcome_of(request.folder, item->name);
    note(item->name + ": " + (outcome.figures ? outcome.reason : outcome.verdict + ": " + outcome.reason));
  }
  const std::vector<Outcome> all = runs.outcomes();
  const std::string table = request.folder + "/accuracy";
  return {markdown(all), json(all, {table + ".md", table + ".json"}), status_of(all)};
}

constinit const JsonDocument kStudySummaryDocument{"pipewright.study-summary/2",
                                                   [](JsonFields& fields) { write(fields, {}, {}); }, nullptr, false};

}  // namespace pipewright::study
