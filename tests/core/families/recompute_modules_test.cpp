// What selective recomputation drops of latent attention and of shared experts, by Megatron-LM's names of modules.
#include <doctest/doctest.h>

#include "core/model/work.hpp"
#include "tests/support/family_model.hpp"

using namespace pipewright::tests;

namespace {

// 128 tokens, 4 heads of 16 + 8 features and values of 16, latents of 64 and 32; 8 experts of 64, 2 per token, and a shared
// one of 96.
Model with_latents() {
  return family_model("decoder", {{"layers", "2"},
                                  {"hidden", "256"},
                                  {"heads", "4"},
                                  {"feed_forward", "512"},
                                  {"vocabulary", "1024"},
                                  {"sequence_length", "128"},
                                  {"query_rank", "64"},
                                  {"key_value_rank", "32"},
                                  {"nope_size", "16"},
                                  {"rope_size", "8"},
                                  {"value_size", "16"},
                                  {"experts", "8"},
                                  {"active_experts", "2"},
                                  {"expert_feed_forward", "64"},
                                  {"shared_feed_forward", "96"}});
}

}  // namespace

TEST_CASE("mla_up_proj drops queries, keys and values, shared_experts what a shared expert keeps of itself") {
  const Model model = with_latents();
  const Work& block = work_of(model, "block.1");
  const auto kept = [&](Modules modules) { return kept_without(block, modules).on_device({2}, {}) / 2; };
  CHECK(kept({}) - kept({Module::LatentUp}) == 128 * 4 * (24 + 24 + 16));
  CHECK(kept({}) - kept({Module::SharedExperts}) == 128 * 3 * 96);
  // Of the experts all that they make, the shared one among them, but what the sum and the router's gradient read.
  const double experts = kept({}) - kept({Module::Experts});
  CHECK(experts > kept({}) - kept({Module::ExpertActivation}));
  CHECK(experts == kept({}) - kept({Module::Experts, Module::SharedExperts, Module::ExpertActivation}));
  CHECK(experts >= 128 * 3 * 96);
}

TEST_CASE("mla_up_proj repeats both products out of the latents, shared_experts both of the shared expert") {
  const Model model = with_latents();
  const Work& block = work_of(model, "block.1");
  const auto repeated = [&](Modules modules) {
    double flops = 0;
    for (const Operator& op : block.operators)
      if (op.product && rebuilt_with(op, modules)) flops += op.forward_flops;
    return flops;
  };
  CHECK(repeated({Module::LatentUp}) == 2.0 * 128 * (64 * 4 * 24 + 32 * 4 * 32));
  CHECK(repeated({Module::SharedExperts}) == 2.0 * 128 * 3 * 256 * 96);
  CHECK(repeated({Module::Experts}) > repeated({Module::SharedExperts}));
}
