#include "io/launch/layout.hpp"

#include <fmt/format.h>

#include "core/check.hpp"
#include "io/text/errors.hpp"

namespace pipewright {
namespace {

std::string text(const LayoutChunk& chunk) {
  std::string out = chunk.embedding ? "E" : "";
  if (chunk.blocks == 1) out += "t";
  if (chunk.blocks > 1) out += fmt::format("t*{}", chunk.blocks);
  // After a count a letter would be read as one more thing all the same; the comma is for people.
  if (chunk.head) out += chunk.blocks > 1 ? ",L" : "L";
  return out;
}

constexpr std::size_t kMostLetters = 1 << 20;

[[noreturn]] void refuse(std::string_view layout, const std::string& why) {
  throw InputError(fmt::format("pipeline-model-parallel-layout: {} {}", in_quotes(layout), why));
}

// The number behind a star at `at`; moves behind it. No star: 1.
std::size_t take_count(std::string_view layout, std::size_t& at) {
  if (at >= layout.size() || layout[at] != '*') return 1;
  std::size_t count = 0, digits = 0;
  for (++at; at < layout.size() && layout[at] >= '0' && layout[at] <= '9'; ++at, ++digits)
    count = std::min<std::size_t>(10 * count + static_cast<std::size_t>(layout[at] - '0'), kMostLetters + 1);
  if (digits == 0) refuse(layout, "has a * without a number behind it");
  return count;
}

// Counts unrolled, commas gone; parentheses do not nest.
std::string unrolled(std::string_view layout) {
  std::string letters;
  const auto repeat = [&](const std::string& part, std::size_t count) {
    if (letters.size() + part.size() * count > kMostLetters) refuse(layout, "has more than a million layers");
    for (std::size_t i = 0; i < count; ++i)
      letters += part;
  };
  for (std::size_t at = 0; at < layout.size();) {
    const char c = layout[at++];
    if (c == ',') continue;
    if (c != '(') {
      if (c == ')' || c == '*') refuse(layout, fmt::format("has a {} that belongs to nothing", c));
      repeat(std::string(1, c), take_count(layout, at));
      continue;
    }
    const std::size_t end = layout.find(')', at);
    if (end == std::string_view::npos) refuse(layout, "has a ( without its )");
    const std::string_view inside = layout.substr(at, end - at);
    if (inside.find('(') != std::string_view::npos) refuse(layout, "has ( within (");
    at = end + 1;
    const std::size_t count = take_count(layout, at);
    repeat(unrolled(inside), count);
  }
  return letters;
}

}  // namespace

std::string megatron_layout(const std::vector<LayoutChunk>& chunks) {
  std::string layout;
  for (std::size_t i = 0; i < chunks.size();) {
    const std::string here = text(chunks[i]);
    std::size_t end = i + 1;  // of a run of equal chunks, the last chunk of all left out: no | follows it
    while (end + 1 < chunks.size() && chunks[end] == chunks[i])
      ++end;
    if (end - i > 1) {
      layout += fmt::format("({}|)*{}", here, end - i);
      if (end < chunks.size()) layout += ",";
      i = end;
    } else {
      layout += here;
      if (++i < chunks.size()) layout += "|";
    }
  }
  return layout;
}

std::vector<LayoutChunk> parse_megatron_layout(std::string_view layout) {
  std::vector<LayoutChunk> chunks(1);
  const std::string letters = unrolled(layout);
  for (std::size_t i = 0; i < letters.size(); ++i) {
    switch (letters[i]) {
      case '|': chunks.emplace_back(); break;
      case 't': ++chunks.back().blocks; break;
      case 'E':
        if (i != 0) refuse(layout, "has its embedding elsewhere than in front");
        chunks.back().embedding = true;
        break;
      case 'L':
        if (i + 1 != letters.size()) refuse(layout, "has its loss elsewhere than at the end");
        chunks.back().head = true;
        break;
      default:
        refuse(layout, fmt::format("has {} where E, t, L, |, * or ( may stand", in_quotes(letters.substr(i, 1))));
    }
  }
  if (!chunks.front().embedding || !chunks.back().head) refuse(layout, "needs E in front and L at the end");
  return chunks;
}

}  // namespace pipewright
