// Memory over the ops of a worker: the walk, the series on the clock, and the formulas, each against the others.
#include <algorithm>

#include <doctest/doctest.h>

#include "core/cost/memory_model.hpp"
#include "sim/event_order.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"
#include "tests/support/rounds.hpp"

namespace pipewright::tests {
namespace {

constexpr Bytes operator""_B(unsigned long long bytes) {
  return {static_cast<std::int64_t>(bytes)};
}
constexpr Time ns(std::int64_t value) {
  return {value};
}

// Every chunk alike: 1000 B weights, 300 B gradients, 50 B optimizer, and a stash of 20 B, 7 of them its boundary.
MemoryModel plain_memory(const ScheduleShape& shape) {
  const ChunkMemory chunk{.weights = 1000_B,
                          .gradients = 300_B,
                          .optimizer = 50_B,
                          .stash = {20_B, 20_B},
                          .boundary = {7_B, 7_B},
                          .working = {13_B, 13_B}};
  return {.chunks = std::vector<ChunkMemory>(static_cast<std::size_t>(shape.chunks()), chunk),
          .reserve = 5_B,
          .capacity = 1'000'000_B};
}

StepCosts equal_stages(const ScheduleShape& shape, Time hop) {
  const auto chunks = static_cast<std::size_t>(shape.chunks());
  return plain_costs(shape, std::vector<Time>(chunks, ns(10)), std::vector<Time>(chunks, ns(20)), hop);
}

void load_messages(StepCosts& costs, Bytes bytes, Time occupancy, Time latency) {
  for (auto* messages : {&costs.messages, &costs.messages_last})
    for (Message& message : *messages)
      message.bytes = bytes, message.occupancy = occupancy, message.latency = latency;
}

Schedule schedule_of(std::string_view name, const ScheduleShape& shape) {
  const ScheduleRule* rule = find_schedule(name);
  REQUIRE(rule != nullptr);
  REQUIRE(rule->refusal(shape) == "");
  return rule->generate(shape);
}

Schedule by_hand(const ScheduleShape& shape, std::vector<std::vector<Op>> lanes) {
  Schedule schedule{.name = "by hand", .shape = shape, .positions = {}};
  for (std::vector<Op>& ops : lanes)
    schedule.positions.push_back({.compute = std::move(ops)});
  return schedule;
}

bool same(const MemoryPeak& a, const MemoryPeak& b) {
  return a.bytes == b.bytes && a.owner == b.owner && a.in_flight == b.in_flight &&
         a.weight_versions == b.weight_versions;
}

}  // namespace

TEST_CASE("without buffers the walk, the series and the formula give one peak, for every schedule, K to 8, M to 32") {
  int compared = 0;
  for (int K = 1; K <= 8; ++K)
    for (int M = 1; M <= 32; M += kSanitized ? 5 : 1)
      for (const int virtual_stages : {1, 2}) {
        const ScheduleShape shape{.stages = K, .virtual_stages = virtual_stages, .micro_batches = M};
        for (const ScheduleRule& rule : schedules()) {
          if (!rule.refusal(shape).empty()) continue;
          const Schedule schedule = rule.generate(shape);
          const StepCosts costs = equal_stages(shape, ns(3));  // plain messages have no bytes: no buffers
          const Timeline timeline = static_order(schedule, costs);
          const MemoryModel memory = plain_memory(shape);
          for (int worker = 0; worker < K; ++worker) {
            const MemoryPeak walk = peak(memory, schedule, worker);
            const MemoryPeak most = peak(series(memory, schedule, costs, timeline, worker), schedule, worker);
            if (rule.facts.uses_partner) {  // the walk does not know when a partner's activations are there
              CHECK(walk.bytes.total() >= most.bytes.total());
              CHECK(walk.in_flight == rule.peak_in_flight(shape, worker));
              continue;
            }
            CHECK(same(walk, most));
            if (const auto formula = rule.peak_in_flight(shape, worker)) {
              CHECK(walk.in_flight == *formula);
              // Asynchronous: the most bytes may come together with more weight versions and fewer stashes.
              if (schedule.flush) CHECK(walk.bytes.stash == 20_B * *formula);
              ++compared;
            }
          }
        }
      }
  CHECK(compared > rounds(5000));
}

// [ZeroBubble23] table 1: F adds all that a micro-batch holds, B leaves what W needs of it, W frees that.
TEST_CASE("what W does not need goes with the B; with recomputation also what is rebuilt") {
  int less = 0;
  for (const char* name : {"zb_h1", "zb_h2", "1f1b"})
    for (const bool recompute : {false, true})
      for (const double kept : {1.0, .3}) {
        ScheduleShape shape{.stages = 4, .micro_batches = 9};
        shape.recompute.assign(4, recompute);
        const Schedule schedule = schedule_of(name, shape);
        MemoryModel memory = plain_memory(shape);
        memory.kept_for_weights = kept;
        for (int worker = 0; worker < 4; ++worker) {
          int held = 0, most = 0, whole = 0, most_whole = 0;
          const int stash = recompute ? 7 : 20, rebuilt = recompute ? 13 : 0;
          const int stays = kept < 1 ? (recompute ? 2 + 4 : 6) : 20;  // .3 of 7 and of 13, of 20
          for (const Op& op : schedule.positions[worker].compute) {
            if (op.kind == Kind::F) held += stash, whole += stash;
            if (op.kind == Kind::R) held += rebuilt, whole += rebuilt;
            if (op.kind == Kind::B) held -= 20 - stays;
            if (op.kind == Kind::W) held -= stays, whole -= 20;
            if (op.kind == Kind::BW) held -= 20, whole -= 20;
            most = std::max(most, held), most_whole = std::max(most_whole, whole);
          }
          CHECK(held == 0);
          const MemoryPeak walk = peak(memory, schedule, worker);
          CHECK((walk.bytes.stash + walk.bytes.recompute).value == most);
          less += most < most_whole;
        }
      }
  CHECK(less >= 6);
}

TEST_CASE("the peaks of all workers at once are those of each worker's series, buffers included") {
  for (const char* name : {"gpipe", "1f1b", "eager_1f1b", "zb_h1", "pipedream", "data_parallel"})
    for (const bool recompute : {false, true}) {
      ScheduleShape shape{.stages = 4, .micro_batches = 9, .data_parallel = 2};
      if (std::string_view(name) == "data_parallel") shape.stages = 1;
      shape.recompute.assign(static_cast<std::size_t>(shape.stages), recompute);
      if (!find_schedule(name)->refusal(shape).empty()) continue;
      const Schedule schedule = schedule_of(name, shape);
      StepCosts costs = equal_stages(shape, ns(0));
      load_messages(costs, 6_B, ns(4), ns(1));
      const Timeline timeline = static_order(schedule, costs);
      const MemoryModel memory = plain_memory(shape);
      const std::vector<MemoryPeak> all = peaks(memory, schedule, costs, timeline);
      REQUIRE(all.size() == timeline.workers.size());
      for (std::size_t worker = 0; worker < all.size(); ++worker) {
        const auto w = static_cast<WorkerId>(worker);
        const MemoryPeak one = peak(series(memory, schedule, costs, timeline, w), schedule, w);
        CHECK(same(all[worker], one));
        CHECK(all[worker].at == one.at);
      }
    }
}

TEST_CASE("the series of all workers at once are each worker's own") {
  for (const char* name : {"gpipe", "1f1b", "pipedream"}) {
    const ScheduleShape shape{.stages = 4, .micro_batches = 9, .data_parallel = 2};
    const Schedule schedule = schedule_of(name, shape);
    StepCosts costs = equal_stages(shape, ns(0));
    load_messages(costs, 6_B, ns(4), ns(1));
    const Timeline timeline = static_order(schedule, costs);
    const MemoryModel memory = plain_memory(shape);
    const auto all = series(memory, schedule, costs, timeline);
    REQUIRE(all.size() == 8);
    for (std::size_t worker = 0; worker < all.size(); ++worker) {
      const auto own = series(memory, schedule, costs, timeline, static_cast<WorkerId>(worker));
      CHECK(own.size() > 2);
      CHECK(std::equal(own.begin(), own.end(), all[worker].begin(), all[worker].end(),
                       [](const auto& a, const auto& b) { return a.at == b.at && a.bytes == b.bytes; }));
    }
  }
}

TEST_CASE("the event queue's timelines have the same peaks as the static engine's") {
  for (const char* name : {"gpipe", "1f1b", "pipedream"}) {
    const ScheduleShape shape{.stages = 4, .micro_batches = 9, .data_parallel = 2};
    const Schedule schedule = schedule_of(name, shape);
    StepCosts costs = equal_stages(shape, ns(0));
    load_messages(costs, 6_B, ns(4), ns(1));
    const MemoryModel memory = plain_memory(shape);
    const std::vector<MemoryPeak> here = peaks(memory, schedule, costs, static_order(schedule, costs));
    const std::vector<MemoryPeak> there =
        peaks(memory, schedule, costs, event_order(schedule, costs, LinkUse::Private));
    REQUIRE(here.size() == there.size());
    for (std::size_t worker = 0; worker < here.size(); ++worker) {
      CHECK(same(here[worker], there[worker]));
      CHECK(here[worker].at == there[worker].at);
    }
  }
}

// K = 2, M = 1, f = 10, b = 20, messages of 7 B that occupy the channel for 4 and arrive 1 later:
//     worker 0   F 0-10                                   B 50-70
//     worker 1             (wire 10-14) F 15-25, B 25-45  (wire 45-49)
TEST_CASE("a message takes room at the receiver from the wire to its op, a gradient at the sender until it has left") {
  const ScheduleShape shape{.stages = 2, .micro_batches = 1};
  const Schedule schedule = schedule_of("1f1b", shape);
  StepCosts costs = equal_stages(shape, ns(0));
  load_messages(costs, 7_B, ns(4), ns(1));
  const Timeline timeline = static_order(schedule, costs);
  const MemoryModel memory = plain_memory(shape);
  const auto figures = [&](WorkerId worker) {
    std::vector<std::array<std::int64_t, 3>> points;
    for (const MemoryPoint& point : series(memory, schedule, costs, timeline, worker))
      points.push_back({point.at.value, point.bytes.stash.value, point.bytes.buffers.value});
    return points;
  };
  using Points = std::vector<std::array<std::int64_t, 3>>;  // time, stash, buffers
  CHECK(figures(0) == Points{{0, 20, 0}, {45, 20, 7}, {70, 0, 0}});
  CHECK(figures(1) == Points{{0, 0, 0}, {10, 0, 7}, {15, 20, 0}, {45, 0, 7}, {49, 0, 0}});

  const std::vector<MemoryPeak> all = peaks(memory, schedule, costs, timeline);
  CHECK(all[0].bytes.total() == 1000_B + 300_B + 50_B + 5_B + 20_B + 7_B);
  CHECK(all[0].at == ns(45));
  CHECK(label(all[0].owner) == "0RECV_B0");  // not the forward, which began at 0 and was the last op to begin
  CHECK(all[0].owner == MemoryOwner(BufferedMessage{.end = BufferedMessage::End::Receiver,
                                                    .from = 1,
                                                    .to = 0,
                                                    .direction = Direction::Backward,
                                                    .micro_batch = 0}));
  CHECK(all[1].bytes.buffers == 0_B);
  CHECK(all[1].at == ns(15));
  CHECK(label(all[1].owner) == "1F0");
}

// K = 2, GPipe with M = 4, f = 10, b = 20, messages of 8 B that occupy the channel for 80: forwards 0-40 post at 10,
// 20, 30, 40, the channel sends 10-90-170-250-330. Stage 1: F 90-100, 170-180, 250-260, 330-340, then B
// 340-360-380-400-420; its gradients leave 360-440-520-600-680.
TEST_CASE("outputs that are not stashed wait in buffers until they are sent, whatever part of them the stash lacks") {
  const ScheduleShape shape{.stages = 2, .micro_batches = 4};
  const Schedule schedule = schedule_of("gpipe", shape);
  StepCosts costs = equal_stages(shape, ns(0));
  load_messages(costs, 8_B, ns(80), ns(0));
  const Timeline timeline = static_order(schedule, costs);
  MemoryModel memory = plain_memory(shape);
  const auto buffers_at = [&](WorkerId worker, Time at) {
    Bytes buffers;
    for (const MemoryPoint& point : series(memory, schedule, costs, timeline, worker))
      if (point.at <= at) buffers = point.bytes.buffers;
    return buffers;
  };
  CHECK(buffers_at(0, ns(40)) == 0_B);  // all of it is stashed
  memory.outputs[{0, 1}] = {.produced = {8_B, 8_B}, .unstashed = {8_B, 8_B}};
  CHECK(buffers_at(0, ns(40)) == 32_B);  // four are posted, none has left
  CHECK(buffers_at(0, ns(89)) == 32_B);
  CHECK(buffers_at(0, ns(90)) == 24_B);
  CHECK(buffers_at(0, ns(250)) == 8_B);
  const MemoryPeak most = peaks(memory, schedule, costs, timeline)[0];
  CHECK(most.bytes.buffers == 32_B);
  CHECK(most.at == ns(40));  // the last of them is posted: no op begins then
  CHECK(label(most.owner) == "0SEND_F3");
  memory.outputs[{0, 1}].unstashed = {5_B, 1_B};  // the last micro-batch's has its own size
  CHECK(buffers_at(0, ns(40)) == 16_B);
  CHECK(buffers_at(0, ns(250)) == 1_B);
}

// The same with recomputation on stage 0: R 10-20 beside the message that has to wait in a buffer of its own.
TEST_CASE("a stage that recomputes keeps its boundary, its output until it is sent, and one working set from R on") {
  ScheduleShape shape{.stages = 2, .micro_batches = 1};
  shape.recompute = {true, false};
  const Schedule schedule =
      by_hand(shape, {{{.kind = Kind::F}, {.kind = Kind::R}, {.kind = Kind::BW}, {.kind = Kind::Update}},
                      {{.kind = Kind::F, .virtual_stage = 1}, {.kind = Kind::BW, .virtual_stage = 1}}});
  StepCosts costs = equal_stages(shape, ns(0));
  load_messages(costs, 7_B, ns(4), ns(1));
  const Timeline timeline = static_order(schedule, costs);
  std::vector<std::array<std::int64_t, 4>> points;
  for (const MemoryPoint& point : series(plain_memory(shape), schedule, costs, timeline, 0))
    points.push_back({point.at.value, point.bytes.stash.value, point.bytes.recompute.value, point.bytes.buffers.value});
  CHECK(points == std::vector<std::array<std::int64_t, 4>>{
                      {0, 7, 0, 0}, {10, 7, 13, 7}, {14, 7, 13, 0}, {45, 7, 13, 7}, {70, 0, 0, 0}});
  const MemoryPeak most = peaks(plain_memory(shape), schedule, costs, timeline)[0];
  CHECK(most.at == ns(10));
  CHECK(label(most.owner) == "0R0");  // 13 B, beside the 7 B of the message that begins to wait then
}

TEST_CASE("a bucket takes room while its all-reduce runs") {
  const ScheduleShape shape{.stages = 1, .micro_batches = 1, .data_parallel = 2};
  const Schedule schedule = schedule_of("data_parallel", shape);
  StepCosts costs = equal_stages(shape, ns(0));
  costs.collectives = {{Collective{.bytes = 300_B, .time = ns(15), .phases = {}}}};
  costs.ready_before_end = {{ns(0)}};
  const Timeline timeline = static_order(schedule, costs);  // F 0-10, BW 10-30, all-reduce 30-45
  const auto points = series(plain_memory(shape), schedule, costs, timeline, 1);
  REQUIRE(points.size() == 3);
  CHECK(points[1].at == ns(30));
  CHECK(points[1].bytes.buffers == 300_B);
  CHECK(points[1].bytes.stash == 0_B);
  CHECK(points[2].at == ns(45));
  CHECK(points[2].bytes.buffers == 0_B);
}

// F 0-10 stashes 20 B until BW ends at 30; the buckets travel 30-45 and 45-60.
TEST_CASE("an all-reduce that makes the peak is named with its round and bucket") {
  const ScheduleShape shape{.stages = 1, .micro_batches = 1, .data_parallel = 2, .buckets = {2}};
  const Schedule schedule = schedule_of("data_parallel", shape);
  StepCosts costs = equal_stages(shape, ns(0));
  const auto peak_with = [&](Bytes first, Bytes second) {
    costs.collectives = {{Collective{.bytes = first, .time = ns(15), .phases = {}},
                          Collective{.bytes = second, .time = ns(15), .phases = {}}}};
    costs.ready_before_end = {{ns(0), ns(0)}};
    return peaks(plain_memory(shape), schedule, costs, static_order(schedule, costs))[1];
  };
  CHECK(peak_with(100_B, 500_B).at == ns(45));
  CHECK(label(peak_with(100_B, 500_B).owner) == "0AR0.1");
  CHECK(peak_with(500_B, 100_B).at == ns(30));
  CHECK(label(peak_with(500_B, 100_B).owner) == "0AR0.0");
  CHECK(label(peak_with(19_B, 19_B).owner) == "0F0");
}

TEST_CASE("a buffered message has PyTorch's name of its end, and tells the other end where that is not a neighbour") {
  const auto named = [](BufferedMessage::End end, VirtualStageId from, VirtualStageId to, Direction direction) {
    return label(BufferedMessage{.end = end, .from = from, .to = to, .direction = direction, .micro_batch = 7});
  };
  CHECK(named(BufferedMessage::End::Receiver, 1, 2, Direction::Forward) == "2RECV_F7");
  CHECK(named(BufferedMessage::End::Sender, 1, 2, Direction::Forward) == "1SEND_F7");
  CHECK(named(BufferedMessage::End::Receiver, 2, 1, Direction::Backward) == "1RECV_B7");
  CHECK(named(BufferedMessage::End::Sender, 2, 1, Direction::Backward) == "2SEND_B7");
  CHECK(named(BufferedMessage::End::Receiver, 0, 3, Direction::Forward) == "3RECV_F7 from 0");
  CHECK(named(BufferedMessage::End::Sender, 3, 0, Direction::Backward) == "3SEND_B7 to 0");
}

TEST_CASE("a split backward releases the stash when the later of B and W has ended") {
  const ScheduleShape shape{.stages = 1, .micro_batches = 2};
  const Op f0{.kind = Kind::F}, b0{.kind = Kind::B}, w0{.kind = Kind::W};
  const Op f1{.kind = Kind::F, .micro_batch = 1}, b1{.kind = Kind::B, .micro_batch = 1},
      w1{.kind = Kind::W, .micro_batch = 1};
  const MemoryModel memory = plain_memory(shape);
  CHECK(peak(memory, by_hand(shape, {{f0, b0, w0, f1, b1, w1}}), 0).bytes.stash == 20_B);
  CHECK(peak(memory, by_hand(shape, {{f0, b0, f1, w0, b1, w1}}), 0).bytes.stash == 40_B);
}

TEST_CASE("the last micro-batch counts with its own bytes when the batch is ragged") {
  const ScheduleShape shape{.stages = 1, .micro_batches = 3};
  MemoryModel memory = plain_memory(shape);
  memory.chunks[0].stash[1] = 4_B;
  CHECK(peak(memory, schedule_of("gpipe", shape), 0).bytes.stash == 20_B + 20_B + 4_B);
}

TEST_CASE("torchgpipe's except_last keeps everything of the last micro-batch") {
  ScheduleShape shape{.stages = 2, .micro_batches = 4};
  shape.recompute = {true, true};
  const MemoryModel memory = plain_memory(shape);
  // M boundaries, and the working set that R rebuilds for one micro-batch at a time
  CHECK(peak(memory, schedule_of("gpipe", shape), 0).bytes.stash == 7_B * 4);
  CHECK(peak(memory, schedule_of("gpipe", shape), 0).bytes.recompute == 13_B);
  shape.recompute_except_last = true;
  CHECK(peak(memory, schedule_of("gpipe", shape), 0).bytes.stash == 7_B * 3 + 20_B);
  CHECK(peak(memory, schedule_of("gpipe", shape), 0).bytes.recompute == 0_B);
}

// In the steady state stage k holds n = K - k micro-batches between forward and backward, each with the version of its
// own: forward m comes after update m - n, so it uses version m - n + 1.
// A run of M < 2n - 2 ends before the first n forwards, which all use version 0, have left: then M - n + 2 are alive,
// and at least 2 (version 0 in use, and the current one) as soon as two micro-batches follow each other.
TEST_CASE("a straight PipeDream pipeline keeps K - k weight versions on stage k, and one on the last") {
  for (int K = 1; K <= 8; ++K)
    for (int M = 1; M <= 32; ++M) {
      const ScheduleShape shape{.stages = K, .micro_batches = M};
      const Schedule schedule = schedule_of("pipedream", shape);
      for (int k = 0; k < K; ++k) {
        const int n = K - k;
        const int expected = n == 1 || M == 1 ? 1 : std::min(n, std::max(2, M - n + 2));
        CHECK(peak(plain_memory(shape), schedule, k).weight_versions == expected);
      }
    }
}

// Vertical sync: micro-batch m uses version m - K + 1 on every stage, the one that stage 0 had. Stage k has made
// m - (K - k) + 1 updates when forward m begins; its oldest micro-batch in flight, m - (K - k) + 1, uses version
// m - 2K + k + 2. From there to the current version, m - K + k + 1, all are still asked for: K of them, on every stage.
TEST_CASE("with vertical sync every stage keeps K weight versions") {
  for (int K = 1; K <= 8; ++K) {
    const ScheduleShape shape{.stages = K, .micro_batches = 4 * K, .vertical_sync = true};
    const Schedule schedule = schedule_of("pipedream", shape);
    for (int k = 0; k < K; ++k)
      CHECK(peak(plain_memory(shape), schedule, k).weight_versions == K);
  }
}

TEST_CASE("a replica of stage k keeps ceil(sum of r_j from k on / r_k) weight versions, 1F1B-RR") {
  for (const bool blocking : {false, true})
    for (int a = 1; a <= 15; ++a)
      for (int b = 1; b <= 4; ++b)
        for (int c = 1; c <= 3; ++c) {
          const std::vector<int> replicas = {a, b, c};
          const ScheduleShape shape{
              .stages = 3, .micro_batches = 12 * (a + b + c), .replicas = replicas, .blocking_sync = blocking};
          const Schedule schedule = schedule_of("pipedream", shape);
          int behind = 0, position = a + b + c;
          for (int k = 2; k >= 0; --k) {
            const int r = replicas[static_cast<std::size_t>(k)];
            behind += r;
            for (int replica = 0; replica < r; ++replica) {
              const MemoryPeak most = peak(plain_memory(shape), schedule, --position);
              CHECK(most.in_flight == (behind + r - 1) / r);
              CHECK(most.weight_versions == (behind + r - 1) / r);
            }
          }
        }
}

TEST_CASE("weights count all versions that are alive at the moment of the peak") {
  const ScheduleShape shape{.stages = 4, .micro_batches = 32};
  const MemoryPeak most = peak(plain_memory(shape), schedule_of("pipedream", shape), 0);
  CHECK(most.bytes.weights == 1000_B * 4);  // weights outweigh stashes here, so the peak has all four versions
  CHECK(most.bytes.gradients == 300_B);
  CHECK(most.bytes.total() == 4000_B + 300_B + 50_B + 5_B + most.bytes.stash);
}

TEST_CASE("interleaved stages hold the weights of all their chunks") {
  const ScheduleShape shape{.stages = 2, .virtual_stages = 3, .micro_batches = 4};
  const MemoryPeak most = peak(plain_memory(shape), schedule_of("interleaved_1f1b", shape), 1);
  CHECK(most.bytes.weights == 3000_B);
  CHECK(most.bytes.gradients == 900_B);
  CHECK(most.bytes.optimizer == 150_B);
}

}  // namespace pipewright::tests
