// Damaged inputs: whatever the bytes are, the readers give a value or an InputError, nothing else.
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "io/import/hf.hpp"
#include "io/import/kineto.hpp"
#include "io/import/pipedream.hpp"
#include "io/import/training_log.hpp"
#include "io/writers/writers.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

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

struct Tally {
  int good = 0, refused = 0;
};

// Of `times` inputs: those that were read, and those refused with an InputError. Anything else ends the test.
Tally tally_of(int times, auto read) {
  Tally tally;
  for (int i = 0; i < times; ++i) {
    try {
      read(i);
      ++tally.good;
    } catch (const InputError&) {
      ++tally.refused;
    }
  }
  return tally;
}

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

TEST_CASE("A damaged log is read or refused, never anything else") {
  const std::vector<std::string_view> words = {"|",  " iteration 3/ 9 | elapsed time per iteration (ms): 1 |\n",
                                               ":",  "step: 4 memory: 1GiB(1%) tps: 5 mfu: 1%\n",
                                               "\n", "nan",
                                               "-1", "1e999",
                                               "/",  "99999999999999999999",
                                               "%",  "\x1b[31",
                                               ",",  "GiB"};
  const std::string text =
      " iteration 1/ 9 | elapsed time per iteration (ms): 5444.9 | throughput per GPU (TFLOP/s/GPU): 1.8 | global "
      "batch "
      "size: 64 | lm loss: 1.8E+00 |\n[Rank 0] memory (MB) | max allocated: 1024.0 | max reserved: 2048.0\n iteration "
      "2/ 9 | elapsed time per iteration (ms): 36.1/40.0 | global batch size: 64 |\n";
  const Tally tally =
      tally_of(3000, [&, mutator = Mutator(20260104), scratch = std::make_shared<Scratch>()](int) mutable {
        const TrainingLog log = read_training_log(scratch->write("x.log", mutator.mutated(text, words)));
        CHECK(!log.steps.empty());
      });
  CHECK(tally.good > 100);
  CHECK(tally.refused > 100);
}

TEST_CASE("A damaged trace is read or refused, never anything else, packed or not") {
  const std::vector<std::string_view> words = {"{",
                                               "}",
                                               "[",
                                               "]",
                                               ",",
                                               ":",
                                               "\"",
                                               "PP:",
                                               "\"ts\"",
                                               "\"dur\"",
                                               "1e999",
                                               "-1",
                                               "\"ph\": \"X\"",
                                               "0F3",
                                               "null",
                                               "\\u0000",
                                               "true",
                                               "\x1f\x8b",
                                               "18446744073709551616"};
  const std::string text =
      R"({"distributedInfo": {"rank": 1}, "traceEvents": [{"ph": "X", "cat": "user_annotation", "name": "PP:0F3", )"
      R"("pid": 1, "ts": 10.250, "dur": 5, "args": {"a": [1, 2]}}, {"ph": "X", "name": "PP:1B0", "ts": 1, "dur": 2}]})";
  const Tally tally =
      tally_of(3000, [&, mutator = Mutator(20260105), scratch = std::make_shared<Scratch>()](int i) mutable {
        const bool packed = i % 3 == 0;  // then the packed bytes are damaged
        const ActionTrace trace =
            read_action_trace(scratch->write("x.json", mutator.mutated(packed ? gzip(text) : text, words)));
        CHECK(!trace.actions.empty());
      });
  CHECK(tally.good > 20);
  CHECK(tally.refused > 500);
}
