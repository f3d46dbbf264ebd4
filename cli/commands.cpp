#include "cli/commands.hpp"

#include <array>

namespace pipewright {

std::span<const Command> commands() {
  static const std::array table = {kSimulate, kPlan,      kCompare, kSweep, kCapacity, kCalibrate, kRun,
                                   kValidate, kReproduce, kCheck,   kShow,  kImport,   kHelp};
  return table;
}

const Command* find_command(std::string_view name) {
  for (const Command& command : commands())
    if (command.name == name) return &command;
  return nullptr;
}

std::span<const Option> common_options() {
  static constexpr std::array<Option, 2> table = {{
      {"--color", "", "WHEN", "auto (default), always or never"},
      {"--help", "-h", "", "show this help"},
  }};
  return table;
}

std::vector<std::string> Arguments::all(std::string_view option) const {
  const auto found = options.find(option);
  return found == options.end() ? std::vector<std::string>{} : found->second;
}

std::string Arguments::last(std::string_view option, std::string_view otherwise) const {
  const auto found = options.find(option);
  return found == options.end() ? std::string(otherwise) : found->second.back();
}

}  // namespace pipewright
