#include "io/text/similar_units.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/text/errors.hpp"

namespace pipewright {
namespace {

constexpr std::size_t kLongest = 16;  // of a unit that somebody could have meant

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

void replace_end(std::string& text, std::string_view end, std::string_view with) {
  if (lower(text).ends_with(end)) text.replace(text.size() - end.size(), end.size(), with);
}

// The words and abbreviations in use, in our spelling but for upper and lower case: "Gbits/s", "Gbps" -> "Gb/s".
std::string spelled(std::string_view typed, bool per_second) {
  std::string text(typed);
  std::string rate;
  if (per_second) {
    replace_end(text, "/sec", "/s");
    replace_end(text, "ps", "/s");
    replace_end(text, "flops", "flop/s");
    if (text.ends_with("/s")) rate = "/s", text.resize(text.size() - 2);
  }
  replace_end(text, "flops", "flop");
  replace_end(text, "bits", "b");
  replace_end(text, "bit", "b");
  replace_end(text, "bytes", "B");
  replace_end(text, "byte", "B");
  for (const std::string_view second : {"seconds", "second", "secs", "sec"})
    replace_end(text, second, "s");
  return text + rate;
}

// "Gbit", and "Gb" with its prefix in the right case: bits, whatever else is near.
bool means_bits(std::string_view typed) {
  if (lower(typed).find("bit") != std::string::npos) return true;
  constexpr std::string_view prefixes = "kMGT";
  return typed.size() == 2 && prefixes.find(typed[0]) != std::string_view::npos && typed[1] == 'b';
}

using Units = std::vector<std::string_view>;

template <class Keep>
Units kept(const Units& units, const Keep& keep) {
  Units result;
  std::copy_if(units.begin(), units.end(), std::back_inserter(result), keep);
  return result;
}

// Of several that differ in upper and lower case only: the one with the very same letters behind the prefix, provided
// that the prefix is right as well ("Gbps") or the letter is a B, which nobody types for a bit ("gB/s").
Units narrowed(const Units& units, std::string_view text) {
  if (const Units exact = kept(units, [&](std::string_view unit) { return unit.starts_with(text); }); !exact.empty())
    return exact;
  if (text.find('B', 1) == std::string_view::npos) return units;
  const Units bytes = kept(units, [](std::string_view unit) { return unit.find('B') != std::string_view::npos; });
  return bytes.empty() ? units : bytes;
}

}  // namespace

std::string unit_suggestion(std::string_view typed, std::span<const std::string_view> units) {
  if (typed.empty() || typed.size() > kLongest) return {};
  const bool per_second = units.front().ends_with("/s");
  const std::string text = spelled(typed, per_second), small = lower(text);
  const bool bits = means_bits(typed);
  const Units same_prefix = kept({units.begin(), units.end()}, [&](std::string_view unit) {
    const bool of_bits = unit.find('b') != std::string_view::npos;
    return lower(unit)[0] == small[0] && (!bits || of_bits);
  });
  Units meant = kept(same_prefix, [&](std::string_view unit) { return lower(unit) == small; });
  if (meant.empty()) meant = kept(same_prefix, [&](std::string_view unit) { return lower(unit).starts_with(small); });
  meant = narrowed(meant, text);
  if (meant.empty()) {
    const std::string near = nearest(text, same_prefix);
    if (near.empty()) return {};
    return fmt::format(" did you mean \"{}\"?", near);
  }
  return fmt::format(" did you mean \"{}\"?", fmt::join(meant, "\" or \""));
}

}  // namespace pipewright
