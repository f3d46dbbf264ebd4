// Each operator's figures against numbers worked out by hand.
#include "core/model/layer_builder.hpp"

#include <doctest/doctest.h>

#include "core/check.hpp"
#include "core/model/graph.hpp"
#include "tests/support/backward_flops.hpp"

using namespace pipewright::tests;

namespace {

constexpr Bytes kFp16{2}, kFp32{4};

double kept(const Work& work, Bytes per_value = kFp32) {
  return work.kept.on_device(per_value, {});
}

const Operator& only(const Work& work) {
  REQUIRE(work.operators.size() == 1);
  return work.operators.front();
}

std::string refusal(const auto& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a 7 x 7 / 2 convolution of 3 x 224 x 224 to 64 channels has 118 013 952 multiply-adds") {
  LayerBuilder layer;
  const auto x = layer.input({3, 224, 224});
  const auto y = layer.conv2d(
      x, {.channels = 64, .kernel_height = 7, .kernel_width = 7, .stride = 2, .padding_height = 3, .padding_width = 3});
  CHECK(layer.shape(y) == Shape{64, 112, 112});
  const Work work = layer.finish({y});
  const Operator& conv = only(work);
  CHECK(conv.forward_flops == 2 * 118'013'952.0);
  CHECK(conv.input_flops == conv.forward_flops);
  CHECK(conv.weight_flops == conv.forward_flops);
  CHECK(work.parameters == 64 * 3 * 49);
  CHECK(kept(work) == 0);  // its input, which is another layer's
  CHECK(work.keeps_input[0]);
  CHECK_FALSE(work.keeps_output);
  CHECK(work.output().on_device(kFp32, {}) == 4.0 * 64 * 112 * 112);
  CHECK(conv.forward_bytes.on_device(kFp32, {}) == 4.0 * (3 * 224 * 224 + 64 * 112 * 112));
}

TEST_CASE("a convolution of one group knows its shape") {
  const auto shape_of = [](std::int64_t groups) {
    LayerBuilder layer;
    const Work work = layer.finish({layer.conv2d(
        layer.input({4, 9, 7}),
        {.channels = 6, .kernel_height = 3, .kernel_width = 1, .stride = 2, .padding_height = 1, .groups = groups})});
    return only(work).convolution;
  };
  CHECK(shape_of(1) == ConvolutionShape{4, 9, 7, 6, 5, 4, 3, 1, 2});
  CHECK(shape_of(2) == ConvolutionShape{});
}

TEST_CASE("norms over whole images read twice what they sum up first") {
  const auto bytes = [](Norm kind) {
    LayerBuilder layer;
    const Work work = layer.finish({layer.norm(layer.conv2d(layer.input({4, 10, 10}), {.channels = 4}), {kind})});
    const Operator& norm = work.operators.at(1);
    return std::pair{norm.forward_bytes.values, norm.input_bytes.values};
  };
  CHECK(bytes(Norm::Batch) == std::pair{3 * 400.0, 5 * 400.0});
  CHECK(bytes(Norm::Instance) == std::pair{3 * 400.0, 5 * 400.0});
  CHECK(bytes(Norm::Layer) == std::pair{2 * 400.0, 3 * 400.0});
}

TEST_CASE("the first convolution computes no gradient of the model's own input") {
  LayerBuilder layer;
  const Work work = layer.finish({layer.conv2d(layer.input({3, 8, 8}, false), {.channels = 4})});
  CHECK(only(work).input_flops == 0);
  CHECK(only(work).weight_flops == 2.0 * 4 * 64 * 3);
}

TEST_CASE("groups divide a convolution's work and weights, and a 1 x 7 kernel is a convolution of seven") {
  LayerBuilder grouped;
  const Work depthwise = grouped.finish({grouped.conv2d(
      grouped.input({8, 5, 5}),
      {.channels = 8, .kernel_height = 3, .kernel_width = 3, .padding_height = 1, .padding_width = 1, .groups = 8})});
  CHECK(depthwise.parameters == 8 * 9);
  CHECK(only(depthwise).forward_flops == 2.0 * 8 * 25 * 9);
  CHECK(only(depthwise).kind == OperatorKind::GroupedConvolution);
  LayerBuilder factorised;
  const Work row = factorised.finish(
      {factorised.conv2d(factorised.input({4, 7, 7}), {.channels = 4, .kernel_width = 7, .padding_width = 3})});
  CHECK(row.parameters == 4 * 4 * 7);
  CHECK(only(row).forward_flops == 2.0 * 4 * 49 * 28);
}

TEST_CASE("a linear layer from 4096 to 1000 features has 8 192 000 FLOPs per row and 4 097 000 parameters") {
  LayerBuilder layer;
  const Work work = layer.finish({layer.linear(layer.input({10, 4096}), {.features = 1000})});
  CHECK(only(work).forward_flops == 10 * 8'192'000.0);
  CHECK(work.parameters == 4'097'000);
}

TEST_CASE("tensor parallelism by columns shards the output and all-reduces the input's gradient, by rows the output") {
  const std::int64_t s = 6, h = 4, f = 16;
  LayerBuilder layer;
  const auto x = layer.input({s, h});
  const auto inner = layer.linear(x, {.features = f, .split = Split::Columns});
  const Work work = layer.finish({layer.linear(inner, {.features = h, .split = Split::Rows})});
  CHECK(work.parameters == (h * f + f) + (f * h + h));
  CHECK(work.sharded_parameters == h * f + f + f * h);
  CHECK(parameters_on_device(work, {4}) == (h * f + f + f * h) / 4 + h);
  CHECK(work.reductions_forward == 1);
  CHECK(work.reduced_forward.on_device(kFp16, {.degree = 4}) == 2.0 * s * h);
  CHECK(work.reductions_backward == 1);
  CHECK(work.reduced_backward.on_device(kFp16, {.degree = 4}) == 2.0 * s * h);
  CHECK(work.kept.on_device(kFp16, {.degree = 4}) == 2.0 * s * f / 4);  // what enters the second product
  CHECK(work.shards == f);
}

TEST_CASE("materialised attention keeps 5 a s^2 bytes at 2 bytes per value beside queries, keys and values") {
  const std::int64_t s = 8, a = 2, d = 3;
  LayerBuilder layer;
  const auto qkv = layer.input({s, 3 * a * d});
  const auto y = layer.attention({qkv}, {.heads = a,
                                         .key_heads = a,
                                         .key_size = d,
                                         .value_size = d,
                                         .queries = s,
                                         .keys = s,
                                         .causal = true,
                                         .dropout = true});
  const Work work = layer.finish({y});
  CHECK(kept(work, kFp16) == 5.0 * a * s * s);  // [Korthikanti22] section 4.1
  CHECK(kept_without(work, {Module::AttentionCore}).on_device(kFp16, {}) == 0);
  CHECK(work.product_flops() == 4.0 * s * s * a * d);  // the whole matrix, masked or not
  double gradients = 0;
  for (const Operator& op : work.operators)
    if (op.product) gradients += op.input_flops + op.weight_flops;
  CHECK(gradients == 8.0 * s * s * a * d);
}

TEST_CASE("a fused kernel computes only the pairs that the mask leaves") {
  const auto pairs = [](std::int64_t queries, std::int64_t keys, bool causal, std::int64_t window) {
    LayerBuilder layer;
    const auto y = layer.attention({layer.input({queries, 3})}, {.heads = 1,
                                                                 .key_heads = 1,
                                                                 .key_size = 1,
                                                                 .value_size = 1,
                                                                 .queries = queries,
                                                                 .keys = keys,
                                                                 .causal = causal,
                                                                 .window = window,
                                                                 .flash = true});
    return layer.finish({y}).product_flops() / 4;
  };
  for (std::int64_t queries = 1; queries <= 7; ++queries)
    for (std::int64_t keys = queries; keys <= 9; ++keys)
      for (std::int64_t window = 0; window <= 10; ++window) {
        std::int64_t counted = 0;
        for (std::int64_t q = 0; q < queries; ++q)
          for (std::int64_t k = 0; k < keys; ++k) {
            const std::int64_t own = q + keys - queries;  // the last query stands at the last key
            counted += k <= own && (window == 0 || k > own - window) ? 1 : 0;
          }
        CAPTURE(queries);
        CAPTURE(keys);
        CAPTURE(window);
        CHECK(pairs(queries, keys, true, window) == static_cast<double>(counted));
      }
  CHECK(pairs(4, 4, false, 0) == 16);
}

TEST_CASE("fused attention keeps its output and one fp32 figure per row and head") {
  LayerBuilder layer;
  const auto y = layer.attention(
      {layer.input({8, 18})},
      {.heads = 2, .key_heads = 2, .key_size = 3, .value_size = 3, .queries = 8, .keys = 8, .flash = true});
  const Work work = layer.finish({y});
  CHECK(kept(work, kFp16) == 2.0 * 8 * 6 + 4.0 * 8 * 2);
  CHECK(work.keeps_output);
}

TEST_CASE("a tensor that several operators need is kept once") {
  LayerBuilder layer;
  const auto x = layer.input({4, 10, 10});
  const auto y = layer.activation(layer.norm(x, {.kind = Norm::Batch}), Activation::Relu);
  const Work work = layer.finish({layer.conv2d(y, {.channels = 4})});
  CHECK(kept(work) == 4.0 * 400);  // relu's output, which is the convolution's input; the norm keeps the layer's input
  CHECK(work.parameters == 8 + 16);
}

TEST_CASE("gelu and silu keep their input, a gated activation both halves") {
  LayerBuilder plain, gated;
  CHECK(kept(plain.finish({plain.activation(plain.linear(plain.input({1, 5}), {.features = 6}), Activation::Gelu)})) ==
        4.0 * 6);
  CHECK(kept(gated.finish({gated.gated(gated.linear(gated.input({1, 5}), {.features = 6}), Activation::Silu)})) ==
        4.0 * 6);
}

TEST_CASE("max pooling keeps its input and an index per output, average pooling nothing") {
  LayerBuilder largest, average;
  const auto y = largest.pool(largest.conv2d(largest.input({1, 4, 4}), {.channels = 2}), {.kernel = 2, .stride = 2});
  CHECK(largest.shape(y) == Shape{2, 2, 2});
  CHECK(kept(largest.finish({y})) == 4.0 * 32 + 8.0 * 8);
  const auto z = average.pool(average.conv2d(average.input({1, 4, 4}), {.channels = 2}),
                              {.kind = Pool::Average, .kernel = 3, .stride = 1, .padding = 1});
  CHECK(average.shape(z) == Shape{2, 4, 4});
  CHECK(kept(average.finish({z})) == 0);
}

TEST_CASE("pooling windows round up on request") {
  LayerBuilder layer;
  const auto x = layer.input({1, 6, 6});
  CHECK(layer.shape(layer.pool(x, {.kernel = 3, .stride = 2})) == Shape{1, 2, 2});
  CHECK(layer.shape(layer.pool(x, {.kernel = 3, .stride = 2, .ceil = true})) == Shape{1, 3, 3});
  CHECK(layer.shape(layer.pool(x, {.kernel = 2, .stride = 2, .padding = 1, .ceil = true})) == Shape{1, 4, 4});
}

TEST_CASE("an embedding gathers rows: parameters of the whole table, bytes of the rows") {
  LayerBuilder layer;
  const Work work = layer.finish({layer.embedding(layer.tokens(10), 1000, 16)});
  CHECK(work.parameters == 16'000);
  CHECK(only(work).gathered_parameters == 16'000);
  CHECK(only(work).forward_bytes.on_device(kFp32, {}) == 80 + 2 * 4.0 * 160);
  CHECK(work.product_flops() == 0);
}

TEST_CASE("an LSTM has four gates, two biases each, and a bidirectional one twice of all") {
  LayerBuilder one, both;
  const Work single = one.finish({one.lstm(one.input({5, 7}), {.hidden = 3})});
  CHECK(single.parameters == 4 * 3 * (7 + 3 + 2));
  CHECK(single.product_flops() == 5.0 * 8 * 3 * (7 + 3));
  CHECK(kept(single) == 4.0 * 5 * 3 * 6);  // gates, cells, outputs
  const auto y = both.lstm(both.input({5, 7}), {.hidden = 3, .bidirectional = true});
  CHECK(both.shape(y) == Shape{5, 6});
  const Work twice = both.finish({y});
  CHECK(twice.parameters == 2 * single.parameters);
  CHECK(twice.product_flops() == 2 * single.product_flops());
}

TEST_CASE("experts: parameters of all, arithmetic of those that a token is sent to") {
  LayerBuilder layer;
  const Work work =
      layer.finish({layer.experts(layer.input({10, 8}), {.experts = 4, .active = 2, .hidden = 6, .gated = true})});
  CHECK(work.parameters == 4 * 3 * 8 * 6);
  CHECK(work.product_flops() == 10.0 * 2 * 2 * 3 * 8 * 6);
  CHECK(refusal([] {
          LayerBuilder bad;
          bad.experts(bad.input({1, 2}), {.experts = 2, .active = 3});
        }) == "3 experts per token of only 2; use at most 2");
}

TEST_CASE("dropout keeps a byte per value, dropout2d a byte per channel") {
  LayerBuilder values, channels;
  CHECK(kept(values.finish({values.dropout(values.input({3, 4, 4}))})) == 48);
  CHECK(kept(channels.finish({channels.dropout(channels.input({3, 4, 4}), true)})) == 3);
}

TEST_CASE("the loss keeps fp32 probabilities whatever the precision") {
  LayerBuilder layer;
  const Work work = layer.finish({layer.cross_entropy(layer.input({3, 50}))});
  CHECK(kept(work, kFp16) == 4.0 * 150);
}

TEST_CASE("concat joins channels, upsample grows the image, reshape and add keep nothing") {
  LayerBuilder layer;
  const auto x = layer.input({2, 3, 3}), z = layer.input({5, 3, 3});
  const auto joined = layer.concat({x, z});
  CHECK(layer.shape(joined) == Shape{7, 3, 3});
  const auto grown = layer.upsample(joined, 2);
  CHECK(layer.shape(grown) == Shape{7, 6, 6});
  const auto flat = layer.reshape(grown, {252});
  CHECK(kept(layer.finish({layer.add(flat, flat)})) == 0);
}

TEST_CASE("shapes that do not fit are refused with what would") {
  const auto image = [](LayerBuilder& layer) { return layer.input({3, 2, 2}); };
  CHECK(refusal([&] {
          LayerBuilder layer;
          layer.conv2d(image(layer), {.kernel_height = 3, .kernel_width = 3});
        }) == "conv2d height: kernel 3 is larger than its input of 2; use a larger input or a smaller kernel");
  CHECK(refusal([&] {
          LayerBuilder layer;
          layer.conv2d(image(layer), {.channels = 4, .groups = 2});
        }) == "groups 2 does not divide the 3 input and 4 output channels; use a common divisor");
  CHECK(refusal([&] {
          LayerBuilder layer;
          layer.add(image(layer), layer.input({3, 2, 1}));
        }) == "add needs two tensors of one shape, not 3 x 2 x 2 and 3 x 2 x 1");
  CHECK(refusal([&] {
          LayerBuilder layer;
          layer.attention({layer.input({2, 6})}, {.heads = 3, .key_heads = 2, .queries = 2, .keys = 2});
        }) == "2 key heads do not divide 3 heads; use a divisor");
}

TEST_CASE("settled layers: bytes by precision, outputs kept for users, shares of a tensor-parallel group") {
  Model model;
  LayerBuilder first, second;
  model.works.push_back(first.finish({first.linear(first.input({4, 8}), {.features = 8, .split = Split::Columns})}));
  const auto x = second.input({4, 8});
  model.works.push_back(second.finish({second.add(x, x)}));
  model.layers.resize(3);
  model.layers[0].work = 0;
  model.layers[1].work = 0, model.layers[1].inputs = {0};
  model.layers[2].work = 1, model.layers[2].inputs = {1};
  settle(model, kFp16, {});
  CHECK(model.layers[0].activation == Bytes{64});
  CHECK(model.layers[0].stash == Bytes{64});  // for the product that reads it
  CHECK_FALSE(model.layers[0].keeps_output);
  CHECK(model.layers[1].stash == Bytes{0});  // nobody needs a sum's inputs
  CHECK(model.layers[0].flops == Flops{2.0 * 4 * 8 * 8});
  settle(model, kFp32, {.degree = 2});
  CHECK(model.layers[0].activation == Bytes{64});
  CHECK(model.layers[0].parameters == 72);
  CHECK(model.layers[0].parameters_on_device == 36);
}

TEST_CASE("Rotary positions cost three FLOPs per rotated feature, move only those, and keep nothing") {
  LayerBuilder b;
  const auto x = b.input({8, 64});
  const Work work = b.finish({b.rotary(x, 0.25)});
  const Operator& op = work.operators.at(0);
  CHECK(op.forward_flops == 3 * 8 * 64 / 4);
  CHECK(op.forward_bytes.values == 2 * 8 * 64 / 4);
  CHECK(work.kept.values == 0);
  CHECK(work.keeps_input == std::vector<char>{0});
}

TEST_CASE("A tensor copied for every head is divided among devices, and its gradients are summed over them") {
  LayerBuilder b;
  const auto x = b.input({8, 16});
  const Work work = b.finish({b.for_heads(x, 4)});
  CHECK(work.output().sharded_values == 8 * 64);
  CHECK(work.operators.at(0).forward_bytes.values == 8 * 16);
  CHECK(work.operators.at(0).forward_bytes.sharded_values == 8 * 64);
  CHECK(work.reduced_backward.values == 8 * 16);
}

TEST_CASE("A tied embedding has no parameters of its own") {
  LayerBuilder b;
  const Work work = b.finish({b.embedding(b.tokens(8), 100, 16, Split::Rows, Table::Tied)});
  CHECK(work.parameters == 0);
  CHECK(work.sharded_parameters == 0);
  CHECK(work.tied_parameters == 1600);
}

TEST_CASE("A gate other than SwiGLU's is half of its product; idle are the experts that a token is not sent to") {
  LayerBuilder b;
  const auto x = b.input({8, 16});
  const auto y = b.gated(b.linear(x, {.features = 64, .gate = Activation::Gelu}), Activation::Gelu);
  b.gated(b.linear(x, {.features = 64, .gate = Activation::Silu}), Activation::Silu);
  b.experts(x, {.experts = 4, .active = 1, .hidden = 8});
  const Work work = b.finish({y});
  CHECK(work.operators.at(0).other_gate_flops == 8 * 16 * 64);
  CHECK(work.operators.at(2).other_gate_flops == 0);
  std::int64_t idle = 0;
  for (const Operator& op : work.operators)
    idle += op.idle_parameters;
  CHECK(idle == 3 * 3 * 16 * 8);
}

TEST_CASE("The backward of a fused kernel takes five products, the model's count has four") {
  // 4 queries and keys, causal: 10 pairs, 1 head of 2 + 2: forward 2 * 10 * 4 = 80, gradients 160, and 40 for the
  // scores again: 2 * 10 * (3 * 2 + 2 * 2) = 200.                                                      [Dao22]
  const auto core = [](bool flash) {
    LayerBuilder b;
    const auto y = b.attention({b.input({4, 6})}, {.heads = 1,
                                                   .key_heads = 1,
                                                   .key_size = 2,
                                                   .value_size = 2,
                                                   .queries = 4,
                                                   .keys = 4,
                                                   .causal = true,
                                                   .flash = flash});
    return b.finish({y});
  };
  const Operator attention = only(core(true));
  CHECK(attention.input_flops == 160);
  CHECK(attention.rebuilt_flops == 40);
  CHECK(backward_flops(core(true)) == 160);
  for (const Operator& op : core(false).operators)
    CHECK(op.rebuilt_flops == 0);
}

TEST_CASE("A tensor-parallel degree must divide the key heads") {
  LayerBuilder b;
  const auto qkv = b.linear(b.input({4, 32}), {.features = (8 + 2 * 2) * 4, .split = Split::Columns});
  const auto y =
      b.attention({qkv}, {.heads = 8, .key_heads = 2, .key_size = 4, .value_size = 4, .queries = 4, .keys = 4});
  Model model;
  model.works.push_back(b.finish({y}));
  CHECK(model.works[0].shards == 2);
  model.layers.resize(1);
  model.layers[0].name = "block", model.layers[0].work = 0;
  settle(model, kFp16, {.degree = 2});
  CHECK(refusal([&] { settle(model, kFp16, {.degree = 4}); }) ==
        "plan.tensor_parallel: 4 does not divide layer \"block\", which is split 2 ways at most (the common divisor of "
        "its "
        "heads, key heads, groups and inner features); use 1 or 2");
  model.layers[0].place = {"model.yaml", 2, 1};
  CHECK(refusal([&] { settle(model, kFp16, {.degree = 4}); }).starts_with("model.yaml:2:1: plan.tensor_parallel: 4 "));
  CHECK(refusal([&] {
          settle(model, kFp16, {.degree = 4}, {"plan.yaml", 7, 3});
        }).starts_with("plan.yaml:7:3: plan.tensor_parallel: 4 "));
}

TEST_CASE("What experts read stands whole on every device of a group, with sequence parallelism, too") {
  // 10 tokens of 8 features to 2 experts each: 160 values in and 160 out of the experts, whole; 10 * 2 * (12 + 6)
  // inside them, divided.
  LayerBuilder b;
  const Work work = b.finish({b.experts(b.input({10, 8}), {.experts = 4, .active = 2, .hidden = 6, .gated = true})});
  CHECK(work.kept.on_device(kFp16, {.degree = 1}) == 2.0 * (320 + 360));
  CHECK(work.kept.on_device(kFp16, {.degree = 2}) == 2.0 * (320 + 180));
  CHECK(work.kept.on_device(kFp16, {.degree = 2, .sequence_parallel = true}) == 2.0 * (320 + 180));
  const Operator& dispatch = work.operators.front();
  CHECK(dispatch.name == "dispatch");
  CHECK(dispatch.gathered);
  // It reads a token once and writes it twice: 80 of the sequence, 160 gathered.
  CHECK(dispatch.forward_bytes.on_device(kFp16, {.degree = 2, .sequence_parallel = true}) == 2.0 * (80 / 2 + 160));
  CHECK(work.operators.back().gathered);
}

TEST_CASE("A soft cap is a scale, a tanh that is kept, and a scale; over stored scores likewise, fused none") {
  LayerBuilder b;
  const Work work = b.finish({b.soft_cap(b.linear(b.input({3, 5}), {.features = 7}))});
  REQUIRE(work.operators.size() == 4);
  CHECK(work.forward_flops() - work.product_flops() == 3.0 * 21);
  CHECK(backward_flops(work) - 2 * work.product_flops() == 5.0 * 21);
  CHECK(kept(work) == 4.0 * 21);
  const auto core = [](bool flash, bool soft_cap) {
    LayerBuilder a;
    const auto y = a.attention({a.input({8, 18})}, {.heads = 2,
                                                    .key_heads = 2,
                                                    .key_size = 3,
                                                    .value_size = 3,
                                                    .queries = 8,
                                                    .keys = 8,
                                                    .flash = flash,
                                                    .soft_cap = soft_cap});
    Work costs = a.finish({y});
    costs.program = {};  // what is run does differ
    return costs;
  };
  CHECK(core(false, true).forward_flops() - core(false, false).forward_flops() == 3.0 * 2 * 64);
  CHECK(backward_flops(core(false, true)) - backward_flops(core(false, false)) == 5.0 * 2 * 64);
  CHECK(kept(core(false, true)) - kept(core(false, false)) == 4.0 * 2 * 64);
  CHECK(kept_without(core(false, true), {Module::AttentionCore}) ==
        kept_without(core(false, false), {Module::AttentionCore}));
  CHECK(core(true, true) == core(true, false));
}

TEST_CASE("Rows scaled by one factor each keep both, and the factor's gradient is a sum over its row") {
  LayerBuilder b;
  const auto x = b.linear(b.input({3, 5}), {.features = 4});
  const auto gate = b.linear(b.input({3, 5}), {.features = 1});
  const Work work = b.finish({b.scale_rows(x, gate)});
  CHECK(work.operators.back().forward_flops == 12);
  CHECK(work.operators.back().input_flops == 36);
  CHECK(kept(work) == 4.0 * (12 + 3));
  CHECK(refusal([] {
          LayerBuilder bad;
          bad.scale_rows(bad.input({3, 4}), bad.input({3, 4}));
        }) == "rows of 3 x 4 need one factor each, not 3 x 4");
}

TEST_CASE("A bias of the scores is read beside them and keeps nothing") {
  const auto core = [](bool bias) {
    LayerBuilder b;
    const auto y = b.attention(
        {b.input({8, 18})},
        {.heads = 2, .key_heads = 2, .key_size = 3, .value_size = 3, .queries = 8, .keys = 8, .bias = bias});
    return b.finish({y});
  };
  const Work with = core(true), without = core(false);
  REQUIRE(with.operators.size() == without.operators.size() + 1);
  const Operator& add = with.operators.at(1);
  CHECK(add.forward_flops == 2.0 * 64);
  CHECK(add.forward_bytes.values == 3.0 * 2 * 64);
  CHECK(with.kept == without.kept);
}

TEST_CASE("Products of figures that overflow are refused, not wrapped") {
  const std::int64_t large = 4'000'000'000;
  CHECK(refusal([&] {
          LayerBuilder b;
          b.conv2d(b.input({1, 1, 1}),
                   {.kernel_height = large, .kernel_width = large, .padding_height = large, .padding_width = large});
        }).find("the parameters of a channel") != std::string::npos);
  CHECK(refusal([&] {
          LayerBuilder b;
          b.attention({b.input({1, 1})}, {.heads = large, .key_heads = 1, .value_size = large});
        }).find("the features") != std::string::npos);
  CHECK(refusal([&] {
          LayerBuilder b;
          b.experts(b.input({1, 1}), {.experts = large, .hidden = large, .bias = true});
        }).find("the parameters") != std::string::npos);
}

TEST_CASE("An embedding looks up token numbers only") {
  CHECK(refusal([] {
          LayerBuilder b;
          b.embedding(b.input({8}), 100, 16);
        }).find("embedding looks up token numbers, but its input holds values; give model.input_tokens") == 0);
}
