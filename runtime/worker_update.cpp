// What a worker does when the gradients of a round are complete: it tells its stream of sums, and updates weights.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/folds.hpp"
#include "runtime/clock.hpp"
#include "runtime/worker.hpp"

namespace pipewright::runtime {

int Worker::versions_round(std::size_t index) const {
  if (divides_gradients()) return run_.whole[static_cast<std::size_t>(position_)][index].turn;
  const Op& op = lane_.compute[index];
  return run_.schedule->rounds().of(op.virtual_stage, op.micro_batch);
}

void Worker::ready(VirtualStageId v, int turn, int buckets) {
  const auto count = static_cast<int>(run_.code[static_cast<std::size_t>(v)].bucket_begin.size());
  // An update of a round may come after backwards of the next one: never back.
  std::atomic<int>& here = ready_[static_cast<std::size_t>(v)];
  here.store(std::max(here.load(std::memory_order_relaxed), turn * count + buckets), std::memory_order_release);
  here.notify_all();
}

void Worker::update(const Op& op, const OpVersions& versions, std::size_t index) {
  const auto v = static_cast<std::size_t>(op.virtual_stage);
  const ChunkCode& code = run_.code[v];
  Chunk& chunk = chunks_[v];
  if (divides_gradients()) {
    make_room(op, run_.whole[static_cast<std::size_t>(position_)][index]);
  } else if (run_.chunks[v].members > 1) {
    const auto buckets = static_cast<int>(code.bucket_begin.size());
    ready(op.virtual_stage, static_cast<int>(op.micro_batch), buckets);  // a member without micro-batch gives zeros
    const int all = (static_cast<int>(op.micro_batch) + 1) * buckets;
    wait_until(done_[v], all);
  }
  const auto waits_for_table = [&](const Op& table) {
    return has_table(run_.schedule->shape, table.bucket, op.virtual_stage);
  };
  const auto& tables = lane_.communication[kTables];
  if (std::ranges::any_of(tables, waits_for_table) && record_->times.communication[kTables].back().end == Time{})
    sum_tables();
  const std::int64_t start = steady_ns();
  if (run_.synthetic) {
    spin_until(start + code.time[static_cast<std::size_t>(Kind::Update)][0].value);
  } else if (!chunk.weights.empty()) {
    std::byte* const gradients = chunk.gradients[static_cast<std::size_t>(versions.gradient_set)];
    const Part own = own_part(v);
    backend_->scale(reinterpret_cast<float*>(gradients),
                    (divides_gradients() ? own.end - own.begin : code.gradient_bytes) / 4,
                    run_.gradient_factor(op.virtual_stage, static_cast<int>(op.micro_batch)));
    if (settings_.keep_gradients && step_ == 0 && versions.version == 0) {  // alike on all members
      result_.gradients.resize(run_.code.size());
      result_.gradients[v] = run_.chunks[v].parts > 1
                                 ? gathered(v, divides_gradients() ? gradients : gradients + own.begin)
                                 : values(v, gradients);
    }
    update_weights(v, versions, divides_gradients() ? gradients : gradients + own.begin);
    if (!divides_gradients()) backend_->zero(gradients, {code.gradient_bytes});
  }
  if (!chunk.weights.empty()) {
    chunk.tags[static_cast<std::size_t>(versions.write)] = chunk.tags[chunk.current] + 1;
    chunk.current = static_cast<std::size_t>(versions.write);
  }
  backend_->finish();
  ++updates_[v];
  record_->times.compute.push_back({{start}, {std::max(start, backend_->finished())}});
  if (settings_.time_layers && !code.parameters.empty()) {
    auto count = sum_over<std::int64_t>(updated_, &UpdatedParameter::elements);
    result_.update_ns.emplace_back(static_cast<double>(count), static_cast<double>(steady_ns() - start));
  }
  gather_updated(v);
}

}  // namespace pipewright::runtime
