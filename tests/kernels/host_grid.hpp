// A grid (kernels/grid.hpp) on the CPU, thread after thread.
#pragma once

#include <array>
#include <cstddef>

#include "kernels/grid.hpp"

namespace pipewright::kernels::grid_kernels {

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

}  // namespace pipewright::kernels::grid_kernels
