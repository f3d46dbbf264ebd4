#include "tests/support/random_links.hpp"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/plan/given_schedule.hpp"
#include "sim/schedules/table.hpp"
#include "tests/support/places.hpp"

namespace pipewright::tests {
namespace {

constexpr Bandwidth kBytePerNanosecond{1e9};

int roll(int low, int high, std::mt19937& random) {  // both included
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}
bool one_in(int n, std::mt19937& random) {
  return roll(1, n, random) == 1;
}

ScheduleShape random_shape(std::mt19937& random) {
  ScheduleShape shape{.stages = roll(1, 5, random), .micro_batches = roll(1, 9, random)};
  if (one_in(4, random)) {
    shape.virtual_stages = roll(2, 3, random);
    shape.micro_batches = shape.stages * roll(1, 3, random);
  } else if (one_in(2, random)) {
    for (int stage = 0; stage < shape.stages; ++stage)
      shape.replicas.push_back(roll(1, 3, random));
  }
  if (one_in(2, random)) shape.data_parallel = roll(2, 3, random);
  if (one_in(3, random)) {
    for (int stage = 0; stage < shape.stages; ++stage)
      shape.recompute.push_back(one_in(2, random));
    shape.recompute_except_last = one_in(2, random);
  }
  for (int chunk = 0; chunk < shape.chunks(); ++chunk)
    shape.buckets.push_back(roll(1, 3, random));
  shape.blocking_sync = one_in(2, random);
  return shape;
}

// The order of pipelines in opposite directions as a file may give it: some of their micro-batches are left out, and the
// others have numbers drawn at random, so that no rule deals them.
Schedule listed(const Schedule& by_rule, std::mt19937& random) {
  ScheduleShape shape = by_rule.shape;
  const auto pipeline = [&](int m) { return oracle::holder_of(by_rule.shape, 0, m); };
  std::vector<int> left(at(shape.pipelines)), kept, dealt, number(at(shape.micro_batches), -1);
  for (int m = 0; m < shape.micro_batches; ++m)
    ++left[at(pipeline(m))];
  for (int m = 0; m < shape.micro_batches; ++m)
    if (left[at(pipeline(m))] > 1 && one_in(6, random))
      --left[at(pipeline(m))];
    else
      kept.push_back(m);
  for (std::size_t i = kept.size(); i-- > 0;) {
    std::swap(kept[i], kept[at(roll(0, static_cast<int>(i), random))]);
    number[at(kept[i])] = static_cast<int>(i);
  }
  for (const int m : kept)
    dealt.push_back(pipeline(m));
  GivenSchedule given{.stages = shape.stages,
                      .micro_batches = static_cast<int>(kept.size()),
                      .chunk_order = ChunkOrder::Listed,
                      .pipelines = shape.pipelines,
                      .dealing = Dealing(dealt, shape.pipelines)};
  for (const Lane& lane : by_rule.positions) {
    std::vector<Op>& ops = given.compute.emplace_back();
    for (Op op : lane.compute) {
      if (op.kind == Kind::R || op.kind == Kind::Update) continue;
      const int m = number[op.micro_batch];
      if (m >= 0)
        op.micro_batch = static_cast<std::uint32_t>(m), ops.push_back(op);
      else if (!ops.empty())
        ops.back().with_next = 0;
    }
  }
  shape.chunk_order = given.chunk_order, shape.micro_batches = given.micro_batches, shape.forwards = 1;
  shape.given = std::make_shared<const GivenSchedule>(std::move(given));
  const ScheduleRule& file = *find_schedule(kGivenSchedule);
  PP_CHECK(file.refusal(shape).empty());
  return file.generate(shape);
}

std::int32_t add_link(StepCosts& costs) {
  costs.links.push_back({"link " + std::to_string(costs.links.size()), kBytePerNanosecond});
  return static_cast<std::int32_t>(costs.links.size()) - 1;
}

void add_routes(StepCosts& costs, std::mt19937& random, LinkLayout layout) {
  for (std::int32_t channel = 0; channel < costs.channels; ++channel) {
    Route route{.bandwidth = kBytePerNanosecond};
    if (layout == LinkLayout::Private) {
      route.links = {add_link(costs)};
    } else {
      route.links = {roll(0, 2, random)};
      if (one_in(2, random)) route.links.push_back((route.links.front() + 1) % 3);
    }
    costs.routes.push_back(route);
  }
  for (auto* table : {&costs.messages, &costs.messages_last})
    for (Message& message : *table) {
      message.route = message.channel;
      message.bytes = {message.occupancy.value};
    }
}

CollectivePhase random_phase(std::mt19937& random, std::vector<std::pair<std::int32_t, double>> links) {
  CollectivePhase phase;
  phase.latency = {roll(0, 5, random)};
  phase.time = phase.latency;
  if (one_in(5, random)) return phase;
  phase.bytes = roll(0, 6, random);
  phase.rate = kBytePerNanosecond;
  phase.links = std::move(links);
  phase.time += Time{static_cast<std::int64_t>(phase.bytes)};
  return phase;
}

}  // namespace

Schedule random_schedule(std::mt19937& random) {
  while (true) {
    ScheduleShape shape = random_shape(random);
    const auto rules = schedules();
    const ScheduleRule& rule = rules[static_cast<std::size_t>(roll(0, static_cast<int>(rules.size()) - 1, random))];
    shape.chunk_order = rule.chunk_order;
    if (rule.chunk_order != ChunkOrder::Loop) {
      if (both_ways(rule.chunk_order)) shape.stages = 2 * roll(1, 2, random);
      shape.virtual_stages = rule.chunks > 0                     ? rule.chunks
                             : rule.chunk_order == ChunkOrder::V ? 2 * roll(1, 2, random)
                                                                 : 1;
      if (rule.facts.states_pipelines) shape.pipelines = one_in(2, random) ? 2 : shape.stages;
      if (rule.facts.states_forwards) shape.forwards = roll(1, 2, random);
      shape.micro_batches = 2 * (shape.stages + roll(0, 3, random));
      shape.replicas.clear(), shape.recompute_except_last = false;
      if (!shape.recompute.empty()) shape.recompute.assign(static_cast<std::size_t>(shape.stages), one_in(2, random));
      shape.buckets.clear();
      for (int chunk = 0; chunk < shape.chunks(); ++chunk)
        shape.buckets.push_back(roll(1, 3, random));
    }
    if (rule.facts.states_slices && one_in(2, random)) shape.slices = 2, shape.micro_batches *= 2;
    if (rule.facts.states_round) shape.update_every = shape.stages + roll(0, 3, random);
    if (rule.flush && !both_ways(rule.chunk_order) && !rule.facts.uses_partner && shape.replicas.empty() &&
        one_in(3, random)) {
      shape.units = roll(1, 3, random);
      shape.buckets.clear();
      for (int chunk = 0; chunk < shape.chunks(); ++chunk)
        shape.buckets.push_back(roll(1, 2, random));
      if (shape.data_parallel > 1) {
        shape.reduce_each = one_in(2, random);
        if (one_in(2, random)) shape.resharding = {one_in(2, random), one_in(2, random), shape.units == 2 ? 2 : 0};
      }
    }
    if (rule.flush && !both_ways(rule.chunk_order) && !rule.facts.uses_partner && shape.replicas.empty() &&
        one_in(4, random))
      for (int chunk = 0; chunk < shape.chunks(); ++chunk)
        shape.offloaded.push_back(one_in(2, random));
    if (!shape.resharding) {  // with what others leave aside
      const bool one_order =
          rule.flush && !both_ways(rule.chunk_order) && !rule.facts.uses_partner && shape.replicas.empty();
      const auto updated = static_cast<UpdatedParts>((shape.stages + shape.micro_batches + shape.data_parallel) % 3);
      shape.updated = updated == UpdatedParts::BesideForwards && !one_order ? UpdatedParts::BehindUpdate : updated;
    }
    const VirtualStageId last{shape.chunks() - 1};
    if (last > 0 && (shape.stages + shape.micro_batches / 2 + shape.data_parallel) % 3 == 0) shape.tied = {{0, last}};
    if (last > 2 && !shape.tied.empty() && shape.micro_batches % 4 == 0) shape.tied = {{0, 2, last}, {1, last}};
    shape.norm = (shape.stages + shape.micro_batches + 2 * shape.data_parallel) % 4 == 1;
    // Not both at once.
    if (shape.resharding && shape.offloaded.empty())
      shape.resharding->from_host = (shape.stages + shape.micro_batches) % 2 == 0;
    if (!rule.refusal(shape).empty()) continue;
    const Schedule schedule = rule.generate(shape);
    std::mt19937 copy = random;  // what is drawn behind it stays as it is
    return both_ways(rule.chunk_order) && one_in(3, copy) ? listed(schedule, copy) : schedule;
  }
}

void add_links(StepCosts& costs, std::mt19937& random, LinkLayout layout) {
  if (layout == LinkLayout::Shared)
    for (int link = 0; link < 3; ++link)
      add_link(costs);
  add_routes(costs, random, layout);
  std::map<int, std::int32_t> link_of_group, gather_link;  // by its first position
  for (int v = 0; v < costs.shape.chunks(); ++v)
    if (const auto [entry, absent] = link_of_group.try_emplace(oracle::places(costs.shape, v).front(), 0); absent)
      entry->second = layout == LinkLayout::Private ? add_link(costs) : 0;
  for (VirtualStageId v = 0; v < std::ssize(costs.collectives); ++v)
    for (Collective& collective : costs.collectives[v]) {
      const std::int32_t link = link_of_group[oracle::places(costs.shape, static_cast<int>(v)).front()];
      collective.time = {};
      for (int phases = roll(1, 3, random); phases > 0; --phases) {
        std::vector<std::pair<std::int32_t, double>> links = {{link, 1.0}};
        if (layout == LinkLayout::Shared) links.push_back({roll(1, 2, random), 0.5});
        collective.phases.push_back(random_phase(random, std::move(links)));
        collective.time += collective.phases.back().time;
      }
    }
  for (std::size_t v = 0; v < costs.gathers.size(); ++v) {
    const int group = oracle::places(costs.shape, static_cast<int>(v)).front();
    if (layout == LinkLayout::Private && gather_link.try_emplace(group, 0).second) gather_link[group] = add_link(costs);
    for (std::vector<Collective>* const gathers : {&costs.gathers, &costs.other_gathers}) {
      if (gathers->empty()) continue;
      Collective& gather = (*gathers)[v];
      gather.phases = {random_phase(random, {{layout == LinkLayout::Private ? gather_link[group] : 0, 1.0}})};
      gather.time = gather.phases.front().time;
    }
  }
  if (costs.shape.norm) costs.norm.phases = {{.latency = costs.norm.time, .time = costs.norm.time, .links = {}}};
  for (Collective& table : costs.tied) {
    CollectivePhase phase;
    phase.bytes = static_cast<double>(table.time.value), phase.rate = kBytePerNanosecond;
    phase.time = table.time;
    phase.links = {{layout == LinkLayout::Private ? add_link(costs) : 1, 1.0}};
    table.phases = {phase};
  }
}

}  // namespace pipewright::tests
