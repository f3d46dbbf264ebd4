// `reproduce`: published tables next to predictions.
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "core/check.hpp"
#include "core/ending.hpp"
#include "core/folds.hpp"
#include "io/read/scenario_file.hpp"
#include "io/text/errors.hpp"
#include "io/writers/accuracy.hpp"
#include "study/published.hpp"
#include "study/ranks.hpp"
#include "study/reproduce_measured.hpp"

namespace pipewright::cli {
namespace {

constexpr std::string_view kAllRuns = "runs";

constexpr std::array<Option, 9> kReproduceOptions = {{
    {"--all", "", "", "every table that ships with pipewright"},
    {"--data", "", "DIR", "folder of the published data that a table needs"},
    {"--fit", "", "", "search again for the constants that were fitted on some of these runs, and print them"},
    {"--md", "", "", "Markdown instead of the terminal's tables"},
    {"--csv", "", "", "one row per cell, for plots"},
    {"--json", "", "", "one JSON document on standard output instead of the tables"},
    {"--output", "-o", "FILE",
     "also write the tables as one page: .html; of measured runs .md .csv .json (repeatable)"},
    {"--set", "", "KEY=VALUE", "change one value of the scenarios first (repeatable)"},
    {"--width", "", "N", "columns of the tables (default: the terminal's, else 100)"},
}};

bool is_path(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".yaml") || text.ends_with(".yml") || text == "-";
}

// Scenarios that are opened once, standard input among them.
class Opened {
 public:
  explicit Opened(const ReadOptions& options) : options_(options) {}
  const ScenarioFile& operator()(const std::string& path) {
    auto& file = files_[path];
    if (!file) file = std::make_unique<ScenarioFile>(path, options_);
    return *file;
  }

 private:
  ReadOptions options_;
  std::map<std::string, std::unique_ptr<ScenarioFile>> files_;
};

// The sets that are asked for, by name or as files with a measured: block. None: tables are asked for.
std::vector<MeasuredSet> sets_of(const Arguments& arguments, Opened& open) {
  std::vector<MeasuredSet> sets;
  std::size_t tables = 0;
  const auto add = [&](const std::string& name, const std::string& path) {
    const ScenarioFile& file = open(path);
    if (file.measured())
      sets.push_back({name, &file});
    else
      ++tables;
  };
  for (const std::string& text : arguments.positional)
    if (text == kAllRuns)
      for (const Published& each : measured_runs())
        add(std::string(each.name), shipped_scenario(each.files.front()));
    else if (const Published* set = find_published(measured_runs(), text))
      add(text, shipped_scenario(set->files.front()));
    else if (is_path(text))
      add(text == "-" ? text : std::filesystem::path(text).stem().string(), text);
    else
      ++tables;
  if (!sets.empty() && tables > 0)
    throw InputError("reproduce: measured runs and published tables are compared apart; name one kind");
  return sets;
}

void add_once(std::vector<std::string>& files, const std::string& file) {
  if (std::ranges::find(files, file) == files.end()) files.push_back(file);
}

// The files of all tables that ship.
std::vector<std::string> shipped_tables() {
  std::vector<std::string> files;
  for (const Published& each : published())
    for (const std::string& file : each.files)
      add_once(files, shipped_scenario(file));
  return files;
}

std::vector<std::string> files_of(const Arguments& arguments) {
  const bool all = arguments.has("--all");
  if (all && !arguments.positional.empty())
    throw InputError("reproduce: --all and \"" + arguments.positional.front() +
                     "\" exclude each other; keep one of them");
  auto names = mapped<std::string_view>(measured_runs(), &Published::name);
  for (const Published& each : published())
    names.push_back(each.name);
  std::vector<std::string> files = all ? shipped_tables() : std::vector<std::string>{};
  for (const std::string& text : arguments.positional) {
    if (const Published* found = find_published(published(), text))
      for (const std::string& file : found->files)
        add_once(files, shipped_scenario(file));
    else if (is_path(text))
      add_once(files, text);
    else
      throw InputError("reproduce: " + unknown_name(text, names) +
                       "; a file of your own needs a \"/\" or must end in .yaml");
  }
  return files;
}

// `reproduce runs` says how near all that was measured by others comes, tables of papers included.
// `--set` is for the runs: not every table knows its key.
std::vector<TableResult> published_with(const Arguments& arguments, Opened& open) {
  const auto& names = arguments.positional;
  const bool all = std::ranges::find(names, kAllRuns) != names.end();
  if (!all || !arguments.has("--data") || arguments.has("--set") || arguments.has("--csv")) return {};
  std::vector<const ScenarioFile*> files;
  for (const std::string& path : shipped_tables())
    files.push_back(&open(path));
  return reproduced_tables(files);
}

std::string list_of_names() {
  std::string text = "tables that ship with pipewright:\n";
  for (const Published& each : published())
    text += fmt::format("  {:<18}  {}\n", each.name, each.what);
  text += "\nmeasured runs, which do not ship: pipewright reproduce NAME --data DIR; all: reproduce runs --data DIR\n";
  for (const Published& each : measured_runs())
    text += fmt::format("  {:<18}  {}\n", each.name, each.what);
  return text + "\nOne of the tables: pipewright reproduce NAME; all: pipewright reproduce --all\n";
}

std::string markdown(const std::vector<TableResult>& tables) {
  std::string text =
      "# How near the predictions come\n\n"
      "Written by `pipewright reproduce --all --md`; a test keeps it equal to what the tool computes today. A "
      "published "
      "figure is compared, never read by the model. A tolerance is the target that a cell has to meet, set beforehand. "
      "Cells with a status (fitted, known miss, above bound, analytic, inputs assumed, not simulated) are printed, "
      "stay "
      "out of the averages and do not decide the exit status. The baseline is the trivial prediction that "
      "ours has to beat.\n\n";
  text += accuracy_summary_markdown(tables);
  for (const TableResult& table : tables)
    text += "\n" + accuracy_markdown(table);
  return text;
}

void refuse_two_forms(const Arguments& arguments) {
  std::string_view first;
  for (const std::string_view form : {"--md", "--csv", "--json"}) {
    if (!arguments.has(form)) continue;
    if (!first.empty())
      throw InputError(fmt::format("reproduce: {} and {} exclude each other; keep one of them", first, form));
    first = form;
  }
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

// The forms in which measured runs are written to files.
constexpr std::array<std::string_view, 3> kMeasuredEndings = {".md", ".csv", ".json"};

std::string measured_as(std::string_view ending, const std::vector<MeasuredResult>& results,
                        const std::vector<TableResult>& published, const std::vector<std::string>& written) {
  if (ending == ".json") return measured_json(results, published, written);
  return ending == ".csv" ? measured_csv(results) : measured_markdown(results, published);
}

void print_results(const std::vector<MeasuredResult>& results, const std::vector<TableResult>& published, bool one_set,
                   const Arguments& arguments, const std::vector<std::string>& written) {
  const TableOptions options{output_width(arguments), use_colour(arguments), arguments.has("--width")};
  for (const std::string_view ending : kMeasuredEndings)
    if (arguments.has("--" + std::string(ending.substr(1))))
      return print(measured_as(ending, results, published, written));
  if (!one_set) return print(measured_summary(results, published, options));
  print(measured_text(results.front(), options));
  if (results.size() > 1)
    print("\nwith nothing fitted\n" + measured_summary({results.begin() + 1, results.end()}, {}, options));
}

int reproduce_measured(const std::vector<MeasuredSet>& sets, const std::vector<TableResult>& published,
                       const Arguments& arguments) {
  const MeasuredTable& first = *sets.front().file->measured();
  if (!arguments.has("--data"))
    throw InputError(fmt::format(
        "reproduce: \"{}\"{} compares with runs that do not ship with pipewright ({}); name the folder "
        "that holds {} with --data DIR",
        first.title, sets.size() > 1 ? ", the first of these," : "", first.source, first.files.front().file));
  const std::string folder = arguments.last("--data", "");
  std::error_code none;
  if (!std::filesystem::is_directory(folder, none))
    throw InputError(
        Place{}, "--data",
        fmt::format("there is no folder {}; name the one that holds {} and the other published runs, which "
                    "do not ship with pipewright: docs/results/measured-runs.md",
                    in_quotes(folder), first.files.front().file));
  const std::vector<std::string> outputs = arguments.all("--output");
  std::vector<std::string> inputs;
  for (const MeasuredSet& set : sets) {
    inputs.push_back(set.file->path());
    for (const RunFile& runs : set.file->measured()->files)
      inputs.push_back(folder + "/" + runs.file);
  }
  const std::vector<std::size_t> endings = check_outputs(outputs, inputs, kMeasuredEndings);
  if (arguments.has("--fit")) {
    if (sets.size() > 1) throw InputError("reproduce: --fit is for one set; name it, e.g. megatron-a100");
    for (const char* other : {"--output", "--json"})
      if (arguments.has(other))
        throw InputError(fmt::format("reproduce: --fit prints lines of text; leave out {}", other));
    return print(fit_text(sets.front(), folder)), kDone;
  }
  const ComparedSets compared = compared_sets(sets, folder);
  if (compared.results.empty())
    throw InputError(fmt::format("reproduce: {} has no file of any set ({}); --data names the folder that holds {}",
                                 in_quotes(folder), joined(compared.absent), first.files.front().file));
  print_results(compared.results, published, sets.size() == 1, arguments, outputs);
  if (!arguments.has("--json") && !arguments.has("--csv") && !arguments.has("--md")) print(left_out_text(compared));
  for (std::size_t i = 0; i < outputs.size(); ++i)
    write_output(outputs[i], measured_as(kMeasuredEndings[endings[i]], compared.results, published, outputs),
                 "measured runs beside predictions");
  if (!compared.absent.empty()) note("not there in " + folder + ": " + joined(compared.absent));
  return kDone;
}

int reproduce_command(const Arguments& arguments) {
  const bool all = arguments.has("--all");
  if (arguments.positional.empty() && !all) {
    if (arguments.has("--json"))
      throw InputError("reproduce: --json is of tables; name one (pipewright reproduce lists them), or write --all");
    print(list_of_names());
    return kDone;
  }
  refuse_two_forms(arguments);
  Opened open({.set = arguments.all("--set"), .config_path = config_path()});
  if (const std::vector<MeasuredSet> sets = sets_of(arguments, open); !sets.empty() && !all)
    return reproduce_measured(sets, published_with(arguments, open), arguments);
  const std::vector<std::string> outputs = arguments.all("--output");
  const TableOptions options{output_width(arguments), use_colour(arguments)};
  std::vector<const ScenarioFile*> files;
  for (const std::string& path : files_of(arguments))
    files.push_back(&open(path));
  constexpr std::array<std::string_view, 1> endings = {".html"};
  auto inputs = mapped<std::string>(files, [](const ScenarioFile* file) { return file->path(); });
  check_outputs(outputs, inputs, endings);
  refuse_options(arguments, {"--data", "--fit"},
                 ": is for one scenario with a measured: block; try pipewright reproduce megatron-a100 --data DIR");
  const std::vector<TableResult> tables = reproduced_tables(files);
  if (asked_to_end() != 0 && tables.empty()) return interrupted("no table is whole yet");
  if (arguments.has("--json")) {
    print(accuracy_json(tables, outputs));
  } else if (arguments.has("--csv")) {
    print(accuracy_csv(tables));
  } else if (arguments.has("--md")) {
    auto text = text_over(
        tables, [&](const TableResult& table) { return accuracy_markdown(table); }, "\n");
    print(all ? markdown(tables) : text);
  } else {
    for (const TableResult& table : tables)
      print(accuracy_text(table, options) + "\n");
    print(accuracy_summary_text(tables, options));
  }
  for (const std::string& path : outputs)
    write_output(path, accuracy_html(tables, command_line("reproduce", arguments)),
                 "tables in one page, for any browser");
  for (const std::string& line : misses_that_hit(tables))
    note(line);
  if (asked_to_end() != 0) return interrupted("the tables that were whole are printed");
  const bool missed = std::ranges::any_of(tables, [](const TableResult& t) { return t.accuracy().missed > 0; });
  return missed ? kNo : kDone;
}

}  // namespace

constinit const Command kReproduce{
    .name = "reproduce",
    .arguments = "[NAME|FILE...]",
    .summary = "published tables next to predictions, with the error of each cell",
    .details =
        "NAME is a table that ships with pipewright (without an argument: their list), FILE a scenario with an\n"
        "expect: or a measured: block. Exit status 1: a cell without a status misses its tolerance.\n"
        "  pipewright reproduce zero-bubble\n"
        "  pipewright reproduce --all --md > accuracy.md\n"
        "  pipewright reproduce gpipe-memory --csv > curve.csv\n",
    .options = kReproduceOptions,
    .most = at(-1),
    .run = reproduce_command,
};

}  // namespace pipewright::cli
