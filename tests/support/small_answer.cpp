#include "tests/support/small_answer.hpp"

#include <algorithm>

namespace pipewright {
namespace {

constexpr Bytes kGiB{std::int64_t{1} << 30};

Scenario scenario(const SmallShape& shape) {
  Scenario s;
  s.name = "small";
  s.file = "small.yaml";
  s.description = "one layer per stage";
  s.model.name = "four-layers";
  s.model.source = "made up";
  s.model.input = Bytes{1 << 20};
  for (int k = 0; k < shape.stages; ++k) {
    Layer layer;
    layer.name = "layer" + std::to_string(k);
    layer.forward = shape.forward;
    layer.backward = shape.backward;
    layer.activation = Bytes{1 << 20};
    layer.parameters = 1'000'000;
    if (k > 0) layer.inputs = {k - 1};
    s.model.layers.push_back(layer);
  }
  s.cluster.name = "four-gpus";
  s.cluster.devices_per_node = shape.stages;
  s.cluster.device.name = "gpu-16g";
  s.cluster.device.memory = 16 * kGiB.value == 0 ? Bytes{} : Bytes{16 * kGiB.value};
  return s;
}

Plan plan(const SmallShape& shape) {
  Plan p;
  p.schedule = "1f1b";
  p.stages = shape.stages;
  p.micro_batches = p.global_batch_size = shape.micro_batches;
  p.replicas.assign(static_cast<std::size_t>(shape.stages), 1);
  p.recompute.assign(static_cast<std::size_t>(shape.stages), Recompute::None);
  for (int k = 0; k < shape.stages; ++k) {
    p.layers.push_back({k, k + 1});
    p.device.push_back(k);
  }
  return p;
}

Schedule schedule(const SmallShape& shape) {
  Schedule s;
  s.name = "1f1b";
  s.shape.stages = shape.stages;
  s.shape.micro_batches = shape.micro_batches;
  for (int k = 0; k < shape.stages; ++k) {
    Lane lane;
    const int warm_up = std::min(shape.stages - k, shape.micro_batches);
    int forward = 0, backward = 0;
    const auto add = [&](Kind kind, int& m) {
      lane.compute.push_back({kind, static_cast<std::uint16_t>(k), static_cast<std::uint32_t>(m++), 0});
    };
    while (forward < warm_up)
      add(Kind::F, forward);
    while (backward < shape.micro_batches) {
      add(Kind::BW, backward);
      if (forward < shape.micro_batches) add(Kind::F, forward);
    }
    s.positions.push_back(lane);
  }
  return s;
}

StepCosts costs(const SmallShape& shape) {
  StepCosts c;
  c.shape.stages = shape.stages;
  c.shape.micro_batches = shape.micro_batches;
  c.duration.assign(static_cast<std::size_t>(shape.stages) * kKinds, Time{});
  for (int k = 0; k < shape.stages; ++k) {
    c.duration[static_cast<std::size_t>(k * kKinds + static_cast<int>(Kind::F))] = shape.forward;
    c.duration[static_cast<std::size_t>(k * kKinds + static_cast<int>(Kind::BW))] = shape.backward;
  }
  c.duration_last = c.duration;
  for (int k = 0; k + 1 < shape.stages; ++k) {
    c.edges.push_back({static_cast<std::uint16_t>(k), static_cast<std::uint16_t>(k + 1)});
    for (const int direction : {0, 1}) {
      c.first_message.push_back(static_cast<std::uint32_t>(c.messages.size()));
      c.messages.push_back({shape.wire, shape.hop, Bytes{1 << 20}, c.channels + direction, -1});
    }
    c.channels += 2;
  }
  c.messages_last = c.messages;
  c.ready_before_end.assign(static_cast<std::size_t>(shape.stages), {Time{0}});
  return c;
}

MemoryModel memory(const SmallShape& shape) {
  MemoryModel m;
  ChunkMemory chunk;
  chunk.weights = chunk.gradients = Bytes{4'000'000};
  chunk.stash = {kGiB, kGiB};
  chunk.boundary = {Bytes{1 << 20}, Bytes{1 << 20}};
  chunk.working = {kGiB - Bytes{1 << 20}, kGiB - Bytes{1 << 20}};
  m.chunks.assign(static_cast<std::size_t>(shape.stages), chunk);
  m.reserve = Bytes{kGiB.value / 2};
  m.capacity = Bytes{16 * kGiB.value};
  return m;
}

// Ends of all passes; an op runs when the op before it and its input are done.
Timeline timeline(const SmallShape& shape, const Schedule& schedule) {
  Timeline t;
  t.engine = "static order";
  t.engine_reason = "no two transfers met on a link";
  const auto K = static_cast<std::size_t>(shape.stages), M = static_cast<std::size_t>(shape.micro_batches);
  constexpr Time kUnknown{-1};
  std::vector<Time> forward(K * M, kUnknown), backward(K * M, kUnknown), channel_forward(K), channel_backward(K);
  t.workers.resize(K);
  const auto send = [&](std::size_t k, std::size_t m, Direction direction, Time end) {
    const bool ahead = direction == Direction::Forward;
    if (ahead ? k + 1 == K : k == 0) return;
    Time& free = ahead ? channel_forward[k] : channel_backward[k];
    const Time start = std::max(free, end);
    free = start + shape.wire;
    const auto from = static_cast<WorkerId>(k), to = ahead ? from + 1 : from - 1;
    t.transfers.push_back({static_cast<std::uint32_t>(ahead ? k : k - 1), direction, static_cast<MicroBatchId>(m), from,
                           to, Bytes{1 << 20}, end, start, free, free + shape.hop});
    (ahead ? forward : backward)[static_cast<std::size_t>(to) * M + m] = -1 * (free + shape.hop + Time{2});
  };
  // A negative entry below -1 holds the arrival of the input: -(arrival + 2).
  std::vector<std::size_t> next(K);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t k = 0; k < K; ++k)
      while (next[k] < schedule.positions[k].compute.size()) {
        const Op& op = schedule.positions[k].compute[next[k]];
        const std::size_t m = op.micro_batch;
        const bool ahead = op.kind == Kind::F;
        Time& slot = (ahead ? forward : backward)[k * M + m];
        Time arrival = Time{-1} * 1 - slot - Time{1};
        if (ahead && k == 0) arrival = Time{0};
        if (!ahead && k + 1 == K)
          arrival = forward[k * M + m];
        else if (slot == kUnknown && !(ahead && k == 0))
          break;
        const Time before = t.workers[k].compute.empty() ? Time{0} : t.workers[k].compute.back().end;
        const Time start = std::max(before, arrival);
        slot = start + (ahead ? shape.forward : shape.backward);
        t.workers[k].compute.push_back({start, slot});
        t.makespan = std::max(t.makespan, slot);
        send(k, m, ahead ? Direction::Forward : Direction::Backward, slot);
        ++next[k];
        moved = true;
      }
  }
  std::stable_sort(t.transfers.begin(), t.transfers.end(),
                   [](const auto& a, const auto& b) { return a.from < b.from; });
  return t;
}

}  // namespace

}  // namespace pipewright
