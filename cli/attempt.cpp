#include "cli/attempt.hpp"

#include <cctype>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "core/plain_words.hpp"
#include "io/writers/compare.hpp"

namespace pipewright {

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
         why_times_say_nothing(real_, static_cast<std::size_t>(scenario_.run.steps)).empty();
}

std::string made_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw InputError("--output: \"" + path + "\" cannot be made: " + system_words(error.value()) +
                     "; name a folder that can be");
  return path;
}

StudyFolder::StudyFolder(std::string path, bool chosen) : path_(std::move(path)) {
  std::error_code absent;
  for (const char* const file : {"accuracy.json", "prediction.json"}) {
    if (!std::filesystem::exists(path_ + "/" + file, absent)) continue;
    if (chosen)
      throw InputError("--output: \"" + path_ + "\" holds a study already (" + file +
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

std::string file_name_of(const Scenario& scenario) {
  std::string name = scenario.name;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.') c = '-';
  if (name.empty() || name.front() == '.') name = "scenario" + name;
  return name;
}

}  // namespace pipewright
