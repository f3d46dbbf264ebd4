// Layers that multiply matrices, by Eigen on one thread.
//
// meson.build compiles these files with -DEigen=pipewright_cpu_eigen: what Eigen's headers define here has names of its
// own, so that the linker cannot mix it with Eigen compiled for another processor elsewhere in the program.
//
// EIGEN_GEMM_TO_COEFFBASED_THRESHOLD 1: small products, too, go the way of blocks that are copied before they are
// multiplied; Eigen's other way begins where an address is aligned, so that its sums would depend on addresses.
#define EIGEN_DONT_PARALLELIZE
#define EIGEN_GEMM_TO_COEFFBASED_THRESHOLD 1
#include <cstdint>
#include <limits>

#include <Eigen/Core>

#include "runtime/backends/cpu_kernels_lanes.hpp"

namespace pipewright::runtime::cpu_kernels {

namespace {

// A row-major matrix, `stride` values from one row to the next.
template <class S>
struct Rows {
  S* data;
  std::int64_t rows, columns, stride;
};

template <class S>
using Matrix = Eigen::Matrix<S, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class S>
auto mapped(const Rows<const S>& m) {
  return Eigen::Map<const Matrix<S>, Eigen::Unaligned, Eigen::OuterStride<>>(m.data, m.rows, m.columns,
                                                                             Eigen::OuterStride<>(m.stride));
}
template <class S>
auto mapped(const Rows<S>& m) {
  return Eigen::Map<Matrix<S>, Eigen::Unaligned, Eigen::OuterStride<>>(m.data, m.rows, m.columns,
                                                                       Eigen::OuterStride<>(m.stride));
}

// c = a b, c = a b^T, c = a^T b, and the same added to c.
template <class S>
void set_product(const Rows<S>& c, const Rows<const S>& a, const Rows<const S>& b) {
  mapped<S>(c).noalias() = mapped<S>(a) * mapped<S>(b);
}
template <class S>
void set_product_bt(const Rows<S>& c, const Rows<const S>& a, const Rows<const S>& b) {
  mapped<S>(c).noalias() = mapped<S>(a) * mapped<S>(b).transpose();
}
template <class S>
void set_product_at(const Rows<S>& c, const Rows<const S>& a, const Rows<const S>& b) {
  mapped<S>(c).noalias() = mapped<S>(a).transpose() * mapped<S>(b);
}
template <class S>
void add_product(const Rows<S>& c, const Rows<const S>& a, const Rows<const S>& b) {
  mapped<S>(c).noalias() += mapped<S>(a) * mapped<S>(b);
}
template <class S>
void add_product_bt(const Rows<S>& c, const Rows<const S>& a, const Rows<const S>& b) {
  mapped<S>(c).noalias() += mapped<S>(a) * mapped<S>(b).transpose();
}
template <class S>
void add_product_at(const Rows<S>& c, const Rows<const S>& a, const Rows<const S>& b) {
  mapped<S>(c).noalias() += mapped<S>(a).transpose() * mapped<S>(b);
}

template <class S>
void add_bias(std::int64_t rows, std::int64_t features, const S* bias, S* y) {
  for (std::int64_t r = 0; r < rows; ++r, y += features)
    PIPEWRIGHT_ELEMENTWISE
  for (std::int64_t j = 0; j < features; ++j)
    y[j] += bias[j];
}

template <class S>
void add_column_sums(std::int64_t rows, std::int64_t features, const S* dy, S* db) {
  for (std::int64_t r = 0; r < rows; ++r, dy += features)
    PIPEWRIGHT_ELEMENTWISE
  for (std::int64_t j = 0; j < features; ++j)
    db[j] += dy[j];
}

}  // namespace

// 32 KiB and 512 KiB are what x86-64-v3 servers have at least; of the L3 a core's share.
void prepare() {
  Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 4 << 20);
}

// ---- linear ---------------------------------------------------------------------------------------------------------

template <class S>
void linear(std::int64_t rows, std::int64_t in, std::int64_t out, const S* x, const S* w, const S* bias, S* y) {
  set_product_bt<S>({y, rows, out, out}, {x, rows, in, in}, {w, out, in, in});
  if (bias != nullptr) add_bias(rows, out, bias, y);
}

template <class S>
void linear_input_gradient(std::int64_t rows, std::int64_t in, std::int64_t out, const S* dy, const S* w, S* dx) {
  set_product<S>({dx, rows, in, in}, {dy, rows, out, out}, {w, out, in, in});
}

template <class S>
void linear_weight_gradient(std::int64_t rows, std::int64_t in, std::int64_t out, const S* x, const S* dy, S* dw,
                            S* db) {
  add_product_at<S>({dw, out, in, in}, {dy, rows, out, out}, {x, rows, in, in});
  if (db != nullptr) add_column_sums(rows, out, dy, db);
}

// ---- conv2d ---------------------------------------------------------------------------------------------------------

namespace {

// One group of one sample: sizes of its product w {out, taps} * unfolded {taps, places}.
struct Group {
  std::int64_t in, out, taps, places, plane_in;
  explicit Group(const ConvShape& c)
      : in(c.channels_in / c.groups),
        out(c.channels_out / c.groups),
        taps(in * c.kernel_height * c.kernel_width),
        places(c.height_out * c.width_out),
        plane_in(c.height_in * c.width_in) {}
};

bool is_unfolded(const ConvShape& c) {
  return c.kernel_height == 1 && c.kernel_width == 1 && c.stride == 1 && c.padding_height == 0 && c.padding_width == 0;
}

// Output columns [first, last) whose tap lies inside the input's row.
struct Inside {
  std::int64_t first, last;
};
Inside inside(std::int64_t tap, std::int64_t padding, std::int64_t stride, std::int64_t size, std::int64_t out) {
  const std::int64_t offset = tap - padding;  // input column = output column * stride + offset
  const std::int64_t first = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const std::int64_t last = size - offset <= 0 ? 0 : (size - offset + stride - 1) / stride;
  return {first < out ? first : out, last < first ? (first < out ? first : out) : last < out ? last : out};
}

// Calls visit(row of the unfolded matrix, output row, input plane row or nullptr, columns inside, first input column).
template <class Visit>
void for_taps(const ConvShape& c, const Visit& visit) {
  const Group g(c);
  std::int64_t row = 0;
  for (std::int64_t channel = 0; channel < g.in; ++channel)
    for (std::int64_t ky = 0; ky < c.kernel_height; ++ky)
      for (std::int64_t kx = 0; kx < c.kernel_width; ++kx, ++row) {
        const Inside columns = inside(kx, c.padding_width, c.stride, c.width_in, c.width_out);
        for (std::int64_t oy = 0; oy < c.height_out; ++oy) {
          const std::int64_t y = oy * c.stride + ky - c.padding_height;
          const bool there = y >= 0 && y < c.height_in;
          visit(row * g.places + oy * c.width_out, there ? channel * g.plane_in + y * c.width_in : -1, columns,
                kx - c.padding_width);
        }
      }
}

template <class S>
void unfold(const ConvShape& c, const S* x, S* unfolded) {
  for_taps(c, [&](std::int64_t to, std::int64_t from, Inside columns, std::int64_t offset) {
    S* const out = unfolded + to;
    if (from < 0) return set(c.width_out, S(0), out);
    const S* const in = x + from + offset;
    set(columns.first, S(0), out);
    if (c.stride == 1) PIPEWRIGHT_ELEMENTWISE
    for (std::int64_t j = columns.first; j < columns.last; ++j)
      out[j] = in[j];
    else PIPEWRIGHT_ELEMENTWISE for (std::int64_t j = columns.first; j < columns.last; ++j) out[j] = in[j * c.stride];
    set(c.width_out - columns.last, S(0), out + columns.last);
  });
}

template <class S>
void fold(const ConvShape& c, const S* unfolded, S* dx) {
  for_taps(c, [&](std::int64_t to, std::int64_t from, Inside columns, std::int64_t offset) {
    if (from < 0) return;
    const S* const in = unfolded + to;
    S* const out = dx + from + offset;
    PIPEWRIGHT_ELEMENTWISE
    for (std::int64_t j = columns.first; j < columns.last; ++j)
      out[j * c.stride] += in[j];
  });
}

}  // namespace

std::int64_t conv2d_unfolded(const ConvShape& c) {
  return is_unfolded(c) ? 0 : Group(c).taps * Group(c).places;
}

template <class S>
void conv2d(const ConvShape& c, std::int64_t samples, const S* x, const S* w, const S* bias, S* y, S* unfolded) {
  const Group g(c);
  for (std::int64_t i = 0; i < samples * c.groups; ++i) {
    const std::int64_t group = i % c.groups;
    const S* const in = x + i * g.in * g.plane_in;
    S* const out = y + i * g.out * g.places;
    if (!is_unfolded(c)) unfold(c, in, unfolded);
    set_product<S>({out, g.out, g.places, g.places}, {w + group * g.out * g.taps, g.out, g.taps, g.taps},
                   {is_unfolded(c) ? in : unfolded, g.taps, g.places, g.places});
    if (bias == nullptr) continue;
    for (std::int64_t channel = 0; channel < g.out; ++channel)
      PIPEWRIGHT_ELEMENTWISE
    for (std::int64_t j = 0; j < g.places; ++j)
      out[channel * g.places + j] += bias[group * g.out + channel];
  }
}

template <class S>
void conv2d_input_gradient(const ConvShape& c, std::int64_t samples, const S* dy, const S* w, S* dx, S* unfolded) {
  const Group g(c);
  for (std::int64_t i = 0; i < samples * c.groups; ++i) {
    S* const out = dx + i * g.in * g.plane_in;
    set_product_at<S>({is_unfolded(c) ? out : unfolded, g.taps, g.places, g.places},
                      {w + i % c.groups * g.out * g.taps, g.out, g.taps, g.taps},
                      {dy + i * g.out * g.places, g.out, g.places, g.places});
    if (is_unfolded(c)) continue;
    set(g.in * g.plane_in, S(0), out);
    fold(c, unfolded, out);
  }
}

template <class S>
void conv2d_weight_gradient(const ConvShape& c, std::int64_t samples, const S* x, const S* dy, S* dw, S* db,
                            S* unfolded) {
  const Group g(c);
  for (std::int64_t i = 0; i < samples * c.groups; ++i) {
    const std::int64_t group = i % c.groups;
    const S* const in = x + i * g.in * g.plane_in;
    const S* const out = dy + i * g.out * g.places;
    if (!is_unfolded(c)) unfold(c, in, unfolded);
    add_product_bt<S>({dw + group * g.out * g.taps, g.out, g.taps, g.taps}, {out, g.out, g.places, g.places},
                      {is_unfolded(c) ? in : unfolded, g.taps, g.places, g.places});
    if (db == nullptr) continue;
    for (std::int64_t channel = 0; channel < g.out; ++channel)
      db[group * g.out + channel] += sum(g.places, out + channel * g.places);
  }
}

// ---- attention ------------------------------------------------------------------------------------------------------

namespace {

// One head of one sample.
template <class S>
struct Head {
  Rows<const S> q, k, v;
  S scale;
};

template <class S>
Head<S> head_of(const AttentionShape& a, std::int64_t sample, std::int64_t head, const S* q, const S* k, const S* v) {
  const std::int64_t key_head = head * a.key_heads / a.heads;
  return {{q + sample * a.queries * a.query_stride + head * a.key_size, a.queries, a.key_size, a.query_stride},
          {k + sample * a.keys * a.key_stride + key_head * a.key_size, a.keys, a.key_size, a.key_stride},
          {v + sample * a.keys * a.value_stride + key_head * a.value_size, a.keys, a.value_size, a.value_stride},
          S(1) / std::sqrt(static_cast<S>(a.key_size))};
}

// Keys that query i sees.
std::int64_t seen(const AttentionShape& a, std::int64_t i) {
  return a.causal ? i + 1 + a.keys - a.queries : a.keys;
}

template <class S>
Rows<const S> read(const Rows<S>& m) {
  return {m.data, m.rows, m.columns, m.stride};
}
template <class M>
M part(const M& m, std::int64_t first, std::int64_t rows) {
  return {m.data + first * m.stride, rows, m.columns, m.stride};
}

// Where the gradients of a head go; key heads are shared by `heads / key_heads` heads.
template <class S>
struct HeadGradients {
  Rows<S> dq, dk, dv;
};
template <class S>
HeadGradients<S> gradients_of(const AttentionShape& a, std::int64_t sample, std::int64_t head, S* dq, S* dk, S* dv) {
  const std::int64_t key_head = head * a.key_heads / a.heads;
  const auto at = [](S* base, std::int64_t offset) { return base == nullptr ? nullptr : base + offset; };
  return {{at(dq, sample * a.queries * a.query_stride + head * a.key_size), a.queries, a.key_size, a.query_stride},
          {at(dk, sample * a.keys * a.key_stride + key_head * a.key_size), a.keys, a.key_size, a.key_stride},
          {at(dv, sample * a.keys * a.value_stride + key_head * a.value_size), a.keys, a.value_size, a.value_stride}};
}

template <class S>
void set_rows(const Rows<S>& m, S value) {
  if (m.data == nullptr) return;
  for (std::int64_t r = 0; r < m.rows; ++r)
    set(m.columns, value, m.data + r * m.stride);
}

}  // namespace

template <class S>
void attention(const AttentionShape& a, std::int64_t samples, const S* q, const S* k, const S* v, S* y, S* p) {
  const std::int64_t y_stride = a.heads * a.value_size;
  for (std::int64_t i = 0; i < samples * a.heads; ++i, p += a.queries * a.keys) {
    const std::int64_t sample = i / a.heads, head = i % a.heads;
    const Head<S> h = head_of(a, sample, head, q, k, v);
    const Rows<S> scores = {p, a.queries, a.keys, a.keys};
    set_product_bt<S>(scores, h.q, h.k);
    for (std::int64_t r = 0; r < a.queries; ++r) {
      softmax_in_place(seen(a, r), h.scale, p + r * a.keys);
      set(a.keys - seen(a, r), S(0), p + r * a.keys + seen(a, r));
    }
    set_product<S>({y + sample * a.queries * y_stride + head * a.value_size, a.queries, a.value_size, y_stride},
                   read(scores), h.v);
  }
}

// With P the scores after softmax: dV = P^T dY; dP = dY V^T; dS = P (dP - rowsum(P dP)) / sqrt(key size); dQ = dS K;
// dK = dS^T Q.
template <class S>
void attention_gradient(const AttentionShape& a, std::int64_t samples, const S* q, const S* k, const S* v, const S* p,
                        const S* dy, S* dq, S* dk, S* dv, S* d_scores) {
  const std::int64_t y_stride = a.heads * a.value_size;
  for (std::int64_t i = 0; i < samples * a.heads; ++i, p += a.queries * a.keys) {
    const std::int64_t sample = i / a.heads, head = i % a.heads;
    const Head<S> h = head_of(a, sample, head, q, k, v);
    const HeadGradients<S> g = gradients_of(a, sample, head, dq, dk, dv);
    const Rows<const S> out = {dy + sample * a.queries * y_stride + head * a.value_size, a.queries, a.value_size,
                               y_stride};
    const Rows<const S> scores = {p, a.queries, a.keys, a.keys};
    const Rows<S> ds = {d_scores, a.queries, a.keys, a.keys};
    if (head % (a.heads / a.key_heads) == 0) set_rows(g.dk, S(0)), set_rows(g.dv, S(0));
    set_product_bt<S>(ds, out, h.v);
    for (std::int64_t r = 0; r < a.queries; ++r) {
      S* const row = d_scores + r * a.keys;
      const S* const weights = p + r * a.keys;
      const S mean = dot(a.keys, weights, row);
      PIPEWRIGHT_ELEMENTWISE
      for (std::int64_t j = 0; j < a.keys; ++j)
        row[j] = weights[j] * (row[j] - mean) * h.scale;
    }
    if (g.dq.data != nullptr) set_product<S>(g.dq, read(ds), h.k);
    if (g.dk.data != nullptr) add_product_at<S>(g.dk, read(ds), h.q);
    if (g.dv.data != nullptr) add_product_at<S>(g.dv, scores, out);
  }
}

namespace {

// A block of queries and the keys that its last query sees.
struct Block {
  std::int64_t first, queries, keys;
};
Block block_from(const AttentionShape& a, std::int64_t first) {
  const std::int64_t queries = a.queries - first < kFlashQueries ? a.queries - first : kFlashQueries;
  return {first, queries, seen(a, first + queries - 1)};
}

}  // namespace

template <class S>
void flash_attention(const AttentionShape& a, std::int64_t samples, const S* q, const S* k, const S* v, S* y,
                     S* log_sum, S* block) {
  const std::int64_t y_stride = a.heads * a.value_size;
  for (std::int64_t i = 0; i < samples * a.heads; ++i, log_sum += a.queries) {
    const std::int64_t sample = i / a.heads, head = i % a.heads;
    const Head<S> h = head_of(a, sample, head, q, k, v);
    const Rows<S> out = {y + sample * a.queries * y_stride + head * a.value_size, a.queries, a.value_size, y_stride};
    for (std::int64_t first = 0; first < a.queries; first += kFlashQueries) {
      const Block b = block_from(a, first);
      const Rows<S> scores = {block, b.queries, b.keys, b.keys};
      set_product_bt<S>(scores, part(h.q, b.first, b.queries), part(h.k, 0, b.keys));
      for (std::int64_t r = 0; r < b.queries; ++r) {
        S* const row = block + r * b.keys;
        const std::int64_t keys = seen(a, b.first + r);
        log_sum[b.first + r] = softmax_in_place(keys, h.scale, row);
        set(b.keys - keys, S(0), row + keys);
      }
      set_product<S>(part(out, b.first, b.queries), read(scores), part(h.v, 0, b.keys));
    }
  }
}

namespace {

enum class Write { Set, Added };

// Gradients of one head, block of queries by block: of its queries as `queries` says, those of its keys and values are
// added to. y, dy: the head's values of the first row.
template <class S>
void add_head_gradient(const AttentionShape& a, const Head<S>& h, const HeadGradients<S>& g, const S* y,
                       const S* log_sum, const S* dy, Write queries, S* block) {
  const std::int64_t y_stride = a.heads * a.value_size;
  const Rows<const S> d_out = {dy, a.queries, a.value_size, y_stride};
  for (std::int64_t first = 0; first < a.queries; first += kFlashQueries) {
    const Block b = block_from(a, first);
    const Rows<S> scores = {block, b.queries, b.keys, b.keys};
    const Rows<S> ds = {block + kFlashQueries * a.keys, b.queries, b.keys, b.keys};
    const Rows<const S> block_q = part(h.q, b.first, b.queries), block_out = part(d_out, b.first, b.queries);
    set_product_bt<S>(scores, block_q, part(h.k, 0, b.keys));
    set_product_bt<S>(ds, block_out, part(h.v, 0, b.keys));
    for (std::int64_t r = 0; r < b.queries; ++r) {
      S* const weights = scores.data + r * b.keys;
      S* const row = ds.data + r * b.keys;
      const std::int64_t keys = seen(a, b.first + r);
      exponentials(keys, h.scale, log_sum[b.first + r], weights);
      set(b.keys - keys, S(0), weights + keys);
      const S mean = dot(a.value_size, block_out.data + r * y_stride, y + (b.first + r) * y_stride);
      PIPEWRIGHT_ELEMENTWISE
      for (std::int64_t j = 0; j < b.keys; ++j)
        row[j] = weights[j] * (row[j] - mean) * h.scale;
    }
    if (g.dq.data != nullptr) {
      const Rows<S> dq = part(g.dq, b.first, b.queries);
      queries == Write::Set ? set_product<S>(dq, read(ds), part(h.k, 0, b.keys))
                            : add_product<S>(dq, read(ds), part(h.k, 0, b.keys));
    }
    if (g.dk.data != nullptr) add_product_at<S>(part(g.dk, 0, b.keys), read(ds), block_q);
    if (g.dv.data != nullptr) add_product_at<S>(part(g.dv, 0, b.keys), read(scores), block_out);
  }
}

}  // namespace

// As `attention_gradient` with P = e^(S - log of the row's sum); rowsum(P dP) = dot(dy, y) of the row     [Dao22]
template <class S>
void flash_attention_gradient(const AttentionShape& a, std::int64_t samples, const S* q, const S* k, const S* v,
                              const S* y, const S* log_sum, const S* dy, S* dq, S* dk, S* dv, S* block) {
  const std::int64_t y_stride = a.heads * a.value_size;
  for (std::int64_t i = 0; i < samples * a.heads; ++i, log_sum += a.queries) {
    const std::int64_t sample = i / a.heads, head = i % a.heads;
    const HeadGradients<S> g = gradients_of(a, sample, head, dq, dk, dv);
    const std::int64_t at = sample * a.queries * y_stride + head * a.value_size;
    if (head % (a.heads / a.key_heads) == 0) set_rows(g.dk, S(0)), set_rows(g.dv, S(0));
    add_head_gradient(a, head_of(a, sample, head, q, k, v), g, y + at, log_sum, dy + at, Write::Set, block);
  }
}

namespace {

// row = (row e^log_row + more e^log_more) / (e^log_row + e^log_more); the log of that sum is returned.
template <class S>
S joined(std::int64_t n, S log_row, S* row, S log_more, const S* more) {
  if (log_row == -std::numeric_limits<S>::infinity()) {
    PIPEWRIGHT_ELEMENTWISE
    for (std::int64_t j = 0; j < n; ++j)
      row[j] = more[j];
    return log_more;
  }
  const S larger = log_row > log_more ? log_row : log_more;
  const S log_sum = larger + std::log(exponential(log_row - larger) + exponential(log_more - larger));
  const S kept = exponential(log_row - log_sum), added = exponential(log_more - log_sum);
  PIPEWRIGHT_ELEMENTWISE
  for (std::int64_t j = 0; j < n; ++j)
    row[j] = row[j] * kept + more[j] * added;
  return log_sum;
}

}  // namespace

template <class S>
void attend(const AttentionShape& a, const S* q, const S* k, const S* v, S* y, S* log_sum, std::int64_t log_stride,
            S* work) {
  const std::int64_t y_stride = a.heads * a.value_size;
  for (std::int64_t head = 0; head < a.heads; ++head, log_sum += log_stride) {
    const Head<S> h = head_of(a, 0, head, q, k, v);
    for (std::int64_t first = 0; first < a.queries; first += kFlashQueries) {
      const Block b = block_from(a, first);
      const Rows<S> scores = {work, b.queries, b.keys, b.keys};
      const Rows<S> more = {work + kFlashQueries * a.keys, b.queries, a.value_size, a.value_size};
      S logs[kFlashQueries];
      set_product_bt<S>(scores, part(h.q, b.first, b.queries), part(h.k, 0, b.keys));
      for (std::int64_t r = 0; r < b.queries; ++r) {
        S* const row = work + r * b.keys;
        const std::int64_t keys = seen(a, b.first + r);
        logs[r] = softmax_in_place(keys, h.scale, row);
        set(b.keys - keys, S(0), row + keys);
      }
      set_product<S>(more, read(scores), part(h.v, 0, b.keys));
      for (std::int64_t r = 0; r < b.queries; ++r) {
        S& log_row = log_sum[b.first + r];
        log_row = joined(a.value_size, log_row, y + (b.first + r) * y_stride + head * a.value_size, logs[r],
                         more.data + r * a.value_size);
      }
    }
  }
}

template <class S>
void attend_gradient(const AttentionShape& a, const S* q, const S* k, const S* v, const S* y, const S* log_sum,
                     std::int64_t log_stride, const S* dy, S* dq, S* dk, S* dv, S* work) {
  for (std::int64_t head = 0; head < a.heads; ++head, log_sum += log_stride) {
    const Head<S> h = head_of(a, 0, head, q, k, v);
    const HeadGradients<S> g = gradients_of(a, 0, head, dq, dk, dv);
    add_head_gradient(a, h, g, y + head * a.value_size, log_sum, dy + head * a.value_size, Write::Added, work);
  }
}

#define PIPEWRIGHT_INSTANTIATE(S)                                                                                      \
  template void linear(std::int64_t, std::int64_t, std::int64_t, const S*, const S*, const S*, S*);                    \
  template void linear_input_gradient(std::int64_t, std::int64_t, std::int64_t, const S*, const S*, S*);               \
  template void linear_weight_gradient(std::int64_t, std::int64_t, std::int64_t, const S*, const S*, S*, S*);          \
  template void conv2d(const ConvShape&, std::int64_t, const S*, const S*, const S*, S*, S*);                          \
  template void conv2d_input_gradient(const ConvShape&, std::int64_t, const S*, const S*, S*, S*);                     \
  template void conv2d_weight_gradient(const ConvShape&, std::int64_t, const S*, const S*, S*, S*, S*);                \
  template void attention(const AttentionShape&, std::int64_t, const S*, const S*, const S*, S*, S*);                  \
  template void attention_gradient(const AttentionShape&, std::int64_t, const S*, const S*, const S*, const S*,        \
                                   const S*, S*, S*, S*, S*);                                                          \
  template void flash_attention(const AttentionShape&, std::int64_t, const S*, const S*, const S*, S*, S*, S*);        \
  template void flash_attention_gradient(const AttentionShape&, std::int64_t, const S*, const S*, const S*, const S*,  \
                                         const S*, const S*, S*, S*, S*, S*);                                          \
  template void attend(const AttentionShape&, const S*, const S*, const S*, S*, S*, std::int64_t, S*);                 \
  template void attend_gradient(const AttentionShape&, const S*, const S*, const S*, const S*, const S*, std::int64_t, \
                                const S*, S*, S*, S*, S*);
PIPEWRIGHT_INSTANTIATE(float)
PIPEWRIGHT_INSTANTIATE(double)
#undef PIPEWRIGHT_INSTANTIATE

}  // namespace pipewright::runtime::cpu_kernels
