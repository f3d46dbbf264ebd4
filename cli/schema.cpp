// `schema`: the language of the files and the forms of the documents, for editors and other programs.
#include "io/yaml/schema.hpp"

#include <algorithm>
#include <array>

#include "cli/commands.hpp"
#include "core/check.hpp"
#include "io/writers/documents.hpp"
#include "io/writers/json_fields.hpp"
#include "study/documents.hpp"

namespace pipewright::cli {
namespace {

// A document in JSON; a new one is a line here.
struct Document {
  std::string_view name;
  const JsonDocument* document;
};
constexpr std::array kDocuments = {
    Document{"result", &kResultDocument},
    Document{"ranking", &kRankingDocument},
    Document{"sizing", &kSizingDocument},
    Document{"found-order", &kFoundOrderDocument},
    Document{"sweep-result", &kSweepDocument},
    Document{"losses", &kLossesDocument},
    Document{"capacity", &kCapacityDocument},
    Document{"comparison", &kComparisonDocument},
    Document{"validation", &kValidationDocument},
    Document{"accuracy", &kStudyDocument},
    Document{"imported", &kImportedDocument},
    Document{"reproduction", &kReproductionDocument},
    Document{"measured-runs", &kMeasuredRunsDocument},
    Document{"study-summary", &kStudySummaryDocument},
    Document{"show", &kShowDocument},
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
    if (name == each.name || name == each.document->name) return each.document->schema();
  if (std::ranges::find(kSchemaNames, name) != kSchemaNames.end()) return json_schema(name);
  throw InputError("schema: " + unknown_name(name, kNames));
}

int schema_command(const Arguments& arguments) {
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
    .most = 1,
    .run = schema_command,
};

}  // namespace pipewright::cli
