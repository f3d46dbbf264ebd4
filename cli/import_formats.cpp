#include "cli/import_formats.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>

#include "core/check.hpp"
#include "io/fields.hpp"
#include "io/import/hf.hpp"
#include "io/import/import_run.hpp"
#include "io/import/pipedream.hpp"
#include "io/import/schedule_csv.hpp"
#include "io/quote.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {
namespace {

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

// ---- models ---------------------------------------------------------------------------------------------------------

std::string yaml_of(const Model& model) {
  std::string provenance = "written by pipewright " PIPEWRIGHT_VERSION;
  if (!model.form.empty() && model.form.front().first == "hf") provenance += "\n" + model.source;  // has no key for it
  return model_yaml(model, provenance);
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

std::string from_hf(const Arguments& arguments, const std::string& path) {
  return yaml_of(read_hf_config(path, hf_options(arguments)));
}

std::string from_pipedream(const Arguments& arguments, const std::string& path) {
  return yaml_of(read_pipedream_profile(path, count(arguments, "--batch", "samples")));
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
  if (given.overlapped > 0)
    source.assumed.push_back(std::to_string(given.overlapped) + " cells of several actions at a time run them in turn");
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

constexpr std::array<std::string_view, 1> kOfPipedream = {"--batch"};
constexpr std::array<std::string_view, 4> kOfHf = {"--sequence-length", "--target-length", "--attention",
                                                   "--next-token-modules"};

constexpr std::array kFormats = {
    ImportFormat{"pipedream", "profile", "model", kOfPipedream, from_pipedream},
    ImportFormat{"hf", "configuration", "model", kOfHf, from_hf},
    ImportFormat{"megatron-log", "log", "run", {}, from_megatron},
    ImportFormat{"torchtitan-log", "log", "run", {}, from_torchtitan},
    ImportFormat{"kineto", "trace", "run", {}, from_kineto},
    ImportFormat{"schedule-csv", "schedule", "plan", {}, from_schedule_csv},
};

}  // namespace

std::span<const ImportFormat> import_formats() {
  return kFormats;
}

}  // namespace pipewright
