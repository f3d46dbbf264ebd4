#include "runtime/operations.hpp"

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/check.hpp"
#include "core/model/layer_builder.hpp"
#include "runtime/runnable.hpp"
#include "tests/runtime/step_runner.hpp"
#include "tests/support/family_model.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

using Value = LayerBuilder::Value;

Program layer(Shape in, const std::function<Value(LayerBuilder&, Value)>& make) {
  LayerBuilder builder;
  const Value x = builder.input(in);
  return program_of(builder, {make(builder, x)});
}

std::vector<ParameterTensor> parameters(const Program& program) {
  return parameters_of(program, program.steps.back());
}
std::int64_t saved(const Program& program) {
  return saved_bytes(program, program.steps.back());
}

std::string refusal(const Program& program) {
  try {
    for (const ProgramStep& step : program.steps)
      rule_of(program, step);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}
bool refused(const Program& program, const std::string& why) {
  const std::string found = refusal(program);
  CAPTURE(found);
  CHECK(found.find(why) != std::string::npos);
  return found.find(why) != std::string::npos;
}

AttentionCore small_core() {
  return {.heads = 2, .key_heads = 2, .key_size = 3, .value_size = 3, .queries = 4, .keys = 4};
}

}  // namespace

TEST_CASE("A linear layer starts uniform within 1 / sqrt(inputs)") {
  const auto found = parameters(layer({5, 64}, [](auto& b, Value x) { return b.linear(x, {.features = 10}); }));
  REQUIRE(found.size() == 2);
  CHECK(found[0].name == "weight");
  CHECK(found[0].elements == 640);
  CHECK(found[0].initial == Initial::Uniform);
  CHECK(found[0].bound == 0.125);
  CHECK(found[1].name == "bias");
  CHECK(found[1].elements == 10);
  CHECK(found[1].bound == 0.125);
}

TEST_CASE("A convolution's output value has as many inputs as its group and kernel") {
  // 2 groups of 8 channels: 4 * 2 * 2 = 16 inputs, 6 * 16 weights
  const auto found = parameters(layer({8, 5, 5}, [](auto& b, Value x) {
    return b.conv2d(x, {.channels = 6, .kernel_height = 2, .kernel_width = 2, .groups = 2});
  }));
  REQUIRE(found.size() == 1);
  CHECK(found[0].elements == 96);
  CHECK(found[0].bound == 0.25);
}

TEST_CASE("Tables start normal, norms as the identity") {
  LayerBuilder builder;
  const Value looked_up = builder.embedding(builder.tokens(5), 100, 8);
  const auto table = parameters(program_of(builder, {looked_up}));
  REQUIRE(table.size() == 1);
  CHECK(table[0].elements == 800);
  CHECK(table[0].initial == Initial::Normal);
  CHECK(table[0].bound == 0.02);
  const auto norm = parameters(layer({3, 8}, [](auto& b, Value x) { return b.norm(x, {Norm::Layer}); }));
  REQUIRE(norm.size() == 2);
  CHECK(norm[0].initial == Initial::One);
  CHECK(norm[1].initial == Initial::Zero);
  CHECK(norm[1].elements == 8);
  CHECK(parameters(layer({3, 8}, [](auto& b, Value x) { return b.norm(x, {Norm::Layer, false}); })).empty());
}

TEST_CASE("Parameters of a step are those that its layer is priced with") {
  const auto check = [](Shape in, const std::function<Value(LayerBuilder&, Value)>& make) {
    LayerBuilder builder;
    const Value x = builder.input(in);
    const Value y = make(builder, x);
    const Work work = builder.finish({y});
    std::int64_t trained = 0;
    for (const ProgramStep& step : work.program.get()->steps)
      for (const ParameterTensor& tensor : parameters_of(*work.program.get(), step))
        trained += tensor.elements;
    CHECK(trained == work.parameters);
  };
  check({4, 6}, [](auto& b, Value x) { return b.norm(b.linear(b.learned(x, 4), {.features = 5}), {Norm::Layer}); });
  check({4, 6}, [](auto& b, Value x) { return b.norm(b.linear(x, {.features = 5, .bias = false}), {Norm::Rms}); });
  check({4, 6, 6}, [](auto& b, Value x) {
    return b.conv2d(x, {.channels = 8, .kernel_height = 3, .kernel_width = 1, .groups = 4, .bias = true});
  });
}

TEST_CASE("Bytes saved per sample beside inputs and output") {
  CHECK(saved(layer({5, 64}, [](auto& b, Value x) { return b.norm(x, {Norm::Layer}); })) == 5 * 2 * 4);
  CHECK(saved(layer({5, 64}, [](auto& b, Value x) { return b.norm(x, {Norm::Rms}); })) == 5 * 4);
  CHECK(saved(layer({5, 10}, [](auto& b, Value x) { return b.cross_entropy(x); })) == 5 * 10 * 4);
  CHECK(saved(layer({2, 6, 6}, [](auto& b, Value x) { return b.pool(x, {}); })) == 2 * 3 * 3 * 4);
  CHECK(saved(layer({5, 8}, [](auto& b, Value x) { return b.linear(x, {.features = 4}); })) == 0);
  AttentionCore core = small_core();
  const auto of = [&] { return layer({4, 18}, [&](auto& b, Value x) { return b.attention({x}, core); }); };
  CHECK(saved(of()) == 2 * 4 * 4 * 4);  // heads, queries, keys, bytes
  core.flash = true;
  CHECK(saved(of()) == 2 * 4 * 4);
}

TEST_CASE("Only flash attention reads its output again") {
  AttentionCore core = small_core();
  const auto reads_output = [&] {
    const Program program = layer({4, 18}, [&](auto& b, Value x) { return b.attention({x}, core); });
    return rule_of(program, program.steps.back()).gradient_reads_output;
  };
  CHECK_FALSE(reads_output());
  core.flash = true;
  CHECK(reads_output());
}

TEST_CASE("A tensor's bytes: 4 per value, 8 per token number") {
  CHECK(tensor_bytes({.shape = {3, 5}}) == 60);
  CHECK(tensor_bytes({.shape = {7}, .indices = true}) == 56);
}

TEST_CASE("What cannot be run is refused by name, with what can") {
  refused(layer({4, 6}, [](auto& b, Value x) { return b.lstm(x, {.hidden = 3}); }),
          "operation lstm cannot be run; can be run: linear, conv2d, embedding");
  refused(layer({4, 6}, [](auto& b, Value x) { return b.experts(x, {.experts = 4, .active = 2, .hidden = 3}); }),
          "operation experts cannot be run without the shares of a router (write from: [x, shares])");
  refused(layer({4, 6}, [](auto& b, Value x) { return b.rotary(x, 1); }), "operation rotary cannot be run");
  refused(layer({4, 6}, [](auto& b, Value x) { return b.dropout(x); }), "its masks are random; set it to 0");
  refused(layer({4, 5, 5}, [](auto& b, Value x) { return b.norm(x, {Norm::Batch}); }),
          "its statistics are over the micro-batch");
  refused(layer({4, 5, 5}, [](auto& b, Value x) { return b.norm(x, {Norm::Instance}); }), "operation instance_norm");
}

TEST_CASE("A model with frozen weights and adapters is refused") {
  const Model model = family_model("gpt", {{"layers", "2"}, {"hidden", "8"}, {"heads", "2"}, {"lora_rank", "2"}});
  CHECK(layers_refused(model) ==
        "layer \"embedding\" cannot be run: has frozen weights (model.lora_rank), and runs train all; leave it out, or "
        "run with --synthetic");
}

TEST_CASE("Steps of an operation that can be run are refused for what they ask beyond it") {
  refused(layer({4, 6}, [](auto& b, Value x) { return b.linear(x, {.features = 9, .tied = true}); }),
          "this linear cannot be run: its weight is tied");
  refused(layer({4, 6}, [](auto& b, Value x) { return b.learned(x, 2); }), "2 rows for 4 positions");
  refused(layer({4, 6},
                [](auto& b, Value x) {
                  return b.add(b.slice(x, {4, 3}), b.slice(x, {4, 3}));
                }),
          "several parts are cut out of one tensor");
  const auto with = [](const std::function<void(AttentionCore&)>& change) {
    AttentionCore core = small_core();
    change(core);
    return layer({4, 18}, [&](auto& b, Value x) { return b.attention({x}, core); });
  };
  CHECK(refusal(with([](AttentionCore&) {})).empty());
  refused(with([](AttentionCore& core) { core.dropout = true; }), "dropout of the scores");
  refused(with([](AttentionCore& core) { core.bias = true; }), "a bias on the scores");
  refused(with([](AttentionCore& core) { core.soft_cap = true; }), "a soft cap");
  refused(with([](AttentionCore& core) { core.window = 2; }), "a sliding window");
  refused(with([](AttentionCore& core) { core.value_size = 2; }), "its inputs are not [q | k | v]");
}
