// `validate --log FILE --trace FILE`: runs of others next to the prediction.
#pragma once

#include <optional>

#include "cli/commands.hpp"

namespace pipewright::cli {

bool asks_for_import(const Arguments& arguments);

// Exit status 0: the step is within `tolerance` (a share), in the log and in the traces; 1: it is not. Without a
// tolerance nothing is judged. Throws InputError.
int validate_import(const Arguments& arguments, std::optional<double> tolerance);

}  // namespace pipewright::cli
