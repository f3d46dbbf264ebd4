#include "kernels/nccl.hpp"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/open_library.hpp"

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#endif

namespace pipewright::kernels {

// What is used of NCCL's interface, as nccl.h of 2.14 and later has it. Names are NCCL's.

struct NcclUniqueId {
  char internal[128];
};
// The first fields of ncclConfig_t; NCCL takes those that `size` covers, and defaults for what came after `version`.
struct NcclConfig {
  std::size_t size;
  unsigned int magic, version;
  int blocking;
};
constexpr unsigned int kNcclMagic = 0xcafebeef;
constexpr int kNcclLeastVersion = 21400;  // 2.14.0

constexpr int kNcclSuccess = 0, kNcclInProgress = 7;  // of ncclResult_t
constexpr int kNcclInt8 = 0, kNcclFloat32 = 7;        // of ncclDataType_t
constexpr int kNcclSum = 0;                           // of ncclRedOp_t

#ifdef NCCL_VERSION
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version) &&
              offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(kNcclLeastVersion == NCCL_VERSION(2, 14, 0));
static_assert(kNcclSuccess == ncclSuccess && kNcclInProgress == ncclInProgress);
static_assert(kNcclInt8 == ncclInt8 && kNcclFloat32 == ncclFloat32 && kNcclSum == ncclSum);
#endif

struct NcclCalls {
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(NcclUniqueId*) = nullptr;
  int (*comm_init_rank_config)(void** comm, int ranks, NcclUniqueId id, int rank, NcclConfig* config) = nullptr;
  int (*comm_finalize)(void*) = nullptr;
  int (*comm_destroy)(void*) = nullptr;
  int (*comm_abort)(void*) = nullptr;
  int (*comm_get_async_error)(void*, int*) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
  const char* (*get_last_error)(void*) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, std::size_t, int type, int peer, void* comm, void* stream) = nullptr;
  int (*recv)(void*, std::size_t, int type, int peer, void* comm, void* stream) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int type, void* comm, void* stream) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int type, int op, void* comm, void* stream) = nullptr;
};

namespace {

constexpr const char* kWayOut =
    "; install NCCL 2.14 or later (libnccl2; in Python's packages: nvidia-nccl), name its file in PIPEWRIGHT_NCCL, or "
    "use run.transport local, staged, tcp or mpi";

OpenLibrary found(const std::string& path) {
  return opened("NCCL", "messages and sums between GPUs of several processes (run.transport: nccl)", "libnccl.so.2",
                path);
}

std::string named() {
  const char* const path = std::getenv("PIPEWRIGHT_NCCL");
  return path == nullptr ? "" : path;
}

std::string looked(const OpenLibrary& library) {
  std::string text;
  for (const std::string& place : library.told.looked)
    text += (text.empty() ? "" : ", ") + place;
  return text;
}

// 22809 -> "2.28.9"; before 2.9, 2804 -> "2.8.4"
std::string dotted_version(int version) {
  const auto number = static_cast<std::size_t>(version);
  return number < 10000 ? dotted(number / 1000, number / 100 % 10, number % 100)
                        : dotted(number / 10000, number / 100 % 100, number % 100);
}

int version_of(const OpenLibrary& library) {
  int version = 0;
  if (symbol_of<int (*)(int*)>(library, "ncclGetVersion")(&version) != kNcclSuccess)
    throw GpuError("ncclGetVersion of " + library.told.path + " failed");
  return version;
}

void check_call(const NcclCalls& calls, int result, void* comm, const std::string& asked) {
  if (result == kNcclSuccess || result == kNcclInProgress) return;
  const char* const last = calls.get_last_error(comm);
  throw NcclError(asked + ": " + calls.get_error_string(result) +
                  (last != nullptr && *last != '\0' ? std::string(" (") + last + ")" : ""));
}

}  // namespace

std::shared_ptr<const NcclLibrary> NcclLibrary::open() {
  return open(named());
}

std::shared_ptr<const NcclLibrary> NcclLibrary::open(const std::string& path) {
  const OpenLibrary library = found(path);
  if (library.handle == nullptr)
    throw NcclError("NCCL was not found; looked for " + looked(library) +
                    (path.empty() || library.why.empty() ? "" : " (" + library.why + ")") + kWayOut);
  try {
    const auto calls = std::make_shared<NcclCalls>();
    std::shared_ptr<NcclLibrary> nccl(new NcclLibrary);
    nccl->version_ = version_of(library), nccl->dotted_ = dotted_version(nccl->version_);
    nccl->path_ = library.told.path;
    if (nccl->version_ < kNcclLeastVersion)
      throw NcclError("NCCL " + nccl->dotted_ + " at " + nccl->path_ +
                      " is too old: its communicators block, so a silent peer could not be told" + kWayOut);
    const auto take = [&](auto& call, const char* name) {
      call = symbol_of<std::remove_reference_t<decltype(call)>>(library, name);
    };
    take(calls->get_version, "ncclGetVersion");
    take(calls->get_unique_id, "ncclGetUniqueId");
    take(calls->comm_init_rank_config, "ncclCommInitRankConfig");
    take(calls->comm_finalize, "ncclCommFinalize");
    take(calls->comm_destroy, "ncclCommDestroy");
    take(calls->comm_abort, "ncclCommAbort");
    take(calls->comm_get_async_error, "ncclCommGetAsyncError");
    take(calls->get_error_string, "ncclGetErrorString");
    take(calls->get_last_error, "ncclGetLastError");
    take(calls->group_start, "ncclGroupStart");
    take(calls->group_end, "ncclGroupEnd");
    take(calls->send, "ncclSend");
    take(calls->recv, "ncclRecv");
    take(calls->all_gather, "ncclAllGather");
    take(calls->all_reduce, "ncclAllReduce");
    nccl->calls_ = calls;
    return nccl;
  } catch (const GpuError& error) {
    throw NcclError(std::string(error.what()) + " (" + library.told.path + ")" + kWayOut);
  }
}

NcclId NcclLibrary::id() const {
  NcclUniqueId id{};
  check_call(*calls_, calls_->get_unique_id(&id), nullptr, "ncclGetUniqueId");
  NcclId out;
  std::memcpy(out.bytes.data(), id.internal, out.bytes.size());
  return out;
}

GpuLibrary nccl_told() {
  OpenLibrary library = found(named());
  if (library.handle == nullptr) return library.told;
  try {
    const int version = version_of(library);
    library.told.version = dotted_version(version);
    if (version < kNcclLeastVersion)
      library.told.use = "nothing: too old, 2.14 or later is needed for run.transport: nccl";
  } catch (const GpuError& error) {
    library.told.version = "unknown version", library.told.use = std::string("nothing: ") + error.what();
  }
  return library.told;
}

void prepare_for_nccl() {
  // Others' settings do not stay: a kernel that is loaded late, or that shares a hardware queue with a receive that
  // waits, waits for it, and what it waits for waits for this kernel. Launch scripts of frameworks set both.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  setenv("NCCL_RUNTIME_CONNECT", "0", 1);
}

NcclTogether::NcclTogether(std::shared_ptr<const NcclLibrary> library) : library_(std::move(library)) {
  check_call(library_->calls(), library_->calls().group_start(), nullptr, "ncclGroupStart");
  open_ = true;
}
NcclTogether::~NcclTogether() {
  if (open_) static_cast<void>(library_->calls().group_end());
}
void NcclTogether::end() {
  open_ = false;
  check_call(library_->calls(), library_->calls().group_end(), nullptr, "ncclGroupEnd");
}

NcclComm::NcclComm(std::shared_ptr<const NcclLibrary> library, const NcclId& id, int ranks, int rank)
    : library_(std::move(library)),
      rank_(rank),
      asked_("ncclCommInitRankConfig as rank " + std::to_string(rank) + " of " + std::to_string(ranks)) {
  NcclConfig config{sizeof(NcclConfig), kNcclMagic, kNcclLeastVersion, 0};
  NcclUniqueId unique{};
  std::memcpy(unique.internal, id.bytes.data(), id.bytes.size());
  check(library_->calls().comm_init_rank_config(&comm_, ranks, unique, rank, &config));
}

NcclComm::~NcclComm() {
  close();
}

void NcclComm::check(int result) {
  check_call(library_->calls(), result, comm_, asked_);
}

bool NcclComm::settled() {
  int state = kNcclSuccess;
  check(library_->calls().comm_get_async_error(comm_, &state));
  check(state);
  settled_ = state == kNcclSuccess;
  return settled_;
}

void NcclComm::grouped(std::span<const NcclPart> parts, int peer, void* stream, bool sends) {
  std::int64_t bytes = 0;
  for (const NcclPart& part : parts)
    bytes += part.bytes;
  asked_ = std::string(sends ? "ncclSend" : "ncclRecv") + " of " + std::to_string(bytes) + " bytes " +
           (sends ? "to" : "from") + " rank " + std::to_string(peer);
  settled_ = false;
  const NcclCalls& calls = library_->calls();
  int failed = calls.group_start();
  check(failed);
  for (const NcclPart& part : parts) {
    const auto size = static_cast<std::size_t>(part.bytes);
    const int result = sends ? calls.send(part.at, size, kNcclInt8, peer, comm_, stream)
                             : calls.recv(part.at, size, kNcclInt8, peer, comm_, stream);
    if (result != kNcclSuccess && result != kNcclInProgress && failed == kNcclSuccess) failed = result;
  }
  const int result = calls.group_end();  // also where one of them failed: the group is the thread's
  check(failed);
  check(result);
}

void NcclComm::send(std::span<const NcclPart> parts, int to, void* stream) {
  grouped(parts, to, stream, true);
}
void NcclComm::receive(std::span<const NcclPart> parts, int from, void* stream) {
  grouped(parts, from, stream, false);
}

void NcclComm::all_gather(std::byte* data, std::int64_t bytes_each, void* stream) {
  asked_ = "ncclAllGather of " + std::to_string(bytes_each) + " bytes of each";
  settled_ = false;
  check(library_->calls().all_gather(data + rank_ * bytes_each, data, static_cast<std::size_t>(bytes_each), kNcclInt8,
                                     comm_, stream));
}

void NcclComm::all_reduce(float* data, std::int64_t elements, void* stream) {
  asked_ = "ncclAllReduce of " + std::to_string(elements) + " values";
  settled_ = false;
  check(library_->calls().all_reduce(data, data, static_cast<std::size_t>(elements), kNcclFloat32, kNcclSum, comm_,
                                     stream));
}

void NcclComm::finish() {
  asked_ = "ncclCommFinalize";
  settled_ = false;
  check(library_->calls().comm_finalize(comm_));
  finished_ = true;
}

void NcclComm::close() noexcept {
  if (comm_ == nullptr) return;
  void* const comm = std::exchange(comm_, nullptr);
  const NcclCalls& calls = library_->calls();
  static_cast<void>(finished_ && settled_ ? calls.comm_destroy(comm) : calls.comm_abort(comm));
}

}  // namespace pipewright::kernels
