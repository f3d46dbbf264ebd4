#include "io/text/errors.hpp"

#include <algorithm>
#include <cstdint>
#include <tuple>

#include <fmt/format.h>

#include "io/text/utf8.hpp"

namespace pipewright::io {

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

void Errors::keep(Fault fault) {
  ++count_;
  if (!full()) faults_.push_back(std::move(fault));
}

void Errors::add(const InputError& error) {
  for (const Fault& fault : error.faults())
    keep(fault);
}

void Errors::throw_if_any() const {
  if (empty()) return;
  std::vector<std::string> files;
  for (const Fault& fault : faults_)
    if (std::ranges::find(files, fault.place.file) == files.end()) files.push_back(fault.place.file);
  const auto order = [&](const Fault& fault) {
    const auto file = std::ranges::find(files, fault.place.file) - files.begin();
    return std::tuple(file, fault.place.line, fault.place.column);
  };
  std::vector<Fault> sorted = faults_;
  std::ranges::stable_sort(sorted, [&](const Fault& a, const Fault& b) { return order(a) < order(b); });
  if (count_ > sorted.size()) sorted.push_back({{}, "", fmt::format("and {} more errors", count_ - sorted.size())});
  throw InputError(std::move(sorted));
}

}  // namespace pipewright::io
