#include "calibrate/looks.hpp"

#include <doctest/doctest.h>

using namespace pipewright::tests;

TEST_CASE("looked at: before the first timed step, behind the last one, evenly in between") {
  const auto of = [](int steps, int warmup) {
    RunSettings settings;
    settings.steps = steps, settings.warmup = warmup;
    return looked_at(settings);
  };
  CHECK(of(23, 3) == std::vector<int>{3, 7, 11, 15, 19, 23});
  CHECK(of(7, 0) == std::vector<int>{0, 1, 2, 4, 5, 7});
  CHECK(of(3, 1) == std::vector<int>{1, 2, 3});
}
