#include "calibrate/nccl_handoff.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "calibrate/clock.hpp"

namespace pipewright::calibrate {
namespace {

constexpr std::size_t kLargest = std::size_t{4} << 20;

// Rank 0 or 1: a block of its device's memory, and a communicator of the two.
class NcclEnd {
 public:
  NcclEnd(Ranks& ranks, std::unique_ptr<Backend> backend, std::shared_ptr<const NcclLibrary> library,
          const NcclQueueMaker& queue, double timeout_s)
      : ranks_(ranks),
        backend_(std::move(backend)),
        mover_(backend_->mover(MoverFor::Worker)),
        memory_(backend_->reserve({static_cast<std::int64_t>(kLargest)})),
        queue_(queue(*mover_, ranks.first() ? NcclPlace::Own : NcclPlace::Beside)),
        timeout_s_(timeout_s) {
    backend_->zero(memory_->base(), {static_cast<std::int64_t>(kLargest)});
    backend_->finish();
    NcclId id;
    if (ranks.first()) {
      id = library->id();
      ranks.send(1, BytesOut().put(id).bytes());
    } else {
      const Blob told = ranks.receive(0);
      id = BytesIn(told).get<NcclId>();
    }
    comm_ = std::make_unique<NcclComm>(std::move(library), id, 2, ranks.rank());
    settle();
    // The first message connects the two.
    if (ranks.first())
      send(1024);
    else
      wait(receive(1024));
  }
  ~NcclEnd() {
    try {
      comm_->finish();
      timeout_s_ = std::min(5.0, timeout_s_);
      settle();
    } catch (const std::exception&) {  // it is aborted
    }
    comm_->close();
  }
  NcclEnd(const NcclEnd&) = delete;
  NcclEnd& operator=(const NcclEnd&) = delete;

  // As an op that has just made its output.
  void make(std::size_t bytes) {
    backend_->scale(reinterpret_cast<float*>(memory_->base()), static_cast<std::int64_t>(bytes / sizeof(float)), -1.0F);
    backend_->finish();
  }
  void send(std::size_t bytes) {
    const NcclPart part{memory_->base(), static_cast<std::int64_t>(bytes)};
    comm_->send({&part, 1}, 1, queue_->stream());
    settle();
    wait(queue_->mark());
  }
  std::int64_t receive(std::size_t bytes) {  // a mark behind it
    const NcclPart part{memory_->base(), static_cast<std::int64_t>(bytes)};
    comm_->receive({&part, 1}, 0, queue_->stream());
    settle();
    return queue_->mark();
  }
  void wait(std::int64_t mark) {
    until([&] { return queue_->passed(mark) && comm_->settled(); });
  }

 private:
  void settle() {
    until([&] { return comm_->settled(); });
  }
  template <class Done>
  void until(const Done& done) {
    double late = now_ns() + timeout_s_ * 1e9;
    bool gone = false;
    while (!done()) {
      if (!gone && ranks_.gone(1 - ranks_.rank()))
        gone = true, late = std::min(late, now_ns() + 1e9);  // what it sent before may still come
      if (now_ns() < late) continue;
      if (gone) throw PeerSilent(fmt::format("worker {} is gone; it was to be met by NCCL", 1 - ranks_.rank()));
      throw PeerSilent(
          fmt::format("nothing heard for {} s while waiting for worker {} by NCCL", timeout_s_, 1 - ranks_.rank()));
    }
  }

  Ranks& ranks_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Mover> mover_;
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<NcclQueue> queue_;
  double timeout_s_;
  std::unique_ptr<NcclComm> comm_;
};

HandoffTimes hand_over(Ranks& ranks, NcclEnd& end, std::size_t bytes, int rounds) {
  HandoffTimes series;
  for (int i = 0; i < rounds + 5; ++i) {
    if (ranks.first()) {
      ranks.receive(1);  // it has asked for the message
      end.make(bytes);
      const double begin = now_ns();
      ranks.send(1, {});
      end.send(bytes);
      const double sent = now_ns();
      const Blob answer = ranks.receive(1);
      const auto noticed = BytesIn(answer).get<double>();
      if (i < 5) continue;  // the first ones load kernels
      series.copied.push_back(sent - begin);
      series.noticed.push_back(std::max(0.0, noticed - sent));
      series.first_read.push_back(0);
    } else {
      const std::int64_t mark = end.receive(bytes);
      ranks.send(0, {});
      ranks.receive(0);
      end.wait(mark);
      ranks.send(0, BytesOut().put(now_ns() + static_cast<double>(ranks.clock().offset)).bytes());
    }
  }
  return series;
}

}  // namespace

Handoff measure_handoff(Ranks& ranks, const BackendMaker& backend, std::shared_ptr<const NcclLibrary> library,
                        const NcclQueueMaker& queue, double timeout_s) {
  if (ranks.size() < 2 || ranks.rank() > 1) return {};
  NcclEnd end(ranks, backend(static_cast<WorkerId>(ranks.rank())), std::move(library), queue, timeout_s);
  return fitted_handoff([&](std::size_t bytes, int rounds) { return hand_over(ranks, end, bytes, rounds); });
}

}  // namespace pipewright::calibrate
