// What the command line knows: one entry per command, in the order `help` shows them.
//
// A command states its options as data and gets their values by name; it never sees the parser. A new command is one
// file, one line in the table of commands.cpp and one in meson.build.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/console.hpp"

namespace pipewright::cli {

struct Option {
  std::string_view name;    // "--set"
  std::string_view letter;  // "-o", or ""
  std::string_view value;   // "KEY=VALUE"; "": a switch
  std::string_view help;
};

// What was given on the command line. Options by name; a switch has one empty value.
struct Arguments {
  std::vector<std::string> positional;
  std::map<std::string, std::vector<std::string>, std::less<>> options;
  std::map<std::string, std::string, std::less<>> defaults;  // of options that were not given: cli/user_config.hpp

  bool has(std::string_view option) const { return options.find(option) != options.end(); }
  std::vector<std::string> all(std::string_view option) const;
  // The last one given wins; without any, the user's own default.
  std::string last(std::string_view option, std::string_view otherwise) const;
};

struct Command {
  std::string_view name;
  std::string_view arguments;  // "SCENARIO"
  std::string_view summary;    // one line
  std::string_view details;    // lines of `help COMMAND`: what the arguments mean, an example
  std::span<const Option> options;
  std::span<const std::string_view> words = {};  // what its first argument may be, for completion; none: a file
  std::size_t least = 0, most = 0;               // positional arguments
  int (*run)(const Arguments&) = nullptr;
};

// The command as it would be typed again, without what only chooses where and how output appears. For files that say
// how they were made.
std::string command_line(std::string_view command, const Arguments& arguments);

std::span<const Command> commands();
const Command* find_command(std::string_view name);

// Options that every command takes: --color, --help.
std::span<const Option> common_options();

// All that a command takes: its own, then the common ones.
std::vector<const Option*> options_of(const Command& command);

std::string help_text();                        // all commands
std::string help_text(const Command& command);  // one command
std::string version_text();

// One declaration per command file.
extern const Command kSimulate, kPlan, kSchedule, kCalibrate, kRun, kValidate, kLaunch, kCompare, kDraw, kSweep, kMerge,
    kCapacity, kReproduce, kCheck, kShow, kImport, kDoctor, kAccuracy, kCompletion, kSchema, kInit, kHelp;

}  // namespace pipewright::cli
