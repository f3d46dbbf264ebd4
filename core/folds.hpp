// What a loop over a range makes of its elements: a list, a sum, the largest, the smallest, a text. `of` is a function of an
// element, or a member of it. Sums and comparisons go in the order of the range.
#pragma once

#include <algorithm>
#include <functional>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

#include "core/rooms.hpp"

namespace pipewright::core {

constexpr auto counted_to(auto count) {  // 0, 1, ..., count - 1
  return std::views::iota(decltype(count){}, count);
}
template <class T>
std::vector<T> mapped(auto&& range, const auto& of) {
  std::vector<T> all;
  for (auto&& each : range)
    all.push_back(std::invoke(of, each));
  return all;
}
template <class T>
T sum_over(auto&& range, const auto& of) {
  T sum{};
  for (auto&& each : range)
    sum += std::invoke(of, each);
  return sum;
}
template <class T>  // from `most` on
T most_over(auto&& range, const auto& of, T most = {}) {
  for (auto&& each : range)
    most = std::max<T>(most, std::invoke(of, each));
  return most;
}
template <class T>
T least_over(auto&& range, const auto& of, T least) {
  for (auto&& each : range)
    least = std::min<T>(least, std::invoke(of, each));
  return least;
}
std::string text_over(auto&& range, const auto& of, std::string_view between = ", ") {
  std::string text;
  for (auto&& each : range)
    text.append(text.empty() ? "" : between).append(std::invoke(of, each));
  return text;
}

}  // namespace pipewright::core
