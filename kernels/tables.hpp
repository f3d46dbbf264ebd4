// Kernels of embeddings and learned tables. Semantics of runtime/backends/cpu_kernels.hpp.
#pragma once

#include "kernels/columns.hpp"

namespace pipewright::grid_kernels {

// y[r] = table[index[r]]; every index lies within the table.
template <class S>
struct GatheredValue {
  std::int64_t features;
  const std::int64_t* index;
  const S* table;
  S* y;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    const std::int64_t r = i / features;
    move<W>(y, i, table, index[r] * features + (i - r * features));
  }
};
template <class Grid, class S>
void embedding(const Grid& grid, std::int64_t rows, std::int64_t features, const std::int64_t* index, const S* table,
               S* y) {
  by_pieces<kPerPiece<S>>(grid, "embedding", rows * features, features, GatheredValue<S>{features, index, table, y},
                          table, y);
}

// order[p]: the row at place p once the rows are sorted by index, equal ones in their order: its place is the number of
// rows that come before it. rows^2 comparisons, no atomics; 16384 rows are 2.7e8.
struct PlaceOfRow {
  std::int64_t rows;
  const std::int64_t* index;
  std::int64_t* order;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, std::int64_t r) const {
    const std::int64_t own = index[r];
    const std::int64_t place = team.sum([&](int t) {
      std::int64_t before = 0;
      for (std::int64_t other = t; other < rows; other += T::size())
        before += index[other] < own || (index[other] == own && other < r) ? 1 : 0;
      return before;
    });
    team.each([&](int t) {
      if (t == 0) order[place] = r;
    });
  }
};
// The team of the first row of a segment of equal indices adds the segment, row after row: the CPU's order.
template <class S>
struct SegmentSum {
  std::int64_t rows, features;
  const std::int64_t *index, *order;
  const S* dy;
  Arithmetic<S>* d_table;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, std::int64_t place) const {
    const std::int64_t own = index[order[place]];
    if (place > 0 && index[order[place - 1]] == own) return;
    std::int64_t end = place + 1;
    while (end < rows && index[order[end]] == own)
      ++end;
    Arithmetic<S>* const sums = d_table + own * features;
    team.each([&](int t) {
      for (std::int64_t j = t; j < features; j += T::size()) {
        Arithmetic<S> total = sums[j];
        for (std::int64_t p = place; p < end; ++p)
          total += dy[order[p] * features + j];
        sums[j] = total;
      }
    });
  }
};
// d_table[index[r]] += dy[r]. order: `rows` numbers of workspace.
template <class Grid, class S>
void embedding_weight_gradient(const Grid& grid, std::int64_t rows, std::int64_t features, const std::int64_t* index,
                               const S* dy, Arithmetic<S>* d_table, std::int64_t* order) {
  grid.rows("embedding_weight_gradient (order)", rows, rows, PlaceOfRow{rows, index, order});
  grid.rows("embedding_weight_gradient", rows, features, SegmentSum<S>{rows, features, index, order, dy, d_table});
}

// y[s][i] = x[s][i] + table[i]; values per sample.
template <class S>
struct TableValue {
  std::int64_t values;
  const S *x, *table;
  S* y;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    put<W>(y, i, each<W>(Add{}, take<W>(x, i), take<W>(table, i % values)));
  }
};
template <class Grid, class S>
void learned_table(const Grid& grid, std::int64_t samples, std::int64_t values, const S* x, const S* table, S* y) {
  by_pieces<kPerPiece<S>>(grid, "learned_table", samples * values, values, TableValue<S>{values, x, table, y}, x, table,
                          y);
}
// workspace: columns_workspace(samples, values).
template <class Grid, class S>
void learned_table_weight_gradient(const Grid& grid, std::int64_t samples, std::int64_t values, const S* dy,
                                   Arithmetic<S>* d_table, Arithmetic<S>* workspace) {
  add_column_sums<S>(grid, "learned_table_weight_gradient", samples, values, ValueAt<S>{values, dy}, d_table, workspace,
                     dy);
}

}  // namespace pipewright::grid_kernels
