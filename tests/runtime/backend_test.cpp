#include "runtime/backend.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <variant>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/check.hpp"
#include "runtime/backends/cpu.hpp"
#include "runtime/backends/cpu_kernels.hpp"
#include "tests/runtime/step_runner.hpp"
#include "tests/runtime/step_table.hpp"
#include "tests/support/children.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

using Value = LayerBuilder::Value;

// Whether `act` ends the process by abort(), as a failed PP_CHECK does; tried in a child.
bool aborts(const std::function<void()>& act) {
  const int status = forked([&] {
                       std::signal(SIGABRT, SIG_DFL);
                       dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
                       act();
                       return 0;
                     }).status();
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

Program relu(Shape shape) {
  LayerBuilder builder;
  const Value x = builder.input(shape);
  return program_of(builder, {builder.activation(x, Activation::Relu)});
}

}  // namespace

TEST_CASE("A block that does not begin on a 64-byte boundary is refused: sums could depend on its address") {
  const Program program = relu({4});
  const Block<float> x(32), y(32);
  const auto run = [&](const float* from, float* to) {
    const void* const inputs[] = {from};
    cpu_backend()->forward(
        {.program = &program, .step = &program.steps[0], .samples = 1, .inputs = inputs, .output = to});
  };
  CHECK_FALSE(aborts([&] { run(x.data(), y.data()); }));
  CHECK(aborts([&] { run(x.data() + 1, y.data()); }));
  CHECK(aborts([&] { run(x.data(), y.data() + 8); }));
  CHECK_FALSE(aborts([&] { run(x.data() + 16, y.data() + 16); }));
}

// No model has such a layer: the first queries would see no key.
TEST_CASE("Causal attention with fewer keys than queries ends the program, one with as many does not") {
  LayerBuilder builder;
  const Value in = builder.input({4, 24});
  Program program = program_of(
      builder,
      {builder.attention(
          {in},
          {.heads = 2, .key_heads = 2, .key_size = 4, .value_size = 4, .queries = 4, .keys = 4, .causal = true})});
  const Block<float> x(4 * 24), y(4 * 8), saved(2 * 4 * 4 + 64), workspace(2 * 4 * 4 + 64);
  std::fill(x.begin(), x.begin() + x.size(), 0.5F);
  const auto run = [&](std::int64_t keys, bool causal) {
    auto& core = std::get<AttentionCore>(program.steps[0].spec);
    core.keys = keys, core.causal = causal;
    const void* const inputs[] = {x.data()};
    cpu_backend()->forward({.program = &program,
                            .step = &program.steps[0],
                            .samples = 1,
                            .inputs = inputs,
                            .output = y.data(),
                            .saved = saved.data(),
                            .workspace = workspace.data()});
  };
  CHECK_FALSE(aborts([&] { run(4, true); }));
  CHECK_FALSE(aborts([&] { run(3, false); }));  // every query sees three keys
  CHECK(aborts([&] { run(3, true); }));
  // Where a layer is described it is told in words.
  LayerBuilder other;
  const Value q = other.input({4, 8}), kv = other.input({3, 16});
  const AttentionCore fewer = {
      .heads = 2, .key_heads = 2, .key_size = 4, .value_size = 4, .queries = 4, .keys = 3, .causal = true};
  CHECK_THROWS_WITH_AS(other.attention({q, kv}, fewer), "causal attention needs as many keys as queries", InputError);
}

TEST_CASE("Whichever tensor a layer is handed, one that is shifted by four bytes is refused, in every pass") {
  LayerBuilder builder;
  const Value in = builder.input({4});
  const Program program = program_of(builder, {builder.linear(in, {.features = 3})});
  // x, y, dy, dx, w, b, dw, db, saved, workspace
  std::vector<Block<float>> blocks;
  for (int i = 0; i < 10; ++i)
    blocks.emplace_back(32);
  const auto run = [&](Pass pass, std::size_t shifted) {
    std::vector<float*> at;
    for (std::size_t i = 0; i < blocks.size(); ++i)
      at.push_back(blocks[i].data() + (i == shifted ? 1 : 0));
    const void* const inputs[] = {at[0]};
    void* const input_gradients[] = {at[3]};
    const void* const parameters[] = {at[4], at[5]};
    float* const parameter_gradients[] = {at[6], at[7]};
    const StepArguments arguments = {.program = &program,
                                     .step = &program.steps[0],
                                     .samples = 1,
                                     .inputs = inputs,
                                     .output = at[1],
                                     .output_gradient = at[2],
                                     .input_gradients = input_gradients,
                                     .parameters = parameters,
                                     .parameter_gradients = parameter_gradients,
                                     .saved = at[8],
                                     .workspace = at[9]};
    const auto backend = cpu_backend();
    if (pass == Pass::Forward) backend->forward(arguments);
    if (pass == Pass::InputGradient) backend->input_gradient(arguments);
    if (pass == Pass::WeightGradient) backend->weight_gradient(arguments);
  };
  for (const Pass pass : {Pass::Forward, Pass::InputGradient, Pass::WeightGradient})
    for (std::size_t shifted = 0; shifted <= blocks.size(); ++shifted) {
      CAPTURE(static_cast<int>(pass));
      CAPTURE(shifted);
      CHECK(aborts([&] { run(pass, shifted); }) == (shifted < blocks.size()));
    }
}

TEST_CASE("Blocks of the optimizer and of sums are refused likewise") {
  const Block<float> w(32), g(32), v(32);
  const OptimizerSettings momentum = {.kind = Optimizer::Momentum};
  const auto run = [&](float* weight, const float* gradient, float* state) {
    const UpdatedParameter one = {8, weight, weight, gradient, {state}};
    cpu_backend()->update(momentum, 1, {&one, 1});
  };
  CHECK_FALSE(aborts([&] { run(w.data(), g.data(), v.data()); }));
  CHECK(aborts([&] { run(w.data() + 1, g.data(), v.data()); }));
  CHECK(aborts([&] { run(w.data(), g.data() + 1, v.data()); }));
  CHECK(aborts([&] { run(w.data(), g.data(), v.data() + 1); }));
  CHECK(aborts([&] { cpu_backend()->add(w.data(), g.data() + 4, 8); }));
  CHECK(cpu_backend()->alignment() == Bytes{64});
}

TEST_CASE("The backend says what it was compiled for") {
  CHECK(cpu_backend()->name() == std::string("cpu (") + cpu_kernels::isa() + ")");
}

TEST_CASE("The backend has every operation of the table") {
  for (const StepCase& step : step_cases()) {
    CAPTURE(step.name);
    CHECK(cpu_backend()->refusal(step.program, step.program.steps.back()).empty());
  }
}

TEST_CASE("Token numbers and labels beyond their tables are bad input") {
  LayerBuilder words;
  const Value looked_up = words.embedding(words.tokens(2), 7, 3);
  StepRunner<float> embedding(cpu_backend(), program_of(words, {looked_up}), 1);
  embedding.tokens[1] = 7;
  CHECK_THROWS_WITH_AS(embedding.forward(),
                       "token number 7 of the data is not in [0, 7); use a model with more, or other data", InputError);
  LayerBuilder classes;
  const Value loss = classes.cross_entropy(classes.input({5}));
  StepRunner<float> cross_entropy(cpu_backend(), program_of(classes, {loss}), 1);
  cross_entropy.labels[0] = -1;
  CHECK_THROWS_WITH_AS(cross_entropy.forward(),
                       "label -1 of the data is not in [0, 5); use a model with more, or other data", InputError);
}

TEST_CASE("Gradients that nobody asks for are not written") {
  LayerBuilder builder;
  const Value a = builder.input({3}), b = builder.input({3});
  const Program program = program_of(builder, {builder.multiply(a, b)});
  const Block<float> x(3), y(3), dy(3), db(3);
  Random random(1);
  random.fill(x), random.fill(y), random.fill(dy);
  const void* const inputs[] = {x.data(), y.data()};
  void* const gradients[] = {nullptr, db.data()};
  cpu_backend()->input_gradient({.program = &program,
                                 .step = &program.steps[0],
                                 .samples = 1,
                                 .inputs = inputs,
                                 .output_gradient = dy.data(),
                                 .input_gradients = gradients});
  for (std::int64_t i = 0; i < 3; ++i)
    CHECK(db[i] == dy[i] * x[i]);
}

TEST_CASE("Workspace: the unfolded image of a convolution, nothing where the image is that already") {
  const auto bytes = [](Conv2d conv, Pass pass) {
    LayerBuilder builder;
    const Value x = builder.input({4, 6, 6});
    const Program program = program_of(builder, {builder.conv2d(x, conv)});
    return cpu_backend()->workspace(program, program.steps[0], 8, pass).value;
  };
  // 4 channels / 2 groups * 3 * 3 taps for each of 4 * 4 places
  CHECK(bytes({.channels = 2, .kernel_height = 3, .kernel_width = 3, .groups = 2}, Pass::Forward) == 2 * 9 * 16 * 4);
  CHECK(bytes({.channels = 2}, Pass::Forward) == 0);
  CHECK(bytes({.channels = 2, .stride = 2}, Pass::WeightGradient) == 4 * 9 * 4);
}
