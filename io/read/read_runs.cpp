#include "io/read/read_runs.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <string_view>

#include <fmt/format.h>

#include "io/read/read_file.hpp"
#include "io/text/csv_line.hpp"
#include "io/text/errors.hpp"
#include "io/text/quantity.hpp"
#include "io/text/trimmed.hpp"

namespace pipewright::io {
namespace {

class RunReader {
 public:
  RunReader(const MeasuredTable& table, const RunFile& group, const std::string& file)
      : table_(table), group_(group), file_(file) {}

  std::vector<MeasuredRun> read(std::string_view text) {
    int number = 0;
    for (std::size_t begin = 0; begin < text.size() && !errors_.full();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string_view line = trimmed(text.substr(begin, end - begin), "\r");
      begin = end + 1;
      place_ = {file_, ++number, 1};
      // A header may begin with "# GPUs": where it names the columns that are asked for, it is one.
      if (trimmed(line, kLineBlanks).empty() || (line.starts_with('#') && !is_header(line))) continue;
      if (columns_of_.empty())
        header(line);
      else
        run(line);
    }
    if (number == 0) errors_.add({file_, 1, 1}, "is empty; it needs a header and a line per run");
    errors_.throw_if_any();
    if (runs_.empty()) throw InputError(Place{file_, std::max(header_, 1), 1}, "has a header, but no runs below it");
    return std::move(runs_);
  }

 private:
  bool is_header(std::string_view line) const {
    if (!columns_of_.empty() || table_.figures.empty()) return false;
    const auto fields = csv_fields(line);
    return std::ranges::any_of(fields,
                               [&](const CsvField& field) { return field.text == table_.figures.front().head; });
  }

  void need(const std::string& wanted) {
    const auto found = columns_of_.find(wanted);
    if (found == columns_of_.end())
      errors_.add(place_, fmt::format("has no column {}; it has: {}", in_quotes(wanted), fmt::join(heads_, ", ")));
    else if (std::ranges::count(heads_, wanted) > 1)
      errors_.add(place_, fmt::format("has two columns {}; remove one", in_quotes(wanted)));
  }
  void need(const RowTest& test) {
    for (const CellTest& cell : test)
      need(cell.head);
  }
  void need(const RowTests& tests) {
    for (const RowTest& test : tests)
      need(test);
  }

  void header(std::string_view line) {
    header_ = place_.line;
    for (CsvField& field : csv_fields(line)) {
      columns_of_.emplace(field.text, heads_.size());
      heads_.push_back(std::move(field.text));
    }
    for (const RunColumn& each : table_.columns)
      for (const std::string& head : each.heads)
        need(head);
    for (const RunFigure& each : table_.figures)
      need(each.head);
    for (const RowSetting& each : table_.settings)
      need(each.when);
    for (const auto* notes : {&table_.left_out, &table_.missing, &table_.subsets})
      for (const RowNote& each : *notes)
        need(each.when);
    for (const auto* heads : {&table_.by, &table_.weak_scaling})
      for (const std::string& head : *heads)
        need(head);
    need(table_.failed), need(table_.weak_when);
    if (!table_.weak_batch.empty()) need(table_.weak_batch);
    if (!table_.devices.empty()) need(table_.devices);
    errors_.throw_if_any();  // nothing below can be read
  }

  const CsvField& cell(const std::string& head) const { return cells_[columns_of_.find(head)->second]; }

  void refuse(const std::string& head, const CsvField& field, std::string_view why) {
    errors_.add({file_, place_.line, field.column}, fmt::format("{}: {} {}", head, in_quotes(field.text), why));
  }

  bool passes(const RowTest& test) const {
    return std::ranges::all_of(test, [&](const CellTest& each) {
      const std::string& text = cell(each.head).text;
      return std::ranges::any_of(each.choices, [&](const CellTest::Choice& choice) { return choice.holds(text); });
    });
  }
  const RowNote* first_passed(const std::vector<RowNote>& notes) const {
    const auto found = std::ranges::find_if(notes, [&](const RowNote& each) { return passes(each.when); });
    return found == notes.end() ? nullptr : &*found;
  }

  std::optional<std::int64_t> count(const std::string& head) {
    const CsvField& field = cell(head);
    const Parsed<std::int64_t> number = parse_count(field.text);
    if (!number.value)
      refuse(head, field, number.why);
    else if (*number.value < 1)
      refuse(head, field, "must be at least 1");
    else
      return number.value;
    return std::nullopt;
  }

  // The word of a cell that a figure is, without the "*2" that says on how many devices; nullopt: the cell has fewer.
  std::optional<CsvField> word(const RunFigure& figure) {
    const CsvField& whole = cell(figure.head);
    std::size_t begin = 0, end = 0;
    for (std::int64_t i = 0; i < figure.word; ++i) {
      begin = whole.text.find_first_not_of(' ', end);
      if (begin == std::string::npos) return std::nullopt;
      end = std::min(whole.text.find(' ', begin), whole.text.size());
    }
    CsvField field{.text = whole.text.substr(begin, end - begin), .column = whole.column};
    const std::size_t star = field.text.find('*');
    if (star == std::string::npos) return field;
    const Parsed<std::int64_t> devices = parse_count(std::string_view(field.text).substr(star + 1));
    if (star == 0 || !devices.value || *devices.value < 1)
      return refuse(figure.head, field, "must be a figure * on how many devices, e.g. 46.77*2"), std::nullopt;
    field.text.resize(star);
    return field;
  }

  std::optional<double> figure(const RunFigure& figure) {
    const auto found = figure.word > 0 ? word(figure) : std::optional(cell(figure.head));
    if (!found || found->text.empty()) return std::nullopt;
    const CsvField& field = *found;
    const Parsed<double> number = parse_number((field.text.starts_with('.') ? "0" : "") + field.text);  // ".527"
    if (!number.value)
      refuse(figure.head, field, number.why.empty() ? "is not a number" : number.why);
    else if (!(*number.value > 0) || !std::isfinite(*number.value))
      refuse(figure.head, field, "must be more than 0");
    else
      return *number.value * figure.unit_size;
    return std::nullopt;
  }

  bool passes(const RowTests& tests) const {
    return std::ranges::any_of(tests, [&](const RowTest& test) { return passes(test); });
  }

  // What the key is in this row; "": as the scenario has it.
  std::string value(const RunColumn& column, MeasuredRun& run) {
    if (column.heads.size() > 1) {
      std::int64_t product = 1;
      for (const std::string& head : column.heads)
        if (const auto factor = count(head); factor && __builtin_mul_overflow(product, *factor, &product))
          refuse(head, cell(head), "is too large: the product is beyond 2^63"), product = 1;
      return std::to_string(product);
    }
    std::string text = cell(column.heads.front()).text;
    if (text.empty()) return text;
    if (!column.values.empty()) {
      const auto known = column.values.find(text);
      if (known == column.values.end()) {
        run.state = RunState::Missing, run.why = fmt::format("{}: {}", column.heads.front(), text);
        return text;
      }
      return known->second;
    }
    if (text.starts_with('.')) text = "0" + text;
    if (text.ends_with(".0")) text.resize(text.size() - 2);  // a whole number from a spreadsheet
    return column.unit.empty() ? text : text + " " + column.unit;
  }

  void run(std::string_view line) {
    cells_ = csv_fields(line);
    if (cells_.size() != heads_.size())
      return errors_.add(place_, fmt::format("has {} fields, the header has {}; is the line truncated?", cells_.size(),
                                             heads_.size()));
    MeasuredRun run;
    run.group = group_.name, run.place = place_;
    const bool every = table_.fit_every > 0 && (place_.line - header_ + 1) % table_.fit_every == 0;
    const auto& lines = table_.fit_lines;
    run.fitted = group_.fit && (every || std::ranges::find(lines, place_.line) != lines.end());
    for (const RowNote& subset : table_.subsets)
      run.in_subset.push_back(passes(subset.when));
    for (const std::string& head : table_.by)
      run.by.push_back(cell(head).text);
    if (passes(table_.weak_when))
      for (const std::string& head : table_.weak_scaling)
        run.series.push_back(cell(head).text);
    if (const RowNote* note = first_passed(table_.left_out))
      run.state = RunState::LeftOut, run.why = note->text;
    else if (const RowNote* key = first_passed(table_.missing))
      run.state = RunState::Missing, run.why = key->text;
    else
      values(run);
    runs_.push_back(std::move(run));
  }

  void values(MeasuredRun& run) {
    if (!table_.devices.empty()) run.devices = count(table_.devices).value_or(1);
    if (!run.series.empty()) {
      const std::int64_t batch = count(table_.weak_batch).value_or(1), common = std::gcd(batch, run.devices);
      run.series.push_back(fmt::format("{}/{}", batch / common, run.devices / common));
    }
    for (const RunColumn& column : table_.columns) {
      run.values.push_back(value(column, run));
      if (!run.values.back().empty()) run.set.push_back(column.key + "=" + run.values.back());
    }
    for (const RowSetting& setting : table_.settings)
      if (passes(setting.when))
        for (const auto& [key, value] : setting.set)
          run.set.push_back(key + "=" + value);
    if (run.state == RunState::Missing) return;
    if (!table_.failed.empty() && passes(table_.failed)) {
      run.state = RunState::Failed;
      return;
    }
    bool any = false;
    for (const RunFigure& each : table_.figures)
      any |= run.figures.emplace_back(figure(each)).has_value();
    if (!any) run.state = RunState::LeftOut, run.why = "nothing was measured";
  }

  const MeasuredTable& table_;
  const RunFile& group_;
  const std::string& file_;
  Errors errors_;
  Place place_;  // of the line
  int header_ = 0;
  std::vector<std::string> heads_;
  std::map<std::string, std::size_t> columns_of_;
  std::vector<CsvField> cells_;
  std::vector<MeasuredRun> runs_;
};

}  // namespace

std::vector<MeasuredRun> parse_runs(const MeasuredTable& table, const RunFile& group, const std::string& text,
                                    const std::string& file) {
  return RunReader(table, group, file).read(text);
}

std::string file_of_runs(const RunFile& group, const std::string& folder) {
  const std::filesystem::path whole = std::filesystem::path(folder) / group.file;
  const std::filesystem::path last = std::filesystem::path(folder) / std::filesystem::path(group.file).filename();
  std::error_code ignored;
  return (!std::filesystem::exists(whole, ignored) && std::filesystem::exists(last, ignored) ? last : whole).string();
}

std::vector<MeasuredRun> read_runs(const MeasuredTable& table, const std::string& folder) {
  std::vector<MeasuredRun> runs;
  for (const RunFile& group : table.files) {
    const std::string file = file_of_runs(group, folder);
    for (MeasuredRun& run : parse_runs(table, group, read_file(file), file))
      runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace pipewright::io
