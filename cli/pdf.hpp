// SVG to PDF, by a program that is not ours: rsvg-convert of librsvg.
#pragma once

#include <string>

#include "core/rooms.hpp"

namespace pipewright::cli {

// Throws InputError, which names the package, where the converter is on no path.
void check_pdf_converter();

// The same SVG gives the same bytes with the same converter and fonts. Throws InputError with what the converter says.
std::string pdf_of(const std::string& svg);

}  // namespace pipewright::cli
