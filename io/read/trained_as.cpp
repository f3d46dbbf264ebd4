// trained_as: what a model is trained with beside its shapes. Nothing here has a price; launch files say it.
#include "io/read/trained_as.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "io/read/read_scenario.hpp"
#include "io/yaml/changes.hpp"
#include "io/yaml/yaml.hpp"

namespace pipewright::io {
namespace {

// A word, as it goes into comments of launch files.
struct TypeWord {
  const char* operator()(const std::string& value) const {
    return value == rope_type_word(value) ? "" : "must be 1 to 64 letters, digits, _ or -";
  }
};
struct Epsilon {
  const char* operator()(double value) const { return value > 0 && value < 1 ? "" : "must be more than 0, below 1"; }
};

template <auto Member>
constexpr Field<RopeScaling> scaling_number(std::string_view key, std::string_view meaning) {
  return {key, "number > 0", meaning, member<Member, Positive>};
}

constexpr Field<RopeScaling> kRopeScaling[] = {
    {"type", "linear | dynamic | llama3 | yarn", "how wavelengths grow, as Hugging Face calls it",
     member<&RopeScaling::type>, Need::Required},
    {"factor", "number >= 1", "how many times longer samples may be than those first trained on",
     member<&RopeScaling::factor, Factor>, Need::Required},
    {"original_length", "whole number >= 1", "tokens of the samples first trained on; default: not stated",
     member<&RopeScaling::original_length, AtLeast1>},
    scaling_number<&RopeScaling::low_freq_factor>("low_freq_factor", "llama3; default: not stated"),
    scaling_number<&RopeScaling::high_freq_factor>("high_freq_factor", "llama3; default: not stated"),
    scaling_number<&RopeScaling::beta_fast>("beta_fast", "yarn; default: not stated"),
    scaling_number<&RopeScaling::beta_slow>("beta_slow", "yarn; default: not stated"),
    scaling_number<&RopeScaling::mscale>("mscale", "yarn; default: not stated"),
    scaling_number<&RopeScaling::mscale_all_dim>("mscale_all_dim", "yarn; default: not stated"),
};

void read_rope_scaling(Reader& reader, const At& at, TrainedAs& trained) {
  read_section<&TrainedAs::rope_scaling, kRopeScaling>(reader, at, trained);
  trained.rope_scaling_not_kept.clear();
}

constexpr Field<Routing> kRouting[] = {
    {"scores", "softmax | sigmoid", "of a token for its experts", member<&Routing::scores>, Need::Required},
    {"groups", "whole number >= 1", "groups of experts, of which the best are kept; default: one",
     member<&Routing::groups, AtLeast1>},
    {"groups_used", "whole number >= 1", "how many of them; default: all", member<&Routing::groups_used, AtLeast1>},
    {"scale", "number > 0", "of the sum of the chosen experts' scores; default: 1", member<&Routing::scale, Positive>},
};

void read_routing(Reader& reader, const At& at, TrainedAs& trained) {
  Routing& routing = trained.routing.emplace();
  read_fields<Routing>(reader, at, kRouting, routing);
  if (routing.groups_used.value_or(1) > routing.groups.value_or(1))
    reader.errors.add(at.yaml.place, fmt::format("{}.groups_used: is more than groups; correct it", path(at)));
}

constexpr Field<TrainedAs> kTrainedAs[] = {
    {"rope_theta", "number > 0", "base of rotary positions; default: unknown",
     member<&TrainedAs::rope_theta, Positive>},
    {"rope_scaling_not_kept", "text", "type of a scaling that rope_scaling has no words for; default: none",
     changed<&TrainedAs::rope_scaling_not_kept, TypeWord>},
    {"rope_scaling", "map", "see model.trained_as.rope_scaling; default: none", read_rope_scaling,
     write_section<&TrainedAs::rope_scaling, kRopeScaling>},
    {"norm_epsilon", "number > 0", "added under the root of every norm; default: unknown",
     member<&TrainedAs::norm_epsilon, Epsilon>},
    {"routing", "map", "how experts are chosen: see model.trained_as.routing; default: unknown", read_routing,
     write_section<&TrainedAs::routing, kRouting>},
};

}  // namespace

std::string rope_type_word(std::string_view type) {
  std::string word(type.substr(0, 64));
  std::replace_if(
      word.begin(), word.end(),
      [](char c) {
        return !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '_' && c != '-';
      },
      '_');
  return word.empty() ? "_" : word;
}

void read_trained_as(Reader& reader, const At& at, bool rotary, TrainedAs& trained) {
  read_fields<TrainedAs>(reader, at, kTrainedAs, trained);
  if (rotary || !at.yaml.is(Yaml::Type::Map)) return;
  for (const char* key : {"rope_theta", "rope_scaling", "rope_scaling_not_kept"})
    if (const Yaml* value = at.yaml.find(key))
      reader.errors.add(
          value->place,
          fmt::format("{}.{}: is for rotary positions, which this model has not; leave it out", path(at), key));
}

void keep_trained_as(Model& model, const TrainedAs& trained) {
  std::erase_if(model.form, [](const auto& entry) { return entry.first == "trained_as"; });
  if (trained == TrainedAs{}) return;
  YamlText text(nullptr, {});
  write_fields<TrainedAs>(text, kTrainedAs, trained);
  model.form.emplace_back("trained_as", flow_text(parse_yaml(text.text(), "")));
}

TrainedAs trained_as(const Model& model) {
  TrainedAs trained;
  for (const auto& [key, value] : model.form) {
    if (key != "trained_as") continue;
    Errors errors;
    const ReadOptions options;
    Reader reader{options, errors};
    read_trained_as(reader, At{parse_yaml(value, ""), nullptr, "trained_as"}, true, trained);
    errors.throw_if_any();
  }
  return trained;
}

std::vector<SectionDoc> trained_as_docs() {
  return {document<TrainedAs>("model.trained_as", kTrainedAs),
          document<RopeScaling>("model.trained_as.rope_scaling", kRopeScaling),
          document<Routing>("model.trained_as.routing", kRouting)};
}

}  // namespace pipewright::io
