#include "core/answers/condition.hpp"

#include <doctest/doctest.h>

#include "io/read/read_condition.hpp"
#include "tests/support/texts.hpp"

using namespace pipewright::tests;

namespace {

std::optional<Magnitude> known(const std::string& key) {
  if (key == "two") return Magnitude{2};
  if (key == "four") return Magnitude{4};
  if (key == "memory") return Magnitude{8e9, Unit::Byte};
  return std::nullopt;
}

bool all_hold(const std::string& text) {
  for (const Comparison& comparison : parse_condition(text, {}))
    if (!holds(comparison, known)) return false;
  return true;
}

std::string refusal(const std::string& text) {
  try {
    all_hold(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a comparison of products") {
  CHECK(all_hold("two * four <= 8"));
  CHECK_FALSE(all_hold("two * four < 8"));
  CHECK(all_hold("8 >= two*four"));
  CHECK(all_hold("two * two == four"));
  CHECK(all_hold("two != four"));
  CHECK(all_hold("3 * two > 1.5 * two"));
}

TEST_CASE("and joins comparisons, all of which must hold") {
  CHECK(all_hold("two < 3 and four < 5 and two * 2 == four"));
  CHECK_FALSE(all_hold("two < 3 and four < 4"));
  CHECK(parse_condition("two < 3 and four < 5", {}).size() == 2);
}

TEST_CASE("numbers carry units, and both sides must be of one kind") {
  CHECK(all_hold("memory == 8 GB"));
  CHECK(all_hold("memory < 8 GiB"));
  CHECK(all_hold("memory * two == 16 GB"));
  CHECK(all_hold("30 % < 0.31"));
  CHECK(contains(refusal("memory < 8"), "compares a size with a plain number"));
  CHECK(contains(refusal("memory < 8 ms"), "compares a size with a time"));
  CHECK(contains(refusal("memory * memory < 8 GB"), "a product of two quantities with units"));
}

TEST_CASE("a condition that is none is refused with what is wrong") {
  CHECK(contains(refusal("two"), "ends where a comparison"));
  CHECK(contains(refusal("two <"), "ends where a number, a key or a figure is expected"));
  CHECK(contains(refusal(""), "ends where a number"));
  CHECK(contains(refusal("two = 2"), "\"=\" where a comparison"));
  CHECK(contains(refusal("two < 3 four < 5"), "is not a number with a unit"));
  CHECK(contains(refusal("two < four four"), "where \"and\" or the end is expected"));
  CHECK(contains(refusal("two < 8 parsecs"), "is not a number with a unit"));
  CHECK(contains(refusal("(two < 3)"), "is neither a number nor a key"));
  CHECK(contains(refusal("five < 3"), "there is no number under five"));
}
