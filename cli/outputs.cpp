#include "cli/outputs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {

std::vector<std::size_t> check_outputs(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs,
                                       std::span<const std::string_view> endings) {
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string& output = outputs[i];
    const auto refuse = [&](const std::string& why) { throw InputError("--output: \"" + output + "\" " + why); };
    for (const std::string& input : inputs)
      if (same_file(input, output)) refuse("is read by this command; name another file");
    std::size_t number = 0;
    while (number < endings.size() && !(output.size() > endings[number].size() && output.ends_with(endings[number])))
      ++number;
    if (number == endings.size()) refuse(fmt::format("has no known ending; known: {}", fmt::join(endings, ", ")));
    for (std::size_t j = 0; j < i; ++j)
      if (outputs[j] == output) refuse("is given twice; name each file once");
    check_writable(output);
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace pipewright
