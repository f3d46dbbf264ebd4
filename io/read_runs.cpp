#include "io/read_runs.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include "io/errors.hpp"
#include "io/quantity.hpp"
#include "io/read_file.hpp"
#include "io/trimmed.hpp"

namespace pipewright {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find(',', begin), line.size());
    fields.push_back(trimmed(line.substr(begin, end - begin), kBlanks));
    begin = end + 1;
  }
  return fields;
}

class RunReader {
 public:
  RunReader(const MeasuredTable& table, const RunFile& group, const std::string& file)
      : table_(table), group_(group), file_(file) {}

  std::vector<MeasuredRun> read(std::string_view text) {
    int number = 0;
    for (std::size_t begin = 0; begin < text.size() && !errors_.full();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string_view line = trimmed(text.substr(begin, end - begin), kBlanks);
      begin_ = text.data() + begin;
      begin = end + 1;
      place_ = {file_, ++number, 1};
      if (number == 1)
        header(line);
      else if (!line.empty())
        run(line);
    }
    if (number == 0) errors_.add({file_, 1, 1}, "is empty; it needs a header and a line per run");
    errors_.throw_if_any();
    if (runs_.empty()) throw InputError(Place{file_, 1, 1}, "has a header, but no runs below it");
    return std::move(runs_);
  }

 private:
  std::size_t column(const std::vector<std::string_view>& heads, const std::string& wanted) {
    const auto found = std::find(heads.begin(), heads.end(), wanted);
    if (found == heads.end())
      errors_.add(place_, fmt::format("has no column {}; it has: {}", in_quotes(wanted), fmt::join(heads, ", ")));
    else if (std::find(found + 1, heads.end(), wanted) != heads.end())
      errors_.add(place_, fmt::format("has two columns {}; remove one", in_quotes(wanted)));
    return static_cast<std::size_t>(found - heads.begin());
  }

  void header(std::string_view line) {
    const std::vector<std::string_view> heads = fields_of(line);
    width_ = heads.size();
    for (const RunColumn& each : table_.columns)
      columns_.push_back(column(heads, each.head));
    devices_ = column(heads, table_.devices);
    time_ = column(heads, table_.time);
    errors_.throw_if_any();  // nothing below can be read
  }

  Place place_of(std::string_view field) const {
    return {file_, place_.line, static_cast<int>(field.data() - begin_) + 1};
  }

  std::int64_t count(const std::string& head, std::string_view text) {
    const Parsed<std::int64_t> number = parse_count(text);
    if (!number.value)
      errors_.add(place_of(text), fmt::format("{}: {} {}", head, in_quotes(text), number.why));
    else if (*number.value < 1)
      errors_.add(place_of(text), fmt::format("{}: {} must be at least 1", head, in_quotes(text)));
    return number.value.value_or(1);
  }

  double duration(std::string_view text) {
    const Parsed<double> number = parse_number(text);
    if (!number.value)
      errors_.add(place_of(text), fmt::format("{}: {} {}", table_.time, in_quotes(text), number.why));
    else if (!(*number.value > 0) || !std::isfinite(*number.value))
      errors_.add(place_of(text), fmt::format("{}: {} must be more than 0", table_.time, in_quotes(text)));
    return number.value.value_or(1);
  }

  void run(std::string_view line) {
    const std::vector<std::string_view> fields = fields_of(line);
    if (fields.size() != width_)
      return errors_.add(
          place_, fmt::format("has {} fields, the header has {}; is the line truncated?", fields.size(), width_));
    MeasuredRun run;
    run.group = group_.name, run.place = place_;
    for (std::size_t i = 0; i < columns_.size(); ++i)
      run.values.push_back(count(table_.columns[i].head, fields[columns_[i]]));
    run.devices = count(table_.devices, fields[devices_]);
    run.seconds = duration(fields[time_]) * table_.unit;
    run.fitted = table_.fit_every > 0 && place_.line % table_.fit_every == 0;
    runs_.push_back(std::move(run));
  }

  const MeasuredTable& table_;
  const RunFile& group_;
  const std::string& file_;
  Errors errors_;
  Place place_;                  // of the line
  const char* begin_ = nullptr;  // its first character
  std::size_t width_ = 0, devices_ = 0, time_ = 0;
  std::vector<std::size_t> columns_;
  std::vector<MeasuredRun> runs_;
};

}  // namespace

std::vector<MeasuredRun> parse_runs(const MeasuredTable& table, const RunFile& group, const std::string& text,
                                    const std::string& file) {
  return RunReader(table, group, file).read(text);
}

std::vector<MeasuredRun> read_runs(const MeasuredTable& table, const std::string& folder) {
  std::vector<MeasuredRun> runs;
  for (const RunFile& group : table.files) {
    const std::string file = (std::filesystem::path(folder) / group.file).string();
    for (MeasuredRun& run : parse_runs(table, group, read_file(file), file))
      runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace pipewright
