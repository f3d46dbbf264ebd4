// Attention over sequences that devices share: who computes which pairs, what a pass takes, what is sent and held.
#include "core/cost/context_exchange.hpp"

#include <numeric>

#include <doctest/doctest.h>

#include "core/cost/cost_model.hpp"
#include "tests/support/transformer_block.hpp"

using namespace pipewright::tests;

namespace {

// One block on devices behind a switch of 100 GB/s, no latency.
Scenario shared(std::int64_t devices, ContextExchange exchange, std::int64_t sequence = 4096) {
  Scenario scenario = block_scenario({.sequence = sequence, .hidden = 512, .heads = 16, .inner = 2048, .flash = true},
                                     1, static_cast<int>(devices), {});
  scenario.cluster.links = {.kind = LinkKind::Nvswitch, .bandwidth = Bandwidth{100e9}, .latency = {}};
  scenario.plan.context_parallel.value = devices;
  scenario.plan.context_exchange.value = exchange;
  return scenario;
}
ContextAttention attention(const Scenario& scenario) {
  return {scenario, Topology(scenario.cluster)};
}

constexpr double kMs = 1e6;  // ns
// So much takes a ms from one device to the next.
constexpr ContextTensors ms_to_send(double keys) {
  return {.keys = keys * 1e8, .queries = 0};
}

AttentionShape causal(double tokens) {
  return {.queries = tokens,
          .keys = tokens,
          .heads = 1,
          .key_heads = 1,
          .key_size = 1,
          .value_size = 1,
          .pairs = tokens * (tokens + 1) / 2,
          .longest = tokens,
          .causal = true};
}

// Pairs of query and key as a mask has them, one by one.
std::vector<double> counted(int tokens, int window, int devices, ContextSplit split) {
  std::vector<double> pairs(static_cast<std::size_t>(devices));
  const int parts = split == ContextSplit::Zigzag ? 2 * devices : devices, each = tokens / parts;
  for (int query = 0; query < tokens; ++query) {
    const int part = query / each, device = part < devices ? part : 2 * devices - 1 - part;
    for (int key = 0; key <= query; ++key)
      if (query - key < window) ++pairs[static_cast<std::size_t>(device)];
  }
  return pairs;
}

}  // namespace

TEST_CASE("More devices for a sequence than there are divide nothing: whoever makes the plan refuses them") {
  Scenario scenario = shared(4, ContextExchange::Ring);
  scenario.plan.context_parallel.value = 1'000'000'000;  // in no time and no memory
  CHECK(attention(scenario).degree() == 1);
}

TEST_CASE("pairs: chunks from both ends see as many keys, one stretch does not") {
  CHECK(pairs_by_device(causal(8), 2, ContextSplit::Zigzag) == std::vector<double>{18, 18});
  CHECK(pairs_by_device(causal(8), 2, ContextSplit::Contiguous) == std::vector<double>{10, 26});
  // A device's own four tokens make 10 of its 18 pairs, those of the other device 8: the two steps of a ring are priced as
  // their mean.                                                                                         [StripedAttention23]
  CHECK(pairs_of(causal(4), 0, 4) == 10);
  CHECK(attention(shared(2, ContextExchange::Ring, 8)).kernel(causal(8)).pairs == (10 + 8) / 2.0);
  for (const int window : {5, 16, 48})
    for (const int devices : {1, 2, 4})
      for (const ContextSplit split : {ContextSplit::Zigzag, ContextSplit::Contiguous}) {
        AttentionShape shape = causal(48);
        shape.longest = window;
        CAPTURE(window);
        CAPTURE(devices);
        CHECK(pairs_by_device(shape, devices, split) == counted(48, window, devices, split));
      }
  AttentionShape all = causal(8);
  all.causal = false, all.pairs = 64;
  CHECK(pairs_by_device(all, 2, ContextSplit::Contiguous) == std::vector<double>{32, 32});
}

TEST_CASE("a ring hides its messages behind attention as far as that is longer") {
  const ContextAttention ring = attention(shared(4, ContextExchange::Ring));
  CHECK(ring.kernels() == 4);
  CHECK(ring.forward(3 * kMs, ms_to_send(2)) == doctest::Approx(12 * kMs));
  CHECK(ring.forward(3 * kMs, ms_to_send(4)) == doctest::Approx(15 * kMs));
  const ContextAttention gathered = attention(shared(4, ContextExchange::AllGather));
  CHECK(gathered.kernels() == 1);
  CHECK(gathered.forward(12 * kMs, ms_to_send(2)) == doctest::Approx(18 * kMs));
  CHECK(gathered.backward(24 * kMs, ms_to_send(2)) == doctest::Approx(36 * kMs));
  // Keys and values, and the first gradients of theirs, are hidden; the last gradients have to go home.
  const ContextAttention two = attention(shared(2, ContextExchange::Ring));
  CHECK(two.backward(6 * kMs, ms_to_send(2)) == doctest::Approx(14 * kMs));
  // Four: 3 behind 5 ms, 6 ms next to 5 twice, 5, and 3 home.
  CHECK(ring.backward(5 * kMs, ms_to_send(3)) == doctest::Approx((5 + 6 + 6 + 5 + 3) * kMs));
  // Of all queries and keys, in a step: a quarter of the queries, and an eighth of the keys.
  AttentionShape shape = causal(4096);
  CHECK(ring.bytes_share(shape) == doctest::Approx((0.25 + 0.125) / 2));
  CHECK(gathered.bytes_share(shape) == doctest::Approx((0.25 + 1) / 2));
  CHECK(ring.calls(false) == 3);
  CHECK(ring.calls(true) == 7);
}

TEST_CASE("heads that are exchanged: all but a device's own part leaves it, before and behind attention") {
  const ContextAttention exchanged = attention(shared(4, ContextExchange::AllToAll));
  CHECK(exchanged.kernels() == 1);
  // Queries of 2 ms and keys of 1, three quarters each; results of 2 ms back.
  const ContextTensors own{.keys = 1e8, .queries = 4e8};
  CHECK(exchanged.forward(12 * kMs, own) == doctest::Approx(12 * kMs + (3 + 2) * kMs * 3 / 4));
  CHECK(exchanged.backward(12 * kMs, own) == doctest::Approx(12 * kMs + (2 + 3) * kMs * 3 / 4));
  Scenario both = shared(4, ContextExchange::TwoLevel);
  both.plan.context_inner = Placed<std::int64_t>{2, {}};
  const ContextAttention two_level = attention(both);
  CHECK(two_level.kernels() == 2);
  CHECK(two_level.calls(true) == 2 + 3);
  both.plan.context_inner->value = 4;
  CHECK(attention(both).calls(true) == exchanged.calls(true));
  both.plan.context_inner->value = 1;
  CHECK(attention(both).calls(true) == 7);
  // Half of what is exchanged leaves; rings of two.
  CHECK(two_level.forward(6 * kMs, own) == doctest::Approx(12 * kMs + (3 + 2) * kMs / 2));
}

TEST_CASE("heads that are exchanged inside a node do not see the network") {
  Scenario scenario = shared(4, ContextExchange::TwoLevel);
  scenario.plan.context_inner = Placed<std::int64_t>{2, {}};
  scenario.cluster.devices_per_node = 2, scenario.cluster.nodes = 2;
  scenario.cluster.network.emplace();
  scenario.cluster.network->bandwidth = Bandwidth{1e9};
  const ContextTensors queries{.keys = 0, .queries = 4e8};
  CHECK(attention(scenario).forward(6 * kMs, queries) == doctest::Approx(12 * kMs + 4 * kMs / 2));
}

TEST_CASE("kernels of a pass add up to a device's part of the pairs") {
  const AttentionShape whole = causal(4096);
  for (const ContextExchange exchange :
       {ContextExchange::Ring, ContextExchange::AllGather, ContextExchange::AllToAll, ContextExchange::TwoLevel}) {
    Scenario scenario = shared(4, exchange);
    if (exchange == ContextExchange::TwoLevel) scenario.plan.context_inner = Placed<std::int64_t>{2, {}};
    const ContextAttention of = attention(scenario);
    AttentionShape shape = whole;
    shape.heads = shape.key_heads = 16;
    const AttentionShape one = of.kernel(shape);
    CHECK(of.kernels() * one.pairs * one.heads == doctest::Approx(shape.pairs * shape.heads / 4));
    CHECK(of.kernels() * of.flops_share(shape) == doctest::Approx(0.25));
    scenario.plan.context_imbalance.value = 1.5;
    CHECK(attention(scenario).flops_share(shape) == doctest::Approx(1.5 * of.flops_share(shape)));
    scenario.plan.context_imbalance.value = 1;
    scenario.plan.context_split.value = ContextSplit::Contiguous;
    const double fullest = exchange == ContextExchange::AllToAll   ? 1  // heads, whichever tokens a device had
                           : exchange == ContextExchange::TwoLevel ? 1.5
                                                                   : 1.75;
    CHECK(attention(scenario).flops_share(shape) == doctest::Approx(fullest * of.flops_share(shape)).epsilon(1e-3));
  }
}

// A layer of Llama 3 70B in groups of eight, over 131072 tokens: what is sent, in MB.
TEST_CASE("a device's own keys and values, and what is sent of them") {
  Operator op;
  op.divided = true;
  op.attention = causal(131072);
  op.attention.heads = 64, op.attention.key_heads = 8, op.attention.key_size = op.attention.value_size = 128;
  PlanRequest plan;
  plan.tensor_parallel.value = 8;
  struct Row {
    std::int64_t devices;
    double keys, ring_forward, ring_backward, gathered, exchanged;
  };
  for (const Row& row : {Row{2, 33.55, 33.55, 100.66, 33.55, 150.99}, Row{4, 16.78, 50.33, 117.44, 50.33, 113.25},
                         Row{8, 8.39, 58.72, 125.83, 58.72, 66.06}}) {
    plan.context_parallel.value = row.devices;
    const ContextTensors own = context_tensors(op, plan, 1, 2);
    const double c = static_cast<double>(row.devices), mb = 1e-6;
    CHECK(own.keys * mb == doctest::Approx(row.keys).epsilon(1e-3));
    CHECK((c - 1) * own.keys * mb == doctest::Approx(row.ring_forward).epsilon(1e-3));
    CHECK((2 * c - 1) * own.keys * mb == doctest::Approx(row.ring_backward).epsilon(1e-3));
    CHECK((c - 1) * own.keys * mb == doctest::Approx(row.gathered).epsilon(1e-3));
    CHECK((c - 1) / c * (own.queries + own.keys) * mb == doctest::Approx(row.exchanged).epsilon(1e-3));
  }
}

TEST_CASE("what a device holds for a while, by how keys and values are exchanged") {
  PlanRequest plan;
  plan.context_parallel.value = 4;
  const ContextTensors own{.keys = 100, .queries = 1000};
  CHECK(context_workspace(own, plan, 2) == 2 * (100 + 200));  // one in use, one on its way; gradients in fp32
  plan.context_exchange.value = ContextExchange::AllGather;
  CHECK(context_workspace(own, plan, 2) == 4 * (100 + 200));
  plan.context_exchange.value = ContextExchange::AllToAll;
  CHECK(context_workspace(own, plan, 2) == 1100);
  CHECK(context_part(Bytes{10}, plan) == Bytes{3});
}

TEST_CASE("everything but attention is priced for a device's tokens") {
  Scenario whole = shared(4, ContextExchange::Ring);
  whole.cluster.links.kind = LinkKind::Ideal;
  whole.cluster.device.memory_bandwidth = Bandwidth{1e18};  // arithmetic alone
  Scenario quarter = whole;
  whole.plan.context_parallel.value = 1;
  const LayerCosts all = CostModel(whole).layers(8), part = CostModel(quarter).layers(8);
  CHECK(part.forward[0].value == doctest::Approx(static_cast<double>(all.forward[0].value) / 4).epsilon(1e-4));
  CHECK(part.backward[0].value == doctest::Approx(static_cast<double>(all.backward[0].value) / 4).epsilon(1e-4));
  CHECK(part.activation[0].value * 4 == all.activation[0].value);
  CHECK(part.stash[0].value == doctest::Approx(static_cast<double>(all.stash[0].value) / 4));
}
