// What `import` reads: one entry per format.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/commands.hpp"

namespace pipewright {

struct ImportFormat {
  std::string_view name;                      // "hf"
  std::string_view takes, gives;              // "configuration", "model": for messages
  std::span<const std::string_view> options;  // of its own; others are refused
  std::string (*yaml)(const Arguments&, const std::string& path);
};

std::span<const ImportFormat> import_formats();

}  // namespace pipewright
