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

}  // namespace

Handoff measure_handoff() {
  Handoff handoff;
  if (available_cores() < 2) return handoff;
  std::vector<std::pair<double, double>> send, first_read;
  for (std::size_t bytes = 1024; bytes <= (std::size_t{4} << 20); bytes *= 4) {
    const int rounds = bytes <= 65536 ? 400 : bytes <= (1U << 20) ? 100 : 30;
    const Series series = hand_over(bytes, rounds);
    send.emplace_back(static_cast<double>(bytes), statistics(series.copied).mean);
    first_read.emplace_back(static_cast<double>(bytes), std::max(1.0, statistics(series.first_read).mean));
    if (bytes == 1024) handoff.noticed = {std::llround(statistics(series.noticed).mean)};
  }
  const Line copy = line_through(send), cold = line_through(first_read);
  handoff.send = {copy.fixed, copy.per_unit};
  handoff.first_read = {cold.fixed, cold.per_unit};
  return handoff;
}

}  // namespace pipewright
