#include "calibrate/handoff.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "calibrate/statistics.hpp"
#include "runtime/measurement.hpp"

namespace pipewright {
namespace {

double now_ns() {
  return static_cast<double>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

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

struct Series {
  std::vector<double> copied, noticed, first_read;
};

// `rounds` messages of `bytes`, one at a time; the receiver answers with a flag.
Series hand_over(std::size_t bytes, int rounds) {
  const std::size_t values = bytes / sizeof(float);
  std::vector<float> from(values, 1.0F), slot(values, 0.0F);
  std::atomic<int> sent{0}, read{0};
  std::atomic<float> sink{0};
  std::vector<double> sent_at(static_cast<std::size_t>(rounds)), copied, noticed_at, first;
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
      sent_at[static_cast<std::size_t>(i) - 1] = end;
      sent.store(i, std::memory_order_release);
      copied.push_back(end - begin);
      while (read.load(std::memory_order_acquire) < i) {
      }
    }
  });
  sender.join(), receiver.join();
  Series series;
  for (std::size_t i = 5; i < copied.size(); ++i) {  // the first ones touch fresh pages
    series.copied.push_back(copied[i]);
    series.noticed.push_back(std::max(0.0, noticed_at[i] - sent_at[i]));
    series.first_read.push_back(first[i]);
  }
  return series;
}

// `rounds` messages from rank 0 to rank 1, which answers with the times at which it saw and had read each.
Series hand_over(Ranks& ranks, std::size_t bytes, int rounds) {
  Series series;
  Blob block(bytes, std::byte{1});
  std::vector<float> values(bytes / sizeof(float));
  for (int i = 0; i < rounds + 5; ++i) {
    if (ranks.first()) {
      std::fill(block.begin(), block.end(), static_cast<std::byte>(i));  // as an op that has just made its output
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
      const Blob got = ranks.receive(0);
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

// `series`: of so many messages of so many bytes.
template <class Measure>
Handoff fitted(const Measure& series_of) {
  Handoff handoff;
  std::vector<std::pair<double, double>> send, first_read;
  for (std::size_t bytes = 1024; bytes <= (std::size_t{4} << 20); bytes *= 4) {
    const int rounds = bytes <= 65536 ? 400 : bytes <= (1U << 20) ? 100 : 30;
    const Series series = series_of(bytes, rounds);
    if (series.copied.empty()) continue;
    send.emplace_back(static_cast<double>(bytes), statistics(series.copied).mean);
    first_read.emplace_back(static_cast<double>(bytes), std::max(1.0, statistics(series.first_read).mean));
    if (bytes == 1024) handoff.noticed = {std::llround(statistics(series.noticed).mean)};
  }
  if (send.empty()) return handoff;
  const Line copy = line_through(send), cold = line_through(first_read);
  handoff.send = {copy.fixed, copy.per_unit};
  handoff.first_read = {cold.fixed, cold.per_unit};
  return handoff;
}

}  // namespace

Handoff measure_handoff() {
  return available_cores() < 2 ? Handoff{}
                               : fitted([](std::size_t bytes, int rounds) { return hand_over(bytes, rounds); });
}

Handoff measure_handoff(Ranks& ranks) {
  return ranks.size() < 2 || ranks.rank() > 1
             ? Handoff{}
             : fitted([&](std::size_t bytes, int rounds) { return hand_over(ranks, bytes, rounds); });
}

}  // namespace pipewright
