// `import`: other people's files as YAML to look over: models, measured runs, plans.
#include <algorithm>
#include <array>
#include <string>

#include "cli/commands.hpp"
#include "cli/import_formats.hpp"
#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {
namespace {

constexpr std::array<Option, 6> kOptions = {{
    {"--batch", "", "N", "pipedream: samples that the profile was taken with (default: derived from its input tensor)"},
    {"--sequence-length", "", "N", "hf: tokens of a sample (default: the longest that the configuration states)"},
    {"--target-length", "", "N", "hf: tokens of a decoder behind an encoder (default: as the encoder)"},
    {"--attention", "", "KIND", "hf: flash or materialised (default: flash)"},
    {"--next-token-modules", "", "N", "hf: how many of the configuration's are built (default: none)"},
    {"--output", "-o", "FILE", "write FILE (default: standard output)"},
}};

// The same list for completion, which needs it without running anything.
constexpr std::array<std::string_view, 6> kWords = {"pipedream",      "hf",     "megatron-log",
                                                    "torchtitan-log", "kineto", "schedule-csv"};

const ImportFormat& format_named(const std::string& name) {
  const auto formats = import_formats();
  const auto found = std::find_if(formats.begin(), formats.end(), [&](const auto& each) { return each.name == name; });
  if (found == formats.end()) throw InputError("import: format: " + unknown_name(name, kWords));
  return *found;
}

// Options of another format are refused, not ignored.
void refuse_options(const Arguments& arguments, const ImportFormat& format) {
  for (const ImportFormat& other : import_formats())
    for (const std::string_view option : other.options)
      if (arguments.has(option) &&
          std::find(format.options.begin(), format.options.end(), option) == format.options.end())
        throw InputError(std::string(option) + ": is not for " + std::string(format.name) + "; leave it out");
}

int run(const Arguments& arguments) {
  const ImportFormat& format = format_named(arguments.positional[0]);
  const std::string& path = arguments.positional[1];
  const std::string output = arguments.last("--output", "");
  if (!output.empty() && same_file(path, output))
    throw InputError("--output: \"" + output + "\" is the " + std::string(format.takes) + " itself; name another file");
  refuse_options(arguments, format);
  const std::string yaml = format.yaml(arguments, path);
  if (!output.empty()) {
    write_file(output, yaml);
    note("wrote " + output + " (" + std::string(format.gives) + ")");
  } else {
    print(yaml);
  }
  return kDone;
}

}  // namespace

constinit const Command kImport{
    .name = "import",
    .arguments = "FORMAT FILE",
    .summary = "turn a file of another program into YAML: a model, run or plan",
    .details =
        "The output states its source, what was assumed, and what the file does not say: check it before you use it.\n"
        "Models, for `model:` of a scenario:\n"
        "  hf              the config.json of a transformer on Hugging Face\n"
        "  pipedream       a layer profile, graph.txt, of the PipeDream release\n"
        "Measured runs, for `validate --log` or `--trace` and for `compare`:\n"
        "  megatron-log    what Megatron-LM printed\n"
        "  torchtitan-log  what torchtitan printed\n"
        "  kineto          a trace of PyTorch's profiler with its PP:0F3 actions (.json, .json.gz)\n"
        "Plans, keys of a scenario:\n"
        "  schedule-csv    a pipeline schedule as PyTorch reads it\n"
        "\n"
        "  pipewright import hf Qwen3-8B/config.json --sequence-length 4096 -o qwen3-8b.yaml\n"
        "  pipewright import megatron-log run.log -o run.yaml\n",
    .options = kOptions,
    .words = kWords,
    .least = 2,
    .most = 2,
    .run = run,
};

}  // namespace pipewright
