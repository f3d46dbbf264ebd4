// `init`: a first scenario with comments, to be changed by hand. What is written passes `check`.
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "cli/check.hpp"
#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "core/check.hpp"
#include "io/read/read_scenario.hpp"
#include "io/text/quote.hpp"
#include "io/text/utf8.hpp"
#include "io/writers/writers.hpp"
#include "io/yaml/fields.hpp"

namespace pipewright::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array<Option, 3> kInitOptions = {{
    {"--model", "", "NAME|FILE", "a name of configs/models, a model file, or a Hugging Face config.json (llama3-8b)"},
    {"--cluster", "", "NAME|FILE", "a name of configs/clusters, or a cluster file (dgx-h100x8)"},
    {"--batch", "", "N", "samples of an optimizer step (128)"},
}};

// A path as the file names it, which is relative to its own folder; else a name.
std::string name_or_path(const std::string& option, const std::string& text, const std::string& file) {
  if (text.find('/') == std::string::npos && !text.ends_with(".yaml") && !text.ends_with(".json"))
    return yaml_string(text);
  std::error_code none;
  if (!fs::exists(text, none)) throw InputError(option + ": " + text + ": no such file");
  const fs::path relative = fs::relative(fs::absolute(text), fs::absolute(file).parent_path(), none);
  if (none || relative.empty()) return yaml_path(fs::absolute(text).string());
  const std::string seen = relative.generic_string();
  return yaml_path(seen.find('/') == std::string::npos ? "./" + seen : seen);
}

// The schema that is installed next to the configurations; editors complete by it.
std::string schema_line(const ReadOptions& options) {
  for (const std::string& folder : options.config_path) {
    const fs::path schema = (fs::path(folder) / "../schemas/scenario.json").lexically_normal();
    std::error_code none;
    if (fs::is_regular_file(schema, none)) return comment("yaml-language-server: $schema=" + schema.string());
  }
  return "";
}

constexpr std::string_view kScenario =
    R"(# Every key: docs/reference/scenario.md; every value with its origin: pipewright check --resolved
version: 1
name: {}
model: {}    # pipewright show models; shorter samples of a configuration: {{hf: NAME, sequence_length: 4096}}
cluster: {}    # pipewright show clusters; or one of your own:
# cluster:
#   nodes: 2
#   node:
#     devices: 4
#     device: rtx-4090-24g    # pipewright show devices
#     links: {{kind: mesh, bandwidth: 25 GB/s}}    # per direction; pcie shares a host bridge, nvswitch a switch
#   network: {{bandwidth: 10 Gb/s}}    # per NIC and direction; a NIC per node unless per: device
training:
  global_batch_size: {}
  micro_batch_size: auto
  precision: bf16
  gradient_precision: fp32
  optimizer: adam
  zero: auto
plan: auto    # pipewright plan finds the best one; or e.g. {{stages: 4, schedule: 1f1b}} for pipewright simulate
)";

int init_command(const Arguments& arguments) {
  const std::string file = arguments.positional.empty() ? "scenario.yaml" : arguments.positional.front();
  if (std::error_code none; fs::exists(file, none))
    throw InputError(file + ": is there already; remove it, or name another file: pipewright init other.yaml");
  check_writable(file);
  const ReadOptions options{.set = {}, .config_path = config_path()};
  const std::string text =
      schema_line(options) + fmt::format(kScenario, yaml_string(fs::path(file).stem().string()),
                                         name_or_path("--model", arguments.last("--model", "llama3-8b"), file),
                                         name_or_path("--cluster", arguments.last("--cluster", "dgx-h100x8"), file),
                                         option_number(arguments, "--batch", {1, kLargestCount}, "128").value_or(128));
  write_file(file, text);
  try {
    const std::string what = checked_file(file, options);
    print(fmt::format("wrote {} ({})\nnext: pipewright plan {}\n", one_line(file), what, shell_path(file)));
  } catch (const InputError& error) {
    std::error_code ignored;
    fs::remove(file, ignored);
    throw InputError(fmt::format("{}\ninit: nothing was written", error.what()));
  }
  return kDone;
}

}  // namespace

constinit const Command kInit{
    .name = "init",
    .arguments = "[FILE]",
    .summary = "a first scenario with comments, to be changed by hand",
    .details =
        "Writes FILE (default: scenario.yaml), which must not exist yet.\n"
        "  pipewright init llama.yaml --model llama3-8b --cluster dgx-h100x8 --batch 128\n",
    .options = kInitOptions,
    .most = 1,
    .run = init_command,
};

}  // namespace pipewright::cli
