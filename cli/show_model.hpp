// `pipewright show model NAME|FILE`: a name of configs/models, a family, or a file of a model or scenario.
#pragma once

#include "cli/commands.hpp"

namespace pipewright {

int show_model(const Arguments& arguments);

}  // namespace pipewright
