// Measured pieces: a table, JSON, tasks of Megatron-LM's simulation, and what is refused. What a scenario makes of them
// is computed by hand.
#include "io/import/pieces.hpp"

#include <cstdlib>
#include <string>
#include <variant>

#include <doctest/doctest.h>

#include "planner/answer.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

const ReadOptions kShipped{.set = {}, .config_path = {std::string(std::getenv("PIPEWRIGHT_SOURCE")) + "/configs"}};
const std::string kPiecesHead = "chunk,rank,forward_ms,backward_ms,kept_bytes,output_bytes,states_bytes,parameters\n";

Model pieces_in(const std::string& text) {
  return parse_pieces(text, "pieces.csv", {});
}
std::string pieces_refusal(const std::string& text) {
  return message_of([&] { pieces_in(text); });
}

}  // namespace

TEST_CASE("Pieces: a row per chunk is a chain of layers with the times and bytes of the table") {
  const Model model = pieces_in("# one H100, 2026-11-20\n# by hand\n" + kPiecesHead +
                                "0,0,12.5,25,1000,64,4096,10\n"
                                "1,0,10,20.000001,900,,,\n");
  REQUIRE(model.layers.size() == 2);
  const Layer &first = model.layers[0], &second = model.layers[1];
  CHECK(first.name == "chunk0");
  CHECK(first.forward == Time{12'500'000});
  CHECK(first.backward == Time{25'000'000});
  CHECK_FALSE(first.backward_input.has_value());
  CHECK(first.stash == Bytes{1000});
  CHECK(first.activation == Bytes{64});
  CHECK(first.states == Bytes{4096});
  CHECK(first.parameters == 10);
  CHECK(second.inputs == std::vector<LayerId>{0});
  CHECK(second.backward == Time{20'000'001});
  CHECK(second.activation == Bytes{0});
  CHECK_FALSE(second.states.has_value());
  CHECK(model.batch == 1);
  CHECK(model.measured_pieces);
  CHECK(model.source.find("2 measured pieces of pieces.csv, sha256 ") == 0);
  CHECK(model.source.find(": one H100, 2026-11-20 by hand") != std::string::npos);
  CHECK(parse_pieces(kPiecesHead + "0,0,1,2,,,,\n", "pieces.csv", 4).batch == 4);
}

TEST_CASE("Pieces: of several ranks the slowest counts, and the most bytes of any") {
  const Model model = pieces_in(kPiecesHead + "0,0,10,20,1000,64,,\n0,1,12,21,800,64,,\n0,2,11,20,900,80,,\n");
  REQUIRE(model.layers.size() == 1);
  CHECK(model.layers[0].forward == Time{12'000'000});
  CHECK(model.layers[0].backward == Time{21'000'000});
  CHECK(model.layers[0].stash == Bytes{1000});
  CHECK(model.layers[0].activation == Bytes{80});
  CHECK(model.source.find("the slowest of up to 3 ranks of a chunk counts, they are up to 10.0 % apart") !=
        std::string::npos);  // 33 ms over 30 ms
}

TEST_CASE("Pieces: JSON says the same as a table") {
  const Model table =
      pieces_in("chunk,forward_ms,backward_input_ms,backward_weight_ms,kept_bytes\n1,4,3,2,7\n0,1,1,1,5\n");
  const Model json = parse_pieces(
      R"({"schema": "pipewright.pieces/1", "source": "by hand", "batch": 2, "pieces": [
          {"chunk": 1, "forward_ms": 4, "backward_input_ms": 3, "backward_weight_ms": 2, "kept_bytes": 7},
          {"chunk": 0, "forward_ms": 1, "backward_input_ms": 1, "backward_weight_ms": 1, "kept_bytes": 5}]})",
      "pieces.json", {});
  REQUIRE(table.layers.size() == json.layers.size());
  for (LayerId i = 0; i < std::ssize(table.layers); ++i) {
    CHECK(table.layers[i].forward == json.layers[i].forward);
    CHECK(table.layers[i].backward == json.layers[i].backward);
    CHECK(table.layers[i].backward_weight == json.layers[i].backward_weight);
    CHECK(table.layers[i].stash == json.layers[i].stash);
  }
  CHECK(table.layers[1].backward == Time{5'000'000});
  CHECK(json.batch == 2);
}

TEST_CASE("Pieces: tasks of Megatron-LM's simulation, chunk i of rank r of 2 being 2 i + r, by the median") {
  std::string text;
  const auto add = [&](int rank, int micro_batch, int chunk, const std::string& type, double ms) {
    text += (text.empty() ? "{" : ", ") + std::string("\"pp_") + std::to_string(rank) + "-mbs_" +
            std::to_string(micro_batch) + "-model_chunk_" + std::to_string(chunk) + "-task_type_" + type +
            "\": {\"duration_ms\": " + std::to_string(ms) + ", \"pp_rank\": " + std::to_string(rank) +
            ", \"microbatch_id\": " + std::to_string(micro_batch) + ", \"model_chunk_id\": " + std::to_string(chunk) +
            ", \"task_type\": \"" + type + "\"}";
  };
  for (int chunk = 0; chunk < 2; ++chunk)
    for (int rank = 0; rank < 2; ++rank)
      for (int m = 0; m < 3; ++m) {
        add(rank, m, chunk, "forward", 10 * (2 * chunk + rank) + m + 1);  // medians 2, 12, 22, 32
        add(rank, m, chunk, "backward", 100 * (2 * chunk + rank) + m + 1);
      }
  const Model model = parse_pieces(text + "}", "task_durations.json", {});
  REQUIRE(model.layers.size() == 4);
  for (int e = 0; e < 4; ++e) {
    CHECK(model.layers[e].forward == Time{(10 * e + 2) * 1'000'000});
    CHECK(model.layers[e].backward == Time{(100 * e + 2) * 1'000'000});
  }
  CHECK(model.source.find("Megatron-LM") != std::string::npos);
}

TEST_CASE("Pieces: what is wrong is named with its line or path") {
  CHECK(pieces_refusal("").find("pieces.csv: holds no measured piece; columns: chunk, rank, forward_ms") == 0);
  CHECK(pieces_refusal("chunk,forward\n0,1\n").find("pieces.csv:1:7: \"forward\" is not a column of measured pieces") ==
        0);
  CHECK(pieces_refusal("chunk,chunk\n").find("pieces.csv:1:7: \"chunk\" stands there twice") == 0);
  CHECK(pieces_refusal("chunk,forward_ms,backward_ms\n0,1\n") ==
        "pieces.csv:2:1: has 2 values under 3 columns; is the file truncated?");
  CHECK(pieces_refusal("chunk,forward_ms,backward_ms\n0,x,1\n").find("pieces.csv:2:3: forward_ms: \"x\" ") == 0);
  CHECK(pieces_refusal("chunk,forward_ms,backward_ms\n0,-1,1\n").find("pieces.csv:2:3: forward_ms: \"-1\" ") == 0);
  CHECK(pieces_refusal("forward_ms,backward_ms\n1,1\n").find("pieces.csv:2:1: names no chunk") == 0);
  CHECK(pieces_refusal("chunk,forward_ms,backward_ms\n0,1,2\n2,1,2\n") ==
        "pieces.csv: has no chunk 1, but 2; number them 0, 1, ... along the forward");
  CHECK(pieces_refusal("chunk,forward_ms,backward_ms\n0,1,2\n0,1,2\n")
            .find("pieces.csv:3:1: chunk 0 of rank 0 stands above") == 0);
  CHECK(pieces_refusal("chunk,backward_ms\n0,2\n").find("pieces.csv:2:1: chunk 0 has no forward_ms") == 0);
  CHECK(pieces_refusal("chunk,forward_ms,backward_input_ms\n0,2,1\n").find("pieces.csv:2:1: chunk 0 has one half") ==
        0);
  CHECK(pieces_refusal("chunk,forward_ms,backward_ms,backward_input_ms,backward_weight_ms\n0,2,4,1,1\n")
            .find("backward_ms is not") != std::string::npos);
  CHECK(pieces_refusal("chunk,forward_ms,backward_ms,backward_input_ms,backward_weight_ms\n0,2,,1,1\n1,2,2,,\n")
            .find("unlike chunk 0") != std::string::npos);
  CHECK(pieces_refusal("chunk,forward_ms,backward_ms\n0.4,1,2\n").find("pieces.csv:2:1: chunk: \"0.4\" ") == 0);
  CHECK(pieces_refusal("chunk,forward_ms,backward_ms\n0,4611686018427.387,4611686018427.387\n") ==
        "pieces.csv:2:1: chunk 0: its times overflow");
  CHECK(pieces_refusal("[]").find("pieces.csv: is a list; write {\"schema\": \"pipewright.pieces/1\"") == 0);
  CHECK(pieces_refusal(R"({"schema": "pipewright.pieces/1", "bacth": 8, "pieces": []})") ==
        "pieces.csv: bacth is not known here; keys: schema, source, batch, pieces; write schema pipewright.pieces/1");
  CHECK(pieces_refusal("chunk,forward_ms,backward_ms\n99999,2,4\n").find("at most 65535") != std::string::npos);
  CHECK(pieces_refusal(R"({"schema": "pipewright.pieces/2"})").find("schema is not pipewright.pieces/1") !=
        std::string::npos);
  CHECK(pieces_refusal(R"({"schema": "pipewright.pieces/1", "pieces": [{"chunk": 0, "forward_ms": -1}]})")
            .find("pieces[0].forward_ms must be 0 or more") != std::string::npos);
  CHECK(pieces_refusal(R"({"schema": "pipewright.pieces/1", "pieces": [{"chunk": 0.5}]})")
            .find("pieces[0].chunk must be a whole number") != std::string::npos);
  CHECK(pieces_refusal(R"({"pp_0": {"duration_ms": 1, "pp_rank": 0, "model_chunk_id": 0, "task_type": "forward"}})")
            .find("model_chunk_id 0 of pp_rank 0: chunk 0 has no backward_ms") != std::string::npos);
}

TEST_CASE("Pieces: a scenario runs them on its schedule, with their messages and their memory") {
  const Scratch folder;
  folder.write("pieces.csv", kPiecesHead +
                                 "0,0,2,4,100000,0,7000000,500000\n"
                                 "1,0,2,4,100000,0,5000000,\n");
  const std::string scenario = R"(version: 1
model: {pieces: pieces.csv, output: 1 MB}
cluster: {name: two, nodes: 1, node: {devices: 2, device: a100-sxm-80g, links: {kind: mesh, bandwidth: 1 GB/s}}}
training: {micro_batch_size: 1, micro_batches: 4, precision: fp32, optimizer: adam}
plan: {stages: 2, schedule: gpipe, partition: balanced}
)";
  const std::string path = folder.write("scenario.yaml", scenario);
  const Answer result = std::get<Answer>(answer(read_scenario(path, kShipped), {}));
  // Forwards 2 ms each, a message of 1 ms: 4 forwards, the last message and forward, 4 backwards, one more message and
  // backward: 8 + 1 + 2 + 16 + 1 + 4.
  CHECK(result.report.makespan == Time{32'000'000});
  // What was measured is held between steps, the weights of its parameters among it: 500 000 of 4 B. Nothing is counted in
  // addition, whatever the optimizer.
  CHECK(result.report.stages[0].memory.bytes.weights == Bytes{2'000'000});
  CHECK(result.report.stages[0].memory.bytes.optimizer == Bytes{5'000'000});
  CHECK(result.report.stages[1].memory.bytes.weights == Bytes{0});
  CHECK(result.report.stages[1].memory.bytes.optimizer == Bytes{5'000'000});
  CHECK(result.report.stages[0].memory.bytes.gradients == Bytes{0});
  CHECK(result.report.stages[0].memory.bytes.stash == Bytes{400'000});
  CHECK(result.report.provenance.front().find("layer times: measured pieces, of 1 sample") == 0);
  const std::string written = resolved_yaml(*result.scenario);
  CHECK(written.find("measured_pieces: true") != std::string::npos);
  CHECK(written.find("states: 7 MB") != std::string::npos);
  CHECK(message_of([&] {
          answer(read_scenario(path, {.set = {"training.zero=2"}, .config_path = kShipped.config_path}), {});
        }).find("training.zero: 2 divides gradients, but what layer chunk0 holds was measured as it lay (states)") !=
        std::string::npos);
  folder.write("again.yaml", written);
  CHECK(std::get<Answer>(answer(read_scenario(folder.path("again.yaml"), kShipped), {})).report.makespan ==
        result.report.makespan);
}
