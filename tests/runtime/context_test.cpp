// Sequences that copies share: attention over keys and values that go round a ring is that over whole sequences, in
// kernels to rounding, in runs to the bit of one worker who computes the parts in turn.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/check.hpp"
#include "core/model/each_device.hpp"
#include "runtime/backends/cpu.hpp"
#include "runtime/context_part.hpp"
#include "tests/runtime/rank_processes.hpp"
#include "tests/runtime/run_case.hpp"
#include "tests/runtime/sequential_steps.hpp"
#include "tests/runtime/step_runner.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

using Keys = std::vector<std::string>;

std::vector<std::int64_t> tokens_of(const ContextPart& part, std::int64_t tokens) {
  std::vector<std::int64_t> list;
  for (const TokenRange& range : ranges(part, tokens)) {
    CHECK(range.here == static_cast<std::int64_t>(list.size()));
    for (std::int64_t t = 0; t < range.count; ++t)
      list.push_back(range.in_sequence + t);
  }
  return list;
}

// Attention of one, two or three inputs, as in tests/runtime/step_table.cpp.
Program attention(int inputs, const AttentionCore& core) {
  const std::int64_t q = core.heads * core.key_size, k = core.key_heads * core.key_size,
                     v = core.key_heads * core.value_size;
  LayerBuilder b;
  if (inputs == 1) return program_of(b, {b.attention({b.input({core.queries, q + k + v})}, core)});
  const LayerBuilder::Value queries = b.input({core.queries, q});
  if (inputs == 2) return program_of(b, {b.attention({queries, b.input({core.keys, k + v})}, core)});
  const LayerBuilder::Value keys = b.input({core.keys, k});
  return program_of(b, {b.attention({queries, keys, b.input({core.keys, v})}, core)});
}

Model model_of(Program program) {
  Model model;
  model.works.emplace_back();
  model.works[0].program = SharedProgram(std::move(program));
  model.layers.emplace_back();
  model.layers[0].work = 0;
  return model;
}

// Rows of a part of each sample, out of whole samples, or back into them.
void move_rows(const ContextPart& part, std::int64_t samples, std::int64_t tokens, Block<double>& whole,
               Block<double>& of_part, bool back = false) {
  const std::int64_t width = whole.size() / (samples * tokens * part.of);
  for (std::int64_t s = 0; s < samples; ++s)
    for (const TokenRange& range : ranges(part, tokens))
      for (std::int64_t i = 0; i < range.count * width; ++i) {
        double& in_whole = whole[(s * tokens * part.of + range.in_sequence) * width + i];
        double& in_part = of_part[(s * tokens + range.here) * width + i];
        (back ? in_whole : in_part) = back ? in_part : in_whole;
      }
}

double farthest(const Block<double>& a, const Block<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::int64_t i = 0; i < a.size(); ++i)
    most = std::isnan(a[i]) ? INFINITY : std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// One part's tensors and arguments.
struct PartOfStep {
  std::vector<Block<double>> x, dx;
  Block<double> y, dy, saved, workspace, keys, gradients;
  std::vector<const void*> inputs;
  std::vector<void*> input_gradients;
  StepArguments arguments;
};

// Largest difference of outputs and of gradients between whole sequences and shared ones.
std::array<double, 2> differences(int inputs, const AttentionCore& core, int parts, bool zigzag) {
  constexpr std::int64_t kSamples = 2;
  StepRunner<double> whole(cpu_backend_in_double(), attention(inputs, core), kSamples);
  whole.forward(), whole.input_gradient();
  const Model each = of_parts(model_of(whole.program()), parts);
  const Program& program = *each.works[0].program.get();
  const ProgramStep& step = program.steps.back();
  const std::int64_t tokens = core.queries / parts;
  Backend& backend = whole.backend();
  std::vector<PartOfStep> all(static_cast<std::size_t>(parts));
  for (int p = 0; p < parts; ++p) {
    PartOfStep& one = all[static_cast<std::size_t>(p)];
    const ContextPart part{p, parts, zigzag};
    for (Block<double>& x : whole.x) {
      one.x.emplace_back(x.size() / parts), one.dx.emplace_back(x.size() / parts);
      move_rows(part, kSamples, tokens, x, one.x.back());
    }
    one.y = Block<double>(whole.y.size() / parts), one.dy = Block<double>(whole.y.size() / parts);
    move_rows(part, kSamples, tokens, whole.dy, one.dy);
    one.saved = Block<double>(kSamples * core.heads * tokens);
    std::int64_t most = 0;
    for (const Pass pass : {Pass::Forward, Pass::InputGradient})
      most = std::max(most, backend.workspace(program, step, kSamples, pass).value);
    one.workspace = Block<double>(most / 8);
    const std::int64_t keys = kSamples * tokens * core.key_heads * (core.key_size + core.value_size);
    one.keys = Block<double>(keys), one.gradients = Block<double>(keys);
    for (std::size_t i = 0; i < one.x.size(); ++i)
      one.inputs.push_back(one.x[i].data()), one.input_gradients.push_back(one.dx[i].data());
    StepArguments& a = one.arguments;
    a.program = &program, a.step = &step, a.samples = kSamples, a.part = part;
    a.inputs = one.inputs, a.input_gradients = one.input_gradients, a.output = one.y.data();
    a.output_gradient = one.dy.data(), a.saved = one.saved.data(), a.workspace = one.workspace.data();
    backend.keys_of_part(a, one.keys.data());
  }
  for (PartOfStep& one : all) {
    backend.attend_begin(one.arguments);
    for (int hop = 0; hop < parts; ++hop) {
      const int from = (one.arguments.part.number - hop + parts) % parts;
      backend.attend(one.arguments, from, all[static_cast<std::size_t>(from)].keys.data());
    }
  }
  for (PartOfStep& one : all)
    backend.gradients_begin(one.arguments, one.gradients.data());
  for (PartOfStep& one : all)
    for (int from = 0; from < parts; ++from) {
      PartOfStep& other = all[static_cast<std::size_t>(from)];
      backend.attend_gradient(one.arguments, from, other.keys.data(), other.gradients.data());
    }
  Block<double> y(whole.y.size());
  double off = 0;
  for (PartOfStep& one : all) {
    backend.gradients_end(one.arguments, one.gradients.data());
    move_rows(one.arguments.part, kSamples, tokens, y, one.y, true);
    CHECK((one.workspace.intact() && one.keys.intact() && one.gradients.intact() && one.saved.intact()));
  }
  for (std::size_t i = 0; i < whole.x.size(); ++i) {
    Block<double> dx(whole.x[i].size());
    for (PartOfStep& one : all)
      move_rows(one.arguments.part, kSamples, tokens, dx, one.dx[i], true);
    off = std::max(off, farthest(dx, whole.dx[i]));
  }
  return {farthest(y, whole.y), off};
}

// Two blocks of width 16, two heads, 16 tokens.
RunCase shared(Keys changes) {
  const Keys first = {
      "model={name: shared, input_tokens: 16, layers: [{name: embed, ops: [{op: embedding, vocabulary: 16, features: "
      "16}, {op: learned_positions}]}, {name: block, repeat: 2, ops: [{op: layer_norm}, {op: linear, features: 48}, "
      "{op: attention, heads: 2, causal: yes, kernel: flash}, {op: linear, features: 16, as: attended}, {op: add, "
      "from: "
      "[input, attended]}]}, {name: head, ops: [{op: rms_norm}, {op: linear, features: 16}]}, {name: loss, op: "
      "cross_entropy}]}",
      "cluster.node.devices=16", "training.micro_batches=3", "plan.schedule=1f1b"};
  changes.insert(changes.begin(), first.begin(), first.end());
  return RunCase(changes);
}

std::string refusal(const Keys& changes) {
  return message_of([&] { shared(changes); });
}

}  // namespace

TEST_CASE("Shared sequences, tokens: eight on two devices are {0, 1, 6, 7} and {2, 3, 4, 5}, or halves") {
  using List = std::vector<std::int64_t>;
  CHECK(tokens_of({0, 2, true}, 4) == List{0, 1, 6, 7});
  CHECK(tokens_of({1, 2, true}, 4) == List{2, 3, 4, 5});
  CHECK(tokens_of({0, 2, false}, 4) == List{0, 1, 2, 3});
  CHECK(tokens_of({1, 2, false}, 4) == List{4, 5, 6, 7});
  for (const bool zigzag : {false, true})
    for (const int parts : {1, 2, 3, 5}) {
      List all;
      for (int p = 0; p < parts; ++p)
        for (const std::int64_t token : tokens_of({p, parts, zigzag}, 6))
          all.push_back(token);
      std::sort(all.begin(), all.end());
      for (std::size_t t = 0; t < all.size(); ++t)
        CHECK(all[t] == static_cast<std::int64_t>(t));
      CHECK(std::ssize(all) == 6 * parts);
    }
}

TEST_CASE("Shared sequences, programs: each tensor has the rows of a part, and attention as many keys") {
  LayerBuilder b;
  const auto x = b.linear(b.input({64, 8}), {.features = 24});
  const Model each = of_parts(model_of(program_of(b, {b.attention({x}, {2, 2, 4, 4, 64, 64, true, 0, true})})), 2);
  const Program& program = *each.works[0].program.get();
  for (const ProgramTensor& tensor : program.tensors)
    CHECK(tensor.shape[0] == 32);
  const auto& core = std::get<AttentionCore>(program.steps[1].spec);
  CHECK((core.queries == 32 && core.keys == 32 && core.parts == 2));
}

TEST_CASE("Attention to one part of the keys after the other is attention to all of them") {
  const std::vector<AttentionCore> cores = {{2, 2, 3, 3, 12, 12, true, 0, true},
                                            {4, 2, 3, 2, 12, 12, true, 0, true},
                                            {3, 3, 2, 4, 12, 12, false, 0, true},
                                            {1, 1, 2, 1, 300, 300, true, 0, true}};  // several blocks of queries
  for (const AttentionCore& core : cores)
    for (const int inputs : {1, 2, 3})
      for (const int parts : {2, 3})
        for (const bool zigzag : {false, true}) {
          CAPTURE(core.queries);
          CAPTURE(inputs);
          CAPTURE(parts);
          CAPTURE(zigzag);
          const auto [y, dx] = differences(inputs, core, parts, zigzag);
          CHECK(y < 1e-13);
          CHECK(dx < 1e-13);
        }
}

TEST_CASE("A run of shared sequences has the bits of one worker who computes their parts in turn") {
  for (const int parts : {2, 4})
    for (const std::string split : {"zigzag", "contiguous"})
      for (const int stages : {1, 2})
        check_bits_of_one_worker(
            shared({set("plan.context_parallel", parts), "plan.context_split=" + split, set("plan.stages", stages)}),
            Wait::Block);
  for (const std::string recompute : {"none", "full"})
    for (const int copies : {1, 2})
      check_bits_of_one_worker(shared({"plan.context_parallel=2", "plan.stages=2", set("plan.data_parallel", copies),
                                       "plan.recompute=" + recompute, "plan.bucket=1 KiB"}),
                               Wait::Block);
  check_bits_of_one_worker(
      shared({"plan.context_parallel=2", "training.global_batch_size=5", "training.micro_batches=null",
              "training.micro_batch_size=2", "training.ragged=true"}),
      Wait::Block);
  for (const std::string schedule : {"gpipe", "zb_h1", "zbv", "dualpipe", "interleaved_1f1b"}) {
    Keys changes = {"plan.context_parallel=2", "plan.stages=2", "plan.schedule=" + schedule,
                    "training.micro_batches=4"};
    if (schedule == "interleaved_1f1b" || schedule == "zbv") changes.push_back("plan.virtual_stages=2");
    check_bits_of_one_worker(shared(changes), Wait::Block);
  }
  for (const Wait wait : {Wait::Spin, Wait::BlockThrottled})
    check_bits_of_one_worker(shared({"plan.context_parallel=3", "model.input_tokens=18", "plan.stages=2"}), wait);
}

TEST_CASE("Its loss and gradients are those of whole sequences, but for the order of sums") {
  const RunCase whole = shared({"plan.stages=1"});
  const auto expected = whole.run(settings_of(whole, 1));
  const RunCase two =
      shared({"plan.stages=2", "plan.context_parallel=2", "plan.schedule=zb_h1", "plan.recompute=full"});
  const auto in_two = two.run(settings_of(two, 1));
  std::vector<float> gradients = gradients_of(in_two, 0);
  gradients.insert(gradients.end(), gradients_of(in_two, 1).begin(), gradients_of(in_two, 1).end());
  CHECK(relative_distance(gradients, gradients_of(expected, 0)) < 1e-6);
  for (const int parts : {2, 4})
    for (const std::string split : {"zigzag", "contiguous"}) {
      CAPTURE(parts);
      CAPTURE(split);
      const RunCase run = shared({"plan.stages=1", set("plan.context_parallel", parts), "plan.context_split=" + split});
      const auto workers = run.run(settings_of(run, 1));
      CHECK(loss_of(workers, 0) == doctest::Approx(loss_of(expected, 0)).epsilon(1e-6));
      CHECK(relative_distance(gradients_of(workers, 0), gradients_of(expected, 0)) < 1e-6);
    }
}

TEST_CASE("Weights after several steps, with divided states and without a flush") {
  for (const int zero : {0, 1, 2, 3}) {
    CAPTURE(zero);
    const RunCase run = shared({"plan.context_parallel=2", "plan.data_parallel=2", "plan.stages=1",
                                "training.optimizer=adam", set("training.zero", zero)});
    const auto workers = run.run(settings_of(run, 3));
    const auto weights = sequential_weights(run.run_plan, cpu_backend, *run.data, settings_of(run, 3), 3);
    for (const WorkerResult& worker : workers)
      CHECK((worker.weights[0] == weights[0]));
  }
  for (const std::string schedule : {"pipedream", "pipedream_2bw"}) {
    CAPTURE(schedule);
    const RunCase run =
        shared({"plan.context_parallel=2", "plan.stages=2", "plan.schedule=" + schedule, "training.micro_batches=4"});
    const auto workers = run.run(settings_of(run, 3));
    const auto weights = sequential_weights(run.run_plan, cpu_backend, *run.data, settings_of(run, 3), 3);
    for (std::size_t w = 0; w < workers.size(); ++w)
      CHECK((workers[w].weights[w % 2] == weights[w % 2]));
  }
}

TEST_CASE("Processes over tcp give the bits of threads") {
  const RunCase run = shared({"plan.context_parallel=2", "plan.stages=2"});
  check_processes(run, settings_of(run, 3), run.run(settings_of(run, 3)));
}

TEST_CASE("A run has rings only, of layers that compute row by row") {
  CHECK(refusal({"plan.context_parallel=2", "plan.context_exchange=all_gather"})
            .find("plan.context_exchange: a run sends keys and values round a ring; write ring, or leave it out") !=
        std::string::npos);
  const Keys pooled = {
      "model={name: pooled, input_tokens: 16, layers: [{name: embed, op: embedding, vocabulary: 16, features: 16}, "
      "{name: attention, ops: [{op: linear, features: 48}, {op: attention, heads: 2, causal: yes, kernel: flash}]}, "
      "{name: flat, op: flatten}, {name: head, op: linear, features: 4}, {name: loss, op: cross_entropy}]}",
      "plan.context_parallel=2"};
  CHECK(refusal(pooled).find("layer \"flat\" cannot be run with a shared sequence: a tensor of 256 does not have a row "
                             "for each of 16 tokens; use context_parallel: 1") != std::string::npos);
}
