// Activations that wait at a partner's stage or in the host's memory: no bit changes, both sides hold what was counted, and
// moves lie where the schedule has them.
#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/cost/memory_model.hpp"
#include "runtime/backends/cpu.hpp"
#include "tests/runtime/far_backend.hpp"
#include "tests/runtime/rank_processes.hpp"
#include "tests/runtime/run_case.hpp"
#include "tests/runtime/sequential_steps.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

// Stages of two layers each: of two samples a stage keeps two outputs of tanh, 128 B each, and the first one its input.
std::vector<std::string> pairs_of_layers(int stages, int micro_batches, const std::vector<std::string>& more) {
  std::vector<std::string> changes = {
      "model={name: chain, input_shape: [16], layers: [{name: body, repeat: " + std::to_string(2 * stages - 1) +
          ", ops: [{op: linear, features: 16}, {op: tanh}]}, {name: head, ops: [{op: linear, features: 16}, {op: "
          "tanh}, "
          "{op: cross_entropy}]}]}",
      "model.input_tokens=null",
      "cluster.node.devices=8",
      set("plan.stages", stages),
      set("training.micro_batches", micro_batches),
      "plan.partition={layers: [2" +
          [&] {
            std::string rest;
            for (int k = 1; k < stages; ++k)
              rest += ", 2";
            return rest;
          }() +
          "]}"};
  changes.insert(changes.end(), more.begin(), more.end());
  return changes;
}
constexpr std::int64_t kStash = 3 * 128;

std::int64_t stash_held(const RunCase& run, int stage) {
  return replayed(run.run_plan, stage).by_tag[static_cast<std::size_t>(Tag::Stash)].value;
}

void check_same(const RunCase& a, const RunCase& b) {
  const auto here = a.run(one_step(2)), there = b.run(one_step(2));
  for (std::size_t w = 0; w < here.size(); ++w) {
    CHECK(here[w].gradients == there[w].gradients);
    CHECK(here[w].weights == there[w].weights);
    CHECK(here[w].steps[1].loss == there[w].steps[1].loss);
  }
}

// The rules of core/plan/schedule.hpp, read off what a run has recorded.
void check_times(const RunCase& run, const std::vector<WorkerResult>& workers) {
  std::size_t moves = 0;
  for (std::size_t w = 0; w < workers.size(); ++w) {
    const Lane& lane = run.schedule.lane_of(WorkerId{w});
    const LaneTimes& times = workers[w].steps.back().times;
    const std::vector<Op>&outs = lane.communication[kOut], &ins = lane.communication[kIn];
    for (std::size_t i = 0; i < outs.size(); ++i) {
      const auto of = [&](const Op& op) {
        return op.micro_batch == outs[i].micro_batch && op.virtual_stage == outs[i].virtual_stage;
      };
      const auto forward = at(std::ranges::find_if(lane.compute, of) - lane.compute.begin());
      auto reader = forward + 1;
      while (!of(lane.compute[reader]))
        ++reader;
      const auto in = at(std::ranges::find_if(ins, of) - ins.begin());
      const Span out = times.communication[kOut][i], back = times.communication[kIn][in];
      CHECK(out.start >= times.compute[forward].end);
      CHECK(back.start >= out.end);
      CHECK(times.compute[reader].start >= back.end);
      for (std::size_t f = forward + 1; run.plan.offloaded.empty() && f < lane.compute.size(); ++f)
        if (lane.compute[f].kind == Kind::F) CHECK(times.compute[f].start >= out.end);
      ++moves;
    }
  }
  CHECK(moves > 0);
}

}  // namespace

TEST_CASE("moves: BPipe's gradients and weights are 1F1B's, and one worker's, to the bit") {
  for (const int stages : {4, 5, 6})
    for (const int micro_batches : {stages, 2 * stages + 1})
      for (const std::string recompute : {"none", "full"})
        for (const bool ragged : {false, true}) {
          CAPTURE(stages);
          CAPTURE(micro_batches);
          CAPTURE(recompute);
          std::vector<std::string> more = {"plan.recompute=" + recompute, "plan.schedule=bpipe"};
          if (ragged)
            more.insert(more.end(), {"training.ragged=true", set("training.global_batch_size", 2 * micro_batches - 1)});
          const RunCase moved(pairs_of_layers(stages, micro_batches, more));
          more[1] = "plan.schedule=1f1b";
          check_bits_of_one_worker(moved, Wait::Block);
          check_same(moved, RunCase(pairs_of_layers(stages, micro_batches, more)));
        }
  const std::vector<std::string> blocks = {"cluster.node.devices=8", "plan.stages=4", "training.micro_batches=6",
                                           "plan.partition={layers: [2, 2, 2, 3]}", "plan.schedule=bpipe"};
  check_bits_of_one_worker(RunCase(blocks), Wait::Block);
  std::vector<std::string> copies = blocks;
  copies.insert(copies.end(), {"plan.data_parallel=2", "training.optimizer=adam", "training.zero=1"});
  check_bits_of_one_worker(RunCase(copies), Wait::Block);
}

// Stage 0 of four would hold four micro-batches, and holds three: 2, 4 and 6 wait at stage 3 until their backwards begin.
TEST_CASE("moves: both sides hold what the memory model counts") {
  const RunCase moved(pairs_of_layers(4, 8, {"plan.schedule=bpipe"})),
      plain(pairs_of_layers(4, 8, {"plan.schedule=1f1b"}));
  const RunMoves& moves = moved.run_plan.moves[0];
  CHECK(moves.bytes == kStash);
  CHECK(moves.slots == 2);
  CHECK(moves.slot == std::vector<std::int32_t>{0, 1, 0});
  CHECK(stash_held(plain, 0) == 4 * kStash);
  CHECK(stash_held(moved, 0) == 3 * kStash);
  CHECK(stash_held(moved, 3) - stash_held(plain, 3) == 2 * kStash);
  for (const int stage : {1, 2})
    CHECK(replayed(moved.run_plan, stage) == replayed(plain.run_plan, stage));
  const auto workers = moved.run(one_step());
  for (int w = 0; w < 4; ++w)
    CHECK(workers[at(w)].memory == replayed(moved.run_plan, w));
  // What each stage holds without a clock, of one byte per micro-batch.                core/cost/memory_model.hpp
  for (const int stages : {4, 6, 8}) {
    const RunCase run(pairs_of_layers(stages, 2 * stages, {"plan.schedule=bpipe"}));
    const ChunkMemory one{.stash = {Bytes{1}, Bytes{1}}, .boundary = {Bytes{1}, Bytes{1}}};
    const MemoryModel memory{.chunks = std::vector<ChunkMemory>(at(stages), one), .reserve = {}, .capacity = {}};
    for (int k = 0; k < stages; ++k)
      CHECK(run.run_plan.moves[at(k)].slots == most_away(memory, run.schedule, k).value);
  }
}

// Of what stage 1 has received, 128 B of each micro-batch, none goes away.
TEST_CASE("moves: messages stay in their slots") {
  const RunCase run(pairs_of_layers(6, 12, {"plan.schedule=bpipe"}));
  CHECK(run.run_plan.moves[0].bytes == kStash);
  CHECK(run.run_plan.moves[1].bytes == kStash - 128);
  const RunCase recomputed(pairs_of_layers(6, 12, {"plan.schedule=bpipe", "plan.recompute=full"}));
  CHECK(recomputed.run_plan.moves[0].bytes == 128);
  CHECK(recomputed.run_plan.moves[1].bytes == 0);
  check_bits_of_one_worker(recomputed, Wait::Block);
}

TEST_CASE("moves: they come behind their forward, and are over before a forward that waits, and before their reader") {
  const RunCase run(pairs_of_layers(4, 8, {"plan.schedule=bpipe"}));
  for (const Wait wait : {Wait::Block, Wait::BlockThrottled, Wait::SpinThrottled})
    check_times(run, run.run(one_step(), wait));
  check_bits_of_one_worker(run, Wait::BlockThrottled);
  // 384 B over 20 MB/s are 19.2 us, and 10 us of latency.
  const auto workers = run.run(one_step(), Wait::BlockThrottled);
  for (const StreamId stream : {kOut, kIn})
    for (const Span span : workers[0].steps[0].times.communication[stream])
      CHECK(span.end - span.start >= Time{29'200});
}

TEST_CASE("moves: processes give what threads give") {
  const RunCase run(pairs_of_layers(4, 8, {"plan.schedule=bpipe", "training.optimizer=adam"}));
  check_processes(run, settings_of(run, 2), run.run(settings_of(run, 2)));
}

TEST_CASE("moves: rounds without neighbours find what they have sent away") {
  const RunCase run({"cluster.node.devices=8", "plan.stages=4", "training.micro_batches=6",
                     "plan.partition={layers: [2, 2, 2, 3]}", "plan.schedule=bpipe"});
  const auto workers = measure_layers(run.run_plan, cpu_backend, *run.data, one_step(), 0);
  for (const WorkerResult& worker : workers)
    CHECK(!worker.layer_ns.empty());
}

TEST_CASE("moves: to the host, the first blocks of each stage") {
  for (const std::string schedule : {"gpipe", "1f1b", "zb_h1"})
    for (const std::string recompute : {"none", "full"}) {
      if (schedule == "zb_h1" && recompute == "full") continue;
      CAPTURE(schedule);
      CAPTURE(recompute);
      std::vector<std::string> more = {"plan.schedule=" + schedule,
                                       "plan.recompute=" + recompute,
                                       "model.layers.1.repeat=8",
                                       "cluster.node.devices=8",
                                       "plan.stages=4",
                                       "training.micro_batches=8"};
      const RunCase plain(more);
      more.insert(more.end(), {"plan.offload_layers=1", "cluster.node.device.host_link=1 GB/s"});
      const RunCase moved(more);
      REQUIRE(moved.run_plan.moves[0].at.any());
      CHECK(moved.run_plan.moves[0].channel < 0);
      check_bits_of_one_worker(moved, Wait::Block);
      check_times(moved, moved.run(one_step()));
      CHECK(stash_held(moved, 0) < stash_held(plain, 0));
      CHECK(loss_of(moved.run(one_step()), 0) == loss_of(plain.run(one_step()), 0));
    }
  check_bits_of_one_worker(
      RunCase({"plan.schedule=1f1b", "plan.stages=2", "plan.data_parallel=2", "training.zero=3",
               "cluster.node.devices=4", "plan.offload_layers=1", "cluster.node.device.host_link=1 GB/s"}),
      Wait::Block);
}

TEST_CASE("moves: a device keeps activations where they are made") {
  const RunCase run(pairs_of_layers(4, 8, {"plan.schedule=bpipe"}));
  CHECK_THROWS_WITH_AS(run_plan(run.plan, run.schedule, run.scenario.model, run.scenario.training, *far_backend()),
                       doctest::Contains("plan.schedule: backend far keeps activations where they are made"),
                       InputError);
}
