#include "core/model/families/model_builder.hpp"

#include <algorithm>

namespace pipewright::core {

ModelBuilder::ModelBuilder(std::string name, std::string source) {
  model_.name = std::move(name);
  model_.source = std::move(source);
}

ModelBuilder::Tensor ModelBuilder::input(const Shape& shape) {
  model_.input_amount.values += shape.elements();
  return {-1, false, shape};
}

ModelBuilder::Tensor ModelBuilder::tokens(std::int64_t count) {
  model_.input_amount.fixed += 8.0 * static_cast<double>(count);  // as LayerBuilder::tokens counts them
  return {-1, true, {count}};
}

ModelBuilder::Tensor ModelBuilder::add_like(std::string name, std::initializer_list<Tensor> inputs,
                                            const Tensor& like) {
  return append(std::move(name), inputs, layer(like).work, like.shape);
}

ModelBuilder::Tensor ModelBuilder::append(std::string name, std::initializer_list<Tensor> inputs, std::int32_t work,
                                          const Shape& shape) {
  Layer layer;
  layer.name = std::move(name);
  layer.work = work;
  for (const Tensor& x : inputs)
    if (x.layer >= 0) layer.inputs.push_back(x.layer);
  // Works count the model's own input as an input like others, `Layer::inputs` does not: no layer here mixes the two.
  PP_CHECK(layer.inputs.empty() || layer.inputs.size() == inputs.size());
  model_.layers.push_back(std::move(layer));
  return {static_cast<LayerId>(model_.layers.size()) - 1, false, shape};
}

// Equal layers stand close together: the search runs backwards.
std::int32_t ModelBuilder::shared(Work work) {
  const auto same = std::find(model_.works.rbegin(), model_.works.rend(), work);
  if (same != model_.works.rend()) return static_cast<std::int32_t>(model_.works.rend() - same) - 1;
  model_.works.push_back(std::move(work));
  return static_cast<std::int32_t>(model_.works.size()) - 1;
}

namespace single {

using Tensor = ModelBuilder::Tensor;
using In = ModelBuilder::In;

Tensor conv2d(ModelBuilder& net, std::string name, const Tensor& x, const Conv2d& conv) {
  return net.add(std::move(name), {x}, [&](LayerBuilder& b, In in) { return b.conv2d(in[0], conv); });
}
Tensor linear(ModelBuilder& net, std::string name, const Tensor& x, const Linear& linear) {
  return net.add(std::move(name), {x}, [&](LayerBuilder& b, In in) { return b.linear(in[0], linear); });
}
Tensor norm(ModelBuilder& net, std::string name, const Tensor& x, const NormSpec& norm) {
  return net.add(std::move(name), {x}, [&](LayerBuilder& b, In in) { return b.norm(in[0], norm); });
}
Tensor relu(ModelBuilder& net, std::string name, const Tensor& x) {
  return net.add(std::move(name), {x}, [](LayerBuilder& b, In in) { return b.activation(in[0], Activation::Relu); });
}
Tensor pool(ModelBuilder& net, std::string name, const Tensor& x, const PoolSpec& pool) {
  return net.add(std::move(name), {x}, [&](LayerBuilder& b, In in) { return b.pool(in[0], pool); });
}
Tensor dropout(ModelBuilder& net, std::string name, const Tensor& x, bool per_channel) {
  return net.add(std::move(name), {x}, [&](LayerBuilder& b, In in) { return b.dropout(in[0], per_channel); });
}
Tensor flatten(ModelBuilder& net, std::string name, const Tensor& x) {
  std::int64_t values = 1;
  for (int axis = 0; axis < x.shape.rank; ++axis)
    values *= x.shape[axis];
  return net.add(std::move(name), {x}, [&](LayerBuilder& b, In in) { return b.reshape(in[0], {values}); });
}
Tensor lstm(ModelBuilder& net, std::string name, const Tensor& x, const Lstm& lstm) {
  return net.add(std::move(name), {x}, [&](LayerBuilder& b, In in) { return b.lstm(in[0], lstm); });
}
Tensor embedding(ModelBuilder& net, std::string name, const Tensor& tokens, std::int64_t vocabulary,
                 std::int64_t features) {
  return net.add(std::move(name), {tokens},
                 [&](LayerBuilder& b, In in) { return b.embedding(in[0], vocabulary, features); });
}
Tensor add(ModelBuilder& net, std::string name, const Tensor& a, const Tensor& b) {
  return net.add(std::move(name), {a, b}, [](LayerBuilder& builder, In in) { return builder.add(in[0], in[1]); });
}
Tensor concat(ModelBuilder& net, std::string name, const Tensor& a, const Tensor& b) {
  return net.add(std::move(name), {a, b}, [](LayerBuilder& builder, In in) { return builder.concat({in[0], in[1]}); });
}
Tensor stash(ModelBuilder& net, std::string name, const Tensor& x) {
  return net.add(std::move(name), {x}, [&](LayerBuilder& b, In in) { return b.reshape(in[0], x.shape); });
}

}  // namespace single
}  // namespace pipewright::core
