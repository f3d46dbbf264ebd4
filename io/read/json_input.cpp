#include "io/read/json_input.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "io/import/json_places.hpp"
#include "io/text/errors.hpp"
#include "io/text/utf8.hpp"

namespace pipewright::io {
namespace {

constexpr int kNumberTooLarge = 406;  // nlohmann's id of the error

// Where nlohmann-json stops, and at what.
class JsonFault : public nlohmann::json_sax<Json> {
 public:
  explicit JsonFault(int deepest) : deepest_(deepest) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return ++depth_ <= deepest_; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override { return ++depth_ <= deepest_; }
  bool end_array() override { return --depth_, true; }
  bool parse_error(std::size_t position, const std::string& last, const nlohmann::detail::exception& error) override {
    offset = position > 0 ? position - 1 : 0, token = last, is_too_large = error.id == kNumberTooLarge;
    if (is_too_large) offset -= std::min(offset, token.size() - 1);  // where it begins
    return false;
  }
  bool is_too_deep() const { return depth_ > deepest_; }

  std::size_t offset = 0;  // of the last byte that was read, or of a number
  std::string token;       // which that byte belongs to
  bool is_too_large = false;

 private:
  int deepest_, depth_ = 0;
};

// The last character before `offset` that is not blank; 0: none.
char before(std::string_view text, std::size_t offset) {
  const std::size_t at = text.substr(0, offset).find_last_not_of(" \t\r\n");
  return at == std::string_view::npos ? '\0' : text[at];
}

std::string shortened(const std::string& text) {
  constexpr std::size_t kShown = 40;
  return text.size() > kShown ? text.substr(0, kShown) + "..." : text;
}

// What is wrong within a text in quotes.
std::string in_text(std::string_view text, std::size_t offset) {
  constexpr std::size_t kEscape = 12;  // "\ud83d\ude00"
  const auto byte = static_cast<unsigned char>(text[offset]);
  if (byte < 0x20)
    return "a text holds a line break or another control character; write it as \\n or \\u001f, or close the quotes "
           "before";
  const std::size_t begin = offset - std::min(offset, kEscape);
  const std::size_t escape = text.substr(begin, offset - begin + 1).rfind('\\');
  if (byte < 0x80 && escape != std::string_view::npos)
    return fmt::format("{} is not an escape of JSON; write \\\\ for a backslash",
                       in_quotes(text.substr(begin + escape, offset - begin - escape + 1)));
  return fmt::format("byte 0x{:02x} is not UTF-8 text; save the file as UTF-8", byte);
}

// What is wrong before the quote that closes a text: half of a pair of escapes, a character of UTF-8 cut off. "": nothing.
std::string before_quote(std::string_view text) {
  const std::string_view escape = text.substr(text.size() - std::min<std::size_t>(text.size(), 6));
  const bool first_half = (escape.starts_with("\\ud") || escape.starts_with("\\uD")) && escape.size() == 6 &&
                          std::string_view("89abAB").find(escape[3]) != std::string_view::npos;
  if (first_half) return fmt::format("{} is half of a character, which takes two such escapes", in_quotes(escape));
  std::size_t begin = text.size();
  while (begin > 0 && text.size() - begin < 3 && (static_cast<unsigned char>(text[begin - 1]) & 0xc0) == 0x80)
    --begin;
  if (begin == 0 || static_cast<unsigned char>(text[begin - 1]) < 0xc0) return "";
  return utf8_length(text.substr(begin - 1)) > 0 ? "" : "a character of UTF-8 is cut off; save the file as UTF-8";
}

// Whether the last character of `token` stands within a text that begins it: nlohmann-json's token goes on behind one.
bool ends_within_text(std::string_view token) {
  if (!token.starts_with('"')) return false;
  for (std::size_t i = 1; i + 1 < token.size(); ++i) {
    if (token[i] == '"') return false;
    if (token[i] == '\\') ++i;
  }
  return true;
}

// What stands there up to `offset`: a bracket, a comma, a word cut where it is wrong.
std::string_view piece_at(std::string_view text, std::size_t offset) {
  constexpr std::string_view kEnds = " \t\r\n{}[],:\"";
  if (kEnds.find(text[offset]) != std::string_view::npos) return text.substr(offset, 1);
  const std::size_t end = text.substr(0, offset).find_last_of(kEnds);
  const std::size_t begin = end == std::string_view::npos ? 0 : end + 1;
  return text.substr(begin, offset + 1 - begin);
}

std::string in_words(std::string_view text, const JsonFault& fault) {
  if (fault.is_too_large) return fmt::format("the number {} is out of range", shortened(printable(fault.token)));
  if (fault.offset >= text.size()) return "it ends within a value, so the file may be cut off";
  const char c = text[fault.offset];
  if (ends_within_text(fault.token) && c != '"') return in_text(text, fault.offset);
  if (fault.token.size() > 1 && c == '"')
    if (std::string wrong = before_quote(text.substr(0, fault.offset)); !wrong.empty()) return wrong;
  if ((c == '}' || c == ']') && before(text, fault.offset) == ',')
    return fmt::format("a comma stands before \"{}\"; take it out", c);
  return fmt::format("{} is not expected here; look at the commas, colons, quotes and brackets just before",
                     c == '"' ? shortened(printable(fault.token)) : in_quotes(piece_at(text, fault.offset)));
}

std::string with(const std::string& way_out) {
  return way_out.empty() ? "" : "; " + way_out;
}

// "key" behind "workers[2]".
std::string joined(const std::string& path, std::string_view key) {
  const std::string shown = printable(key);
  return path.empty() ? shown : path + "." + shown;
}

}  // namespace

Json parse_json(std::string_view text, const std::string& file, const std::string& way_out, int deepest) {
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)  // where nlohmann-json would end
    throw InputError(json_place(text, nul, file), "not valid JSON: a NUL byte stands here" + with(way_out));
  JsonFault fault(deepest);
  if (Json::sax_parse(text, &fault)) return Json::parse(text);
  if (fault.is_too_deep())
    throw InputError(Place{file, 0, 0}, fmt::format("nests deeper than {} levels{}", deepest, with(way_out)));
  throw InputError(json_place(text, std::min(fault.offset, text.size()), file),
                   "not valid JSON: " + in_words(text, fault) + with(way_out));
}

JsonValue::JsonValue(const Json& json, const std::string& file, const std::string& way_out)
    : JsonValue(json, "", std::make_shared<const Source>(Source{file, way_out})) {}

JsonValue::JsonValue(const Json& json, std::string path, std::shared_ptr<const Source> source)
    : json_(&json), path_(std::move(path)), source_(std::move(source)) {}

void JsonValue::refuse(const std::string& why) const {
  throw InputError(Place{source_->file, 0, 0},
                   (path_.empty() ? "the document" : path_) + " " + why + with(source_->way_out));
}

void JsonValue::not_a(const std::string& kind) const {
  const std::string value = json_->dump(-1, ' ', true, Json::error_handler_t::replace);
  refuse(fmt::format("is {}, not {}", shortened(value), kind));
}

JsonValue JsonValue::at(std::string_view key) const {
  if (!json_->is_object()) not_a("a map");
  const auto found = json_->find(std::string(key));
  if (found == json_->end()) JsonValue(*json_, joined(path_, key), source_).refuse("is missing");
  return {*found, joined(path_, key), source_};
}

bool JsonValue::has(std::string_view key) const {
  return json_->is_object() && json_->contains(std::string(key));
}

std::vector<JsonValue> JsonValue::items() const {
  if (!json_->is_array()) not_a("a list");
  std::vector<JsonValue> all;
  for (std::size_t i = 0; i < json_->size(); ++i)
    all.push_back(JsonValue((*json_)[i], fmt::format("{}[{}]", path_, i), source_));
  return all;
}

std::vector<std::pair<std::string, JsonValue>> JsonValue::map() const {
  if (!json_->is_object()) not_a("a map");
  std::vector<std::pair<std::string, JsonValue>> all;
  for (const auto& [key, value] : json_->items())
    all.emplace_back(key, JsonValue(value, joined(path_, key), source_));
  return all;
}

std::string JsonValue::text() const {
  if (!json_->is_string()) not_a("a text");
  return json_->get<std::string>();
}

bool JsonValue::flag() const {
  if (!json_->is_boolean()) not_a("true or false");
  return json_->get<bool>();
}

double JsonValue::number() const {
  if (!json_->is_number()) not_a("a number");
  return json_->get<double>();
}

std::int64_t JsonValue::whole() const {
  const bool in_range = !json_->is_number_unsigned() || json_->get<std::uint64_t>() <= std::uint64_t{1} << 62;
  if (!json_->is_number_integer() || !in_range) not_a("a whole number");
  return json_->get<std::int64_t>();
}

std::optional<double> JsonValue::number_or_null() const {
  return is_null() ? std::nullopt : std::optional(number());
}

}  // namespace pipewright::io
