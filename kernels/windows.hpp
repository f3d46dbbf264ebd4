// Pooling. Semantics of runtime/backends/cpu_kernels.hpp. Gradients are gathered: every input value adds up the windows
// that cover it, in the order of the windows, so that nothing is added at random.
#pragma once

#include "kernels/gpu_shapes.hpp"
#include "kernels/rows.hpp"

namespace pipewright::grid_kernels {

// The part of a window that lies inside its plane, or the outputs whose windows cover a value: [top, bottom) x [left,
// right).
struct Window {
  std::int64_t top, bottom, left, right;
};

struct Pool : GpuPoolShape {
  PIPEWRIGHT_BOTH std::int64_t plane_in() const { return height_in * width_in; }
  PIPEWRIGHT_BOTH std::int64_t plane_out() const { return height_out * width_out; }
  // Of the i-th output value.
  PIPEWRIGHT_BOTH Window window(std::int64_t i) const {
    const std::int64_t at = i % plane_out();
    const std::int64_t y = at / width_out * stride - padding, x = at % width_out * stride - padding;
    return {y < 0 ? 0 : y, least(y + kernel, height_in), x < 0 ? 0 : x, least(x + kernel, width_in)};
  }
  // Outputs o with o * stride - padding <= at < o * stride - padding + kernel, for the i-th input value.
  PIPEWRIGHT_BOTH Window covering(std::int64_t i) const {
    const std::int64_t at = i % plane_in(), y = at / width_in + padding, x = at % width_in + padding;
    return {first(y), least(y / stride + 1, height_out), first(x), least(x / stride + 1, width_out)};
  }
  PIPEWRIGHT_BOTH std::int64_t first(std::int64_t at) const { return at < kernel ? 0 : (at - kernel) / stride + 1; }
  PIPEWRIGHT_BOTH static std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
};

template <class S>
struct MaxPoolValue {
  Pool pool;
  const S* x;
  S* y;
  std::int32_t* position;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const {
    const Window w = pool.window(i);
    const S* const plane = x + i / pool.plane_out() * pool.plane_in();
    std::int64_t best = w.top * pool.width_in + w.left;
    for (std::int64_t r = w.top; r < w.bottom; ++r)
      for (std::int64_t c = w.left; c < w.right; ++c) {
        const Arithmetic<S> value = plane[r * pool.width_in + c];
        if (value > plane[best] || value != value) best = r * pool.width_in + c;  // a NaN wins
      }
    y[i] = plane[best];
    position[i] = static_cast<std::int32_t>(best);
  }
};
template <class S>
struct MaxPoolGradientValue {
  Pool pool;
  const std::int32_t* position;
  const S* dy;
  S* dx;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const {
    const Window w = pool.covering(i);
    const std::int64_t outputs = i / pool.plane_in() * pool.plane_out(), own = i % pool.plane_in();
    Arithmetic<S> total = 0;
    for (std::int64_t r = w.top; r < w.bottom; ++r)
      for (std::int64_t c = w.left; c < w.right; ++c) {
        const std::int64_t out = outputs + r * pool.width_out + c;
        if (position[out] == own) total += dy[out];
      }
    dx[i] = S(total);
  }
};
template <class S>
struct AveragePoolValue {
  Pool pool;
  const S* x;
  S* y;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const {
    const Window w = pool.window(i);
    const S* const plane = x + i / pool.plane_out() * pool.plane_in();
    Arithmetic<S> total = 0;
    for (std::int64_t r = w.top; r < w.bottom; ++r)
      for (std::int64_t c = w.left; c < w.right; ++c)
        total += plane[r * pool.width_in + c];
    y[i] = S(total / static_cast<Arithmetic<S>>((w.bottom - w.top) * (w.right - w.left)));
  }
};
template <class S>
struct AveragePoolGradientValue {
  Pool pool;
  const S* dy;
  S* dx;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const {
    const Window w = pool.covering(i);
    const std::int64_t outputs = i / pool.plane_in() * pool.plane_out();
    Arithmetic<S> total = 0;
    for (std::int64_t r = w.top; r < w.bottom; ++r)
      for (std::int64_t c = w.left; c < w.right; ++c) {
        const std::int64_t out = outputs + r * pool.width_out + c;
        const Window covered = pool.window(out);
        total += dy[out] / static_cast<Arithmetic<S>>((covered.bottom - covered.top) * (covered.right - covered.left));
      }
    dx[i] = S(total);
  }
};

template <class Grid, class S>
void max_pool(const Grid& grid, const GpuPoolShape& shape, std::int64_t samples, const S* x, S* y,
              std::int32_t* position) {
  const Pool pool{shape};
  grid.values("max_pool", samples * shape.channels * pool.plane_out(), MaxPoolValue<S>{pool, x, y, position});
}
template <class Grid, class S>
void max_pool_input_gradient(const Grid& grid, const GpuPoolShape& shape, std::int64_t samples,
                             const std::int32_t* position, const S* dy, S* dx) {
  const Pool pool{shape};
  grid.values("max_pool_input_gradient", samples * shape.channels * pool.plane_in(),
              MaxPoolGradientValue<S>{pool, position, dy, dx});
}
template <class Grid, class S>
void average_pool(const Grid& grid, const GpuPoolShape& shape, std::int64_t samples, const S* x, S* y) {
  const Pool pool{shape};
  grid.values("average_pool", samples * shape.channels * pool.plane_out(), AveragePoolValue<S>{pool, x, y});
}
template <class Grid, class S>
void average_pool_input_gradient(const Grid& grid, const GpuPoolShape& shape, std::int64_t samples, const S* dy,
                                 S* dx) {
  const Pool pool{shape};
  grid.values("average_pool_input_gradient", samples * shape.channels * pool.plane_in(),
              AveragePoolGradientValue<S>{pool, dy, dx});
}

template <class S>
struct PlaneShareValue {
  std::int64_t plane;
  const S* dy;
  S* dx;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const {
    dx[i] = S(dy[i / plane] / static_cast<Arithmetic<S>>(plane));
  }
};
template <class Grid, class S>
void global_average_pool_input_gradient(const Grid& grid, std::int64_t planes, std::int64_t plane, const S* dy, S* dx) {
  grid.values("global_average_pool_input_gradient", planes * plane, PlaneShareValue<S>{plane, dy, dx});
}

}  // namespace pipewright::grid_kernels
