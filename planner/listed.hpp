// Names in a sentence.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pipewright {

// "naive, gpipe or 1f1b", with `last` between the last two.
inline std::string listed(const std::vector<std::string>& names, std::string_view last) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " " + std::string(last) + " " : ", ";
    text += names[i];
  }
  return text;
}

}  // namespace pipewright
