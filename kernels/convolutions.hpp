// Convolutions: products over values that are looked up where they lie. Semantics of runtime/backends/cpu_kernels.hpp.
//
// Batch: the group. Columns: all samples' places side by side.
#pragma once

#include "kernels/products.hpp"

namespace pipewright::kernels::grid_kernels {

struct Conv : GpuConvShape {
  PIPEWRIGHT_BOTH I in() const { return channels_in / groups; }
  PIPEWRIGHT_BOTH I out() const { return channels_out / groups; }
  PIPEWRIGHT_BOTH I window() const { return kernel_height * kernel_width; }
  PIPEWRIGHT_BOTH I taps() const { return in() * window(); }
  PIPEWRIGHT_BOTH I places() const { return height_out * width_out; }
  PIPEWRIGHT_BOTH I plane() const { return height_in * width_in; }
  BatchPlace weights() const { return {1, out() * taps()}; }  // of a group
};

// (tap, place): the input value that they meet; 0 in the padding.
template <class S>
struct ConvInput {
  Conv conv;
  const S* x;
  PIPEWRIGHT_BOTH Arithmetic<S> operator()(I group, I tap, I place) const {
    const I channel = tap / conv.window(), in_window = tap % conv.window();
    const I sample = place / conv.places(), at = place % conv.places();
    const I row = at / conv.width_out * conv.stride + in_window / conv.kernel_width - conv.padding_height;
    const I column = at % conv.width_out * conv.stride + in_window % conv.kernel_width - conv.padding_width;
    if (row < 0 || row >= conv.height_in || column < 0 || column >= conv.width_in) return 0;
    return x[((sample * conv.groups + group) * conv.in() + channel) * conv.plane() + row * conv.width_in + column];
  }
};
// k: output channel and tap; column: input place of all samples. The one output that meets the place by this tap.
template <class S>
struct ConvOutputByInput {
  Conv conv;
  const S* dy;
  PIPEWRIGHT_BOTH Arithmetic<S> operator()(I group, I k, I place) const {
    const I channel = k / conv.window(), in_window = k % conv.window();
    const I sample = place / conv.plane(), at = place % conv.plane();
    const I row = at / conv.width_in + conv.padding_height - in_window / conv.kernel_width;
    const I column = at % conv.width_in + conv.padding_width - in_window % conv.kernel_width;
    if (row < 0 || column < 0 || row % conv.stride != 0 || column % conv.stride != 0) return 0;
    const I y = row / conv.stride, x = column / conv.stride;
    if (y >= conv.height_out || x >= conv.width_out) return 0;
    return dy[((sample * conv.groups + group) * conv.out() + channel) * conv.places() + y * conv.width_out + x];
  }
};
// (channel of the group, place of all samples); planes of `plane` values.
template <class S>
struct ConvPlanes {
  I groups, channels, plane;
  S* data;
  const S* bias = nullptr;  // per channel
  PIPEWRIGHT_BOTH void operator()(I group, I channel, I place, Arithmetic<S> sum) const {
    const I of_groups = group * channels + channel;
    data[(place / plane * groups * channels + of_groups) * plane + place % plane] =
        S(bias == nullptr ? sum : sum + bias[of_groups]);
  }
};

template <class Grid, class S>
void conv2d(const Grid& grid, const GpuConvShape& shape, I samples, const S* x, const S* w, const S* bias, S* y) {
  const Conv c{shape};
  product<Arithmetic<S>>(grid, "conv2d", c.groups, c.out(), samples * c.places(), c.taps(),
                         Matrix<S>{w, c.taps(), 1, c.weights()}, ConvInput<S>{c, x},
                         ConvPlanes<S>{c.groups, c.out(), c.places(), y, bias});
}
template <class Grid, class S>
void conv2d_input_gradient(const Grid& grid, const GpuConvShape& shape, I samples, const S* dy, const S* w, S* dx) {
  const Conv c{shape};
  // Row: input channel; k: output channel and tap of its window.
  const Matrix<S> weights{w, 1, c.window(), c.weights(), c.window(), c.taps()};
  product<Arithmetic<S>>(grid, "conv2d_input_gradient", c.groups, c.in(), samples * c.plane(), c.out() * c.window(),
                         Transposed<Matrix<S>>{weights}, ConvOutputByInput<S>{c, dy},
                         ConvPlanes<S>{c.groups, c.in(), c.plane(), dx});
}

// db[channel] += the sum of its planes of all samples.
template <class S>
struct ChannelSumRow {
  I samples, channels, plane;
  const S* dy;
  Arithmetic<S>* db;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, I channel) const {
    const Arithmetic<S> total = row_sum(team, samples * plane, [&](I i) {
      return Arithmetic<S>(dy[(i / plane * channels + channel) * plane + i % plane]);
    });
    team.each([&](int t) {
      if (t == 0) db[channel] += total;
    });
  }
};
// Added to dw and db; db may be null.
template <class Grid, class S>
void conv2d_weight_gradient(const Grid& grid, const GpuConvShape& shape, I samples, const S* x, const S* dy,
                            Arithmetic<S>* dw, Arithmetic<S>* db) {
  const Conv c{shape};
  // Row: output channel; k: place of all samples.
  const Matrix<S> outputs{dy, 1, c.places(), {1, c.out() * c.places()}, c.places(), c.channels_out * c.places()};
  product<Arithmetic<S>>(grid, "conv2d_weight_gradient", c.groups, c.out(), c.taps(), samples * c.places(),
                         Transposed<Matrix<S>>{outputs}, Transposed<ConvInput<S>>{{c, x}},
                         OutMatrix<Arithmetic<S>>{dw, c.taps(), c.weights(), nullptr, true});
  if (db != nullptr)
    grid.rows("conv2d_weight_gradient (bias)", c.channels_out,
              ChannelSumRow<S>{samples, c.channels_out, c.places(), dy, db});
}

}  // namespace pipewright::kernels::grid_kernels
