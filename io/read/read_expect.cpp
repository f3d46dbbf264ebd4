// expect: of a scenario: published tables.
#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "core/folds.hpp"
#include "io/read/expect_text.hpp"

namespace pipewright::io {
namespace {

// An axis of a table's box: a name, and the changes that stand for its other values than the nominal one.
struct AxisText {
  std::string name;
  std::vector<std::vector<Assignment>> values;
};

struct TableText {
  ExpectationTable table;
  RowText defaults;
  std::vector<RowText> rows;
  std::vector<AxisText> box;
};

constexpr Field<AxisText> kAxis[] = {
    {"name", "text", "what varies, and from where to where", read_as<&AxisText::name>, Need::Required},
    {"values", "list of maps of keys and values",
     "a value each, in addition to the nominal one: what a row sets in addition",
     [](Reader& reader, const At& at, AxisText& axis) {
       if (!is_list(reader, at, "a list of maps, e.g. [{cluster.network.bandwidth: 5 Gb/s}]")) return;
       for (std::size_t i = 0; i < at.yaml.list.size(); ++i)
         read_changes(reader, at.entry(i), axis.values.emplace_back());
     },
     Need::Required},
};

void read_box(Reader& reader, const At& at, TableText& text) {
  if (!is_list(reader, at, "a list of axes")) return;
  std::size_t points = 1;
  for (std::size_t i = 0; i < at.yaml.list.size() && !reader.errors.full(); ++i) {
    AxisText& axis = text.box.emplace_back();
    read_fields<AxisText>(reader, at.entry(i), kAxis, axis);
    text.table.box.push_back(axis.name);
    points = points > kMostVariedPoints ? points : points * (axis.values.size() + 1);
  }
  if (points > kMostVariedPoints)
    reader.errors.add(at.yaml.place, path(at),
                      fmt::format("more than {} points; give fewer values", kMostVariedPoints));
}

// The corners of the box, the last axis fastest: the row's changes, then those of the corner. An axis of one value lies
// between the nominal and it, one of more between these.
std::vector<int> box_of(ExpectAndVary& more, const std::vector<AxisText>& box, const std::vector<Assignment>& row) {
  std::vector<std::vector<Assignment>> points = {row};
  for (const AxisText& axis : box) {
    std::vector<std::vector<Assignment>> next;
    for (const std::vector<Assignment>& point : points) {
      if (axis.values.size() == 1) next.push_back(point);
      for (const std::vector<Assignment>& value : axis.values) {
        next.push_back(point);
        next.back().insert(next.back().end(), value.begin(), value.end());
      }
    }
    points = std::move(next);
  }
  std::vector<int> numbers;
  for (std::vector<Assignment>& point : points) {
    if (point.size() == row.size()) continue;  // the nominal one
    more.changes.push_back(std::move(point));
    numbers.push_back(static_cast<int>(more.changes.size()) - 1);
  }
  return numbers;
}

template <void (*Read)(Reader&, const At&, RowText&)>
void read_default(Reader& reader, const At& at, TableText& text) {
  Read(reader, at, text.defaults);
}

void read_rows(Reader& reader, const At& at, TableText& text) {
  if (!is_list(reader, at, "a list of rows")) return;
  if (at.yaml.list.empty()) return reader.errors.add(at.yaml.place, path(at), "no rows; a table needs at least one");
  for (std::size_t i = 0; i < at.yaml.list.size() && !reader.errors.full(); ++i) {
    const At here = at.entry(i);
    RowText row = text.defaults;
    row.row.place = here.yaml.place;
    const std::size_t errors_before = reader.errors.count();
    read_fields<RowText>(reader, here, expect_row_fields(), row);
    if (reader.errors.count() == errors_before) check_row(reader, here, row);
    text.rows.push_back(std::move(row));
  }
}

constexpr Field<TableText> kTable[] = {
    {"table", "text", "its title; tables of one title in several files are one",
     inside<&TableText::table, &ExpectationTable::title>, Need::Required},
    {"source", "text", "where it is published", inside<&TableText::table, &ExpectationTable::source>, Need::Required},
    {"note", "text", "what a reader must know: normalisation, assumptions, fitted constants",
     inside<&TableText::table, &ExpectationTable::note>},
    {"set", "map of keys and values", "of all its rows", read_default<read_row_set>},
    {"quantity", "as in a row", "of rows that give none", read_default<read_row_quantity>},
    {"where", "as in a row", "likewise", read_default<read_row_where>},
    {"unit", "as in a row", "likewise", read_default<read_row_unit>},
    {"tolerance", "as in a row", "likewise", read_default<read_tolerance>},
    {"reason", "text", "likewise", read_default<read_row_text<&Expectation::reason>>},
    {"status", "as in a row", "likewise", read_default<read_row_text<&Expectation::status>>},
    {"baseline", "as in a row", "likewise", read_default<read_baseline>},
    {"box", "list of axes",
     "over which every prediction gets an interval: its corners, an axis of one value being between the nominal and "
     "it; see expect.box",
     read_box},
    {"rows", "list of rows", "see expect.rows", read_rows, Need::Required},
};

// Names and ratios: every ratio_to is a row, and no row is neither published nor needed.
void check_names(Reader& reader, const At& at, const TableText& text) {
  std::unordered_map<std::string_view, const RowText*> by_name;  // looked up only
  for (const RowText& row : text.rows)
    if (!by_name.emplace(row.row.name, &row).second)
      reader.errors.add(row.row.place, path(at) + ".rows",
                        fmt::format("a row {} stands above already; give each its own name", in_quotes(row.row.name)));
  auto names = mapped<std::string>(text.rows, [](const RowText& row) { return row.row.name; });
  for (const RowText& row : text.rows) {
    const std::string& base = row.row.ratio_to;
    if (base.empty()) {
      const bool used =
          std::ranges::any_of(text.rows, [&](const RowText& other) { return other.row.ratio_to == row.row.name; });
      if (!row.row.published && !used)
        reader.errors.add(row.row.place, path(at) + ".rows",
                          fmt::format("{} has no published figure and no row is a ratio to it; "
                                      "write published, or remove the row",
                                      in_quotes(row.row.name)));
      continue;
    }
    const auto found = by_name.find(base);
    if (found == by_name.end())
      reader.errors.add(row.ratio_at, path(at) + ".rows", fmt::format("ratio_to: {}", unknown_name(base, names)));
    else if (const Expectation& other = found->second->row; !other.ratio_to.empty() && other.ratio_to != other.name)
      reader.errors.add(row.ratio_at, path(at) + ".rows",
                        fmt::format("ratio_to: {} is a ratio itself; name a row that is none, "
                                    "or one that is a ratio to itself",
                                    in_quotes(base)));
    else if (!other.quantity || !row.row.quantity || other.quantity->text != row.row.quantity->text)
      reader.errors.add(row.ratio_at, path(at) + ".rows",
                        fmt::format("ratio_to: {} is another quantity; divide equals by equals", in_quotes(base)));
    if (!row.row.published)
      reader.errors.add(
          row.row.place, path(at) + ".rows",
          fmt::format("{} is a ratio without a published figure; write published", in_quotes(row.row.name)));
  }
}

void read_table(Reader& reader, const At& at, ExpectAndVary& more) {
  TableText text;
  text.table.place = at.yaml.place;
  const std::size_t errors_before = reader.errors.count();
  read_fields<TableText>(reader, at, kTable, text);
  if (reader.errors.count() > errors_before) return;
  check_names(reader, at, text);
  for (RowText& row : text.rows) {
    row.row.changes = number_of(more, row.changes);
    if (row.search) {
      std::vector<Assignment> changes = row.changes;
      changes.insert(changes.end(), row.search->begin(), row.search->end());
      row.row.search = number_of(more, changes);
    }
    if (!text.box.empty()) row.row.box = box_of(more, text.box, row.changes);
    text.table.rows.push_back(std::move(row.row));
  }
  more.expectations.push_back(std::move(text.table));
}

}  // namespace

void read_expect_section(Reader& reader, const At& at, ExpectAndVary& more) {
  const bool keep_origins = std::exchange(reader.keep_origins, false);
  if (at.yaml.is(Yaml::Type::List)) {
    if (at.yaml.list.empty()) reader.error(at, "is empty; write a table, or remove the key");
    for (std::size_t i = 0; i < at.yaml.list.size() && !reader.errors.full(); ++i)
      read_table(reader, at.entry(i), more);
  } else {
    read_table(reader, at, more);
  }
  reader.keep_origins = keep_origins;
}

std::vector<SectionDoc> expect_docs() {
  return {vary_doc(), document<TableText>("expect", kTable), document<AxisText>("expect.box", kAxis),
          document<RowText>("expect.rows", expect_row_fields())};
}

}  // namespace pipewright::io
