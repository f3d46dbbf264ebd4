// Pooling. Semantics of runtime/backends/cpu_kernels.hpp. Gradients are gathered: every input value adds up the windows
// that cover it, in the order of the windows, so that nothing is added at random.
#pragma once

#include "kernels/gpu_shapes.hpp"
#include "kernels/storage.hpp"

namespace pipewright::kernels::grid_kernels {

// The part of a window that lies inside its plane, or the outputs whose windows cover a value: [top, bottom) x [left,
// right).
struct Window {
  I top, bottom, left, right;
  template <class F>
  PIPEWRIGHT_BOTH F values() const {
    return static_cast<F>((bottom - top) * (right - left));
  }
  // The sum of f(place) over its places in a plane of that width, in their order.
  template <class F>
  PIPEWRIGHT_BOTH auto sum(I width, const F& f) const {
    decltype(f(I{0})) total = 0;
    for (I r = top; r < bottom; ++r)
      for (I c = left; c < right; ++c)
        total += f(r * width + c);
    return total;
  }
};

struct Pool : GpuPoolShape {
  PIPEWRIGHT_BOTH I plane_in() const { return height_in * width_in; }
  PIPEWRIGHT_BOTH I plane_out() const { return height_out * width_out; }
  // Of the i-th output value.
  PIPEWRIGHT_BOTH Window window(I i) const {
    const I at = i % plane_out();
    const I y = at / width_out * stride - padding, x = at % width_out * stride - padding;
    return {y < 0 ? 0 : y, least(y + kernel, height_in), x < 0 ? 0 : x, least(x + kernel, width_in)};
  }
  // Outputs o with o * stride - padding <= at < o * stride - padding + kernel, for the i-th input value.
  PIPEWRIGHT_BOTH Window covering(I i) const {
    const I at = i % plane_in(), y = at / width_in + padding, x = at % width_in + padding;
    return {first(y), least(y / stride + 1, height_out), first(x), least(x / stride + 1, width_out)};
  }
  PIPEWRIGHT_BOTH I first(I at) const { return at < kernel ? 0 : (at - kernel) / stride + 1; }
  PIPEWRIGHT_BOTH static I least(I a, I b) { return a < b ? a : b; }
};

template <class S>
struct MaxPoolValue {
  Pool pool;
  const S* x;
  S* y;
  std::int32_t* position;
  PIPEWRIGHT_BOTH void operator()(I i) const {
    const Window w = pool.window(i);
    const S* const plane = x + i / pool.plane_out() * pool.plane_in();
    I best = w.top * pool.width_in + w.left;
    for (I r = w.top; r < w.bottom; ++r)
      for (I c = w.left; c < w.right; ++c) {
        const Arithmetic<S> value = plane[r * pool.width_in + c];
        if (value > plane[best] || value != value) best = r * pool.width_in + c;  // a NaN wins
      }
    y[i] = plane[best];
    position[i] = static_cast<std::int32_t>(best);
  }
};
template <class S>
struct MaxPoolGradientValue {
  using F = Arithmetic<S>;
  Pool pool;
  const std::int32_t* position;
  const S* dy;
  S* dx;
  PIPEWRIGHT_BOTH void operator()(I i) const {
    const I outputs = i / pool.plane_in() * pool.plane_out(), own = i % pool.plane_in();
    dx[i] = S(pool.covering(i).sum(
        pool.width_out, [&](I out) { return position[outputs + out] == own ? F(dy[outputs + out]) : F(0); }));
  }
};
template <class S>
struct AveragePoolValue {
  using F = Arithmetic<S>;
  Pool pool;
  const S* x;
  S* y;
  PIPEWRIGHT_BOTH void operator()(I i) const {
    const Window w = pool.window(i);
    const S* const plane = x + i / pool.plane_out() * pool.plane_in();
    y[i] = S(w.sum(pool.width_in, [&](I in) { return F(plane[in]); }) / w.values<F>());
  }
};
template <class S>
struct AveragePoolGradientValue {
  using F = Arithmetic<S>;
  Pool pool;
  const S* dy;
  S* dx;
  PIPEWRIGHT_BOTH void operator()(I i) const {
    const I outputs = i / pool.plane_in() * pool.plane_out();
    dx[i] = S(pool.covering(i).sum(
        pool.width_out, [&](I out) { return dy[outputs + out] / pool.window(outputs + out).template values<F>(); }));
  }
};

template <class Grid, class S>
void max_pool(const Grid& grid, const GpuPoolShape& shape, I samples, const S* x, S* y, std::int32_t* position) {
  const Pool pool{shape};
  grid.values("max_pool", samples * shape.channels * pool.plane_out(), MaxPoolValue<S>{pool, x, y, position});
}
template <class Grid, class S>
void max_pool_input_gradient(const Grid& grid, const GpuPoolShape& shape, I samples, const std::int32_t* position,
                             const S* dy, S* dx) {
  const Pool pool{shape};
  grid.values("max_pool_input_gradient", samples * shape.channels * pool.plane_in(),
              MaxPoolGradientValue<S>{pool, position, dy, dx});
}
template <class Grid, class S>
void average_pool(const Grid& grid, const GpuPoolShape& shape, I samples, const S* x, S* y) {
  const Pool pool{shape};
  grid.values("average_pool", samples * shape.channels * pool.plane_out(), AveragePoolValue<S>{pool, x, y});
}
template <class Grid, class S>
void average_pool_input_gradient(const Grid& grid, const GpuPoolShape& shape, I samples, const S* dy, S* dx) {
  const Pool pool{shape};
  grid.values("average_pool_input_gradient", samples * shape.channels * pool.plane_in(),
              AveragePoolGradientValue<S>{pool, dy, dx});
}

template <class S>
struct PlaneShareValue {
  I plane;
  const S* dy;
  S* dx;
  PIPEWRIGHT_BOTH void operator()(I i) const { dx[i] = S(dy[i / plane] / static_cast<Arithmetic<S>>(plane)); }
};
template <class Grid, class S>
void global_average_pool_input_gradient(const Grid& grid, I planes, I plane, const S* dy, S* dx) {
  grid.values("global_average_pool_input_gradient", planes * plane, PlaneShareValue<S>{plane, dy, dx});
}

}  // namespace pipewright::kernels::grid_kernels
