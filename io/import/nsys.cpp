#include "io/import/nsys.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "io/errors.hpp"
#include "io/import/byte_source.hpp"
#include "io/import/nsys_sqlite.hpp"
#include "io/quantity.hpp"
#include "io/read_file.hpp"
#include "io/utf8.hpp"

namespace pipewright {
namespace {

constexpr std::size_t kLongestField = std::size_t{1} << 20, kMostFields = 256, kMostRows = std::size_t{1} << 22;
constexpr std::int64_t kLatest = std::int64_t{1} << 61;
constexpr int kLinesBeforeHeader = 1000;

struct Row {
  std::vector<std::string> fields;
  std::int64_t line = 1;  // that it begins on
};

// Fields may be in quotes, which are doubled inside, and then hold commas and line ends.
class CsvRows {
 public:
  explicit CsvRows(const std::string& path) : source_(path) {}

  bool next(Row& row) {
    row.fields.assign(1, "");
    row.line = line_;
    bool quoted = false, any = false;
    for (int byte = source_.next();; byte = source_.next()) {
      if (byte < 0) {
        if (quoted) throw InputError(Place{name(), place(row), 1}, "a quote that never ends; is the file cut off?");
        return any;
      }
      any = true;
      const char c = static_cast<char>(byte);
      if (c == '\n') ++line_;
      if (quoted) {
        if (c != '"') {
          add(row, c);
        } else {
          quoted = false;
          closed_ = true;
        }
        continue;
      }
      if (c == '"') {
        if (closed_) add(row, c);  // "" inside quotes
        quoted = true, closed_ = false;
        continue;
      }
      closed_ = false;
      if (c == '\n') return true;
      if (c == ',') {
        if (row.fields.size() == kMostFields)
          throw InputError(Place{name(), place(row), 1}, fmt::format("more than {} fields", kMostFields));
        row.fields.emplace_back();
      } else if (c != '\r') {
        add(row, c);
      }
    }
  }

  const std::string& name() const { return source_.name(); }
  std::int64_t bytes() const { return source_.bytes(); }
  static int place(const Row& row) { return static_cast<int>(std::min<std::int64_t>(row.line, 1 << 30)); }

 private:
  void add(Row& row, char c) {
    if (row.fields.back().size() == kLongestField)
      throw InputError(Place{name(), place(row), 1}, "a field of more than 1 MiB; is this what nsys stats wrote?");
    row.fields.back() += c;
  }

  ByteSource source_;
  std::int64_t line_ = 1;
  bool closed_ = false;
};

class NsysReader {
 public:
  explicit NsysReader(const std::string& path) : rows_(path), path_(path) {}

  ImportedRun read() {
    header();
    const bool sums = has("Total Time (ns)") && has("Instances");
    ImportedRun run;
    Row row;
    for (std::size_t count = 0; rows_.next(row);) {
      if (row.fields.size() == 1 && row.fields[0].empty()) continue;
      if (++count > kMostRows) throw InputError(at(row), fmt::format("more than {} rows; profile less", kMostRows));
      if (row.fields.size() < columns_)
        throw InputError(at(row), fmt::format("has {} fields, the header has {}; is the file cut off?",
                                              row.fields.size(), columns_));
      sums ? kernel(row, run) : range(row);
    }
    sums ? finish_sums(run) : finish_trace(run);
    return run;
  }

 private:
  Place at(const Row& row) const { return {rows_.name(), CsvRows::place(row), 1}; }
  bool has(const std::string& column) const { return column_.contains(column); }

  // The first row with a column Name and times.
  void header() {
    Row row;
    for (int line = 0; line < kLinesBeforeHeader && rows_.next(row); ++line) {
      if (line == 0 && row.fields[0].starts_with("SQLite format 3"))
        throw InputError(rows_.name() + ": is an SQLite export, which is read from a file only; name the file");
      if (std::find(row.fields.begin(), row.fields.end(), "Name") == row.fields.end()) continue;
      for (std::size_t i = 0; i < row.fields.size(); ++i)
        column_.emplace(row.fields[i], i);
      columns_ = row.fields.size();
      projected_ = has("Projected Start (ns)") && has("Projected Duration (ns)");
      const bool host = has("Start (ns)") && (has("Duration (ns)") || has("End (ns)"));
      if (projected_ || host || (has("Total Time (ns)") && has("Instances"))) return;
      throw InputError(at(row),
                       "a header without times in ns; known reports: nvtx_gpu_proj_trace, nvtx_pushpop_trace, "
                       "cuda_gpu_kern_sum, of nsys stats --format csv --timeunit nsec");
    }
    if (rows_.bytes() == 0) throw InputError(rows_.name() + ": is empty; name what nsys stats --format csv wrote");
    throw InputError(rows_.name() + ": has no header with a column Name; name what nsys stats --format csv wrote");
  }

  const std::string& field(const Row& row, const std::string& column) const { return row.fields[column_.at(column)]; }

  std::int64_t number(const Row& row, const std::string& column) const {
    const std::string& text = field(row, column);
    const Parsed<std::int64_t> value = parse_scaled(text, 0);
    if (!value.value || *value.value > kLatest)
      throw InputError(at(row), fmt::format("{}: {} is no number of nanoseconds; write the report with --timeunit nsec",
                                            column, in_quotes(text)));
    return *value.value;
  }

  void kernel(const Row& row, ImportedRun& run) {
    KernelSum sum;
    sum.name = one_line(field(row, "Name").substr(0, 2000));
    const Parsed<std::int64_t> calls = parse_count(field(row, "Instances"));
    if (!calls.value || *calls.value < 1 || *calls.value > 1'000'000'000)
      throw InputError(at(row), fmt::format("Instances: {} is no number of calls", in_quotes(field(row, "Instances"))));
    sum.calls = *calls.value;
    sum.total = Time{number(row, "Total Time (ns)")};
    run.kernels.push_back(std::move(sum));
    ++kernels_;
    if (run.kernels.size() >= 2 * kMostRunKernels) keep_longest(run);
  }

  // So memory stays bounded, however long the report. Of equally long ones those that stand first.
  static void keep_longest(ImportedRun& run) {
    std::stable_sort(run.kernels.begin(), run.kernels.end(),
                     [](const KernelSum& a, const KernelSum& b) { return a.total > b.total; });
    if (run.kernels.size() > kMostRunKernels) run.kernels.resize(kMostRunKernels);
  }

  // ":PP:0F3" of the default domain, "torch:PP:0F3".
  void range(const Row& row) {
    std::string_view name = field(row, "Name");
    const std::size_t mark = name.find("PP:");
    if (mark == std::string_view::npos || (mark > 0 && name[mark - 1] != ':')) return;
    std::optional<TracedAction> action = action_named(name.substr(mark + 3));
    if (!action) {
      ++trace_.other_actions;
      return;
    }
    action->start = Time{number(row, projected_ ? "Projected Start (ns)" : "Start (ns)")};
    if (projected_ || has("Duration (ns)")) {
      action->duration = Time{number(row, projected_ ? "Projected Duration (ns)" : "Duration (ns)")};
    } else {
      const Time end{number(row, "End (ns)")};
      if (end < action->start) throw InputError(at(row), "an action that ends before it starts");
      action->duration = end - action->start;
    }
    action->process = has("PID") ? parse_count(field(row, "PID")).value.value_or(-1) : -1;
    action->line = CsvRows::place(row);
    trace_.actions.push_back(*action);
  }

  void finish_sums(ImportedRun& run) const {
    if (run.kernels.empty()) throw InputError(rows_.name() + ": has a header, but no kernels below it");
    keep_longest(run);
    run.source = source_of(path_, "kernels of Nsight Systems");
    if (kernels_ > run.kernels.size())
      run.source.assumed.push_back(fmt::format("of {} kernels the {} longest are kept", kernels_, run.kernels.size()));
    run.source.absent.emplace_back("when a kernel ran, and in which step or action");
  }

  void finish_trace(ImportedRun& run) {
    if (trace_.actions.empty())
      throw InputError(rows_.name() +
                       ": has no range such as \"PP:0F3\"; PyTorch's schedules mark actions so when they "
                       "run under torch.autograd.profiler.emit_nvtx()");
    trace_.file = rows_.name();
    trace_.on_device = projected_;
    std::stable_sort(trace_.actions.begin(), trace_.actions.end(),
                     [](const TracedAction& a, const TracedAction& b) { return a.start < b.start; });
    run.source = source_of(path_, "ranges of Nsight Systems");
    run.source.assumed.emplace_back(trace_.on_device ? "times are of the device, as nsys projects ranges onto it"
                                                     : "times are of the host, which may run ahead of its device");
    run.source.assumed.emplace_back("starts count from the first action of the file");
    run.source.absent.emplace_back("rank; memory");
    run.trace = std::move(trace_);
  }

  CsvRows rows_;
  const std::string& path_;
  std::map<std::string, std::size_t> column_;
  std::size_t columns_ = 0, kernels_ = 0;
  bool projected_ = false;  // times of the device, both of them
  ActionTrace trace_;
};

}  // namespace

bool is_nsys_sqlite(const std::string& path) {
  constexpr std::string_view magic = "SQLite format 3";
  std::error_code unknown;  // a pipe could be read once only
  if (path == "-" || !std::filesystem::is_regular_file(path, unknown)) return false;
  std::string begin(magic.size(), '\0');
  try {
    FilePieces file(path);
    begin.resize(file.read(begin));
  } catch (const InputError&) {
    return false;  // whoever reads it tells
  }
  return begin == magic;
}

ImportedRun import_nsys(const std::string& path) {
  if (is_nsys_sqlite(path)) return import_nsys_sqlite(path);
  return NsysReader(path).read();
}

}  // namespace pipewright
