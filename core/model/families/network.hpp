// A model under construction: layers are added in execution order, each with a recipe of operators.
//
//     Network net("VGG-16", "[VGG15] table 1, column D");
//     auto x = net.image({3, 224, 224});
//     x = net.add("conv1", {x}, [](LayerBuilder& b, In in) { return b.conv2d(in[0], {.channels = 64}); });
//     x = net.add("relu1", {x}, [](LayerBuilder& b, In in) { return b.activation(in[0], Activation::Relu); });
//     return net.finish();
//
// Layers that compute the same share one Work. Errors of a recipe carry the layer's name.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/model/graph.hpp"
#include "core/model/layer_builder.hpp"

namespace pipewright {

class Network {
 public:
  struct Tensor {
    LayerId layer = -1;   // that makes it; -1: the model's own input
    bool tokens = false;  // token numbers
    Shape shape;
  };
  using In = std::span<const LayerBuilder::Value>;

  Network(std::string name, std::string source);

  // Further inputs of the model: an image, features, or token numbers of 8 B each.
  Tensor input(const Shape& shape);
  Tensor tokens(std::int64_t count);

  // Adds a layer that computes `recipe(builder, inputs)` and hands that value on.
  template <class Recipe>
  Tensor add(std::string name, std::initializer_list<Tensor> inputs, Recipe&& recipe) {
    LayerBuilder builder;
    std::vector<LayerBuilder::Value> values;
    for (const Tensor& x : inputs)
      values.push_back(x.tokens ? builder.tokens(x.shape[0]) : builder.input(x.shape, x.layer >= 0));
    try {
      const LayerBuilder::Value out = recipe(builder, In(values));
      const Shape shape = builder.shape(out);
      const std::int32_t work = shared(builder.finish({out}));
      return append(std::move(name), inputs, work, shape);
    } catch (const InputError& error) {
      throw InputError("layer \"" + name + "\": " + error.what());
    }
  }
  // Adds a layer that computes the same as the one that made `like`, from inputs of the same shapes.
  Tensor add_like(std::string name, std::initializer_list<Tensor> inputs, const Tensor& like);

  Layer& layer(const Tensor& made) { return model_.layers[static_cast<std::size_t>(made.layer)]; }
  Model& model() { return model_; }
  Model finish() { return std::move(model_); }

 private:
  Tensor append(std::string name, std::initializer_list<Tensor> inputs, std::int32_t work, const Shape& shape);
  std::int32_t shared(Work work);

  Model model_;
};

// The single layers that convolutional networks are made of: one operator each.
namespace single {
Network::Tensor conv2d(Network& net, std::string name, const Network::Tensor& x, const Conv2d& conv);
Network::Tensor linear(Network& net, std::string name, const Network::Tensor& x, const Linear& linear);
Network::Tensor norm(Network& net, std::string name, const Network::Tensor& x, const NormSpec& norm);
Network::Tensor relu(Network& net, std::string name, const Network::Tensor& x);
Network::Tensor pool(Network& net, std::string name, const Network::Tensor& x, const PoolSpec& pool);
Network::Tensor dropout(Network& net, std::string name, const Network::Tensor& x, bool per_channel = false);
Network::Tensor flatten(Network& net, std::string name, const Network::Tensor& x);
Network::Tensor lstm(Network& net, std::string name, const Network::Tensor& x, const Lstm& lstm);
Network::Tensor embedding(Network& net, std::string name, const Network::Tensor& tokens, std::int64_t vocabulary,
                          std::int64_t features);
Network::Tensor add(Network& net, std::string name, const Network::Tensor& a, const Network::Tensor& b);
Network::Tensor concat(Network& net, std::string name, const Network::Tensor& a, const Network::Tensor& b);
// Hands its input on, to be picked up again further down.
Network::Tensor stash(Network& net, std::string name, const Network::Tensor& x);
}  // namespace single

}  // namespace pipewright
