// Keys of devices, training and plans that price models built from operators.
#include <doctest/doctest.h>

#include "core/question/memory_anchor.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

const char* const kGpt = "{family: gpt, layers: 4, hidden: 64, heads: 4, vocabulary: 128, sequence_length: 16}";

std::string device_with(const std::string& efficiency) {
  return "{node: {devices: 8, device: {memory: 16 GiB, reserve: 1 GiB, allocator: caching, fragmentation: 0.05, "
         "memory_bandwidth: 100 GB/s, peak: {bf16: 10 TFLOP/s}, efficiency: " +
         efficiency + "}}}";
}

ScenarioText tensor_parallel(const std::string& plan =
                                 "{stages: 2, tensor_parallel: 2, sequence_parallel: true, "
                                 "recompute: [selective, full], reserve_pipeline: "
                                 "{value: 740 MiB, source: \"fitted on Pipeline-1\"}}") {
  return {.model = kGpt,
          .cluster = device_with("{matrix_product: {share: 0.5, band: 0.3, provenance: assumed, source: a guess}, "
                                 "memory: {curve: [[1e6, 0.2], [1e9, 0.8]], provenance: measured, source: a run}}"),
          .training =
              "{micro_batch_size: 1, micro_batches: 4, precision: bf16, optimizer: adam, zero: 1, "
              "gradient_precision: fp32}",
          .plan = plan};
}

}  // namespace

TEST_CASE("Plan, training and device say how operators are shared and priced") {
  const Scenario scenario = read_text(tensor_parallel());
  CHECK(scenario.plan.tensor_parallel.value == 2);
  CHECK(scenario.plan.sequence_parallel.value);
  CHECK(scenario.plan.recompute.value == std::vector<Recompute>{Recompute::Selective, Recompute::Full});
  CHECK(scenario.plan.reserve_pipeline == Bytes{std::int64_t{740} << 20});
  CHECK(scenario.plan.reserve_pipeline_source == "fitted on Pipeline-1");
  CHECK(scenario.training.zero == 1);
  CHECK(scenario.training.gradient_precision == Precision::Fp32);
  const Device& device = scenario.cluster.device;
  CHECK(device.allocator == Allocator::Caching);
  CHECK(device.fragmentation == 0.05);
  const auto& products = device.efficiency[static_cast<std::size_t>(OperatorKind::MatrixProduct)];
  REQUIRE(products.has_value());
  CHECK(products->at(1e12) == 0.5);
  CHECK(products->band == 0.3);
  CHECK(products->provenance == Provenance::Assumed);
  CHECK(products->source == "a guess");
  const auto& memory = device.efficiency[static_cast<std::size_t>(OperatorKind::Memory)];
  REQUIRE(memory.has_value());
  CHECK(memory->at(1e6) == 0.2);
  CHECK(memory->at(1e9) == 0.8);
  CHECK_FALSE(device.efficiency[static_cast<std::size_t>(OperatorKind::Attention)].has_value());
}

TEST_CASE("What collectives and computing take from one another is read, written and kept within its device") {
  ScenarioText text = tensor_parallel();
  const auto with = [&](const std::string& contention, const std::string& multiprocessors) {
    text.cluster =
        "{node: {devices: 8, device: {memory: 16 GiB, memory_bandwidth: 100 GB/s, peak: {bf16: 10 TFLOP/s}, " +
        multiprocessors + "contention: " + contention + "}}}";
    return text;
  };
  const Scenario scenario =
      read_text(with("{multiprocessors: 20, memory: 1.15, collective: 1.1}", "multiprocessors: 132, "));
  const KernelContention& contention = scenario.cluster.device.contention;
  CHECK(contention.multiprocessors == 20);
  CHECK(contention.memory == 1.15);
  CHECK(contention.collective == 1.1);
  const std::string written = resolved_yaml(scenario);
  CHECK(written.find("contention:") != std::string::npos);
  CHECK(resolved_yaml(read_text(tensor_parallel())).find("contention") == std::string::npos);
  CHECK(message_of([&] {
          read_text(with("{multiprocessors: 20}", ""));
        }).find("needs the multiprocessors of the device") != std::string::npos);
  CHECK(message_of([&] {
          read_text(with("{multiprocessors: 132}", "multiprocessors: 132, "));
        }).find("must be below the 132 multiprocessors of the device") != std::string::npos);
  CHECK(message_of([&] {
          read_text(with("{memory: 0.9}", ""));
        }).find("must be at least 1, which means none, at most 1000") != std::string::npos);
}

TEST_CASE("How a host runs layers is read, and written where it is not what holds without it") {
  ScenarioText text = tensor_parallel();
  text.training = "{micro_batch_size: 1, micro_batches: 4, precision: bf16, execution: graphs}";
  text.cluster =
      "{node: {devices: 8, device: {memory: 16 GiB, memory_bandwidth: 100 GB/s, peak: {bf16: 10 TFLOP/s}, host: "
      "{operator: 84 us, blocking: passes, compiled: 6 us, graph_node: 2 us}}}}";
  const Scenario scenario = read_text(text);
  const HostTimes& host = scenario.cluster.device.host;
  CHECK(scenario.training.execution == Execution::Graphs);
  CHECK(host.blocking == Blocking::Passes);
  CHECK(host.compiled == Time{6'000});
  CHECK(host.graph_node == Time{2'000});
  CHECK(read_text(tensor_parallel()).training.execution == Execution::Eager);
  const std::string written = resolved_yaml(scenario);
  CHECK(written.find("execution: graphs") != std::string::npos);
  CHECK(written.find("blocking: passes") != std::string::npos);
  CHECK(resolved_yaml(read_text(tensor_parallel())).find("execution") == std::string::npos);
}

TEST_CASE("What a framework holds is read, and written as it was read") {
  ScenarioText text = tensor_parallel();
  text.training =
      "{micro_batch_size: 1, micro_batches: 4, precision: bf16, framework: {name: megatron_local, gradient_buffer: "
      "copied, "
      "weight_gradients: fused_kept, logit_bytes: 10, first_logit_bytes: 20, vocabulary_multiple: 64, workspace: 64 "
      "MiB, "
      "bytes_per_parameter: 2 B, attention_mask: false, attention_copy: true, fp32_softmax: true, gathered_inputs: "
      "true, "
      "copied_inputs: true, gate_kept: true, end_communicators: 2}}";
  const Scenario scenario = read_text(text);
  const FrameworkMemory read = scenario.training.framework;
  CHECK(read == FrameworkMemory{.tensors = FrameworkTensors::MegatronLocal,
                                .gradient_buffer = GradientBuffer::Copied,
                                .weight_gradients = WeightGradients::FusedKept,
                                .logit_bytes = 10,
                                .first_logit_bytes = 20,
                                .vocabulary_multiple = 64,
                                .workspace = Bytes{std::int64_t{64} << 20},
                                .bytes_per_parameter = Bytes{2},
                                .attention_mask = false,
                                .attention_copy = true,
                                .fp32_softmax = true,
                                .gathered_inputs = true,
                                .copied_inputs = true,
                                .gate_kept = true,
                                .end_communicators = 2});
  CHECK_FALSE(read.reduces_in_place());
  CHECK(FrameworkMemory{.tensors = FrameworkTensors::Megatron}.reduces_in_place());
  CHECK_FALSE(FrameworkMemory{}.reduces_in_place());
  const Scratch scratch;
  const Scenario again = read_scenario(scratch.write("again.yaml", resolved_yaml(scenario)));
  CHECK(again.training.framework == read);
}

TEST_CASE("A measured run is read with its own scenario, and written with what it has differently from that file") {
  ScenarioText text = tensor_parallel();
  text.training =
      "{micro_batch_size: 1, micro_batches: 4, precision: bf16, framework: {communicators: 6, anchor: {set: "
      "{training.micro_batches: 2, plan.stages: 1, plan.recompute: none}, where: last, held: 1 MiB, allocated: 2 MiB, "
      "reserved: 3 MiB, in_use: 4 MiB, source: a run}}}";
  const Scenario scenario = read_text(text, {.set = {"training.micro_batch_size=3"}, .config_path = {}});
  const auto check = [&](const Scenario& read) {
    CHECK(read.training.framework.communicators == 6);
    const MemoryAnchor& anchor = *read.training.framework.anchor;
    CHECK(anchor.where == std::pair{Where::Last, std::int64_t{0}});
    CHECK(anchor.held == Bytes{1 << 20});
    CHECK(anchor.allocated == Bytes{2 << 20});
    CHECK(anchor.reserved == Bytes{3 << 20});
    CHECK(anchor.in_use == Bytes{4 << 20});
    CHECK(anchor.source == "a run");
    CHECK(anchor.run->training.micro_batches->value == 2);
    CHECK(anchor.run->training.micro_batch_size->value == 1);  // --set is not what ran
    CHECK(anchor.run->plan.stages.value == 1);
    CHECK(anchor.run->plan.recompute.value == std::vector{Recompute::None});
    CHECK(anchor.run->plan.tensor_parallel.value == 2);
    CHECK(anchor.run->model.layers.size() == scenario.model.layers.size());
    CHECK(anchor.run->training.framework.anchor == nullptr);
  };
  check(scenario);
  CHECK(scenario.training.micro_batch_size->value == 3);
  CHECK(scenario.training.framework.anchor->set.size() == 3);
  const Scratch scratch;
  const std::string once = resolved_yaml(scenario);
  CHECK(once.find("training.micro_batch_size: 1") != std::string::npos);
  CHECK(once.find("model.") == std::string::npos);  // the same
  const Scenario again = read_scenario(scratch.write("again.yaml", once));
  CHECK(again.training.micro_batch_size->value == 3);
  check(again);
  CHECK(again.training.framework.anchor->set.size() == 4);
}

TEST_CASE("The run of an anchor has no anchor of its own") {
  for (const char* set : {"training.framework.anchor: {allocated: 1 MiB}", "training.framework.anchor.held: 1 MiB",
                          "training.framework: {anchor: {allocated: 1 MiB}}",
                          "training: {micro_batch_size: 1, framework: {anchor: {allocated: 1 MiB}}}"}) {
    ScenarioText text = tensor_parallel();
    text.training = "{micro_batch_size: 1, micro_batches: 4, framework: {anchor: {allocated: 2 MiB, set: {" +
                    std::string(set) + "}}}}";
    CHECK_MESSAGE(
        error_in(text).find("the run of an anchor has no anchor of its own; remove training") != std::string::npos,
        error_in(text));
  }
}

TEST_CASE("The layers of a family are settled for the precision and the split of the plan") {
  const Scenario alone = read_text(tensor_parallel("{stages: 2}")), shared = read_text(tensor_parallel());
  const auto block = [](const Scenario& scenario) { return scenario.model.layers[2]; };
  CHECK(block(alone).parameters == block(shared).parameters);
  CHECK(block(alone).held() == block(alone).parameters);
  CHECK(block(shared).held() < block(alone).held());
  CHECK(block(alone).activation == Bytes{16 * 64 * 2});
  CHECK(block(shared).activation == Bytes{16 * 64 * 2 / 2});  // divided along the sequence
}

TEST_CASE("A resolved scenario with these keys reads back to the same") {
  const Scratch scratch;
  const Scenario scenario = read_scenario(scratch.write("x.yaml", tensor_parallel().text()));
  const std::string once = resolved_yaml(scenario);
  for (const char* key : {"tensor_parallel: 2", "sequence_parallel: true", "recompute: [selective, full]", "zero: 1",
                          "gradient_precision: fp32", "allocator: caching", "fitted on Pipeline-1"})
    CHECK_MESSAGE(once.find(key) != std::string::npos, key);
  const Scenario again = read_scenario(scratch.write("y.yaml", once));
  CHECK(again.plan.reserve_pipeline == scenario.plan.reserve_pipeline);
  for (std::size_t kind = 0; kind < kOperatorKinds; ++kind) {
    const auto& before = scenario.cluster.device.efficiency[kind];
    const auto& after = again.cluster.device.efficiency[kind];
    REQUIRE(before.has_value() == after.has_value());
    if (!before) continue;
    CHECK(before->curve == after->curve);
    CHECK(before->band == after->band);
    CHECK(before->provenance == after->provenance);
    CHECK(before->source == after->source);
  }
}

TEST_CASE("An efficiency is one share or one growing curve, and says how it is known") {
  const auto refusal = [](const std::string& efficiency) {
    ScenarioText text = tensor_parallel();
    text.cluster = device_with(efficiency);
    return error_in(text);
  };
  const auto names = [&](const std::string& efficiency, const std::string& part) {
    const std::string message = refusal(efficiency);
    CHECK_MESSAGE(message.find(part) != std::string::npos, message);
  };
  const std::string known = "provenance: assumed, source: x";
  names("{matrix_product: {share: 0.5, source: x}}", "provenance is missing");
  names("{matrix_product: {share: 0.5, provenance: guessed, source: x}}", "assumed, published, measured");
  names("{matrix_product: {" + known + "}}", "give one of share and curve");
  names("{matrix_product: {share: 0.5, curve: [[1e9, 0.5]], " + known + "}}", "give one of share and curve");
  names("{matrix_product: {share: 1.5, " + known + "}}", "at most 1");
  names("{matrix_product: {share: 0.5, band: 0.96, " + known + "}}", "must be at least 0, at most 0.95");
  names("{matrix_product: {curve: [[1e9, 0.5], [1e8, 0.6]], " + known + "}}", "does not grow");
  names("{matrix_product: {curve: [[1e9]], " + known + "}}", "write e.g. [1e9, 0.4]");
  names("{matmul: {share: 0.5, " + known + "}}", "matrix_product");
  const std::string tiles = "tiles: {share: 0.8, fill: 0, launch: 5, operands: 0.5}, ";
  names("{recurrent: {share: 0.5, " + tiles + known + "}}", "tiles are of products and convolution");
  names("{convolution: {" + tiles + known + "}}", "give one of share and curve");
  names("{convolution: {share: 0.5, " + tiles + known + "}}", "needs multiprocessors");
  names("{matrix_product: {share: 0.5, " + known + "}}, messages: {start: 1, small: 1, middle: 1, large: 1, band: 1, " +
            known + "}, host: {band: 1}",
        "messages.band: \"1\" must be at least 0, at most 0.95");
}

TEST_CASE("What is not modelled, or cannot be divided, is refused with a way out") {
  ScenarioText text = tensor_parallel();
  text.training = "{micro_batch_size: 1, micro_batches: 4, precision: bf16, zero: 4}";
  CHECK(error_in(text).find("training.zero: \"4\" is not a stage of ZeRO; write 0, 1") != std::string::npos);
  text = ScenarioText{.plan = "{stages: 1, tensor_parallel: 2}"};
  CHECK(error_in(text).find(
            "plan.tensor_parallel: 2 cannot divide layer \"a\", whose figures are stated; use a model family, or 1") !=
        std::string::npos);
  text = ScenarioText{.plan = "{stages: 2, recompute: partly}"};
  CHECK(error_in(text).find("none, selective, blocks, full") != std::string::npos);
}
