#include <array>
#include <charconv>
#include <optional>

#include "cli/commands.hpp"
#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "io/import/pipedream.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {
namespace {

constexpr std::array<Option, 2> kOptions = {{
    {"--batch", "", "N", "samples that the profile was taken with (default: derived from its input tensor)"},
    {"--output", "-o", "FILE", "write FILE (default: standard output)"},
}};

constexpr std::array<std::string_view, 1> kFormats = {"pipedream"};

std::optional<std::int64_t> batch(const Arguments& arguments) {
  if (!arguments.has("--batch")) return std::nullopt;
  const std::string text = arguments.last("--batch", "");
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1)
    throw InputError("--batch: \"" + text + "\" is not a whole number of samples; write e.g. --batch 128");
  return value;
}

int run(const Arguments& arguments) {
  const std::string& format = arguments.positional[0];
  const std::string& path = arguments.positional[1];
  if (format != kFormats.front()) throw InputError("import: format: " + unknown_name(format, kFormats));
  const std::string output = arguments.last("--output", "");
  if (!output.empty() && same_file(path, output))
    throw InputError("--output: \"" + output + "\" is the profile itself; name another file");
  const Model model = read_pipedream_profile(path, batch(arguments));
  const std::string yaml = model_yaml(model, "written by pipewright " PIPEWRIGHT_VERSION);
  if (output.empty()) {
    print(yaml);
    return kDone;
  }
  write_file(output, yaml);
  note("wrote " + output + " (model)");
  return kDone;
}

}  // namespace

constinit const Command kImport{
    .name = "import",
    .arguments = "FORMAT FILE",
    .summary = "turn someone else's file into a model YAML",
    .details =
        "FORMAT is pipedream: a layer profile, graph.txt, of the PipeDream release.\n"
        "  pipewright import pipedream vgg16/graph.txt -o vgg16.yaml\n",
    .options = kOptions,
    .least = 2,
    .most = 2,
    .run = run,
};

}  // namespace pipewright
