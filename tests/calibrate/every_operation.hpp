// A model of every operation that models have, in shapes that are small.
#pragma once

#include "core/model/graph.hpp"
#include "core/model/layer_builder.hpp"

namespace pipewright::tests {

inline Model model_of_every_operation() {
  Model model;
  const auto add = [&](LayerBuilder& b, LayerBuilder::Value y) { model.works.push_back(b.finish({y})); };
  LayerBuilder text;
  auto x = text.learned(text.embedding(text.tokens(8), 32, 16), 8);
  x = text.dropout(text.norm(x, {Norm::Layer}));
  const auto a = text.attention({text.linear(x, {.features = 48})},
                                {.heads = 2, .key_heads = 2, .key_size = 8, .value_size = 8, .queries = 8, .keys = 8});
  x = text.add(x, text.linear(a, {.features = 16}));
  x = text.multiply(text.activation(x, Activation::Gelu), text.activation(x, Activation::Relu));
  x = text.gated(text.linear(text.norm(x, {Norm::Rms}), {.features = 32}), Activation::Silu);
  add(text, text.cross_entropy(text.linear(text.softmax(x), {.features = 32})));
  LayerBuilder image;
  auto y = image.conv2d(
      image.input({3, 8, 8}),
      {.channels = 4, .kernel_height = 3, .kernel_width = 3, .padding_height = 1, .padding_width = 1, .bias = true});
  y = image.pool(image.activation(y, Activation::Relu), {});
  add(image, image.global_average_pool(image.pool(y, {.kind = Pool::Average})));
  return model;
}

}  // namespace pipewright::tests
