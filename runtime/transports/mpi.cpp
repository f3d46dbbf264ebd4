// Open MPI. All calls are made under one lock (MPI_THREAD_SERIALIZED is enough), and none of them waits in it: a rank
// that hangs must not make this one hang.
//
// A frame is a message with its header and, behind it, its body in pieces of at most 16 MiB, each of which is received
// where the one before has ended. MPI keeps the order of messages with the same tag between two ranks.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#define OMPI_SKIP_MPICXX  // C functions only
#include <mpi.h>

#include "core/check.hpp"
#include "runtime/wire.hpp"

namespace pipewright::runtime {
namespace {

constexpr int kHeaderTag = 1, kBodyTag = 2;
constexpr std::int64_t kPiece = std::int64_t{1} << 24;

struct Incoming {  // a message that is being received
  FrameHeader header;
  std::int64_t have = 0;  // bytes of the body that are there
  std::int64_t coming = 0;
  MPI_Request request = MPI_REQUEST_NULL;
};

class MpiWire : public Wire {
 public:
  explicit MpiWire(const Launch& launch) {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    const auto refuse = [](const std::string& why) {
      MPI_Finalize();
      throw InputError(why);
    };
    if (provided < MPI_THREAD_SERIALIZED)
      refuse("run.transport: this MPI was built without threads; use another one, or transport tcp");
    if (launch.rank != rank_ || launch.size != size_)
      refuse(
          fmt::format("{} say rank {} of {}, MPI says rank {} of {}; start all processes with the mpirun of the Open "
                      "MPI that pipewright was built with, or use transport tcp",
                      launch.by, launch.rank, launch.size, rank_, size_));
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  // The body is copied: the message leaves when MPI is asked the next time, by the thread that receives.
  void send(int to, const FrameHeader& header, std::span<const std::span<const std::byte>> parts) override {
    Outgoing out;
    out.header = header;
    out.body.reserve(static_cast<std::size_t>(header.bytes));
    for (const auto part : parts)
      out.body.insert(out.body.end(), part.begin(), part.end());
    const Asking lock(*this);
    outgoing_.push_back(std::move(out));
    Outgoing& kept = outgoing_.back();
    kept.requests.emplace_back();
    MPI_Isend(&kept.header, sizeof kept.header, MPI_BYTE, to, kHeaderTag, MPI_COMM_WORLD, &kept.requests.back());
    for (std::int64_t at = 0; at < header.bytes; at += kPiece) {
      kept.requests.emplace_back();
      MPI_Isend(kept.body.data() + at, static_cast<int>(std::min(kPiece, header.bytes - at)), MPI_BYTE, to, kBodyTag,
                MPI_COMM_WORLD, &kept.requests.back());
    }
    std::erase_if(outgoing_, [](Outgoing& one) { return one.left(); });
  }

  // MPI cannot be slept on. While a thread of this process waits, or a message is half here, it is asked without pause,
  // else every 100 us.
  void receive(FrameReader& reader, bool hurry) override {
    if (progress(reader)) return;
    if (hurry || incoming_)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

  void close(bool orderly, int status) noexcept override {
    const Asking lock(*this);
    if (!orderly) MPI_Abort(MPI_COMM_WORLD, status);  // does not return
    for (Outgoing& one : outgoing_)
      MPI_Waitall(static_cast<int>(one.requests.size()), one.requests.data(), MPI_STATUSES_IGNORE);
    MPI_Finalize();
  }

 private:
  struct Outgoing {
    FrameHeader header;
    std::vector<std::byte> body;
    std::vector<MPI_Request> requests;
    bool left() {
      int all = 0;
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &all, MPI_STATUSES_IGNORE);
      return all != 0;
    }
  };

  // The lock, with right of way before the thread that asks again and again.
  class Asking {
   public:
    explicit Asking(MpiWire& wire) : wire_(wire) {
      ++wire_.asking_;
      wire_.mutex_.lock();
    }
    Asking(const Asking&) = delete;
    Asking& operator=(const Asking&) = delete;
    ~Asking() {
      wire_.mutex_.unlock();
      --wire_.asking_;
    }

   private:
    MpiWire& wire_;
  };

  // Whether anything came or left. One body at a time: the next header is looked at when it is complete.
  bool progress(FrameReader& reader) {
    if (asking_.load() > 0) return false;
    std::unique_lock lock(mutex_);
    std::erase_if(outgoing_, [](Outgoing& one) { return one.left(); });
    if (!incoming_) {
      int there = 0;
      MPI_Message message{};
      MPI_Status status{};
      MPI_Improbe(MPI_ANY_SOURCE, kHeaderTag, MPI_COMM_WORLD, &there, &message, &status);
      if (there == 0) return false;
      incoming_.emplace();
      FrameHeader& header = incoming_->header;
      MPI_Mrecv(&header, sizeof header, MPI_BYTE, &message, MPI_STATUS_IGNORE);
      PP_CHECK(header.from == status.MPI_SOURCE);
      lock.unlock();
      reader.begin(header);
      lock.lock();
    }
    for (Incoming& in = *incoming_; in.have < in.header.bytes;) {
      if (in.coming == 0) {
        const std::span<std::byte> into = reader.room(in.header, in.have);
        in.coming = std::min(kPiece, in.header.bytes - in.have);
        PP_CHECK(static_cast<std::int64_t>(into.size()) >= in.coming);
        MPI_Irecv(into.data(), static_cast<int>(in.coming), MPI_BYTE, in.header.from, kBodyTag, MPI_COMM_WORLD,
                  &in.request);
      }
      int is_there = 0;
      MPI_Test(&in.request, &is_there, MPI_STATUS_IGNORE);
      if (is_there == 0) return false;
      in.have += std::exchange(in.coming, 0);
    }
    const FrameHeader header = incoming_->header;
    incoming_.reset();
    lock.unlock();
    reader.end(header);
    return true;
  }

  int rank_ = 0, size_ = 1;
  std::mutex mutex_;
  std::atomic<int> asking_{0};
  std::list<Outgoing> outgoing_;  // a list: MPI holds addresses
  std::optional<Incoming> incoming_;
};

}  // namespace

std::unique_ptr<Wire> mpi_wire(const Launch& launch) {
  return std::make_unique<MpiWire>(launch);
}

}  // namespace pipewright::runtime
