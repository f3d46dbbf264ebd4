#include "io/errors.hpp"

#include <algorithm>
#include <cstdint>
#include <tuple>

#include <fmt/format.h>

#include "io/utf8.hpp"

namespace pipewright {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 72;
  std::size_t end = std::min(text.size(), longest);
  // A cut inside a UTF-8 character would print a broken one.
  while (end < text.size() && end > 0 && (static_cast<std::uint8_t>(text[end]) & 0xc0) == 0x80)
    --end;
  std::string shown = "\"";
  for (const char c : printable(text.substr(0, end)))
    shown += c == '\n' ? std::string("\\n") : std::string(1, c);
  if (end < text.size()) return shown + fmt::format("...\" ({} characters)", text.size());
  return shown + "\"";
}

void Errors::add(const Place& place, const std::string& message) {
  ++count_;
  if (!full()) lines_.push_back({place, message});
}

void Errors::add(const InputError& error) {
  ++count_;
  if (!full()) lines_.push_back({{}, error.what()});
}

void Errors::throw_if_any() const {
  if (empty()) return;
  std::vector<std::string> files;
  for (const Line& line : lines_)
    if (std::find(files.begin(), files.end(), line.place.file) == files.end()) files.push_back(line.place.file);
  const auto order = [&](const Line& line) {
    const auto file = std::find(files.begin(), files.end(), line.place.file) - files.begin();
    return std::tuple(file, line.place.line, line.place.column);
  };
  std::vector<Line> sorted = lines_;
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Line& a, const Line& b) { return order(a) < order(b); });
  std::string message;
  for (const Line& line : sorted) {
    if (!message.empty()) message += '\n';
    message += head(line.place) + line.text;
  }
  if (count_ > sorted.size()) message += fmt::format("\nand {} more errors", count_ - sorted.size());
  throw InputError(message);
}

}  // namespace pipewright
