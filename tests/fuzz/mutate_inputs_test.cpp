// Damaged inputs: whatever the bytes are, the readers give a value or an InputError, nothing else.
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "io/import/hf.hpp"
#include "io/import/pipedream.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright;

namespace {

// Seeded, so that a failure can be repeated. std::mt19937's sequence is the same everywhere; the ranges are our own.
class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::string mutated(std::string text, const std::vector<std::string_view>& words) {
    for (std::size_t times = 1 + below(4); times > 0; --times) {
      const std::size_t at = below(text.size() + 1);
      switch (below(5)) {
        case 0: text.insert(at, 1, static_cast<char>(below(256))); break;
        case 1: text.erase(at, 1 + below(8)); break;
        case 2: text.insert(at, words[below(words.size())]); break;
        case 3: text.insert(at, text.substr(below(text.size() + 1), below(40))); break;
        default: text.resize(at);
      }
    }
    return text;
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }
  std::mt19937 random_;
};

const char* const kScenario =
    "version: 1\nname: x\nmodel: {name: m, batch: 4, layers: [{name: a, forward: 1 ms, backward: 2 ms, activation: 8 "
    "MiB},\n {name: b, repeat: 3, flops: 1 GFLOP, parameters: 4 MiB}, {name: c, inputs: [a, b], stash: 1 kB}]}\n"
    "cluster:\n  nodes: 2\n  node: {devices: 2, device: {memory: {value: 16 GiB, source: y}}, links: {kind: pcie, "
    "bandwidth: 10 GB/s}}\n  network: {bandwidth: 100 Gb/s, latency: 5 us}\ntraining: {micro_batch_size: 1, "
    "micro_batches: 4}\nplan:\n  stages: 2\n  partition: {cuts: [b.1]}\n  recompute: [none, full]\n";

const char* const kGraph =
    "node1 -- Input -- forward_compute_time=1.0, backward_compute_time=0.0, activation_size=602112.0, "
    "parameter_size=0.0\nnode2 -- LSTM(1) -- forward_compute_time=2.0, backward_compute_time=4.0, "
    "activation_size=[8.0; 4.0], parameter_size=8.0\nnode3 -- __getitem__(0) -- forward_compute_time=0, "
    "backward_compute_time=0, activation_size=4, parameter_size=0 -- stage_id=1\n\tnode1 -- node2\n\tnode2 -- node3";

}  // namespace

TEST_CASE("A damaged scenario is read or refused, never anything else") {
  const std::vector<std::string_view> words = {"&a ",  "*a",       "<<: ", "!!int ", "---\n",
                                               "{",    "}",        "[",    "]",      ": ",
                                               "\n- ", "010",      ".nan", "1e999",  "99999999999999999999",
                                               "-1",   "|\n",      "\"",   "'",      "null",
                                               "? ",   "#",        "\t",   "\r",     "%YAML 1.2\n",
                                               "0 B",  "1e-400 ms"};
  Mutator mutator(20260101);
  const Scratch scratch;
  int good = 0, refused = 0;
  for (int i = 0; i < 1500; ++i) {
    const std::string path = scratch.write("x.yaml", mutator.mutated(kScenario, words));
    try {
      const Scenario scenario = read_scenario(path);
      resolved_yaml(scenario);
      ++good;
    } catch (const InputError& error) {
      CHECK(std::string_view(error.what()).size() > 10);
      ++refused;
    }
  }
  CHECK(good > 5);  // the loop reaches beyond the first check
  CHECK(refused > 50);
}

TEST_CASE("A damaged profile is read or refused, never anything else") {
  const std::vector<std::string_view> words = {" -- ",
                                               "\t",
                                               "\n",
                                               "node1",
                                               "[",
                                               "]",
                                               ";",
                                               "=",
                                               ", ",
                                               "nan",
                                               "1e99",
                                               "-",
                                               "parameter_size=",
                                               "99999999999999999999"};
  Mutator mutator(20260102);
  int good = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    try {
      const Model model = parse_pipedream_profile(mutator.mutated(kGraph, words), "graph.txt", {});
      CHECK(!model.layers.empty());
      ++good;
    } catch (const InputError&) {
      ++refused;
    }
  }
  CHECK(good > 100);
  CHECK(refused > 500);
}

TEST_CASE("A damaged configuration is read or refused, and what is read is built or refused") {
  const std::vector<std::string_view> words = {"{",
                                               "}",
                                               "[",
                                               "]",
                                               ",",
                                               ":",
                                               "\"",
                                               "null",
                                               "true",
                                               "1e999",
                                               "0",
                                               "-1",
                                               "99999999",
                                               "99999999999999999999",
                                               "\"head_dim\": 3,",
                                               "\"num_local_experts\": 8,",
                                               "\"text_config\": {",
                                               "\\u0000"};
  const std::string text =
      "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 64, \"intermediate_size\": 128, \"num_hidden_layers\": 4, "
      "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 8, \"vocab_size\": 1000, \"num_experts\": "
      "8, "
      "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, \"max_position_embeddings\": 512, "
      "\"mlp_only_layers\": [1], \"sliding_window\": 64, \"use_sliding_window\": true, \"max_window_layers\": 1}";
  Mutator mutator(20260103);
  int good = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    try {
      const HfConfig config = parse_hf_config(mutator.mutated(text, words), "config.json", {});
      CHECK(build(config.transformer).layers.size() >= 3);
      ++good;
    } catch (const InputError&) {
      ++refused;
    }
  }
  CHECK(good > 100);
  CHECK(refused > 500);
}
