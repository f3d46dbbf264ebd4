// Low-rank adapters beside frozen weights: counts of PEFT, passes, kept tensors and groups by hand.                  [Hu21]
#include <doctest/doctest.h>

#include "core/cost/buckets.hpp"
#include "core/cost/cost_model.hpp"
#include "core/model/families/table.hpp"
#include "core/model/flops.hpp"
#include "tests/support/backward_flops.hpp"
#include "tests/support/family_model.hpp"

using namespace pipewright::tests;

namespace {

constexpr Bytes kTwo{2};

using Given = std::initializer_list<std::pair<const char*, std::string>>;

// h = 8, two heads of 4, f = 16, 32 words, 4 tokens. A block's products: qkv 8 x 24, out 8 x 8, gate and up 8 x 32,
// down 16 x 8.
Model small_decoder(Given more, const char* layers = "2") {
  FamilyArguments given;
  for (const auto& [name, value] : Given{{"layers", layers},
                                         {"hidden", "8"},
                                         {"heads", "2"},
                                         {"feed_forward", "16"},
                                         {"vocabulary", "32"},
                                         {"sequence_length", "4"}})
    given[name] = {value, {}};
  for (const auto& [name, value] : more)
    given[name] = {value, {}};
  return build_family(*find_family("decoder"), given, {});
}

// Rank 2 beside queries and the last product.
Model small_adapted() {
  return small_decoder({{"lora_rank", "2"}, {"lora_targets", "[q_proj, down_proj]"}});
}

double of_all(const Work& work, double Operator::*pass) {
  double sum = 0;
  for (const Operator& op : work.operators)
    if (op.product) sum += op.*pass;
  return sum;
}

}  // namespace

TEST_CASE("lora: trained parameters are those that PEFT counts") {
  // Llama 2 7B, rank 8 of queries and values: 32 * 2 * 8 (4096 + 4096).
  const Model llama2 = family_model("decoder", {{"layers", "32"},
                                                {"hidden", "4096"},
                                                {"heads", "32"},
                                                {"feed_forward", "11008"},
                                                {"lora_rank", "8"},
                                                {"lora_targets", "[q_proj, v_proj]"}});
  CHECK(trained_count(llama2) == 4'194'304);
  // Llama 3 8B, rank 16 of all linear layers: 32 * 16 (2 * 8192 + 2 * 5120 + 3 * 18432).
  const Model llama3 = family_model("decoder", {{"layers", "32"},
                                                {"hidden", "4096"},
                                                {"heads", "32"},
                                                {"key_heads", "8"},
                                                {"feed_forward", "14336"},
                                                {"vocabulary", "128256"},
                                                {"lora_rank", "16"}});
  CHECK(trained_count(llama3) == 41'943'040);
  // As Megatron Bridge: one adapter beside queries, keys and values, one beside gate and up:
  // 32 * 16 (4096 + 6144 + 8192 + 4096 + 28672 + 18432).
  const Model fused = family_model("decoder", {{"layers", "32"},
                                               {"hidden", "4096"},
                                               {"heads", "32"},
                                               {"key_heads", "8"},
                                               {"feed_forward", "14336"},
                                               {"lora_rank", "16"},
                                               {"lora_targets", "[linear_qkv, linear_proj, linear_fc1, linear_fc2]"}});
  CHECK(trained_count(fused) == 35'651'584);
  // GPT-2, whose queries, keys and values are one layer: 12 * 8 (3072 + 1536 + 3840 + 3840).
  const Model gpt2 = family_model(
      "gpt", {{"layers", "12"}, {"hidden", "768"}, {"heads", "12"}, {"vocabulary", "50257"}, {"lora_rank", "8"}});
  CHECK(trained_count(gpt2) == 1'179'648);
  // All others are there, too, and nothing else.
  const Model plain =
      family_model("gpt", {{"layers", "12"}, {"hidden", "768"}, {"heads", "12"}, {"vocabulary", "50257"}});
  CHECK(trained_count(plain) == parameter_count(plain));
  CHECK(parameters_of(gpt2) == parameters_of(plain) + 1'179'648);
}

TEST_CASE("lora: latent attention and Mamba mixers have adapters beside their own layers") {
  const Given latent = {{"query_rank", "6"}, {"key_value_rank", "4"}, {"nope_size", "4"},
                        {"rope_size", "2"},  {"value_size", "4"},     {"lora_rank", "2"}};
  // 8 -> 6 -> 12 queries, 8 -> 6, 4 -> 16 keys and values, 8 -> 8; gate, up 8 -> 16, down 16 -> 8:
  // 2 (14 + 18 + 14 + 20 + 16 + 24 + 24 + 24) a block.
  CHECK(trained_count(small_decoder(latent)) == 2 * 2 * 154);
  // 8 -> 2 * 8 + 2 * 2 * 16 + 2 = 82 features, 8 -> 8.
  const Model mixers = small_decoder({{"pattern", "M-"},
                                      {"mamba_heads", "2"},
                                      {"mamba_head_size", "4"},
                                      {"mamba_groups", "2"},
                                      {"mamba_state", "16"},
                                      {"lora_rank", "2"},
                                      {"lora_targets", "[in_proj, out_proj]"}});
  CHECK(trained_count(mixers) == 2 * (90 + 16));
}

TEST_CASE("lora: a frozen product has no gradient of its weights, an adapter all three passes") {
  const Model model = small_adapted();
  const Work& block = work_of(model, "block.1");
  // 2 * 4 tokens * (8 * 24 + 8 * 8 + 8 * 32 + 16 * 8) = 5120; adapters 2 * 4 * (2 * 16 + 2 * 24) = 640.
  double linear = 0, weights = 0, attention = 0;
  for (const Operator& op : block.operators)
    if (op.kind == OperatorKind::MatrixProduct)
      linear += op.forward_flops, weights += op.weight_flops;
    else if (op.product)
      attention += op.forward_flops;
  CHECK(linear == 5120 + 640);
  CHECK(weights == 640);
  CHECK(of_all(block, &Operator::weight_flops) == 640);
  CHECK(of_all(block, &Operator::input_flops) == linear + 2 * attention);
  // Nothing in front of the first adapter needs a gradient: not qkv's input (1536), not that of its A (128).
  const Work& first = work_of(model, "block.0");
  CHECK(of_all(first, &Operator::input_flops) == linear + 2 * attention - 1536 - 128);
  CHECK(backward_flops(work_of(model, "embedding")) == 0);
  const Work& head = work_of(model, "head");
  CHECK(of_all(head, &Operator::weight_flops) == 0);
  CHECK(of_all(head, &Operator::input_flops) == 2 * 4 * 8 * 32);
  // What MFU counts: as computed; conventions of three passes count two of a frozen product.
  const FlopCount count = flop_count(model);
  CHECK(count.forward == 2 * (linear + attention) + 2048);
  CHECK(count.backward == 2 * (linear + 2 * attention + 640) - 1664 + 2048);
  const FlopCount megatron = flop_count(model, flop_conventions()[1]);
  CHECK(megatron.backward == doctest::Approx(megatron.forward + 2 * (640 + 2 * 4 * 4 * 8)));
}

TEST_CASE("lora: products are those that PyTorch counts of PEFT's model") {
  // torch.utils.flop_counter of a Llama with PEFT 0.21: 2 blocks, hidden 64, 2 heads, feed-forward 128, 256 words, 32
  // tokens, rank 8, attention that stores its scores.
  struct Counted {
    const char* targets;
    std::int64_t trained;
    double forward, backward;
  };
  for (const Counted& row :
       {Counted{"q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj", 17'408, 7'929'856, 8'683'520},
        Counted{"down_proj", 3'072, 7'012'352, 4'521'984}}) {
    const Model model = family_model("decoder", {{"layers", "2"},
                                                 {"hidden", "64"},
                                                 {"heads", "2"},
                                                 {"feed_forward", "128"},
                                                 {"vocabulary", "256"},
                                                 {"sequence_length", "32"},
                                                 {"attention", "materialised"},
                                                 {"lora_rank", "8"},
                                                 {"lora_targets", row.targets}});
    CHECK(trained_count(model) == row.trained);
    CHECK(flop_count(model).forward == row.forward);
    CHECK(flop_count(model).backward == row.backward);
  }
}

TEST_CASE("lora: a block keeps what gradients of inputs read, and what adapters read") {
  // Values, with 4 tokens: norm 1's output 32 (A of queries), rank 8, queries, keys and values 96, attention's output 32
  // and 32 B, the sum 32 (norm 2), gate and up 128, their product 64 (A of down), rank 8.
  const Model model = small_adapted();
  CHECK(work_of(model, "block.1").kept.on_device(kTwo, {}) == 2 * 400 + 32);
  CHECK(work_of(model, "block.1").keeps_input[0] == 1);
  CHECK(work_of(model, "block.0").kept.on_device(kTwo, {}) == 2 * 400 + 32);
  CHECK(work_of(model, "block.0").keeps_input[0] == 0);  // norm 1 needs no gradient
  CHECK(work_of(model, "embedding").keeps_input[0] == 0);
  // Without adapters the outputs of norm 2 and of norm 1 stand there, and no rank values.
  CHECK(work_of(small_decoder({}), "block.1").kept.on_device(kTwo, {}) == 2 * (400 - 16 + 32) + 32);
  // Beside down alone nothing in front of it is kept in the first block: its input and rank values.
  const Model last = small_decoder({{"lora_rank", "2"}, {"lora_targets", "down_proj"}});
  CHECK(work_of(last, "block.0").kept.on_device(kTwo, {}) == 2 * (64 + 8));
  CHECK(work_of(last, "block.1").kept.on_device(kTwo, {}) == 2 * (400 - 32 - 8) + 32);
  CHECK(of_all(work_of(last, "block.0"), &Operator::input_flops) == 2 * 4 * 2 * 8);  // B's alone
}

TEST_CASE("lora: a tensor-parallel group divides adapters as Megatron Bridge does") {
  Model model = small_adapted();
  settle(model, kTwo, {.degree = 2});
  const Layer& block = layer_of(model, "block.1");
  CHECK(block.parameters == 656 + 80);
  CHECK(block.held() == 16 + 640 / 2 + 80 / 2);  // norms whole
  CHECK(block.trained() == 40);
  CHECK(layer_of(model, "head").trained() == 0);
  const Work& work = work_of(model, "block.1");
  // Forward: sums behind out and down; beside queries a gather of 8 values, beside down a sum of 8 and a gather of 32.
  CHECK(work.reductions_forward == 2 + 1 + 2);
  CHECK(work.reduced_forward.on_device(kTwo, {}) == 2 * (2 * 32 + 4 + 8 + 16));
  // Backward: sums of both inputs' gradients, and of an adapter's own; of both rank tensors.
  CHECK(work.reductions_backward == 2 + 2 + 1);
  CHECK(work.reduced_backward.on_device(kTwo, {}) == 2 * (2 * 32 + 8 + 32 + 8));
  // The first block hands no gradient on, so that none is summed up in front of it.
  CHECK(work_of(model, "block.0").reduced_backward.on_device(kTwo, {}) == 2 * (32 + 8 + 8));
  Model odd = small_decoder({{"lora_rank", "3"}});
  CHECK_THROWS_WITH(settle(odd, kTwo, {.degree = 2}),
                    doctest::Contains("inner features, and of the rank of its adapters); use 1"));
}

TEST_CASE("lora: experts are frozen, and what only gradients of their weights read is not kept") {
  const auto with = [&](const char* rank) {
    return small_decoder({{"experts", "4"},
                          {"active_experts", "2"},
                          {"expert_feed_forward", "16"},
                          {rank[0] == '\0' ? "tied" : "lora_rank", rank[0] == '\0' ? "no" : rank}});
  };
  Model model = with("2");
  CHECK(trained_count(model) == 2 * 2 * 4 * 16);  // q, k, v, o
  const Model plain = with("");
  const Work &frozen = work_of(model, "block.1"), &trained = work_of(plain, "block.1");
  const auto kept_of_experts = [](const Work& work) {
    double sum = 0;
    for (const KeptTensors& kept : work.kept_tensors)
      if (kept.expert) sum += kept.amount.on_device(kTwo, {});
    return sum;
  };
  // 8 rows: their inputs, 8 values each, and what enters the second product, 16 each, are not read.
  CHECK(kept_of_experts(trained) - kept_of_experts(frozen) == 2 * (8 * 8 + 8 * 16));
  settle(model, kTwo, {.degree = 1, .experts = 4});
  CHECK(layer_of(model, "block.1").expert_parameters == 3 * 8 * 16);
  CHECK(layer_of(model, "block.1").trained_experts() == 0);
  for (const Bucket& bucket : buckets(model, {0, 4}, Bytes{4}, Bytes{1 << 20}))
    CHECK(bucket.of_experts == Bytes{});
}

TEST_CASE("lora: buckets hold gradients of adapters, and a stage without any has an empty one") {
  Model model = small_adapted();
  settle(model, kTwo, {});
  const std::vector<Bucket> all = buckets(model, {0, 4}, Bytes{4}, Bytes{1 << 20});
  REQUIRE(all.size() == 1);
  CHECK(all[0].bytes == Bytes{4 * 160});
  CHECK(all[0].first_layer == 1);
  CHECK(buckets(model, {3, 4}, Bytes{4}, Bytes{1 << 20})[0].bytes == Bytes{});
}

TEST_CASE("lora: fewer bits are for frozen products alone") {
  const Model model = small_adapted();
  const Work& block = work_of(model, "block.1");
  // qkv, out, gate and up, down
  CHECK(low_precision_parameters(block, {}) == 8 * 24 + 8 * 8 + 8 * 32 + 16 * 8);
}

TEST_CASE("lora: wrong targets are named with a way out") {
  const auto refused = [](Given given) -> std::string {
    try {
      small_decoder(given);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  const auto says = [&](Given given, std::string_view what) {
    const std::string message = refused(given);
    CHECK_MESSAGE(message.find(what) != std::string::npos, message);
  };
  says({{"lora_rank", "0"}, {"lora_targets", "q_proj"}}, "model.lora_rank: 0 is not a rank; write 1 or more");
  says({{"lora_targets", "q_proj"}}, "model.lora_targets: [q_proj] is given without lora_rank; add lora_rank");
  says({{"lora_rank", "-1"}}, "model.lora_rank: -1 is out of range; use a whole number from 1 to 100000");
  says({{"lora_rank", "2"}, {"lora_targets", "[q_prj]"}},
       "model.lora_targets: unknown \"q_prj\"; did you mean \"q_proj\"?");
  says({{"lora_rank", "2"}, {"lora_targets", "[]"}}, "model.lora_targets: is empty; list some of q_proj | k_proj");
  says({{"lora_rank", "2"}, {"lora_targets", "q_proj, q_proj"}}, "\"q_proj\" stands there twice; once is enough");
  says({{"lora_rank", "2"}, {"lora_targets", "[o_proj, linear_proj]"}},
       "names one layer twice: o_proj, linear_proj; keep one of the two");
  says({{"lora_rank", "2"}, {"lora_targets", "[linear_qkv, v_proj]"}},
       "[linear_qkv, v_proj] names v_proj beside linear_qkv, of which it is a part; keep one of the two");
  says({{"lora_rank", "2"}, {"lora_targets", "[gate_proj]"}, {"gated", "no"}},
       "[gate_proj] names gate_proj, and no block has it; use some of: q_proj, k_proj, v_proj, o_proj, up_proj, "
       "down_proj, linear_qkv, linear_proj, linear_fc1, linear_fc2");
}
