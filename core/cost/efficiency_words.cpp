#include "core/cost/efficiency_words.hpp"

#include <algorithm>
#include <cmath>

namespace pipewright::core {

std::string rounded_percent(double share) {
  return std::to_string(std::lround(share * 100)) + " %";
}

std::string microseconds(double ns) {
  const auto tenths = std::lround(ns / 100);
  return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10));
}

std::string in_words(std::span<const KindPriced> kinds) {
  std::string text;
  for (const KindPriced& kind : kinds) {
    const auto& curve = kind.stated->curve;
    const auto [least, most] = std::minmax_element(curve.begin(), curve.end(),
                                                   [](const auto& a, const auto& b) { return a.second < b.second; });
    text += (text.empty() ? "by kind: " : ", ") + std::string(kind.name);
    if (kind.by_size) {
      text += kind.kernel ? std::string(" by size, kernel ") + in_words(kind.kernel->kernel) : " by size";
    } else {
      text += " " + rounded_percent(least->second);
      if (most->second > least->second) text += " to " + rounded_percent(most->second);
    }
    const double band = kind.kernel ? kind.kernel->band.value_or(kind.stated->band) : kind.stated->band;
    text += std::string(" (") + in_words(kind.kernel ? kind.kernel->provenance : kind.stated->provenance);
    text += band > 0 ? ", +- " + rounded_percent(band) : "";
    text += ")";
  }
  return text.empty() ? "the same for operators of every kind" : text;
}

}  // namespace pipewright::core
