#include "core/model/families/described.hpp"

#include "core/model/families/transformer_families.hpp"

namespace pipewright::core {

std::optional<Transformer> described(const Model& model) {
  FamilyArguments arguments;
  std::string name;
  for (const auto& [key, value] : model.form)
    if (key == "family")
      name = value;
    else if (key != "trained_as")  // no part of the shapes
      arguments.emplace(key, Placed<std::string>{value, {}});
  using Description = Transformer (*)(const FamilyValues&);
  const auto of = [&](const Family& family, Description description) -> std::optional<Transformer> {
    if (family.name != name) return std::nullopt;
    return description(check_arguments(family.parameters, arguments, "model", model.place));
  };
  for (const auto& [family, description] : {std::pair<const Family*, Description>{&kDecoderFamily, decoder_of},
                                            {&kGptFamily, gpt_of},
                                            {&kTransformerFamily, transformer_of}})
    if (auto found = of(*family, description)) return found;
  return std::nullopt;
}

bool is_transformer(const Family& family) {
  for (const Family* each : {&kTransformerFamily, &kTransformerMtFamily, &kGptFamily, &kBertFamily, &kT5Family,
                             &kVitFamily, &kDecoderFamily})
    if (each->name == family.name) return true;
  return false;
}

}  // namespace pipewright::core
