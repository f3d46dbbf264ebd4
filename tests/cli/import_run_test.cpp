// `validate --log` and `--trace`. Logs and traces are written by hand here, or by simulate.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

using nlohmann::json;

// Written by hand in Megatron-LM's format: a slow first step, then these.
std::string megatron(const std::vector<std::string>& milliseconds, int batch = 64) {
  std::string text;
  for (std::size_t i = 0; i < milliseconds.size(); ++i)
    text += " iteration " + std::to_string(i + 1) +
            "/ 100 | consumed samples: 64 | elapsed time per iteration (ms): " + milliseconds[i] +
            " | global batch size: " + std::to_string(batch) + " | lm loss: 2.5 |\n";
  return text + "[Rank 0] (after 1 iterations) memory (MB) | max allocated: 1024.0 | max reserved: 2048.0\n";
}

json imported(std::vector<std::string> arguments, int status = 0) {
  arguments.insert(arguments.begin(), "validate");
  arguments.push_back("--json");
  const ProgramRun run = run_program(arguments);
  CAPTURE(run.err);
  REQUIRE(run.status == status);
  return json::parse(run.out);
}

}  // namespace

TEST_CASE("validate --log: the median of the steps behind the warm-up against the predicted step") {
  ScratchFolder folder;
  // quickstart takes 34.6 ms; 36 is the median of 35.5, 36 and 40.
  const std::string log = written(folder, "run.log", megatron({"5000.0", "40.0", "35.5", "36.0"}));
  const json document = imported({kQuickstart, "--log", log, "--warmup", "1"});
  const json step = document["log"]["step_s"];
  CHECK(step["measured_median"] == 0.036);
  CHECK(step["measured_p95"] == 0.04);
  CHECK(step["predicted"] == 0.0346);
  CHECK(double(step["error"]) == doctest::Approx(34.6 / 36 - 1));
  CHECK(document["log"]["allocated_bytes"]["measured"] == 1 << 30);
  CHECK(document["verdict"] == "within");
  CHECK(imported({kQuickstart, "--log", log, "--warmup", "1", "--tolerance", "3%"}, 1)["verdict"] == "outside");
  const ProgramRun table = run_program({"validate", kQuickstart, "--log", log, "--warmup", "1"});
  CHECK(contains(table.out, "log of Megatron-LM: "));
  CHECK(contains(table.out, "(3 steps that count, lines 2 to 4)"));
  CHECK(contains(table.out, "-3.9 %"));
}

TEST_CASE("validate --log -o writes what it prints, as text, JSON and a page, and nothing over what it reads") {
  ScratchFolder folder;
  const std::string log = written(folder, "run.log", megatron({"40.0", "35.5", "36.0"}));
  const std::vector<std::string> asked = {"validate", kQuickstart, "--log", log, "--warmup", "0"};
  std::vector<std::string> more = asked;
  for (const char* name : {"c.txt", "c.json", "c.html"})
    more.insert(more.end(), {"-o", folder.path(name)});
  const ProgramRun run = run_program(more);
  CHECK(run.status == 0);
  CHECK(run.out == run_program(asked).out);
  CHECK(file_text(folder.path("c.txt")) == run.out);
  CHECK(json::parse(file_text(folder.path("c.json"))) == imported({kQuickstart, "--log", log, "--warmup", "0"}));
  const std::string page = file_text(folder.path("c.html"));
  CHECK(contains(page, "<!DOCTYPE html>"));
  CHECK(contains(page, "step (median)"));
  CHECK(contains(page, "within 10.0 % of the measured step"));
  CHECK(contains(page, "pipewright validate scenarios/quickstart.yaml --log "));
  more = asked;
  more.insert(more.end(), {"-o", folder.path("c.pdf")});
  CHECK(contains(error_of(more), "has no known extension; known: .txt, .json, .html"));
  more.back() = folder.path("folder");
  CHECK(contains(error_of(more), "has no known extension"));
  CHECK(contains(error_of({"validate", kQuickstart, "--log", folder.path("c.json"), "-o", folder.path("c.json")}),
                 "is read by this command"));
}

TEST_CASE("validate --log: torchtitan's tokens per second and device make the step") {
  ScratchFolder folder;
  // 64 samples of 100 tokens on 4 devices: 1600 tokens each, at 40,000 per second 40 ms.
  std::string text;
  for (int i = 1; i <= 5; ++i)
    text += "step: " + std::to_string(i) + " loss: 2.0 memory: 1.00GiB(6%) tps: 40,000 tflops: 1.00 mfu: 1.00%\n";
  const std::string log = written(folder, "run.log", text);
  CHECK(contains(error_of({"validate", kQuickstart, "--log", log}), "add --set training.sequence_length=N"));
  const json document =
      imported({kQuickstart, "--log", log, "--set", "training.sequence_length=100", "--tolerance", "15%"});
  CHECK(document["log"]["step_s"]["measured_median"] == 0.04);
  CHECK(document["log"]["steps"] == 2);
  CHECK(document["log"]["tokens_per_s"]["measured"] == 160000.0);
}

TEST_CASE("validate --log: a step with tokens per second alone among timed ones is named, not counted as nothing") {
  ScratchFolder folder;
  const std::string run = written(folder, "run.yaml",
                                  "schema: pipewright.run/1\nsource: {format: torchtitan, file: x.log}\nlog:\n"
                                  "  steps:\n  - {number: 1, time: 40 ms}\n"
                                  "  - {number: 7, tokens_per_s_device: 40000}\n");
  CHECK(contains(error_of({"validate", kQuickstart, "--log", run, "--warmup", "0"}),
                 "run.yaml:6:1: step 7 has tokens per second and no time, which say nothing without the tokens of a "
                 "sample; add --set training.sequence_length=N"));
  const json document = imported(
      {kQuickstart, "--log", run, "--warmup", "0", "--set", "training.sequence_length=100", "--tolerance", "15%"});
  CHECK(document["log"]["steps"] == 2);
}

TEST_CASE("validate --log: a batch that is not the plan's is refused with what to paste") {
  ScratchFolder folder;
  const std::string log = written(folder, "run.log", megatron({"40.0", "40.0", "40.0", "40.0", "40.0"}, 128));
  const std::string error = error_of({"validate", kQuickstart, "--log", log});
  CHECK(contains(error,
                 "run.log:5:1: global batch size: 128 samples, and the plan has 64; add --set "
                 "training.micro_batches=16"));
  imported({kQuickstart, "--log", log, "--set", "training.micro_batches=16", "--tolerance", "99%"});
  CHECK(contains(error_of({"validate", kQuickstart, "--log", log, "--warmup", "-1"}), "--warmup: \"-1\""));
  const std::string few = written(folder, "few.log", megatron({"40.0", "40.0"}));
  CHECK(contains(error_of({"validate", kQuickstart, "--log", few}), "no step is left of 2"));
  CHECK(contains(error_of({"validate", kQuickstart, "--log", few, "--steps", "4"}),
                 "--steps: is for runs on this machine"));
}

TEST_CASE("validate --trace: a trace that simulate wrote is what it predicts, action by action") {
  ScratchFolder folder;
  for (const std::string& set : {std::string("plan.schedule=1f1b"), std::string("plan.schedule=gpipe"),
                                 std::string("plan.recompute=full"), std::string("plan.virtual_stages=2")}) {
    CAPTURE(set);
    const std::string trace = folder.path("run.trace.json.gz");
    std::vector<std::string> more{"--set", set};
    if (set == "plan.virtual_stages=2") more.insert(more.end(), {"--set", "plan.schedule=interleaved_1f1b"});
    std::vector<std::string> simulate{"simulate", kQuickstart, "-o", trace}, validate{kQuickstart, "--trace", trace};
    simulate.insert(simulate.end(), more.begin(), more.end());
    validate.insert(validate.end(), more.begin(), more.end());
    REQUIRE(run_program(simulate).status == 0);
    validate.insert(validate.end(), {"--tolerance", "40%"});
    const json trace_part = imported(validate)["trace"];
    CHECK(trace_part["actions"].size() == (set == "plan.virtual_stages=2" ? 128 : 64));
    CHECK(trace_part["absent"] == 0);
    for (const json& action : trace_part["actions"]) {
      if (set == "plan.recompute=full" && action["kind"] == "B") continue;  // the trace has the recomputation apart
      CHECK(action["predicted_s"] == action["measured_s"]);
      if (set != "plan.recompute=full") CHECK(action["predicted_start_s"] == action["measured_start_s"]);
    }
  }
}

TEST_CASE("validate --trace: two steps of two ranks with clocks of their own; medians and starts by rank") {
  ScratchFolder folder;
  // Written by hand: K = 2, M = 1, forwards of 1 ms and 2 ms, backwards of 2 ms and 4 ms; the second step 10 % slower.
  const std::string scenario = written(folder, "two.yaml", R"(version: 1
name: two
model: {layers: [{name: a, repeat: 2, forward: 1 ms, backward: 2 ms, activation: 0 B}]}
cluster: {node: {devices: 2, device: {memory: 1 GB}, links: {kind: ideal}}}
training: {micro_batch_size: 1, micro_batches: 1}
plan: {stages: 2, schedule: gpipe}
)");
  const auto rank = [&](int stage, double clock, double forward, double backward, double gap) {
    std::string events;
    for (const double at : {clock, clock + 100'000}) {
      const double slower = at == clock ? 1 : 1.1;
      const auto event = [&](char kind, double start, double duration) {
        events += (events.empty() ? "" : ",") + std::string(R"({"ph":"X","cat":"gpu_user_annotation","name":"PP:)") +
                  std::to_string(stage) + kind + R"(0","pid":0,"tid":7,"ts":)" + std::to_string(start) + R"(,"dur":)" +
                  std::to_string(duration * slower) + "}";
      };
      event('F', at, forward);
      event('B', at + forward + gap, backward);
    }
    return written(folder, "rank" + std::to_string(stage) + ".json", "{\"traceEvents\":[" + events + "]}");
  };
  const json document = imported({scenario, "--trace", rank(0, 5e6, 1000, 2000, 3000), "--trace",
                                  rank(1, 9e9, 1000, 4000, 0), "--tolerance", "20%"});
  const json trace = document["trace"];
  CHECK(trace["steps"] == 2);
  CHECK(trace["on_device"] == true);
  REQUIRE(trace["actions"].size() == 4);
  const json backward = trace["actions"][2];
  CHECK(backward["name"] == "1B0");
  CHECK(backward["occurrences"] == 2);
  CHECK(backward["predicted_s"] == 0.002);
  CHECK(backward["measured_s"] == 0.004);  // the lower of 4 ms and 4.4 ms
  CHECK(backward["predicted_start_s"] == 0.001);
  CHECK(backward["measured_start_s"] == 0.001);
  CHECK(trace["stages"][0]["predicted_span_s"] == 0.006);  // 1 + 1 + 2 + 2 ms
  CHECK(trace["stages"][0]["measured_span_s"] == 0.006);
}

TEST_CASE("validate --trace: actions that the plan has not are refused with their line") {
  ScratchFolder folder;
  const std::string trace = folder.path("run.trace.json");
  REQUIRE(run_program({"simulate", kQuickstart, "-o", trace}).status == 0);
  CHECK(contains(error_of({"validate", kQuickstart, "--trace", trace, "--set", "plan.stages=2"}),
                 "action 2F0: the plan has 2 (virtual) stages, numbered from 0; validate the plan that was run"));
  CHECK(contains(error_of({"validate", kQuickstart, "--trace", trace, "--set", "training.micro_batches=4"}),
                 "the plan has 4 micro-batches"));
  CHECK(contains(error_of({"validate", kQuickstart, "--trace", folder.path("none.json")}), "cannot be read"));
  CHECK(contains(error_of({"validate", kQuickstart, "--trace", trace, "--profile", "x.yaml"}),
                 "--profile: is for runs on this machine"));
}

TEST_CASE("The synthetic log that ships is read, said to be one, and judged") {
  const std::string log = "scenarios/megatron/llama3-70b-64xh100.synthetic.log";
  std::ifstream file(std::string(std::getenv("PIPEWRIGHT_SOURCE")) + "/" + log);
  std::string first;
  REQUIRE(std::getline(file, first));
  CHECK(contains(first, "SYNTHETIC"));
  const json document = imported({"scenarios/megatron/llama3-70b-64xh100-plan.yaml", "--log", log});
  CHECK(document["log"]["steps"] == 17);
  CHECK(document["log"]["synthetic"] == first.substr(2));
  CHECK(document["log"]["other_layout"].is_null());
  const double median = document["log"]["step_s"]["measured_median"];
  CHECK(median > 14.35);  // 14.5 s, 1 % around it: tests/make_synthetic_log.py
  CHECK(median < 14.65);
  CHECK(document["log"]["allocated_bytes"]["measured"] == 74800LL << 20);
  CHECK(document["log"]["flop_per_s_device"]["predicted"].is_number());
}

// Megatron-LM prints a line when its step is through: from one line to the next lies the time of the step.
TEST_CASE("The clock of the synthetic log that ships goes on by the time of every step") {
  std::ifstream file(std::string(std::getenv("PIPEWRIGHT_SOURCE")) +
                     "/scenarios/megatron/llama3-70b-64xh100.synthetic.log");
  double before = -1;
  int steps = 0;
  for (std::string line; std::getline(file, line);) {
    if (!contains(line, "iteration  ")) continue;
    int hour = 0, minute = 0, second = 0;
    REQUIRE(std::sscanf(line.c_str(), " [2026-11-22 %d:%d:%d]", &hour, &minute, &second) == 3);
    const std::string key = "elapsed time per iteration (ms): ";
    const std::size_t at = line.find(key);
    REQUIRE(at != std::string::npos);
    const double elapsed = std::stod(line.substr(at + key.size())) / 1000;
    const double now = 3600 * hour + 60 * minute + second;
    if (before >= 0) CHECK_MESSAGE(std::abs(now - before - elapsed) <= 1, line.substr(0, 60));  // whole seconds
    before = now;
    ++steps;
  }
  CHECK(steps == 20);
}

TEST_CASE("validate --log: the columns of the table stand under their heads, whatever the label") {
  const ProgramRun run = run_program({"validate", "scenarios/megatron/llama3-70b-64xh100-plan.yaml", "--log",
                                      "scenarios/megatron/llama3-70b-64xh100.synthetic.log"});
  const std::string table = run.out.substr(run.out.find("\nlog of Megatron-LM"));
  const std::size_t head = table.find(" predicted ") + 1;
  const std::size_t line = table.rfind('\n', head) + 1;
  const std::size_t predicted = head + std::string("predicted").size() - line;
  const std::size_t measured = table.find("measured", head) + std::string("measured").size() - line;
  const auto ends_at = [&](const char* label, std::size_t column) {
    const std::size_t begin = table.find(std::string("\n  ") + label) + 1;
    REQUIRE_MESSAGE(begin != 0, label << " in " << table);
    const std::string row = table.substr(begin, table.find('\n', begin) - begin);
    REQUIRE_MESSAGE(row.size() >= column, row);
    CHECK_MESSAGE(row[column - 1] != ' ', row);
    if (row.size() > column) CHECK_MESSAGE(row[column] == ' ', row);
  };
  for (const char* label : {"step (median)", "samples/s", "tokens/s", "TFLOP/s per device", "memory allocated"}) {
    ends_at(label, predicted);
    ends_at(label, measured);
  }
  for (const char* label : {"  p5 to p95", "loss, first and last step"})
    ends_at(label, measured);
}

TEST_CASE("validate --log: a log that says another layout than the plan's is warned of, imported or not") {
  ScratchFolder folder;
  const std::string says =
      "# Synthetic, by hand\nusing world size: 8, data-parallel size: 1, encoder-tensor-model-parallel "
      "size: 9, tensor-model-parallel size: 2, pipeline-model-parallel size: 4\n";
  const std::string log = written(folder, "run.log", says + megatron({"36.0", "36.0"})), run = folder.path("run.yaml");
  REQUIRE(run_program({"import", "megatron-log", log, "-o", run}).status == 0);
  for (const std::string& path : {log, run}) {
    const ProgramRun table = run_program({"validate", kQuickstart, "--log", path, "--warmup", "0"});
    CHECK(table.status == 0);
    CHECK(contains(table.err, "warning: " + path +
                                  ": the log says world size 8, TP 2, PP 4, DP 1; the plan has world "
                                  "size 4, TP 1, PP 4, DP 1; are they of one run?"));
    CHECK(contains(table.out, "the log describes itself as: Synthetic, by hand"));
  }
  CHECK(contains(file_text(run), "  synthetic: \"Synthetic, by hand\"\n"));
  const std::string same = written(folder, "same.log",
                                   "using world size: 4, data-parallel size: 1, tensor-model-parallel size: 1, "
                                   "pipeline-model-parallel size: 4\n" +
                                       megatron({"36.0", "36.0"}));
  const ProgramRun table = run_program({"validate", kQuickstart, "--log", same, "--warmup", "0", "--tolerance", "3%"});
  CHECK(table.err == "");
  CHECK(!contains(table.out, "says of itself"));
  CHECK(contains(table.out, "verdict: more than 3.0 % off the measured step"));
}

TEST_CASE("A log that was imported is judged as the log itself, beside a scenario and beside its result") {
  ScratchFolder folder;
  const std::string log = written(folder, "run.log", megatron({"5000.0", "40.0", "35.5", "36.0"}));
  const std::string run = folder.path("run.yaml"), result = folder.path("result.json");
  const ProgramRun import = run_program({"import", "megatron-log", log, "-o", run});
  CHECK(import.status == 0);
  CHECK(contains(import.err, "(run)"));
  REQUIRE(run_program({"simulate", kQuickstart, "-o", result}).status == 0);
  const json direct = imported({kQuickstart, "--log", log, "--warmup", "1"})["log"];
  for (const std::string& scenario : {kQuickstart, result}) {
    json document = imported({scenario, "--log", run, "--warmup", "1"});
    CHECK(document["scenario"] == "quickstart");
    json figures = document["log"];
    CHECK(figures["step_s"] == direct["step_s"]);
    CHECK(figures["samples_per_s"] == direct["samples_per_s"]);
    CHECK(figures["allocated_bytes"] == direct["allocated_bytes"]);
    CHECK(figures["reserved_bytes"] == direct["reserved_bytes"]);
  }
  CHECK(contains(error_of({"validate", result}), "is a result, which cannot be run here; name its scenario"));
  CHECK(contains(error_of({"validate", result, "--log", log, "--set", "plan.stages=2"}),
                 "is a result, in which nothing"));
  CHECK(contains(error_of({"validate", result, "--trace", log}), "is a result, which has no times of single actions"));
  CHECK(contains(error_of({"validate", kQuickstart, "--trace", run}), "is a run without a trace; give it with --log"));
  CHECK(contains(error_of({"import", "torchtitan-log", log}), "write import megatron-log instead"));
  CHECK(contains(error_of({"import", "megatron-log", log, "--batch", "8"}), "--batch: is not for megatron-log"));
}

TEST_CASE("A trace that was imported is what simulate wrote, action by action") {
  ScratchFolder folder;
  const std::string trace = folder.path("t.trace.json.gz"), run = folder.path("run.yaml");
  REQUIRE(run_program({"simulate", kQuickstart, "-o", trace}).status == 0);
  REQUIRE(run_program({"import", "kineto", trace, "-o", run}).status == 0);
  json direct = imported({kQuickstart, "--trace", trace}), again = imported({kQuickstart, "--trace", run});
  direct["trace"].erase("files"), again["trace"].erase("files");
  CHECK(direct == again);
}

TEST_CASE("compare: two measured runs by what both have; one beside a prediction, with nothing judged") {
  ScratchFolder folder;
  const auto run = [&](const std::string& name, const std::vector<std::string>& times) {
    const std::string log = written(folder, name + ".log", megatron(times)), file = folder.path(name + ".yaml");
    REQUIRE(run_program({"import", "megatron-log", log, "-o", file}).status == 0);
    return file;
  };
  const std::string a = run("a", {"9", "9", "9", "40.0"}), b = run("b", {"9", "9", "9", "50.0"});
  const ProgramRun text = run_program({"compare", a, b});
  CHECK(text.status == 0);
  CHECK(contains(text.out, "+25.0 %"));
  CHECK(contains(text.out, "step (median)"));
  CHECK(contains(text.out, "40.00 ms"));
  CHECK(contains(text.out, "50.00 ms"));
  const json beside = json::parse(run_program({"compare", kQuickstart, a, "--json"}).out);
  CHECK(beside["verdict"].is_null());
  CHECK(beside["log"]["step_s"]["measured_median"] == 0.04);
  CHECK(contains(error_of({"compare", a, b, "--set", "x=1"}), "--set: is for scenarios, not for two measured runs"));
  CHECK(contains(error_of({"compare", a, b, "--json"}), "--json: is for scenarios, not for two measured runs"));
}

TEST_CASE("import schedule-csv tells what the order of a file settles, and where the file lies") {
  ScratchFolder folder;
  const std::string csv = written(folder, "my.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  const ProgramRun run = run_program({"import", "schedule-csv", csv});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "# PyTorch pipeline schedule: my.csv, 32 bytes"));
  CHECK(contains(run.out, "/my.csv\"}\n  stages: 2\n  virtual_stages: 1\ntraining:\n  micro_batches: 2\n"));
  CHECK(contains(error_of({"import", "schedule-csv", "-"}), "give a path, not -"));
}

}  // namespace pipewright::tests
