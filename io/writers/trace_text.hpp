// Appends the tokens of trace events to one text. A trace of a million events is nothing but tokens, so that none of
// them may allocate or parse a format.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

#include "core/ids.hpp"
#include "core/units.hpp"

namespace pipewright::io {

class TraceText {
 public:
  void reserve(std::size_t bytes) { text_.reserve(bytes); }
  std::size_t size() const { return text_.size(); }
  std::string take() && { return std::move(text_); }

  TraceText& operator<<(std::string_view token) { return text_.append(token), *this; }
  TraceText& operator<<(char token) { return text_.push_back(token), *this; }
  template <class Kind>
  TraceText& operator<<(Id<Kind> id) {
    return *this << int{id};
  }
  TraceText& operator<<(std::integral auto number) {
    char digits[24];
    text_.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
    return *this;
  }
  // Microseconds with three decimals, cut out of whole nanoseconds. 33 ms: 33000.000
  TraceText& operator<<(Time time) {
    const auto [sign, ns] = magnitude(time.value);
    if (sign) text_.push_back('-');
    return *this << ns / 1000 << '.', decimals(ns % 1000, 3);
  }
  // GiB with six decimals, rounded to the nearest (halves to the even one). 1.5 GiB: 1.500000
  TraceText& operator<<(Bytes bytes) {
    constexpr std::uint64_t kGiB = 1u << 30, kSteps = 1'000'000;
    const auto [sign, value] = magnitude(bytes.value);
    const std::uint64_t scaled = value % kGiB * kSteps, rest = scaled % kGiB;
    std::uint64_t steps = scaled / kGiB;
    if (rest > kGiB / 2 || (rest == kGiB / 2 && steps % 2 == 1)) ++steps;
    if (sign) text_.push_back('-');
    return *this << value / kGiB + steps / kSteps << '.', decimals(steps % kSteps, 6);
  }

 private:
  struct Magnitude {
    bool negative;
    std::uint64_t value;
  };
  static Magnitude magnitude(std::int64_t value) {
    return {value < 0, value < 0 ? -static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value)};
  }
  TraceText& decimals(std::uint64_t value, int places) {
    char digits[8];
    for (int i = places; i-- > 0; value /= 10)
      digits[i] = static_cast<char>('0' + value % 10);
    text_.append(digits, at(places));
    return *this;
  }

  std::string text_;
};

}  // namespace pipewright::io
