#include "tests/support/small_answer.hpp"

#include "sim/schedules/expand.hpp"
#include "sim/schedules/table.hpp"
#include "sim/simulate.hpp"
#include "sim/summarize.hpp"

namespace pipewright::tests {
namespace {

constexpr Bytes kGiB{std::int64_t{1} << 30};

Scenario scenario(const SmallShape& small) {
  const int layers = small.stages * small.virtual_stages;
  Scenario s;
  s.name = "small";
  s.file = "small.yaml";
  s.description = "one layer per stage";
  s.model.name = "one-layer-each";
  s.model.source = "made up";
  s.model.input = Bytes{1 << 20};
  for (int k = 0; k < layers; ++k) {
    Layer layer;
    layer.name = "layer" + std::to_string(k);
    layer.forward = small.forward;
    layer.backward = small.backward;
    layer.activation = Bytes{1 << 20};
    layer.parameters = 1'000'000;
    if (k > 0) layer.inputs = {k - 1};
    s.model.layers.push_back(layer);
  }
  s.cluster.name = "some-gpus";
  s.cluster.device.name = "gpu-16g";
  s.cluster.device.memory = 16 * kGiB;
  return s;
}

Plan plan(const SmallShape& small, const ScheduleShape& shape) {
  Plan p;
  p.schedule = small.schedule;
  p.stages = shape.stages;
  p.virtual_stages = shape.virtual_stages;
  p.data_parallel = shape.data_parallel;
  p.micro_batches = shape.micro_batches;
  p.global_batch_size = p.micro_batches * p.data_parallel;
  for (int k = 0; k < shape.stages; ++k) {
    p.replicas.push_back(shape.replicas_of(k));
    p.recompute.push_back(shape.recomputes(k) ? Recompute::Full : Recompute::None);
  }
  for (int v = 0; v < shape.chunks(); ++v)
    p.layers.push_back({v, v + 1});
  int positions = 0;
  for (const int r : p.replicas)
    positions += r;
  for (int w = 0; w < positions * shape.data_parallel; ++w)
    p.device.push_back(w);
  return p;
}

StepCosts costs(const SmallShape& small, const ScheduleShape& shape) {
  StepCosts c;
  c.shape = shape;
  const int chunks = shape.chunks();
  c.duration.assign(static_cast<std::size_t>(chunks) * kKinds, Time{});
  const auto price = [&](int chunk, Kind kind, Time time) {
    c.duration[static_cast<std::size_t>(chunk * kKinds + static_cast<int>(kind))] = time;
  };
  for (int v = 0; v < chunks; ++v) {
    const int replicas = shape.replicas_of(v % shape.stages);
    price(v, Kind::F, replicas * small.forward);
    price(v, Kind::R, replicas * small.forward);
    price(v, Kind::BW, replicas * small.backward);
    price(v, Kind::Update, small.update);
  }
  c.duration_last = c.duration;
  for (int v = 0; v + 1 < chunks; ++v) {
    c.edges.push_back({static_cast<std::uint16_t>(v), static_cast<std::uint16_t>(v + 1)});
    const int pairs = shape.replicas_of(v % shape.stages) * shape.replicas_of((v + 1) % shape.stages);
    for (int direction = 0; direction < 2; ++direction) {
      c.first_message.push_back(static_cast<std::uint32_t>(c.messages.size()));
      for (int pair = 0; pair < pairs * shape.data_parallel; ++pair)
        c.messages.push_back({small.wire, small.hop, Bytes{1 << 20}, c.channels++, -1});
    }
  }
  c.messages_last = c.messages;
  for (int v = 0; v < chunks; ++v) {
    const auto buckets = static_cast<std::size_t>(shape.buckets_of(v));
    c.ready_before_end.emplace_back();
    c.collectives.emplace_back();
    for (std::size_t j = 0; j < buckets; ++j) {
      c.ready_before_end.back().push_back(Time{static_cast<std::int64_t>((buckets - 1 - j)) * small.backward.value /
                                               static_cast<std::int64_t>(buckets)});
      if (shape.data_parallel * shape.replicas_of(v % shape.stages) > 1)
        c.collectives.back().push_back(
            {Bytes{4'000'000}, small.all_reduce, {{0, Bandwidth{0}, small.all_reduce, small.all_reduce, {}}}});
    }
  }
  c.tied.assign(shape.tied.size(), {Bytes{4'000'000}, small.table, {{0, Bandwidth{0}, small.table, small.table, {}}}});
  if (small.gather > Time{})
    c.gathers.assign(static_cast<std::size_t>(chunks),
                     {Bytes{4'000'000}, small.gather, {{0, Bandwidth{0}, small.gather, small.gather, {}}}});
  return c;
}

MemoryModel memory(const ScheduleShape& shape) {
  MemoryModel m;
  ChunkMemory chunk;
  chunk.weights = chunk.gradients = Bytes{4'000'000};
  chunk.stash = {kGiB, kGiB};
  chunk.boundary = {Bytes{1 << 20}, Bytes{1 << 20}};
  chunk.working = {kGiB - Bytes{1 << 20}, kGiB - Bytes{1 << 20}};
  m.chunks.assign(static_cast<std::size_t>(shape.chunks()), chunk);
  m.reserve = Bytes{kGiB.value / 2};
  m.capacity = Bytes{16 * kGiB.value};
  return m;
}

// What `answer` adds from outside the timeline; made up.
void explain(Report& r) {
  r.sensitivity = {{"2x FLOP rate", Time{16'500'000}, 2.0}};
  r.formulas = {{"bubble", "(K-1)/(M+K-1) = 3/11", 300.0 / 11, 300.0 / 11, "%", "GPipe19", ""},
                {"step time", "(M+K-1)(f+b)", 0.033, 0.033, "s", "GPipe19", "stages are unequal"}};
  r.references = {{"one device", 333.25, ""}, {"data parallelism on 4 workers", std::nullopt, "does not fit"}};
  r.speedup_one_device = 2.75;
  r.speedup_data_parallel = 1.25;
  r.scaling_efficiency = 0.6875;
  r.warnings = {"a warning"};
  r.hints = {"32 micro-batches would cut the bubble to 8.6 %: --set training.micro_batches=32"};
  r.provenance = {"layer times: stated in the file", "model: one-layer-each (made up)"};
}

}  // namespace

std::unique_ptr<SmallAnswer> small_answer(const SmallShape& small) {
  ScheduleShape shape;
  shape.stages = small.stages;
  shape.virtual_stages = small.virtual_stages;
  shape.micro_batches = small.micro_batches;
  shape.data_parallel = small.data_parallel;
  shape.replicas = small.replicas;
  if (small.recompute) shape.recompute.assign(static_cast<std::size_t>(small.stages), true);
  if (small.table > Time{}) shape.tied = {{0, VirtualStageId{shape.chunks() - 1}}};
  if (small.buckets > 1) shape.buckets.assign(static_cast<std::size_t>(shape.chunks()), small.buckets);

  auto result = std::make_unique<SmallAnswer>();
  *result->scenario = scenario(small);
  Answer& a = result->answer;
  a.scenario = result->scenario;
  a.plan = plan(small, shape);
  result->scenario->cluster.devices_per_node = a.plan.devices();
  const ScheduleRule* rule = find_schedule(small.schedule);
  PP_CHECK(rule != nullptr);
  a.schedule = rule->generate(shape);
  if (small.gather > Time{}) gather_weights(a.schedule, {});
  a.costs = costs(small, a.schedule.shape);
  a.memory = memory(shape);
  a.timeline = simulate(a.schedule, a.costs, Engine::StaticOrder);
  std::optional<SteadyState> steady;
  if (!a.schedule.flush)
    steady = SteadyState{.micro_batches = 1,
                         .growth = small.forward + small.backward,
                         .busy = small.stages * (small.forward + small.backward),
                         .simulated = small.micro_batches,
                         .engine = a.timeline.engine};
  a.report = summarize(a.timeline, a.schedule, a.plan, a.costs, a.memory, *a.scenario, steady);
  explain(a.report);
  return result;
}

}  // namespace pipewright::tests
