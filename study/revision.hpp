// Which source this program was built from, for results that are kept: measured figures only. What is computed is the
// same of any commit of a version, and does not name one.
#pragma once

#include <string>

#include "core/rooms.hpp"

namespace pipewright::study {

// Version and commit: "0.1.0 (1a2b3c4)", "0.1.0 (1a2b3c4-dirty)" where files differed from it; where the source was no
// git checkout, or git was not there, "0.1.0".
std::string version_with_commit();

}  // namespace pipewright::study
