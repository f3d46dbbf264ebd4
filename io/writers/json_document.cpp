#include "io/writers/json_document.hpp"

namespace pipewright {

void open_document(JsonText& json, std::string_view schema) {
  json.open('{').field("schema", schema);
  json.key("tool").open('{').field("name", "pipewright").field("version", PIPEWRIGHT_VERSION).close();
}

}  // namespace pipewright
