#include "io/import/logged_memory.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "io/import/byte_source.hpp"
#include "io/text/errors.hpp"
#include "io/text/quantity.hpp"

namespace pipewright::io {
namespace {

constexpr double kGibi = 1024 * kMebi, kGiga = 1e9;

struct Words {
  std::string_view before;  // the figure
  double unit;
  std::string_view behind;  // it; "": anything
  std::optional<Bytes> LoggedMemory::*of;
};
constexpr std::array<Words, 9> kWords = {{
    {"| allocated:", kMebi, "", &LoggedMemory::held},
    {"| max allocated:", kMebi, "", &LoggedMemory::allocated},
    {"| max reserved:", kMebi, "", &LoggedMemory::reserved},
    {"mem-allocated-gigabytes:", kGiga, "", &LoggedMemory::held},
    {"mem-max-allocated-gigabytes:", kGiga, "", &LoggedMemory::allocated},
    {"mem-max-reserved-gigabytes:", kGiga, "", &LoggedMemory::reserved},
    {"Peak allocated", kMebi, "MiB", &LoggedMemory::allocated},
    {"Peak reserved:", kMebi, "MiB", &LoggedMemory::reserved},
    {"memory:", kGibi, "GiB(", &LoggedMemory::reserved},
}};

// The figure behind `at`, and whether it is followed by the unit.
std::optional<double> figure_at(std::string_view line, std::size_t at, std::string_view behind) {
  at = line.find_first_not_of(" :", at);  // nanotron's colon comes and goes with its versions
  if (at == std::string_view::npos) return std::nullopt;
  const std::size_t end = std::min(line.find_first_not_of("0123456789.", at), line.size());
  if (line.substr(end, behind.size()) != behind) return std::nullopt;
  return parse_number(line.substr(at, end - at - (end > at && line[end - 1] == '.' ? 1 : 0))).value;
}

bool more(const std::optional<Bytes>& a, const std::optional<Bytes>& b) {
  return a && (!b || *a > *b);
}

}  // namespace

LoggedMemory memory_of_line(std::string_view line) {
  LoggedMemory memory;
  for (const Words& words : kWords) {
    const std::size_t at = line.find(words.before);
    if (at == std::string_view::npos) continue;
    const std::optional<double> figure = figure_at(line, at + words.before.size(), words.behind);
    if (figure && *figure * words.unit < 1e18) memory.*words.of = Bytes{std::llround(*figure * words.unit)};
  }
  return memory;
}

LoggedMemory read_logged_memory(const std::string& path) {
  ByteSource source(path);
  LoggedMemory most;
  std::string line;
  int number = 1;
  for (int byte = source.next();; byte = source.next()) {
    if (byte >= 0 && byte != '\n') {
      line += static_cast<char>(byte);
      if (line.size() > kLongestLogLine)
        throw InputError(Place{source.name(), number, 1}, "a line of more than 1 MiB; is this the log of a run?");
      continue;
    }
    LoggedMemory here = line.find("validate step") == std::string::npos ? memory_of_line(line) : LoggedMemory{};
    here.place = {source.name(), number, 1};
    const bool without = !here.allocated && !most.allocated;
    if (without ? more(here.reserved, most.reserved) : more(here.allocated, most.allocated)) most = here;
    if (byte < 0) break;
    line.clear(), ++number;
  }
  if (!most.allocated && !most.reserved)
    throw InputError(fmt::format(
        "{}: no line says what memory was allocated or reserved; expected are Megatron-LM's \"memory (MB) | allocated: "
        ".. | max allocated: .. | max reserved: ..\", nanotron's \"Peak allocated 5678.90MiB\" or torchtitan's "
        "\"memory: 49.66GiB(52.28%)\"",
        source.name()));
  return most;
}

}  // namespace pipewright::io
