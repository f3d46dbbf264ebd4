// PipeDream's profiles: the traps of their format one by one. tests/papers/published_profiles_test.cpp has
// the published files with their totals.
#include "io/import/pipedream.hpp"

#include <doctest/doctest.h>

#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

std::string node(const std::string& id, const std::string& what, const std::string& figures) {
  return id + " -- " + what + " -- " + figures + "\n";
}
std::string figures(const std::string& forward, const std::string& backward, const std::string& activation,
                    const std::string& parameters) {
  return "forward_compute_time=" + forward + ", backward_compute_time=" + backward + ", activation_size=" + activation +
         ", parameter_size=" + parameters;
}

const std::string kInput = node("node1", "Input", figures("635.902", "0.000", "1204224.000", "0.000"));
const std::string kConv =
    node("node2", "Conv2d(3, 64, kernel_size=(3, 3))", figures("2.211", "2.788", "800.000", "16.000"));

Model parsed_pipedream(const std::string& text) {
  return parse_pipedream_profile(text, "graph.txt", {});
}
std::string pipedream_refusal(const std::string& text) {
  return message_of([&] { parsed_pipedream(text); });
}

}  // namespace

TEST_CASE("Times become exact nanoseconds, bytes of parameters their count, the description its head") {
  const Model model = parsed_pipedream(kInput + kConv + "\tnode1 -- node2");
  REQUIRE(model.layers.size() == 1);
  CHECK(model.layers[0].name == "node2 Conv2d");
  CHECK(model.layers[0].forward == Time{2'211'000});
  CHECK(model.layers[0].backward == Time{2'788'000});
  CHECK(model.layers[0].activation == Bytes{800});
  CHECK(model.layers[0].parameters == 4);
}

TEST_CASE("Input nodes go, with their data-loading time; their tensor gives the batch") {
  const Model model = parsed_pipedream(kInput + kConv + "\tnode1 -- node2\n");
  CHECK(model.layers[0].inputs.empty());
  CHECK(model.input == Bytes{1'204'224});
  CHECK(model.batch == 2);  // 1204224 B = 2 images of 3 x 224 x 224 x 4 B
  CHECK(model.batch_stated);
  CHECK(parse_pipedream_profile(kInput + kConv + "\tnode1 -- node2\n", "graph.txt", 64).batch == 64);
  CHECK(parsed_pipedream(node("node1", "Input", figures("0", "0", "2145624.0", "0")) + kConv + "\tnode1 -- node2\n")
            .batch == 2);
  CHECK(pipedream_refusal(node("node1", "Input", figures("0", "0", "0.0", "0")) + kConv + "\tnode1 -- node2\n") ==
        "graph.txt:1:1: batch: cannot be derived from an input of 0 B (no whole number of 3x224x224 or 3x299x299 fp32 "
        "images); state N, the samples that the profile was taken with: --batch N on the command line of import, "
        "batch: N with pipedream_profile in a scenario");
  CHECK(pipedream_refusal(kConv + node("node3", "ReLU", figures("1", "1", "8", "0")) + "\tnode2 -- node3\n")
            .find("graph.txt: batch: ") == 0);  // without an Input node there is no line to name
}

TEST_CASE("Sizes in a list are summed, and unused parts of a tuple go") {
  const Model model = parsed_pipedream(
      kInput + node("node3", "LSTM(1024, 1024)", figures("1", "1", "[6291456.0; 131072.0; 131072.0]", "0")) +
      node("node4", "__getitem__(0)", figures("0", "0", "6291456.0", "0")) +
      node("node5", "__getitem__(1)", figures("0", "0", "131072.0", "0")) +
      node("node6", "Linear", figures("1", "1", "4.0", "0")) +
      "\tnode1 -- node3\n\tnode3 -- node4\n\tnode3 -- node5\n\tnode4 -- node6\n");
  REQUIRE(model.layers.size() == 3);
  CHECK(model.layers[0].activation == Bytes{6'553'600});
  CHECK(model.layers[1].name == "node4 __getitem__");
  CHECK(model.layers[2].inputs == std::vector<LayerId>{1});
}

TEST_CASE("Lines in any order, a stage suffix, Windows line ends and integers with a trailing blank are read") {
  const Model model =
      parsed_pipedream(node("node9", "ReLU(inplace)", figures("1", "1", "8", "0 -- stage_id=2")) + "node2 -- Conv -- " +
                       figures("2", "2", "8", "0 ") + "\r\n" + kInput + "\tnode2 -- node9\r\n\tnode1 -- node2");
  REQUIRE(model.layers.size() == 2);
  CHECK(model.layers[0].name == "node2 Conv");
  CHECK(model.layers[1].inputs == std::vector<LayerId>{0});
}

TEST_CASE("A broken profile names file, line and what is wrong") {
  CHECK(pipedream_refusal("") == "graph.txt: holds no node; a PipeDream profile is a graph.txt");
  CHECK(pipedream_refusal(kInput) == "graph.txt: holds no layer besides its input; a PipeDream profile is a graph.txt");
  CHECK(pipedream_refusal(kInput + "node2 -- Conv -- forward_compute_time=2.2, backward_comp") ==
        "graph.txt:2:1: backward_compute_time is missing; is the file truncated?");
  CHECK(pipedream_refusal(kInput + "node2 -- Con")
            .find("graph.txt:2:1: \"node2 -- Con\" is not a line of a PipeDream profile") == 0);
  CHECK(pipedream_refusal(kInput + kConv + "\tnode1 -- nod") ==
        "graph.txt:3:1: no node is called \"nod\"; is the file truncated?");
  CHECK(pipedream_refusal(kInput + kConv + "\tnode1 -").find("graph.txt:3:1: \"node1 -\" is not an edge") == 0);
  CHECK(pipedream_refusal(kInput + kConv + node("node3", "ReLU", figures("1", "1", "8", "0"))) ==
        "graph.txt: holds no edge; is the file truncated?");
  CHECK(pipedream_refusal(kInput + kConv + kConv) ==
        "graph.txt:3:1: a node \"node2\" stands above already; each node has one line");
  CHECK(pipedream_refusal(node("n", "Conv", figures("nan", "0", "0", "0"))) ==
        "graph.txt:1:1: forward_compute_time: \"nan\" is not a number (NaN); write a finite one");
  CHECK(pipedream_refusal(node("n", "Conv", figures("-1", "0", "0", "0"))).find("\"-1\" is negative") !=
        std::string::npos);
  CHECK(pipedream_refusal(node("n", "Conv", figures("0", "0", "[1; 2", "0"))).find("lacks its \"]\"") !=
        std::string::npos);
  CHECK(
      pipedream_refusal(node("n", "Conv", figures("0", "0", "0", "7"))).find("is not a whole number of fp32 weights") !=
      std::string::npos);
  CHECK(pipedream_refusal(kInput + kConv + node("node3", "ReLU", figures("1", "1", "8", "0")) +
                          "\tnode2 -- node3\n\tnode3 -- node2\n")
            .find("cycle") != std::string::npos);
}

TEST_CASE("The YAML of an imported model reads back to the identical model") {
  const Scratch scratch;
  const Model model = parsed_pipedream(kInput + kConv + node("node3", "ReLU", figures("0.001", "1", "8", "0")) +
                                       node("node4", "Add", figures("1", "1", "205520896.000", "0")) +
                                       "\tnode1 -- node2\n\tnode2 -- node3\n\tnode3 -- node4\n\tnode2 -- node4\n");
  const std::string yaml = model_yaml(model, "from graph.txt\nsha256 0123");
  CHECK(yaml.starts_with("# from graph.txt\n# sha256 0123\nmodel:\n"));
  const Model back = read_model(scratch.write("m.yaml", yaml));
  CHECK(back.name == model.name);
  CHECK(back.batch == model.batch);
  CHECK(back.input == model.input);
  CHECK(back.source == model.source);
  REQUIRE(back.layers.size() == model.layers.size());
  for (LayerId i = 0; i < std::ssize(model.layers); ++i) {
    CHECK(back.layers[i].name == model.layers[i].name);
    CHECK(back.layers[i].forward == model.layers[i].forward);
    CHECK(back.layers[i].backward == model.layers[i].backward);
    CHECK(back.layers[i].activation == model.layers[i].activation);
    CHECK(back.layers[i].parameters == model.layers[i].parameters);
    CHECK(back.layers[i].inputs == model.layers[i].inputs);
  }
}
