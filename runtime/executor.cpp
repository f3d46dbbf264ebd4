#include "runtime/executor.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/cost/cost_model.hpp"
#include "core/ending.hpp"
#include "core/folds.hpp"
#include "core/plain_words.hpp"
#include "kernels/gpu_api.hpp"
#include "kernels/storage.hpp"
#include "runtime/checkpoint.hpp"
#include "runtime/clock.hpp"
#include "runtime/measurement.hpp"
#include "runtime/worker.hpp"

namespace pipewright::runtime {
namespace {

// No peers: every message is there at once, with dummy values. For measuring what a worker's own work takes while all
// others work, too, and nobody waits.

// Values in [-1, 1): products of zeros may run faster than others.
std::vector<float> random_values(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<float>(static_cast<double>(mixed(seed + static_cast<std::uint64_t>(i)) >> 11) * 0x1p-52 - 1);
  return values;
}

template <class T>
std::vector<std::byte> as_bytes(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  T* const stored = reinterpret_cast<T*>(bytes.data());
  for (std::size_t i = 0; i < values.size(); ++i)
    stored[i] = T(values[i]);
  return bytes;
}

// As tensors of the run are stored: the bits of other numbers may be none at all.
std::vector<std::byte> random_message(std::int64_t bytes, Precision precision, std::uint64_t seed) {
  switch (precision) {
    case Precision::Bf16: return as_bytes<Bf16>(random_values(bytes / 2, seed));
    case Precision::Fp16: return as_bytes<Fp16>(random_values(bytes / 2, seed));
    case Precision::Fp32:
    case Precision::Tf32:
    case Precision::Fp8:
    case Precision::Fp4: break;
  }
  return as_bytes<float>(random_values(bytes / 4, seed));
}

class Loopback : public Transport {
 public:
  Loopback(const RunPlan& run, WorkerId self) : run_(run), self_(self), kept_(run.channels.size()) {
    for (std::size_t c = 0; c < kept_.size(); ++c)
      if (const RunChannel& channel = run.channels[c]; channel.keeps && channel.from == self % run.plan->positions())
        kept_[c].assign(static_cast<std::size_t>(channel.slots), {});
  }

  void bind(std::vector<std::vector<std::byte*>> slots, Movers movers) override {
    slots_ = std::move(slots), movers_ = movers;
    for (std::size_t c = 0; c < slots_.size(); ++c) {
      if (slots_[c].empty()) continue;
      const std::int64_t bytes = std::max(run_.channels[c].bytes[0], run_.channels[c].bytes[1]);
      const std::vector<std::byte> message = random_message(bytes, run_.precision, c);
      for (std::byte* const slot : slots_[c])
        movers.worker->upload(slot, message.data(), {std::ssize(message)});
    }
  }
  Sent send(const MessageSlot& message, std::span<const Piece> pieces) override {
    auto& slots = kept_[static_cast<std::size_t>(message.channel)];
    if (slots.empty()) return {};
    std::vector<std::byte>& slot = slots[static_cast<std::size_t>(message.slot)];
    slot.resize(static_cast<std::size_t>(run_.channels[static_cast<std::size_t>(message.channel)].bytes[0]));
    for (const Piece& piece : pieces)
      std::copy_n(piece.from, piece.bytes, slot.data() + piece.offset);
    return {};
  }
  void take_back(const MessageSlot& message, std::span<const Room> rooms) override {
    const std::vector<std::byte>& slot =
        kept_[static_cast<std::size_t>(message.channel)][static_cast<std::size_t>(message.slot)];
    for (const Room& room : rooms)
      std::copy_n(slot.data() + room.offset, room.bytes, room.to);
  }
  std::byte* receive(const MessageSlot& message) override {
    return slots_[static_cast<std::size_t>(message.channel)][static_cast<std::size_t>(message.slot)];
  }
  void release(const MessageSlot&) override {}
  void all_reduce(int, std::span<const WorkerId>, float*, std::int64_t) override {}
  void all_gather(int, std::span<const WorkerId> members, std::byte* data,
                  std::span<const std::int64_t> begin) override {
    const auto self = static_cast<std::size_t>(std::ranges::find(members, self_) - members.begin());
    const std::int64_t own = begin[self + 1] - begin[self];
    if (own == 0 && run_.zero >= kWeightsSharded) {  // what lay there before may be no numbers
      zeros_.resize(static_cast<std::size_t>(begin.back()));
      movers_.gathers->upload(data, zeros_.data(), {begin.back()});
    }
    // What is computed with these parts are numbers at least.
    for (std::int64_t at = begin.front(), next = 0; own > 0 && at < begin.back(); at = next) {
      next = at < begin[self] ? std::min(at + own, begin[self]) : std::min(at + own, begin.back());
      if (at != begin[self]) movers_.gathers->copy(data + at, data + begin[self], {next - at});
    }
    movers_.gathers->finish();
  }
  void meet() override {}
  void stop(const std::string&) noexcept override {}

 private:
  const RunPlan& run_;
  WorkerId self_;
  Movers movers_;
  std::vector<std::vector<std::byte*>> slots_;
  std::vector<std::byte> zeros_;
  std::vector<std::vector<std::vector<std::byte>>> kept_;  // what a partner would keep: by channel and slot
};

std::vector<std::unique_ptr<Transport>> loopback_transport(const RunPlan& run) {
  return mapped<std::unique_ptr<Transport>>(counted_to(run.plan->workers()),
                                            [&](WorkerId worker) { return std::make_unique<Loopback>(run, worker); });
}

// The first failure of a run; what follows from it is not told.
class Failure {
 public:
  void note(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (text_.empty()) text_ = why;
    noted_ = true;
  }
  // A worker that was stopped: of another process's failure nothing else is known.
  void note_stop(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (stop_.empty()) stop_ = why;
  }
  bool noted() const { return noted_; }
  std::string text() const { return text_.empty() ? stop_ : text_; }

 private:
  std::mutex mutex_;
  std::atomic<bool> noted_{false};
  std::string text_, stop_;
};

// A worker with its memory; where it cannot be made, the error names it.
std::unique_ptr<Worker> made(const RunPlan& run, WorkerId id, std::unique_ptr<Backend> backend, const Data& data,
                             Transport& transport, const RunSettings& settings) {
  try {
    return std::make_unique<Worker>(run, id, std::move(backend), data, transport, settings);
  } catch (const OutOfDevice& error) {
    throw OutOfDevice(fmt::format("worker {}: {}", id, error.what()));
  } catch (const OutOfArena& error) {
    throw OutOfArena(fmt::format("worker {}: {}", id, error.what()));
  } catch (const GpuError& error) {
    throw GpuError(fmt::format("worker {}: {}", id, error.what()));
  }
}

// Where all workers of this process are while one of them makes the call of a pause.
class Pause {
 public:
  Pause(const Pauses* pauses, bool calls, std::atomic<int>& over) : pauses_(pauses), calls_(calls), over_(over) {}

  void before(int step, Worker& worker) {
    if (pauses_ == nullptr || std::ranges::count(pauses_->before, step) == 0) return;
    worker.meet();  // nobody fails from here on until the pause is over
    const int number = ++number_;
    if (!calls_) {
      for (int over = over_; over < number; over = over_)
        over_.wait(over);
      return;
    }
    const std::shared_ptr<void> end(nullptr, [this](void*) { ++over_, over_.notify_all(); });
    pauses_->call();
  }

  // Of a worker that has failed: nobody waits for its call.
  void give_up() {
    if (calls_) over_ = std::numeric_limits<int>::max(), over_.notify_all();
  }

 private:
  const Pauses* pauses_;
  bool calls_;
  std::atomic<int>& over_;  // pauses that have ended
  int number_ = 0;
};

// A worker's whole run.
void run_all_steps(Worker& worker, const RunSettings& settings, Failure& failure, Pause pause,
                   const std::function<void(int)>& after_step) {
  try {
    for (int step = first_step(settings); step < settings.steps; ++step) {
      pause.before(step, worker);
      worker.load(step);
      worker.step(step);
      if (after_step) after_step(step);
      worker.checkpoint(step + 1);
    }
    worker.end();
    pause.before(settings.steps, worker);
    if (settings.keep_weights) worker.keep_weights();
  } catch (const Stopped& stopped) {
    failure.note_stop(stopped.what());
    pause.give_up();
  } catch (const std::exception& error) {
    failure.note(worker.told(error));
    worker.stop(worker.told(error));
    pause.give_up();
  }
}

// A thread for each of these workers. Where the system has none for one of them, those that run are stopped: they would
// wait for it until their time is up.
template <class Body>
void each_in_a_thread(const std::vector<std::size_t>& workers, const std::vector<std::unique_ptr<Worker>>& all,
                      Failure& failure, const Body& body) {
  std::vector<std::jthread> threads;
  for (const std::size_t w : workers)
    try {
      threads.emplace_back([&body, w] { body(w); });
    } catch (const std::system_error& error) {
      const std::string why = fmt::format("worker {} at op start: {}", w, plain_words(error));
      failure.note(why);
      for (const std::size_t started : workers)
        all[started]->stop(why);
      return;
    }
}

// The core that a worker's threads stay on, its collective stream beside its compute stream; -1: none.
int core_of(const RunSettings& settings, const RunPlan& run, const std::vector<int>& allowed, std::size_t worker) {
  if (!settings.pin) return -1;
  if (settings.core) return *settings.core;
  return run.plan->workers() <= static_cast<int>(allowed.size()) ? allowed[worker] : -1;
}

}  // namespace

std::vector<WorkerResult> execute(const RunPlan& run, const BackendMaker& backend, const Data& data,
                                  const std::vector<std::unique_ptr<Transport>>& endpoints, const RunSettings& settings,
                                  const std::function<void(int)>& after_step) {
  PP_CHECK(endpoints.size() == static_cast<std::size_t>(run.plan->workers()));
  std::vector<std::unique_ptr<Worker>> workers(endpoints.size());
  for (std::size_t w = 0; w < workers.size(); ++w)
    if (endpoints[w] != nullptr) {
      workers[w] =
          made(run, static_cast<WorkerId>(w), backend(static_cast<WorkerId>(w)), data, *endpoints[w], settings);
      workers[w]->resume();
    }
  if (settings.checkpoints != nullptr && workers[0] != nullptr) settings.checkpoints->tidy();
  Failure failure;
  std::vector<std::size_t> here;
  for (std::size_t w = 0; w < workers.size(); ++w)
    if (workers[w] != nullptr) here.push_back(w);
  const std::vector<int> allowed = allowed_cores();
  std::atomic<int> pauses_over{0};
  each_in_a_thread(here, workers, failure, [&](std::size_t w) {
    if (const int core = core_of(settings, run, allowed, w); core >= 0) pin_to(core);
    const bool first = w == here.front();
    run_all_steps(*workers[w], settings, failure, Pause(settings.pauses, first, pauses_over),
                  first ? after_step : std::function<void(int)>{});
  });
  // Of a run that was asked to end no checkpoint stays half written; nobody writes it any more where all are here.
  if (asked_to_end() != 0 && settings.checkpoints != nullptr && here.size() == workers.size())
    settings.checkpoints->tidy();
  std::vector<WorkerResult> results(workers.size());
  for (std::size_t w = 0; w < workers.size(); ++w)
    if (workers[w] != nullptr) results[w] = std::move(workers[w]->result());
  const auto all = static_cast<std::size_t>(settings.steps - first_step(settings));
  std::size_t complete = all;
  for (std::size_t w = 0; w < workers.size(); ++w)
    if (workers[w] != nullptr) complete = std::min(complete, workers[w]->complete_steps());
  if (!failure.text().empty() || complete < all) {
    for (WorkerResult& result : results)
      result.steps.resize(std::min(result.steps.size(), complete));
    throw RunFailed(failure.text().empty() ? "a worker stopped before the last step" : failure.text(),
                    std::move(results));
  }
  return results;
}

LayerRounds::LayerRounds(const RunPlan& run, BackendMaker backend, const Data& data, RunSettings settings,
                         bool time_layers)
    : run_(run),
      backend_(std::move(backend)),
      data_(data),
      settings_(std::move(settings)),
      endpoints_(loopback_transport(run)),
      workers_(endpoints_.size()),
      rounds_(endpoints_.size()),
      allowed_(allowed_cores()) {
  settings_.time_layers = time_layers;
  settings_.optimizer.learning_rate = 0;
}

LayerRounds::~LayerRounds() = default;

std::vector<WorkerResult> LayerRounds::measured(double seconds, const std::vector<WorkerId>& busy, int least) {
  std::vector<std::size_t> measured;
  for (std::size_t w = 0; w < endpoints_.size(); ++w)
    if (busy.empty() || std::ranges::find(busy, static_cast<WorkerId>(w)) != busy.end()) {
      measured.push_back(w);
      if (workers_[w] != nullptr) continue;
      const auto id = static_cast<WorkerId>(w);
      workers_[w] = made(run_, id, backend_(id), data_, *endpoints_[w], settings_);
    }
  const int running = static_cast<int>(measured.size());
  Failure failure;
  std::atomic<int> enough{0};  // workers that have measured long enough: they go on until all have
  const std::int64_t end = steady_ns() + static_cast<std::int64_t>(seconds * 1e9);
  each_in_a_thread(measured, workers_, failure, [&](std::size_t w) {
    Worker& worker = *workers_[w];
    if (const int core = core_of(settings_, run_, allowed_, w); core >= 0) pin_to(core);
    try {
      if (rounds_[w] == 0) worker.load(0);
      bool told = false;
      const CoreUse before = core_use();
      for (int round = 0; enough < running && !failure.noted(); ++round) {
        worker.step(rounds_[w]++);
        if (!told && round + 1 >= least && steady_ns() >= end) told = true, ++enough;
      }
      const CoreUse after = core_use();
      worker.result().core = {after.wall - before.wall, after.cpu - before.cpu,
                              after.interruptions - before.interruptions};
    } catch (const std::exception& error) {
      failure.note(worker.told(error));
    }
  });
  std::vector<WorkerResult> results(workers_.size());
  for (const std::size_t w : measured)
    results[w] = std::exchange(workers_[w]->result(), {});
  if (!failure.text().empty()) throw RunFailed(failure.text(), std::move(results));
  for (WorkerResult& result : results) {
    std::vector<char> counts(result.steps.size(), 1);
    if (!counts.empty()) counts.front() = counts.back() = 0;
    keep_rounds(result, counts);
  }
  return results;
}

std::vector<WorkerResult> measure_layers(const RunPlan& run, const BackendMaker& backend, const Data& data,
                                         RunSettings settings, double seconds, const std::vector<WorkerId>& busy) {
  return LayerRounds(run, backend, data, std::move(settings)).measured(seconds, busy);
}

}  // namespace pipewright::runtime
