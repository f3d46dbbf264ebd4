// Real runs beside one worker that does the same: every cell compares the gradients of every worker, the loss, and the
// arena with what was counted, all to the last bit.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/plan/op_index.hpp"
#include "runtime/backends/cpu.hpp"
#include "sim/schedules/table.hpp"
#include "tests/runtime/run_case.hpp"
#include "tests/runtime/sequential_steps.hpp"
#include "tests/support/run_program.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

using Changes = std::vector<std::string>;

// Eight small layers and a loss: a run takes a millisecond.
const std::string kChain =
    "model={name: chain, input_shape: [6], layers: [{name: body, repeat: 7, ops: [{op: linear, features: 6}, {op: "
    "tanh}]}, {name: head, op: linear, features: 4}, {name: loss, op: cross_entropy}]}";

// Two layers per stage on four stages. `a` is read on stages 0, 1 and 2, `b` on 1 and 2: outputs with several readers
// over stages, and skips over the stage between.
const std::string kSkips =
    "model={name: skips, input_shape: [6], layers: ["
    "{name: a, ops: [{op: linear, features: 5}, {op: tanh}]}, {name: b, ops: [{op: linear, features: 5}, {op: relu}]}, "
    "{name: c, ops: [{op: linear, features: 5}, {op: gelu}]}, {name: d, op: add, inputs: [c, a]}, "
    "{name: e, ops: [{op: linear, features: 5}, {op: tanh}], inputs: [d]}, {name: f, op: concat, inputs: [e, a, b]}, "
    "{name: g, op: linear, features: 4}, {name: loss, op: cross_entropy}]}";

Changes join(Changes a, const Changes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Micro-batches of two samples, or the last one of one sample.
Changes batch(int micro_batches, bool ragged, int copies = 1) {
  Changes changes = {set("training.micro_batches", micro_batches)};
  if (ragged) {
    changes.push_back("training.ragged=true");
    changes.push_back(set("training.global_batch_size", (2 * micro_batches - 1) * copies));
  }
  return changes;
}

// One CHECK per cell, so that thousands of them are quick; what differs is told.
void check_cell(const Changes& changes, Wait wait = Wait::Block) {
  const RunCase run(join(changes, {"cluster.node.devices=16", "model.input_tokens=null"}));
  const auto workers = run.run(one_step(), wait);
  const auto reference = sequential_gradients(run.run_plan, cpu_backend, *run.data, one_step());
  std::string differing;
  for (std::size_t w = 0; w < workers.size(); ++w) {
    const auto position = static_cast<PositionId>(w) % run.plan.positions();
    const StageId stage = run.schedule.seating().stage_at(position);
    for (std::size_t v = 0; v < reference.size(); ++v) {
      if (!run.plan.seating().holds(stage, static_cast<VirtualStageId>(v))) continue;
      if (workers[w].gradients.at(v) != reference[v])
        differing += " gradients of " + std::to_string(v) + " on " + std::to_string(w);
    }
    if (!(workers[w].memory == replayed(run.run_plan, position))) differing += " memory of " + std::to_string(w);
  }
  if (loss_of(workers, 0) != sequential_loss(run.run_plan, cpu_backend, *run.data, one_step())) differing += " loss";
  const bool some = std::any_of(reference.front().begin(), reference.front().end(), [](float g) { return g != 0; });
  std::string cell;
  for (std::size_t i = 0; i < changes.size(); ++i)
    if (!changes[i].starts_with("model=")) cell += changes[i] + " ";
  CAPTURE(cell);
  CHECK(differing == "");
  CHECK(some);
}

}  // namespace

TEST_CASE("One to four stages, one to sixteen micro-batches, with and without a smaller last one and recomputation" *
          doctest::test_suite("all combinations")) {
  for (const std::string schedule : {"gpipe", "1f1b", "eager_1f1b"})
    for (int stages = 1; stages <= 4; ++stages)
      for (int micro_batches = 1; micro_batches <= 16; ++micro_batches)
        for (const bool ragged : {false, true})
          for (const std::string recompute : {"none", "full"})
            check_cell(
                join({kChain, "plan.schedule=" + schedule, set("plan.stages", stages), "plan.recompute=" + recompute},
                     batch(micro_batches, ragged)));
}

TEST_CASE("Likewise interleaved: two chunks per stage, as many micro-batches as the schedule takes") {
  for (int stages = 2; stages <= 4; ++stages)
    for (int micro_batches = stages; micro_batches <= 16; micro_batches += stages)
      for (const bool ragged : {false, true})
        for (const std::string recompute : {"none", "full"})
          for (const std::string schedule : {"interleaved_1f1b", "interleaved_zb"})
            check_cell(join({kChain, "plan.schedule=" + schedule, "plan.virtual_stages=2", set("plan.stages", stages),
                             "plan.recompute=" + recompute},
                            batch(micro_batches, ragged)));
}

TEST_CASE("Likewise all micro-batches through one chunk after the other, fewer than stages, as many, and more") {
  for (int stages = 2; stages <= 4; ++stages)
    for (const int micro_batches : {1, stages, 2 * stages + 1})
      for (const bool ragged : {false, true})
        for (const std::string recompute : {"none", "full"})
          check_cell(join({kChain, "plan.schedule=looped_bfs", "plan.virtual_stages=2", set("plan.stages", stages),
                           "plan.recompute=" + recompute},
                          batch(micro_batches, ragged)));
}

TEST_CASE(
    "Likewise chunks there and back, with one step's backwards in two parts, and two pipelines in both directions" *
    doctest::test_suite("all combinations")) {
  for (const std::string recompute : {"none", "full"})
    for (const int copies : {1, 2})
      for (const bool ragged : {false, true}) {
        for (int stages = 2; stages <= 4; ++stages)
          for (const int micro_batches : {1, 3, 2 * stages, 2 * stages + 3}) {
            const Changes cell = {kChain, "plan.virtual_stages=2", set("plan.stages", stages),
                                  set("plan.data_parallel", copies), "plan.recompute=" + recompute};
            for (const char* schedule : {"zbv", "v_half", "v_min", "v_zb", "v_1f1b", "hanayo"})
              check_cell(
                  join(join(cell, {std::string("plan.schedule=") + schedule}), batch(micro_batches, ragged, copies)));
            if (micro_batches >= 2 * stages)
              check_cell(join(join(cell, {"plan.schedule=dualpipev"}), batch(micro_batches, ragged, copies)));
          }
        for (const int stages : {2, 4})
          for (const int micro_batches : {stages - 1, stages + 1, 2 * stages})
            for (const Changes& schedule :
                 {Changes{"plan.schedule=chimera"}, Changes{"plan.schedule=chimera", set("plan.pipelines", stages)},
                  Changes{"plan.schedule=gems"}})
              check_cell(join(join(schedule, {kChain, set("plan.stages", stages), set("plan.data_parallel", copies),
                                              "plan.recompute=" + recompute}),
                              batch(micro_batches, ragged, copies)));
        for (const int stages : {2, 4})
          for (const int micro_batches : {2 * stages, 2 * stages + 4})
            check_cell(join({kChain, "plan.schedule=dualpipe", set("plan.stages", stages),
                             set("plan.data_parallel", copies), "plan.recompute=" + recompute},
                            batch(micro_batches, ragged, copies)));
      }
}

TEST_CASE("Every schedule with a flush, on two, four and eight workers") {
  const std::string chain =
      "model={name: long chain, input_shape: [4], layers: [{name: body, repeat: 31, ops: [{op: linear, features: 4}, "
      "{op: tanh}]}, {name: loss, op: cross_entropy}]}";
  for (const ScheduleRule& rule : schedules())
    for (const int workers : {2, 4, 8}) {
      if (!rule.flush) continue;
      const bool copies = rule.refusal({.stages = 1, .micro_batches = 2, .data_parallel = 2}).empty() &&
                          !rule.refusal({.stages = 2, .micro_batches = 2, .data_parallel = 2}).empty();
      const int v = rule.facts.takes_chunks ? 2 : 1;
      check_cell(join({chain, "plan.schedule=" + std::string(rule.name), set("plan.virtual_stages", v),
                       set("plan.stages", copies ? 1 : workers), set("plan.data_parallel", copies ? workers : 1)},
                      batch(2 * workers, false)));
    }
}

// The order of a file: all forwards, micro-batch by micro-batch along its pipeline, then all backwards.
TEST_CASE("Micro-batches that a file deals to pipelines by a list") {
  const ScratchFolder folder;
  for (const auto& [stages, dealt] :
       {std::pair{2, std::vector{1, 0, 0, 1, 1}}, std::pair{2, std::vector{1, 1, 1, 0}},
        std::pair{4, std::vector{0, 1, 1, 0, 1, 1}}, std::pair{4, std::vector{3, 0, 2, 2, 1, 0}}}) {
    CAPTURE(stages);
    const int pipelines = *std::max_element(dealt.begin(), dealt.end()) + 1;
    const Seating seating{.stages = stages, .chunk_order = ChunkOrder::InTurns, .pipelines = pipelines};
    std::vector<std::string> rows(static_cast<std::size_t>(stages));
    for (const bool forward : {true, false})
      for (std::size_t m = 0; m < dealt.size(); ++m)
        for (int step = 0; step < stages; ++step) {
          const VirtualStageId v = forward ? step : stages - 1 - step;
          std::string& row = rows[static_cast<std::size_t>(int{seating.position(v, dealt[m])})];
          row += (row.empty() ? "" : ",") + std::to_string(v + dealt[m] * stages) + (forward ? "F" : "B") +
                 std::to_string(m);
        }
    const std::string file = folder.path("order.csv");
    std::ofstream out(file);
    for (const std::string& row : rows)
      out << row << "\n";
    out.close();
    for (const std::string recompute : {"none", "full"})
      for (const int copies : {1, 2})
        check_cell(join({kChain, "plan.schedule={file: " + file + "}", set("plan.stages", stages),
                         set("plan.data_parallel", copies), "plan.recompute=" + recompute},
                        batch(static_cast<int>(dealt.size()), copies == 1)));
  }
}

TEST_CASE("Skips over stages, and outputs that several stages read") {
  for (const std::string schedule : {"gpipe", "1f1b", "eager_1f1b", "naive"})
    for (const std::string layers : {"[2, 2, 2, 2]", "[1, 2, 2, 3]", "[3, 3, 2]", "[1, 7]"})
      for (const std::string recompute : {"none", "full"})
        for (const bool ragged : {false, true})
          check_cell(join({kSkips, "plan.schedule=" + schedule, "plan.partition={layers: " + layers + "}",
                           set("plan.stages", static_cast<int>(std::count(layers.begin(), layers.end(), ',')) + 1),
                           "plan.recompute=" + recompute},
                          batch(5, ragged)));
  for (const std::string recompute : {"none", "full"})
    check_cell(join({kSkips, "plan.schedule=interleaved_1f1b", "plan.virtual_stages=2", "plan.stages=2",
                     "plan.partition={layers: [2, 2, 2, 2]}", "plan.recompute=" + recompute},
                    batch(6, false)));
}

TEST_CASE("Replicated stages under schedules with a flush: every replica has the sum in the order of the workers") {
  for (const std::string schedule : {"gpipe", "1f1b"})
    for (const std::string replicas : {"[2, 1]", "[1, 2]", "[3, 2]"})
      for (const bool ragged : {false, true})
        for (const int copies : {1, 2})
          check_cell(join({kChain, "plan.schedule=" + schedule, "plan.stages=2", "plan.replicas=" + replicas,
                           set("plan.data_parallel", copies)},
                          batch(6, ragged, copies)));
}

TEST_CASE("Copies of a pipeline, the last micro-batch smaller or not: every member has the same bits") {
  for (const std::string schedule : {"gpipe", "1f1b"})
    for (const int copies : {2, 3, 4})
      for (const int stages : {1, 2})
        for (const bool ragged : {false, true})
          for (const std::string bucket : {"25 MB", "100 B"})
            check_cell(join({kChain, "plan.schedule=" + schedule, set("plan.stages", stages),
                             set("plan.data_parallel", copies), "plan.bucket=" + bucket},
                            batch(3, ragged, copies)));
}

// Sixteen samples however they are cut: sums in another order differ by rounding alone.
TEST_CASE("GPipe against 1F1B, and any number of micro-batches: gradients within 1e-5 of their norm") {
  const auto gradients = [](const std::string& schedule, int micro_batches) {
    const RunCase run({kChain, "model.input_tokens=null", "cluster.node.devices=4", "plan.stages=3",
                       "plan.schedule=" + schedule, set("training.micro_batches", micro_batches),
                       set("training.micro_batch_size", 16 / micro_batches)});
    std::vector<float> all;
    const auto workers = run.run(one_step());
    for (std::size_t v = 0; v < 3; ++v)
      all.insert(all.end(), gradients_of(workers, v).begin(), gradients_of(workers, v).end());
    return all;
  };
  const std::vector<float> whole = gradients("gpipe", 1);
  for (const std::string schedule : {"gpipe", "1f1b"})
    for (const int micro_batches : {1, 2, 4, 8, 16}) {
      const std::vector<float> cut = gradients(schedule, micro_batches);
      REQUIRE(cut.size() == whole.size());
      double error = 0, norm = 0;
      for (std::size_t i = 0; i < cut.size(); ++i) {
        error += std::pow(double{cut[i]} - double{whole[i]}, 2);
        norm += std::pow(double{whole[i]}, 2);
      }
      CAPTURE(schedule);
      CAPTURE(micro_batches);
      CHECK(norm > 0);
      CHECK(std::sqrt(error) <= 1e-5 * std::sqrt(norm));
    }
}

TEST_CASE("Workers that spin while they wait train as those that sleep do, over quick links and slow ones") {
  for (const std::string schedule : {"gpipe", "1f1b"})
    for (const Wait wait : {Wait::Spin, Wait::Block, Wait::SpinThrottled, Wait::BlockThrottled}) {
      check_cell(join({kChain, "plan.schedule=" + schedule, "plan.stages=2"}, batch(8, false)), wait);
      check_cell(
          join({kChain, "plan.schedule=" + schedule, "plan.stages=1", "plan.data_parallel=2"}, batch(4, false, 2)),
          wait);
    }
}
