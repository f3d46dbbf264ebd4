// Intervals as sentences, and the tables of measured runs that have them.
#include "io/writers/interval_text.hpp"

#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "io/writers/measured.hpp"

using namespace pipewright::tests;

TEST_CASE(
    "A need's interval says how much of it is the allocator's, and that all of it is where activations are stated") {
  MemoryNeed need;
  need.low = Bytes{64} * (1 << 30), need.high = Bytes{76} * (1 << 30), need.with_reserve = Bytes{70} * (1 << 30);
  need.fragmentation = Bytes{3} * (1 << 30);
  CHECK(memory_within_90(need) ==
        "90 % within 64.6 GiB to 75.4 GiB (activations 75.0 %, allocator 25.0 % of its width)");
  need.rounding = Bytes{9} * (1 << 30);
  CHECK(memory_within_90(need) == "90 % within 64.6 GiB to 75.4 GiB (what the allocator adds)");
  need.low = need.high - Bytes{1 << 30}, need.with_reserve = need.high;  // 1.3 %
  CHECK(memory_within_90(need).empty());
  need.low = need.high;
  CHECK(memory_within_90(need).empty());
}

TEST_CASE("Errors of measured runs keep to a width that is asked for; else they are as wide as they need") {
  MeasuredResult result;
  result.name = "a set with a name of some length", result.title = "runs", result.source = "somebody";
  ErrorSummary all;
  all.figure = "samples per second", all.of = "a group with a long name", all.runs = 3, all.ranged = 3;
  result.summaries = {all};
  const auto widest = [&](bool given) {
    std::istringstream text(measured_summary({result, result}, {}, {.width = 60, .given = given}));
    std::size_t most = 0;
    bool table = false;
    for (std::string line; std::getline(text, line);) {
      table |= line.find("figure") != std::string::npos;
      if (line.empty()) table = false;
      if (table) most = std::max(most, line.size());
    }
    return most;
  };
  CHECK(widest(true) <= 60);
  CHECK(widest(false) > 100);
}
