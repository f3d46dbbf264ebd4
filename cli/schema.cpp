// `schema`: the language of the files, for editors.
#include "io/schema.hpp"

#include "cli/commands.hpp"
#include "cli/terminal.hpp"

namespace pipewright {
namespace {

int run(const Arguments& arguments) {
  print(json_schema(arguments.positional.empty() ? "scenario" : arguments.positional.front()));
  return kDone;
}

}  // namespace

constinit const Command kSchema{
    .name = "schema",
    .arguments = "[KIND]",
    .summary = "JSON Schema of a kind of file, for editors",
    .details =
        "KIND is scenario (the default), sweep, model, device, cluster or profile; draft-07 of JSON Schema.\n"
        "  pipewright schema scenario > scenario.json\n"
        "An installed pipewright has them in share/pipewright/schemas. Editors with yaml-language-server complete\n"
        "keys in a file that begins with\n"
        "  # yaml-language-server: $schema=scenario.json\n",
    .options = {},
    .words = kSchemaNames,
    .least = 0,
    .most = 1,
    .run = run,
};

}  // namespace pipewright
