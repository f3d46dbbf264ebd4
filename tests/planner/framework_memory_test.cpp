// What a framework holds beside the tensors of the operators: by hand, and against runs of Megatron-LM.
#include "core/cost/framework_memory.hpp"

#include <cmath>
#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "io/read/read_scenario.hpp"
#include "io/text/errors.hpp"
#include "planner/answer.hpp"
#include "planner/figures.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

constexpr double kMiB = 1024.0 * 1024;

struct FrameworkTold {
  std::unique_ptr<Scenario> scenario;
  Answer answer;

  double of(const std::string& part, Where where = Where::Last) const {
    return figure_of(answer, {.text = part, .figure = Figure::Memory, .of = part, .where = where, .stage = 0});
  }
};

FrameworkTold told(const std::string& model, const std::string& training, const std::string& plan) {
  const Scratch folder;
  auto scenario = std::make_unique<Scenario>(read_scenario(
      folder.write("s.yaml",
                   "model: " + model +
                       "\ncluster: {nodes: 1, node: {devices: 8, device: {memory: 1 TB, memory_bandwidth: 1 TB/s, "
                       "peak: {bf16: 1 PFLOP/s, fp16: 1 PFLOP/s, fp32: 1 PFLOP/s}}, links: {kind: nvswitch, bandwidth: "
                       "100 GB/s}}}\ntraining: " +
                       training + "\nplan: " + plan + "\n"),
      {}));
  Answer found = std::get<Answer>(answer(*scenario, {.engine = Engine::Auto, .ignore_memory = true}));
  return {std::move(scenario), std::move(found)};
}

// 2 blocks with 4 heads of 2, 16 inner features, 8 tokens, 128 words. By hand: T = 2 * 8 = 16 tokens, u = 2 * 16 * 8 =
// 256 B.
const char* const kSmall =
    "{family: gpt, layers: 2, hidden: 8, heads: 4, feed_forward: 16, vocabulary: 128, sequence_length: 8, attention: ";

std::string trained(const std::string& framework, const std::string& more = "") {
  return "{micro_batches: 2, micro_batch_size: 2, precision: bf16, gradient_precision: fp32, optimizer: adam" + more +
         (framework.empty() ? "" : ", framework: {" + framework + "}") + "}";
}

}  // namespace

TEST_CASE("framework: gradients that are reduced in place need no bucket") {
  // 4 B of gradient per parameter, one bucket, blocking: at the end of the step nothing else is there, so that the bucket
  // shows beside the state alone.
  const std::string plan = "{stages: 1, data_parallel: 2, gradient_sync: blocking, bucket: 1 GB}";
  const std::string big =
      "{family: gpt, layers: 2, hidden: 512, heads: 4, feed_forward: 2048, vocabulary: 3200, sequence_length: 8, "
      "attention: flash}";
  const FrameworkTold copied = told(big, trained(""), plan);
  const FrameworkTold in_place = told(big, trained("gradient_buffer: in_place"), plan);
  CHECK(copied.of("buffers") == copied.of("gradients"));
  CHECK(in_place.of("buffers") == 0);
  CHECK(in_place.of("training_state") == copied.of("training_state"));
  CHECK(told(big, trained("name: megatron"), plan).of("buffers") == 0);
  CHECK(told(big, trained("name: megatron, gradient_buffer: copied"), plan).of("buffers") == copied.of("buffers"));
}

TEST_CASE("framework: tensors of a small model by hand") {
  const std::string plan = "{stages: 1}";
  const FrameworkTold none = told(std::string(kSmall) + "flash}", trained(""), plan);
  const FrameworkTold all = told(std::string(kSmall) + "flash}", trained("name: megatron, workspace: 1000 B"), plan);
  // Two norms per block and the last one, 8 B per token each: 5 * 16 * 8 = 640 B.
  CHECK(all.of("stash") - none.of("stash") == 640);
  CHECK(all.of("logits") == none.of("logits"));
  CHECK(all.of("logits") == 4 * 16 * 128);
  // 1000; mask 2 * 8 * 8 and 20 * 16 of the batch; the loss: 2 more bytes per logit, or 2 T V + 2 V h - 4 T V: less; 38 T.
  CHECK(all.of("workspace") == 1000 + 128 + 320 + 2 * 16 * 128 + 38 * 16);
  CHECK(all.of("held") - all.of("training_state") == 1000 + 3584);
  CHECK(none.of("held") == none.of("training_state"));
  // An output of 256 B twice, in two blocks.
  CHECK(told(std::string(kSmall) + "flash}", trained("name: megatron, attention_copy: true"), plan).of("stash") -
            all.of("stash") ==
        2 * 256);
  // Scores 2 * 4 * 8 * 8 of 2 B more, in two blocks.
  CHECK(told(std::string(kSmall) + "materialised}", trained("name: megatron, fp32_softmax: true"), plan).of("stash") -
            told(std::string(kSmall) + "materialised}", trained("name: megatron"), plan).of("stash") ==
        2 * 512 * 2);
  // 2 B per logit: 2 T V = 4096 B are kept, 2 T V + 2 V h = 4096 + 2048 B are needed.
  const FrameworkTold in_place = told(std::string(kSmall) + "flash}", trained("name: megatron, logit_bytes: 2"), plan);
  CHECK(in_place.of("logits") == 4096);
  CHECK(in_place.of("workspace") == 128 + 320 + 2048 + 38 * 16);
  // Shapes 24 x 8, 8 x 8, 16 x 8 and 8 x 16 of 2 B.
  CHECK(told(std::string(kSmall) + "flash}", trained("name: megatron, weight_gradients: fused_kept"), plan).of("held") -
            in_place.of("held") ==
        2 * (24 * 8 + 8 * 8 + 16 * 8 + 8 * 16));
  CHECK(told(std::string(kSmall) + "flash}", trained("bytes_per_parameter: 2 B"), plan).of("gradients") ==
        none.of("gradients") * 1.5);
  // Queries, keys and values each keep their input of 256 B: two more in two blocks. One device makes no copies, and with
  // sequence parallelism none are made.
  const auto copies = [](const std::string& devices) {
    return told(std::string(kSmall) + "flash}", trained("copied_inputs: true"), "{stages: 1" + devices + "}")
               .of("stash") -
           told(std::string(kSmall) + "flash}", trained(""), "{stages: 1" + devices + "}").of("stash");
  };
  CHECK(copies(", tensor_parallel: 2") == 2 * 2 * 256);
  CHECK(copies("") == 0);
  CHECK(copies(", tensor_parallel: 2, sequence_parallel: true") == 0);
  // Stages: between steps two messages of 256 B and a mask of 128 B; while they run the same.
  const FrameworkTold two =
      told(std::string(kSmall) + "flash}", trained("name: megatron"), "{stages: 2, partition: equal_blocks}");
  CHECK(two.of("held") - two.of("training_state") == 3584 + 2 * 256 + 128);
  CHECK(two.of("buffers") == 0);
}

TEST_CASE("framework: a vocabulary is padded on each device") {
  const auto with = [](const char* words, const char* framework) {
    return told(
        std::string("{family: gpt, layers: 2, hidden: 8, heads: 4, feed_forward: 16, sequence_length: 8, attention: "
                    "flash, vocabulary: ") +
            words + "}",
        trained(framework), "{stages: 1, tensor_parallel: 2}");
  };
  // 130 words on 2 devices: 65 rows each, padded to 128, so that each has as much as of 256 words.
  for (const char* part : {"weights", "gradients", "optimizer", "logits", "workspace", "allocated"})
    CHECK(with("130", "name: megatron").of(part) == with("256", "name: megatron").of(part));
  const FrameworkTold none = with("130", "name: megatron, vocabulary_multiple: 1");
  CHECK(with("130", "name: megatron").of("weights") - none.of("weights") == 2 * 63 * 8);
  CHECK(none.of("logits") == 4 * 16 * 65);
  CHECK(none.of("weights") == with("130", "").of("weights"));
}

TEST_CASE("framework: the first step's loss, before Adam's states are there") {
  const FrameworkTold later =
      told(std::string(kSmall) + "flash}", trained("name: megatron, logit_bytes: 10"), "{stages: 1}");
  const FrameworkTold first = told(std::string(kSmall) + "flash}",
                                   trained("name: megatron, logit_bytes: 10, first_logit_bytes: 64"), "{stages: 1}");
  // 54 B more of each of 16 * 128 logits, less 8 of 12 B of the states.
  CHECK(first.of("allocated") - later.of("allocated") == 54 * 16 * 128 - later.of("optimizer") * 8 / 12);
  const FrameworkTold less = told(std::string(kSmall) + "flash}",
                                  trained("name: megatron, logit_bytes: 10, first_logit_bytes: 11"), "{stages: 1}");
  CHECK(less.of("allocated") == later.of("allocated"));
}

TEST_CASE("framework: fp16 keeps a copy of the gradients between steps alone") {
  const std::string training =
      "{micro_batches: 2, micro_batch_size: 2, precision: fp16, optimizer: adam, framework: {name: megatron}}";
  const FrameworkTold half = told(std::string(kSmall) + "flash}", training, "{stages: 1}");
  CHECK(half.of("held") - half.of("training_state") == 3584 + 2 * half.of("gradients"));
}

TEST_CASE("framework: what Megatron-LM allocated, to the byte") {
  // gpt3_mcore_te_tp1_pp1_dist_optimizer_no_mmap_bin_files, dev_dgx_a100: Megatron-LM, tests/functional_tests, commit
  // d98e8a6. docs/how-it-works/memory.md has the sum.
  const FrameworkTold run = told(
      "{family: gpt, layers: 12, hidden: 512, heads: 8, feed_forward: 2048, vocabulary: 50257, sequence_length: 1024, "
      "attention: materialised}",
      "{global_batch_size: 32, micro_batch_size: 4, precision: bf16, gradient_precision: fp32, optimizer: adam, zero: "
      "1, "
      "framework: {name: megatron, weight_gradients: separate, workspace: 71303168 B}}",
      "{stages: 1, data_parallel: 8, gradient_sync: blocking}");
  CHECK(run.of("allocated") == 4'673'069'568);
  CHECK(run.of("held") == 552'128'512);
}

TEST_CASE("framework: what Megatron-LM allocated on B200, within 0.3 %") {
  // SimuMax, docs/b200/b200_release_v1.2_summary.json, commit 4dcaae5: alloc_max of rank 0 and of the last rank, MiB.
  const auto run = [](const char* plan) {
    return told(
        std::string("{family: decoder, layers: 12, hidden: 8192, heads: 64, key_heads: 8, feed_forward: 28672, "
                    "sequence_length: 4096, vocabulary: 128256}"),
        "{micro_batches: 4, micro_batch_size: 1, precision: bf16, gradient_precision: fp32, optimizer: adam, "
        "zero: 1, framework: {name: megatron, weight_gradients: fused_kept, logit_bytes: 2, workspace: 100664320 "
        "B}}",
        plan);
  };
  const FrameworkTold eight = run("{stages: 1, tensor_parallel: 8, sequence_parallel: true, gradient_sync: blocking}");
  CHECK(std::abs(eight.of("allocated") / kMiB / 28965.4 - 1) < 0.003);
  const FrameworkTold two =
      run("{stages: 2, data_parallel: 4, partition: equal_blocks, schedule: 1f1b, gradient_sync: blocking}");
  CHECK(std::abs(two.of("allocated", Where::Stage) / kMiB / 68149.2 - 1) < 0.003);
}

TEST_CASE("framework: a wrong value is told with its law") {
  const auto refused = [](const std::string& framework, const std::string& told_as) {
    try {
      told(std::string(kSmall) + "flash}", trained(framework), "{stages: 1}");
      return false;
    } catch (const InputError& error) {
      return std::string(error.what()).find(told_as) != std::string::npos;
    }
  };
  CHECK(refused("name: megatron_lm", "training.framework.name"));
  CHECK(refused("logit_bytes: 65", "must be 0 to 64"));
  CHECK(refused("gradient_buffer: shared", "training.framework.gradient_buffer"));
}
