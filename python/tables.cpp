// Answers that are tables: sweep, capacity, compare, reproduce.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/check.hpp"
#include "core/ending.hpp"
#include "io/read/read_sweep.hpp"
#include "io/read/scenario_file.hpp"
#include "io/text/errors.hpp"
#include "io/writers/accuracy.hpp"
#include "io/writers/capacity.hpp"
#include "io/writers/html.hpp"
#include "io/writers/measured.hpp"
#include "python/question.hpp"
#include "study/capacity_rows.hpp"
#include "study/compared_sides.hpp"
#include "study/config_folders.hpp"
#include "study/published.hpp"
#include "study/reproduce_measured.hpp"
#include "study/sweep_run.hpp"

namespace pipewright::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

struct SweptTable {
  Sweep sweep;
  bool interrupted = false;
};

SweptTable sweep_asked(const Asked& asked, int jobs, double time_limit, bool take_interrupts) {
  const CtrlC interrupt(take_interrupts);
  SweptTable table{without_lock([&] {
    const SweepFile file(asked.path, asked.how);
    return swept(file, {}, nullptr, jobs > 0 ? jobs : usual_jobs(), time_limit, nullptr);
  })};
  table.interrupted = interrupt.asked();
  return table;
}

struct CapacityTable {
  std::string path;
  CapacityRows rows;
  bool interrupted = false;
};

CapacityTable capacity_asked(const Asked& asked, const std::string& over, std::optional<std::int64_t> at_most,
                             bool take_interrupts) {
  const CtrlC interrupt(take_interrupts);
  CapacityTable table{asked.path,
                      without_lock([&] { return capacity_rows(ScenarioFile(asked.path, asked.how), over, at_most); })};
  table.interrupted = interrupt.asked();
  if (table.rows.found.empty()) interrupt.raise();
  return table;
}

struct ComparedTable {
  LoadedSide a, b;
};

ComparedTable compare_asked(const Asked& a, const Asked& b, const std::vector<std::string>& set_a,
                            const std::vector<std::string>& set_b) {
  return without_lock([&] {
    return ComparedTable{loaded_side(a.path, a.how, set_a), loaded_side(b.path, b.how, set_b)};
  });
}

std::string compared_svg(const ComparedTable& table) {
  for (const ComparedSide* side : {&table.a.side, &table.b.side})
    if (side->answer == nullptr)
      throw InputError(side->name + " is a result document, which has no timeline to draw; name its scenario instead");
  return svg_timelines(*table.a.answer, *table.b.answer);
}

struct ReproducedTables {
  std::vector<TableResult> tables;
  std::vector<MeasuredResult> runs;
  bool interrupted = false;
};

constexpr std::string_view kEveryRun = "runs";

bool names_file(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".yaml") || text.ends_with(".yml");
}

// Files by name, each opened once.
class ReproduceQuestion {
 public:
  ReproduceQuestion(const std::vector<std::string>& names, const ReadOptions& how) : how_(how) {
    for (const std::string& name : names)
      add(name);
    if (!sets_.empty() && !tables_.empty())
      throw InputError("reproduce: measured runs and published tables are compared apart; name one kind");
    if (std::find(names.begin(), names.end(), kEveryRun) != names.end() && how_.set.empty()) add_every_table();
  }

  ReproducedTables answered(const std::string& folder) const {
    ReproducedTables result;
    if (!sets_.empty() && folder.empty())
      throw InputError(Place{}, "data",
                       fmt::format("\"{}\" compares with runs that do not ship with pipewright; name their folder",
                                   sets_.front().file->measured()->title));
    if (!sets_.empty()) result.runs = compared_sets(sets_, folder).results;
    if (!sets_.empty() && result.runs.empty())
      throw InputError(Place{}, "data",
                       in_quotes(folder) + " has no file of any set; it is to hold " +
                           sets_.front().file->measured()->files.front().file);
    if (!tables_.empty()) result.tables = reproduced_tables(tables_);
    return result;
  }

  void add_every_table() {
    for (const Published& each : published())
      add_files(each);
  }

 private:
  void add(const std::string& name) {
    if (name == kEveryRun) {
      for (const Published& each : measured_runs())
        sets_.push_back({std::string(each.name), &opened(shipped_scenario(each.files.front(), how_.config_path))});
    } else if (const Published* set = find_published(measured_runs(), name)) {
      sets_.push_back({name, &opened(shipped_scenario(set->files.front(), how_.config_path))});
    } else if (const Published* table = find_published(published(), name)) {
      add_files(*table);
    } else if (names_file(name) || how_.texts.contains(name)) {
      const ScenarioFile& file = opened(name);
      if (file.measured())
        sets_.push_back({name, &file});
      else
        add_table(file);
    } else {
      std::vector<std::string_view> known;
      for (const auto* const table_of : {&measured_runs(), &published()})
        for (const Published& each : *table_of)
          known.push_back(each.name);
      throw InputError("reproduce: " + unknown_name(name.substr(0, 64), known) +
                       "; a file of your own needs a \"/\" or must end in .yaml");
    }
  }
  void add_files(const Published& table) {
    for (const std::string& file : table.files)
      add_table(opened(shipped_scenario(file, how_.config_path)));
  }
  void add_table(const ScenarioFile& file) {
    if (std::find(tables_.begin(), tables_.end(), &file) == tables_.end()) tables_.push_back(&file);
  }
  const ScenarioFile& opened(const std::string& path) {
    auto& file = files_[path];
    if (!file) file = std::make_unique<ScenarioFile>(path, how_);
    return *file;
  }

  ReadOptions how_;
  std::map<std::string, std::unique_ptr<ScenarioFile>> files_;
  std::vector<MeasuredSet> sets_;
  std::vector<const ScenarioFile*> tables_;
};

ReproducedTables reproduce_asked(const Asked& asked, const std::vector<std::string>& names, bool all,
                                 const std::string& data, bool take_interrupts) {
  const CtrlC interrupt(take_interrupts);
  ReproducedTables result = without_lock([&] {
    ReproduceQuestion question(names, asked.how);
    if (all) question.add_every_table();
    return question.answered(data);
  });
  result.interrupted = interrupt.asked();
  if (result.interrupted && result.tables.empty() && result.runs.empty()) interrupt.raise();
  return result;
}

// Names of published tables, or of sets of measured runs, with what they are.
std::vector<std::pair<std::string, std::string>> names_of(const std::vector<Published>& table) {
  std::vector<std::pair<std::string, std::string>> names;
  for (const Published& each : table)
    names.emplace_back(each.name, each.what);
  return names;
}

}  // namespace

void add_tables(nb::module_& module) {
  nb::class_<SweptTable>(module, "Swept")
      .def_ro("interrupted", &SweptTable::interrupted)
      .def("json", [](const SweptTable& t) { return sweep_json(t.sweep); })
      .def("csv", [](const SweptTable& t) { return sweep_csv(t.sweep); })
      .def("text",
           [](const SweptTable& t, int width, bool all) {
             return sweep_text(t.sweep, {.width = width}, all ? SweepTable::All : SweepTable::Cut);
           })
      .def("svg",
           [](const SweptTable& t, const std::string& x, const std::string& y) {
             check_axes(t.sweep.question, {x, y});
             return sweep_svg(t.sweep, {x, y});
           })
      .def("html", [](const SweptTable& t, const std::string& x, const std::string& y, const std::string& command) {
        if (!x.empty() || !y.empty()) check_axes(t.sweep.question, {x, y});
        return sweep_html(t.sweep, {x, y}, command);
      });
  module.def("sweep", sweep_asked);

  nb::class_<CapacityTable>(module, "Capacities")
      .def_ro("interrupted", &CapacityTable::interrupted)
      .def_prop_ro("failed", [](const CapacityTable& t) { return t.rows.failed; })
      .def("json", [](const CapacityTable& t) { return capacity_json(t.rows.found, t.path); })
      .def("csv", [](const CapacityTable& t) { return capacity_csv(t.rows.found); })
      .def("markdown", [](const CapacityTable& t) { return capacity_markdown(t.rows.found); })
      .def("text", [](const CapacityTable& t, int width) { return capacity_text(t.rows.found, {.width = width}); });
  module.def("capacity", capacity_asked, nb::arg(), nb::arg(), nb::arg().none(), nb::arg());

  nb::class_<ComparedTable>(module, "Compared")
      .def("json", [](const ComparedTable& t) { return compare_json(t.a.side, t.b.side); })
      .def("markdown", [](const ComparedTable& t) { return compare_markdown(t.a.side, t.b.side); })
      .def("text", [](const ComparedTable& t, int width) { return compare_text(t.a.side, t.b.side, {.width = width}); })
      .def("html",
           [](const ComparedTable& t, const std::string& command) { return compare_html(t.a.side, t.b.side, command); })
      .def("svg", compared_svg);
  module.def("compare", compare_asked);

  nb::class_<ReproducedTables>(module, "Reproduced")
      .def_ro("interrupted", &ReproducedTables::interrupted)
      .def("json",
           [](const ReproducedTables& t) {
             return t.runs.empty() ? accuracy_json(t.tables, {}) : measured_json(t.runs, t.tables, {});
           })
      .def("csv",
           [](const ReproducedTables& t) { return t.runs.empty() ? accuracy_csv(t.tables) : measured_csv(t.runs); })
      .def("text",
           [](const ReproducedTables& t, int width) {
             const TableOptions options{.width = width};
             if (!t.runs.empty()) return measured_summary(t.runs, t.tables, options);
             std::string text;
             for (const TableResult& table : t.tables)
               text += accuracy_text(table, options) + "\n";
             return text + accuracy_summary_text(t.tables, options);
           })
      .def("html",
           [](const ReproducedTables& t, const std::string& command) { return accuracy_html(t.tables, command); });
  module.def("reproduce", reproduce_asked);
  module.def("published_tables", [] { return names_of(published()); });
  module.def("measured_runs", [] { return names_of(measured_runs()); });
  module.def("config_folders", [](const std::vector<std::string>& shipped) { return config_folders(shipped); });
}

}  // namespace pipewright::python
