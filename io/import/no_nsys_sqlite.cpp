// Built without SQLite: an export of nsys says how to read it all the same.
#include "core/check.hpp"
#include "io/import/nsys_sqlite.hpp"

namespace pipewright {

ImportedRun import_nsys_sqlite(const std::string& path) {
  throw InputError(
      path +
      ": is an SQLite export, and this pipewright was built without SQLite; install it (Debian: "
      "libsqlite3-dev) and build again, or write nsys stats --report nvtx_gpu_proj_trace --format csv FILE "
      "and import what it prints");
}

}  // namespace pipewright
