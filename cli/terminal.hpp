// Colour and width of what is printed.
#pragma once

#include "cli/commands.hpp"

namespace pipewright {

// --color auto|always|never. auto: colour on a terminal, unless TERM=dumb or NO_COLOR is set and not empty;
// CLICOLOR_FORCE or FORCE_COLOR, not empty and not 0, ask for it always. Throws InputError.
bool use_colour(const Arguments& arguments);

// --width N; else the terminal's own width; else 100, so that files and pipes always get the same bytes. Throws
// InputError.
int output_width(const Arguments& arguments);

}  // namespace pipewright
