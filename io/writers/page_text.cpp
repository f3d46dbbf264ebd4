#include "io/writers/page_text.hpp"

#include <algorithm>

#include "io/text/letters.hpp"

namespace pipewright::io {
namespace {

bool is_one_of(char letter, std::string_view letters) {
  return letters.find(letter) != std::string_view::npos;
}

// Letters, digits and what ties a number to its neighbour: "v2048", "2026-11-23", "10:30", "3/4096".
bool ties(char letter) {
  const char lower = static_cast<char>(letter | 0x20);
  return is_digit(letter) || (lower >= 'a' && lower <= 'z') || is_one_of(letter, "_:/#'");
}

// 0: before the beginning, behind the end.
char at(std::string_view text, std::size_t i) {
  return i < text.size() ? text[i] : '\0';
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const char before = begin > 0 ? text[begin - 1] : '\0', behind = at(text, end);
  if (ties(before) || is_one_of(before, ".,") || ties(behind) || behind == '-') return false;
  if (behind == ',' && is_digit(at(text, end + 1))) return false;
  return before != '-' || begin < 2 || is_one_of(text[begin - 2], " (");  // a sign, or a range
}

std::string grouped(std::string_view digits) {
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

// Where the path ends that begins at `begin`: at its closing quote, or else at a blank or a bracket.
std::size_t end_of_path(std::string_view text, std::size_t begin) {
  const char before = begin > 0 ? text[begin - 1] : '\0';
  if (is_one_of(before, "\"'"))
    if (const std::size_t quote = text.find(before, begin); quote != std::string_view::npos) return quote;
  return std::min(text.find_first_of(" \t\n\"'()[]{}<>,;|", begin), text.size());
}

bool begins_path(std::string_view text, std::size_t i) {
  if (text[i] != '/' || at(text, i + 1) == '/') return false;
  return i == 0 || is_one_of(text[i - 1], " \t\n\"'(=,[{|>:");
}

std::string_view short_path(std::string_view path) {
  if (std::ranges::count(path, '/') < 2) return path;
  if (const std::size_t configs = path.rfind("/configs/"); configs != std::string_view::npos)
    return path.substr(configs + 1);
  if (path.ends_with('/')) path.remove_suffix(1);
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

std::string with_separators(std::string_view text, std::size_t least) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (is_digit(at(text, end)))
      ++end;
    if (end == i) {
      result += text[i++];
      continue;
    }
    const bool large = end - i >= least && text[i] != '0' && stands_alone(text, i, end);
    result += large ? grouped(text.substr(i, end - i)) : std::string(text.substr(i, end - i));
    i = end;
  }
  return result;
}

std::string without_folders(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    if (!begins_path(text, i)) {
      result += text[i++];
      continue;
    }
    const std::size_t end = end_of_path(text, i);
    result += short_path(text.substr(i, end - i));
    i = end;
  }
  return result;
}

}  // namespace pipewright::io
