// Experts on several devices: rows go to the devices of their experts and back, and every bit stays what it is where one
// worker computes the copies of a group in turn.
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/check.hpp"
#include "core/model/each_device.hpp"
#include "runtime/backends/cpu.hpp"
#include "runtime/cells.hpp"
#include "runtime/walk.hpp"
#include "tests/runtime/rank_processes.hpp"
#include "tests/runtime/run_case.hpp"
#include "tests/runtime/sequential_steps.hpp"
#include "tests/runtime/step_runner.hpp"
#include "tests/support/run_program.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

using Keys = std::vector<std::string>;

// Two blocks with eight experts of 12 inner features, two per token, of 16 tokens of 8 values: four rows per expert.
RunCase with_experts(Keys changes) {
  const Keys first = {
      "model={name: sparse, input_tokens: 16, layers: [{name: embed, op: embedding, vocabulary: 16, features: 8}, "
      "{name: "
      "block, repeat: 2, ops: [{op: rms_norm, as: normed}, {op: router, experts: 8, as: shares}, {op: experts, from: "
      "[normed, shares], experts: 8, active: 2, hidden: 12, bias: yes, as: fed}, {op: add, from: [input, fed]}]}, "
      "{name: "
      "head, op: linear, features: 16}, {name: loss, op: cross_entropy}]}",
      "cluster.node.devices=16", "training.micro_batches=3", "plan.schedule=1f1b", "training.precision=fp32"};
  changes.insert(changes.begin(), first.begin(), first.end());
  return RunCase(changes);
}

const Program& block_of(const Model& model) {
  return *model.works[static_cast<std::size_t>(model.layers[1].work)].program.get();
}

// Values of a chunk as one worker with all experts has them, from those of all devices of a group: of each expert tensor
// the devices' parts, one behind the other.
std::vector<float> of_all_devices(const RunCase& run, std::size_t v, const std::vector<std::vector<float>>& by_device) {
  std::vector<float> all;
  for (const CodeParameter& parameter : run.run_plan.code[v].parameters)
    for (std::size_t device = 0; device < (parameter.of_experts ? by_device.size() : 1); ++device) {
      const auto begin = by_device[device].begin() + parameter.offset / 4;
      all.insert(all.end(), begin, begin + parameter.tensor.elements);
    }
  return all;
}

std::vector<std::vector<float>> weights_by_device(const RunCase& run, const std::vector<WorkerResult>& workers) {
  std::vector<std::vector<float>> all;
  for (int device = 0; device < run.plan.expert_parallel; ++device)
    all.push_back(workers[static_cast<std::size_t>(device * run.plan.positions())].weights[0]);
  return all;
}

}  // namespace

TEST_CASE("Rows: of four tokens with two of four experts token 1 goes to row 0 of experts 2 and 3") {
  LayerBuilder b;
  const auto x = b.input({4, 1}), shares = b.input({4, 4});
  Program program = program_of(b, {b.experts(x, shares, {.experts = 4, .active = 2, .hidden = 3})});
  program.steps.resize(1);
  StepRunner<double> run(cpu_backend_in_double(), program, 1);
  for (int t = 0; t < 4; ++t)
    run.x[0][t] = t;
  run.forward();
  const std::array<double, 8> rows = {0, 2, 0, 2, 1, 3, 1, 3};  // two per expert
  CHECK(std::equal(rows.begin(), rows.end(), run.y.begin()));
}

TEST_CASE("Experts, programs: eight on four devices are two of their own, of the rows of all four") {
  const RunCase run = with_experts({"plan.stages=1"});
  const Program& whole = block_of(run.scenario.model);
  const Model each = of_expert_devices(run.scenario.model, 4);
  const Program& program = block_of(each);
  REQUIRE(program.steps.size() == whole.steps.size() + 2);
  std::vector<std::string> names;
  for (const ProgramStep& step : program.steps)
    names.emplace_back(step.operation);
  CHECK(names == std::vector<std::string>{"rms_norm", "linear", "softmax", "dispatch", "exchange", "grouped_linear",
                                          "gated", "grouped_linear", "exchange", "combine", "add"});
  CHECK(std::get<GroupedLinear>(program.steps[5].spec).groups == 2);
  CHECK(program.tensors[static_cast<std::size_t>(program.steps[5].inputs[0])].shape == Shape{32, 8});
  CHECK((std::get<RowExchange>(program.steps[4].spec) == RowExchange{8, 4, false}));
  CHECK((std::get<RowExchange>(program.steps[8].spec) == RowExchange{8, 4, true}));
}

TEST_CASE("What one device sends is what the other has room for, and all rows move once") {
  const RunCase run = with_experts({"plan.stages=1", "plan.data_parallel=4", "plan.expert_parallel=4"});
  for (const CodeStep& step : run.run_plan.code[0].steps) {
    if (step.exchange() == nullptr) continue;
    for (const bool out : {true, false})
      for (const bool received : {true, false}) {
        std::vector<std::int64_t> places;
        for (int peer = 0; peer < 4; ++peer)
          for (const ExchangeRun& one : exchange_runs(step, out, received, peer, 2, 4)) {
            places.push_back(one.in_block);
            CHECK(one.bytes == 4 * 8 * 4);  // four rows of eight values
          }
        std::sort(places.begin(), places.end());
        for (std::size_t i = 0; i < places.size(); ++i)
          CHECK(places[i] == static_cast<std::int64_t>(i) * 128);
        CHECK(places.size() == 2 * 8);
      }
    const auto to = exchange_runs(step, true, false, 1, 1, 4), from = exchange_runs(step, true, true, 1, 1, 4);
    CHECK((to[0].in_block == 2 * 128 && to[1].in_block == 3 * 128));
    CHECK((from[0].in_block == 1 * 128 && from[1].in_block == 5 * 128));
  }
}

TEST_CASE("A run with experts on several devices has the bits of one worker, device by device") {
  for (const int devices : {1, 2, 4, 8})
    check_bits_of_one_worker(
        with_experts({"plan.stages=1", "plan.data_parallel=8", set("plan.expert_parallel", devices)}), Wait::Block);
  for (const std::string schedule : {"1f1b", "gpipe", "zb_h1", "dualpipe"})
    check_bits_of_one_worker(
        with_experts({"plan.stages=2", "plan.data_parallel=4", "plan.expert_parallel=2", "plan.schedule=" + schedule,
                      "training.micro_batches=4", "plan.bucket=1 KiB"}),
        Wait::Block);
  check_bits_of_one_worker(
      with_experts({"plan.stages=2", "plan.data_parallel=2", "plan.expert_parallel=2", "plan.recompute=full"}),
      Wait::Block);
  check_bits_of_one_worker(
      with_experts({"plan.stages=1", "plan.data_parallel=2", "plan.expert_parallel=2", "training.micro_batch_size=2",
                    "training.global_batch_size=10", "training.micro_batches=null", "training.ragged=true"}),
      Wait::Block);
  for (const Wait wait : {Wait::Spin, Wait::BlockThrottled})
    check_bits_of_one_worker(with_experts({"plan.stages=2", "plan.data_parallel=4", "plan.expert_parallel=4"}), wait);
}

TEST_CASE("Losses and weights of several steps are those with all experts on each device, but for the order of sums") {
  const Keys adam = {"plan.stages=1", "plan.data_parallel=4", "training.optimizer=adam"};
  const RunCase whole = with_experts(adam);
  const auto expected = whole.run(settings_of(whole, 4));
  for (const int devices : {2, 4}) {
    CAPTURE(devices);
    Keys changes = adam;
    changes.push_back(set("plan.expert_parallel", devices));
    const RunCase run = with_experts(changes);
    const auto workers = run.run(settings_of(run, 4));
    for (std::size_t s = 0; s < 4; ++s)
      CHECK(loss_of(workers, s) == doctest::Approx(loss_of(expected, s)).epsilon(1e-5));
    CHECK(relative_distance(of_all_devices(run, 0, weights_by_device(run, workers)),
                            of_all_devices(whole, 0, {expected[0].weights[0]})) < 1e-4);
    for (std::size_t w = 0; w < workers.size(); ++w)  // all that hold the same experts stay alike
      CHECK((workers[w].weights[0] == workers[w % static_cast<std::size_t>(devices)].weights[0]));
  }
}

TEST_CASE("pairs: ops of a cell take turns where they wait for rows, and the bits are those of one after the other") {
  const auto paired = [](const std::string& schedule, int stages, Keys changes) {
    changes.insert(changes.begin(), {set("plan.stages", stages), "plan.data_parallel=2", "plan.expert_parallel=2",
                                     "plan.schedule=" + schedule, set("training.micro_batches", 4 * stages)});
    if (schedule == "dualpipev") changes.emplace_back("plan.virtual_stages=2");
    return with_experts(changes);
  };
  for (const std::string schedule : {"dualpipe", "dualpipev"})
    for (const Keys& more : {Keys{}, Keys{"plan.recompute=full"}}) {
      CAPTURE(schedule);
      Keys fused = more;
      fused.emplace_back("plan.pairs=fused");
      const RunCase run = paired(schedule, 2, fused), serial = paired(schedule, 2, more);
      check_bits_of_one_worker(run, Wait::Block);
      const auto workers = run.run(settings_of(run, 3)), alone = serial.run(settings_of(serial, 3));
      for (std::size_t w = 0; w < workers.size(); ++w)
        CHECK((workers[w].weights == alone[w].weights));
      // A forward waits for its rows while a backward computes, in some cell of a worker that has experts in both.
      bool turns = false;
      for (const Lane& lane : run.run_plan.schedule->positions) {
        for (std::size_t i = 0, cell = 1; i < lane.compute.size(); i += cell) {
          cell = cell_size(run.run_plan, lane, i);
          if (lane.compute[i].kind == Kind::Update) continue;
          const std::vector<CellPart> parts = parts_of_cell(run.run_plan, lane, i, cell);
          std::vector<std::size_t> next(lane.compute.size());
          for (const CellPart& part : parts)
            CHECK(std::exchange(next[part.op], part.end) == part.begin);
          for (std::size_t op = i; op < i + cell; ++op)
            CHECK(next[op] == run.run_plan.line(lane.compute[op]).size());
          for (std::size_t p = 2; p < parts.size(); ++p)
            turns = turns || (parts[p].op == parts[p - 2].op && parts[p].op != parts[p - 1].op);
        }
      }
      CHECK(turns);
    }
  for (const Wait wait : {Wait::Spin, Wait::BlockThrottled})
    check_bits_of_one_worker(paired("dualpipe", 4, {"plan.pairs=fused"}), wait);
}

// With two slots for gradients, worker 0 could send one at its op 4B3 only when a cell of worker 1 has run that waits for it.
TEST_CASE("pairs wait for no slot that only they could free") {
  const auto run = [](Keys changes) {
    const Keys first = {"cluster.node.devices=4",      "plan.stages=2",
                        "plan.virtual_stages=3",       "plan.schedule=moe_overlap_1f1b",
                        "plan.micro_batch_group=4",    "training.micro_batches=6",
                        "training.micro_batch_size=1", "plan.pairs=fused"};
    changes.insert(changes.begin(), first.begin(), first.end());
    return RunCase(changes, {}, "experts.yaml");
  };
  RunPlan narrow = run({}).run_plan;
  CHECK(runs_through(narrow));
  for (RunChannel& channel : narrow.channels)
    if (!channel.forward) channel.slots = std::min(channel.slots, 2);
  CHECK_FALSE(runs_through(narrow));
  for (const char* const recompute : {"plan.recompute=none", "plan.recompute=full"}) {
    const RunCase fused = run({recompute}), serial = run({recompute, "plan.pairs=serial"});
    const auto at_once = fused.run(settings_of(fused, 1)), alone = serial.run(settings_of(serial, 1));
    for (std::size_t w = 0; w < at_once.size(); ++w)
      CHECK((at_once[w].weights == alone[w].weights));
  }
}

// Three ops that all send before one receives; gradients of one chunk from two ops of a cell, or from parts of one op that are
// no neighbours in it.
TEST_CASE("pairs in files: cells of any width, gradients whole when they are sent") {
  const ScratchFolder folder;
  int number = 0;
  for (const std::string ops :
       {"(0F0;0F1;0F2)OVERLAP_F_B,0F3,0B0,0B1,0B2,0B3", "0F0,0F1,0F2,0F3,(0B0;0B1;0B2)OVERLAP_F_B,0B3",
        "0F0,0F1,0F2,0F3,0B0,0B1,0I2,(0B3;0W2)OVERLAP_F_B",
        "0F0,(0I0;0F1;0W0)OVERLAP_F_B,(0F2;0B1)OVERLAP_F_B,(0F3;0B2)OVERLAP_F_B,0B3"}) {
    CAPTURE(ops);
    const std::string file = folder.path("order-" + std::to_string(++number) + ".csv");
    std::ofstream(file) << ops << "\n";
    const RunCase run =
        with_experts({"plan.stages=1", "plan.data_parallel=4", "plan.expert_parallel=2",
                      "plan.schedule={file: " + file + "}", "training.micro_batches=4", "plan.pairs=fused"});
    for (const Wait wait : {Wait::Block, Wait::Spin})
      check_bits_of_one_worker(run, wait);
  }
}

// Ops whose layers are timed run one after the other: the arena is as large as they need it, one_by_one.
TEST_CASE("pairs are timed layer by layer in the memory of one op after the other") {
  const RunCase run =
      with_experts({"plan.stages=2", "plan.data_parallel=4", "plan.expert_parallel=4", "plan.schedule=dualpipe",
                    "training.micro_batches=16", "training.micro_batch_size=3", "model.layers.1.repeat=1",
                    "model.layers.1.ops.2.hidden=128", "plan.pairs=fused"});
  CHECK(replayed(run.run_plan, 1, {}, true).extent > replayed(run.run_plan, 1).extent);
  LayerRounds rounds(
      run.run_plan, [](WorkerId) { return cpu_backend(); }, *run.data, one_step());
  const auto workers = rounds.measured(0.01, {}, 3);
  for (std::size_t w = 0; w < workers.size(); ++w)
    CHECK(workers[w].memory == replayed(run.run_plan, static_cast<PositionId>(w) % run.plan.positions(), {}, true));
}

TEST_CASE("Processes over tcp exchange rows with the bits of threads") {
  const RunCase run = with_experts({"plan.stages=2", "plan.data_parallel=2", "plan.expert_parallel=2"});
  check_processes(run, settings_of(run, 3), run.run(settings_of(run, 3)));
}

TEST_CASE("What a run with experts cannot do is refused with the key and the way out") {
  const auto refusal = [](Keys changes) {
    changes.insert(changes.begin(), {"plan.stages=1", "plan.data_parallel=4", "plan.expert_parallel=2"});
    return message_of([&] { with_experts(changes); });
  };
  const auto refuses = [&](const Keys& changes, const std::string& text) {
    CAPTURE(text);
    CHECK(refusal(changes).find(text) != std::string::npos);
  };
  refuses(
      {"plan.stages=2", "plan.schedule=dualpipe", "plan.pairs=fused", "training.zero=1", "plan.expert_parallel=1",
       "training.micro_batches=4"},
      "plan.pairs: a run divides nothing among copies where the ops of a cell take turns; write serial, or zero: 0");
  refuses({"training.zero=1"}, "training.zero: a run with experts on several devices divides nothing else; use 0");
  refuses({"plan.expert_exchange=all_gather"}, "plan.expert_exchange: a run sends each device the rows of its experts");
  refuses({"plan.expert_capacity=1.25"}, "plan.expert_capacity: a run gives all experts as many rows");
  refuses({"plan.expert_parallel=1", "plan.expert_tensor_parallel=2"},
          "plan.expert_tensor_parallel: a run computes whole experts; leave it out");
  refuses({"plan.expert_imbalance=1.5"}, "plan.expert_imbalance: a run gives all experts as many rows; leave it out");
  refuses({"model.layers.1.ops.2.active=3", "model.layers.1.ops.1.experts=5", "model.layers.1.ops.2.experts=5",
           "plan.expert_parallel=1"},
          "16 tokens x 3 experts each do not give each of 5 experts as many rows, as a run does");
  refuses(
      {"model.layers.1.ops.1.experts=4", "plan.expert_parallel=1"},
      "shares of 16 x 4 for 16 tokens and 8 experts; write from: [x, shares], the latter of a router with experts: 8");
}
