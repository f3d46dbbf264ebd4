// What exchanges of tokens cut the ops of a chunk into (core/cost/cell_parts.hpp).
#include "core/cost/cell_parts.hpp"

#include <doctest/doctest.h>

#include "tests/support/microseconds.hpp"

using namespace pipewright::tests;

namespace {

using Part = StepCosts::Part;

Operator with(std::string_view name, double flops, bool travels = false) {
  Operator op{.name = name, .kind = OperatorKind::Memory};
  op.forward_flops = op.input_flops = op.weight_flops = flops;
  if (travels) op.expert = true, op.sent = {.tokens = 1, .active = 1, .experts = 8, .features = 1};
  return op;
}

// Whose shares are those of FLOPs.
struct ByFlops : CostSource {
  Passes price(const Model&, LayerId, std::int64_t) const override { return {}; }
  Time op_overhead() const override { return {}; }
  Time update(std::int64_t) const override { return {}; }
  std::string provenance() const override { return ""; }
};

// Layers of one work with shares 4, 3 and 1 of 8 before the experts, of them, and behind, and one without experts.
struct Example {
  Model model;
  Plan plan;
  LayerCosts all, computing;

  explicit Example(std::vector<std::int32_t> works) {
    model.works.emplace_back();
    model.works[0].operators = {with("attention", 4), with("dispatch", 0, true), with("experts", 3),
                                with("combine", 0, true), with("norm", 1)};
    model.works.emplace_back();
    model.works[1].operators = {with("dense", 8)};
    for (const std::int32_t work : works) {
      model.layers.push_back({.work = work});
      const Time travels = work == 0 ? us(10) : us(0);
      for (const auto& [times, of] : {std::pair{&LayerCosts::forward, us(10)},
                                      {&LayerCosts::again, us(10)},
                                      {&LayerCosts::rebuild, us(0)},
                                      {&LayerCosts::backward_input, us(20)}})
        (all.*times).push_back(of + travels), (computing.*times).push_back(of);
      all.rebuild.back() = {};
      for (LayerCosts* costs : {&all, &computing})
        costs->backward_weight.push_back(us(8));
    }
    plan.stages = 1, plan.micro_batches = 1, plan.micro_batch_size = 1;
    plan.layers = {{0, static_cast<LayerId>(works.size())}};
    plan.recompute = {Recompute::None};
  }
  CellParts parts() const { return CellParts(plan, 0, model, ByFlops(), all, computing); }
};

}  // namespace

TEST_CASE("parts of a forward: layers follow one another, and what lies between two exchanges is one part") {
  Example two({0, 0});
  CHECK(two.parts().of(Kind::F, us(40), us(20)) == std::vector<Part>{{us(5), {}, us(5)},
                                                                     {Time{3750}, {}, us(5)},
                                                                     {Time{6250}, {}, us(5)},
                                                                     {Time{3750}, {}, us(5)},
                                                                     {Time{1250}, {}, us(0)}});
  // An op that takes longer than its layers: both in proportion, to the nanosecond.
  Time computing, exchanged;
  for (const Part& part : two.parts().of(Kind::F, us(53), us(23)))
    computing += part.computing, exchanged += part.exchange;
  CHECK(computing == us(23));
  CHECK(exchanged == us(30));
}

TEST_CASE("parts of a backward: from behind, gradients of weights in their part, behind what is computed again") {
  Example one({0});
  // 20 us and 8 for weights, in 1, 3 and 4 of 8.
  CHECK(one.parts().of(Kind::BW, us(38), us(28)) ==
        std::vector<Part>{{Time{3500}, us(1), us(5)}, {Time{10'500}, us(3), us(5)}, {us(14), us(4), {}}});
  CHECK(one.parts().of(Kind::B, us(30), us(20)) ==
        std::vector<Part>{{Time{2500}, {}, us(5)}, {Time{7500}, {}, us(5)}, {us(10), {}, {}}});
  CHECK(one.parts().of(Kind::W, us(8), us(8)).empty());
  one.plan.recompute = {Recompute::Layers};
  one.plan.rebuilt = {0};
  const std::vector<Part> again = one.parts().of(Kind::B, us(50), us(30));
  REQUIRE(again.size() == 5);
  CHECK(again[0] == Part{us(5), {}, us(5)});
  CHECK(again[2] == Part{Time{1250 + 2500}, {}, us(5)});
}

TEST_CASE("parts: layers without experts join their neighbours, and where nothing travels there are none") {
  Example mixed({1, 0, 1});
  CHECK(mixed.parts().of(Kind::F, us(40), us(30)) ==
        std::vector<Part>{{us(15), {}, us(5)}, {Time{3750}, {}, us(5)}, {Time{11'250}, {}, {}}});
  CHECK(Example({1}).parts().of(Kind::F, us(10), us(10)).empty());
}
