#include "io/text/quantity.hpp"

#include <doctest/doctest.h>

using namespace pipewright::tests;

TEST_CASE("Decimal text becomes whole nanoseconds without a double in between") {
  CHECK(parse_time("2.211 ms").value == Time{2'211'000});
  CHECK(parse_time("0.1 ns").value == Time{0});
  CHECK(parse_time("0.5 ns").value == Time{1});  // halves up, once
  CHECK(parse_time("0.49999999999999999999 ns").value == Time{0});
  CHECK(parse_time("1.0005 us").value == Time{1001});
  CHECK(parse_time("3 us").value == Time{3000});
  CHECK(parse_time("3 \u00b5s").value == Time{3000});
  CHECK(parse_time("1.5 min").value == Time{90'000'000'000});
  CHECK(parse_time("2 h").value == Time{7'200'000'000'000});
  CHECK(parse_time("1e-3 s").value == Time{1'000'000});
  CHECK(parse_time("2ms").value == Time{2'000'000});
  // 2^53 + 1 ns does not fit a double
  CHECK(parse_time("9007199.254740993 s").value == Time{9'007'199'254'740'993});
  CHECK(parse_time("4611686018427387904 ns").value == Time{kLargest});
  CHECK(!parse_time("4611686018427387905 ns").value);
}

TEST_CASE("GB is a power of 1000, GiB a power of 1024, b a bit and B a byte") {
  CHECK(parse_bytes("80 GB").value == Bytes{80'000'000'000});
  CHECK(parse_bytes("80 GiB").value == Bytes{85'899'345'920});
  CHECK(parse_bytes("196 MiB").value == Bytes{205'520'896});
  CHECK(parse_bytes("1.5 KiB").value == Bytes{1536});
  CHECK(parse_bandwidth("400 Gb/s").value == Bandwidth{50e9});
  CHECK(parse_bandwidth("50 GB/s").value == Bandwidth{50e9});
  CHECK(parse_bandwidth("1 GiB/s").value == Bandwidth{1073741824.0});
  CHECK(parse_flop_rate("15.7 TFLOP/s").value == FlopRate{15.7e12});
  CHECK(parse_flops("1.5 GFLOP").value == Flops{1.5e9});
}

TEST_CASE("A number that is none says why and what to write") {
  CHECK(parse_bandwidth("900").why == "has no unit; write e.g. \"400 Gb/s\" (bits) or \"50 GB/s\" (bytes)");
  CHECK(parse_time("900").why == "has no unit; write e.g. \"2.5 ms\"");
  CHECK(parse_bandwidth("900 GB").why == "is a size, but a bandwidth is needed; write e.g. \"900 GB/s\"");
  CHECK(parse_bytes("25 MB/s").why == "is a bandwidth, but a size is needed; write e.g. \"25 MB\"");
  CHECK(parse_time("3 GFLOP").why == "is an amount of work, but a time is needed; write e.g. \"2.5 ms\"");
  CHECK(parse_bandwidth("900 MB").why == "is a size, but a bandwidth is needed; write e.g. \"900 MB/s\"");
  CHECK(parse_time("3 msec").why.starts_with("has the unknown unit \"msec\"; did you mean \"ms\"?"));
  CHECK(parse_bytes("3 KB").why.starts_with("has the unknown unit \"KB\";"));
  CHECK(parse_time("-1 ms").why == "is negative; write 0 or more");
  CHECK(parse_time(".nan").why == "is not a number (NaN); write a finite one");
  CHECK(parse_time("NaN ms").why == "is not a number (NaN); write a finite one");
  CHECK(parse_time(".inf").why == "is infinite; write a finite number");
  CHECK(parse_time("inf s").why == "is infinite; write a finite number");
  CHECK(parse_time("").why == "is empty; write a time, e.g. \"2.5 ms\"");
  CHECK(parse_time("soon").why == "is not a number; write a time, e.g. \"2.5 ms\"");
  CHECK(parse_time("010 ms").why == "starts with a zero, which some readers take for octal; write \"10 ms\"");
  CHECK(parse_time("0x10 ms").why == "is hexadecimal; write decimal digits");
  CHECK(parse_time("1_000 ms").why == "has a separator in the number; write the digits without it");
  CHECK(parse_time("1,000 ms").why == "has a separator in the number; write the digits without it");
  CHECK(parse_time(".5 ms").why == "starts with a point; write 0 before it");
  CHECK(parse_time("+5 ms").why == "starts with a plus sign; leave it out");
  CHECK(parse_time("1e30 s").why == "overflows: the longest time is 2^62 ns (146 years); write a smaller one");
  CHECK(parse_bytes("1e400 GB").why == "overflows: the largest size is 2^62 B (4 EiB); write a smaller one");
  CHECK(parse_time("1e99999 s").why == "has an exponent that is too large; shorten it");
  CHECK(parse_flops("1e309 FLOP").why == "overflows: it is not a finite number; write a smaller one");
  CHECK(parse_time("1.2345678901234567890123456 s").why == "has more than 24 digits; round it");
}

TEST_CASE("A suggested unit keeps the power of ten that was typed") {
  const auto meant = [](const std::string& why) {  // what stands between "did you mean " and "?"
    const std::size_t begin = why.find("did you mean "), end = why.find('?', begin);
    return begin == std::string::npos ? std::string() : why.substr(begin + 13, end - begin - 13);
  };
  CHECK(meant(parse_bandwidth("25 Gbit/s").why) == "\"Gb/s\"");
  CHECK(meant(parse_bandwidth("100 GBit/s").why) == "\"Gb/s\"");
  CHECK(meant(parse_bandwidth("100 gbits/s").why) == "\"Gb/s\"");
  CHECK(meant(parse_bandwidth("100 Gbps").why) == "\"Gb/s\"");
  CHECK(meant(parse_bandwidth("100 GBps").why) == "\"GB/s\"");
  CHECK(meant(parse_bandwidth("100 gb/s").why) == "\"GB/s\" or \"Gb/s\"");  // bits or bytes: only the user knows
  CHECK(meant(parse_bandwidth("100 gB/s").why) == "\"GB/s\"");
  CHECK(meant(parse_bandwidth("100 Gb").why) == "\"Gb/s\"");
  CHECK(meant(parse_bandwidth("100 MBytes/sec").why) == "\"MB/s\"");
  CHECK(meant(parse_bytes("80 gib").why) == "\"GiB\"");
  CHECK(meant(parse_bytes("16 G").why) == "\"GB\" or \"GiB\"");
  CHECK(meant(parse_bytes("1M").why) == "\"MB\" or \"MiB\"");
  CHECK(meant(parse_bytes("3 KB").why) == "\"kB\"");
  CHECK(meant(parse_bytes("512 bytes").why) == "\"B\"");
  CHECK(meant(parse_bytes("16 Gb").why) == "");  // gigabits are no size here, and GB would be eight times as much
  CHECK(meant(parse_bytes("16 Gbit").why) == "");
  CHECK(meant(parse_bytes("3 ZB").why) == "");
  CHECK(meant(parse_flop_rate("312 TFLOPS").why) == "\"TFLOP/s\"");
  CHECK(meant(parse_flop_rate("312 tflop/s").why) == "\"TFLOP/s\"");
  CHECK(meant(parse_flop_rate("312 T").why) == "\"TFLOP/s\"");
  CHECK(meant(parse_flops("5 gflops").why) == "\"GFLOP\"");
  CHECK(meant(parse_flops("5 F").why) == "\"FLOP\"");
  CHECK(meant(parse_time("3 seconds").why) == "\"s\"");
  CHECK(meant(parse_time("3 mins").why) == "\"min\"");
  CHECK(parse_bytes("3 ZB").why == "has the unknown unit \"ZB\"; units of a size: B kB MB GB TB KiB MiB GiB TiB");
}

TEST_CASE("A bare number is answered with an example of its own, not with its digits behind a guessed unit") {
  CHECK(parse_flop_rate("312e12").why == "has no unit; write e.g. \"312 TFLOP/s\"");
  CHECK(parse_flops("10e9").why == "has no unit; write e.g. \"40 GFLOP\"");
  CHECK(parse_bytes("80e9").why == "has no unit; write e.g. \"25 MB\"");
}

TEST_CASE("A count is decimal digits and nothing else") {
  CHECK(parse_count("8").value == 8);
  CHECK(parse_count("0").value == 0);
  CHECK(parse_count("4611686018427387904").value == kLargest);
  CHECK(parse_count("010").why == "starts with a zero, which some readers take for octal; write \"10\"");
  CHECK(parse_count("4.0").why == "is not a whole number; write digits only, e.g. 8");
  CHECK(parse_count("1e3").why == "is not a whole number; write digits only, e.g. 8");
  CHECK(parse_count("-4").why == "is negative; write 0 or more");
  CHECK(parse_count("99999999999999999999").why == "overflows: the largest number is 2^62; write a smaller one");
  CHECK(parse_count("8 GB").why == "is not a whole number; write it without \"GB\", e.g. 8");
}

TEST_CASE("Parameters are a count with k, M, G or an exponent, or a size of fp32 weights, and never a bare B") {
  CHECK(parse_parameters("0").value == 0);
  CHECK(parse_parameters("1200").value == 1200);
  CHECK(parse_parameters("7e9").value == 7'000'000'000);
  CHECK(parse_parameters("1.5e6").value == 1'500'000);
  CHECK(parse_parameters("1.5M").value == 1'500'000);
  CHECK(parse_parameters("1.50 M").value == 1'500'000);
  CHECK(parse_parameters("2k").value == 2000);
  CHECK(parse_parameters("8G").value == 8'000'000'000);
  CHECK(parse_parameters("4 MiB").value == 1'048'576);  // 2^22 B / 4 B
  CHECK(parse_parameters("32 GB").value == 8'000'000'000);
  CHECK(parse_parameters("2048 bytes").value == 512);
  CHECK(parse_parameters("8B").why == "may be billions or bytes; write e.g. 8e9, \"8 GB\" or \"8 bytes\"");
  CHECK(parse_parameters("4096 B").why == "may be billions or bytes; write e.g. 4096e9, \"4096 GB\" or \"4096 bytes\"");
  CHECK(parse_parameters("8b").why.starts_with("has the unknown unit \"b\"; a count takes k M G (1.5M)"));
  CHECK(parse_parameters("0.5").why.starts_with("is not a whole number of parameters"));
  CHECK(parse_parameters("1.23456k").why.starts_with("is not a whole number of parameters"));
  CHECK(parse_parameters("7 bytes").why == "is not a whole number of fp32 weights (4 B each); write their count");
  CHECK(parse_parameters("9e18").why.starts_with("overflows"));
  CHECK(parse_parameters("-1").why == "is negative; write 0 or more");
}

TEST_CASE("What is written reads back to the same value") {
  for (const std::int64_t value :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{999}, std::int64_t{1000}, std::int64_t{2'211'000},
        std::int64_t{205'520'896}, std::int64_t{1'234'567'891}, kLargest}) {
    CHECK(parse_time(to_text(Time{value})).value == Time{value});
    CHECK(parse_bytes(to_text(Bytes{value})).value == Bytes{value});
  }
  for (const double value : {1.0, 1.25e9, 50e9, 15.7e12, 1.0 / 3, 1e300, 123456789.125}) {
    CHECK(parse_bandwidth(to_text(Bandwidth{value})).value == Bandwidth{value});
    CHECK(parse_flops(to_text(Flops{value})).value == Flops{value});
    CHECK(parse_flop_rate(to_text(FlopRate{value})).value == FlopRate{value});
  }
  CHECK(to_text(Time{2'211'000}) == "2.211 ms");
  CHECK(to_text(Bytes{205'520'896}) == "196 MiB");
  CHECK(to_text(Bytes{25'000'000}) == "25 MB");
  CHECK(to_text(FlopRate{15.7e12}) == "15.7 TFLOP/s");
}
