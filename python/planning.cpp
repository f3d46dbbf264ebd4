#include <string>
#include <variant>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/check.hpp"
#include "core/ending.hpp"
#include "io/writers/html.hpp"
#include "io/writers/ranking.hpp"
#include "planner/search/explain.hpp"
#include "python/question.hpp"
#include "python/simulated.hpp"
#include "study/planned.hpp"

namespace pipewright::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

struct Planned {
  Narrowed question;
  Objective objective{};
  SearchResult result;
  bool interrupted = false;

  const SearchAnswer* found() const { return std::get_if<SearchAnswer>(&result); }
};

const FrameworkWords* framework_named(const std::string& name) {
  if (name.empty()) return nullptr;
  if (const FrameworkWords* found = find_framework(name)) return found;
  std::vector<std::string_view> known;
  for (const FrameworkWords& each : frameworks())
    known.push_back(each.word);
  throw InputError(Place{}, "framework", unknown_name(name.substr(0, 64), known));
}

nb::object plan_asked(const Asked& asked, int objective, int top, double gap, double time_limit,
                      const std::string& framework, bool explain, const std::vector<std::string>& pareto,
                      bool take_interrupts) {
  check_pareto_axes(pareto);
  const FrameworkWords* const words = framework_named(framework);
  const CtrlC interrupt(take_interrupts);
  SearchOptions options{
      .objective = static_cast<Objective>(objective), .top = top, .gap = gap, .time_limit = time_limit};
  options.stop = [] { return asked_to_end() != 0; };
  Planned planned_answer = without_lock([&] {
    Narrowed question = planning_question(read_scenario(asked.path, asked.how), words);
    SearchResult result = planned(question, options, {.framework = words, .explain = explain, .pareto = pareto});
    return Planned{std::move(question), options.objective, std::move(result)};
  });
  planned_answer.interrupted = interrupt.asked();
  if (planned_answer.interrupted && planned_answer.found() == nullptr) interrupt.raise();
  return nb::cast(std::move(planned_answer));
}

std::string planned_json(const Planned& planned) {
  if (const auto* none = std::get_if<Infeasible>(&planned.result)) return json_infeasible(*none);
  if (const auto* none = std::get_if<NoPlanYet>(&planned.result))
    return no_plan_json(*none, planned.question.scenario, planned.objective);
  return ranking_json(*planned.found(), planned.question.scenario);
}

std::string planned_text(const Planned& planned, int width, bool explain) {
  if (const auto* none = std::get_if<Infeasible>(&planned.result)) return infeasible_text(*none);
  if (const auto* none = std::get_if<NoPlanYet>(&planned.result)) return no_plan_text(*none);
  return ranking_text(*planned.found(), planned.question.scenario, {.table = {.width = width}, .explain = explain});
}

const Found& plan_number(const Planned& planned, std::size_t number) {
  const SearchAnswer* const answer = planned.found();
  if (answer == nullptr || number >= answer->plans.size()) throw nb::index_error("no such plan");
  return answer->plans[number];
}

Simulated simulated_plan(const Planned& planned, std::size_t number) {
  const Found& found = plan_number(planned, number);
  return without_lock([&] {
    return Simulated{std::make_shared<const Answer>(
        std::get<Answer>(answer(*found.scenario, {.engine = Engine::Auto, .ignore_memory = true})))};
  });
}

}  // namespace

void add_planning(nb::module_& module) {
  nb::class_<Planned>(module, "Planned")
      .def_prop_ro("fits", [](const Planned& p) { return p.found() != nullptr; })
      .def_prop_ro("known", [](const Planned& p) { return !std::holds_alternative<NoPlanYet>(p.result); })
      .def_prop_ro("plans", [](const Planned& p) { return p.found() == nullptr ? 0 : p.found()->plans.size(); })
      .def_ro("interrupted", &Planned::interrupted)
      .def("json", planned_json)
      .def("text", planned_text)
      .def("csv", [](const Planned& p) { return ranking_csv(*p.found()); })
      .def("markdown", [](const Planned& p) { return ranking_markdown(*p.found()); })
      .def("html",
           [](const Planned& p, const std::string& command) {
             const Simulated best = simulated_plan(p, 0);
             return ranking_html(*p.found(), p.question.scenario, *best.answer, command);
           })
      .def("scenario",
           [](const Planned& p, std::size_t number, const std::string& command) {
             return plan_yaml(*p.found(), plan_number(p, number), p.question.scenario, command);
           })
      .def("simulate", simulated_plan);
  module.def("plan", plan_asked);
}

}  // namespace pipewright::python
