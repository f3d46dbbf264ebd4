#include "study/attempt.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <list>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "calibrate/calibrate.hpp"
#include "core/check.hpp"
#include "core/plain_words.hpp"
#include "core/question/profile.hpp"
#include "io/console.hpp"
#include "io/read/read_scenario.hpp"
#include "io/writers/compare.hpp"
#include "planner/refusals.hpp"

namespace pipewright::study {

Attempt::Attempt(Scenario priced, double tolerance, bool forced, double seconds, const std::string& folder,
                 Ranks* ranks, FileWriter write)
    : scenario_(std::move(priced)),
      real_(scenario_, ranks),
      tolerance_(tolerance),
      forced_(forced),
      seconds_(seconds),
      folder_(folder),
      write_(std::move(write)) {
  if (prints()) write_(folder + "/prediction.json", json_report(real_.predicted()));
}

void Attempt::run() {
  RunSettings settings = real_.settings();
  std::optional<MachineLooks> looks;
  if (can_look()) {
    looks.emplace(real_.run_plan(), real_.backend(), real_.data(), settings, seconds_ / kMachineLooks, real_.ranks());
    settings.pauses = looks->pauses();
  }
  workers_ = real_.run(settings);
  const std::vector<MachineLook> taken = looks ? looks->taken(real_.ranks()) : std::vector<MachineLook>{};
  if (!prints()) return;
  const StepTimes times = step_times(workers_, settings.warmup);
  measured_ = real_.measured(workers_, times);
  const Judgement judgement = judgement_of(real_, workers_, times, taken);
  comparison_.emplace(RunComparison{real_.predicted(), measured_, workers_, real_.run_plan(), times, judgement,
                                    tolerance_, forced_, why_withheld(real_, judgement, times)});
  write_(folder_ + "/measurement.json", json_report(measured_));
  write_(folder_ + "/comparison.json", comparison_json(*comparison_));
  if (!real_.synthetic()) write_(folder_ + "/loss.csv", loss_csv(workers_));
  write_(folder_ + "/overlay.svg", svg_timelines(real_.predicted(), measured_, "predicted", "measured"));
  write_(folder_ + "/overlay.trace.json", trace_json(real_.predicted(), measured_));
}

// On cores, whose memory holds a second set of workers; where times say nothing, nothing is lost without.
bool Attempt::can_look() const {
  return !real_.synthetic() && scenario_.run.backend == RunBackend::Cpu &&
         why_times_say_nothing(real_, at(scenario_.run.steps)).empty();
}

std::string made_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw InputError(Place{}, "--output",
                     "\"" + path + "\" cannot be made: " + system_words(error.value()) + "; name a folder that can be");
  return path;
}

StudyFolder::StudyFolder(std::string path, bool chosen) : path_(std::move(path)) {
  std::error_code absent;
  for (const char* const file : {"accuracy.json", "prediction.json"}) {
    if (!std::filesystem::exists(path_ + "/" + file, absent)) continue;
    if (chosen)
      throw InputError(Place{}, "--output",
                       "\"" + path_ + "\" holds a study already (" + file +
                           "), which is not written over; name another folder, or take it away");
    replaces_ = true;
  }
}

void StudyFolder::make() {
  if (there_) return;
  if (replaces_) note("replaces what an earlier call left in " + path_);
  std::vector<std::string> absent;
  std::error_code ignored;
  for (std::filesystem::path path = path_; !path.empty() && !std::filesystem::exists(path, ignored);
       path = path.parent_path())
    absent.insert(absent.begin(), path.string());
  made_folder(path_);
  there_ = true, made_ = std::move(absent);
}

void StudyFolder::unmake() {
  std::error_code ignored;
  for (; !made_.empty(); made_.pop_back())
    std::filesystem::remove(made_.back(), ignored);  // refused where something is in it
  there_ = false;
}

namespace {

// Before anything is measured: what no profile prices.
void check_priced_by_profile(const Scenario& scenario) {
  Scenario priced = scenario;
  priced.cost = CostSourceKind::Profile, priced.profile = nullptr;
  for (const std::optional<Refusal>& refused : {context_refusal(priced), expert_refusal(priced)})
    if (refused) throw InputError(scenario.plan.place, "plan." + refused->key, refused->why);
}

Time shortest_op(const Answer& answer) {
  Time shortest{INT64_MAX};
  for (const Lane& lane : answer.schedule.positions)
    for (const Op& op : lane.compute)
      if (op.kind != Kind::Update) shortest = std::min(shortest, answer.costs.time_of(op));
  return shortest;
}

std::string group_of(const Scenario& scenario, const Plan& plan) {
  return fmt::format("{}, {} samples per step on {}", scenario.model.name, plan.global_batch_size,
                     scenario.cluster.name);
}

Row row_of(const Attempt& attempt, int number) {
  const RunComparison& c = attempt.comparison();
  const Plan& plan = c.predicted.plan;
  Row row;
  row.scenario = attempt.scenario().name, row.file = file_name_of(attempt.scenario());
  row.group = group_of(attempt.scenario(), plan), row.attempt = number;
  row.schedule = plan.schedule, row.stages = plan.stages, row.micro_batches = plan.micro_batches;
  row.shortest_op = shortest_op(c.predicted);
  row.predicted = c.judgement.predicted, row.median = c.judgement.measured;
  row.p5 = c.times.p5, row.p95 = c.times.p95, row.timed = c.times.timed;
  row.error = c.judgement.error(), row.half_band = c.judgement.half;
  row.in_band = c.judgement.holds();
  row.bubble_predicted = c.predicted.report.bubble_fraction, row.bubble_measured = c.measured.report.bubble_fraction;
  row.memory_exact = c.memory_exact();
  row.never = !why_times_say_nothing(attempt.real(), c.times.timed.size()).empty();
  row.verdict = c.verdict(), row.text = c.verdict_text();
  return row;
}

}  // namespace

MachineProfile profile_for(const std::string& file, std::span<const Scenario> scenarios, double seconds,
                           const std::string& name, std::optional<StudyFolder>& folder,
                           const std::function<void()>& calibrates, Ranks* ranks) {
  if (!file.empty()) {
    MachineProfile profile;
    if (prints()) profile = read_profile(file);
    return ranks == nullptr ? profile : broadcast(*ranks, profile);
  }
  for (const Scenario& scenario : scenarios)
    check_priced_by_profile(scenario);
  try {
    std::list<RealRun> runs;  // stay where they are
    std::vector<const RealRun*> all;
    for (const Scenario& scenario : scenarios) {
      all.push_back(&runs.emplace_back(scenario, ranks));
      all.back()->check_alike(
          all.back()->settings());  // who has too little memory stops no rank that is on its way here
      all.back()->check_memory();
    }
    if (folder) folder->make();
    if (prints()) calibrates();
    return calibrated(all, seconds, name);
  } catch (...) {
    if (folder) folder->unmake();
    throw;
  }
}

std::string file_name_of(const Scenario& scenario) {
  std::string name = scenario.name;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.') c = '-';
  if (name.empty() || name.front() == '.') name = "scenario" + name;
  return name;
}

Row attempted(const Scenario& priced, int number, const AttemptSettings& how, Ranks* ranks) {
  Row row;
  row.scenario = priced.name, row.attempt = number;
  std::optional<Attempt> attempt;
  try {
    if (prints()) made_folder(how.folder);
    attempt.emplace(priced, how.tolerance, how.forced, how.seconds, how.folder, ranks);
  } catch (const InputError& error) {  // a layer that the profile does not have
    row.failed = error.what();
  }
  if (ranks != nullptr) row.failed = ranks->first_failure(row.failed);
  if (!row.failed.empty()) return row;
  note_other_machine(attempt->real());
  try {
    attempt->run();
    return prints() ? row_of(*attempt, number) : row;
  } catch (const RunFailed& failed) {
    if (ranks != nullptr && !ranks->recovered()) throw;
    row.failed = failed.what();
  } catch (const OutOfArena& error) {
    if (ranks != nullptr && !ranks->recovered()) throw;
    row.failed = error.what();
  } catch (const InputError& error) {  // plans that differ
    row.failed = error.what();
  }
  return row;
}

}  // namespace pipewright::study
