#include "io/import/hf_fields.hpp"

#include <algorithm>

#include "io/import/json_places.hpp"

namespace pipewright {
namespace {

constexpr int kDeepest = 32;  // levels of nesting; configurations have three

}  // namespace

Json hf_object(const std::string& text, const std::string& file) {
  const Place whole{file, 0, 0};
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw InputError(whole, "is empty; a config.json is needed");
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (text[begin] != '{')
    throw InputError(json_place(text, begin, file),
                     "is not a config.json of Hugging Face, which is one JSON object, {...}; look at its first line");
  return parse_json(text, file, "copy the file again from its publisher", kDeepest);
}

}  // namespace pipewright
