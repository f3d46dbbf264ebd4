// measured: of a scenario: which files hold measured runs, what their columns mean, what was fitted on them.
#include <fmt/format.h>

#include "core/answers/measured.hpp"
#include "io/read/expect_text.hpp"
#include "io/text/quantity.hpp"
#include "io/text/trimmed.hpp"
#include "io/yaml/changes.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

// A list of maps, each read by its table; not an empty one.
template <auto Member, const auto& fields, class Owner>
void read_entries(Reader& reader, const At& at, Owner& target) {
  read_maps<Member, fields>(reader, at, target);
  if (at.yaml.is(Yaml::Type::List) && at.yaml.list.empty())
    reader.error(at, "is empty; write at least one entry, or remove the key");
}

constexpr Field<RunFile> kRunFileFields[] = {
    {"name", "text", "of the group that its runs form", read_as<&RunFile::name>, Need::Required},
    {"file", "file name", "in the folder of the data; comma-separated, with a header", read_as<&RunFile::file>,
     Need::Required},
    {"fit", "true | false", "whether constants are fitted on lines of it (fit_every); default: true",
     read_as<&RunFile::fit>},
};

struct AboveOne {
  const char* operator()(double value) const { return value > 1 ? "" : "must be more than 1"; }
};

constexpr Field<FittedConstant> kConstant[] = {
    {"key", "key of a number or quantity", "the constant", read_as<&FittedConstant::key>, Need::Required},
    {"unit", "text", "of expected and most; default: none", read_as<&FittedConstant::unit>},
    {"expected", "number > 0", "what is known of it without the runs", read_as<&FittedConstant::expected, Positive>,
     Need::Required},
    {"factor", "number > 1", "how well: one standard deviation is this factor either way",
     read_as<&FittedConstant::factor, AboveOne>, Need::Required},
    {"most", "number > 0", "no value above it makes sense (a share: 1); default: no limit",
     read_as<&FittedConstant::most, Positive>},
    {"source", "text", "where the expectation comes from", read_as<&FittedConstant::source>, Need::Required},
    {"meaning", "text", "what it is physically", read_as<&FittedConstant::meaning>, Need::Required},
};

// ">1", "<=8", "!x", "*", "": what a cell must say.
CellTest::Choice choice_of(std::string text) {
  CellTest::Choice choice;
  if (text == "*") return choice.other = true, choice;
  if (text.starts_with('!')) return choice.other = true, choice.is = text.substr(1), choice;
  if (!text.starts_with('<') && !text.starts_with('>')) return choice.is = std::move(text), choice;
  const bool with_limit = text.size() > 1 && text[1] == '=';
  const Parsed<double> limit = parse_number(trimmed(std::string_view(text).substr(with_limit ? 2 : 1), " "));
  if (!limit.value) return choice.is = std::move(text), choice;
  (text[0] == '<' ? choice.most : choice.least) = *limit.value;
  choice.strict = !with_limit;
  return choice;
}

void read_test(Reader& reader, const At& at, RowTest& test) {
  if (!is_map(reader, at, "a map of columns and what they must say, e.g. {tp: \"<=8\"}")) return;
  for (const auto& [key, value] : at.yaml.map) {
    const At here = at.child(key.text, value);
    CellTest cell{.head = key.text, .choices = {}};
    const auto add = [&](const At& one) {
      if (const std::string* text = scalar(reader, one, "a text, a limit (>1, <=8), \"*\" or a list of them"))
        cell.choices.push_back(choice_of(*text));
    };
    if (value.is(Yaml::Type::List))
      for (std::size_t i = 0; i < value.list.size(); ++i)
        add(here.child(static_cast<std::ptrdiff_t>(i), value.list[i]));
    else
      add(here);
    test.push_back(std::move(cell));
  }
  if (at.yaml.map.empty()) reader.error(at, "is empty; name a column and what it must say");
}

void read_heads(Reader& reader, const At& at, std::vector<std::string>& heads) {
  if (!is_list(reader, at, "a list of column heads")) return;
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i)
    read_value(reader, at.entry(i), heads.emplace_back());
}

constexpr Field<RunColumn> kColumn[] = {
    {"column", "column head", "the cell is the value",
     [](Reader& reader, const At& at, RunColumn& column) { read_value(reader, at, column.heads.emplace_back()); }},
    {"product", "list of column heads", "instead of column: the product of whole numbers is the value",
     [](Reader& reader, const At& at, RunColumn& column) { read_heads(reader, at, column.heads); }},
    {"values", "map of texts", "what each text of the column is in the scenario; rows with another text are missing",
     [](Reader& reader, const At& at, RunColumn& column) {
       if (!is_map(reader, at, "a map, e.g. {1F1B: 1f1b}")) return;
       for (const auto& [key, value] : at.yaml.map)
         read_value(reader, at.child(key.text, value), column.values[key.text]);
     }},
    {"unit", "text", "follows the cell: GB/s; default: none", read_as<&RunColumn::unit>},
};

void read_columns(Reader& reader, const At& at, MeasuredTable& table) {
  if (!is_map(reader, at, "a map of keys and column heads, e.g. {plan.stages: pipeline parallelism}")) return;
  for (const auto& [key, value] : at.yaml.map) {
    const At here = at.child(key.text, value);
    RunColumn column{.key = key.text, .heads = {}, .values = {}, .unit = {}};
    if (value.is(Yaml::Type::Map))
      read_fields<RunColumn>(reader, here, kColumn, column);
    else if (std::string head; read_value(reader, here, head))
      column.heads.push_back(head);
    if (value.is(Yaml::Type::Map) && (value.find("column") != nullptr) == (value.find("product") != nullptr))
      reader.errors.add(value.place, path(here), "say either column or product");
    table.columns.push_back(std::move(column));
  }
}

constexpr Field<RowSetting> kSetting[] = {
    {"when", "map of column heads and tests", "rows that pass; see measured",
     [](Reader& reader, const At& at, RowSetting& setting) { read_test(reader, at, setting.when); }, Need::Required},
    {"set", "map of keys and values", "what they set, after the columns",
     [](Reader& reader, const At& at, RowSetting& setting) {
       std::vector<Assignment> changes;
       read_changes(reader, at, changes);
       for (const Assignment& change : changes)
         setting.set.emplace_back(fmt::format("{}", fmt::join(change.keys, ".")), flow_text(change.value));
     },
     Need::Required},
};

void read_when(Reader& reader, const At& at, RowNote& note) {
  if (!at.yaml.is(Yaml::Type::List)) return read_test(reader, at, note.when.emplace_back());
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i)
    read_test(reader, at.entry(i), note.when.emplace_back());
  if (note.when.empty()) reader.error(at, "is empty; name a column and what it must say");
}
constexpr std::string_view kTests = "map of column heads and tests, or a list of maps of which one must hold";

constexpr Field<RowNote> kLeftOutRow[] = {
    {"when", kTests, "rows that pass; see measured", read_when, Need::Required},
    {"why", "text", "the reason", read_as<&RowNote::text>, Need::Required},
};
constexpr Field<RowNote> kMissing[] = {
    {"when", kTests, "rows that pass; see measured", read_when, Need::Required},
    {"needs", "text", "the key that a scenario would need", read_as<&RowNote::text>, Need::Required},
};
constexpr Field<RowNote> kSubset[] = {
    {"name", "text", "of the subset, which has errors of its own", read_as<&RowNote::text>, Need::Required},
    {"when", kTests, "rows that pass; see measured", read_when, Need::Required},
};

// A figure as written.
struct FigureText {
  RunFigure figure;
  std::string unit;
  std::optional<std::pair<Where, std::int64_t>> where;
};

constexpr Field<FigureText> kFigure[] = {
    {"name", "text", "as tables call it: time", inside<&FigureText::figure, &RunFigure::name>, Need::Required},
    {"figure", "as quantity of expect", "what was measured",
     [](Reader& reader, const At& at, FigureText& text) { read_quantity(reader, at, text.figure.sought); },
     Need::Required},
    {"where", "as where of expect", "of which stage it is",
     [](Reader& reader, const At& at, FigureText& text) { read_where(reader, at, text.where); }},
    {"column", "column head", "its column; a row with an empty cell does not give it",
     inside<&FigureText::figure, &RunFigure::head>, Need::Required},
    {"word", "whole number >= 1",
     "which word of the cell it is; 46.77*2, the same on two devices, is read as 46.77; a row with fewer words does "
     "not "
     "give it; default: the cell is one figure",
     inside<&FigureText::figure, &RunFigure::word, AtLeast1>},
    {"unit", "text", "of the cells; default: s, B or none", read_as<&FigureText::unit>},
};

void read_figures(Reader& reader, const At& at, MeasuredTable& table) {
  struct AsWritten {
    std::vector<FigureText> texts;
  } written;
  read_entries<&AsWritten::texts, kFigure>(reader, at, written);
  for (std::size_t i = 0; i < written.texts.size(); ++i) {
    FigureText& text = written.texts[i];
    const At here = at.entry(i);
    place_quantity(reader, here, text.figure.sought, text.where);
    const Dimension kind = dimension(text.figure.sought.figure);
    if (const auto size = text.unit.empty() ? std::optional(1.0) : unit_size(kind, text.unit))
      text.figure.unit_size = *size;
    else
      reader.errors.add(here.yaml.place, path(here) + ".unit",
                        fmt::format("{} is not a unit of {}; it has {}", in_quotes(text.unit), text.figure.sought.text,
                                    units_of(kind)));
    table.figures.push_back(std::move(text.figure));
  }
}

void read_constants(Reader& reader, const At& at, MeasuredTable& table) {
  read_entries<&MeasuredTable::constants, kConstant>(reader, at, table);
  for (std::size_t i = 0; i < table.constants.size() && i < at.yaml.list.size(); ++i) {
    FittedConstant& constant = table.constants[i];
    constant.place = at.yaml.list[i].place;
    if (constant.most > 0 && constant.expected > constant.most)
      reader.errors.add(constant.place, fmt::format("{}.{}: expected is more than most", path(at), i));
  }
}

constexpr Field<MeasuredTable> kWeakScaling[] = {
    {"by", "list of column heads", "what names a series", read_as<&MeasuredTable::weak_scaling>, Need::Required},
    {"batch", "column head", "samples of a step on all devices", read_as<&MeasuredTable::weak_batch>, Need::Required},
    {"when", "map of column heads and tests", "rows that belong to a series, see measured; default: all",
     [](Reader& reader, const At& at, MeasuredTable& t) { read_test(reader, at, t.weak_when); }},
};

void read_weak_scaling(Reader& reader, const At& at, MeasuredTable& table) {
  read_fields<MeasuredTable>(reader, at, kWeakScaling, table);
}

constexpr Field<MeasuredTable> kMeasuredTable[] = {
    {"table", "text", "its title", read_as<&MeasuredTable::title>, Need::Required},
    {"source", "text", "where it is published", read_as<&MeasuredTable::source>, Need::Required},
    {"note", "text", "what a reader must know", read_as<&MeasuredTable::note>},
    {"files", "list of {name, file}", "see measured.files", read_entries<&MeasuredTable::files, kRunFileFields>,
     Need::Required},
    {"figures", "list of maps", "what was measured, the speed first; see measured.figures", read_figures,
     Need::Required},
    {"columns", "map of keys and column heads", "what the cells of a row set; or maps, see measured.column",
     read_columns, Need::Required},
    {"settings", "list of {when, set}",
     "what rows set whose cells pass a test. A test is a text (8B), a limit (>1, <=8), \"*\" (not empty), \"\" "
     "(empty), !x (not x), or a list of these, of which one must hold",
     read_entries<&MeasuredTable::settings, kSetting>},
    {"left_out", "list of {when, why}", "rows that are not compared: counted",
     read_entries<&MeasuredTable::left_out, kLeftOutRow>},
    {"missing", "list of {when, needs}", "rows that no scenario can express yet: counted with the key",
     read_entries<&MeasuredTable::missing, kMissing>},
    {"failed", "map of column heads and tests", "runs that did not come to an end: counted with whether they fit",
     [](Reader& reader, const At& at, MeasuredTable& t) { read_test(reader, at, t.failed); }},
    {"subsets", "list of {name, when}", "rows that have errors of their own",
     read_entries<&MeasuredTable::subsets, kSubset>},
    {"by", "list of column heads", "each text of these columns has errors of its own: by model, by device",
     read_as<&MeasuredTable::by>},
    {"weak_scaling", "{by: list of column heads, batch: column head, when: map of column heads and tests}",
     "rows that agree in these columns, and in the batch of each device, form a series: how much slower a device is on "
     "the "
     "most devices than on the least is printed next to the prediction",
     read_weak_scaling},
    {"devices", "column head", "how many devices the run used; default: what the layout takes",
     read_as<&MeasuredTable::devices>},
    {"fit_every", "whole number >= 2",
     "constants are fitted on the lines of each file (but those with fit: false) whose number it divides, the header "
     "being line 1; default: on none",
     read_as<&MeasuredTable::fit_every, AtLeast2>},
    {"fit_lines", "list of whole numbers, e.g. [5, 9, 14]",
     "constants are fitted on these lines, as the table of errors numbers them; default: on none",
     read_as<&MeasuredTable::fit_lines>},
    {"noise", "number > 0",
     "relative standard deviation of a run: how much a fit trusts a run compared with what is expected; default: 0.05",
     read_as<&MeasuredTable::noise, Positive>},
    {"faulty", "number in [0, 1)",
     "share of the runs that may have gone wrong, unmarked: how little a fit minds those that are far off; default: 0",
     read_as<&MeasuredTable::faulty, Below1>},
    {"constants", "list of maps", "what was fitted; see measured.constants", read_constants},
};

}  // namespace

void read_measured_section(Reader& reader, const At& at, ExpectAndVary& more) {
  const bool keep_origins = std::exchange(reader.keep_origins, false);
  MeasuredTable table;
  table.place = at.yaml.place;
  read_fields<MeasuredTable>(reader, at, kMeasuredTable, table);
  if (!table.constants.empty() && table.fit_every == 0 && table.fit_lines.empty())
    reader.errors.add(at.yaml.place, path(at) + ".constants",
                      "say on which lines they were fitted, e.g. fit_every: 14");
  const Figure first = table.figures.empty() ? Figure::StepTime : table.figures.front().sought.figure;
  const bool of_a_device = first == Figure::SamplesPerSDevice || first == Figure::TokensPerSDevice ||
                           first == Figure::TflopsDevice || first == Figure::TflopsDeviceAllPairs ||
                           dimension(first) == Dimension::Duration;
  if (!table.weak_scaling.empty() && !of_a_device)
    reader.errors.add(at.yaml.place, path(at) + ".weak_scaling",
                      "compares times, or rates of one device: let the first figure be one, e.g. step_time_s");
  if (!table.weak_scaling.empty() && table.devices.empty())
    reader.errors.add(at.yaml.place, path(at) + ".weak_scaling", "name the column of the devices, too: devices");
  more.measured = std::move(table);
  reader.keep_origins = keep_origins;
}

std::vector<SectionDoc> measured_docs() {
  return {document<MeasuredTable>("measured", kMeasuredTable),
          document<RunFile>("measured.files", kRunFileFields),
          document<FigureText>("measured.figures", kFigure),
          document<RunColumn>("measured.column", kColumn),
          document<RowSetting>("measured.settings", kSetting),
          document<RowNote>("measured.left_out", kLeftOutRow),
          document<RowNote>("measured.missing", kMissing),
          document<RowNote>("measured.subsets", kSubset),
          document<MeasuredTable>("measured.weak_scaling", kWeakScaling),
          document<FittedConstant>("measured.constants", kConstant)};
}

}  // namespace pipewright::io
