// Conditions on the points of a sweep: `plan.stages * plan.data_parallel <= 64 and peak_memory < 79 GiB`.
//
//     condition    comparison { "and" comparison }
//     comparison   product ( < | <= | > | >= | == | != ) product
//     product      term { "*" term }
//     term         a number with or without a unit, a key of the scenario, or a figure of the result
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/check.hpp"

namespace pipewright::core {

// A number in SI base units, with what it counts: bytes are not compared with seconds.
enum class Unit { None, Second, Byte, BytePerSecond, Flop, FlopPerSecond };
struct Magnitude {
  double value = 0;
  Unit unit = Unit::None;
  bool operator==(const Magnitude&) const = default;
};

struct Comparison {
  enum class Relation { Less, LessOrEqual, Greater, GreaterOrEqual, Equal, NotEqual };
  struct Term {
    std::optional<Magnitude> number;  // absent: the magnitude under `key`
    std::string key;
  };
  std::vector<Term> left, right;  // products
  Relation relation = Relation::Less;
  std::string text;  // as written
  Place place;

  bool asks_for(const std::function<bool(const std::string& key)>& wanted) const;
};

// The magnitude under a key, or nothing.
using MagnitudeOf = std::function<std::optional<Magnitude>(const std::string& key)>;

// Whether the comparison is true. Throws InputError where a key has no magnitude, where a side is a product of two
// quantities with units, and where the sides are not of one unit.
//     2 * 4 <= 8: true.     tests/core/condition_test.cpp "a comparison of products"
bool holds(const Comparison& comparison, const MagnitudeOf& magnitude);

}  // namespace pipewright::core
