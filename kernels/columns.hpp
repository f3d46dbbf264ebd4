// Sums over the rows of a matrix, column by column: in two steps, by chunks of fixed length. And over one row.
#pragma once

#include "kernels/storage.hpp"

namespace pipewright::kernels::grid_kernels {

constexpr I kRowsPerChunk = 64;

inline I chunks_of(I rows) {
  return (rows + kRowsPerChunk - 1) / kRowsPerChunk;
}
inline I columns_workspace(I rows, I features) {
  return chunks_of(rows) * features;
}

template <class F, class Term>
struct ChunkSum {
  I rows, features;
  Term term;
  F* partial;
  PIPEWRIGHT_BOTH void operator()(I i) const {
    const I chunk = i / features, first = chunk * kRowsPerChunk;
    const I last = first + kRowsPerChunk < rows ? first + kRowsPerChunk : rows;
    F total = 0;
    for (I r = first; r < last; ++r)
      total += term(r, i - chunk * features);
    partial[i] = total;
  }
};
template <class F>
struct SumOfChunks {
  I chunks, features;
  const F* partial;
  F* sums;
  PIPEWRIGHT_BOTH void operator()(I j) const {
    F total = 0;
    for (I c = 0; c < chunks; ++c)
      total += partial[c * features + j];
    sums[j] += total;
  }
};
// sums[j] += sum over r of term(r, j). workspace: columns_workspace values.
template <class Grid, class F, class Term>
void add_column_sums(const Grid& grid, const char* name, I rows, I features, const Term& term, F* sums, F* workspace) {
  grid.values(name, columns_workspace(rows, features), ChunkSum<F, Term>{rows, features, term, workspace});
  grid.values(name, features, SumOfChunks<F>{chunks_of(rows), features, workspace, sums});
}

template <class S>
struct ValueAt {
  I features;
  const S* x;
  PIPEWRIGHT_BOTH Arithmetic<S> operator()(I r, I j) const { return x[r * features + j]; }
};
// db[j] += sum over r of dy[r][j]. workspace: columns_workspace values.
template <class Grid, class S>
void bias_gradient(const Grid& grid, I rows, I features, const S* dy, Arithmetic<S>* db, Arithmetic<S>* workspace) {
  add_column_sums(grid, "bias_gradient", rows, features, ValueAt<S>{features, dy}, db, workspace);
}

// f(j) summed over j in [0, n) by all threads of a team: thread t takes t, t + 32, ...
template <class T, class F>
PIPEWRIGHT_TEAM auto row_sum(const T& team, I n, const F& f) {
  return team.sum([&](int t) {
    decltype(f(I{0})) total{};
    for (I j = t; j < n; j += kWarp)
      total = total + f(j);
    return total;
  });
}

}  // namespace pipewright::kernels::grid_kernels
