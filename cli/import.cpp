// `import`: other people's files as YAML to look over: models, measured runs, plans.
#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string>

#include "cli/commands.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "core/check.hpp"
#include "io/import/hf.hpp"
#include "io/import/pieces.hpp"
#include "io/import/pipedream.hpp"
#include "io/import/run_file.hpp"
#include "io/import/schedule_csv.hpp"
#include "io/text/quote.hpp"
#include "io/writers/writers.hpp"
#include "io/yaml/fields.hpp"

namespace pipewright::cli {
namespace {

constexpr std::array<Option, 6> kImportOptions = {{
    {"--batch", "", "N",
     "pipedream, pieces: samples that it was measured with (default: derived from the input tensor; as the file says)"},
    {"--sequence-length", "", "N", "hf: tokens of a sample (default: the longest that the configuration states)"},
    {"--target-length", "", "N", "hf: tokens of a decoder behind an encoder (default: as the encoder)"},
    {"--attention", "", "KIND", "hf: flash or materialised (default: flash)"},
    {"--next-token-modules", "", "N", "hf: how many of the configuration's are built (default: none)"},
    {"--output", "-o", "FILE", "write FILE (default: standard output)"},
}};

// ---- models ---------------------------------------------------------------------------------------------------------

std::string yaml_of(const Model& model) {
  std::string provenance = "written by pipewright " PIPEWRIGHT_VERSION;
  if (!model.form.empty() && model.form.front().first == "hf") provenance += "\n" + model.source;  // has no key for it
  return model_yaml(model, provenance);
}

HfOptions hf_options(const Arguments& arguments) {
  HfOptions options;
  options.sequence_length = option_number(arguments, "--sequence-length", {}, "4096");
  options.target_length = option_number(arguments, "--target-length", {}, "128");
  options.next_token_modules = option_number(arguments, "--next-token-modules", {}, "1").value_or(0);
  constexpr std::array<std::string_view, 2> kinds = {"flash", "materialised"};
  options.flash = option_word(arguments, "--attention", kinds.front(), kinds) == 0;
  return options;
}

std::string from_hf(const Arguments& arguments, const std::string& path) {
  return yaml_of(read_hf_config(path, hf_options(arguments)));
}

std::string from_pipedream(const Arguments& arguments, const std::string& path) {
  return yaml_of(read_pipedream_profile(path, option_number(arguments, "--batch", {}, "128")));
}

std::string from_pieces(const Arguments& arguments, const std::string& path) {
  return yaml_of(read_pieces(path, option_number(arguments, "--batch", {}, "1")));
}

// ---- runs -----------------------------------------------------------------------------------------------------------

std::string from_megatron(const Arguments&, const std::string& path) {
  return run_yaml(import_log(path, "Megatron-LM"));
}

std::string from_torchtitan(const Arguments&, const std::string& path) {
  return run_yaml(import_log(path, "torchtitan"));
}

std::string from_kineto(const Arguments&, const std::string& path) {
  return run_yaml(import_kineto(path));
}

// ---- schedules ------------------------------------------------------------------------------------------------------

// The keys of a scenario that the order of a file settles.
std::string from_schedule_csv(const Arguments&, const std::string& path) {
  if (path == "-") throw InputError("import schedule-csv: a scenario names the schedule's file; give a path, not -");
  const GivenSchedule given = read_schedule_csv(path);
  ImportSource source = source_of(path, "PyTorch pipeline schedule");
  if (given.overlapped() > 0)
    source.assumed.push_back(std::to_string(given.overlapped()) +
                             " cells of several actions at a time run them in turn, unless plan.pairs is fused");
  if (given.derived > 0)
    source.assumed.push_back(std::to_string(given.derived) +
                             " cells about messages, sharding and gradients are left out: they follow from the order");
  source.absent.emplace_back(
      "model, cluster, samples of a micro-batch, recomputation: a scenario of your own has them");
  return as_comment(source) + "plan:\n  schedule: {file: " + yaml_path(std::filesystem::absolute(path).string()) +
         "}\n  stages: " + std::to_string(given.stages) +
         "\n  virtual_stages: " + std::to_string(given.virtual_stages) +
         "\ntraining:\n  micro_batches: " + std::to_string(given.micro_batches) + "\n";
}

constexpr std::array<std::string_view, 1> kOfMeasured = {"--batch"};
constexpr std::array<std::string_view, 4> kOfHf = {"--sequence-length", "--target-length", "--attention",
                                                   "--next-token-modules"};

struct ImportFormat {
  std::string_view name;                      // "hf"
  std::string_view takes, gives;              // "configuration", "model": for messages
  std::span<const std::string_view> options;  // of its own; others are refused
  std::string (*yaml)(const Arguments&, const std::string& path);
};

constexpr std::array kFormats = {
    ImportFormat{"pipedream", "profile", "model", kOfMeasured, from_pipedream},
    ImportFormat{"pieces", "table", "model", kOfMeasured, from_pieces},
    ImportFormat{"hf", "configuration", "model", kOfHf, from_hf},
    ImportFormat{"megatron-log", "log", "run", {}, from_megatron},
    ImportFormat{"torchtitan-log", "log", "run", {}, from_torchtitan},
    ImportFormat{"kineto", "trace", "run", {}, from_kineto},
    ImportFormat{"schedule-csv", "schedule", "plan", {}, from_schedule_csv},
};

// For completion, which needs the names without running anything.
constexpr auto kWords = [] {
  std::array<std::string_view, kFormats.size()> words{};
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = kFormats[i].name;
  return words;
}();

const ImportFormat& format_named(const std::string& name) {
  const auto found = std::ranges::find_if(kFormats, [&](const auto& each) { return each.name == name; });
  if (found == kFormats.end()) throw InputError("import: format: " + unknown_name(name, kWords));
  return *found;
}

// Options of another format are refused, not ignored.
void refuse_options(const Arguments& arguments, const ImportFormat& format) {
  for (const ImportFormat& other : kFormats)
    for (const std::string_view option : other.options)
      if (arguments.has(option) && std::ranges::find(format.options, option) == format.options.end())
        throw InputError(std::string(option) + ": is not for " + std::string(format.name) + "; leave it out");
}

int import_command(const Arguments& arguments) {
  const ImportFormat& format = format_named(arguments.positional[0]);
  const std::string& path = arguments.positional[1];
  const std::string output = arguments.last("--output", "");
  if (!output.empty() && same_file(path, output))
    throw InputError(Place{}, "--output",
                     "\"" + output + "\" is the " + std::string(format.takes) + " itself; name another file");
  refuse_options(arguments, format);
  const std::string yaml = format.yaml(arguments, path);
  if (!output.empty()) {
    write_output(output, yaml, format.gives);
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
        "  pieces          times and bytes of each chunk of a pipeline, measured one by one (CSV, JSON)\n"
        "Measured runs, for `validate --log` or `--trace` and for `compare`:\n"
        "  megatron-log    what Megatron-LM printed\n"
        "  torchtitan-log  what torchtitan printed\n"
        "  kineto          a trace of PyTorch's profiler with its PP:0F3 actions (.json, .json.gz)\n"
        "Plans, keys of a scenario:\n"
        "  schedule-csv    a pipeline schedule as PyTorch reads it\n"
        "\n"
        "  pipewright import hf Qwen3-8B/config.json --sequence-length 4096 -o qwen3-8b.yaml\n"
        "  pipewright import megatron-log run.log -o run.yaml\n",
    .options = kImportOptions,
    .words = kWords,
    .least = 2,
    .most = 2,
    .run = import_command,
};

}  // namespace pipewright::cli
