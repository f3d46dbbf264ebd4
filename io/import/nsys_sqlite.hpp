// Nsight Systems' SQLite export (`nsys export --type sqlite`), as NVIDIA documents its tables (Nsight Systems, SQLite
// Export Schema Reference; the format may change, so what is missing is named):
//
//   NVTX_EVENTS                    start, end, eventType, text, textId, globalTid      ranges: eventType 59, 60, 70, 71
//   StringIds                      id, value
//   CUPTI_ACTIVITY_KIND_RUNTIME    start, globalTid, correlationId                     calls on the host
//   CUPTI_ACTIVITY_KIND_KERNEL     start, end, correlationId, globalPid, demangledName; _MEMCPY and _MEMSET likewise
//
// Times are ns, globalTid / 0x1000000 % 0x1000000 is the process. An action "PP:0F3" takes from the start of the first
// to the end of the last kernel, copy or memset that its thread launched within its range, as nsys itself projects
// ranges onto the device; where no range launched anything, times are the host's.
//
// The file is somebody else's: it is opened to be read only, its views, triggers, virtual tables and generated columns
// are not used, values are bounded, and so is the work of a query, by the size of the file.
//                                                              tests/io/nsys_sqlite_test.cpp
#pragma once

#include <string>

#include "io/import/run_file.hpp"

namespace pipewright {

// Whether the file begins as SQLite's do, whatever this program was built with.
bool is_nsys_sqlite(const std::string& path);

// A run with a trace, with kernels, or with both. Throws InputError: no such tables, columns or ranges, times that are
// none, a damaged file; and where this program was built without SQLite.
ImportedRun import_nsys_sqlite(const std::string& path);

}  // namespace pipewright
