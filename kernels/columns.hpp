// Sums over the rows of a matrix, column by column, and sums of everything: in two steps, by chunks of fixed length.
#pragma once

#include "kernels/pieces.hpp"

namespace pipewright::grid_kernels {

constexpr std::int64_t kRowsPerChunk = 64;

inline std::int64_t chunks_of(std::int64_t rows) {
  return (rows + kRowsPerChunk - 1) / kRowsPerChunk;
}
inline std::int64_t columns_workspace(std::int64_t rows, std::int64_t features) {
  return chunks_of(rows) * features;
}

template <class F, class Term>
struct ChunkSum {
  std::int64_t rows, features;
  Term term;
  F* partial;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    const std::int64_t chunk = i / features, j = i - chunk * features;
    const std::int64_t first = chunk * kRowsPerChunk;
    const std::int64_t last = first + kRowsPerChunk < rows ? first + kRowsPerChunk : rows;
    Values<F, W> total = {};
    for (std::int64_t r = first; r < last; ++r)
      total = each<W>(Add{}, total, term.template at<W>(r, j));
    put<W>(partial, i, total);
  }
};
template <class F>
struct SumOfChunks {
  std::int64_t chunks, features;
  const F* partial;
  F* sums;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t j) const {
    Values<F, W> total = {};
    for (std::int64_t c = 0; c < chunks; ++c)
      total = each<W>(Add{}, total, take<W>(partial, c * features + j));
    put<W>(sums, j, each<W>(Add{}, take<W>(sums, j), total));
  }
};
// sums[j] += sum over r of term(r, j), which term.at<W>(r, j) reads from `arrays`, stored as S {rows, features}.
// workspace: columns_workspace values.
template <class S, class Grid, class F, class Term, class... Arrays>
void add_column_sums(const Grid& grid, const char* name, std::int64_t rows, std::int64_t features, const Term& term,
                     F* sums, F* workspace, const Arrays*... arrays) {
  by_pieces<kPerPiece<S>>(grid, name, columns_workspace(rows, features), features,
                          ChunkSum<F, Term>{rows, features, term, workspace}, workspace, arrays...);
  by_pieces<kPerPiece<F>>(grid, name, features, features, SumOfChunks<F>{chunks_of(rows), features, workspace, sums},
                          workspace, sums);
}

template <class S>
struct ValueAt {
  std::int64_t features;
  const S* x;
  template <int W>
  PIPEWRIGHT_BOTH Values<Arithmetic<S>, W> at(std::int64_t r, std::int64_t j) const {
    return take<W>(x, r * features + j);
  }
};
// db[j] += sum over r of dy[r][j].
template <class Grid, class S>
void bias_gradient(const Grid& grid, std::int64_t rows, std::int64_t features, const S* dy, Arithmetic<S>* db,
                   Arithmetic<S>* workspace) {
  add_column_sums<S>(grid, "bias_gradient", rows, features, ValueAt<S>{features, dy}, db, workspace, dy);
}

// The sum of all values, by a tree that n fixes: blocks sum chunks of 4096, then one block sums those.
constexpr std::int64_t kValuesPerChunk = 4096;
template <class S>
struct ChunkTotal {
  std::int64_t n, each;
  const S* x;
  Arithmetic<S>* totals;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, std::int64_t chunk) const {
    const std::int64_t first = chunk * each, last = first + each < n ? first + each : n;
    const Arithmetic<S> total = team.sum([&](int t) {
      Arithmetic<S> own = 0;
      for (std::int64_t i = first + t; i < last; i += T::size())
        own += x[i];
      return own;
    });
    team.each([&](int t) {
      if (t == 0) totals[chunk] = total;
    });
  }
};
// total: one value. workspace: ceil(n / 4096) values.
template <class Grid, class S>
void sum(const Grid& grid, std::int64_t n, const S* x, Arithmetic<S>* total, Arithmetic<S>* workspace) {
  const std::int64_t chunks = (n + kValuesPerChunk - 1) / kValuesPerChunk;
  grid.rows("sum", chunks, kValuesPerChunk, ChunkTotal<S>{n, kValuesPerChunk, x, workspace});
  grid.rows("sum (of chunks)", 1, kValuesPerChunk, ChunkTotal<Arithmetic<S>>{chunks, chunks, workspace, total});
}

}  // namespace pipewright::grid_kernels
