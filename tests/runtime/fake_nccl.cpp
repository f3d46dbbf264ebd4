// A libnccl.so.2 for tests: processes of one machine, the host's memory, sockets between them. As strict as NCCL may
// be:
//
//   - a send ends when its receive has begun, however small it is
//   - operations of one communicator run one after the other, whatever stream they are on
//   - nothing is settled at once; the first operation of a communicator not before its other members have come to it
//   - what is used before it has settled is an error; sends and receives of different sizes, too
//   - a member that is gone is waited for until the communicator is aborted
//
// The environment of a process says what goes wrong in it:
//
//   FAKE_NCCL_VERSION=20900          what ncclGetVersion says
//   FAKE_NCCL_FAIL=ncclSend:7        the seventh call of it fails; `async:7`: the seventh operation does, later;
//                                    `async of 1:7`: the seventh of member 1
//   FAKE_NCCL_SILENT_AFTER=7         operations behind the seventh wait forever
#include "tests/runtime/fake_nccl.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace {

using pipewright::tests::runtime_test::FakeStream;

enum Result {
  kSuccess = 0,
  kCudaError = 1,
  kSystemError = 2,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};

struct UniqueId {
  char internal[128];
};
struct Config {
  std::size_t size;
  unsigned int magic, version;
  int blocking;
};

std::atomic<int> open_communicators{0}, aborted_communicators{0}, operations{0}, on_device{0};
std::atomic<int> ungrouped_operations{0};

// The n-th call of a function, as FAKE_NCCL_FAIL says.
bool fails(const std::string& function) {
  static std::mutex mutex;
  static std::map<std::string, int> calls;
  const char* const plan = std::getenv("FAKE_NCCL_FAIL");
  if (plan == nullptr) return false;
  const std::string text = plan;
  const auto colon = text.find(':');
  if (text.substr(0, colon) != function) return false;
  const std::lock_guard lock(mutex);
  return ++calls[function] == std::atoi(text.c_str() + colon + 1);
}

// Addresses of far memory (far_backend.hpp) are the host's with bit 47 set.
std::byte* here(const void* address) {
  constexpr std::uintptr_t kFar = std::uintptr_t{1} << 47;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return reinterpret_cast<std::byte*>(at >= kFar ? at - kFar : at);
}

struct Operation {
  enum Kind { Send, Receive, Sum, Gather } kind = Send;
  std::byte* at = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(std::string name, int ranks, int rank)
      : name_(std::move(name)), ranks_(ranks), rank_(rank), sockets_(static_cast<std::size_t>(ranks), -1) {
    ++open_communicators;
  }
  ~Communicator() {
    for (const int socket : sockets_)
      if (socket >= 0) ::close(socket);
    if (listener_ >= 0) ::close(listener_);
  }

  void join() {
    std::thread([self = shared_from_this()] {
      if (self->connect_all()) self->settle(kSuccess, 2);
    }).detach();
  }

  Result state() {
    const std::lock_guard lock(mutex_);
    if (state_ == kSuccess && polls_ > 0) return --polls_, kInProgress;
    return state_;
  }
  bool is_settled() {
    const std::lock_guard lock(mutex_);
    return state_ == kSuccess && polls_ == 0;
  }
  std::string last_error() {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  void fail(Result result, const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (state_ == kInProgress || state_ == kSuccess) state_ = result, error_ = why;  // the first failure stays
  }
  void finalize() { settle(kSuccess, 2); }

  // What a group asks of it, on one stream.
  void ask(std::vector<Operation> group, FakeStream* stream) {
    const std::int64_t turn = turns_++;
    settle(kInProgress, 0);
    const auto launch = [self = shared_from_this(), group = std::move(group), stream, turn] {
      stream->ask([self, group, turn] { self->run(group, turn); });
      self->settle(kSuccess, 2);
    };
    if (turn > 0)
      launch();
    else  // the members connect
      std::thread([self = shared_from_this(), launch] {
        if (self->meet()) launch();
      }).detach();
  }

  void abort() {
    aborted_ = true;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !running_; });
  }

 private:
  void settle(Result result, int polls) {
    const std::lock_guard lock(mutex_);
    if (state_ == kInProgress || state_ == kSuccess) state_ = result, polls_ = polls;
  }

  static sockaddr_un address_of(const std::string& name, socklen_t& length) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;  // an abstract one: the first byte is 0
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
  }
  bool connect_all() {
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = 0;
    sockaddr_un own = address_of(name_ + std::to_string(rank_), length);
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&own), length) != 0 || ::listen(listener_, 16) != 0)
      return fail(kSystemError, std::string("bind: ") + std::strerror(errno)), false;
    for (int r = 0; r < rank_; ++r)
      for (;;) {
        if (aborted_) return false;
        const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_un other = address_of(name_ + std::to_string(r), length);
        if (::connect(socket, reinterpret_cast<sockaddr*>(&other), length) == 0) {
          sockets_[static_cast<std::size_t>(r)] = socket;
          if (!write(r, &rank_, sizeof rank_)) return false;
          break;
        }
        ::close(socket);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    for (int missing = ranks_ - 1 - rank_; missing > 0;) {
      pollfd wait{listener_, POLLIN, 0};
      if (aborted_) return false;
      if (::poll(&wait, 1, 5) <= 0) continue;
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      int r = -1;
      if (socket < 0 || ::recv(socket, &r, sizeof r, MSG_WAITALL) != sizeof r || r <= rank_ || r >= ranks_)
        return fail(kSystemError, "a stranger came"), false;
      sockets_[static_cast<std::size_t>(r)] = socket;
      --missing;
    }
    return true;
  }
  bool meet() {
    const char hello = 'c';
    char heard = 0;
    for (int r = 0; r < ranks_; ++r)
      if (r != rank_ && !write(r, &hello, 1)) return false;
    for (int r = 0; r < ranks_; ++r)
      if (r != rank_ && !read(r, &heard, 1)) return false;
    return true;
  }

  // False: aborted.
  bool write(int to, const void* from, std::size_t bytes) {
    return move(to, bytes, POLLOUT, [&](int socket, std::size_t done) {
      return ::send(socket, static_cast<const char*>(from) + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    });
  }
  bool read(int from, void* into, std::size_t bytes) {
    return move(from, bytes, POLLIN, [&](int socket, std::size_t done) {
      return ::recv(socket, static_cast<char*>(into) + done, bytes - done, MSG_DONTWAIT);
    });
  }
  template <class Move>
  bool move(int peer, std::size_t bytes, short what, const Move& step) {
    const int socket = sockets_[static_cast<std::size_t>(peer)];
    bool gone = false;  // nobody is there any more: a device waits on
    for (std::size_t done = 0; done < bytes;) {
      if (aborted_) return false;
      if (gone) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        continue;
      }
      pollfd wait{socket, what, 0};
      if (::poll(&wait, 1, 5) <= 0) continue;
      const ssize_t moved = step(socket, done);
      if (moved > 0)
        done += static_cast<std::size_t>(moved);
      else
        gone = moved == 0 || (errno != EAGAIN && errno != EINTR);
    }
    return true;
  }

  void run(const std::vector<Operation>& group, std::int64_t turn) {
    while (now_ != turn && !aborted_)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    {
      const std::lock_guard lock(mutex_);
      running_ = true;
    }
    ++on_device;
    const char* const silent = std::getenv("FAKE_NCCL_SILENT_AFTER");
    for (const Operation& operation : group) {
      const int number = ++operations;
      while (silent != nullptr && number > std::atoi(silent) && !aborted_)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (fails("async") || fails("async of " + std::to_string(rank_))) fail(kRemoteError, "planned failure");
      if (aborted_ || !run(operation)) break;
    }
    if (!aborted_) ++now_;
    --on_device;
    const std::lock_guard lock(mutex_);
    running_ = false;
    changed_.notify_all();
  }
  bool same_size(std::uint64_t ours, std::uint64_t theirs) {
    if (ours == theirs) return true;
    fail(kInvalidUsage, "sizes differ: " + std::to_string(ours) + " and " + std::to_string(theirs));
    return false;
  }
  bool run(const Operation& operation) {
    const std::uint64_t ours = operation.bytes;
    std::uint64_t theirs = 0;
    const int peer = operation.peer;
    switch (operation.kind) {
      case Operation::Send:
        return read(peer, &theirs, sizeof theirs) && same_size(ours, theirs) && write(peer, operation.at, ours);
      case Operation::Receive: return write(peer, &ours, sizeof ours) && read(peer, operation.at, ours);
      case Operation::Sum: return sum(operation);
      case Operation::Gather: return gather(operation);
    }
    return false;
  }
  // `at`: where the parts of all lie; `bytes`: of each. The first member collects them, and sends all to the others.
  bool gather(const Operation& operation) {
    const std::uint64_t ours = operation.bytes;
    const std::size_t all = operation.bytes * static_cast<std::size_t>(ranks_);
    std::byte* const own = operation.at + operation.bytes * static_cast<std::size_t>(rank_);
    if (rank_ > 0) return write(0, &ours, sizeof ours) && write(0, own, ours) && read(0, operation.at, all);
    for (int r = 1; r < ranks_; ++r) {
      std::uint64_t theirs = 0;
      if (!read(r, &theirs, sizeof theirs) || !same_size(ours, theirs) ||
          !read(r, operation.at + operation.bytes * static_cast<std::size_t>(r), ours))
        return false;
    }
    for (int r = 1; r < ranks_; ++r)
      if (!write(r, operation.at, all)) return false;
    return true;
  }
  // The last member's values first: an order that nobody else's is.
  bool sum(const Operation& operation) {
    const std::uint64_t ours = operation.bytes;
    if (rank_ > 0) return write(0, &ours, sizeof ours) && write(0, operation.at, ours) && read(0, operation.at, ours);
    std::vector<float> total, term(ours / sizeof(float));
    for (int r = ranks_ - 1; r > 0; --r) {
      std::uint64_t theirs = 0;
      if (!read(r, &theirs, sizeof theirs) || !same_size(ours, theirs) || !read(r, term.data(), ours)) return false;
      if (total.empty())
        total = term;
      else
        for (std::size_t i = 0; i < total.size(); ++i)
          total[i] += term[i];
    }
    std::memcpy(term.data(), operation.at, ours);
    total.resize(term.size());
    for (std::size_t i = 0; i < total.size(); ++i)
      total[i] += term[i];
    std::memcpy(operation.at, total.data(), ours);
    for (int r = 1; r < ranks_; ++r)
      if (!write(r, total.data(), ours)) return false;
    return true;
  }

  std::string name_;
  int ranks_, rank_, listener_ = -1;
  std::vector<int> sockets_;  // by rank
  std::mutex mutex_;
  std::condition_variable changed_;
  Result state_ = kInProgress;
  int polls_ = 0;  // so often it is still in progress
  std::string error_;
  bool running_ = false;
  std::atomic<bool> aborted_{false};
  std::int64_t turns_ = 0;
  std::atomic<std::int64_t> now_{0};
};

// Handles that are given out.
std::mutex handles_mutex;
std::map<void*, std::shared_ptr<Communicator>>& handles() {
  static std::map<void*, std::shared_ptr<Communicator>> all;
  return all;
}
std::shared_ptr<Communicator> of(void* handle) {
  const std::lock_guard lock(handles_mutex);
  const auto found = handles().find(handle);
  return found == handles().end() ? nullptr : found->second;
}
Result given_back(void* handle, bool aborts) {
  const std::shared_ptr<Communicator> communicator = of(handle);
  if (communicator == nullptr) return kInvalidArgument;
  if (aborts) ++aborted_communicators;
  --open_communicators;
  communicator->abort();
  // As an abort that waits for the whole device: whoever aborts one after the other while another's operation waits for
  // somebody hangs here.
  for (int waited = 0; aborts && on_device > 0; ++waited) {
    if (waited > 200'000) {  // a minute and a half at least
      std::fputs("fake NCCL: an abort waits for an operation of another communicator\n", stderr);
      std::abort();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  const std::lock_guard lock(handles_mutex);
  handles().erase(handle);
  return kSuccess;
}

struct Asked {
  std::shared_ptr<Communicator> communicator;
  FakeStream* stream;
  Operation operation;
};
thread_local int depth = 0;
thread_local std::vector<Asked> asked;

Result flushed() {
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (asked[i].communicator == nullptr) continue;
    const std::shared_ptr<Communicator> communicator = asked[i].communicator;
    FakeStream* const stream = asked[i].stream;
    std::vector<Operation> group;
    for (std::size_t j = i; j < asked.size(); ++j)
      if (asked[j].communicator == communicator) {
        group.push_back(asked[j].operation);
        asked[j].communicator = nullptr;
      }
    communicator->ask(std::move(group), stream);
  }
  asked.clear();
  return kInProgress;
}
Result take(const char* function, void* handle, void* stream, Operation operation) {
  const std::shared_ptr<Communicator> communicator = of(handle);
  if (communicator == nullptr || stream == nullptr) return kInvalidArgument;
  if (fails(function)) {
    communicator->fail(kCudaError, "planned failure");
    return kCudaError;
  }
  if (!communicator->is_settled()) {
    communicator->fail(kInvalidUsage, "used before it has settled");
    return communicator->state();
  }
  // One thread that asks for several communicators' parts, each on its own, may wait for itself on GPUs.
  if (depth == 0 && open_communicators > 1) ++ungrouped_operations;
  asked.push_back({communicator, static_cast<FakeStream*>(stream), operation});
  return depth > 0 ? kSuccess : flushed();
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  const char* const said = std::getenv("FAKE_NCCL_VERSION");
  *version = said == nullptr ? 22809 : std::atoi(said);
  return kSuccess;
}

int ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> number{0};
  if (fails("ncclGetUniqueId")) return kSystemError;
  const std::string text = "fake-nccl-" + std::to_string(::getpid()) + "-" + std::to_string(number++) + "-";
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, text.c_str(), text.size());
  return kSuccess;
}

int ncclCommInitRankConfig(void** handle, int ranks, UniqueId id, int rank, Config* config) {
  *handle = nullptr;
  if (fails("ncclCommInitRankConfig")) return kCudaError;
  if (config->size < 20 || config->magic != 0xcafebeef || config->version < 21400 || config->blocking != 0)
    return kInvalidArgument;
  const auto communicator = std::make_shared<Communicator>(id.internal, ranks, rank);
  {
    const std::lock_guard lock(handles_mutex);
    handles()[communicator.get()] = communicator;
  }
  *handle = communicator.get();
  communicator->join();
  return kInProgress;
}

int ncclCommFinalize(void* handle) {
  const std::shared_ptr<Communicator> communicator = of(handle);
  if (communicator == nullptr) return kInvalidArgument;
  communicator->finalize();
  return kInProgress;
}
int ncclCommDestroy(void* handle) {
  return given_back(handle, false);
}
int ncclCommAbort(void* handle) {
  return given_back(handle, true);
}

int ncclCommGetAsyncError(void* handle, int* state) {
  const std::shared_ptr<Communicator> communicator = of(handle);
  if (communicator == nullptr) return kInvalidArgument;
  *state = communicator->state();
  return kSuccess;
}

const char* ncclGetErrorString(int result) {
  switch (result) {
    case kSuccess: return "no error";
    case kCudaError: return "unhandled cuda error";
    case kSystemError: return "unhandled system error";
    case kInvalidArgument: return "invalid argument";
    case kInvalidUsage: return "invalid usage";
    case kRemoteError: return "remote process exited or there was a network error";
    case kInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}
const char* ncclGetLastError(void* handle) {
  static thread_local std::string text;
  const std::shared_ptr<Communicator> communicator = of(handle);
  text = communicator == nullptr ? "" : communicator->last_error();
  return text.c_str();
}

int ncclGroupStart() {
  ++depth;
  return kSuccess;
}
int ncclGroupEnd() {
  return --depth > 0 ? kSuccess : flushed();
}

int ncclSend(const void* from, std::size_t count, int type, int peer, void* communicator, void* stream) {
  if (type != 0) return kInvalidArgument;
  return take("ncclSend", communicator, stream, {Operation::Send, here(from), count, peer});
}
int ncclRecv(void* into, std::size_t count, int type, int peer, void* communicator, void* stream) {
  if (type != 0) return kInvalidArgument;
  return take("ncclRecv", communicator, stream, {Operation::Receive, here(into), count, peer});
}

int ncclAllGather(const void* from, void* into, std::size_t count, int type, void* communicator, void* stream) {
  const std::ptrdiff_t before = static_cast<const std::byte*>(from) - static_cast<std::byte*>(into);
  if (type != 0 || before < 0 || (count > 0 && before % static_cast<std::ptrdiff_t>(count) != 0))
    return kInvalidArgument;  // in place
  return take("ncclAllGather", communicator, stream, {Operation::Gather, here(into), count, 0});
}

#ifndef FAKE_NCCL_WITHOUT_ALL_REDUCE
int ncclAllReduce(const void* from, void* into, std::size_t count, int type, int operation, void* communicator,
                  void* stream) {
  if (type != 7 || operation != 0 || from != into) return kInvalidArgument;
  return take("ncclAllReduce", communicator, stream, {Operation::Sum, here(into), count * sizeof(float), 0});
}
#endif

// For tests: communicators that were made and not given back; that were aborted.
int fake_nccl_open() {
  return open_communicators;
}
int fake_nccl_ungrouped() {  // that were asked for outside a group, while the process had several communicators
  return ungrouped_operations;
}
int fake_nccl_aborted() {
  return aborted_communicators;
}

}  // extern "C"
