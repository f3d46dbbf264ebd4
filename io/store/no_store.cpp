// Built without SQLite: every use of a database says how to get it.
#include "core/check.hpp"
#include "io/store/store.hpp"

namespace pipewright::io {

struct Store::Connection {};

Store::Store(const std::string& path, Access) : path_(path) {
  check_store_available();
}
Store::~Store() = default;
void Store::run(const std::string&, std::span<const StoreValue>) {}
void Store::each(const std::string&, const std::function<void(std::span<const StoreValue>)>&) {}
std::int64_t Store::changes() const {
  return 0;
}
void Store::damaged(const std::string& why) const {
  throw InputError(path_ + ": " + why);
}

bool is_store(const std::string&) {
  return false;
}

std::string store_status() {
  return "no: sweeps keep no database (Debian: libsqlite3-dev)";
}

void check_store_available() {
  throw InputError(
      "this pipewright was built without SQLite, which databases (.db, .sqlite) need; install it (Debian: "
      "libsqlite3-dev) and build again, or write -o results.csv");
}

}  // namespace pipewright::io
