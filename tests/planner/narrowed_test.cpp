// What `plan --for` searches in, and that launch writes it as it is.
#include "planner/launch/narrowed.hpp"

#include <algorithm>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "io/read/read_scenario.hpp"
#include "planner/launch/nearest.hpp"
#include "planner/search/search.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/input_error.hpp"

using namespace pipewright::tests;

namespace {

// 10 blocks between embedding and head, on two nodes of 4 devices; memory is short.
Scenario small_for(const std::string& plan, const std::string& training = "optimizer: adam, micro_batch_size: auto",
                   const std::string& memory = "160 MiB", const std::string& model = "") {
  const Scratch scratch;
  return read_scenario(scratch.write(
      "x.yaml",
      "model: {family: gpt, layers: 10, hidden: 256, heads: 4, vocabulary: 1024, sequence_length: 128" + model +
          "}\n"
          "cluster: {nodes: 2, network: {bandwidth: 25 GB/s, latency: 5 us}, node: {devices: 4, device: {memory: " +
          memory +
          ", peak: {fp32: 10 TFLOP/s, bf16: 20 TFLOP/s}, memory_bandwidth: 1 TB/s}, links: {kind: nvswitch, bandwidth: "
          "100 GB/s}}}\n"
          "training: {global_batch_size: 32, " +
          training + "}\nplan: " + plan + "\n"));
}

std::string refusal(const Scenario& scenario, Framework framework) {
  return error_of([&] { static_cast<void>(narrowed(scenario, framework)); });
}

bool tells(const Narrowed& narrow, const std::string& what) {
  return std::any_of(narrow.restricted.begin(), narrow.restricted.end(),
                     [&](const std::string& each) { return each.starts_with(what); });
}

// Every plan of the ranking, by its layout in words; each is launched as it is.
std::string launched(const Narrowed& narrow, Framework framework) {
  const auto found = search(narrow.scenario, {.top = 40, .gap = 0, .within = narrow.within, .kept = narrow.keys});
  std::string all;
  for (const Found& each : std::get<SearchAnswer>(found).plans) {
    CAPTURE(in_words(each.layout));
    CHECK(nearest_plan(*each.scenario, each.plan, framework).differences == std::vector<std::string>{});
    all +=
        fmt::format("{} stages {} copies zero {}\n", each.layout.stages, each.layout.data_parallel, each.layout.zero);
  }
  return all;
}

}  // namespace

TEST_CASE("of exchanges beside products those forms are searched that a framework has") {
  const std::string base = "{stages: 1, tensor_parallel: 2, sequence_parallel: true, schedule: 1f1b, tensor_overlap: ";
  const auto among = [&](Framework framework) {
    return narrowed(small_for(base + "{auto: [true, false, ring, backward]}}"), framework)
        .scenario.plan.open.at("tensor_overlap")
        .among;
  };
  using List = std::vector<std::string>;
  CHECK((among(Framework::Megatron) == List{"true", "false", "ring", "backward"}));
  CHECK((among(Framework::Torchtitan) == List{"false", "ring"}));
  const auto settled = [&](const std::string& value, Framework framework) {
    return narrowed(small_for(base + value + "}"), framework).scenario.plan.tensor_overlap.value;
  };
  CHECK(settled("true", Framework::Megatron) == TensorOverlap::Beside);
  CHECK(settled("ring", Framework::Megatron) == TensorOverlap::Ring);
  CHECK(settled("true", Framework::Torchtitan) == TensorOverlap::Ring);
  CHECK(settled("backward", Framework::Megatron) == TensorOverlap::Backward);
  for (const Framework other : {Framework::Torchtitan, Framework::Torch, Framework::DeepSpeed})
    CHECK(settled("backward", other) == TensorOverlap::None);
  // Nothing is put off that runs beside what is scattered.
  CHECK(settled("true, delay_wgrad: true", Framework::Megatron) == TensorOverlap::Ring);
}

TEST_CASE("every plan of the ranking for a framework is launched as it is" * doctest::test_suite("whole searches")) {
  for (const char* memory : {"160 MiB", "60 MiB", "40 MiB"})
    for (const FrameworkWords& words : frameworks()) {
      CAPTURE(words.word);
      CAPTURE(memory);
      const Narrowed narrow =
          narrowed(small_for("auto", "optimizer: adam, precision: bf16, micro_batch_size: auto, zero: auto", memory),
                   words.framework);
      CHECK_FALSE(narrow.restricted.empty());
      const auto found = search(narrow.scenario, {.top = 10, .within = narrow.within, .kept = narrow.keys});
      REQUIRE(std::holds_alternative<SearchAnswer>(found));
      for (const Found& each : std::get<SearchAnswer>(found).plans) {
        CAPTURE(in_words(each.layout));
        CHECK(nearest_plan(*each.scenario, each.plan, words.framework).differences == std::vector<std::string>{});
      }
    }
}

TEST_CASE("a list of the user's keeps what the framework has of it") {
  const Narrowed narrow =
      narrowed(small_for("{stages: auto, schedule: {auto: [gpipe, 1f1b]}, recompute: {auto: [none, full, blocks]}}"),
               Framework::Megatron);
  CHECK(narrow.scenario.plan.open.at("schedule").among == std::vector<std::string>{"1f1b"});
  CHECK(narrow.scenario.plan.open.at("recompute").among == std::vector<std::string>{"none", "blocks"});
  CHECK(narrow.within.one_recompute);
  CHECK(narrow.within.whole_nodes);
  CHECK(narrow.keys == std::vector<std::string>{"plan.schedule", "plan.recompute", "training.zero",
                                                "training.precision", "plan.data_parallel"});
  CHECK(tells(narrow, "schedule: 1f1b"));
  CHECK(tells(narrow, "devices: of one node, or of whole nodes"));
}

TEST_CASE("what the scenario fixes and the framework lacks is refused, with a way out") {
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(has(refusal(small_for("{stages: auto, schedule: gpipe}"), Framework::Megatron),
            "plan.schedule: gpipe, which Megatron-LM does not have; write 1f1b or interleaved_1f1b, or leave --for "
            "megatron out"));
  CHECK(has(refusal(small_for("{stages: auto, recompute: full}"), Framework::Torchtitan), "plan.recompute: full"));
  CHECK(has(refusal(small_for("{stages: auto, virtual_stages: 2, schedule: interleaved_1f1b}"), Framework::DeepSpeed),
            "plan.schedule: interleaved_1f1b, which DeepSpeed does not have"));
  CHECK(has(refusal(small_for("{stages: 2, data_parallel: auto, placement: pipeline}"), Framework::Torchtitan),
            "plan.placement: pipeline"));
  CHECK(has(refusal(small_for("{stages: 2, data_parallel: auto, partition: fitting}"), Framework::DeepSpeed),
            "plan.partition: cuts of its own"));
  CHECK(
      has(refusal(small_for("{stages: auto, replicas: auto, schedule: pipedream, partition: auto}"), Framework::Torch),
          "plan.replicas: workers that share a stage"));
}

TEST_CASE("what the scenario states and the framework replaces is told apart from what is narrowed") {
  using Lines = std::vector<std::string>;
  const auto replaced = [](const std::string& training,
                           const std::string& plan = "{stages: auto, data_parallel: auto}") {
    return narrowed(small_for(plan, training + ", micro_batch_size: auto"), Framework::Torchtitan).replaced;
  };
  CHECK(replaced("optimizer: muon") == Lines{"training.optimizer: muon is not there; adam"});
  CHECK(replaced("optimizer: adam, precision: fp16") == Lines{"training.precision: fp16 is not there; bf16"});
  const std::string zero = "zero: 1 is not there; copies are whole (data_parallel_replicate_degree): 0";
  CHECK(replaced("optimizer: adam, zero: 1") == Lines{"training." + zero});
  CHECK(replaced("zero: {auto: [1, 3]}").empty());  // a list is narrowed
  CHECK(replaced("optimizer: adam, zero: 3", "auto").empty());
  CHECK(replaced("optimizer: adam", "{stages: 2, data_parallel: 2, tensor_overlap: false}").empty());
  const Narrowed dropped = narrowed(
      small_for("{stages: 2, data_parallel: 1, recompute_except_last: true}", "optimizer: adam, micro_batch_size: 1"),
      Framework::Torchtitan);
  CHECK(dropped.replaced == Lines{"plan.recompute_except_last: false, micro-batches are treated alike"});
}

// gpt has flash attention: no attention cores to rebuild, and `launch` writes the mode all the same.
TEST_CASE("a recomputation that the framework has is taken as it stands, also where the model has nothing for it") {
  // Megatron-LM runs it, though no search takes it by itself.
  CHECK(narrowed(small_for("{stages: auto, schedule: moe_overlap_1f1b}"), Framework::Megatron).restricted ==
        narrowed(small_for("{stages: auto, schedule: 1f1b}"), Framework::Megatron).restricted);
  const Narrowed fixed = narrowed(small_for("{stages: auto, recompute: selective}"), Framework::Megatron);
  CHECK(fixed.scenario.plan.recompute.value == std::vector{Recompute::Selective});
  const Narrowed listed =
      narrowed(small_for("{stages: auto, recompute: {auto: [selective, full]}}"), Framework::Megatron);
  CHECK(listed.scenario.plan.open.at("recompute").among == std::vector<std::string>{"selective"});
}

TEST_CASE("torchtitan's selective checkpoints are those by operator, and nobody else's") {
  const Narrowed open = narrowed(small_for("auto"), Framework::Torchtitan);
  CHECK(open.scenario.plan.recompute_modules == Modules{Module::Operators});
  CHECK(open.scenario.plan.open.at("recompute").among == std::vector<std::string>{"none", "selective", "blocks"});
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(has(refusal(small_for("{stages: auto, recompute: selective}"), Framework::Torchtitan),
            "plan.recompute: selective"));
  CHECK(
      narrowed(small_for("{stages: auto, recompute: selective, recompute_modules: [operators]}"), Framework::Torchtitan)
          .scenario.plan.recompute.value == std::vector{Recompute::Selective});
  CHECK(has(
      refusal(small_for("{stages: auto, recompute: selective, recompute_modules: [operators]}"), Framework::Megatron),
      "plan.recompute_modules: [operators]"));
  CHECK(narrowed(small_for("{stages: auto, recompute: auto, recompute_modules: [mlp]}"), Framework::Torchtitan)
            .scenario.plan.open.at("recompute")
            .among == std::vector<std::string>{"none", "blocks"});
}

TEST_CASE("where nothing fits, no remedy opens what the framework restricts") {
  const Narrowed narrow = narrowed(
      small_for("{stages: auto, recompute: none}", "optimizer: adam, precision: fp32, micro_batch_size: 8", "90 MiB"),
      Framework::Megatron);
  const auto opens = [&](const std::vector<std::string>& kept) {
    const auto found = search(narrow.scenario, {.top = 1, .within = narrow.within, .kept = kept});
    std::string all;
    for (const std::string& line : std::get<Infeasible>(found).remedies)
      all += line + "\n";
    return all;
  };
  for (const char* key : {"plan.recompute=", "training.precision=", "plan.data_parallel="}) {
    CAPTURE(key);
    CHECK(opens(narrow.keys).find(key) == std::string::npos);
  }
  CHECK(opens({}).find("plan.recompute=") != std::string::npos);
  CHECK(opens({}).find("training.precision=") != std::string::npos);
}

TEST_CASE("what launch would replace in the training is replaced before the search, and told") {
  const Narrowed narrow = narrowed(small_for("{stages: auto, data_parallel: auto}",
                                             "optimizer: rmsprop, precision: bf16, micro_batch_size: auto, zero: 1"),
                                   Framework::Torchtitan);
  CHECK(narrow.scenario.training.optimizer == Optimizer::Adam);
  CHECK(narrow.scenario.training.gradient_precision == Precision::Fp32);
  CHECK(narrow.scenario.training.zero == 0);
  CHECK(narrow.scenario.origins.at("training.optimizer").file == "--for torchtitan");
  CHECK(tells(narrow, "optimizer: rmsprop is not there; adam"));
  CHECK(tells(narrow, "zero: 1 is not there"));
}

TEST_CASE("stages of ZeRO that are left open are those that the framework has") {
  const auto open_zeros = [](Framework framework) {
    const Narrowed narrow =
        narrowed(small_for("auto", "optimizer: adam, precision: bf16, micro_batch_size: auto, zero: auto"), framework);
    return narrow.scenario.training.open.at("zero").among;
  };
  CHECK(open_zeros(Framework::Megatron).empty());  // the search opens 2 and 3 on one stage alone
  CHECK(open_zeros(Framework::Torchtitan) == std::vector<std::string>{"0", "3"});
  CHECK(open_zeros(Framework::Torch) == std::vector<std::string>{"0", "1"});
}

TEST_CASE("torchtitan shares sequences where weights are divided, and open context is closed elsewhere") {
  const auto opened = [](const std::string& zero, const std::string& plan) {
    const Scenario scenario =
        small_for(plan, "optimizer: adam, precision: bf16, gradient_precision: fp32, micro_batch_size: auto" + zero,
                  "160 MiB", ", attention: flash");
    return narrowed(scenario, Framework::Torchtitan);
  };
  const std::string context = "{data_parallel: auto, context_parallel: auto, recompute: auto, schedule: 1f1b}";
  for (const char* zero : {"", ", zero: 1", ", zero: {auto: [0, 1]}"}) {
    CAPTURE(zero);
    const Narrowed narrow = opened(zero, context);
    CHECK_FALSE(narrow.scenario.plan.open.contains("context_parallel"));
    CHECK(tells(narrow, "context_parallel: 1; more needs zero: 3 there, which --set training.zero=3 searches"));
  }
  CHECK(opened("", "{data_parallel: auto, context_parallel: {auto: [2, 4]}, schedule: 1f1b}")
            .scenario.plan.open.contains("context_parallel"));
  CHECK(opened(", zero: 3", context).scenario.plan.context_exchange.value == ContextExchange::AllGather);
  for (const char* zero : {", zero: 3", ", zero: auto", ", zero: {auto: [0, 3]}"}) {
    CAPTURE(zero);
    const Narrowed narrow = opened(zero, context);
    CHECK(narrow.scenario.plan.open.contains("context_parallel"));
    // By operator, of whole sequences alone.
    const Scenario& scenario = narrow.scenario;
    CHECK(std::ranges::count(scenario.plan.open.at("recompute").among, "selective") == 1);
    CHECK(std::ranges::count(recomputations(scenario), Recompute::Selective) == 1);
    CHECK(std::ranges::count(recomputations(scenario, 2), Recompute::Selective) == 0);
    bool shared = false, whole = false;
    for (const LayoutGroup& group : layouts_of(scenario, narrow.within).groups) {
      shared |= group.first.context_parallel > 1;
      whole |= group.first.context_parallel == 1 && std::ranges::count(group.zeros, 0) == 1;
      if (group.first.context_parallel > 1) CHECK(group.zeros == std::vector<std::int64_t>{3});
    }
    CHECK(shared);
    CHECK(whole == (std::string_view(zero) != ", zero: 3"));
  }
  // Where operators alone may be saved, sequences are whole.
  const Narrowed selective = opened(
      ", zero: 3", "{data_parallel: auto, context_parallel: auto, recompute: {auto: [selective]}, schedule: 1f1b}");
  for (const LayoutGroup& group : layouts_of(selective.scenario, selective.within).groups)
    CHECK(group.first.context_parallel == 1);
}

TEST_CASE("ZeRO that is left open is searched as far as DeepSpeed has it, and launched as it is") {
  const Narrowed narrow = narrowed(
      small_for("auto", "optimizer: adam, precision: bf16, micro_batch_size: auto, zero: auto"), Framework::DeepSpeed);
  bool divided = false;
  const Space space = layouts_of(narrow.scenario, narrow.within);
  for (const LayoutGroup& group : space.groups)
    for (const std::int64_t zero : group.zeros) {
      divided |= zero > 1;
      if (zero > 1) CHECK(group.first.stages * group.first.tensor_parallel == 1);
    }
  CHECK(divided);
  CHECK(space.left_out.contains("zero: 2 or 3 with tensor parallelism"));
  // A list takes 2 and 3 into pipelines, where DeepSpeed has them not.
  const Narrowed listed =
      narrowed(small_for("auto", "optimizer: adam, precision: bf16, micro_batch_size: auto, zero: {auto: [1, 2, 3]}"),
               Framework::DeepSpeed);
  CHECK(layouts_of(listed.scenario, listed.within).left_out.contains("zero: 2 or 3 in a pipeline"));
  launched(listed, Framework::DeepSpeed);
}

TEST_CASE("ZeRO 2 and 3 that are fixed stay so on one stage, and mean nothing for one copy") {
  const auto of = [](const std::string& plan, const std::string& more) {
    return small_for(plan, "optimizer: adam, precision: bf16, micro_batch_size: 1" + more);
  };
  for (const Framework framework : {Framework::Megatron, Framework::DeepSpeed}) {
    // Pipelines have 1 at most.
    for (const char* zero : {", zero: 3", ", zero: {auto: [3]}"}) {
      const Narrowed narrow = narrowed(of("{stages: auto, data_parallel: auto, schedule: 1f1b}", zero), framework);
      CHECK(tells(narrow, "zero: 3 on one stage; 1 in pipelines, which have no more"));
      const std::string plans = launched(narrow, framework);
      CHECK(plans.find("1 stages 8 copies zero 3") != std::string::npos);
      CHECK(plans.find("2 stages 4 copies zero 1") != std::string::npos);
      CHECK(plans.find("2 stages 4 copies zero 3") == std::string::npos);
      CHECK(plans.find("1 stages 8 copies zero 1") == std::string::npos);
    }
    const Narrowed alone = narrowed(of("{stages: auto, data_parallel: 1, schedule: 1f1b}", ", zero: 3"), framework);
    CHECK(launched(alone, framework).find("8 stages 1 copies") != std::string::npos);
    // What goes with some values of ZeRO alone.
    for (const char* more : {", gradient_precision: bf16", ", moments: bf16"}) {
      CAPTURE(more);
      launched(narrowed(of("{stages: auto, data_parallel: auto, schedule: 1f1b}", std::string(", zero: auto") + more),
                        framework),
               framework);
    }
    for (const char* key : {"reduce_gradients: step", "gradient_sync: blocking"})
      launched(
          narrowed(of(std::string("{stages: auto, data_parallel: auto, schedule: 1f1b, ") + key + "}", ", zero: auto"),
                   framework),
          framework);
  }
  // Open ZeRO loses nothing of what a fixed one has.
  const auto best = [&](const char* zero) {
    const Narrowed narrow =
        narrowed(of("{stages: {auto: [2, 4]}, data_parallel: auto, schedule: 1f1b}", zero), Framework::DeepSpeed);
    const auto found = search(narrow.scenario, {.top = 1, .gap = 0, .within = narrow.within, .kept = narrow.keys});
    return std::get<SearchAnswer>(found).plans.front().report.step_time;
  };
  CHECK(best(", zero: auto") <= best(", zero: 1"));
  CHECK(refusal(of("{stages: 2, data_parallel: auto}", ", zero: {auto: [2, 3]}"), Framework::DeepSpeed)
            .find("none of these is there in DeepSpeed; write 0 or 1, or leave --for deepspeed out") !=
        std::string::npos);
}

TEST_CASE("experts that are open are closed where a framework cannot divide them") {
  const auto narrow = [](Framework framework, const std::string& zero) {
    const Scratch scratch;
    const Scenario scenario = read_scenario(scratch.write(
        "x.yaml",
        "model: {family: decoder, layers: 2, hidden: 512, heads: 8, feed_forward: 1024, vocabulary: 1024, "
        "sequence_length: 256, experts: 8, active_experts: 2, expert_feed_forward: 1024}\n"
        "cluster: {node: {devices: 8, device: {memory: 16 GiB, peak: {bf16: 100 TFLOP/s}, memory_bandwidth: 1 TB/s}, "
        "links: {kind: nvswitch, bandwidth: 100 GB/s}}}\n"
        "training: {optimizer: adam, precision: bf16, gradient_precision: fp32, global_batch_size: 64, "
        "micro_batch_size: 1" +
            zero + "}\nplan: auto\n"));
    return narrowed(scenario, framework);
  };
  const auto opens = [](const Narrowed& each, const char* key) { return each.scenario.plan.open.contains(key); };
  for (const Framework framework : {Framework::Torch, Framework::DeepSpeed}) {
    const Narrowed none = narrow(framework, "");
    CHECK_FALSE(opens(none, "expert_parallel"));
    CHECK(tells(none, "expert_parallel: 1"));
    CHECK(std::ranges::count(none.keys, "plan.expert_parallel") == 1);
  }
  CHECK(opens(narrow(Framework::Megatron, ""), "expert_parallel"));
  CHECK(opens(narrow(Framework::Torchtitan, ""), "expert_parallel"));
  CHECK(narrow(Framework::Torchtitan, "").scenario.training.open.at("zero").among ==
        std::vector<std::string>{"0", "3"});
  CHECK(opens(narrow(Framework::Torchtitan, ", zero: auto"), "expert_parallel"));
  const Narrowed whole = narrow(Framework::Torchtitan, ", zero: 0"),
                 divided = narrow(Framework::Torchtitan, ", zero: 3");
  CHECK_FALSE(opens(whole, "expert_parallel"));
  CHECK(whole.scenario.training.zero == 0);
  CHECK(opens(divided, "expert_parallel"));
  // Beside shared sequences experts are divided among as many devices as torchtitan divides them.
  CHECK(opens(divided, "context_parallel"));
  bool both = false;
  for (const LayoutGroup& group : layouts_of(divided.scenario, divided.within).groups) {
    const Layout& layout = group.first;
    both |= layout.context_parallel > 1 && layout.expert_parallel > 1;
    if (layout.expert_parallel > 1) CHECK(layout.expert_parallel % layout.context_parallel == 0);
  }
  CHECK(both);
  const Narrowed open = narrow(Framework::Torchtitan, ", zero: auto");
  const auto found = search(open.scenario, {.top = 40, .gap = 0, .within = open.within, .kept = open.keys});
  bool launched = false;
  for (const Found& each : std::get<SearchAnswer>(found).plans) {
    CAPTURE(in_words(each.layout));
    launched |= each.layout.context_parallel > 1 && each.layout.expert_parallel > 1;
    CHECK(nearest_plan(*each.scenario, each.plan, Framework::Torchtitan).differences == std::vector<std::string>{});
  }
  CHECK(launched);
}
