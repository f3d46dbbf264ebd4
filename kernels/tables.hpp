// Kernels of embeddings. Semantics of runtime/backends/cpu_kernels.hpp.
#pragma once

#include "kernels/columns.hpp"

namespace pipewright::kernels::grid_kernels {

// y[r] = table[index[r]]; every index lies within the table.
template <class S>
struct GatheredValue {
  I features;
  const I* index;
  const S* table;
  S* y;
  PIPEWRIGHT_BOTH void operator()(I i) const { y[i] = table[index[i / features] * features + i % features]; }
};
template <class Grid, class S>
void embedding(const Grid& grid, I rows, I features, const I* index, const S* table, S* y) {
  grid.values("embedding", rows * features, GatheredValue<S>{features, index, table, y});
}

// order[p]: the row at place p once the rows are sorted by index, equal ones in their order: its place is the number of
// rows that come before it. rows^2 comparisons, no atomics; 16384 rows are 2.7e8.
struct PlaceOfRow {
  I rows;
  const I* index;
  I* order;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, I r) const {
    const I own = index[r];
    const I place = row_sum(
        team, rows, [&](I other) { return I{index[other] < own || (index[other] == own && other < r) ? 1 : 0}; });
    team.each([&](int t) {
      if (t == 0) order[place] = r;
    });
  }
};
// The team of the first row of a segment of equal indices adds the segment, row after row: the CPU's order.
template <class S>
struct SegmentSum {
  I rows, features;
  const I *index, *order;
  const S* dy;
  Arithmetic<S>* d_table;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, I place) const {
    const I own = index[order[place]];
    if (place > 0 && index[order[place - 1]] == own) return;
    I end = place + 1;
    while (end < rows && index[order[end]] == own)
      ++end;
    Arithmetic<S>* const sums = d_table + own * features;
    team.each([&](int t) {
      for (I j = t; j < features; j += kWarp) {
        Arithmetic<S> total = sums[j];
        for (I p = place; p < end; ++p)
          total += dy[order[p] * features + j];
        sums[j] = total;
      }
    });
  }
};
// d_table[index[r]] += dy[r]. order: `rows` numbers of workspace.
template <class Grid, class S>
void embedding_weight_gradient(const Grid& grid, I rows, I features, const I* index, const S* dy,
                               Arithmetic<S>* d_table, I* order) {
  grid.rows("embedding_weight_gradient (order)", rows, PlaceOfRow{rows, index, order});
  grid.rows("embedding_weight_gradient", rows, SegmentSum<S>{rows, features, index, order, dy, d_table});
}

}  // namespace pipewright::kernels::grid_kernels
