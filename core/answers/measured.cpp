#include "core/answers/measured.hpp"

#include <charconv>

namespace pipewright::core {
namespace {

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

}  // namespace

bool CellTest::Choice::holds(std::string_view cell) const {
  const std::optional<double> value = number(cell);
  if (least || most) {
    if (!value) return false;
    if (least && !(strict ? *value > *least : *value >= *least)) return false;
    return !most || (strict ? *value < *most : *value <= *most);
  }
  const std::optional<double> wanted = number(is);
  const bool same = value && wanted ? *value == *wanted : cell == is;
  return same != other;
}

}  // namespace pipewright::core
