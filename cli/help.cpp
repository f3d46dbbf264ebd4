#include <algorithm>

#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "core/check.hpp"
#include "core/folds.hpp"
#include "io/store/store.hpp"
#include "kernels/gpu_api.hpp"

namespace pipewright::cli {
namespace {

std::string help_column(std::string text, std::size_t width) {
  text.resize(std::max(text.size() + 2, width), ' ');
  return text;
}

std::string option_line(const Option& option) {
  std::string left = "  ";
  if (!option.letter.empty()) left += std::string(option.letter) + ", ";
  left += option.name;
  if (!option.value.empty()) left += " " + std::string(option.value);
  return help_column(left, 26) + std::string(option.help) + "\n";
}

int help_command(const Arguments& arguments) {
  if (arguments.positional.empty()) {
    print(help_text());
    return kDone;
  }
  const std::string& name = arguments.positional.front();
  const Command* command = find_command(name);
  if (command == nullptr) {
    auto known = mapped<std::string_view>(commands(), &Command::name);
    throw InputError("help: " + unknown_name(name, known));
  }
  print(help_text(*command));
  return kDone;
}

// The shipped scenario to begin with: in this folder, else where the program was installed.
std::string quickstart() {
  try {
    return shipped_scenario("quickstart.yaml");
  } catch (const InputError&) {
    return "scenarios/quickstart.yaml";
  }
}

}  // namespace

std::string help_text() {
  std::string text =
      "pipewright predicts how a pipeline-parallel training step behaves: time, bubble, memory, traffic.\n\n"
      "usage: pipewright COMMAND ...\n\n";
  for (const Command& command : commands())
    text += help_column("  " + std::string(command.name) + " " + std::string(command.arguments), 34) +
            std::string(command.summary) + "\n";
  text +=
      "\n  --version                       version, compiler and optional parts\n"
      "\nStart here:  pipewright simulate " +
      quickstart() +
      "\n"
      "More on one: pipewright help COMMAND\n"
      "Exit status: 0 done, 1 the answer is no (the plan does not fit), 2 bad input or a failure,\n"
      "             128 + the signal that ended it: 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP\n";
  return text;
}

std::string help_text(const Command& command) {
  std::string text = std::string(command.summary) + "\n\nusage: pipewright " + std::string(command.name);
  if (!command.arguments.empty()) text += " " + std::string(command.arguments);
  text += " [options]\n";
  if (!command.details.empty()) text += "\n" + std::string(command.details);
  text += "\noptions:\n";
  for (const Option& option : command.options)
    text += option_line(option);
  for (const Option& option : common_options())
    text += option_line(option);
  return text;
}

std::string version_text() {
  return std::string("pipewright ") + PIPEWRIGHT_VERSION + "\ncompiler: " PIPEWRIGHT_COMPILER "\nGPU: " + gpu_status() +
         "\nMPI: " PIPEWRIGHT_MPI "\nSQLite: " + store_status() + "\n";
}

constinit const Command kHelp{
    .name = "help",
    .arguments = "[COMMAND]",
    .summary = "all commands, or one of them in detail",
    .details = "",
    .options = {},
    .most = 1,
    .run = help_command,
};

}  // namespace pipewright::cli
