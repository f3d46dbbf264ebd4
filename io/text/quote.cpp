#include "io/text/quote.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include <fmt/format.h>

#include "core/check.hpp"
#include "io/text/errors.hpp"
#include "io/text/letters.hpp"
#include "io/text/utf8.hpp"

namespace pipewright::io {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_word(char c) {
  return is_letter(c) || is_digit(c);
}

bool is_punctuation(char c) {
  return c > ' ' && c <= '~' && !is_word(c);
}

bool only(std::string_view text, std::string_view signs) {
  return std::ranges::all_of(text, [&](char c) { return is_word(c) || signs.find(c) != std::string_view::npos; });
}

bool stands_as_it_is(char c) {
  return c >= ' ' && c <= '~' && c != '"' && c != '\'' && c != '\\';
}

// `text` with every other character as `quoted` has it.
template <class Quoted>
std::string each_character(std::string_view text, Quoted quoted) {
  std::string out;
  while (!text.empty()) {
    const std::string_view plain(text.begin(), std::ranges::find_if_not(text, stands_as_it_is));
    out += plain;
    text.remove_prefix(plain.size());
    if (text.empty()) break;
    const Utf8Character character = first_character(text);
    out += quoted(character);
    text.remove_prefix(character.bytes.size());
  }
  return out;
}

}  // namespace

// ---- programs -------------------------------------------------------------------------------------------------------

std::string comment_text(std::string_view text) {
  return text.empty() ? "#" : "# " + one_line(text);
}

std::string comment(std::string_view text) {
  return comment_text(text) + "\n";
}

namespace {

// In $'..', which bash, ksh and zsh read: what cannot be seen byte by byte.
std::string shell_character(const Utf8Character& c) {
  if (c.code == '\n') return "\\n";
  if (c.code == '\'' || c.code == '\\') return "\\" + std::string(c.bytes);
  if (c.is_seen()) return std::string(c.bytes);
  std::string bytes;
  for (const char byte : c.bytes)
    bytes += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return bytes;
}

}  // namespace

std::string shell_word(std::string_view text) {
  if (!text.empty() && only(text, "_./:=,@%+-")) return std::string(text);
  if (printable(text) != text || text.find('\n') != std::string_view::npos)
    return "$'" + each_character(text, shell_character) + "'";
  std::string out = "'";
  for (const char c : text)
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string shell_path(std::string_view path) {
  return shell_word((path.size() > 1 && path.front() == '-' ? "./" : "") + std::string(path));
}

// ---- data -----------------------------------------------------------------------------------------------------------

namespace {

// What YAML and JSON escape alike; "": nothing.
std::string usual_escape(const Utf8Character& c) {
  if (c.code == '\n') return "\\n";
  if (c.code == '\t') return "\\t";
  return c.code == '"' || c.code == '\\' ? "\\" + std::string(c.bytes) : "";
}

std::string yaml_character(const Utf8Character& c) {
  if (const std::string usual = usual_escape(c); !usual.empty()) return usual;
  if (c.is_seen()) return std::string(c.bytes);
  if (c.length == 0 || c.is_control()) return "\\" + printable(c.bytes);
  return printable(c.bytes);  // "\u202e" means the same there
}

// Beyond 16 bits two halves.   RFC 8259 section 7
std::string json_character(const Utf8Character& c) {
  if (c.length == 0) return "\uFFFD";
  if (const std::string usual = usual_escape(c); !usual.empty()) return usual;
  if (c.is_seen()) return std::string(c.bytes);
  if (c.code <= 0xffff) return fmt::format("\\u{:04x}", c.code);
  return fmt::format("\\u{:04x}\\u{:04x}", 0xd7c0 + (c.code >> 10), 0xdc00 + (c.code & 0x3ff));
}

}  // namespace

std::string yaml_string(std::string_view text) {
  constexpr std::array<std::string_view, 10> words = {"null",  "Null", "NULL", "~",  "true",
                                                      "false", "yes",  "no",   "on", "off"};
  const bool word = std::ranges::find(words, text) != words.end();
  if (!text.empty() && only(text, "_-./ +") && !word && is_letter(text.front()) && text.back() != ' ')
    return std::string(text);
  return '"' + each_character(text, yaml_character) + '"';
}

std::string yaml_path(const std::string& path) {
  if (!is_text(path))
    throw InputError("the path " + in_quotes(path) +
                     " holds a character that no scenario can; rename the file or its folder");
  return yaml_string(path);
}

std::string json_string(std::string_view text) {
  return '"' + each_character(text, json_character) + '"';
}

namespace {

// What "-0.5" and "+1e9" are, and "-inf" or "-1+1" are not.
bool is_number(std::string_view text) {
  if (text.find_first_not_of("0123456789.eE+-") != std::string_view::npos) return false;
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

// Its full-width forms count where a keyboard is Japanese.
bool begins_a_formula(std::string_view text) {
  constexpr std::array<std::string_view, 8> signs = {"=", "+", "-", "@", "\uFF1D", "\uFF0B", "\uFF0D", "\uFF20"};
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return std::ranges::any_of(signs, [&](std::string_view sign) { return text.starts_with(sign); });
}

}  // namespace

std::string csv_field(std::string_view text) {
  const std::string line = one_line(text);
  const std::string guarded = (begins_a_formula(line) && !is_number(line) ? "'" : "") + line;
  if (guarded.find_first_of(",;\"") == std::string::npos) return guarded;  // ; separates where a comma is decimal
  std::string out = "\"";
  for (const char c : guarded)
    out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

// ---- documents ------------------------------------------------------------------------------------------------------

namespace {

// One line of text on its way into Markdown.
class MarkdownLine {
 public:
  MarkdownLine(std::string_view text, bool cell)
      : text_(text), first_(cell ? std::string_view::npos : text.find_first_not_of(' ')), cell_(cell) {}

  std::string escaped() const {
    std::string out;
    for (std::size_t i = 0; i < text_.size();) {
      const std::size_t code = code_span(i);
      out += code > 0 ? std::string(text_.substr(i, code)) : character(i);
      i += std::max<std::size_t>(code, 1);
    }
    return out;
  }

 private:
  char at(std::size_t i) const { return i < text_.size() ? text_[i] : '\0'; }  // also of one before the first
  bool is_one_of(char c, std::string_view signs) const { return c != '\0' && signs.find(c) != std::string_view::npos; }

  // Length of `text` that begins at `i` and holds no markup; 0: none does.
  std::size_t code_span(std::size_t i) const {
    if (text_[i] != '`' || at(i - 1) == '`') return 0;
    const std::size_t end = text_.find('`', i + 1);
    if (end == std::string_view::npos || end == i + 1 || at(end + 1) == '`') return 0;
    return only(text_.substr(i + 1, end - i - 1), " _.,/=:+-") ? end + 1 - i : 0;
  }

  // A heading, an item of a list or a rule.
  bool begins_block(std::size_t i) const {
    if (is_one_of(text_[i], ".)")) return numbered(i);
    if (i != first_) return false;
    return text_[i] == '#' || (text_[i] == '+' && at(i + 1) == ' ') || (text_[i] == '-' && is_one_of(at(i + 1), " -"));
  }
  bool numbered(std::size_t i) const {
    if (first_ >= i) return false;
    const std::string_view head = text_.substr(first_, i - first_);
    return std::ranges::all_of(head, is_digit) && (at(i + 1) == ' ' || at(i + 1) == '\0');
  }

  bool is_markup(std::size_t i) const {
    switch (text_[i]) {
      case '*':
      case '`':
      case '~':
      case '$': return true;
      case '|': return cell_;
      case '_': return !is_word(at(i - 1)) || !is_word(at(i + 1));
      case '\\': return at(i + 1) == '\0' || is_punctuation(at(i + 1));
      // A definition of a link is one at the head of a paragraph only.
      case ']': return is_one_of(at(i + 1), "([") || (at(i + 1) == ':' && text_.front() == '[');
      case '(': return at(i - 1) == ']';
      default: return begins_block(i);
    }
  }

  std::string character(std::size_t i) const {
    const char c = text_[i];
    if (c == '<') return "&lt;";
    if (c == '>' && i == first_) return "&gt;";
    if (c == '&' && (at(i + 1) == '#' || is_letter(at(i + 1)))) return "&amp;";
    return (is_markup(i) ? "\\" : "") + std::string(1, c);
  }

  std::string_view text_;
  std::size_t first_;  // that is no space, of text that may begin a block
  bool cell_;
};

}  // namespace

std::string markdown_text(std::string_view text) {
  return MarkdownLine(one_line(text), false).escaped();
}

std::string markdown_cell(std::string_view text) {
  return MarkdownLine(one_line(text), true).escaped();
}

std::string markdown_code(std::string_view text) {
  const std::string line = one_line(text);
  return line.empty() || line.find_first_of("`|<&\\") != std::string::npos ? markdown_text(line) : "`" + line + "`";
}

std::string xml(std::string_view text) {
  std::string out;
  for (const char c : one_line(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string dot_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out + "\"";
}

}  // namespace pipewright::io
