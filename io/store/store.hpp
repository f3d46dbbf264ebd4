// An SQLite database in one file: the only place that speaks with SQLite. What goes wrong is an InputError that names
// the file, what is the matter and a way out.
//
// Crash safety. The journal is a rollback journal, not a write-ahead log: that one needs memory shared between
// processes, which network file systems do not have, and its newest rows lie in a second file, which a copy of the
// first one leaves behind. What is committed is in the one file and on the disk (synchronous=FULL); a process that is
// killed in the midst of a transaction leaves FILE-journal behind, and whoever opens the file next undoes that
// transaction by it. One process at a time writes, and holds its lock until it ends.
//                                                              tests/io/store_test.cpp
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>

#include "core/rooms.hpp"

namespace pipewright::io {

// A value of a row: nothing, a whole number, a real number, a text.
using StoreValue = std::variant<std::monostate, std::int64_t, double, std::string>;

class Store {
 public:
  enum class Access {
    Read,   // the file must be there
    Write,  // made where it is not; no other process may read or write it meanwhile
  };
  Store(const std::string& path, Access access);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // One statement, its parameters "?" filled in order.
  void run(const std::string& sql, std::span<const StoreValue> values = {});
  // The rows of a query, one after the other.
  void each(const std::string& sql, const std::function<void(std::span<const StoreValue>)>& row);
  std::int64_t changes() const;  // rows that the last statement has written

  const std::string& path() const { return path_; }
  // What is there is not what this program writes: ends with a way out.
  [[noreturn]] void damaged(const std::string& why) const;

 private:
  struct Connection;
  std::string path_;
  std::unique_ptr<Connection> connection_;
};

// Whether the file begins as SQLite's do. False where there is no such file.
bool is_store(const std::string& path);

std::string store_status();  // "3.40.1", or "no: ..."

// Throws InputError where this program was built without SQLite.
void check_store_available();

}  // namespace pipewright::io
