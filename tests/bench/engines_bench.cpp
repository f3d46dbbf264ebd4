// How fast the engines are, on one core. Not part of `meson test`: run build/tests/bench/bench_engines.
#include <algorithm>
#include <optional>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/check.hpp"
#include "sim/compiled_order.hpp"
#include "sim/des/event_queue.hpp"
#include "sim/des/shared_link.hpp"
#include "sim/event_order.hpp"
#include "sim/finder/find_order.hpp"
#include "sim/finder/list_order.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"
#include "tests/bench/limits.hpp"

namespace pipewright::tests {
namespace {

// ------------------------------------------------------------------------------------------------------------- cases

Schedule one_f_one_b(int stages, int micro_batches) {
  const ScheduleRule* rule = find_schedule("1f1b");
  PP_CHECK(rule != nullptr);
  return rule->generate({.stages = stages, .micro_batches = micro_batches});
}

enum class Stages { Equal, Unequal };

// Forward about 1 ms, backward twice that, hops of 50 us on the wire and 5 us on the way, a channel per direction and
// neighbour. Unequal stages differ by up to 20 %, so that hardly two events fall on one instant.
StepCosts pipeline_costs(const ScheduleShape& shape, Stages stages) {
  StepCosts costs;
  costs.shape = shape;
  costs.duration.resize(static_cast<std::size_t>(shape.chunks()) * kKinds);
  for (int v = 0; v < shape.chunks(); ++v) {
    const std::int64_t forward = 1'000'000 + (stages == Stages::Equal ? 0 : v * 7919 % 200 * 1009);
    Time* const row = &costs.duration[static_cast<std::size_t>(v) * kKinds];
    row[static_cast<std::size_t>(Kind::F)] = {forward};
    row[static_cast<std::size_t>(Kind::BW)] = {2 * forward};
  }
  costs.duration_last = costs.duration;
  for (int v = 0; v + 1 < shape.chunks(); ++v) {
    costs.edges.push_back({static_cast<std::uint16_t>(v), static_cast<std::uint16_t>(v + 1)});
    for (int direction = 0; direction < 2; ++direction) {
      costs.first_message.push_back(static_cast<std::uint32_t>(costs.messages.size()));
      costs.messages.push_back(
          {.occupancy = {50'000}, .latency = {5'000}, .bytes = {500'000}, .channel = costs.channels++});
    }
  }
  costs.messages_last = costs.messages;
  return costs;
}

// Nodes of four devices: the hops inside a node divide its one fabric, those between nodes the half-duplex NICs at
// both ends. 500 kB at 10 GB/s take 50 us alone, as above; hops are `slower` times as long.
void add_shared_links(StepCosts& costs, int slower) {
  constexpr int kPerNode = 4;
  const int nodes = (costs.shape.stages + kPerNode - 1) / kPerNode;
  const Bandwidth bandwidth{10e9 / slower};
  for (int i = 0; i < 2 * nodes; ++i)
    costs.links.push_back({"", bandwidth});  // fabric of node i, then NIC of node i
  for (std::size_t e = 0; e < costs.edges.size(); ++e) {
    const int a = costs.edges[e].from / kPerNode, b = costs.edges[e].to / kPerNode;
    Route route{.links = {a}, .bandwidth = bandwidth};
    if (a != b) route.links = {nodes + a, nodes + b};
    for (std::size_t direction = 0; direction < 2; ++direction) {
      Message& message = costs.messages[2 * e + direction];
      message.route = static_cast<std::int32_t>(costs.routes.size());
      message.occupancy = {50'000 * slower};
    }
    costs.routes.push_back(route);
  }
  costs.messages_last = costs.messages;
}

// ------------------------------------------------------------------------------------------------------ static order

// One makespan: compute ops per second, no timeline. Schedule and prices are made before; transfers are derived inside.
void static_makespan(benchmark::State& state, const char* name, Stages stages) {
  forget_peak();
  const Schedule schedule = find_schedule(name)->generate({.stages = 64, .micro_batches = 4096});
  const StepCosts costs = pipeline_costs(schedule.shape, stages);
  for (auto _ : state)
    benchmark::DoNotOptimize(static_order_makespan(schedule, costs));
  constexpr double ops = 2.0 * 64 * 4096;
  report_rate(state, "ops", ops, ops * (sizeof(Op) + sizeof(std::int64_t)));
}
BENCHMARK_CAPTURE(static_makespan, f1b1_equal_K64_M4096, "1f1b", Stages::Equal)->Unit(benchmark::kMillisecond);

// A makespan of an order that is compiled already: what a search pays for the second price.
void compiled_sweep(benchmark::State& state, const char* name) {
  forget_peak();
  const Schedule schedule = find_schedule(name)->generate({.stages = 64, .micro_batches = 4096});
  const StepCosts costs = pipeline_costs(schedule.shape, Stages::Unequal);
  const CompiledOrder order = CompiledOrder::of(schedule, costs);
  for (auto _ : state)
    benchmark::DoNotOptimize(order.makespan(costs));
  constexpr double ops = 2.0 * 64 * 4096;
  report_rate(state, "ops", ops, ops * 8);
}
BENCHMARK_CAPTURE(compiled_sweep, f1b1_unequal_K64_M4096, "1f1b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compiled_sweep, gpipe_unequal_K64_M4096, "gpipe")->Unit(benchmark::kMillisecond);

// The first price of an order: its compilation and a sweep.
void first_price(benchmark::State& state, const char* name) {
  forget_peak();
  const auto stages = static_cast<int>(state.range(0)), micro_batches = static_cast<int>(state.range(1));
  const Schedule schedule = find_schedule(name)->generate({.stages = stages, .micro_batches = micro_batches});
  const StepCosts costs = pipeline_costs(schedule.shape, Stages::Unequal);
  for (auto _ : state)
    benchmark::DoNotOptimize(static_order_makespan(schedule, costs));
  const double ops = 2.0 * stages * micro_batches;
  report_rate(state, "ops", ops, ops * sizeof(Op));
}
void sizes(benchmark::internal::Benchmark* of) {
  of->ArgNames({"K", "M"})->Args({8, 32})->Args({64, 128})->Args({64, 4096})->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(first_price, f1b1, "1f1b")->Apply(sizes);
BENCHMARK_CAPTURE(first_price, gpipe, "gpipe")->Apply(sizes);

// The same with the times of every op and transfer kept.
void static_timeline(benchmark::State& state) {
  forget_peak();
  const Schedule schedule = one_f_one_b(64, 4096);
  const StepCosts costs = pipeline_costs(schedule.shape, Stages::Unequal);
  for (auto _ : state)
    benchmark::DoNotOptimize(static_order(schedule, costs).makespan);
  constexpr double ops = 2.0 * 64 * 4096;
  report_rate(state, "ops", ops, ops * (sizeof(Op) + sizeof(std::int64_t) + sizeof(Span) + sizeof(Transfer)));
}
BENCHMARK(static_timeline)->Name("static_timeline/f1b1_unequal_K64_M4096")->Unit(benchmark::kMillisecond);

// ------------------------------------------------------------------------------------------------------- event queue

void private_links(benchmark::State& state, Stages stages) {
  forget_peak();
  const Schedule schedule = one_f_one_b(64, 4096);
  const StepCosts costs = pipeline_costs(schedule.shape, stages);
  std::size_t events = 0;  // completions and arrivals
  std::size_t bytes = 0;   // of the timeline
  for (auto _ : state) {
    const Timeline timeline = event_order(schedule, costs, LinkUse::Private);
    benchmark::DoNotOptimize(timeline.makespan);
    events = timeline.transfers.size();
    bytes = timeline.transfers.size() * sizeof(Transfer);
    for (const LaneTimes& worker : timeline.workers)
      events += worker.compute.size(), bytes += worker.compute.size() * sizeof(Span);
  }
  report_rate(state, "events", static_cast<double>(events), static_cast<double>(bytes));
}
BENCHMARK_CAPTURE(private_links, equal_stages_K64_M4096, Stages::Equal)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(private_links, unequal_stages_K64_M4096, Stages::Unequal)->Unit(benchmark::kMillisecond);

// 62 channels, so at most 62 live flows; parts of up to 6 flows divide a link. An event is the begin or the end of a
// flow, the compute ops around them are simulated, too, and not counted.
void shared_links(benchmark::State& state) {
  forget_peak();
  const Schedule schedule = one_f_one_b(32, 2048);
  StepCosts costs = pipeline_costs(schedule.shape, Stages::Unequal);
  add_shared_links(costs, static_cast<int>(state.range(0)));
  std::size_t flows = 0;
  for (auto _ : state) {
    const Timeline timeline = event_order(schedule, costs, LinkUse::Shared);
    benchmark::DoNotOptimize(timeline.makespan);
    flows = timeline.transfers.size();
  }
  report_rate(state, "flow_events", 2 * static_cast<double>(flows), 0);
}
BENCHMARK(shared_links)->ArgName("slower")->Arg(1)->Arg(8)->Unit(benchmark::kMillisecond);

// Links alone: `live` flows over two of `links` links each; one ends, another begins. With few links all flows hang
// together, so every event settles all of them.
void flows(benchmark::State& state) {
  const auto live = static_cast<std::uint32_t>(state.range(0)), links = static_cast<std::uint32_t>(state.range(1));
  SharedLinks network(std::vector<Bandwidth>(links, Bandwidth{1e9}), LinkPolicy::MaxMin);
  std::uint32_t next = 1;
  Time now;
  const auto start = [&] {
    next = next * 1664525u + 1013904223u;
    const std::uint32_t first = (next >> 8) % links, hop = 1 + (next >> 20) % (links - 1);
    const LinkWeight route[] = {{first, 1}, {(first + hop) % links, 1}};
    const double bytes = 10'000 + (next >> 16);
    network.start(now, {bytes, Bandwidth{1e9}, {static_cast<std::int64_t>(bytes)}, 0}, route);
  };
  for (std::uint32_t i = 0; i < live; ++i)
    start();
  std::size_t events = 0;
  for (auto _ : state) {
    now = network.settle(now);
    const std::size_t ended = network.take_finished(now).size();
    for (std::size_t i = 0; i < ended; ++i)
      start();
    events += 2 * ended;
  }
  report_rate(state, "flow_events", static_cast<double>(events) / static_cast<double>(state.iterations()), 0);
}
BENCHMARK(flows)
    ->ArgNames({"live", "links"})
    ->Args({8, 32})
    ->Args({64, 32})
    ->Args({64, 256})
    ->Args({512, 256})
    ->Args({4000, 100});

// The queue alone: `pending` events, each popped one is pushed again some time later.
void queue(benchmark::State& state) {
  EventQueue queue;
  std::uint32_t next = 1;
  const auto delay = [&] {
    next = next * 1664525u + 1013904223u;
    return Time{1 + (next >> 12)};
  };
  for (std::uint32_t i = 0; i < state.range(0); ++i)
    queue.push(delay(), Rank::Finish, i);
  for (auto _ : state) {
    const Event event = queue.pop();
    queue.push(event.time + delay(), event.rank, event.what);
  }
  report_rate(state, "events", 1, 0);
}
BENCHMARK(queue)->ArgName("pending")->Arg(64)->Arg(192)->Arg(4096);

// ------------------------------------------------------------------------------------------------- finder of orders

OrderProblem problem_of_finder() {
  OrderProblem problem{.stages = 8, .virtual_stages = 1, .micro_batches = 32};
  problem.forward.assign(8, 10'000), problem.input.assign(8, 12'000), problem.weights.assign(8, 8'000);
  problem.down.assign(7, 500), problem.up = problem.down;
  problem.held.assign(8, 1), problem.kept_after_input = problem.held, problem.cap.assign(8, 12);
  return problem;
}

// Orders made by a rule, per second; and orders priced.
void finder_lists(benchmark::State& state) {
  ListScheduler scheduler(problem_of_finder());
  const ListRule rule{
      .most = {8, 7, 6, 5, 4, 3, 2, 1}, .patience = std::vector<double>(8, .5), .margin = std::vector<double>(8, .5)};
  PricedOrder order;
  for (auto _ : state)
    benchmark::DoNotOptimize(scheduler.run(rule, std::int64_t{1} << 60, order));
  report_rate(state, "orders", 1, 0);
}
BENCHMARK(finder_lists)->Name("finder_lists/K8_M32")->Unit(benchmark::kMicrosecond);

void finder_prices(benchmark::State& state) {
  const OrderProblem problem = problem_of_finder();
  OrderPricer pricer(problem);
  PricedOrder order = find_order(problem, {.evaluations = 1, .seed = 1}).order;
  for (auto _ : state)
    benchmark::DoNotOptimize(pricer.price(order));
  report_rate(state, "orders", 1, 0);
}
BENCHMARK(finder_prices)->Name("finder_prices/K8_M32")->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pipewright::tests

BENCHMARK_MAIN();
