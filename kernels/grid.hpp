// How kernels are written here: as functions of a value's number, or of a row's number and a *team* of threads. They
// run on a GPU and, thread after thread, on the CPU, so that every kernel is tested on machines without a GPU.
//
//     team.each(f)    f(t) by every thread t; all are done before it returns
//     team.sum(f)     the sum of f(t) over the threads, known to all of them; max alike
//
// A team is a warp. Its sums fold the threads by halves (16, 8, 4, 2, 1). Which team works on which row depends on the
// number of blocks; what it computes does not. So results have the same bits for every number of blocks and SMs.
//
// A grid hands out the work: a GPU's Queue in gpu_queue.hpp, a CPU's HostGrid in tests/kernels/host_grid.hpp.
//
// Tests: tests/kernels/emulated_test.cpp (this machine's CPU), tests/kernels/gpu_test.cpp (a GPU)
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "core/rooms.hpp"

#ifdef __CUDACC__
#define PIPEWRIGHT_BOTH __host__ __device__
#define PIPEWRIGHT_TEAM __device__  // what takes a team: nvcc compiles it for the GPU alone
#else
#define PIPEWRIGHT_BOTH
#define PIPEWRIGHT_TEAM
#endif

namespace pipewright::kernels::grid_kernels {

using I = std::int64_t;

constexpr int kWarp = 32;
constexpr int kBlock = 256;  // threads of a block

struct Add {
  template <class V>
  PIPEWRIGHT_BOTH V operator()(V a, V b) const {
    return a + b;
  }
};
struct Larger {  // a NaN wins
  template <class V>
  PIPEWRIGHT_BOTH V operator()(V a, V b) const {
    return b > a || b != b ? b : a;
  }
};

// What every thread of a team keeps from one `each` to the next: on a GPU in registers.
template <class V>
struct PerThread {
#ifdef __CUDACC__
  V value{};
  PIPEWRIGHT_TEAM V& of(int) {
    return value;
  }
#else
  std::array<V, kWarp> values{};
  V& of(int t) {
    return values[static_cast<std::size_t>(t)];
  }
#endif
};

}  // namespace pipewright::kernels::grid_kernels
