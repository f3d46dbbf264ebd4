// The files that a command is asked to write (-o), checked before anything is computed: nobody waits for an answer that
// cannot be kept.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/folds.hpp"
#include "core/rooms.hpp"

namespace pipewright::cli {

// Whether two paths lead to one file that exists: an output must not replace the input it is made from.
bool same_file(const std::string& a, const std::string& b);

// Writes the file and says so: "wrote steps.svg (drawing)".
void write_output(const std::string& path, const std::string& text, std::string_view what);

// `endings`: those that the command writes; of several that match the first in this list counts. `inputs`: files that
// the command reads. Returns the number of the ending of each output. Throws InputError for an output without a known
// ending, named twice, that is an input, or that cannot be written (`check_writable`). `format`: an ending without its
// dot that all outputs are written as, whatever their own; "": none.
std::vector<std::size_t> check_outputs(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs,
                                       std::span<const std::string_view> endings, const std::string& format = "");

// The same, of a table of formats with a member `ending`: the format of each output.
template <class Format>
std::vector<const Format*> checked_formats(const std::vector<std::string>& outputs,
                                           const std::vector<std::string>& inputs, std::span<const Format> formats,
                                           const std::string& forced = "") {
  auto endings = mapped<std::string_view>(formats, &Format::ending);
  std::vector<const Format*> chosen;
  for (const std::size_t number : check_outputs(outputs, inputs, endings, forced))
    chosen.push_back(&formats[number]);
  return chosen;
}

}  // namespace pipewright::cli
