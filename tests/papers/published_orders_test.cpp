// Orders written by the generators of others, op by op and cell by cell, with their times one op after the other: every
// schedule of the table that the cases have. A program of its own, so that without the data (env PIPEWRIGHT_TEST_DATA, default ../shared/data next to the
// source tree) the test runner shows it as skipped, with the reason, and not as passed.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/cost/memory_model.hpp"
#include "core/plan/given_schedule.hpp"
#include "core/plan/timeline.hpp"
#include "io/import/schedule_csv.hpp"
#include "sim/event_order.hpp"
#include "sim/finder/find_order.hpp"
#include "sim/schedules/made_order.hpp"
#include "sim/schedules/table.hpp"
#include "sim/simulate.hpp"
#include "sim/static_order.hpp"
#include "tests/support/published_schedules.hpp"

using namespace pipewright::tests;

namespace {

using Case = PublishedRow;
std::vector<Case> cases() {
  return published_rows("cases.csv");
}

// F, I and W of a chunk, and B = I + W, alike on all; a transfer is a latency.
StepCosts costs_of(const Case& each, const ScheduleShape& shape) {
  const auto time = [&](const char* head) { return Time{std::stoll(each.at(head))}; };
  const auto chunks = static_cast<std::size_t>(shape.chunks());
  StepCosts costs = plain_costs(shape, std::vector<Time>(chunks, time("F")),
                                std::vector<Time>(chunks, time("B") + time("W")), time("comm"));
  for (auto* const durations : {&costs.duration, &costs.duration_last})
    for (std::size_t v = 0; v < chunks; ++v) {
      (*durations)[v * kKinds + static_cast<std::size_t>(Kind::B)] = time("B");
      (*durations)[v * kKinds + static_cast<std::size_t>(Kind::W)] = time("W");
    }
  return costs;
}

int number_behind(const std::string& order, const char* what) {  // interleaved_group/K4_M8_v2_g8.csv
  return std::stoi(order.substr(order.rfind(what) + std::strlen(what)));
}

ScheduleShape shape_of(const GivenSchedule& given) {
  return {.stages = given.stages,
          .virtual_stages = given.virtual_stages,
          .micro_batches = given.micro_batches,
          .chunk_order = given.chunk_order,
          .given = std::make_shared<const GivenSchedule>(given)};
}

int most_in_flight(const std::vector<Op>& ops) {
  int now = 0, most = 0;
  for (const Op& op : ops) {
    now += op.kind == Kind::F ? 1 : rule(op.kind).gradients ? -1 : 0;
    most = std::max(most, now);
  }
  return most;
}

// By stage, what the walk over the order holds at most where a micro-batch of a chunk holds `held` and, from B to W, `kept`
// of it.
std::vector<std::int64_t> most_held(const Schedule& schedule, std::int64_t held, double kept) {
  const ChunkMemory chunk{.stash = {Bytes{held}, Bytes{held}}};
  MemoryModel memory{.chunks = std::vector<ChunkMemory>(static_cast<std::size_t>(schedule.shape.chunks()), chunk),
                     .reserve = {},
                     .capacity = {}};
  memory.kept_for_weights = kept;
  std::vector<std::int64_t> most;
  for (StageId k = 0; k < schedule.shape.stages; ++k)
    most.push_back(
        peak(memory, schedule, schedule.seating().position(schedule.seating().chunk_of(k, 0), 0)).bytes.stash.value);
  return most;
}

std::string joined(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers)
    text += (text.empty() ? "" : " ") + std::to_string(number);
  return text;
}

// Without the update at the end, which no order writes.
std::vector<Op> passes(const Lane& lane) {
  std::vector<Op> ops = lane.compute;
  std::erase_if(ops, [](const Op& op) { return op.kind == Kind::Update; });
  return ops;
}

}  // namespace

TEST_CASE("the published orders of the table's schedules come out op by op, with their times and peaks") {
  std::set<std::string> met;
  for (const Case& each : cases()) {
    const std::string& name = each.at("schedule");
    const bool in_groups = name == "interleaved_group";
    const ScheduleRule* rule = find_schedule(name == "zbv_hand"        ? "zbv"
                                             : name == "hanayo_greedy" ? "hanayo"
                                             : in_groups               ? "interleaved_1f1b"
                                                                       : name);
    if (rule == nullptr || rule->made_for != nullptr || each.at("overlap") == "fused") continue;
    CAPTURE(each.at("order"));
    const bool two_ways = both_ways(rule->chunk_order);  // there the two stages of a rank are of one chunk
    const int slices = rule->facts.states_slices ? number_behind(each.at("order"), "_Q") : 1;
    const ScheduleShape shape{.stages = std::stoi(each.at("K")),
                              .virtual_stages = two_ways ? 1 : std::stoi(each.at("v")),
                              .micro_batches = std::stoi(each.at("M")) * slices,
                              .group = in_groups ? number_behind(each.at("order"), "_g") : 0,
                              .slices = slices,
                              .chunk_order = rule->chunk_order};
    REQUIRE(rule->refusal(shape) == "");
    const Schedule schedule = rule->generate(shape);
    const GivenSchedule given = read_schedule_csv(published() + "orders/" + each.at("order"));
    REQUIRE(given.compute.size() == schedule.positions.size());
    const Timeline timeline = static_order(schedule, costs_of(each, shape));
    Time span{0};
    std::string peaks;
    for (PositionId k = 0; k < std::ssize(given.compute); ++k) {
      CHECK(passes(schedule.positions[k]) == given.compute[k]);
      const std::vector<Span>& ops = timeline.workers[k].compute;
      span = std::max(span, ops.back().end - ops.front().start);
      const auto peak = rule->peak_in_flight(shape, as<StageId>(k));
      peaks += (k == 0 ? "" : " ") + std::to_string(peak ? *peak : most_in_flight(given.compute[k]));
    }
    CHECK(timeline.makespan == Time{std::stoll(each.at("makespan"))});
    CHECK(span == Time{std::stoll(each.at("longest"))});
    CHECK(peaks == each.at("peak_until_w"));
    CHECK(joined(most_held(schedule, 1, 0)) == each.at("peak_until_i"));
    met.insert(each.at("schedule"));
  }
  CHECK(met == std::set<std::string>{"chimera", "dualpipe", "dualpipev", "hanayo_greedy", "interleaved_1f1b",
                                     "interleaved_group", "interleaved_zb", "moe_overlap_1f1b", "looped_bfs", "seq1f1b",
                                     "v_1f1b", "v_half", "v_min", "zb_h1", "zb_h2", "zbv_hand"});
}

TEST_CASE("the published orders that are made for times and a limit of memory come out op by op, with their times") {
  // What the authors' function was asked, by order: f, b, w, c, what F adds, B changes and W frees, and the limit.
  std::map<std::string, std::array<std::int64_t, 8>> asked;
  std::ifstream manifest(published() + "manifest.csv");
  for (std::string line; std::getline(manifest, line);) {
    const std::regex arguments(R"(F=(\d+),B=(\d+),W=(\d+),c=(\d+),mem=\((-?\d+), (-?\d+), (-?\d+)\),max_mem=(\d+))");
    const std::regex in_chunks(R"(cost=\((\d+),(\d+),(\d+),(\d+)\),max_mem=(\d+) chunk)");
    auto& values = asked[line.substr(0, line.find(','))];
    if (std::smatch found; std::regex_search(line, found, arguments))
      for (std::size_t i = 0; i < 8; ++i)
        values[i] = std::stoll(found[i + 1]);
    else if (std::regex_search(line, found, in_chunks))
      values = {std::stoll(found[1]), std::stoll(found[2]), std::stoll(found[3]), std::stoll(found[4]), 1, 0, -1,
                std::stoll(found[5])};
  }
  std::map<std::string, int> met;
  for (const Case& each : cases()) {
    const ScheduleRule* rule = find_schedule(each.at("schedule"));
    if (rule == nullptr || rule->made_for == nullptr) continue;
    CAPTURE(each.at("order"));
    const auto [f, b, w, c, held, input, weights, cap] = asked.at(each.at("order"));
    ScheduleShape shape{.stages = std::stoi(each.at("K")),
                        .virtual_stages = std::stoi(each.at("v")),
                        .micro_batches = std::stoi(each.at("M")),
                        .chunk_order = rule->chunk_order};
    REQUIRE(rule->refusal(shape) == "");
    const auto alike = [&](std::int64_t value) {
      return std::vector<std::int64_t>(static_cast<std::size_t>(shape.chunks()), value);
    };
    CHECK(held + input == -weights);
    const ZeroBubbleTimes times{.forward = alike(f),
                                .input = alike(b),
                                .weights = alike(w),
                                .held = alike(held),
                                .kept_after_input = alike(-weights),
                                .cap = std::vector<std::int64_t>(static_cast<std::size_t>(shape.stages), cap),
                                .hop = c};
    GivenSchedule order{.file = "",
                        .stages = shape.stages,
                        .virtual_stages = shape.virtual_stages,
                        .micro_batches = shape.micro_batches,
                        .chunk_order = shape.chunk_order,
                        .compute = rule->made_for(one_hop_problem(shape, times)),
                        .cells = {},
                        .derived = 0};
    CHECK(order.compute == read_schedule_csv(published() + "orders/" + each.at("order")).compute);
    shape.given = std::make_shared<const GivenSchedule>(order);
    const Schedule schedule = rule->generate(shape);
    const Timeline timeline = static_order(schedule, costs_of(each, shape));
    Time span{0};
    for (PositionId k = 0; k < std::ssize(order.compute); ++k) {
      CHECK(passes(schedule.positions[k]) == order.compute[k]);
      span = std::max(span, timeline.workers[k].compute[order.compute[k].size() - 1].end -
                                timeline.workers[k].compute.front().start);
    }
    CHECK(timeline.makespan == Time{std::stoll(each.at("makespan"))});
    CHECK(span == Time{std::stoll(each.at("longest"))});
    CHECK(joined(most_held(schedule, 1, 1)) == each.at("peak_until_w"));
    CHECK(joined(most_held(schedule, 1, 0)) == each.at("peak_until_i"));
    ++met[each.at("schedule")];
  }
  CHECK(met.size() == 3);
}

// No schedule of the table writes them: lists scheduled, and single passes moved, for the times of the published tables.
// [ZeroBubble23] table 1: per layer of 1024 tokens a micro-batch holds 34 h + 5 a s from F to B, and 32 h from B to W.
TEST_CASE("orders that others found by search, read from files: times, spans and peaks, and they keep to their room") {
  std::map<std::string, std::array<std::int64_t, 2>> widths;  // by order: h and a
  std::ifstream manifest(published() + "manifest.csv");
  for (std::string line; std::getline(manifest, line);)
    if (std::smatch found; std::regex_search(line, found, std::regex(R"(Table-1 memory h=(\d+) a=(\d+))")))
      widths[line.substr(0, line.find(','))] = {std::stoll(found[1]), std::stoll(found[2])};
  std::map<std::string, int> met;
  for (const Case& each : cases()) {
    const std::string& name = each.at("schedule");
    if (name != "zb_search" && name != "zbv_search") continue;
    CAPTURE(each.at("order"));
    const GivenSchedule given = read_schedule_csv(published() + "orders/" + each.at("order"));
    const auto number = [&](const char* head) { return std::stoll(each.at(head)); };
    CHECK(given.stages == number("K"));
    CHECK(given.virtual_stages == number("v"));
    CHECK(given.micro_batches == number("M"));
    const Schedule schedule = find_schedule(kGivenSchedule)->generate(shape_of(given));
    CHECK(validate(schedule) == "");
    const StepCosts costs = costs_of(each, schedule.shape);
    const Timeline timeline = static_order(schedule, costs);
    Time span{0}, work{0};
    for (PositionId k = 0; k < std::ssize(given.compute); ++k) {
      CHECK(passes(schedule.positions[k]) == given.compute[k]);
      const std::vector<Span>& ops = timeline.workers[k].compute;
      span = std::max(span, ops[given.compute[k].size() - 1].end - ops.front().start);
      if (k == 0)
        for (const Span& op : ops)
          work = work + (op.end - op.start);
    }
    CHECK(timeline.makespan == Time{number("makespan")});
    CHECK(event_order(schedule, costs).makespan == timeline.makespan);
    CHECK(span == Time{number("longest")});
    CHECK(work == Time{number("work")});
    CHECK(joined(most_held(schedule, 1, 1)) == each.at("peak_until_w"));
    CHECK(joined(most_held(schedule, 1, 0)) == each.at("peak_until_i"));
    const std::int64_t room = number("mem_cap");  // "2*K", or "1*2K" in chunks
    if (each.at("mem_model") == "table1") {
      const auto [hidden, heads] = widths.at(each.at("order"));
      const std::int64_t held = 34 * hidden + 5 * heads * 1024;
      for (const std::int64_t most : most_held(schedule, held, 32.0 * double(hidden) / double(held)))
        CHECK(most <= room * given.stages * held);
    } else {
      for (const std::int64_t most : most_held(schedule, 1, 1))
        CHECK(most <= room * 2 * given.stages);
    }
    ++met[name];
  }
  CHECK(met == std::map<std::string, int>{{"zb_search", 7}, {"zbv_search", 2}});
}

// The least span, or makespan, of all orders of small cases, from an exhaustive search or an integer program.
TEST_CASE("orders made for times: with one chunk none is better, with two none is below the optimum") {
  std::ifstream in(published() + "optimum.csv");
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> heads = cells_of(line);
  std::map<std::string, int> met, optimal;
  while (std::getline(in, line)) {
    const std::vector<std::string> cells = cells_of(line);
    REQUIRE(cells.size() == heads.size());
    Case each;
    for (std::size_t i = 0; i < heads.size(); ++i)
      each[heads[i]] = cells[i];
    const auto number = [&](const char* head) { return std::stoll(each.at(head)); };
    const bool one = each.at("v") == "1";
    if (!one && each.at("placement") != "v") continue;
    for (const char* name : {"zb_auto", "zbv_auto", "v_auto"}) {
      const ScheduleRule& rule = *find_schedule(name);
      if (one != (rule.chunks != 2)) continue;
      CAPTURE(line);
      CAPTURE(name);
      ScheduleShape shape{.stages = std::stoi(each.at("K")),
                          .virtual_stages = one ? 1 : 2,
                          .micro_batches = std::stoi(each.at("M")),
                          .chunk_order = rule.chunk_order};
      const auto alike = [&](std::int64_t value) {
        return std::vector<std::int64_t>(static_cast<std::size_t>(shape.chunks()), value);
      };
      const ZeroBubbleTimes times{
          .forward = alike(number("F")),
          .input = alike(number("B")),
          .weights = alike(number("W")),
          .held = alike(1),
          .kept_after_input = alike(1),
          .cap = std::vector<std::int64_t>(static_cast<std::size_t>(shape.stages), number("cap")),
          .hop = number("comm")};
      GivenSchedule order;
      order.stages = shape.stages, order.virtual_stages = shape.virtual_stages;
      order.micro_batches = shape.micro_batches, order.chunk_order = shape.chunk_order;
      order.compute = rule.made_for(one_hop_problem(shape, times));
      if (order.compute.empty()) {
        CHECK_FALSE(one);
        continue;
      }
      shape.given = std::make_shared<const GivenSchedule>(order);
      const Timeline timeline = static_order(rule.generate(shape), costs_of(each, shape));
      Time span{0};
      for (std::size_t k = 0; k < order.compute.size(); ++k)
        span = std::max(span, timeline.workers[k].compute[order.compute[k].size() - 1].end -
                                  timeline.workers[k].compute.front().start);
      const Time found = each.at("objective") == "span" ? span : timeline.makespan, least{number("optimum")};
      CHECK(found >= least);
      if (one) CHECK(found == least);
      if (each.at("by") == name) CHECK(found <= Time{number("best_published")});
      ++met[name], optimal[name] += found == least;
    }
  }
  CHECK(met["zb_auto"] > 100);
  for (const char* name : {"zbv_auto", "v_auto"}) {
    CHECK(met[name] > 10);
    CHECK(optimal[name] * 10 >= met[name] * 9);
  }
}

TEST_CASE("cells that run at once: the published times of every order with pairs") {
  std::map<std::string, int> met;
  for (const Case& each : cases()) {
    if (each.at("overlap") != "fused") continue;
    CAPTURE(each.at("order"));
    const GivenSchedule given = read_schedule_csv(published() + "orders/" + each.at("order"));
    const Schedule schedule = find_schedule(kGivenSchedule)->generate(shape_of(given));
    StepCosts costs = costs_of(each, schedule.shape);
    costs.together = {.parts = {}, .share = 0, .delay_wgrad = false, .pair = std::nullopt};
    if (!each.at("fb").empty()) costs.together->pair = Time{std::stoll(each.at("fb"))};
    const Timeline timeline = static_order(schedule, costs);
    CHECK(validate(timeline, schedule, costs) == "");
    Time span{0};
    for (std::size_t k = 0; k < given.compute.size(); ++k) {
      std::vector<Span> ops = timeline.workers[k].compute;
      ops.resize(given.compute[k].size());  // without the update
      span = std::max(span, ops.back().end - ops.front().start);
    }
    CHECK(timeline.makespan == Time{std::stoll(each.at("makespan"))});
    CHECK(span == Time{std::stoll(each.at("longest"))});
    CHECK(event_order(schedule, costs).makespan == timeline.makespan);
    ++met[each.at("schedule")];
  }
  CHECK(met.size() >= 3);
}

TEST_CASE(
    "the optima of small problems: none is below the finder's bound, and it finds all of them, nearly all at once") {
  std::ifstream in(published() + "optimum.csv");
  std::string line;
  std::getline(in, line);
  int problems = 0, proven = 0, equal = 0;
  while (std::getline(in, line)) {
    const std::vector<std::string> cells = cells_of(line);
    const auto number = [&](std::size_t i) { return std::stoll(cells.at(i)); };
    OrderProblem problem{.stages = static_cast<int>(number(0)),
                         .virtual_stages = static_cast<int>(number(1)),
                         .micro_batches = static_cast<int>(number(3)),
                         .chunk_order = cells.at(2) == "v" ? ChunkOrder::V : ChunkOrder::Loop,
                         .measure = cells.at(9) == "span" ? OrderMeasure::Span : OrderMeasure::Step};
    const auto chunks = static_cast<std::size_t>(problem.chunks());
    problem.forward.assign(chunks, number(4)), problem.input.assign(chunks, number(5));
    problem.weights.assign(chunks, number(6)), problem.held.assign(chunks, 1);
    problem.kept_after_input = problem.held;
    problem.cap.assign(static_cast<std::size_t>(problem.stages), number(8));
    for (int v = 0; v + 1 < problem.chunks(); ++v)
      problem.down.push_back(problem.seating().stage_of(v) == problem.seating().stage_of(v + 1) ? 0 : number(7));
    problem.up = problem.down;
    const FoundOrder found = find_order(problem, {.evaluations = 2000, .seed = 1});
    CAPTURE(line);
    REQUIRE_FALSE(found.order.begin.empty());
    CHECK(found.bound.value <= number(10));
    CHECK(found.order.of(problem.measure) >= number(10));
    ++problems, proven += found.bound.value == number(10), equal += found.order.of(problem.measure) == number(10);
    bool met = found.order.of(problem.measure) == number(10);
    for (std::uint64_t seed = 1; !met && seed <= 3; ++seed)
      met = find_order(problem, {.evaluations = 200'000, .seed = seed}).order.of(problem.measure) == number(10);
    CHECK(met);
  }
  CHECK(problems > 300);
  CHECK(proven >= problems * 95 / 100);
  CHECK(equal >= problems * 96 / 100);
}
