#include "cli/commands.hpp"

#include <array>

#include "core/folds.hpp"
#include "io/text/quote.hpp"

namespace pipewright::cli {

std::string command_line(std::string_view command, const Arguments& arguments) {
  std::string text = "pipewright " + std::string(command);
  for (const std::string& argument : arguments.positional)
    text += " " + shell_path(argument);
  for (const auto& [name, values] : arguments.options)
    for (const std::string& value : values)
      if (name != "--output" && name != "--width" && name != "--color" && name != "--json")
        text += " " + name + (value.empty() ? "" : " " + shell_word(value));
  return text;
}

std::span<const Command> commands() {
  static const std::array table = {kSimulate, kPlan,      kSchedule, kLaunch,   kCompare,    kDraw,      kSweep, kMerge,
                                   kCapacity, kCalibrate, kRun,      kValidate, kAccuracy,   kReproduce, kCheck, kShow,
                                   kImport,   kDoctor,    kInit,     kSchema,   kCompletion, kHelp};
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

std::vector<const Option*> options_of(const Command& command) {
  auto list = mapped<const Option*>(command.options, [](const Option& option) { return &option; });
  for (const Option& option : common_options())
    list.push_back(&option);
  return list;
}

std::vector<std::string> Arguments::all(std::string_view option) const {
  const auto found = options.find(option);
  return found == options.end() ? std::vector<std::string>{} : found->second;
}

std::string Arguments::last(std::string_view option, std::string_view otherwise) const {
  if (const auto given = options.find(option); given != options.end()) return given->second.back();
  const auto found = defaults.find(option);
  return found == defaults.end() ? std::string(otherwise) : found->second;
}

}  // namespace pipewright::cli
