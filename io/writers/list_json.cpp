#include "io/writers/list_json.hpp"

#include "io/writers/json_text.hpp"
#include "io/writers/shapes.hpp"
#include "io/writers/yaml_json.hpp"

namespace pipewright {

std::string list_json(const std::string& kind, const std::vector<ListEntry>& entries) {
  JsonText json;
  json.open('{').field("schema", "pipewright.show/1").field("kind", kind).key("entries").open('[');
  for (const ListEntry& entry : entries) {
    json.open('{').field("name", entry.name).field("summary", entry.summary);
    if (!entry.file.empty()) json.field("file", entry.file);
    if (entry.document != nullptr) write_yaml(json.key("document"), *entry.document);
    json.close();
  }
  json.close().close();
  return std::move(json).text();
}

JsonShape list_shape() {
  using namespace shape;
  const JsonShape entry = object({{"name", text()}, {"summary", text()}, {"file?", text()}, {"document?", map(any())}});
  return bare_document("pipewright.show/1", {{"kind", text()}, {"entries", list(entry)}, {"written?", list(text())}});
}

}  // namespace pipewright
