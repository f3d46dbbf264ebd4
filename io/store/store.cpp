#include "io/store/store.hpp"

#include <array>
#include <cerrno>
#include <fstream>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "core/check.hpp"
#include "core/ids.hpp"
#include "core/plain_words.hpp"

namespace pipewright::io {
namespace {

constexpr std::string_view kMagic{"SQLite format 3\0", 16};
constexpr int kPatience = 250;  // ms: locks of readers are shorter, those of writers last as long as they run

// Checked before SQLite looks: it would take a folder for "unable to open", and a FIFO would wait.
void check_path(const std::string& path, Store::Access access) {
  struct stat status {};
  if (path.empty()) throw InputError("a database needs a name; write e.g. -o results.db");
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT && access == Store::Access::Write) return;
    throw InputError(fmt::format("{}: cannot read: {}; name a database that is there", path, system_words(errno)));
  }
  if (S_ISDIR(status.st_mode))
    throw InputError(fmt::format("{}: is a folder, not a database; name a file in it, e.g. {}/results.db", path, path));
  if (!S_ISREG(status.st_mode))
    throw InputError(path + ": is not an ordinary file, and a database must be one; name another file");
  if (status.st_size > 0 && !is_store(path)) {
    errno = 0;
    if (std::ifstream file(path); !file)
      throw InputError(fmt::format("{}: cannot read: {}; make it readable", path, system_words(errno)));
    throw InputError(path + ": is not an SQLite database; name a file that `sweep FILE -o results.db` has written");
  }
}

int bind(sqlite3_stmt* statement, int place, const StoreValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return sqlite3_bind_int64(statement, place, *number);
  if (const auto* real = std::get_if<double>(&value)) return sqlite3_bind_double(statement, place, *real);
  if (const auto* text = std::get_if<std::string>(&value))
    return sqlite3_bind_text(statement, place, text->data(), static_cast<int>(text->size()), SQLITE_TRANSIENT);
  return sqlite3_bind_null(statement, place);
}

StoreValue column(sqlite3_stmt* statement, int number) {
  switch (sqlite3_column_type(statement, number)) {
    case SQLITE_INTEGER: return sqlite3_column_int64(statement, number);
    case SQLITE_FLOAT: return sqlite3_column_double(statement, number);
    case SQLITE_NULL: return std::monostate{};
    default: {
      const auto* text = static_cast<const char*>(sqlite3_column_blob(statement, number));
      return std::string(text == nullptr ? "" : text, at(sqlite3_column_bytes(statement, number)));
    }
  }
}

}  // namespace

struct Store::Connection {
  sqlite3* handle = nullptr;
  std::map<std::string, sqlite3_stmt*, std::less<>> statements;
  ~Connection() {
    for (const auto& [sql, statement] : statements)
      sqlite3_finalize(statement);
    sqlite3_close(handle);
  }

  // What SQLite's status means for who typed the command.
  [[noreturn]] void fail(const std::string& path, int status) const {
    const std::string said = handle != nullptr ? sqlite3_errmsg(handle) : sqlite3_errstr(status);
    const int number = handle != nullptr ? sqlite3_system_errno(handle) : 0;
    const std::string why = number != 0 ? ": " + system_words(number) : "";
    const auto refuse = [&](const std::string& text) { throw InputError(path + ": " + text); };
    switch (status & 0xff) {
      case SQLITE_BUSY:
      case SQLITE_LOCKED: refuse("another process is writing this database; wait until it has ended"); break;
      case SQLITE_FULL:
        refuse("the disk is full; what was committed is kept: free some space, then go on with --resume");
        break;
      case SQLITE_READONLY:
      case SQLITE_PERM:
        refuse("cannot write" + why + "; make the file and its folder writable, or name another with -o");
        break;
      case SQLITE_CANTOPEN:
        refuse("cannot open" + why +
               "; its folder must exist and be writable, as SQLite keeps a journal next to the file");
        break;
      case SQLITE_CORRUPT:
        refuse("the database is damaged; `sqlite3 " + path +
               " .recover` shows what is left, another name starts a new one");
        break;
      case SQLITE_NOTADB:
        refuse("is not an SQLite database; name a file that `sweep FILE -o results.db` has written");
        break;
      case SQLITE_IOERR:
        if (number == EFBIG)
          refuse(
              "files may not be so large here; what was committed is kept: raise the limit (ulimit -f), then go on "
              "with --resume");
        refuse("cannot read or write" + why +
               "; what was committed is kept: go on with --resume once the disk is healthy");
        break;
      case SQLITE_NOMEM: throw std::bad_alloc();
      default: break;  // a table or column is missing, its format is not known: SQLite names it
    }
    throw InputError(fmt::format(
        "{}: this is not the database of a sweep, or something else has written to it ({}); name another file", path,
        said));
  }

  void check(const std::string& path, int status) const {
    if (status != SQLITE_OK) fail(path, status);
  }

  sqlite3_stmt* prepared(const std::string& path, const std::string& sql) {
    if (const auto found = statements.find(sql); found != statements.end()) {
      sqlite3_reset(found->second);
      return found->second;
    }
    sqlite3_stmt* statement = nullptr;
    check(path, sqlite3_prepare_v2(handle, sql.c_str(), static_cast<int>(sql.size()), &statement, nullptr));
    return statements.emplace(sql, statement).first->second;
  }
};

Store::Store(const std::string& path, Access access) : path_(path), connection_(std::make_unique<Connection>()) {
  check_path(path, access);
  // A name like "file:x?mode=memory" or ":memory:" is a name here.
  const std::string name = path.front() == '/' ? path : "./" + path;
  const int flags = SQLITE_OPEN_READWRITE | (access == Access::Write ? SQLITE_OPEN_CREATE : 0);
  Connection& c = *connection_;
  c.check(path, sqlite3_open_v2(name.c_str(), &c.handle, flags, nullptr));
  sqlite3_extended_result_codes(c.handle, 1);
  sqlite3_busy_timeout(c.handle, kPatience);
  run("PRAGMA trusted_schema=OFF");
  run("PRAGMA cell_size_check=ON");
  if (access == Access::Read) return;
  if (sqlite3_db_readonly(c.handle, "main") != 0)
    throw InputError(path + ": cannot write: it is read-only; make it writable, or name another file with -o");
  run("PRAGMA locking_mode=EXCLUSIVE");
  run("PRAGMA synchronous=FULL");
  run("BEGIN IMMEDIATE");  // takes the lock, which stays
  run("COMMIT");
}

Store::~Store() = default;

void Store::run(const std::string& sql, std::span<const StoreValue> values) {
  Connection& c = *connection_;
  sqlite3_stmt* const statement = c.prepared(path_, sql);
  for (std::size_t i = 0; i < values.size(); ++i)
    c.check(path_, bind(statement, static_cast<int>(i) + 1, values[i]));
  int status = SQLITE_ROW;
  while (status == SQLITE_ROW)
    status = sqlite3_step(statement);
  if (status != SQLITE_DONE) c.fail(path_, status);
  sqlite3_reset(statement);
}

void Store::each(const std::string& sql, const std::function<void(std::span<const StoreValue>)>& row) {
  Connection& c = *connection_;
  sqlite3_stmt* const statement = c.prepared(path_, sql);
  std::vector<StoreValue> values(at(sqlite3_column_count(statement)));
  int status = sqlite3_step(statement);
  for (; status == SQLITE_ROW; status = sqlite3_step(statement)) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = column(statement, static_cast<int>(i));
    row(values);
  }
  if (status != SQLITE_DONE) c.fail(path_, status);
  sqlite3_reset(statement);
}

std::int64_t Store::changes() const {
  return sqlite3_changes(connection_->handle);
}

void Store::damaged(const std::string& why) const {
  throw InputError(fmt::format(
      "{}: {}; this is not a database of a sweep, or something else has written to it: name another file", path_, why));
}

bool is_store(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  std::ifstream file(path, std::ios::binary);
  std::array<char, kMagic.size()> begin{};
  return file.read(begin.data(), begin.size()) && std::string_view(begin.data(), begin.size()) == kMagic;
}

std::string store_status() {
  return sqlite3_libversion();
}

void check_store_available() {}

}  // namespace pipewright::io
