#include "cli/run_options.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "cli/option_values.hpp"
#include "core/check.hpp"
#include "core/ending.hpp"
#include "io/console.hpp"
#include "io/text/format_quantity.hpp"
#include "study/real_run.hpp"

namespace pipewright::cli {
namespace {

// The steps that all workers have finished of whom anything is known: in a run of several processes, a worker that is
// gone has left nothing.
std::string measured_until_then(const std::vector<WorkerResult>& results) {
  std::vector<WorkerResult> known;
  std::string gone;
  for (std::size_t w = 0; w < results.size(); ++w)
    if (!results[w].steps.empty())
      known.push_back(results[w]);
    else
      gone += (gone.empty() ? "" : ", ") + std::to_string(w);
  std::size_t steps = known.empty() ? 0 : known.front().steps.size();
  for (const WorkerResult& worker : known)
    steps = std::min(steps, worker.steps.size());
  if (steps == 0) return "";
  std::string text =
      gone.empty() ? "measured until then:\n" : "measured until then (nothing of worker " + gone + "):\n";
  for (std::size_t s = 0; s < steps; ++s) {
    bool loss = false;
    for (const WorkerResult& worker : known)
      loss = loss || worker.steps[s].samples > 0;
    text += fmt::format("  step {:>4}  loss {}  {}\n", known.front().steps[s].number,
                        loss ? fmt::format("{:.6g}", loss_of(known, s)) : "unknown",
                        short_time(timeline_of(known, s).makespan));
  }
  return text;
}

// "virtual_devices" of --virtual-devices.
std::string key_of(const Option& option) {
  std::string key(option.name.substr(2));
  std::ranges::replace(key, '-', '_');
  return key;
}

// "run.virtual_devices=4" of what was given.
std::string change_of(const Option& option, const Arguments& arguments) {
  const std::string key = key_of(option);
  std::string value = arguments.last(option.name, "");
  // A path on the command line is one from here; in a file, from the file's folder.
  if (key == "data" && value != "synthetic") value = std::filesystem::absolute(value).string();
  if (option.value.empty()) value = "true";
  if (key == "gpus" && !value.starts_with('[')) value = "[" + value + "]";
  return "run." + key + "=" + value;
}

}  // namespace

std::vector<std::string> with_run_settings(std::vector<std::string> set, const Arguments& arguments) {
  for (const Option& option : kRunOptions)
    if (arguments.has(option.name)) set.push_back(change_of(option, arguments));
  return set;
}

std::string with_options_as_given(std::string message, const Arguments& arguments) {
  for (const Option& option : kRunOptions)
    if (arguments.has(option.name))
      message = with_option_as_given(std::move(message), option, change_of(option, arguments), arguments);
  return message;
}

double calibration_seconds(const Arguments& arguments) {
  return seconds(option_time(arguments, "--budget", "3s"));
}

int with_run_failures(const std::function<int()>& body, const std::function<std::string()>& kept) {
  try {
    return with_memory_of_ranks(body);
  } catch (const OutOfArena& error) {
    const bool capped = dynamic_cast<const OutOfDevice*>(&error) == nullptr;
    if (reports_itself())
      print(std::string("infeasible: ") + error.what() +
            "\nwhat would make it fit: smaller micro-batches, recompute: full, " +
            (capped ? "more stages, or a larger run.memory_cap\n" : "or more stages on devices of their own\n"));
    return kNo;
  } catch (const RunFailed& failed) {
    const std::string until_then = reports_itself() ? measured_until_then(failed.results) : "";
    if (!until_then.empty()) print(until_then);
    if (asked_to_end() == 0) throw InputError(std::string("the run failed: ") + failed.what());
    return interrupted(fmt::format("{}{}{}", failed.what(), until_then.empty() ? "" : "; what was measured is printed",
                                   kept ? kept() : ""));
  }
}

}  // namespace pipewright::cli
