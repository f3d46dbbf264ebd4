// A model under construction: layers are added in execution order, each with a recipe of operators.
//
//     ModelBuilder net("VGG-16", "[VGG15] table 1, column D");
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

namespace pipewright::core {

class ModelBuilder {
 public:
  struct Tensor {
    LayerId layer = -1;   // that makes it; -1: the model's own input
    bool tokens = false;  // token numbers
    Shape shape;
  };
  using In = std::span<const LayerBuilder::Value>;

  ModelBuilder(std::string name, std::string source);

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

  Layer& layer(const Tensor& made) { return model_.layers[made.layer]; }
  Model& model() { return model_; }
  Model finish() { return std::move(model_); }

 private:
  Tensor append(std::string name, std::initializer_list<Tensor> inputs, std::int32_t work, const Shape& shape);
  std::int32_t shared(Work work);

  Model model_;
};

// The single layers that convolutional networks are made of: one operator each.
namespace single {
ModelBuilder::Tensor conv2d(ModelBuilder& net, std::string name, const ModelBuilder::Tensor& x, const Conv2d& conv);
ModelBuilder::Tensor linear(ModelBuilder& net, std::string name, const ModelBuilder::Tensor& x, const Linear& linear);
ModelBuilder::Tensor norm(ModelBuilder& net, std::string name, const ModelBuilder::Tensor& x, const NormSpec& norm);
ModelBuilder::Tensor relu(ModelBuilder& net, std::string name, const ModelBuilder::Tensor& x);
ModelBuilder::Tensor pool(ModelBuilder& net, std::string name, const ModelBuilder::Tensor& x, const PoolSpec& pool);
ModelBuilder::Tensor dropout(ModelBuilder& net, std::string name, const ModelBuilder::Tensor& x,
                             bool per_channel = false);
ModelBuilder::Tensor flatten(ModelBuilder& net, std::string name, const ModelBuilder::Tensor& x);
ModelBuilder::Tensor lstm(ModelBuilder& net, std::string name, const ModelBuilder::Tensor& x, const Lstm& lstm);
ModelBuilder::Tensor embedding(ModelBuilder& net, std::string name, const ModelBuilder::Tensor& tokens,
                               std::int64_t vocabulary, std::int64_t features);
ModelBuilder::Tensor add(ModelBuilder& net, std::string name, const ModelBuilder::Tensor& a,
                         const ModelBuilder::Tensor& b);
ModelBuilder::Tensor concat(ModelBuilder& net, std::string name, const ModelBuilder::Tensor& a,
                            const ModelBuilder::Tensor& b);
// Hands its input on, to be picked up again further down.
ModelBuilder::Tensor stash(ModelBuilder& net, std::string name, const ModelBuilder::Tensor& x);
}  // namespace single

}  // namespace pipewright::core
