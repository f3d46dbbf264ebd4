// Runs of others: the file that starts one, and what it wrote next to the prediction.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/check.hpp"
#include "planner/answer.hpp"
#include "python/question.hpp"
#include "study/imported.hpp"
#include "study/launched.hpp"

namespace pipewright::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

Launched launch_asked(const Asked& asked, const std::string& target, bool sbatch, const std::string& command) {
  return without_lock([&] {
    return launched({.target = target, .path = asked.path, .read = asked.how, .command = command, .sbatch = sbatch});
  });
}

// The comparison refers to the prediction, and that to its answer.
struct Validated {
  std::unique_ptr<const Answer> answer;
  std::unique_ptr<const Prediction> predicted;
  std::optional<ImportedComparison> comparison;
};

Validated validate_asked(const Asked& asked, const std::string& log, const std::vector<std::string>& traces, int warmup,
                         double tolerance) {
  return without_lock([&] {
    const Scenario scenario = read_scenario(asked.path, asked.how);
    auto result = answer(scenario, {.ignore_memory = true});
    if (const auto* none = std::get_if<Infeasible>(&result)) throw InputError(scenario.file + ": " + none->reason);
    Validated validated;
    validated.answer = std::make_unique<const Answer>(std::get<Answer>(std::move(result)));
    validated.predicted = std::make_unique<const Prediction>(prediction_of(*validated.answer));
    std::optional<LogComparison> of_log;
    std::optional<TraceComparison> of_traces;
    if (!log.empty()) of_log = compare_log(*validated.predicted, imported_log_of(log), warmup);
    if (!traces.empty()) of_traces = compare_traces(*validated.answer, imported_traces_of(traces));
    validated.comparison.emplace(judged(*validated.predicted, std::move(of_log), std::move(of_traces), tolerance));
    return validated;
  });
}

}  // namespace

void add_runs(nb::module_& module) {
  nb::class_<Launched>(module, "Launched")
      .def_ro("program", &Launched::text)
      .def_ro("differences", &Launched::differences)
      .def_ro("notes", &Launched::notes)
      .def_ro("fits", &Launched::fits);
  nb::class_<Validated>(module, "Validated")
      .def_prop_ro("within", [](const Validated& v) { return v.comparison->within; })
      .def("json", [](const Validated& v) { return imported_json(*v.comparison); })
      .def("text", [](const Validated& v, int) { return imported_text(*v.comparison); })
      .def("html",
           [](const Validated& v, const std::string& command) { return imported_html(*v.comparison, command); });
  nb::list targets;
  for (const std::string_view target : kLaunchTargets)
    targets.append(nb::str(target.data(), target.size()));
  module.attr("launch_targets") = nb::tuple(targets);
  module.def("launch", launch_asked, "asked"_a, "target"_a, "sbatch"_a, "command"_a);
  module.def("validate", validate_asked, "asked"_a, "log"_a, "traces"_a, "warmup"_a, "tolerance"_a);
}

}  // namespace pipewright::python
