// Quantities as text: exact decimals for files, a few significant digits with a unit for people.
//
// Files get seconds with nine decimals and microseconds with three, cut out of the whole nanoseconds, never through a
// double. People get 3 or 4 digits; whole numbers keep all of theirs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/units.hpp"

namespace pipewright::io {

std::string exact_seconds(Time time);  // 33 ms: "0.033000000"

std::string significant(double value, int digits = 3);  // 0.2727 -> "0.273", 33 -> "33.0", 7757.6 -> "7758"

std::string brief(double value);  // four digits without trailing zeros: 4 -> "4", 1.05 -> "1.05", 10.0 -> "10"

std::string short_time(Time time, int digits = 3);  // "33.0 ms"; units ns, us, ms, s
std::string brief_time(Time time);                  // without trailing zeros, four digits: "1 ms", "521.4 us"
std::string short_bytes(Bytes bytes);               // "6.10 GiB"; units B, KiB, MiB, GiB, TiB
std::string short_count(double count);              // "138 M"; suffixes k, M, B (1e9), T
std::string short_bandwidth(Bandwidth bandwidth);   // "450 GB/s"; powers of ten, as vendors state it
std::string percent(double share);                  // 0.2727 -> "27.3 %", 1e-6 -> "<0.01 %"
std::string whole_percent(double share);            // 0.2727 -> "27 %", 0.004 -> "<1 %"
std::string signed_percent(double share);           // 0.0271 -> "+2.7 %"

// One unit for a whole column, so that its figures can be compared at a glance.
struct Scale {
  double unit = 1;   // in ns or bytes
  std::string name;  // "ms", "GiB"
  int decimals = 0;
};
Scale time_scale(Time largest);    // the largest figure of the column gets four digits
Scale bytes_scale(Bytes largest);  // three digits
std::string in_scale(std::int64_t value, const Scale& scale);

// Columns that a UTF-8 text takes on a terminal: its code points (no wide or combining characters are written here).
int display_width(std::string_view text);

}  // namespace pipewright::io
