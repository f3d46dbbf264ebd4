#include "io/writers/made_json.hpp"

#include "io/writers/json_document.hpp"
#include "io/writers/shapes.hpp"
#include "io/writers/yaml_json.hpp"
#include "io/yaml.hpp"

namespace pipewright {
namespace {

std::optional<std::string> unless_empty(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

// The lines in front of the first that says something, without their #.
std::vector<std::string> comments_of(const std::string& yaml) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < yaml.size() && yaml[begin] == '#';) {
    const std::size_t end = std::min(yaml.find('\n', begin), yaml.size());
    const std::size_t text = std::min(yaml.find_first_not_of("# ", begin), end);
    lines.push_back(yaml.substr(text, end - text));
    begin = end + 1;
  }
  return lines;
}

void write_figures(JsonText& json, std::string_view key, const LaunchFile::Figures& figures) {
  json.key(key).open('{').field("step_time_s", figures.step_time_s).field("samples_per_s", figures.samples_per_s);
  json.close();
}

}  // namespace

std::string init_json(const StartedScenario& made) {
  JsonText json;
  open_document(json, "pipewright.init/1");
  json.field("holds", made.holds).field("next", made.next).field("written", std::vector<std::string>{made.file});
  json.close();
  return std::move(json).text();
}

std::string import_json(const ImportedFile& made) {
  JsonText json;
  open_document(json, "pipewright.import/1");
  json.field("format", made.format).field("file", made.file).field("gives", made.gives);
  json.field("comments", comments_of(made.yaml)).key("document");
  write_yaml(json, parse_yaml(made.yaml, made.file));
  json.field("written", made.written).close();
  return std::move(json).text();
}

std::string merge_json(const MergedSweep& merged) {
  JsonText json;
  open_document(json, "pipewright.merge/1");
  json.field("from", merged.from).field("points", merged.points).field("found", merged.found);
  json.field("missing", unless_empty(merged.missing)).field("go_on", unless_empty(merged.go_on));
  json.field("written", std::vector<std::string>{merged.database}).close();
  return std::move(json).text();
}

std::string launch_json(const LaunchFile& made) {
  JsonText json;
  open_document(json, "pipewright.launch/1");
  json.field("plan", made.plan).field("framework", made.framework).field("asked", made.asked);
  json.field("launched", made.launched).field("differences", made.differences);
  write_figures(json, "predicted_asked", made.predicted_asked);
  write_figures(json, "predicted_launched", made.predicted_launched);
  json.field("better_question", unless_empty(made.better_question)).field("fits", made.shortfall.empty());
  json.field("shortfall", unless_empty(made.shortfall)).field("memory_warning", unless_empty(made.memory_warning));
  json.field("text", made.text).field("written", made.written);
  json.close();
  return std::move(json).text();
}

JsonShape init_shape() {
  using namespace shape;
  return document("pipewright.init/1", {{"holds", text()}, {"next", text()}, {"written", list(text())}});
}

JsonShape import_shape() {
  using namespace shape;
  return document("pipewright.import/1", {{"format", text()},
                                          {"file", text()},
                                          {"gives", text()},
                                          {"comments", list(text())},
                                          {"document", map(any())},
                                          {"written", list(text())}});
}

JsonShape merge_shape() {
  using namespace shape;
  return document("pipewright.merge/1", {{"from", list(text())},
                                         {"points", whole()},
                                         {"found", whole()},
                                         {"missing", maybe(text())},
                                         {"go_on", maybe(text())},
                                         {"written", list(text())}});
}

JsonShape launch_shape() {
  using namespace shape;
  const JsonShape figures = object({{"step_time_s", number()}, {"samples_per_s", number()}});
  return document("pipewright.launch/1", {{"plan", text()},
                                          {"framework", text()},
                                          {"asked", text()},
                                          {"launched", text()},
                                          {"differences", list(text())},
                                          {"predicted_asked", figures},
                                          {"predicted_launched", figures},
                                          {"better_question", maybe(text())},
                                          {"fits", flag()},
                                          {"shortfall", maybe(text())},
                                          {"memory_warning", maybe(text())},
                                          {"text", text()},
                                          {"written", list(text())}});
}

}  // namespace pipewright
