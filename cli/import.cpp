#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>

#include "cli/commands.hpp"
#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "io/import/hf.hpp"
#include "io/import/pipedream.hpp"
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

constexpr std::array<std::string_view, 2> kFormats = {"pipedream", "hf"};

std::optional<std::int64_t> count(const Arguments& arguments, const char* option, const char* what) {
  if (!arguments.has(option)) return std::nullopt;
  const std::string text = arguments.last(option, "");
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1)
    throw InputError(std::string(option) + ": \"" + text + "\" is not a whole number of " + what + "; write e.g. " +
                     option + " 128");
  return value;
}

// Options of the other format are refused, not ignored.
void refuse_options(const Arguments& arguments, std::span<const std::string_view> options, const std::string& format) {
  for (const std::string_view option : options)
    if (arguments.has(std::string(option)))
      throw InputError(std::string(option) + ": is not for " + format + "; leave it out");
}

HfOptions hf_options(const Arguments& arguments) {
  HfOptions options;
  options.sequence_length = count(arguments, "--sequence-length", "tokens");
  options.target_length = count(arguments, "--target-length", "tokens");
  options.next_token_modules = count(arguments, "--next-token-modules", "modules").value_or(0);
  constexpr std::array<std::string_view, 2> kinds = {"flash", "materialised"};
  const std::string kind = arguments.last("--attention", "flash");
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
    throw InputError("--attention: " + unknown_name(kind, kinds));
  options.flash = kind == "flash";
  return options;
}

Model imported(const Arguments& arguments, const std::string& format, const std::string& path) {
  if (format == "hf") {
    constexpr std::array<std::string_view, 1> others = {"--batch"};
    refuse_options(arguments, others, format);
    return read_hf_config(path, hf_options(arguments));
  }
  constexpr std::array<std::string_view, 4> others = {"--sequence-length", "--target-length", "--attention",
                                                      "--next-token-modules"};
  refuse_options(arguments, others, format);
  return read_pipedream_profile(path, count(arguments, "--batch", "samples"));
}

int run(const Arguments& arguments) {
  const std::string& format = arguments.positional[0];
  const std::string& path = arguments.positional[1];
  if (std::find(kFormats.begin(), kFormats.end(), format) == kFormats.end())
    throw InputError("import: format: " + unknown_name(format, kFormats));
  const std::string output = arguments.last("--output", "");
  if (!output.empty() && same_file(path, output))
    throw InputError("--output: \"" + output + "\" is the " + (format == "hf" ? "configuration" : "profile") +
                     " itself; name another file");
  const Model model = imported(arguments, format, path);
  std::string provenance = "written by pipewright " PIPEWRIGHT_VERSION;
  if (!model.form.empty()) provenance += "\n" + model.source;  // a form of its own has no key for it
  const std::string yaml = model_yaml(model, provenance);
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
        "FORMAT is pipedream: a layer profile, graph.txt, of the PipeDream release; or hf: the config.json of a\n"
        "transformer on Hugging Face.\n"
        "  pipewright import pipedream vgg16/graph.txt -o vgg16.yaml\n"
        "  pipewright import hf Qwen3-8B/config.json --sequence-length 4096 -o qwen3-8b.yaml\n",
    .options = kOptions,
    .least = 2,
    .most = 2,
    .run = run,
};

}  // namespace pipewright
