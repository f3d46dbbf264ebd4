// How kernels are written here: as functions over a *team* of threads, which run on a GPU and, thread after thread, on
// the CPU. So every kernel but those that need tensor cores is tested on machines without a GPU.
//
//     team.each(f)    f(t) by every thread t; all are done before it returns
//     team.sum(f)     the sum of f(t) over the threads, known to all of them; max alike
//
// A sum runs over a tree that the team's size fixes: the 32 lanes of a warp are folded by halves (16, 8, 4, 2, 1), then
// the warps are. Which team works on which row depends on the number of blocks; what it computes does not. So results
// have the same bits for every number of blocks and SMs. Nothing here adds into shared memory out of order.
//
// A grid hands out the work: HostGrid here, DeviceGrid in device_grid.cuh.
//
// Tests: tests/kernels/emulated_test.cpp (this machine's CPU), tests/kernels/gpu_test.cpp (a GPU)
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#ifdef __CUDACC__
#define PIPEWRIGHT_BOTH __host__ __device__
#define PIPEWRIGHT_TEAM __device__  // what takes a team: nvcc compiles it for the GPU alone
#else
#define PIPEWRIGHT_BOTH
#define PIPEWRIGHT_TEAM
#endif
#ifdef __CUDA_ARCH__
#define PIPEWRIGHT_UNROLL _Pragma("unroll")  // loops whose indices choose registers
#else
#define PIPEWRIGHT_UNROLL
#endif

namespace pipewright::grid_kernels {

constexpr int kWarp = 32;
constexpr int kBlock = 256;  // threads of a block
// Rows up to this long belong to one warp, longer ones to a block. A property of the shape alone.
constexpr std::int64_t kWarpRow = 2048;

// Two sums taken at once.
template <class S>
struct Two {
  S a, b;
  PIPEWRIGHT_BOTH friend Two operator+(Two x, Two y) { return {x.a + y.a, x.b + y.b}; }
};

template <class S>
PIPEWRIGHT_BOTH S larger(S a, S b) {  // a NaN wins
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(S) == sizeof(float)) {
    S most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
    return most;
  }
#endif
  return b > a || b != b ? b : a;
}

struct Add {
  template <class V>
  PIPEWRIGHT_BOTH V operator()(V a, V b) const {
    return a + b;
  }
};
struct Larger {
  template <class V>
  PIPEWRIGHT_BOTH V operator()(V a, V b) const {
    return larger(a, b);
  }
};

// All threads of a team, one after another.
template <int kThreads>
struct HostTeam {
  static constexpr int size() { return kThreads; }
  template <class F>
  void each(const F& f) const {
    for (int t = 0; t < kThreads; ++t)
      f(t);
  }
  template <class F>
  auto sum(const F& f) const {
    return folded(f, Add{});
  }
  template <class F>
  auto max(const F& f) const {
    return folded(f, Larger{});
  }

 private:
  template <class F, class Join>
  static auto folded(const F& f, const Join& join) {
    using V = decltype(f(0));
    std::array<V, kThreads> values;
    for (int t = 0; t < kThreads; ++t)
      values[static_cast<std::size_t>(t)] = f(t);
    std::array<V, kThreads / kWarp> warps;
    for (std::size_t w = 0; w < warps.size(); ++w)
      warps[w] = by_halves(values.data() + w * kWarp, kWarp, join);
    return by_halves(warps.data(), warps.size(), join);
  }
  template <class V, class Join>
  static V by_halves(V* values, std::size_t n, const Join& join) {
    for (std::size_t half = n / 2; half > 0; half /= 2)
      for (std::size_t i = 0; i < half; ++i)
        values[i] = join(values[i], values[i + half]);
    return values[0];
  }
};

// What a thread keeps from one `each` to the next, and what a block shares: of a team on the host, one per thread.
template <class T>
struct HostRegisters {
  std::vector<T> values = std::vector<T>(kBlock);
  T& of(int thread) { return values[static_cast<std::size_t>(thread)]; }
};

// `blocks` blocks, one after another.
struct HostGrid {
  std::int64_t blocks = 1;
  bool tf32 = false;  // products round their factors (storage.hpp)
  bool factors_in_tf32() const { return tf32; }
  template <class T>
  using Registers = HostRegisters<T>;

  // body(i) for every value.
  template <class Body>
  void values(const char*, std::int64_t n, const Body& body) const {
    for (std::int64_t block = 0; block < blocks; ++block)
      for (std::int64_t begin = block * kBlock; begin < n; begin += blocks * kBlock)
        for (std::int64_t i = begin; i < n && i < begin + kBlock; ++i)
          body(i);
  }
  // body(team, r) for every row; rows of `length` values.
  template <class Body>
  void rows(const char*, std::int64_t rows, std::int64_t length, const Body& body) const {
    const std::int64_t teams = length <= kWarpRow ? blocks * (kBlock / kWarp) : blocks;
    for (std::int64_t team = 0; team < teams; ++team)
      for (std::int64_t r = team; r < rows; r += teams)
        if (length <= kWarpRow)
          body(HostTeam<kWarp>{}, r);
        else
          body(HostTeam<kBlock>{}, r);
  }
  // body(team, shared, registers, tile) for every tile, by whole blocks.
  template <class Shared, class Thread, class Body>
  void tiles(const char*, std::int64_t tiles, const Body& body) const {
    std::vector<Shared> shared(1);
    HostRegisters<Thread> registers;
    for (std::int64_t block = 0; block < blocks; ++block)
      for (std::int64_t tile = block; tile < tiles; tile += blocks)
        body(HostTeam<kBlock>{}, shared.front(), registers, tile);
  }
};

}  // namespace pipewright::grid_kernels
