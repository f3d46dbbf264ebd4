#include "cli/outputs.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.hpp"
#include "io/console.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::cli {

namespace {

// Of the ending that a format names; "": none, their number.
std::size_t number_of(const std::string& format, std::span<const std::string_view> endings) {
  std::vector<std::string_view> known;
  for (const std::string_view ending : endings)
    known.push_back(ending.substr(1));
  const auto found = std::ranges::find(known, format);
  if (!format.empty() && found == known.end()) throw InputError(Place{}, "--format", unknown_name(format, known));
  return at(found - known.begin());
}

}  // namespace

bool same_file(const std::string& a, const std::string& b) {
  std::error_code missing;
  return std::filesystem::equivalent(a, b, missing) && !missing;
}

void write_output(const std::string& path, const std::string& text, std::string_view what) {
  write_file(path, text);
  note(fmt::format("wrote {} ({})", path, what));
}

std::vector<std::size_t> check_outputs(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs,
                                       std::span<const std::string_view> endings, const std::string& format) {
  std::vector<std::size_t> numbers;
  const std::size_t forced = number_of(format, endings);
  if (!format.empty() && outputs.empty())
    throw InputError(Place{}, "--format", "no file to write; name one with -o FILE");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string& output = outputs[i];
    const auto refuse = [&](const std::string& why) {
      throw InputError(Place{}, "--output", "\"" + output + "\" " + why);
    };
    for (const std::string& input : inputs)
      if (same_file(input, output)) refuse("is read by this command; name another file");
    std::size_t number = forced;
    if (format.empty())
      for (number = 0; number < endings.size() && !ends_in(output, endings[number]);)
        ++number;
    if (number == endings.size()) refuse(fmt::format("has no known extension; known: {}", fmt::join(endings, ", ")));
    for (std::size_t j = 0; j < i; ++j)
      if (outputs[j] == output) refuse("is given twice; name each file once");
    check_writable(output);
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace pipewright::cli
