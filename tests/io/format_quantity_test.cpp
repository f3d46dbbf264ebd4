#include "io/text/format_quantity.hpp"

#include <doctest/doctest.h>

namespace pipewright::tests {

TEST_CASE("seconds and microseconds are cut out of whole nanoseconds") {
  CHECK(exact_seconds(Time{33'000'000}) == "0.033000000");
  CHECK(exact_seconds(Time{1}) == "0.000000001");
  CHECK(exact_seconds(Time{-1'500'000'000}) == "-1.500000000");
  CHECK(exact_seconds(Time{kLargest}) == "4611686018.427387904");  // 2^62 ns; a double holds 16 digits of it
}

TEST_CASE("figures for people have a few significant digits, whole numbers all of theirs") {
  CHECK(significant(0.27272) == "0.273");
  CHECK(significant(33) == "33.0");
  CHECK(significant(7757.6) == "7758");
  CHECK(significant(9.996) == "10.0");
  CHECK(significant(0) == "0");
}

TEST_CASE("brief figures lose their trailing zeros and nothing else") {
  CHECK(brief(4) == "4");
  CHECK(brief(1.05) == "1.05");
  CHECK(brief(0.05) == "0.05");
  CHECK(brief(10) == "10");
  CHECK(brief(100) == "100");
  CHECK(brief(99.95) == "99.95");
  CHECK(brief(2.01) == "2.01");
  CHECK(brief(1000) == "1000");
  CHECK(brief(99.996) == "100");
  CHECK(brief(0) == "0");
  CHECK(brief(-1.5) == "-1.5");
  CHECK(brief_time(Time{0}) == "0 s");
  CHECK(brief_time(Time{250}) == "250 ns");
  CHECK(brief_time(Time{10'050'000}) == "10.05 ms");
}

TEST_CASE("units change where rounding reaches the next one") {
  CHECK(short_time(Time{999}) == "999 ns");
  CHECK(short_time(Time{999'400}) == "999 us");
  CHECK(short_time(Time{999'600}) == "1.00 ms");
  CHECK(short_time(Time{33'000'000}, 4) == "33.00 ms");
  CHECK(brief_time(Time{1'000'000}) == "1 ms");
  CHECK(brief_time(Time{521'400}) == "521.4 us");
  CHECK(brief_time(Time{100'000'000}) == "100 ms");
  CHECK(short_bytes(Bytes{512}) == "512 B");
  CHECK(short_bytes(Bytes{std::int64_t{16} << 30}) == "16.0 GiB");
  CHECK(short_bandwidth(Bandwidth{450e9}) == "450 GB/s");
  CHECK(short_count(138'357'544) == "138 M");
}

TEST_CASE("a share is printed as a percentage; a small one keeps its digits") {
  CHECK(percent(3.0 / 11) == "27.3 %");
  CHECK(percent(1) == "100 %");
  CHECK(percent(0) == "0 %");
  CHECK(percent(0.0006) == "0.06 %");
  CHECK(percent(0.00996) == "1.0 %");
  CHECK(percent(0.9994) == "99.9 %");
  CHECK(percent(0.9996) == "100 %");
  CHECK(percent(0.00001) == "<0.01 %");
  CHECK(percent(-0.05) == "-5.0 %");
  CHECK(whole_percent(3.0 / 11) == "27 %");
  CHECK(whole_percent(0.004) == "<1 %");
  CHECK(whole_percent(0) == "0 %");
}

TEST_CASE("the figures of a column share a unit, and what is small is not shown as zero") {
  const Scale scale = bytes_scale(Bytes{std::int64_t{4} << 30});
  CHECK(scale.name == "GiB");
  CHECK(in_scale(std::int64_t{4} << 30, scale) == "4.00");
  CHECK(in_scale(4'000'000, scale) == "<0.01");
  CHECK(in_scale(0, scale) == "0");
}

TEST_CASE("the width of a text counts its characters, not its bytes") {
  CHECK(display_width("4 × a · b") == 9);
}

}  // namespace pipewright::tests
