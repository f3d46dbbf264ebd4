// What a user sets once for all commands: how the program works, never what it answers. The same scenario gives the
// same figures on every machine, so nothing that changes one can be set here.
//
//     flags > environment > $XDG_CONFIG_HOME/pipewright/config.yaml > what the program does by itself
//
//     color: never          PIPEWRIGHT_COLOR, NO_COLOR          --color
//     jobs: 4               PIPEWRIGHT_JOBS                     --jobs
//     width: 120            PIPEWRIGHT_WIDTH                    --width
//     path: [~/clusters]    PIPEWRIGHT_PATH                     folders with models/ devices/ clusters/
//
// Without XDG_CONFIG_HOME the folder is ~/.config.            tests/cli/user_config_test.cpp
#pragma once

#include <map>
#include <string>

#include "cli/commands.hpp"

namespace pipewright::cli {

// Fills `arguments.defaults` for the options of the command, with where each comes from by option. Throws InputError
// for a bad file.
std::map<std::string, std::string> add_user_defaults(const Command& command, Arguments& arguments);

}  // namespace pipewright::cli
