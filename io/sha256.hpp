// SHA-256 of a text, as 64 hexadecimal digits: the provenance of imported files.   [FIPS 180-4]
#pragma once

#include <string>
#include <string_view>

namespace pipewright {

std::string sha256(std::string_view text);

}  // namespace pipewright
