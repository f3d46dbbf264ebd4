// cost: of a scenario.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/question/profile.hpp"
#include "io/read/read_scenario.hpp"
#include "io/yaml/sections.hpp"
#include "io/yaml/value_rules.hpp"

namespace pipewright::io {
namespace {

struct UniformTimes {
  Time forward, backward;
};

constexpr Field<UniformTimes> kUniform[] = {
    {"forward", "time", "of every layer and micro-batch", member<&UniformTimes::forward>, Need::Required},
    {"backward", "time", "of every layer and micro-batch", member<&UniformTimes::backward>, Need::Required},
};

}  // namespace

// A file that `calibrate` wrote, or one of configs/profiles.
void read_cost_profile(Reader& reader, const At& at, Scenario& scenario) {
  scenario.cost = CostSourceKind::Profile;
  if (!scalar(reader, at, "a profile that pipewright calibrate wrote")) return;
  scenario.profile_file = at.yaml.scalar;
  const std::string file = referenced_file(reader, at, "profile");
  if (file.empty()) return;
  const std::size_t errors_before = reader.errors.count();
  const Yaml yaml = read_reference(reader, file, "profile", at.yaml.place);
  if (reader.errors.count() != errors_before) return;
  auto profile = std::make_shared<MachineProfile>();
  const bool keep = std::exchange(reader.keep_origins, false);
  read_profile_section(reader, At{yaml, nullptr, "profile", -1}, *profile);
  reader.keep_origins = keep;
  scenario.profile = std::move(profile);
}

void read_cost_section(Reader& reader, const At& at, Scenario& scenario) {
  constexpr std::string_view known[] = {"explicit", "roofline", "{uniform: {forward: 1 ms, backward: 2 ms}}"};
  if (at.yaml.is(Yaml::Type::Map)) {
    UniformTimes times{};
    for (const auto& [key, value] : at.yaml.map)
      if (key.text == "uniform")
        read_fields<UniformTimes>(reader, at.child(key.text, value), kUniform, times);
      else if (key.text == "profile")
        return read_cost_profile(reader, at.child(key.text, value), scenario);
      else
        unknown_key(reader, at, key, {"uniform", "profile"});
    scenario.cost = CostSourceKind::Uniform;
    scenario.uniform_forward = times.forward, scenario.uniform_backward = times.backward;
    return;
  }
  const std::string* text = scalar(reader, at, "explicit, roofline or {uniform: {forward: 1 ms, backward: 2 ms}}");
  if (!text) return;
  if (*text == "explicit")
    scenario.cost = CostSourceKind::Explicit;
  else if (*text == "roofline")
    scenario.cost = CostSourceKind::Roofline;
  else
    reader.errors.add(at.yaml.place, path(at), unknown_name(std::string_view(*text).substr(0, 64), known));
}

std::vector<SectionDoc> cost_docs() {
  return {document<UniformTimes>("cost.uniform", kUniform)};
}

}  // namespace pipewright::io
