#include "calibrate/nccl_members.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "calibrate/clock.hpp"
#include "calibrate/device_jobs.hpp"
#include "core/check.hpp"
#include "core/folds.hpp"

namespace pipewright::calibrate {
namespace {

constexpr double kNcclReadingNs = 1e6;    // of passes, where they are short
constexpr double kMostSummedPasses = 20;  // as nccl-tests; sums of 8 members' values stay below 8^20

class NcclWatch final : public Stopwatch {
 public:
  NcclWatch(NcclMembers& members, DeviceWork work, std::int64_t bytes) : members_(members), work_(work), bytes_(bytes) {
    members_.refill();
    static_cast<void>(members_.time(work_, bytes_, 1));
    const double once = members_.time(work_, bytes_, 1);
    passes_ = static_cast<int>(std::clamp(kNcclReadingNs / std::max(once, 1.0), 1.0, kMostSummedPasses));
  }
  Reading time() override {
    members_.refill();
    const double ns = members_.time(work_, bytes_, passes_);
    return {ns / passes_, 1, ns};
  }
  void pause(double seconds) override { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

 private:
  NcclMembers& members_;
  DeviceWork work_;
  std::int64_t bytes_;
  int passes_ = 1;
};

}  // namespace

NcclMembers::NcclMembers(const std::shared_ptr<const NcclLibrary>& library, int members, const BackendMaker& backend,
                         const NcclQueueMaker& queue, Bytes largest, double timeout_s)
    : library_(library), members_(at(members)), largest_(largest), timeout_s_(timeout_s) {
  PP_CHECK(members >= 2);
  try {
    connect(backend, queue);
  } catch (...) {
    close();
    throw;
  }
}

void NcclMembers::connect(const BackendMaker& backend, const NcclQueueMaker& queue) {
  const NcclId id = library_->id();
  for (int i = 0; i < count(); ++i) {
    Member& m = members_[at(i)];
    m.backend = backend(static_cast<WorkerId>(i));
    m.mover = m.backend->mover(MoverFor::Worker);
    m.memory = m.backend->reserve(largest_), m.first = m.backend->reserve(largest_);
    fill_random(*m.mover, m.first->base(), largest_.value);
    m.backend->finish();
    m.queue = queue(*m.mover, NcclPlace::Own);
    static_cast<void>(m.queue->stream());  // its GPU is the thread's
    m.comm = std::make_unique<NcclComm>(library_, id, count(), i);
  }
  settle();
  refill();
  for (const DeviceWork work : {DeviceWork::NcclAllReduce, DeviceWork::NcclAllGather, DeviceWork::NcclSend})
    ask(work, std::min<std::int64_t>(largest_.value, 4096)), finish();  // the first of each connects the members
}

NcclMembers::~NcclMembers() {
  try {
    timeout_s_ = std::min(5.0, timeout_s_);
    for (Member& m : members_)
      m.comm->finish();
    settle();
  } catch (const std::exception&) {  // they are aborted
  }
  close();
}

void NcclMembers::close() noexcept {
  std::vector<std::jthread> closing;  // together: an abort may wait for what the others are doing
  for (Member& m : members_)
    if (m.comm != nullptr) closing.emplace_back([&m] { m.comm->close(); });
}

template <class Done>
void NcclMembers::until(const Done& done) {
  const double late = now_ns() + timeout_s_ * 1e9;
  while (!done())
    if (now_ns() > late)
      throw NcclError(fmt::format("nothing heard from NCCL for {} s by {} GPUs of one process", timeout_s_, count()));
}

// Every member is asked again and again, not one after the other: one that fails may leave the others waiting for it.
void NcclMembers::settle() {
  until([&] {
    bool all = true;
    for (const Member& m : members_)
      all = m.comm->settled() && all;
    return all;
  });
}

void NcclMembers::finish() {
  auto marks = mapped<std::int64_t>(members_, [](const Member& m) { return m.queue->mark(); });
  until([&] {
    bool all = true;
    for (std::size_t i = 0; i < members_.size(); ++i)
      all = members_[i].comm->settled() && members_[i].queue->passed(marks[i]) && all;
    return all;
  });
}

void NcclMembers::ask(DeviceWork work, std::int64_t bytes) {
  PP_CHECK(bytes <= largest_.value);
  NcclTogether group(library_);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member& m = members_[i];
    void* const stream = m.queue->stream();
    std::byte* const data = m.memory->base();
    const NcclPart part{data, bytes};
    switch (work) {
      case DeviceWork::NcclAllReduce: m.comm->all_reduce(reinterpret_cast<float*>(data), bytes / 4, stream); break;
      case DeviceWork::NcclAllGather: m.comm->all_gather(data, part_bytes(bytes), stream); break;
      default:
        if (i == 0) m.comm->send({&part, 1}, 1, stream);
        if (i == 1) m.comm->receive({&part, 1}, 0, stream);
    }
  }
  group.end();
  settle();
}

std::int64_t NcclMembers::part_bytes(std::int64_t bytes) const {
  return all_gather_part(bytes, count());
}

void NcclMembers::refill() {
  for (const Member& m : members_)
    m.mover->copy(m.memory->base(), m.first->base(), largest_);
  for (const Member& m : members_)
    m.mover->finish(), m.backend->finish();
}

double NcclMembers::time(DeviceWork work, std::int64_t bytes, int passes) {
  const double begin = now_ns();
  for (int i = 0; i < passes; ++i)
    ask(work, bytes);
  finish();
  return now_ns() - begin;
}

std::vector<std::vector<std::byte>> NcclMembers::contents(std::int64_t bytes) {
  std::vector<std::vector<std::byte>> all;
  for (const Member& m : members_) {
    std::vector<std::byte>& block = all.emplace_back(at(bytes));
    m.mover->download(block.data(), m.memory->base(), Bytes{bytes});
  }
  return all;
}

NumericCheck NcclMembers::check(DeviceWork work, std::int64_t bytes) {
  // Every member has values of its own: those of the others shifted by a number.
  refill();
  const auto values = at(bytes / 4);
  auto before = contents(bytes);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    std::rotate(before[i].begin(), before[i].begin() + static_cast<std::ptrdiff_t>(4 * i), before[i].end());
    members_[i].mover->upload(members_[i].memory->base(), before[i].data(), Bytes{bytes});
  }
  ask(work, bytes);
  finish();
  const auto after = contents(bytes);
  NumericCheck check;
  if (work == DeviceWork::NcclAllReduce) {
    std::vector<double> sum(values), one(values);
    for (const auto& block : before) {
      widened(block.data(), std::ssize(one), Precision::Fp32, one.data());
      for (std::size_t i = 0; i < values; ++i)
        sum[i] += one[i];
    }
    check.limit = 2e-5;
    for (const auto& block : after) {
      widened(block.data(), std::ssize(one), Precision::Fp32, one.data());
      check.error = std::max(check.error, relative_off(one, sum));
    }
    return check;
  }
  std::vector<std::byte> right = before[0];
  const auto each = at(part_bytes(bytes));
  if (work == DeviceWork::NcclAllGather)
    for (std::size_t i = 0; i < members_.size(); ++i)
      std::copy_n(before[i].begin() + static_cast<std::ptrdiff_t>(i * each), each,
                  right.begin() + static_cast<std::ptrdiff_t>(i * each));
  const std::size_t compared = work == DeviceWork::NcclAllGather ? each * members_.size() : right.size();
  for (std::size_t i = 0; i < after.size(); ++i)
    if ((work == DeviceWork::NcclAllGather || i == 1) && std::memcmp(after[i].data(), right.data(), compared) != 0)
      check.error = 1;
  return check;
}

std::unique_ptr<Stopwatch> nccl_watch(NcclMembers& members, DeviceWork work, std::int64_t bytes) {
  return std::make_unique<NcclWatch>(members, work, bytes);
}

}  // namespace pipewright::calibrate
