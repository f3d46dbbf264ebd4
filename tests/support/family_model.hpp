// A model of a family from "name: value" pairs, as a scenario would build it.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "core/check.hpp"
#include "core/model/families/table.hpp"

namespace pipewright::tests {

inline Model family_model(std::string_view family,
                          std::initializer_list<std::pair<const char*, std::string>> given = {}) {
  FamilyArguments arguments;
  for (const auto& [name, value] : given)
    arguments[name] = {value, {}};
  const Family* const found = find_family(family);
  PP_CHECK(found != nullptr);
  return build_family(*found, arguments, {});
}

inline std::int64_t parameters_of(const Model& model) {
  std::int64_t sum = 0;
  for (const Layer& layer : model.layers)
    sum += model.works[static_cast<std::size_t>(layer.work)].parameters;
  return sum;
}

inline const Work& work_of(const Model& model, std::string_view layer_name) {
  for (const Layer& layer : model.layers)
    if (layer.name == layer_name) return model.works[static_cast<std::size_t>(layer.work)];
  PP_CHECK(false);
  return model.works.front();
}

inline const Layer& layer_of(const Model& model, std::string_view layer_name) {
  for (const Layer& layer : model.layers)
    if (layer.name == layer_name) return layer;
  PP_CHECK(false);
  return model.layers.front();
}

// Multiply-adds of one forward pass of one sample, products only: what publishers of convolutional networks count.
inline double multiply_adds(const Model& model) {
  double flops = 0;
  for (const Layer& layer : model.layers)
    flops += model.works[static_cast<std::size_t>(layer.work)].product_flops();
  return flops / 2;
}

// What InputError says about these arguments; "" when the model is built.
inline std::string refusal(std::string_view family, std::initializer_list<std::pair<const char*, std::string>> given) {
  try {
    family_model(family, given);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace pipewright::tests
