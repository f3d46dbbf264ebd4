#include "cli/attempt.hpp"

#include <cctype>
#include <filesystem>
#include <system_error>

#include "core/check.hpp"
#include "io/writers/compare.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {

Attempt::Attempt(const Scenario& asked, const MachineProfile& profile, double tolerance, bool forced,
                 const std::string& folder, Ranks* ranks)
    : scenario_(priced_with(asked, profile)), real_(scenario_, ranks) {
  if (prints()) write_file(folder + "/prediction.json", json_report(real_.predicted()));
  const RunSettings settings = real_.settings();
  workers_ = real_.run(settings);
  if (!prints()) return;
  const StepTimes times = step_times(workers_, settings.warmup);
  measured_ = real_.measured(workers_, times);
  comparison_.emplace(Comparison{real_.predicted(), measured_, workers_, real_.run_plan(), times, tolerance, forced,
                                 why_withheld(real_, times)});
  write_file(folder + "/measurement.json", json_report(measured_));
  write_file(folder + "/comparison.json", comparison_json(*comparison_));
  write_file(folder + "/loss.csv", loss_csv(workers_));
  write_file(folder + "/overlay.svg", svg_timelines(real_.predicted(), measured_, "predicted", "measured"));
  write_file(folder + "/measured.trace.json", trace_json(measured_));
}

std::string made_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw InputError("--output: \"" + path + "\" cannot be made: " + error.message());
  return path;
}

std::string file_name_of(const Scenario& scenario) {
  std::string name = scenario.name;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.') c = '-';
  if (name.empty() || name.front() == '.') name = "scenario" + name;
  return name;
}

}  // namespace pipewright
