#include "runtime/rank_run.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/folds.hpp"
#include "core/model/program.hpp"
#include "core/plain_words.hpp"
#include "core/question/profile.hpp"
#include "kernels/nccl.hpp"
#include "runtime/checkpoint.hpp"
#include "runtime/hash.hpp"
#include "runtime/measurement.hpp"
#include "runtime/runnable.hpp"
#include "runtime/transport.hpp"
#include "runtime/transports/staged.hpp"

namespace pipewright::runtime {
namespace {

constexpr std::array<std::string_view, 4> kOptimizerNames = {"sgd", "momentum", "rmsprop", "adam"};  // by Optimizer

std::uint64_t hash_of(const Schedule& schedule) {
  Hash hash;
  for (const Lane& lane : schedule.positions)
    for (const auto* const ops :
         {&lane.compute, &lane.communication[kReductions], &lane.communication[kGathers], &lane.communication[kOut],
          &lane.communication[kIn], &lane.communication[kTables], &lane.communication[kNorm]}) {
      if (ops->empty() && ops != &lane.compute && ops != &lane.communication[kReductions])
        continue;  // earlier checkpoints have no such list
      if (ops == &lane.communication[kGathers] && schedule.shape.updated != UpdatedParts::None)
        continue;  // says no more than the updates
      hash.add(ops->size());
      for (const Op& op : *ops)
        hash.add(static_cast<int>(op.kind)).add(op.virtual_stage).add(op.micro_batch).add(op.bucket);
    }
  return hash.value();
}

std::uint64_t hash_of_layers(const RunPlan& run) {
  Hash hash;
  for (const ChunkCode& code : run.code) {
    const Program* last = nullptr;
    for (const CodeStep& step : code.steps)
      if (std::exchange(last, step.program.get()) != step.program.get())
        hash.add(step.layer).add(describe(*step.program));
    for (const auto& bytes : code.blocks)
      hash.add(bytes[0]).add(bytes[1]);
    for (const auto& time : code.time)
      hash.add(time[0].value).add(time[1].value);
  }
  if (run.plan->context_parallel > 1) hash.add(run.zigzag ? 1 : 0);  // checkpoints of whole sequences stay readable
  for (const RunChannel& channel : run.channels)
    hash.add(channel.edge).add(channel.slots).add(channel.bytes[0]);
  return hash.value();
}

std::uint64_t hash_of_versions(const RunPlan& run) {
  Hash hash;
  for (const auto& position : run.versions)
    for (const OpVersions& op : position)
      hash.add(op.read).add(op.write).add(op.version).add(op.gradient_set);
  return hash.value();
}

// A sample of every file would take long; the first ones tell files apart.
std::uint64_t hash_of(const Data& data, const SampleShape& shape) {
  Hash hash;
  Blob input(static_cast<std::size_t>(shape.values * (shape.indices ? 8 : 4)));
  std::vector<std::int64_t> labels(static_cast<std::size_t>(shape.label_rows));
  for (std::int64_t i = 0; i < 8; ++i) {
    data.input(i, input.data()), data.labels(i, labels.data());
    hash.add(input).add(std::as_bytes(std::span(labels)));
  }
  return hash.value();
}

void put(BytesOut& out, const std::vector<std::vector<float>>& lists) {
  out.put(static_cast<std::uint64_t>(lists.size()));
  for (const auto& list : lists)
    out.put(list);
}
std::vector<std::vector<float>> float_lists(BytesIn& in) {
  std::vector<std::vector<float>> lists(in.counted(1));
  for (auto& list : lists)
    list = in.list<float>();
  return lists;
}

void shift_times(WorkerStep& step, std::int64_t by) {
  const auto shift = [&](std::vector<Span>& list) {
    for (Span& span : list)
      span.start.value += by, span.end.value += by;
  };
  shift(step.times.compute);
  std::ranges::for_each(step.times.communication, shift);
  for (Transfer& transfer : step.transfers)
    for (Time* const at : {&transfer.posted, &transfer.start, &transfer.sent, &transfer.arrived})
      at->value += by;
  step.began += by;
}

// The results of all ranks, by worker; a rank that sent nothing has an empty one.
std::vector<WorkerResult> merged(const std::vector<Blob>& blobs) {
  std::vector<WorkerResult> results(blobs.size());
  for (std::size_t r = 0; r < blobs.size(); ++r) {
    if (blobs[r].empty()) continue;
    BytesIn in(blobs[r]);
    const auto shift = in.get<std::int64_t>();
    results[r] = worker_result(in.list<std::byte>(), shift);
  }
  return results;
}

// The steps that all workers have finished of whom anything is known.
std::vector<WorkerResult> finished(std::vector<WorkerResult> results, int steps) {
  auto all = static_cast<std::size_t>(steps);
  for (const WorkerResult& result : results)
    if (!result.steps.empty()) all = std::min(all, result.steps.size());
  for (WorkerResult& result : results)
    if (result.steps.size() > all) result.steps.resize(all);
  return results;
}

Blob sent(const Ranks& ranks, const WorkerResult& result) {
  return BytesOut().put(ranks.clock().offset).put(bytes_of(result)).bytes();
}

// What goes wrong while the worker is made, before its first step: its endpoint meets the others then.
template <class Body>
std::vector<WorkerResult> started(std::size_t self, const Body& body) {
  const auto failed = [&](const std::exception& error) {
    return RunFailed(fmt::format("worker {} at op start: {}", self, error.what()), std::vector<WorkerResult>(self + 1));
  };
  try {
    return body();
  } catch (const NcclError& error) {
    throw failed(error);
  } catch (const GpuError& error) {
    throw failed(error);
  } catch (const PeerSilent& silent) {
    throw failed(silent);
  }
}

int threads_here(const RunPlan& run, int rank) {
  return threads_of(run.schedule->lane_of(rank));
}

}  // namespace

std::vector<MustMatch> must_match(const RunPlan& run, const RunSettings& settings, const Data& data,
                                  const Backend& backend) {
  const Plan& plan = *run.plan;
  const OptimizerSettings& o = settings.optimizer;
  std::string cut;
  for (const LayerRange& range : plan.layers)
    cut += fmt::format("{}{}", cut.empty() ? "" : " ", range.size());
  auto kept = most_over<int>(run.chunks, &RunChunk::buffers, 1);
  const bool divided = std::ranges::any_of(run.chunks, [](const RunChunk& chunk) { return chunk.parts > 1; });
  const std::string zero = divided ? fmt::format(", training.zero {}", run.zero) : "";
  const std::string checkpoints = settings.checkpoints == nullptr
                                      ? ""
                                      : fmt::format(", from {}, a checkpoint every {}",
                                                    settings.checkpoints->first_step(), settings.checkpoints->every());
  return {
      {"backend", backend.name()},
      {"plan", fmt::format("{}, {} workers, {} stages, {} copies, {} micro-batches of {} samples, layers per chunk {}",
                           plan.schedule, plan.workers(), plan.stages, plan.copies(), plan.micro_batches,
                           plan.micro_batch_size, cut)},
      {"schedule", plan.schedule, hash_of(*run.schedule)},
      {"layers", fmt::format("{} layers", plan.layers.back().end), hash_of_layers(run)},
      {"weights' versions", fmt::format("up to {} kept", kept), hash_of_versions(run)},
      {"settings", fmt::format("seed {}, {}, learning rate {}, momentum {}, betas {} and {}, epsilon {}{}",
                               settings.seed, kOptimizerNames[static_cast<std::size_t>(o.kind)], o.learning_rate,
                               o.momentum, o.beta1, o.beta2, o.epsilon, zero)},
      {"precision", fmt::format("{}, loss scale {}", name_of(run.precision), run.scaled_by)},
      {"steps", fmt::format("{}, {} of them warm-up{}", settings.steps, settings.warmup, checkpoints)},
      {"data", data.name(), hash_of(data, sample_shape(run.code))},
  };
}

std::vector<WorkerResult> execute(Ranks& ranks, const RunPlan& run, const BackendMaker& backend, const Data& data,
                                  RunSettings settings, const std::function<void(int)>& after_step,
                                  const AroundWire& around) {
  const auto self = static_cast<std::size_t>(ranks.rank());
  settings.core = ranks.own_core(threads_here(run, ranks.rank()));
  std::vector<std::unique_ptr<Transport>> endpoints(static_cast<std::size_t>(ranks.size()));
  endpoints[self] = ranks.endpoint(run);
  if (around)
    endpoints[self] = around(std::move(endpoints[self]));
  else if (!backend(ranks.rank())->in_host_memory())  // sockets read and write the host's memory
    endpoints[self] = staged_transport(std::move(endpoints[self]), run, Takes::ByReading);
  std::vector<WorkerResult> results;
  std::vector<Blob> all;  // at rank 0: what every rank has sent
  const auto failed = [&](const std::string& why) {
    endpoints[self]->stop(why);
    ranks.throw_if_out_of_memory();
    if (all.empty()) all = ranks.salvaged(sent(ranks, results.empty() ? WorkerResult{} : results[self]));
    return RunFailed(why, ranks.first() ? finished(merged(all), settings.steps) : std::move(results));
  };
  try {
    results = started(self, [&] { return execute(run, backend, data, endpoints, settings, after_step); });
    all = ranks.gathered(sent(ranks, results[self]));
    ranks.run_is_over();
    return ranks.first() ? merged(all) : std::move(results);
  } catch (const OutOfArena& error) {
    ranks.stop(error);
    endpoints[self]->stop(error.what());
    throw;
  } catch (const InputError& error) {  // a checkpoint that cannot be resumed
    endpoints[self]->stop(error.what());
    throw;
  } catch (const RunFailed& error) {  // the others know
    results = error.results;
    throw failed(error.what());
  } catch (const Stopped& stopped) {  // another rank has failed after its last step
    throw failed(stopped.what());
  } catch (const std::exception& error) {  // after the last step, while the results travel
    throw failed(fmt::format("worker {} at op end: {}", self, plain_words(error)));
  }
}

std::vector<WorkerResult> measure_layers(Ranks& ranks, const RunPlan& run, const BackendMaker& backend,
                                         const Data& data, RunSettings settings, double seconds) {
  const auto self = static_cast<std::size_t>(ranks.rank());
  settings.core = ranks.own_core(threads_here(run, ranks.rank()));
  ranks.gathered({}), ranks.broadcast({});  // all begin at once
  const auto results = measure_layers(run, backend, data, settings, seconds, {ranks.rank()});
  return merged(ranks.gathered(sent(ranks, results[self])));
}

Blob bytes_of(const WorkerResult& result) {
  BytesOut out;
  out.put(static_cast<std::uint64_t>(result.steps.size()));
  for (const WorkerStep& step : result.steps) {
    out.put(step.times.compute);
    for (const auto& times : step.times.communication)
      out.put(times);
    out.put(step.transfers).put(step.loss).put(step.samples).put(step.blocked).put(step.began).put(step.number);
    out.put(step.probe);
  }
  out.put(result.memory);
  put(out, result.gradients), put(out, result.weights);
  out.put(static_cast<std::uint64_t>(result.layer_ns.size()));
  for (const auto& [of, times] : result.layer_ns)
    out.put(std::get<0>(of)).put(std::get<1>(of)).put(std::get<2>(of)).put(times);
  out.put(result.overhead_ns).put(static_cast<std::uint64_t>(result.update_ns.size()));
  for (const auto& [parameters, ns] : result.update_ns)
    out.put(parameters).put(ns);
  out.put(result.versions);
  return out.bytes();
}

WorkerResult worker_result(const Blob& bytes, std::int64_t shift) {
  BytesIn in(bytes);
  WorkerResult result;
  result.steps.resize(in.counted(1));
  for (WorkerStep& step : result.steps) {
    step.times.compute = in.list<Span>();
    for (auto& times : step.times.communication)
      times = in.list<Span>();
    step.transfers = in.list<Transfer>();
    step.loss = in.get<double>(), step.samples = in.get<std::int64_t>();
    step.blocked = in.get<Time>(), step.began = in.get<std::int64_t>();
    step.number = in.get<std::int64_t>(), step.probe = in.get<Time>();
    shift_times(step, shift);
  }
  result.memory = in.get<ArenaUse>();
  result.gradients = float_lists(in), result.weights = float_lists(in);
  for (std::uint64_t left = in.counted(1); left > 0; --left) {
    const auto layer = in.get<LayerId>();
    const auto pass = in.get<Pass>();
    const auto size = in.get<int>();
    result.layer_ns[{layer, pass, size}] = in.list<double>();
  }
  result.overhead_ns = in.list<double>();
  for (std::uint64_t left = in.counted(1); left > 0; --left) {
    const auto parameters = in.get<double>();
    result.update_ns.emplace_back(parameters, in.get<double>());
  }
  result.versions = in.list<WorkerResult::VersionsRead>();
  return result;
}

}  // namespace pipewright::runtime
