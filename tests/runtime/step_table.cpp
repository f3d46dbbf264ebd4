#include "tests/runtime/step_table.hpp"

#include <string_view>
#include <utility>

#include "tests/runtime/step_runner.hpp"

namespace pipewright::tests::runtime_test {

namespace {

using Value = LayerBuilder::Value;

StepCase of_one(std::string name, Shape in, const std::function<Value(LayerBuilder&, Value)>& layer) {
  LayerBuilder builder;
  const Value x = builder.input(in);
  return {std::move(name), program_of(builder, {layer(builder, x)})};
}
StepCase of_many(std::string name, const std::vector<Shape>& in,
                 const std::function<Value(LayerBuilder&, const std::vector<Value>&)>& layer) {
  LayerBuilder builder;
  std::vector<Value> inputs;
  for (const Shape& shape : in)
    inputs.push_back(builder.input(shape));
  return {std::move(name), program_of(builder, {layer(builder, inputs)})};
}

StepCase convolution(std::string name, Shape in, Conv2d conv) {
  return of_one(std::move(name), in, [&](LayerBuilder& b, Value x) { return b.conv2d(x, conv); });
}

// Inputs 1: [q | k | v]; 2: q, [k | v]; 3: q, k, v.
StepCase attention(std::string name, int inputs, AttentionCore core) {
  const std::int64_t q = core.heads * core.key_size, k = core.key_heads * core.key_size,
                     v = core.key_heads * core.value_size;
  if (inputs == 1)
    return of_one(std::move(name), {core.queries, q + k + v},
                  [&](LayerBuilder& b, Value x) { return b.attention({x}, core); });
  if (inputs == 2)
    return of_many(std::move(name), {{core.queries, q}, {core.keys, k + v}},
                   [&](LayerBuilder& b, const std::vector<Value>& x) {
                     return b.attention({x[0], x[1]}, core);
                   });
  return of_many(std::move(name), {{core.queries, q}, {core.keys, k}, {core.keys, v}},
                 [&](LayerBuilder& b, const std::vector<Value>& x) {
                   return b.attention({x[0], x[1], x[2]}, core);
                 });
}

StepCase norm(std::string name, Shape in, NormSpec spec) {
  return of_one(std::move(name), in, [&](LayerBuilder& b, Value x) { return b.norm(x, spec); });
}
StepCase activation(std::string name, Shape in, Activation kind) {
  return of_one(std::move(name), in, [&](LayerBuilder& b, Value x) { return b.activation(x, kind); });
}
StepCase pool(std::string name, Shape in, PoolSpec spec) {
  return of_one(std::move(name), in, [&](LayerBuilder& b, Value x) { return b.pool(x, spec); });
}

void add_products(std::vector<StepCase>& all) {
  all.push_back(of_one("linear 5 x 7 -> 3", {5, 7}, [](auto& b, Value x) { return b.linear(x, {.features = 3}); }));
  all.push_back(of_one("linear, one row", {6}, [](auto& b, Value x) { return b.linear(x, {.features = 5}); }));
  all.push_back(of_one("linear, one output", {3, 4}, [](auto& b, Value x) { return b.linear(x, {.features = 1}); }));
  all.push_back(of_one("linear without bias", {4, 33},
                       [](auto& b, Value x) { return b.linear(x, {.features = 18, .bias = false}); }));
  all.push_back(convolution("conv2d 3 x 3", {2, 5, 7}, {3, 3, 3, 1, 1, 1, 1, true}));
  all.push_back(convolution("conv2d 3 x 2, stride 2, uneven padding", {3, 6, 5}, {2, 3, 2, 2, 2, 1, 1, false}));
  all.push_back(convolution("conv2d 1 x 1", {5, 3, 4}, {4, 1, 1, 1, 0, 0, 1, true}));
  all.push_back(convolution("conv2d 1 x 1, stride 2", {4, 5, 4}, {3, 1, 1, 2, 0, 0, 1, true}));
  all.push_back(convolution("conv2d of 2 groups", {4, 4, 5}, {6, 3, 3, 1, 1, 1, 2, true}));
  all.push_back(convolution("conv2d, a group per channel", {3, 5, 5}, {3, 3, 3, 2, 1, 1, 3, false}));
  all.push_back(convolution("conv2d, padding wider than the image", {1, 2, 2}, {2, 5, 5, 3, 4, 4, 1, true}));
  all.push_back(convolution("conv2d 1 x 1 of 3 groups", {3, 2, 3}, {6, 1, 1, 1, 0, 0, 3, false}));
}

void add_attention(std::vector<StepCase>& all) {
  for (const bool flash : {false, true}) {
    const std::string head = flash ? "flash attention" : "attention";
    all.push_back(attention(head, 1, {2, 2, 3, 3, 5, 5, false, 0, flash}));
    all.push_back(attention(head + ", causal", 1, {2, 2, 4, 4, 7, 7, true, 0, flash}));
    all.push_back(attention(head + ", shared key heads", 1, {4, 2, 3, 2, 4, 4, true, 0, flash}));
    all.push_back(attention(head + ", three inputs", 3, {2, 1, 3, 5, 4, 6, false, 0, flash}));
    all.push_back(attention(head + ", more keys, causal", 3, {1, 1, 2, 2, 3, 5, true, 0, flash}));
    all.push_back(attention(head + ", q and kv", 2, {3, 3, 2, 4, 6, 3, false, 0, flash}));
    all.push_back(attention(head + ", two blocks of queries", 1, {1, 1, 2, 1, 70, 70, true, 0, flash}));
  }
}

// The steps of experts, each as the last of a program.
void add_experts(std::vector<StepCase>& all) {
  for (const Experts& spec : {Experts{.experts = 4, .active = 2, .hidden = 5, .bias = true},
                              Experts{.experts = 3, .active = 1, .hidden = 4, .gated = false},
                              Experts{.experts = 2, .active = 2, .hidden = 3}}) {
    const std::string name = ", " + std::to_string(spec.active) + " of " + std::to_string(spec.experts) + " experts";
    Program program = of_many("", {{6, 7}, {6, spec.experts}}, [&](LayerBuilder& b, const std::vector<Value>& x) {
                        return b.experts(x[0], x[1], spec);
                      }).program;
    for (; !program.steps.empty(); program.steps.pop_back())
      if (const std::string_view last = program.steps.back().operation;
          last == "dispatch" || last == "grouped_linear" || last == "combine") {
        program.outputs = {program.steps.back().output};
        all.push_back({std::string(last) + name + ", step " + std::to_string(program.steps.size()), program});
      }
  }
}

void add_rows(std::vector<StepCase>& all) {
  LayerBuilder tokens;
  const Value looked_up = tokens.embedding(tokens.tokens(5), 7, 3);
  all.push_back({"embedding", program_of(tokens, {looked_up})});
  all.push_back(of_one("learned_table", {4, 3}, [](auto& b, Value x) { return b.learned(x, 6); }));
  all.push_back(norm("layer_norm", {3, 37}, {Norm::Layer}));
  all.push_back(norm("layer_norm, one row", {5}, {Norm::Layer}));
  all.push_back(norm("layer_norm without shift", {2, 4}, {Norm::Layer, true, false}));
  all.push_back(norm("layer_norm, plain", {2, 16}, {Norm::Layer, false}));
  all.push_back(norm("rms_norm", {3, 35}, {Norm::Rms}));
  all.push_back(norm("rms_norm, plain", {3, 5}, {Norm::Rms, false}));
  all.push_back(of_one("softmax", {3, 19}, [](auto& b, Value x) { return b.softmax(x); }));
  all.push_back(of_one("cross_entropy", {4, 21}, [](auto& b, Value x) { return b.cross_entropy(x); }));
  all.push_back(of_one("cross_entropy, one row", {5}, [](auto& b, Value x) { return b.cross_entropy(x); }));
}

void add_values(std::vector<StepCase>& all) {
  for (const auto& [name, kind] : {std::pair<std::string_view, Activation>{"relu", Activation::Relu},
                                   {"gelu", Activation::Gelu},
                                   {"silu", Activation::Silu},
                                   {"tanh", Activation::Tanh},
                                   {"sigmoid", Activation::Sigmoid}}) {
    const Activation function = kind;
    all.push_back(activation(std::string(name), {3, 7}, kind));
    all.push_back(
        of_one("gated " + std::string(name), {3, 10}, [function](auto& b, Value x) { return b.gated(x, function); }));
  }
  all.push_back(of_many("add", {{3, 5}, {3, 5}}, [](auto& b, const auto& x) { return b.add(x[0], x[1]); }));
  all.push_back(of_many("multiply", {{3, 5}, {3, 5}}, [](auto& b, const auto& x) { return b.multiply(x[0], x[1]); }));
}

void add_order(std::vector<StepCase>& all) {
  all.push_back(of_many("concat of channels", {{2, 3, 4}, {1, 3, 4}, {3, 3, 4}}, [](auto& b, const auto& x) {
    return b.concat({x[0], x[1], x[2]});
  }));
  all.push_back(of_many("concat of features", {{3, 2}, {3, 5}}, [](auto& b, const auto& x) {
    return b.concat({x[0], x[1]});
  }));
  all.push_back(of_one("slice of features", {3, 7}, [](auto& b, Value x) { return b.slice(x, {3, 4}); }));
  all.push_back(of_one("slice of an image", {3, 4, 5}, [](auto& b, Value x) { return b.slice(x, {2, 3, 2}); }));
  all.push_back(of_one("slice, first token", {4, 3}, [](auto& b, Value x) { return b.slice(x, {3}); }));
  all.push_back(of_one("image_to_tokens", {3, 4, 2}, [](auto& b, Value x) { return b.image_to_tokens(x); }));
  all.push_back(pool("max_pool", {2, 6, 6}, {Pool::Max, 2, 2, 0}));
  all.push_back(pool("max_pool, overlapping and padded", {2, 7, 5}, {Pool::Max, 3, 2, 1}));
  all.push_back(pool("max_pool, size rounded up", {1, 5, 6}, {Pool::Max, 2, 2, 0, true}));
  all.push_back(pool("average_pool", {2, 4, 6}, {Pool::Average, 2, 2, 0}));
  all.push_back(pool("average_pool, overlapping and padded", {2, 5, 7}, {Pool::Average, 3, 1, 1}));
  all.push_back(pool("average_pool, size rounded up", {1, 5, 5}, {Pool::Average, 2, 2, 0, true}));
  all.push_back(of_one("global_average_pool", {3, 4, 5}, [](auto& b, Value x) { return b.global_average_pool(x); }));
}

}  // namespace

std::vector<StepCase> step_cases() {
  std::vector<StepCase> all;
  add_products(all), add_attention(all), add_experts(all), add_rows(all), add_values(all), add_order(all);
  return all;
}

}  // namespace pipewright::tests::runtime_test
