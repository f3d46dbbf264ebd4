// measured: of a scenario: which files hold measured runs, what their columns mean, what was fitted on them.
#include <fmt/format.h>

#include "core/plan/measured.hpp"
#include "io/quantity.hpp"
#include "io/sections.hpp"

namespace pipewright {
namespace {

template <class T>
void write_nothing(YamlText&, std::string_view, const T&) {}

// A list of maps, each read by its table.
template <class T>
void read_list(Reader& reader, const At& at, std::span<const Field<T>> fields, std::vector<T>& items) {
  if (!is_list(reader, at, "a list of maps")) return;
  if (at.yaml.list.empty()) reader.error(at, "is empty; write at least one entry, or remove the key");
  for (std::size_t i = 0; i < at.yaml.list.size() && !reader.errors.full(); ++i)
    read_fields<T>(reader, at.child(static_cast<std::ptrdiff_t>(i), at.yaml.list[i]), fields, items.emplace_back());
}

constexpr Field<RunFile> kFile[] = {
    {"name", "text", "of the group that its runs form", Need::Required, read_as<&RunFile::name>, write_nothing},
    {"file", "file name", "in the folder of the data; comma-separated, with a header", Need::Required,
     read_as<&RunFile::file>, write_nothing},
};

struct Positive {
  const char* operator()(double value) const { return value > 0 ? "" : "must be more than 0"; }
};

struct AboveOne {
  const char* operator()(double value) const { return value > 1 ? "" : "must be more than 1"; }
};

constexpr Field<FittedConstant> kConstant[] = {
    {"key", "key of a number or quantity", "the constant", Need::Required, read_as<&FittedConstant::key>,
     write_nothing},
    {"unit", "text", "of expected and most; default: none", Need::Optional, read_as<&FittedConstant::unit>,
     write_nothing},
    {"expected", "number > 0", "what is known of it without the runs", Need::Required,
     read_as<&FittedConstant::expected, Positive>, write_nothing},
    {"factor", "number > 1", "how well: one standard deviation is this factor either way", Need::Required,
     read_as<&FittedConstant::factor, AboveOne>, write_nothing},
    {"most", "number > 0", "no value above it makes sense (a share: 1); default: no limit", Need::Optional,
     read_as<&FittedConstant::most, Positive>, write_nothing},
    {"source", "text", "where the expectation comes from", Need::Required, read_as<&FittedConstant::source>,
     write_nothing},
    {"meaning", "text", "what it is physically", Need::Required, read_as<&FittedConstant::meaning>, write_nothing},
};

void read_columns(Reader& reader, const At& at, MeasuredTable& table) {
  if (!is_map(reader, at, "a map of keys and column heads, e.g. {plan.stages: pipeline parallelism}")) return;
  for (const auto& [key, value] : at.yaml.map)
    if (std::string head; read_value(reader, at.child(key.text, value), head))
      table.columns.push_back({key.text, head});
}

void read_constants(Reader& reader, const At& at, MeasuredTable& table) {
  read_list<FittedConstant>(reader, at, kConstant, table.constants);
  for (std::size_t i = 0; i < table.constants.size() && i < at.yaml.list.size(); ++i) {
    FittedConstant& constant = table.constants[i];
    constant.place = at.yaml.list[i].place;
    if (constant.most > 0 && constant.expected > constant.most)
      reader.errors.add(constant.place, fmt::format("{}.{}: expected is more than most", path(at), i));
  }
}

struct AtLeast2 {
  const char* operator()(std::int64_t value) const { return value >= 2 ? "" : "must be at least 2"; }
};

constexpr Field<MeasuredTable> kMeasured[] = {
    {"table", "text", "its title", Need::Required, read_as<&MeasuredTable::title>, write_nothing},
    {"source", "text", "where it is published", Need::Required, read_as<&MeasuredTable::source>, write_nothing},
    {"note", "text", "what a reader must know", Need::Optional, read_as<&MeasuredTable::note>, write_nothing},
    {"files", "list of {name, file}", "see measured.files", Need::Required,
     [](Reader& reader, const At& at, MeasuredTable& t) { read_list<RunFile>(reader, at, kFile, t.files); },
     write_nothing},
    {"columns", "map of keys and column heads", "whole numbers of a run and the keys that they set", Need::Required,
     read_columns, write_nothing},
    {"devices", "column head", "how many devices the run used", Need::Required, read_as<&MeasuredTable::devices>,
     write_nothing},
    {"time", "column head", "of an iteration", Need::Required, read_as<&MeasuredTable::time>, write_nothing},
    {"unit", "unit of time", "of the time column; default: ms", Need::Optional,
     [](Reader& reader, const At& at, MeasuredTable& table) {
       std::string unit;
       if (!read_value(reader, at, unit)) return;
       if (const auto size = parse_time("1 " + unit).value)
         table.unit = seconds(*size);
       else
         reader.error(at, "is no unit of time; write ns, us, ms, s, min or h");
     },
     write_nothing},
    {"fit_every", "whole number >= 2",
     "constants are fitted on the lines of each file whose number it divides, the header being line 1; default: on "
     "none",
     Need::Optional, read_as<&MeasuredTable::fit_every, AtLeast2>, write_nothing},
    {"noise", "number > 0",
     "relative standard deviation of a run: how much a fit trusts a run compared with what is expected; default: 0.05",
     Need::Optional, read_as<&MeasuredTable::noise, Positive>, write_nothing},
    {"constants", "list of maps", "what was fitted; see measured.constants", Need::Optional, read_constants,
     write_nothing},
};

}  // namespace

void read_measured_section(Reader& reader, const At& at, ExpectAndVary& more) {
  const bool keep_origins = std::exchange(reader.keep_origins, false);
  MeasuredTable table;
  table.place = at.yaml.place;
  read_fields<MeasuredTable>(reader, at, kMeasured, table);
  if (!table.constants.empty() && table.fit_every == 0)
    reader.errors.add(at.yaml.place, path(at) + ".constants: say on which lines they were fitted, e.g. fit_every: 14");
  more.measured = std::move(table);
  reader.keep_origins = keep_origins;
}

std::vector<SectionDoc> measured_docs() {
  return {document<MeasuredTable>("measured", kMeasured), document<RunFile>("measured.files", kFile),
          document<FittedConstant>("measured.constants", kConstant)};
}

}  // namespace pipewright
