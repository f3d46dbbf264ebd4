// How kernels are written here: as functions of a value's number, or of a row's number and a *team* of threads. They
// run on a GPU and, thread after thread, on the CPU, so that every kernel is tested on machines without a GPU.
//
//     team.each(f)    f(t) by every thread t; all are done before it returns
//     team.sum(f)     the sum of f(t) over the threads, known to all of them; max alike
//
// A team is a warp. Its sums fold the threads by halves (16, 8, 4, 2, 1). Which team works on which row depends on the
// number of blocks; what it computes does not. So results have the same bits for every number of blocks and SMs.
//
// A grid hands out the work: HostGrid here, a GPU's Queue in gpu_queue.hpp.
//
// Tests: tests/kernels/emulated_test.cpp (this machine's CPU), tests/kernels/gpu_test.cpp (a GPU)
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define PIPEWRIGHT_BOTH __host__ __device__
#define PIPEWRIGHT_TEAM __device__  // what takes a team: nvcc compiles it for the GPU alone
#else
#define PIPEWRIGHT_BOTH
#define PIPEWRIGHT_TEAM
#endif

namespace pipewright::grid_kernels {

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

// The threads of a warp, one after another.
struct HostTeam {
  template <class F>
  void each(const F& f) const {
    for (int t = 0; t < kWarp; ++t)
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
    std::array<decltype(f(0)), kWarp> values;
    for (std::size_t t = 0; t < kWarp; ++t)
      values[t] = f(static_cast<int>(t));
    for (std::size_t half = kWarp / 2; half > 0; half /= 2)
      for (std::size_t t = 0; t < half; ++t)
        values[t] = join(values[t], values[t + half]);
    return values[0];
  }
};

// `blocks` blocks, one after another.
struct HostGrid {
  I blocks = 1;
  bool tf32 = false;  // products round their factors (storage.hpp)

  // body(i) for every value.
  template <class Body>
  void values(const char*, I n, const Body& body) const {
    for (I block = 0; block < blocks; ++block)
      for (I begin = block * kBlock; begin < n; begin += blocks * kBlock)
        for (I i = begin; i < n && i < begin + kBlock; ++i)
          body(i);
  }
  // body(team, r) for every row.
  template <class Body>
  void rows(const char*, I rows, const Body& body) const {
    const I teams = blocks * (kBlock / kWarp);
    for (I team = 0; team < teams; ++team)
      for (I r = team; r < rows; r += teams)
        body(HostTeam{}, r);
  }
};

}  // namespace pipewright::grid_kernels
