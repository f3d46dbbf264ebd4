#include "calibrate/handoff.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "calibrate/clock.hpp"
#include "calibrate/statistics.hpp"
#include "runtime/measurement.hpp"

namespace pipewright::calibrate {
namespace {

// The sum keeps the reads from being left out.
float read_all(const std::vector<float>& block) {
  float sums[8] = {};
  for (std::size_t i = 0; i + 8 <= block.size(); i += 8)
    for (std::size_t j = 0; j < 8; ++j)
      sums[j] += block[i + j];
  float sum = 0;
  for (const float part : sums)
    sum += part;
  return sum;
}

// `rounds` messages of `bytes`, one at a time; the receiver answers with a flag.
HandoffTimes hand_over(std::size_t bytes, int rounds) {
  const std::size_t values = bytes / sizeof(float);
  std::vector<float> from(values, 1.0F), slot(values, 0.0F);
  std::atomic<int> sent{0}, read{0};
  std::atomic<float> sink{0};
  std::vector<double> sent_at(at(rounds)), copied, noticed_at, first;
  const std::vector<int> cores = allowed_cores();
  std::thread receiver([&] {
    pin_to(cores[1]);
    for (int i = 1; i <= rounds; ++i) {
      while (sent.load(std::memory_order_acquire) < i) {
      }
      const double begin = now_ns();
      noticed_at.push_back(begin);
      float sum = read_all(slot);
      const double cold = now_ns();
      sum += read_all(slot);
      const double warm = now_ns();
      sink = sum;
      first.push_back(std::max(0.0, (cold - begin) - (warm - cold)));
      read.store(i, std::memory_order_release);
    }
  });
  std::thread sender([&] {
    pin_to(cores[0]);
    for (int i = 1; i <= rounds; ++i) {
      for (float& value : from)  // as an op that has just made its output
        value += 1;
      const double begin = now_ns();
      std::memcpy(slot.data(), from.data(), bytes);
      const double end = now_ns();
      sent_at[at(i) - 1] = end;
      sent.store(i, std::memory_order_release);
      copied.push_back(end - begin);
      while (read.load(std::memory_order_acquire) < i) {
      }
    }
  });
  sender.join(), receiver.join();
  HandoffTimes series;
  for (std::size_t i = 5; i < copied.size(); ++i) {  // the first ones touch fresh pages
    series.copied.push_back(copied[i]);
    series.noticed.push_back(std::max(0.0, noticed_at[i] - sent_at[i]));
    series.first_read.push_back(first[i]);
  }
  return series;
}

// One end of a hand-over between devices.
struct End {
  explicit End(std::unique_ptr<Backend> made, std::size_t bytes)
      : backend(std::move(made)), memory(backend->reserve({static_cast<std::int64_t>(bytes)})) {
    backend->zero(memory->base(), {static_cast<std::int64_t>(bytes)});
    backend->finish();
  }
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Mover> mover = backend->mover(MoverFor::Worker);
  std::unique_ptr<DeviceMemory> memory;
};

Blob received(Ranks& ranks, std::size_t bytes) {
  Blob got = ranks.receive(0);
  if (got.size() != bytes)
    throw std::runtime_error(fmt::format(
        "a message of {} bytes came where {} were agreed; start all ranks with the same program, scenario and options",
        got.size(), bytes));
  return got;
}

// `rounds` messages from rank 0 to rank 1, which answers with the times at which it saw and had read each.
HandoffTimes hand_over(Ranks& ranks, std::size_t bytes, int rounds) {
  HandoffTimes series;
  Blob block(bytes, std::byte{1});
  std::vector<float> values(bytes / sizeof(float));
  for (int i = 0; i < rounds + 5; ++i) {
    if (ranks.first()) {
      std::ranges::fill(block, static_cast<std::byte>(i));  // as an op that has just made its output
      const double begin = now_ns();
      ranks.send(1, block);
      const double end = now_ns();
      const Blob answer = ranks.receive(1);
      BytesIn in(answer);
      const auto noticed = in.get<double>(), first_read = in.get<double>();
      if (i < 5) continue;  // the first ones touch fresh pages
      series.copied.push_back(end - begin);
      series.noticed.push_back(std::max(0.0, noticed - end));
      series.first_read.push_back(first_read);
    } else {
      const Blob got = received(ranks, bytes);
      const double begin = now_ns();
      std::memcpy(values.data(), got.data(), bytes);
      const double cold = now_ns();
      std::memcpy(values.data(), got.data(), bytes);
      const double warm = now_ns();
      const auto on_their_clock = static_cast<double>(ranks.clock().offset);
      ranks.send(0, BytesOut().put(begin + on_their_clock).put(std::max(0.0, (cold - begin) - (warm - cold))).bytes());
    }
  }
  return series;
}

}  // namespace

Handoff fitted_handoff(const std::function<HandoffTimes(std::size_t bytes, int rounds)>& series_of) {
  Handoff handoff;
  std::vector<std::pair<double, double>> send, first_read;
  for (std::size_t bytes = 1024; bytes <= (std::size_t{4} << 20); bytes *= 4) {
    const int rounds = bytes <= 65536 ? 400 : bytes <= (1U << 20) ? 100 : 30;
    const HandoffTimes series = series_of(bytes, rounds);
    if (series.copied.empty()) continue;
    send.emplace_back(static_cast<double>(bytes), statistics(series.copied).mean);
    const double read = statistics(series.first_read).mean;
    if (read > 0) first_read.emplace_back(static_cast<double>(bytes), std::max(1.0, read));
    if (bytes == 1024) handoff.noticed = {std::llround(statistics(series.noticed).mean)};
  }
  if (send.empty()) return handoff;
  const Line copy = line_through(send);
  handoff.send = {copy.fixed, copy.per_unit};
  if (first_read.empty()) return handoff;  // nothing is read twice
  const Line cold = line_through(first_read);
  handoff.first_read = {cold.fixed, cold.per_unit};
  return handoff;
}

HandoffTimes hand_over(const BackendMaker& backend, Staging staging, std::size_t count, int rounds) {
  const Bytes bytes{static_cast<std::int64_t>(count)};
  End from(backend(0), count), to(backend(1), count);
  const std::unique_ptr<DeviceMemory> stage =
      staging == Staging::Host ? to.mover->staging(bytes) : std::unique_ptr<DeviceMemory>{};
  HandoffTimes series;
  std::atomic<int> sent{0}, read{0};
  std::vector<double> sent_at(at(rounds)), noticed_at, brought, copied;
  const std::vector<int> cores = allowed_cores();
  std::exception_ptr failed[2];
  const auto guarded = [&](int side, const auto& act) {
    try {
      pin_to(cores[at(side)]);
      for (int i = 1; i <= rounds; ++i)
        act(i);
    } catch (...) {
      failed[side] = std::current_exception();
      sent = read = rounds;  // the other one ends, too
    }
  };
  std::thread receiver([&] {
    guarded(1, [&](int i) {
      while (sent.load(std::memory_order_acquire) < i) {
      }
      const double begin = now_ns();
      noticed_at.push_back(begin);
      if (stage != nullptr) to.mover->upload(to.memory->base(), stage->base(), bytes);
      to.mover->finish();
      brought.push_back(now_ns() - begin);
      if (read < i) read.store(i, std::memory_order_release);
    });
  });
  std::thread sender([&] {
    guarded(0, [&](int i) {
      // As an op that has just made its output.
      from.backend->scale(reinterpret_cast<float*>(from.memory->base()),
                          static_cast<std::int64_t>(count / sizeof(float)), -1.0F);
      from.backend->finish();
      const double begin = now_ns();
      if (stage != nullptr)
        from.mover->download(stage->base(), from.memory->base(), bytes);
      else
        from.mover->copy(to.memory->base(), from.memory->base(), bytes);
      from.mover->finish();
      const double end = now_ns();
      sent_at[at(i) - 1] = end;
      if (sent < i) sent.store(i, std::memory_order_release);
      copied.push_back(end - begin);
      while (read.load(std::memory_order_acquire) < i) {
      }
    });
  });
  sender.join(), receiver.join();
  for (const std::exception_ptr& each : failed)
    if (each) std::rethrow_exception(each);
  for (std::size_t i = 5; i < copied.size(); ++i) {  // the first ones load kernels and touch fresh pages
    series.copied.push_back(copied[i]);
    series.noticed.push_back(std::max(0.0, noticed_at[i] - sent_at[i]));
    series.first_read.push_back(stage != nullptr ? brought[i] : 0.0);
  }
  return series;
}

Handoff measure_handoff(const BackendMaker& backend, Staging staging) {
  if (available_cores() < 2) return {};
  const bool host = backend()->in_host_memory() && staging == Staging::None;
  return fitted_handoff([&](std::size_t bytes, int rounds) {
    return host ? hand_over(bytes, rounds) : hand_over(backend, staging, bytes, rounds);
  });
}

HandoffTimes hand_over(Ranks& ranks, const BackendMaker& backend, std::size_t count, int rounds) {
  const Bytes bytes{static_cast<std::int64_t>(count)};
  End end(backend(static_cast<WorkerId>(ranks.rank())), count);
  const std::unique_ptr<DeviceMemory> stage = end.mover->staging(bytes);
  HandoffTimes series;
  Blob block(count);
  for (int i = 0; i < rounds + 5; ++i) {
    if (ranks.first()) {
      // As an op that has just made its output.
      end.backend->scale(reinterpret_cast<float*>(end.memory->base()), static_cast<std::int64_t>(count / sizeof(float)),
                         -1.0F);
      end.backend->finish();
      const double begin = now_ns();
      end.mover->download(stage->base(), end.memory->base(), bytes);
      std::memcpy(block.data(), stage->base(), count);
      ranks.send(1, block);
      const double sent = now_ns();
      const Blob answer = ranks.receive(1);
      BytesIn in(answer);
      const auto noticed = in.get<double>(), brought = in.get<double>();
      if (i < 5) continue;  // the first ones load kernels and touch fresh pages
      series.copied.push_back(sent - begin);
      series.noticed.push_back(std::max(0.0, noticed - sent));
      series.first_read.push_back(brought);
    } else {
      const Blob got = received(ranks, count);
      std::memcpy(stage->base(), got.data(), count);  // into its slot
      const double begin = now_ns();
      end.mover->upload(end.memory->base(), stage->base(), bytes);
      end.mover->finish();
      const double brought = now_ns() - begin;
      ranks.send(0, BytesOut().put(begin + static_cast<double>(ranks.clock().offset)).put(brought).bytes());
    }
  }
  return series;
}

Handoff measure_handoff(Ranks& ranks, const BackendMaker& backend) {
  if (ranks.size() < 2 || ranks.rank() > 1) return {};
  const bool host = backend(static_cast<WorkerId>(ranks.rank()))->in_host_memory();
  return fitted_handoff([&](std::size_t bytes, int rounds) {
    return host ? hand_over(ranks, bytes, rounds) : hand_over(ranks, backend, bytes, rounds);
  });
}

}  // namespace pipewright::calibrate
