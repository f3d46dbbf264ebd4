// Parses the command line and turns every failure into one message and exit status 2. The only includer of CLI11, whose
// own exit codes (105 ...), missing suggestions and long messages stop here.
#include <array>
#include <cstdio>
#include <span>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <unistd.h>

#include "cli/campaign_options.hpp"
#include "cli/commands.hpp"
#include "cli/option_values.hpp"
#include "cli/run_options.hpp"
#include "cli/user_config.hpp"
#include "core/check.hpp"
#include "core/ending.hpp"
#include "core/folds.hpp"
#include "core/plain_words.hpp"
#include "io/text/errors.hpp"
#include "io/text/utf8.hpp"
#include "runtime/signals.hpp"
#include "study/ranks.hpp"

namespace pipewright::cli {
namespace {

// What CLI11 fills in for one command. Each command is a parser of its own: CLI11's subcommands would take a file named
// like a command for that command.
struct ParsedOptions {
  CLI::App app;
  std::vector<std::string> positional;
  std::map<std::string, std::vector<std::string>> values;
  std::map<std::string, bool> switches;
};

void declare(const Option& option, ParsedOptions& parsed) {
  const std::string name(option.name);
  const std::string names = option.letter.empty() ? name : std::string(option.letter) + "," + name;
  if (option.value.empty())
    parsed.app.add_flag(names, parsed.switches[name]);
  else
    parsed.app.add_option(names, parsed.values[name])->allow_extra_args(false);
}

std::string usage(const Command& command) {
  return "; usage: pipewright " + std::string(command.name) + " " + std::string(command.arguments);
}

[[noreturn]] void unknown_option(const std::string& given, const Command& command) {
  auto known = mapped<std::string_view>(options_of(command), [](const Option* option) { return option->name; });
  throw InputError(std::string(command.name) + ": option: " + unknown_name(given.substr(0, given.find('=')), known));
}

bool is_option(std::string_view word, const Command& command) {
  const auto all = options_of(command);
  return std::ranges::any_of(all, [&](const Option* option) { return option->name == word; });
}

// CLI11 names the option first: "--width: 1 required TEXT missing". Its own words go no further: either a value is
// missing, or a switch was given one.
[[noreturn]] void malformed(const CLI::ParseError& error, const Command& command, std::span<char* const> given) {
  const std::string message = error.what();
  for (const Option* option : options_of(command)) {
    const std::string name(option->name);
    if (message.starts_with(name + ":") && !option->value.empty())
      throw InputError(name + " lacks its value: " + name + " " + std::string(option->value));
    for (const std::string_view word : given)
      if (option->value.empty() && word.starts_with(name + "="))
        throw InputError(name + " takes no value: leave out " + in_quotes(word.substr(name.size())));
  }
  throw InputError(std::string(command.name) + ": the options cannot be told apart" + usage(command));
}

Arguments parsed_arguments(const Command& command, int argc, char** argv) {
  ParsedOptions parsed;
  parsed.app.set_help_flag();
  parsed.app.allow_extras();  // told apart below, with a suggestion
  for (const Option* option : options_of(command))
    declare(*option, parsed);
  parsed.app.add_option("arguments", parsed.positional);
  try {
    parsed.app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    malformed(error, command, std::span(argv, at(argc)).subspan(1));
  }
  for (const std::string& rest : parsed.app.remaining())
    if (rest != "--") unknown_option(rest, command);
  for (const Option* option : options_of(command))
    for (const std::string& value : parsed.values[std::string(option->name)])
      if (value.starts_with("--") && is_option(value.substr(0, value.find('=')), command))
        throw InputError(std::string(option->name) + " lacks its value: " + std::string(option->name) + " " +
                         std::string(option->value));
  Arguments arguments;
  arguments.positional = parsed.positional;
  for (const auto& [name, values] : parsed.values)
    if (!values.empty()) arguments.options[name] = values;
  for (const auto& [name, given] : parsed.switches)
    if (given) arguments.options[name] = {""};
  return arguments;
}

int run_checked(const Command& command, const Arguments& arguments) {
  static_cast<void>(use_colour(arguments));
  const std::size_t count = arguments.positional.size();
  const std::string name(command.name);
  if (count < command.least) throw InputError(name + ": an argument is missing" + usage(command));
  if (count > command.most)
    throw InputError(name + ": unexpected argument \"" + arguments.positional[command.most] + "\"" + usage(command));
  try {
    return command.run(arguments);
  } catch (const InputError& error) {
    std::vector<Fault> faults = error.faults();
    for (Fault& fault : faults)
      for (std::string* text : {&fault.place.file, &fault.text})
        *text = with_campaign_as_given(with_options_as_given(*text, arguments), arguments);
    throw InputError(std::move(faults));
  }
}

int run(const Command& command, int argc, char** argv) {
  Arguments arguments = parsed_arguments(command, argc, argv);
  static_cast<void>(use_colour(arguments));  // a wrong --color is named by every command
  if (arguments.has("--help")) return print(help_text(command)), kDone;
  const auto origins = add_user_defaults(command, arguments);
  try {
    return run_checked(command, arguments);
  } catch (const InputError& error) {
    std::vector<Fault> faults = error.faults();
    for (Fault& fault : faults)  // of "--jobs" that nobody has typed
      if (const auto origin = origins.find(fault.key); origin != origins.end())
        fault.text += "; " + origin->second + " says so";
    throw InputError(std::move(faults));
  }
}

int run(int argc, char** argv) {
  if (argc < 2) {
    std::fputs(help_text().c_str(), stderr);
    return kBadInput;
  }
  const std::string first = argv[1];
  if (const Command* command = find_command(first)) return run(*command, argc - 1, argv + 1);
  if (first == "--help" || first == "-h") return print(help_text()), kDone;
  if (first == "--version") return print(version_text()), kDone;
  auto known = mapped<std::string_view>(commands(), &Command::name);
  if (!first.starts_with("-")) throw InputError("command: " + unknown_or_begun(first, known));
  constexpr std::array<std::string_view, 2> options = {"--help", "--version"};
  throw InputError("option before a command: " + unknown_name(first, options) + "; options of a command follow it");
}

// "error: " before every line of a message: one line per error.
int report(const std::string& message) {
  const std::string begin = "error: " + rank_name();
  std::string text = begin;
  const std::string shown = printable(message);  // names of files may hold anything
  for (std::size_t i = 0; i < shown.size(); ++i) {
    text += shown[i];
    if (shown[i] == '\n' && i + 1 < shown.size()) text += begin;
  }
  while (text.ends_with('\n'))
    text.pop_back();
  note(text);
  return asked_to_end() != 0 ? 128 + asked_to_end() : kBadInput;  // what fails once it was asked to end fails of that
}

// What a program says that a signal ends at once.
std::string last_words(int argc, char** argv) {
  const Command* const command = argc > 1 ? find_command(argv[1]) : nullptr;
  return (command != nullptr ? std::string(command->name) : "pipewright") +
         " was ended before it was done; what it has printed, and files that it has named as written, are kept";
}

// A stream closed by the caller (`>&-`) would hand its number to the next file that we open, and that file would then
// receive our output. /dev/null, open for reading only, takes its place: writing to it fails and is noticed.
void occupy_closed_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream)
    if (fcntl(stream, F_GETFD) == -1) static_cast<void>(open("/dev/null", O_RDONLY));
}

}  // namespace
}  // namespace pipewright::cli

int main(int argc, char** argv) {
  using namespace pipewright::cli;
  occupy_closed_streams();
  const SignalGuard guard(last_words(argc, argv));
  int status = kBadInput;
  try {
    status = run(argc, argv);
  } catch (const Interrupted& ended) {
    status = interrupted(ended.what());
  } catch (const std::exception& error) {
    status = report(plain_words(error));
  }
  return leave_ranks(flush_output(status));
}
