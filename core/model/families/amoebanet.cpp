#include "core/model/families/amoebanet.hpp"

#include <vector>

#include "core/folds.hpp"
#include "core/model/families/model_builder.hpp"

namespace pipewright::core {
namespace {

using Value = LayerBuilder::Value;
using Tensor = ModelBuilder::Tensor;
using In = ModelBuilder::In;

Value relu(LayerBuilder& b, Value x) {
  return b.activation(x, Activation::Relu);
}

Value relu_conv_norm(LayerBuilder& b, Value x, const Conv2d& conv) {
  return b.norm(b.conv2d(relu(b, x), conv), {Norm::Batch});
}

Value conv1x1(LayerBuilder& b, Value x, std::int64_t channels, std::int64_t stride = 1) {
  return relu_conv_norm(b, x, {.channels = channels, .stride = stride});
}

// Halves the image without losing every other pixel: half of the channels see the even, half the odd ones.
Value factorized_reduce(LayerBuilder& b, Value x, std::int64_t channels) {
  const Value on = relu(b, x);
  const Conv2d half = {.channels = channels / 2, .stride = 2};
  return b.norm(b.concat({b.conv2d(on, half), b.conv2d(on, half)}), {Norm::Batch});
}

Value separable(LayerBuilder& b, Value x, std::int64_t channels, std::int64_t kernel, std::int64_t stride) {
  for (const std::int64_t s : {stride, std::int64_t{1}}) {
    const Value deep = b.conv2d(relu(b, x), {.channels = channels,
                                             .kernel_height = kernel,
                                             .kernel_width = kernel,
                                             .stride = s,
                                             .padding_height = kernel / 2,
                                             .padding_width = kernel / 2,
                                             .groups = channels});
    x = b.norm(b.conv2d(deep, {.channels = channels}), {Norm::Batch});
  }
  return x;
}

Value apply(LayerBuilder& b, Value x, CellOperation operation, std::int64_t c, std::int64_t stride, Pool max_pools) {
  switch (operation) {
    case CellOperation::Identity: return x;
    case CellOperation::Conv1x1: return conv1x1(b, x, c, stride);
    case CellOperation::Conv3x3:
      x = conv1x1(b, x, c / 4);
      x = relu_conv_norm(b, x, {c / 4, 3, 3, stride, 1, 1});
      return conv1x1(b, x, c);
    case CellOperation::Conv1x7:
      PP_CHECK(stride == 1);
      x = conv1x1(b, x, c / 4);
      x = relu_conv_norm(b, x, {c / 4, 1, 7, 1, 0, 3});
      x = relu_conv_norm(b, x, {c / 4, 7, 1, 1, 3, 0});
      return conv1x1(b, x, c);
    case CellOperation::Separable3x3: return separable(b, x, c, 3, stride);
    case CellOperation::Separable5x5: return separable(b, x, c, 5, stride);
    case CellOperation::MaxPool2x2: return b.pool(x, {Pool::Max, 2, stride, 0});
    case CellOperation::MaxPool3x3: return b.pool(x, {max_pools, 3, stride, 1});
    case CellOperation::AveragePool3x3: return b.pool(x, {Pool::Average, 3, stride, 1});
  }
  return x;
}

// The newer and the older input; the first cell has but one, which is both.
Value cell(LayerBuilder& b, In in, const CellRecipe& recipe, std::int64_t c, bool reduces, Pool max_pools) {
  const Value newer = in.front(), older = in.back();
  const Shape newer_shape = b.shape(newer), older_shape = b.shape(older);
  std::vector<Value> states = {conv1x1(b, newer, c), older};
  if (older_shape[1] != newer_shape[1])
    states[1] = factorized_reduce(b, older, c);
  else if (older_shape[0] != c)
    states[1] = conv1x1(b, older, c);
  const auto through = [&](const CellStep& step) {
    return apply(b, states[at(step.state)], step.operation, c, reduces && step.state < 2 ? 2 : 1, max_pools);
  };
  for (std::size_t i = 0; i < recipe.steps.size(); i += 2)
    states.push_back(b.add(through(recipe.steps[i]), through(recipe.steps[i + 1])));
  auto parts = mapped<Value>(recipe.concat, [&](const int state) { return states[at(state)]; });
  return b.concat(parts);
}

void check(const FamilyValues& values) {
  const auto multiple = [&](const char* name, std::int64_t of, const char* why, std::int64_t least) {
    const std::int64_t value = values[name], below = value / of * of;
    if (value % of == 0) return;
    values.refuse(name, "is not a multiple of " + std::to_string(of) + " (" + why + "); use " +
                            (below < least ? "" : std::to_string(below) + " or ") + std::to_string(below + of));
  };
  multiple("layers", 3, "three groups of normal cells", 3);
  multiple("filters", 4, "the stem has a quarter", 8);
  multiple("image", 32, "it is halved five times", 32);
}

}  // namespace

Model build_amoebanet(const AmoebaNet& recipe, const FamilyValues& values) {
  check(values);
  const std::int64_t layers = values["layers"], filters = values["filters"], image = values["image"];
  const Pool max_pools = values.is("max_pools", "average") ? Pool::Average : Pool::Max;
  ModelBuilder net(std::string(recipe.name) + "(" + std::to_string(layers) + ", " + std::to_string(filters) + ")",
                   recipe.source);
  std::int64_t c = filters / 4;
  const Tensor stem = net.add("stem1", {net.input({3, image, image})}, [&](LayerBuilder& b, In in) {
    return relu_conv_norm(b, in[0], {c, 3, 3, 2, 1, 1});
  });
  Tensor newer = stem, older = stem;  // outputs of the two layers before
  const auto step = [&](const Tensor& made) { older = std::exchange(newer, made); };
  const auto add_cell = [&](const std::string& name, bool reduces) {
    const auto build = [&](LayerBuilder& b, In in) {
      return cell(b, in, reduces ? recipe.reduction : recipe.normal, c, reduces, max_pools);
    };
    step(newer.layer == older.layer ? net.add(name, {newer}, build) : net.add(name, {newer, older}, build));
  };
  const auto reduction = [&](const std::string& name) {
    c *= 2;
    add_cell(name, true);
  };
  const auto normals = [&](const std::string& name) {
    for (std::int64_t i = 1; i <= layers / 3; ++i) {
      const std::string numbered = name + std::to_string(i);
      if (i <= 3)  // from the third on both inputs come from normal cells of this group
        add_cell(numbered, false);
      else
        step(net.add_like(numbered, {newer, older}, newer));
    }
  };
  reduction("stem2");
  reduction("stem3");
  normals("cell1_normal");
  reduction("cell2_reduction");
  normals("cell3_normal");
  reduction("cell4_reduction");
  normals("cell5_normal");
  net.add("classify", {newer, older}, [&](LayerBuilder& b, In in) {
    return b.linear(b.global_average_pool(in[0]), {.features = values["classes"]});
  });
  return net.finish();
}

}  // namespace pipewright::core
