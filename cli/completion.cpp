// `completion`: what bash needs to complete commands, options and file names; and the manual page. Both are written
// from the table of commands, so that they know what the program knows.
#include <array>
#include <ranges>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.hpp"
#include "core/check.hpp"

namespace pipewright::cli {
namespace {

constexpr std::array<std::string_view, 2> kShells = {"bash", "man"};

std::string all_commands() {
  return fmt::format("{}", fmt::join(commands() | std::views::transform(&Command::name), " "));
}

// Words that a command's first argument may be.
std::string words_of(const Command& command) {
  if (command.name == "help") return all_commands();
  return fmt::format("{}", fmt::join(command.words, " "));
}

// What follows an option: words, or what `pipewright show SHELF --names` lists. Everything else is left to bash, which
// offers files.
struct Values {
  std::string_view option, words, shelf = "", command = "";  // command: "" is any; a certain one stands first
};
constexpr std::array kValues = {
    Values{"--backend", "cpu cuda"},
    Values{"--transport", "local throttled staged peer tcp mpi nccl"},
    Values{"--kernels", "own library"},
    Values{"--check", "gradients"},
    Values{"--palette", "screen colour-blind grey"},
    Values{"--memory", "stages fullest none"},
    Values{"--color", "auto always never"},
    Values{"--objective", "throughput step_time cost memory"},
    Values{"--pareto", "memory cost memory,cost"},
    Values{"--for", "megatron torchtitan torch deepspeed", "", "plan"},
    Values{"--for", "megatron torchtitan torch deepspeed slurm"},
    Values{"--precision", "fp32 tf32 fp16 bf16"},
    Values{"--attention", "flash materialised"},
    Values{"--model", "", "models", "init"},
    Values{"--cluster", "", "clusters"},
    Values{"--schedule", "", "schedules"},
    Values{"--set", "", "keys"},
    Values{"--set-a", "", "keys"},
    Values{"--set-b", "", "keys"},
};

std::string bash() {
  std::string text =
      "# Completion of pipewright for bash: source it, or put it into /etc/bash_completion.d/pipewright.\n"
      // Names are those of files. compgen -W would run what they hold as code, and so would the line they are put into.
      "_pipewright_names() {\n"
      "  local each\n"
      "  while IFS= read -r each; do\n"
      "    case $each in \"$word\"*) COMPREPLY+=(\"$(printf %q \"$each\")$2\") ;; esac\n"
      "  done < <(\"$program\" show \"$1\" --names 2>/dev/null)\n"
      "}\n"
      "_pipewright() {\n"
      // What was typed for it: a build that is on no path completes, too.
      "  local program=${COMP_WORDS[0]/#\\~\\//$HOME/}\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options= values= words=\n"
      "  COMPREPLY=()\n"
      // bash begins a word at "=": --for=mega is three of them.
      "  if [ \"$word\" = = ]; then word=; elif [ \"$before\" = = ]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"" +
      all_commands() +
      " --help --version\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case ${COMP_WORDS[1]} in\n";
  for (const Command& command : commands()) {
    std::string options, values;
    for (const Option* option : options_of(command)) {
      options += (options.empty() ? "" : " ") + std::string(option->name);
      if (option->value.empty()) continue;
      values += " " + std::string(option->name) + (option->letter.empty() ? "" : " " + std::string(option->letter));
    }
    text += fmt::format("    {}) options='{}' values='{} ' words='{}' ;;\n", command.name, options, values,
                        words_of(command));
  }
  text +=
      "  esac\n"
      "  case $values in *\" $before \"*)\n"
      "    case \"${COMP_WORDS[1]} $before\" in\n";
  for (const Values& values : kValues)
    text += fmt::format("      {}\" {}\") {} ;;\n", values.command.empty() ? "*" : values.command, values.option,
                        values.shelf.empty()
                            ? fmt::format("COMPREPLY=($(compgen -W \"{}\" -- \"$word\"))", values.words)
                            : fmt::format("_pipewright_names {}{}", values.shelf, values.shelf == "keys" ? " =" : ""));
  return text +
         "    esac\n"
         "    case ${COMPREPLY[0]-} in *=) compopt -o nospace ;; esac\n"
         "    compopt -o default\n"
         "    return ;;\n"
         "  esac\n"
         "  if [ \"${COMP_WORDS[1]} $COMP_CWORD\" = 'show 3' ]; then\n"
         "    case ${COMP_WORDS[2]} in model|device) _pipewright_names \"${COMP_WORDS[2]}s\" ;; *) _pipewright_names "
         "\"${COMP_WORDS[2]}\" ;; esac\n"
         "    compopt -o default\n"
         "    return\n"
         "  fi\n"
         "  case $word in\n"
         "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
         "    *) COMPREPLY=($(compgen -W \"$words\" -- \"$word\")); compopt -o default ;;\n"
         "  esac\n"
         "}\n"
         "complete -F _pipewright pipewright\n";
}

// ---- manual page ----------------------------------------------------------------------------------------------------

// A line of the source may not begin with a sign of control; hyphens are meant as such.
std::string troff(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    line_begins = c == '\n';
    out += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  }
  return out;
}

std::string manual_page() {
  std::string text = fmt::format(
      ".TH PIPEWRIGHT 1 \"\" \"pipewright {}\" \"User commands\"\n"
      ".SH NAME\npipewright \\- predicts, plans and runs pipeline\\-parallel training\n"
      ".SH SYNOPSIS\n.B pipewright\n.I COMMAND\n[argument ...] [option ...]\n"
      ".SH DESCRIPTION\nPredicts how training a neural network over many accelerators behaves, plans the best way to "
      "do "
      "it, runs that plan and shows how far the prediction was off.\n"
      ".SH COMMANDS\n",
      PIPEWRIGHT_VERSION);
  for (const Command& command : commands()) {
    text += fmt::format(".SS \"{} {}\"\n{}.\n", command.name, troff(command.arguments), troff(command.summary));
    if (!command.details.empty()) text += ".PP\n.nf\n" + troff(command.details) + ".fi\n";
    for (const Option& option : command.options) {
      text += ".TP\n";
      if (!option.letter.empty()) text += fmt::format("\\fB{}\\fR, ", troff(option.letter));
      text += fmt::format("\\fB{}\\fR", troff(option.name));
      if (!option.value.empty()) text += fmt::format(" \\fI{}\\fR", troff(option.value));
      text += fmt::format("\n{}\n", troff(option.help));
    }
  }
  text += ".SH OPTIONS OF ALL COMMANDS\n";
  for (const Option& option : common_options())
    text += fmt::format(".TP\n\\fB{}\\fR {}\n{}\n", troff(option.name), troff(option.value), troff(option.help));
  return text +
         ".SH EXIT STATUS\n.TP\n0\ndone\n.TP\n1\nthe answer is no: the plan does not fit, a tolerance is exceeded\n"
         ".TP\n2\nbad input, or a failure\n.TP\n128 + N\nended by signal N (130: Ctrl-C); what was done is kept\n"
         ".SH ENVIRONMENT\n.TP\n.B PIPEWRIGHT_PATH\nfolders with configurations of devices, clusters and models, "
         "looked through first\n.TP\n.B PIPEWRIGHT_SECRET\nwhat the processes of a run over a network all know and "
         "nobody else does; or PIPEWRIGHT_SECRET_FILE, a file that holds it\n"
         ".TP\n.B NO_COLOR\nno colours, unless \\-\\-color says so\n"
         ".SH FILES\nDevices, clusters and models lie in share/pipewright/configs next to the program, scenarios in "
         "share/pipewright/scenarios.\n";
}

int completion_command(const Arguments& arguments) {
  const std::string& shell = arguments.positional.front();
  if (shell == "man") return print(manual_page()), kDone;
  if (shell == "bash") return print(bash()), kDone;
  throw InputError("completion: " + unknown_name(shell, kShells));
}

}  // namespace

constinit const Command kCompletion{
    .name = "completion",
    .arguments = "bash|man",
    .summary = "completion of commands and options for bash, or the manual page",
    .details =
        "  source <(pipewright completion bash)\n"
        "  pipewright completion man | man -l -\n"
        "An installed pipewright has them in place.\n",
    .options = {},
    .words = kShells,
    .least = 1,
    .most = 1,
    .run = completion_command,
};

}  // namespace pipewright::cli
