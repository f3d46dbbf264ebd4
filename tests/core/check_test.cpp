#include "core/check.hpp"

#include <array>
#include <string_view>

#include <doctest/doctest.h>

using namespace pipewright::tests;

namespace {
constexpr std::array<std::string_view, 4> kSchedules = {"naive", "gpipe", "1f1b", "pipedream"};
}

TEST_CASE("A message starts with as much of its place as is known") {
  CHECK(head({"a.yaml", 12, 7}) == "a.yaml:12:7: ");
  CHECK(head({"a.yaml", 0, 0}) == "a.yaml: ");
  CHECK(head({}) == "");
  CHECK(std::string(InputError(Place{"a.yaml", 1, 2}, "no").what()) == "a.yaml:1:2: no");
}

TEST_CASE("Letters inserted, left out, replaced or swapped count one each") {
  CHECK(edit_distance("gpipe", "gpipe") == 0);
  CHECK(edit_distance("gppe", "gpipe") == 1);
  CHECK(edit_distance("1fb1", "1f1b") == 1);  // swapped neighbours
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("The nearest known name is offered, and none when all are far") {
  CHECK(nearest("1fb1", kSchedules) == "1f1b");
  CHECK(nearest("GPipe", kSchedules) == "gpipe");  // two of five letters
  CHECK(nearest("zebra", kSchedules) == "");
  CHECK(unknown_name("1fb1", kSchedules) ==
        "unknown \"1fb1\"; did you mean \"1f1b\"? known: naive, gpipe, 1f1b, pipedream");
  CHECK(unknown_name("zebra", kSchedules) == "unknown \"zebra\"; known: naive, gpipe, 1f1b, pipedream");
}
