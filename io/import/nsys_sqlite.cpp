#include "io/import/nsys_sqlite.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <sqlite3.h>

#include "core/check.hpp"
#include "core/plain_words.hpp"
#include "io/utf8.hpp"

namespace pipewright {
namespace {

constexpr std::size_t kMostRanges = std::size_t{1} << 20, kLongestName = 2000;
constexpr std::int64_t kLatest = std::int64_t{1} << 61;
constexpr int kLongestValue = 64 << 20;                 // bytes of one value
constexpr int kDeepestRange = 64;                       // ranges of one thread that hold one another
constexpr int kStepsAtOnce = 1'000'000;                 // between two looks at the work done
constexpr double kLeastSteps = 1e9;                     // of SQLite's machine, for small files
constexpr double kStepsPerByte = 64;                    // a row of a table takes a few hundred steps and tens of bytes
constexpr std::string_view kRanges = "59, 60, 70, 71";  // push and pop, start and end; of nvtxt, too

// ---- SQLite ---------------------------------------------------------------------------------------------------------

class Row {
 public:
  explicit Row(sqlite3_stmt* statement) : statement_(statement) {}

  std::optional<std::int64_t> number(int column) const {
    if (sqlite3_column_type(statement_, column) != SQLITE_INTEGER) return std::nullopt;
    return sqlite3_column_int64(statement_, column);
  }
  // "" of what is no text.
  std::string_view text(int column) const {
    if (sqlite3_column_type(statement_, column) != SQLITE_TEXT) return {};
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return bytes == nullptr
               ? std::string_view()
               : std::string_view(bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)));
  }

 private:
  sqlite3_stmt* statement_;
};

class Export {
 public:
  explicit Export(const std::string& path) : path_(path) {
    std::error_code unknown;
    steps_left_ = kLeastSteps + kStepsPerByte * static_cast<double>(std::filesystem::file_size(path, unknown));
    // A name like "file:x?mode=memory" or ":memory:" is a name here.
    const std::string name = path.front() == '/' ? path : "./" + path;
    sqlite3* handle = nullptr;
    const int status = sqlite3_open_v2(name.c_str(), &handle, SQLITE_OPEN_READONLY, nullptr);
    handle_.reset(handle);
    if (status != SQLITE_OK) fail(status);
    sqlite3_extended_result_codes(handle, 1);
    sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, kLongestValue);
    for (const int off : {SQLITE_DBCONFIG_TRUSTED_SCHEMA, SQLITE_DBCONFIG_ENABLE_TRIGGER, SQLITE_DBCONFIG_ENABLE_VIEW})
      sqlite3_db_config(handle, off, 0, nullptr);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_progress_handler(handle, kStepsAtOnce, &Export::progress, this);
    each("PRAGMA cell_size_check=ON", [](const Row&) {});
  }

  template <class Visit>
  void each(const std::string& sql, const Visit& visit) {
    sqlite3_stmt* raw = nullptr;
    if (const int status = sqlite3_prepare_v2(handle_.get(), sql.c_str(), -1, &raw, nullptr); status != SQLITE_OK)
      fail(status);
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(raw, sqlite3_finalize);
    int status = sqlite3_step(raw);
    for (; status == SQLITE_ROW; status = sqlite3_step(raw))
      visit(Row(raw));
    if (status != SQLITE_DONE) fail(status);
  }

  // Columns of an ordinary table; none where there is no such table. `table`: one of the constants of this file.
  std::set<std::string> columns(std::string_view table) {
    bool ordinary = false;
    each(fmt::format("SELECT type, sql FROM sqlite_master WHERE name = '{}'", table),
         [&](const Row& row) { ordinary = row.text(0) == "table" && row.text(1).starts_with("CREATE TABLE"); });
    std::set<std::string> names;
    if (ordinary)  // leaves out those that are generated
      each(fmt::format("PRAGMA table_info('{}')", table), [&](const Row& row) { names.emplace(row.text(1)); });
    return names;
  }

  [[noreturn]] void refuse(const std::string& why) const { throw InputError(path_ + ": " + why); }
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(sqlite3* handle) const { sqlite3_close(handle); }
  };

  static int progress(void* self) {
    Export& own = *static_cast<Export*>(self);
    own.steps_left_ -= kStepsAtOnce;
    return own.steps_left_ < 0 ? 1 : 0;
  }

  [[noreturn]] void fail(int status) const {
    const std::string said = handle_ ? sqlite3_errmsg(handle_.get()) : sqlite3_errstr(status);
    switch (status & 0xff) {
      case SQLITE_NOMEM:  // some damaged files end so, too
        refuse("is damaged, or needs more memory than there is; write it again: nsys export --type sqlite");
      case SQLITE_BUSY: refuse("is being written by another process; wait until nsys has ended");
      case SQLITE_INTERRUPT:
        refuse("takes more work than any export of its size; is it damaged? Write it again: nsys export --type sqlite");
      case SQLITE_CANTOPEN:
        refuse("cannot open: " + system_words(handle_ ? sqlite3_system_errno(handle_.get()) : 0) +
               "; name the file that nsys export --type sqlite wrote");
      default: refuse("is no sound export (" + said + "); write it again: nsys export --type sqlite");
    }
  }

  const std::string& path_;
  double steps_left_ = 0;
  std::unique_ptr<sqlite3, Close> handle_;
};

// ---- what is read ---------------------------------------------------------------------------------------------------

struct Range {
  std::int64_t thread, start, end;  // globalTid; ns of the host
  TracedAction action;
  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = -1;  // ns of the device; last -1: nothing
};

class ExportReader {
 public:
  explicit ExportReader(const std::string& path) : file_(path) {}

  ImportedRun read() {
    ImportedRun run;
    names_ = has("StringIds", {"id", "value"});
    const bool nvtx = has("NVTX_EVENTS", {"start", "end", "eventType", "globalTid"});
    const bool kernels = has("CUPTI_ACTIVITY_KIND_KERNEL", {"start", "end", "correlationId"});
    if (!nvtx && !kernels)
      file_.refuse(
          "has neither a table NVTX_EVENTS nor CUPTI_ACTIVITY_KIND_KERNEL with the documented columns; profile with "
          "--trace cuda,nvtx and write nsys export --type sqlite");
    run.source = source_of(file_.path(), "SQLite export of Nsight Systems");
    if (nvtx) read_ranges();
    if (!ranges_.empty()) {
      project();
      run.trace = trace(run.source);
    }
    if (kernels) read_kernels(run);
    if (!run.trace && run.kernels.empty())
      file_.refuse(
          "has no range such as \"PP:0F3\" and no kernels; PyTorch's schedules mark actions so when they run under "
          "torch.autograd.profiler.emit_nvtx()");
    if (!run.trace) run.source.absent.emplace_back("when a kernel ran, and in which step or action");
    run.source.absent.emplace_back("rank; memory");
    return run;
  }

 private:
  bool has(std::string_view table, std::initializer_list<const char*> needed) {
    std::set<std::string>& columns = tables_[std::string(table)] = file_.columns(table);
    const bool all =
        std::all_of(needed.begin(), needed.end(), [&](const char* name) { return columns.contains(name); });
    if (!all) columns.clear();
    return all;
  }
  bool column(const std::string& table, const char* name) const { return tables_.at(table).contains(name); }

  std::int64_t time(const Row& row, int column, std::string_view table, std::string_view name) const {
    const std::optional<std::int64_t> value = row.number(column);
    if (!value || *value < 0 || *value > kLatest)
      file_.refuse(fmt::format("{}: a {} that is no number of nanoseconds; write it again: nsys export --type sqlite",
                               table, name));
    return *value;
  }

  // The name of a range is its text, or the string of its textId.
  void read_ranges() {
    const bool id = names_ && column("NVTX_EVENTS", "textId"), text = column("NVTX_EVENTS", "text");
    if (!id && !text) return;
    const std::string name = id && text ? "COALESCE(n.text, s.value)" : id ? "s.value" : "n.text";
    const std::string sql =
        fmt::format("SELECT {}, n.start, n.\"end\", n.globalTid FROM NVTX_EVENTS n {} WHERE n.eventType IN ({})", name,
                    id ? "LEFT JOIN StringIds s ON s.id = n.textId" : "", kRanges);
    file_.each(sql, [&](const Row& row) { add_range(row); });
    std::stable_sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) {
      return std::pair(a.thread, a.start) < std::pair(b.thread, b.start);
    });
  }

  void add_range(const Row& row) {
    std::string_view name = row.text(0);
    const std::size_t mark = name.find("PP:");
    if (mark == std::string_view::npos || (mark > 0 && name[mark - 1] != ':')) return;
    const std::optional<TracedAction> action = action_named(name.substr(mark + 3));
    if (!action) {
      ++other_actions_;
      return;
    }
    if (!row.number(2)) {  // the profile ended within it
      ++unended_;
      return;
    }
    if (ranges_.size() == kMostRanges)
      file_.refuse(fmt::format("more than {} actions; profile fewer steps", kMostRanges));
    const std::optional<std::int64_t> thread = row.number(3);
    if (!thread) file_.refuse("NVTX_EVENTS: a globalTid that is no number; write it again: nsys export --type sqlite");
    Range range{*thread, time(row, 1, "NVTX_EVENTS", "start"), time(row, 2, "NVTX_EVENTS", "end"), *action};
    if (range.end < range.start) file_.refuse("NVTX_EVENTS: an action that ends before it starts");
    range.action.process = *thread / 0x1000000 % 0x1000000;
    range.action.line = 0;
    ranges_.push_back(range);
  }

  // What the calls within a range made the device do.
  void project() {
    if (!has("CUPTI_ACTIVITY_KIND_RUNTIME", {"start", "globalTid", "correlationId"})) return;
    for (const char* table :
         {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"}) {
      if (!has(table, {"start", "end", "correlationId"})) continue;
      const char* same_process = column(table, "globalPid") ? " AND (r.globalTid >> 24) = (k.globalPid >> 24)" : "";
      file_.each(fmt::format("SELECT r.globalTid, r.start, k.start, k.\"end\" FROM {} k JOIN "
                             "CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId{}",
                             table, same_process),
                 [&](const Row& row) {
                   const std::optional<std::int64_t> thread = row.number(0), call = row.number(1);
                   if (!thread || !call) return;
                   const std::int64_t start = time(row, 2, table, "start"), end = time(row, 3, table, "end");
                   if (end < start) file_.refuse(fmt::format("{}: a row that ends before it starts", table));
                   cover(*thread, *call, start, end);
                 });
    }
  }

  void cover(std::int64_t thread, std::int64_t call, std::int64_t start, std::int64_t end) {
    auto at = std::upper_bound(
        ranges_.begin(), ranges_.end(), std::pair(thread, call),
        [](const auto& key, const Range& range) { return key < std::pair(range.thread, range.start); });
    for (int i = 0; i < kDeepestRange && at != ranges_.begin(); ++i) {
      Range& range = *--at;
      if (range.thread != thread) return;
      if (range.end > call) range.first = std::min(range.first, start), range.last = std::max(range.last, end);
    }
  }

  ActionTrace trace(ImportSource& source) const {
    ActionTrace trace;
    trace.file = file_.path(), trace.other_actions = other_actions_;
    trace.on_device = std::any_of(ranges_.begin(), ranges_.end(), [](const Range& range) { return range.last >= 0; });
    std::size_t idle = 0;
    for (const Range& range : ranges_) {
      TracedAction action = range.action;
      if (trace.on_device && range.last < 0) {
        ++idle;
        continue;
      }
      action.start = Time{trace.on_device ? range.first : range.start};
      action.duration = Time{trace.on_device ? range.last - range.first : range.end - range.start};
      trace.actions.push_back(action);
    }
    std::stable_sort(trace.actions.begin(), trace.actions.end(),
                     [](const TracedAction& a, const TracedAction& b) { return a.start < b.start; });
    source.assumed.emplace_back(trace.on_device
                                    ? "times are of the device: first to last of what an action's thread launched in it"
                                    : "times are of the host, which may run ahead of its device");
    if (idle > 0) source.assumed.push_back(fmt::format("{} actions that launched nothing are left out", idle));
    if (unended_ > 0) source.assumed.push_back(fmt::format("{} actions without an end are left out", unended_));
    source.assumed.emplace_back("starts count from the first action of the file");
    return trace;
  }

  void read_kernels(ImportedRun& run) {
    const std::string table = "CUPTI_ACTIVITY_KIND_KERNEL";
    const char* name = column(table, "demangledName") ? "demangledName"
                       : column(table, "shortName")   ? "shortName"
                                                      : nullptr;
    if (name == nullptr || !names_) return;
    std::int64_t all = 0, wrong = 0;
    file_.each(fmt::format("SELECT COUNT(DISTINCT {}), COALESCE(SUM(typeof(start) <> 'integer' OR typeof(\"end\") <> "
                           "'integer' OR start < 0 OR \"end\" < start OR \"end\" > {}), 0) FROM {}",
                           name, kLatest, table),
               [&](const Row& row) { all = row.number(0).value_or(0), wrong = row.number(1).value_or(0); });
    if (wrong > 0)
      file_.refuse(fmt::format(
          "{}: {} rows whose start and end are no times; write it again: nsys export --type sqlite", table, wrong));
    std::size_t rows = 0;
    file_.each(fmt::format("SELECT s.value, g.calls, g.total FROM (SELECT {0} AS name, COUNT(*) AS calls, "
                           "SUM(\"end\" - start) AS total FROM {1} GROUP BY {0} ORDER BY total DESC, {0} LIMIT {2}) g "
                           "JOIN StringIds s ON s.id = g.name ORDER BY g.total DESC, s.value LIMIT {2}",
                           name, table, kMostRunKernels),
               [&](const Row& row) {
                 ++rows;
                 KernelSum sum{one_line(row.text(0).substr(0, kLongestName)), row.number(1).value_or(0),
                               Time{row.number(2).value_or(0)}};
                 if (sum.calls > 0 && sum.total <= Time{kLatest}) run.kernels.push_back(std::move(sum));
               });
    if (all > static_cast<std::int64_t>(rows))
      run.source.assumed.push_back(fmt::format("of {} kernels the {} longest are kept", all, rows));
  }

  Export file_;
  std::map<std::string, std::set<std::string>> tables_;
  bool names_ = false;
  std::vector<Range> ranges_;  // by thread and start
  std::int64_t other_actions_ = 0;
  std::size_t unended_ = 0;
};

}  // namespace

ImportedRun import_nsys_sqlite(const std::string& path) {
  return ExportReader(path).read();
}

}  // namespace pipewright
