#include "core/model/graph.hpp"

#include <doctest/doctest.h>

#include "tests/support/tensors_over_cut.hpp"

using namespace pipewright::tests;

namespace {

Layer layer(const std::string& name, std::vector<LayerId> inputs, std::int64_t bytes = 0) {
  Layer result;
  result.name = name;
  result.inputs = std::move(inputs);
  result.activation = Bytes{bytes};
  return result;
}

std::string names(const std::vector<Layer>& layers) {
  std::string all;
  for (const Layer& l : layers)
    all += l.name;
  return all;
}

// a -> b -> c -> d -> e, and the output of a is used again by c and by e.
Model with_skip() {
  Model model;
  model.layers = {layer("a", {}, 1), layer("b", {0}, 10), layer("c", {0, 1}, 100), layer("d", {2}, 1000),
                  layer("e", {0, 3}, 10000)};
  return model;
}

}  // namespace

TEST_CASE("A chain keeps its order") {
  CHECK(names(in_topological_order({layer("a", {}), layer("b", {0}), layer("c", {1})})) == "abc");
}

TEST_CASE("Of the layers that are ready, the first of the file goes first") {
  // d, b and c are all ready after a; c is needed by b.
  const auto sorted = in_topological_order({layer("d", {2}), layer("b", {3}), layer("a", {}), layer("c", {2})});
  CHECK(names(sorted) == "adcb");
  CHECK(sorted[1].inputs == std::vector<LayerId>{0});
  CHECK(sorted[2].inputs == std::vector<LayerId>{0});
  CHECK(sorted[3].inputs == std::vector<LayerId>{2});
}

TEST_CASE("A tensor used twice by one layer does not hold it back") {
  CHECK(names(in_topological_order({layer("square", {1, 1}), layer("x", {})})) == "xsquare");
}

TEST_CASE("A cycle is refused at its place, naming its layers and no others") {
  std::vector<Layer> layers = {layer("in", {}), layer("a", {0, 3}), layer("b", {1}), layer("c", {2}),
                               layer("after", {3})};
  layers[1].place = {"m.yaml", 4, 5};
  CHECK_THROWS_WITH_AS(
      in_topological_order(layers),
      "m.yaml:4:5: inputs: cycle: \"a\" needs \"c\" needs \"b\" needs \"a\"; remove one of these inputs", InputError);
}

TEST_CASE("A cycle is found from a layer that only hangs behind it") {
  CHECK_THROWS_WITH_AS(in_topological_order({layer("after", {1}), layer("self", {1})}),
                       "inputs: cycle: \"self\" needs \"self\"; remove one of these inputs", InputError);
}

TEST_CASE("A tensor crosses every cut between its producer and its last user, once") {
  const Model model = with_skip();
  CHECK(tensors_over_cut(model, 1) == std::vector<LayerId>{0});
  CHECK(tensors_over_cut(model, 2) == std::vector<LayerId>{0, 1});
  CHECK(tensors_over_cut(model, 3) == std::vector<LayerId>{0, 2});
  CHECK(tensors_over_cut(model, 4) == std::vector<LayerId>{0, 3});
  CHECK(bytes_over_cuts(model) == std::vector<Bytes>{Bytes{0}, Bytes{1}, Bytes{11}, Bytes{101}, Bytes{1001}, Bytes{0}});
}

TEST_CASE("An output that nobody uses crosses no cut") {
  Model model;
  model.layers = {layer("a", {}, 5), layer("auxiliary", {0}, 7), layer("b", {0}, 9)};
  CHECK(bytes_over_cuts(model) == std::vector<Bytes>{Bytes{0}, Bytes{5}, Bytes{5}, Bytes{0}});
}

TEST_CASE("Bytes over the cuts are the sums of the tensors over each cut") {
  // Two hundred layers with inputs by an arbitrary rule; the slow way is the oracle.
  Model model;
  for (int i = 0; i < 200; ++i) {
    std::vector<LayerId> inputs;
    for (const int back : {1 + i * 7 % 5, 3 + i * i % 50})
      if (i - back >= 0) inputs.push_back(i - back);
    model.layers.push_back(layer("x", inputs, 1 + i * 37 % 101));
  }
  const auto over = bytes_over_cuts(model);
  for (LayerId cut = 1; cut < 200; ++cut) {
    Bytes sum;
    for (const LayerId tensor : tensors_over_cut(model, cut))
      sum += model.layers[tensor].activation;
    REQUIRE(over[static_cast<std::size_t>(cut)] == sum);
  }
}

TEST_CASE("Tensors that together pass 2^62 bytes are refused") {
  Model model;
  model.layers = {layer("a", {}, kLargest), layer("b", {}, 1), layer("c", {0, 1}, 0)};
  CHECK_THROWS_AS(bytes_over_cuts(model), InputError);
}
