// Two measured runs, figure by figure.
#pragma once

#include <string>

namespace pipewright {

// Of two run files. Throws InputError where they have nothing in common.
std::string two_runs_text(const std::string& first, const std::string& second);

}  // namespace pipewright
