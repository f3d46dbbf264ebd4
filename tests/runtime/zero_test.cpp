// training.zero: members of a chunk divide the optimizer's states and the update, their gradients, their weights, and
// every bit stays what it is with whole ones, as far as gradients are added up in the same order.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

#include "core/check.hpp"
#include "core/cost/cost_model.hpp"
#include "planner/price.hpp"
#include "runtime/backends/cpu.hpp"
#include "runtime/transports/local.hpp"
#include "tests/runtime/rank_processes.hpp"
#include "tests/runtime/run_case.hpp"
#include "tests/runtime/sequential_steps.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

using Keys = std::vector<std::string>;

// Seven layers of 36 + 6 parameters and one of 24 + 4. In tensors of 64 B: 7 (192 + 64) + 128 + 64 = 1984 B.
const std::string kEightLayers =
    "model={name: chain, input_shape: [6], layers: [{name: body, repeat: 7, ops: [{op: linear, features: 6}, {op: "
    "tanh}]}, {name: head, op: linear, features: 4}, {name: loss, op: cross_entropy}]}";

RunCase case_of(Keys changes, int zero) {
  changes.insert(changes.begin(), {kEightLayers, "model.input_tokens=null", "cluster.node.devices=16",
                                   "training.micro_batches=4", set("training.zero", zero)});
  return RunCase(changes);
}

std::int64_t bytes_of(const WorkerResult& worker, Tag tag) {
  return worker.memory.by_tag[static_cast<std::size_t>(tag)].value;
}

// Bits of losses, gradients of the first step and weights after the last.
void check_bits(const std::vector<WorkerResult>& whole, const std::vector<WorkerResult>& divided) {
  REQUIRE(whole.size() == divided.size());
  for (std::size_t s = 0; s < whole[0].steps.size(); ++s)
    CHECK(loss_of(divided, s) == loss_of(whole, s));
  for (std::size_t w = 0; w < whole.size(); ++w) {
    CAPTURE(w);
    CHECK((divided[w].gradients == whole[w].gradients));
    CHECK((divided[w].weights == whole[w].weights));
  }
}

// Four steps with whole states and with divided ones. What is held is what was counted, less the parts of others.
void check_divided(const Keys& changes, Wait wait = Wait::Block) {
  CAPTURE(changes);
  const RunCase whole = case_of(changes, 0), divided = case_of(changes, 1);
  const auto before = whole.run(settings_of(whole, 4), wait), after = divided.run(settings_of(divided, 4), wait);
  check_bits(before, after);
  CHECK(loss_of(after, 3) != loss_of(after, 0));
  for (std::size_t w = 0; w < after.size(); ++w) {
    CAPTURE(w);
    const auto position = static_cast<PositionId>(w) % divided.plan.positions();
    CHECK(after[w].memory == replayed(divided.run_plan, position));
    for (const Tag tag : {Tag::Weights, Tag::Gradients, Tag::Stash, Tag::Buffers})
      CHECK(bytes_of(after[w], tag) == bytes_of(before[w], tag));
    std::int64_t states = 0;
    for (std::size_t v = 0; v < divided.run_plan.code.size(); ++v) {
      if (!divided.plan.seating().holds(divided.plan.seating().stage_at(position), static_cast<VirtualStageId>(v)))
        continue;
      const std::int64_t all = divided.run_plan.code[v].gradient_bytes;
      const std::int64_t members = divided.schedule.seating().members(static_cast<VirtualStageId>(v));
      states += (all + members * 64 - 1) / (members * 64) * 64;  // 64 B: the alignment
    }
    CHECK(bytes_of(after[w], Tag::Optimizer) ==
          states * pipewright::runtime::states(divided.scenario.training.optimizer));
  }
}

const Keys kAllOptimizers = {"sgd", "momentum", "rmsprop", "adam"};

}  // namespace

TEST_CASE("ZeRO-1, parts: 1984 B are 704, 704 and 576 B for three, and 496 B each, rounded up to 512 B, for four") {
  const auto parts = [](int copies) {
    const RunCase run = case_of({"plan.stages=1", set("plan.data_parallel", copies)}, 1);
    CHECK(run.run_plan.weight_parts(0) == run.run_plan.gradient_parts(0));  // fp32, no part begins in a gap
    return run.run_plan.gradient_parts(0);
  };
  CHECK(parts(1) == std::vector<std::int64_t>{0, 1984});
  CHECK(parts(3) == std::vector<std::int64_t>{0, 704, 1408, 1984});
  CHECK(parts(4) == std::vector<std::int64_t>{0, 512, 1024, 1536, 1984});
  CHECK(parts(12) == std::vector<std::int64_t>{0, 192, 384, 576, 768, 960, 1152, 1344, 1536, 1728, 1920, 1984, 1984});
}

TEST_CASE("ZeRO-1 gives the bits of whole states, and holds its part: optimizers, two to four copies") {
  for (const std::string& optimizer : kAllOptimizers)
    for (const int copies : {2, 3, 4})
      check_divided({"training.optimizer=" + optimizer, "plan.stages=1", set("plan.data_parallel", copies)});
  check_divided({"training.optimizer=adam", "plan.stages=1", "plan.data_parallel=12"});  // the last one's part is empty
}

TEST_CASE("Likewise in stages and chunks, in buckets, by threads that spin, and over throttled links") {
  for (const std::string& optimizer : kAllOptimizers) {
    check_divided({"plan.schedule=1f1b", "plan.stages=2", "plan.data_parallel=2", "training.optimizer=" + optimizer});
    check_divided({"plan.schedule=interleaved_1f1b", "plan.stages=2", "plan.virtual_stages=2", "plan.data_parallel=4",
                   "plan.bucket=100 B", "training.optimizer=" + optimizer});
  }
  for (const Wait wait : {Wait::Spin, Wait::BlockThrottled, Wait::SpinThrottled})
    check_divided({"plan.schedule=1f1b", "plan.stages=2", "plan.data_parallel=2", "training.optimizer=adam"}, wait);
}

TEST_CASE("Likewise where a chunk lies on several workers of one copy") {
  for (const std::string copies : {"1", "2"}) {
    const std::string data_parallel = "plan.data_parallel=" + copies, adam = "training.optimizer=adam";
    for (const std::string replicas : {"[2, 1]", "[1, 2]", "[3, 2]"})
      for (const std::string schedule : {"1f1b", "pipedream"})
        check_divided({"plan.schedule=" + schedule, "plan.stages=2", "plan.replicas=" + replicas, data_parallel,
                       "training.micro_batches=6", adam});
    for (const std::string schedule : {"chimera", "dualpipe"})
      check_divided({"plan.schedule=" + schedule, "plan.stages=4", data_parallel, "training.micro_batches=8", adam});
    check_divided({"plan.schedule=pipedream_2bw", "plan.stages=2", data_parallel, "training.micro_batches=6", adam});
  }
}

TEST_CASE("Processes over tcp give the bits of threads, and of whole states") {
  const Keys changes = {"plan.schedule=1f1b", "plan.stages=2", "plan.data_parallel=2", "training.optimizer=adam"};
  const RunCase whole = case_of(changes, 0), run = case_of(changes, 1);
  const auto threads = run.run(settings_of(run, 4));
  check_bits(whole.run(settings_of(whole, 4)), threads);
  check_processes(run, settings_of(run, 4), threads);
}

TEST_CASE("Gradients and weights of a divided run are those of one worker, who divides nothing") {
  const RunCase run =
      case_of({"plan.schedule=1f1b", "plan.stages=2", "plan.data_parallel=2", "training.optimizer=adam"}, 1);
  const RunSettings settings = settings_of(run, 1);
  const auto workers = run.run(settings);
  const auto gradients = sequential_gradients(run.run_plan, cpu_backend, *run.data, settings);
  const auto weights = sequential_weights(run.run_plan, cpu_backend, *run.data, settings);
  for (std::size_t w = 0; w < workers.size(); ++w) {
    CHECK((workers[w].gradients[w % 2] == gradients[w % 2]));
    CHECK((workers[w].weights[w % 2] == weights[w % 2]));
  }
}

namespace {

// One worker who adds up in the same order has the bits of gradients, and of weights after four steps; the room is what
// was counted.
std::vector<WorkerResult> check_like_one(const Keys& changes, int zero, Wait wait = Wait::Block) {
  CAPTURE(changes);
  CAPTURE(zero);
  const RunCase run = case_of(changes, zero);
  CHECK(run.run_plan.zero == zero);
  const auto workers = run.run(settings_of(run, 4), wait);
  for (std::size_t w = 0; w < workers.size(); ++w) {
    CAPTURE(w);
    CHECK(workers[w].memory == replayed(run.run_plan, static_cast<PositionId>(w) % run.plan.positions()));
  }
  CHECK(loss_of(workers, 3) != loss_of(workers, 0));
  const auto gradients = sequential_gradients(run.run_plan, cpu_backend, *run.data, settings_of(run, 1));
  for (std::size_t v = 0; v < gradients.size(); ++v) {
    CAPTURE(v);
    std::size_t holders = 0;
    for (const WorkerResult& worker : workers) {
      if (worker.gradients[v].empty()) continue;
      ++holders;
      CHECK(differing(worker.gradients[v], gradients[v]) == 0);
    }
    CHECK((holders == static_cast<std::size_t>(run.plan.data_parallel) || gradients[v].empty()));
  }
  const auto weights = sequential_weights(run.run_plan, cpu_backend, *run.data, settings_of(run, 4), 4);
  for (const WorkerResult& worker : workers)
    for (std::size_t v = 0; v < weights.size(); ++v)
      if (!worker.weights[v].empty()) CHECK(differing(worker.weights[v], weights[v]) == 0);
  return workers;
}

// Gradients or weights, which units hold apart, as one list.
std::vector<float> as_one_list(const std::vector<WorkerResult>& workers, const RunCase& run,
                               std::vector<std::vector<float>> WorkerResult::*lists) {
  std::vector<float> all;
  for (PositionId p = 0; p < run.plan.positions(); ++p)
    for (const auto& list : workers[static_cast<std::size_t>(p)].*lists)
      all.insert(all.end(), list.begin(), list.end());
  return all;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double apart = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    apart += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]}), norm += double{b[i]} * double{b[i]};
  return std::sqrt(apart / norm);
}

// One reduction a step adds up as whole gradients do: the same bits after four steps. With one for each micro-batch sums
// are rounded elsewhere. `more`: keys that whole ones do not have.
void check_as_whole(const Keys& changes, const std::vector<int>& zeros = {2, 3}, const Keys& more = {},
                    Wait wait = Wait::Block) {
  CAPTURE(changes);
  const RunCase whole = case_of(changes, 0);
  const auto before = whole.run(settings_of(whole, 4), wait);
  for (const int zero : zeros) {
    Keys divided = changes;
    divided.insert(divided.end(), more.begin(), more.end());
    divided.push_back("plan.reduce_gradients=step");
    const auto once = check_like_one(divided, zero, wait);
    for (std::size_t s = 0; s < 4; ++s)
      CHECK(loss_of(once, s) == loss_of(before, s));
    CHECK(differing(as_one_list(once, whole, &WorkerResult::weights),
                    as_one_list(before, whole, &WorkerResult::weights)) == 0);
    divided.back() = "plan.reduce_gradients=micro_batch";
    const auto each = check_like_one(divided, zero, wait);
    CHECK(distance(as_one_list(each, whole, &WorkerResult::gradients),
                   as_one_list(before, whole, &WorkerResult::gradients)) < 1e-6);
  }
}

}  // namespace

TEST_CASE("ZeRO-2 and -3 give the bits of whole gradients and weights: copies, stages, chunks, optimizers") {
  for (const std::string& optimizer : kAllOptimizers)
    check_as_whole({"training.optimizer=" + optimizer, "plan.stages=1", "plan.data_parallel=2"});
  for (const int copies : {3, 4, 12})  // of twelve parts some are empty
    check_as_whole({"training.optimizer=adam", "plan.stages=1", set("plan.data_parallel", copies)});
  for (const std::string schedule : {"gpipe", "1f1b", "zb_h1"})
    check_as_whole({"plan.schedule=" + schedule, "plan.stages=2", "plan.data_parallel=2", "training.optimizer=adam"});
  check_as_whole({"plan.schedule=interleaved_1f1b", "plan.stages=2", "plan.virtual_stages=2", "plan.data_parallel=2",
                  "training.optimizer=adam"});
  check_as_whole({"plan.schedule=1f1b", "plan.stages=2", "plan.data_parallel=2", "training.ragged=true",
                  "training.global_batch_size=14", "training.optimizer=momentum"});
  check_as_whole({"plan.schedule=1f1b", "plan.stages=2", "plan.data_parallel=2", "plan.recompute=full"});
  check_as_whole({"plan.schedule=1f1b", "plan.stages=2", "plan.data_parallel=4"}, {2}, {"plan.bucket=100 B"});
}

TEST_CASE("Likewise by threads that spin, over throttled links, and where weights stay after the forward or do not") {
  const Keys adam = {"plan.schedule=1f1b", "plan.data_parallel=2", "training.optimizer=adam"};
  Keys two = adam;
  two.push_back("plan.stages=2");
  check_as_whole(two, {2, 3}, {}, Wait::BlockThrottled);
  Keys one = adam;
  one.push_back("plan.stages=1");
  for (const Wait wait : {Wait::Spin, Wait::SpinThrottled})
    check_as_whole(one, {2, 3}, {}, wait);
  for (const std::string stages : {"1", "2"})
    for (const std::string given : {"true", "false", "always"})
      check_as_whole({"plan.schedule=1f1b", "plan.stages=" + stages, "plan.data_parallel=2", "training.optimizer=adam"},
                     {3}, {"plan.reshard_after_forward=" + given});
}

TEST_CASE("Processes over tcp give the bits of threads with divided gradients and weights, too") {
  for (const int zero : {2, 3})
    for (const std::string stages : {"1", "2"}) {
      const RunCase run = case_of(
          {"plan.schedule=1f1b", "plan.stages=" + stages, "plan.data_parallel=2", "training.optimizer=adam"}, zero);
      const auto threads = run.run(settings_of(run, 4));
      const auto texts = in_processes(run.plan.workers(), [&](Ranks& ranks) {
        const auto results = execute(ranks, run.run_plan, cpu_backend, *run.data, settings_of(run, 4));
        return ranks.first() ? everything(results) : "done";
      });
      CAPTURE(texts[0].substr(0, 200));
      CHECK((texts[0] == everything(threads)));
    }
}

namespace {

// Three units, two copies: their whole weights are 256, 256 and 192 B, in parts of 128, 128 and 128 B (96, rounded up).
const std::string kThreeUnits =
    "model={name: chain, input_shape: [6], layers: [{name: body, repeat: 2, ops: [{op: linear, features: 6}, {op: "
    "tanh}]}, {name: head, op: linear, features: 4}, {name: loss, op: cross_entropy}]}";

}  // namespace

TEST_CASE("ZeRO-3, room: a unit's weights are whole from the op before their first reader to their last one") {
  const RunCase run({kThreeUnits, "model.input_tokens=null", "plan.stages=1", "plan.data_parallel=2",
                     "plan.schedule=gpipe", "training.micro_batches=1", "training.zero=3"});
  const std::vector<WholeAt>& all = run.run_plan.whole.at(0);
  struct Expected {
    std::string op;
    std::vector<VirtualStageId> taken, given;
    int needs, lets;
    std::vector<std::pair<VirtualStageId, std::int32_t>> reduced;
  };
  // The last unit stays between its passes. An update is behind the reductions of its unit.
  const std::vector<Expected> expected = {
      {"0F0", {0, 1}, {0}, 1, 2, {}}, {"1F0", {2}, {1}, 2, 3, {}}, {"2F0", {}, {}, 3, 3, {}},
      {"2B0", {1}, {2}, 3, 4, {}},    {"1B0", {0}, {1}, 4, 5, {}}, {"0B0", {}, {0}, 5, 5, {{2, 0}}},
  };
  const auto& ops = run.schedule.positions[0].compute;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(expected[i].op);
    CHECK(label(ops[i]) == expected[i].op);
    CHECK(all[i].taken == expected[i].taken);
    CHECK(all[i].given == expected[i].given);
    CHECK(all[i].needs == expected[i].needs);
    CHECK(all[i].lets == expected[i].lets);
    CHECK(all[i].reduced == expected[i].reduced);
    CHECK(all[i].opens == rule(ops[i].kind).gradients);
  }
  for (VirtualStageId v = 0; v < 3; ++v)
    CHECK(run.run_plan.held_weights(v) == 128);
}

TEST_CASE("ZeRO-2, room: half of 704 B of gradients, and all of them once") {
  const auto gradients = [](int micro_batches, const std::string& reduced) {
    const RunCase run({kThreeUnits, "model.input_tokens=null", "plan.stages=1", "plan.data_parallel=2",
                       "plan.schedule=gpipe", set("training.micro_batches", micro_batches), "training.zero=2",
                       "plan.reduce_gradients=" + reduced});
    return replayed(run.run_plan, 0).by_tag[static_cast<std::size_t>(Tag::Gradients)].value;
  };
  CHECK(gradients(1, "micro_batch") == 384 + 704);  // 352 B, rounded up
  CHECK(gradients(5, "micro_batch") == 384 + 704);
  CHECK(gradients(5, "step") == 384 + 704);
}

// Eight layers of 256 x 256 + 256 parameters are 2 105 344 B.
TEST_CASE("Room of gradients beside the memory model's: the same with ZeRO-2, one unit's more with ZeRO-3") {
  constexpr std::int64_t kAll = 2'105'344, kUnit = kAll / 8;
  const auto gradients = [](int zero, const std::string& reduced) {
    const RunCase run(
        {"model={name: chain, input_shape: [256], layers: [{name: body, repeat: 8, ops: [{op: linear, "
         "features: 256}, {op: tanh}]}, {name: loss, op: cross_entropy}]}",
         "model.input_tokens=null", "plan.stages=1", "plan.data_parallel=2", "training.micro_batches=6",
         "training.optimizer=adam", set("training.zero", zero), "plan.reduce_gradients=" + reduced});
    const CostModel cost(run.scenario);
    const Answer answer = price(run.plan, cost, Engine::Auto, Copies::Each);
    return std::pair(replayed(run.run_plan, 0).by_tag[static_cast<std::size_t>(Tag::Gradients)].value,
                     answer.report.workers[0].memory.bytes.gradients.value);
  };
  CHECK(gradients(2, "micro_batch") == std::pair(kAll / 2 + kAll, kAll / 2 + kAll));
  CHECK(gradients(2, "step") == std::pair(kAll / 2 + kAll, kAll / 2 + kAll));
  CHECK(gradients(3, "micro_batch") == std::pair(kAll / 2 + 2 * kUnit, kAll / 2 + kUnit));
  CHECK(gradients(3, "step") ==
        std::pair(kAll / 2 + kAll, kAll / 2 + kAll));  // of all units, until the last micro-batch
}

TEST_CASE("Layers are measured with numbers where a member has no part of a unit") {
  const RunCase run = case_of({"plan.stages=1", "plan.data_parallel=12"}, 3);  // of units with four parts
  RunSettings settings = settings_of(run, 1);  // poisons what is freed: a loss that reads it is not finite
  settings.keep_gradients = settings.keep_weights = false;
  for (const WorkerId member : {0, 11}) {
    const auto results = measure_layers(run.run_plan, cpu_backend, *run.data, settings, 0.05, {member});
    CHECK_FALSE(results[static_cast<std::size_t>(member)].layer_ns.empty());
  }
}

namespace {

// An endpoint whose worker does something else than its second gather or its second reduction.
class Failing final : public Transport {
 public:
  enum class At { Gather, Reduction };
  Failing(std::unique_ptr<Transport> within, At at, std::function<void()> fail)
      : within_(std::move(within)), at_(at), fail_(std::move(fail)) {}
  void bind(std::vector<std::vector<std::byte*>> slots, Movers movers) override {
    within_->bind(std::move(slots), movers);
  }
  Sent send(const MessageSlot& message, std::span<const Piece> pieces) override {
    return within_->send(message, pieces);
  }
  std::byte* receive(const MessageSlot& message) override { return within_->receive(message); }
  void fetch(const MessageSlot& message) override { within_->fetch(message); }
  void release(const MessageSlot& message) override { within_->release(message); }
  void all_reduce(int group, std::span<const WorkerId> members, float* data, std::int64_t elements) override {
    count(At::Reduction);
    within_->all_reduce(group, members, data, elements);
  }
  void reduce_scatter(int group, std::span<const WorkerId> members, float* data,
                      std::span<const std::int64_t> begin) override {
    count(At::Reduction);
    within_->reduce_scatter(group, members, data, begin);
  }
  void all_gather(int group, std::span<const WorkerId> members, std::byte* data,
                  std::span<const std::int64_t> begin) override {
    count(At::Gather);
    within_->all_gather(group, members, data, begin);
  }
  void meet() override { within_->meet(); }
  void check_asked_to_end() const override { within_->check_asked_to_end(); }
  void stop(const std::string& why) noexcept override { within_->stop(why); }

 private:
  void count(At at) {
    if (at == at_ && ++calls_ == 2) fail_();
  }

  std::unique_ptr<Transport> within_;
  At at_;
  std::function<void()> fail_;
  int calls_ = 0;
};

}  // namespace

TEST_CASE("A member that fails in a gather or a reduction ends the run, and its message says why") {
  for (const int zero : {1, 2, 3})
    for (const auto at : {Failing::At::Gather, Failing::At::Reduction}) {
      CAPTURE(zero);
      const RunCase run =
          case_of({"plan.schedule=1f1b", "plan.stages=1", "plan.data_parallel=3", "training.optimizer=adam"}, zero);
      auto endpoints = local_transport(run.run_plan, {.spin = false, .timeout_s = kTimeout}, {});
      endpoints[1] = std::make_unique<Failing>(std::move(endpoints[1]), at,
                                               [] { throw std::runtime_error("its device fell off"); });
      std::string why;
      try {
        execute(run.run_plan, cpu_backend, *run.data, endpoints, settings_of(run, 4));
      } catch (const RunFailed& failed) {
        why = failed.what();
      }
      CAPTURE(why);
      CHECK(why.starts_with("worker 1 at op "));
      CHECK(why.ends_with(": its device fell off"));
    }
}

TEST_CASE("A member whose process dies in a gather ends the run of all, who say so") {
  for (const int zero : {1, 2, 3}) {
    CAPTURE(zero);
    const RunCase run =
        case_of({"plan.schedule=1f1b", "plan.stages=1", "plan.data_parallel=3", "training.optimizer=adam"}, zero);
    const auto texts = in_processes(3, [&](Ranks& ranks) {
      const AroundWire around = [&](std::unique_ptr<Transport> wire) -> std::unique_ptr<Transport> {
        if (ranks.rank() != 1) return wire;
        return std::make_unique<Failing>(std::move(wire), Failing::At::Gather, [] { ::_exit(9); });
      };
      execute(ranks, run.run_plan, cpu_backend, *run.data, settings_of(run, 4), {}, around);
      return std::string("done");
    });
    CAPTURE(texts[0]);
    CAPTURE(texts[2]);
    CHECK(texts[1].empty());
    // Who hears of it first tells the others.
    for (const std::size_t r : {std::size_t{0}, std::size_t{2}}) {
      CHECK(texts[r].find("threw: worker ") == 0);
      CHECK(texts[r].find("worker 1 is gone") != std::string::npos);
    }
  }
}

TEST_CASE("What else could be divided is refused with the key and the way out") {
  const auto refusal = [](const Keys& changes, int zero) { return message_of([&] { case_of(changes, zero); }); };
  const Keys copies = {"plan.schedule=1f1b", "plan.stages=1", "plan.data_parallel=4"};
  for (const int zero : {1, 2, 3}) {
    Keys groups = copies;
    groups.push_back("plan.data_parallel_shard=2");
    CHECK(refusal(groups, zero)
              .find("plan.data_parallel_shard: a run divides what training.zero says among all copies; "
                    "leave it out") != std::string::npos);
  }
  for (const int zero : {2, 3}) {
    CHECK(refusal({"plan.schedule=pipedream", "plan.stages=2", "plan.data_parallel=2"}, zero)
              .find("pipedream updates the weights of one stage while others run; use 0 or 1") != std::string::npos);
    CHECK(refusal({"plan.schedule=1f1b", "plan.stages=2", "plan.replicas=[2, 1]", "plan.data_parallel=2"}, zero)
              .find("the holders of a chunk run different micro-batches, and gathers need all of them at a time; use 0 "
                    "or 1") != std::string::npos);
  }
}
