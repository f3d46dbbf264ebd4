// Inside kernels/ only: what is used of NCCL's interface, as nccl.h of 2.14 and later has it. Names are NCCL's.
#pragma once

#include <climits>
#include <cstddef>

namespace pipewright {

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

}  // namespace pipewright
