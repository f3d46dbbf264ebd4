#include "core/answers/condition.hpp"

#include <algorithm>

namespace pipewright::core {
namespace {

const char* words(Unit unit) {
  switch (unit) {
    case Unit::None: return "a plain number";
    case Unit::Second: return "a time";
    case Unit::Byte: return "a size";
    case Unit::BytePerSecond: return "a bandwidth";
    case Unit::Flop: return "an amount of work";
    case Unit::FlopPerSecond: return "a FLOP rate";
  }
  return "";
}

[[noreturn]] void refuse(const Comparison& comparison, const std::string& why) {
  throw InputError(comparison.place, "where: \"" + comparison.text + "\": " + why);
}

Magnitude product(const Comparison& comparison, const std::vector<Comparison::Term>& terms,
                  const MagnitudeOf& magnitude) {
  Magnitude result{1, Unit::None};
  for (const Comparison::Term& term : terms) {
    const std::optional<Magnitude> factor = term.number ? term.number : magnitude(term.key);
    if (!factor) refuse(comparison, "there is no number under " + term.key + "; state it in the base, or leave it out");
    if (factor->unit != Unit::None && result.unit != Unit::None)
      refuse(comparison, "a product of two quantities with units; multiply a quantity by plain numbers only");
    result.value *= factor->value;
    if (factor->unit != Unit::None) result.unit = factor->unit;
  }
  return result;
}

}  // namespace

bool Comparison::asks_for(const std::function<bool(const std::string& key)>& wanted) const {
  const auto any = [&](const std::vector<Term>& terms) {
    return std::ranges::any_of(terms, [&](const Term& term) { return !term.number && wanted(term.key); });
  };
  return any(left) || any(right);
}

bool holds(const Comparison& comparison, const MagnitudeOf& magnitude) {
  const Magnitude a = product(comparison, comparison.left, magnitude),
                  b = product(comparison, comparison.right, magnitude);
  if (a.unit != b.unit)
    refuse(comparison, std::string("compares ") + words(a.unit) + " with " + words(b.unit) +
                           "; write both sides in one kind of unit");
  switch (comparison.relation) {
    case Comparison::Relation::Less: return a.value < b.value;
    case Comparison::Relation::LessOrEqual: return a.value <= b.value;
    case Comparison::Relation::Greater: return a.value > b.value;
    case Comparison::Relation::GreaterOrEqual: return a.value >= b.value;
    case Comparison::Relation::Equal: return a.value == b.value;
    case Comparison::Relation::NotEqual: return a.value != b.value;
  }
  return false;
}

}  // namespace pipewright::core
