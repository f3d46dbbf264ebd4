// Numbers with units, as text: "2.211 ms", "80 GiB", "400 Gb/s", "15.7 TFLOP/s".
//
//   time        ns us ms s min h
//   size        B kB MB GB TB (powers of 1000), KiB MiB GiB TiB (powers of 1024)
//   bandwidth   a size per second, or bits per second: b/s kb/s Mb/s Gb/s Tb/s (8 b = 1 B)
//   work        FLOP kFLOP MFLOP GFLOP TFLOP PFLOP EFLOP
//   rate        the same per second: TFLOP/s
//   power       W kW MW
//
// Times and sizes go from decimal text straight to whole nanoseconds and bytes, never through a double: what is finer
// is rounded once, halves up. "2.211 ms" is 2211000 ns; "400 Gb/s" is exactly "50 GB/s".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/units.hpp"

namespace pipewright::io {

// A value, or why there is none: a clause that follows the quoted text, with a way out.
template <class T>
struct Parsed {
  std::optional<T> value;
  std::string why;
  bool no_number = false;  // that is why: the text has no number at its head
  bool negative = false;   // or that: what is read has a law that may say more
};

Parsed<Time> parse_time(std::string_view text);
Parsed<Bytes> parse_bytes(std::string_view text);
Parsed<Bandwidth> parse_bandwidth(std::string_view text);
Parsed<Flops> parse_flops(std::string_view text);
Parsed<FlopRate> parse_flop_rate(std::string_view text);
Parsed<Power> parse_power(std::string_view text);

// Plain numbers. Integers are decimal digits only: no sign, no leading zero, no exponent, no separators.
Parsed<std::int64_t> parse_count(std::string_view text);
// Parameters of a layer, as a count or as the size of their fp32 weights (4 B each):
//     7e9, 1.5M (k, M, G)            a count, which must come out whole
//     28 GB, 600 MiB, 2048 bytes     a size
// "8B" is refused: in this field B is read as billions by some and as bytes by others.
Parsed<std::int64_t> parse_parameters(std::string_view text);

Parsed<double> parse_number(std::string_view text);

// A decimal number (as profiles hold them) times a power of ten, rounded once: parse_scaled("2.211", 6) = 2211000.
Parsed<std::int64_t> parse_scaled(std::string_view text, int power_of_ten);

// The shortest text that reads back to the same value, in the largest fitting unit: "2.211 ms", "196 MiB".
std::string to_text(Time time);
std::string to_text(Bytes bytes);
std::string to_text(Bandwidth bandwidth);
std::string to_text(Flops flops);
std::string to_text(FlopRate rate);
std::string to_text(Power power);

}  // namespace pipewright::io
