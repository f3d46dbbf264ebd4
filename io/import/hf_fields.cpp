#include "io/import/hf_fields.hpp"

#include <algorithm>

#include "io/import/json_places.hpp"

namespace pipewright {
namespace {

constexpr int kDeepest = 32;  // levels of nesting; configurations have three

// The message of nlohmann-json without its head and place.
std::string reason(const std::string& what) {
  const std::size_t column = what.find("column ");
  const std::size_t colon = what.find(": ", column == std::string::npos ? 0 : column);
  const std::string rest = colon == std::string::npos ? what : what.substr(colon + 2);
  return printable(rest.size() > 160 ? rest.substr(0, 160) + "..." : rest);
}

}  // namespace

Json hf_object(const std::string& text, const std::string& file) {
  const Place whole{file, 0, 0};
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw InputError(whole, "is empty; a config.json is needed");
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest)
      throw InputError(whole,
                       fmt::format("nests deeper than {} levels; a config.json is a nearly flat object", kDeepest));
    return true;
  };
  try {
    Json json = Json::parse(text, watch);
    if (!json.is_object())
      throw InputError(json_place(text, 0, file),
                       fmt::format("holds {} where a config.json holds an object, {{...}}", json.type_name()));
    return json;
  } catch (const Json::parse_error& error) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin != std::string::npos && text[begin] != '{')
      throw InputError(json_place(text, begin, file),
                       "is no config.json of Hugging Face, which is one JSON object, {...}; look at its first line");
    const std::size_t offset = error.byte > 0 ? error.byte - 1 : 0;
    const bool truncated = offset >= text.size();
    throw InputError(
        json_place(text, std::min(offset, text.size()), file),
        fmt::format("is no JSON: {}{}", reason(error.what()), truncated ? "; is the file truncated?" : ""));
  } catch (const Json::exception& error) {  // a number that no double holds
    throw InputError(whole, "is no JSON that can be read: " + reason(error.what()));
  }
}

}  // namespace pipewright
