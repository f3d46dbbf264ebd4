// `schema`: the language of the files and the forms of the documents, for editors and other programs.
#include "io/schema.hpp"

#include <algorithm>
#include <array>

#include "cli/commands.hpp"
#include "cli/shapes.hpp"
#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "io/writers/shapes.hpp"

namespace pipewright {
namespace {

// A document in JSON; a new one is a line here. `schema`: what its own key of that name says.
struct Document {
  std::string_view name, schema;
  JsonShape (*form)();
};
constexpr std::array kDocuments = {
    Document{"result", "pipewright.result/1", result_shape},
    Document{"ranking", "pipewright.ranking/1", ranking_shape},
    Document{"sizing", "pipewright.sizing/1", sizing_shape},
    Document{"sweep-result", "pipewright.sweep/1", sweep_shape},
    Document{"losses", "pipewright.losses/1", losses_shape},
    Document{"capacity", "pipewright.capacity/1", capacity_shape},
    Document{"comparison", "pipewright.comparison/1", comparison_shape},
    Document{"validation", "pipewright.validation/1", validation_shape},
    Document{"accuracy", "pipewright.accuracy/1", study_shape},
    Document{"imported", "pipewright.imported/1", imported_shape},
    Document{"reproduction", "pipewright.reproduction/1", reproduction_shape},
    Document{"measured-runs", "pipewright.measured-runs/2", measured_runs_shape},
    Document{"study-summary", "pipewright.study-summary/2", study_summary_shape},
    Document{"show", "pipewright.show/1", show_shape},
};

// Files first, then documents.
constexpr auto kNames = [] {
  std::array<std::string_view, kSchemaNames.size() + kDocuments.size()> names{};
  std::size_t count = 0;
  for (const std::string_view name : kSchemaNames)
    names[count++] = name;
  for (const Document& each : kDocuments)
    names[count++] = each.name;
  return names;
}();

std::string schema_named(std::string_view name) {
  for (const Document& each : kDocuments)
    if (name == each.name || name == each.schema) return json_schema(each.schema, each.form());
  if (std::find(kSchemaNames.begin(), kSchemaNames.end(), name) != kSchemaNames.end()) return json_schema(name);
  throw InputError("schema: " + unknown_name(name, kNames));
}

int run(const Arguments& arguments) {
  print(schema_named(arguments.positional.empty() ? "scenario" : arguments.positional.front()));
  return kDone;
}

}  // namespace

constinit const Command kSchema{
    .name = "schema",
    .arguments = "[KIND]",
    .summary = "JSON Schema of a kind of file or document, for editors and other programs",
    .details =
        "KIND is a YAML file: scenario (the default), sweep, model, device, cluster, profile or run; or a document in\n"
        "JSON by its name: result, ranking, sweep-result, capacity, comparison, validation, ... "
        "(docs/reference/command-line.md\n"
        "lists all), or by what its key schema says: pipewright.result/1. Draft-07 of JSON Schema. sweep is the\n"
        "file that asks, sweep-result the answer.\n"
        "  pipewright schema scenario > scenario.json\n"
        "  pipewright schema result > result.schema.json\n"
        "An installed pipewright has them in share/pipewright/schemas. Editors with yaml-language-server complete\n"
        "keys in a file that begins with\n"
        "  # yaml-language-server: $schema=scenario.json\n",
    .options = {},
    .words = kNames,
    .least = 0,
    .most = 1,
    .run = run,
};

}  // namespace pipewright
