// The manual page, in troff's language.
#pragma once

#include <string>

namespace pipewright {

std::string manual_page();

}  // namespace pipewright
