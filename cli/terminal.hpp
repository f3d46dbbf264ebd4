// Where output goes: standard output with its failures noticed, colour and width of the terminal.
#pragma once

#include <string>
#include <string_view>

#include "cli/commands.hpp"

namespace pipewright {

// Writes to standard output, at once: what was printed stays printed where a signal ends the program.
void print(std::string_view text);
// One line on standard error.
void note(std::string_view line);

// The last line of a command that was asked to end (core/ending.hpp), "interrupted (SIGTERM): " and `what`, and its
// exit status: 128 + the signal.
int interrupted(const std::string& what);

// Whether two paths lead to one file that exists: an output must not replace the input it is made from.
bool same_file(const std::string& a, const std::string& b);

// Ends the output of a run that would exit with `status`. A reader that went away (`| head`) is no error; anything else
// (a full disk) prints one message and makes the status 2.
int flush_output(int status);

// --color auto|always|never. auto: colour on a terminal, unless TERM=dumb or NO_COLOR is set and not empty;
// CLICOLOR_FORCE or FORCE_COLOR, not empty and not 0, ask for it always. Throws InputError.
bool use_colour(const Arguments& arguments);

// --width N; else the terminal's own width; else 100, so that files and pipes always get the same bytes. Throws
// InputError.
int output_width(const Arguments& arguments);

}  // namespace pipewright
