// Rows of values that are summed up more than once: read once, by pieces of 16 bytes, and kept in registers where the
// team's threads can hold them.
//
//     with_row<kWay>(team, n, {x, dy}, weight, nullptr, [&](auto& row) {
//       const F mean = row.sum([](const auto& v) { return v.of[0]; }) / n;      // of x
//       row.each(y, [&](const auto& v) { return (v.of[0] - mean) * v.shared[0]; });
//     });
//
//     a row of                                             is read
//     whole pieces, at most 64 values to a thread          once
//     whole pieces, more                                   again for every sum, four pieces at once
//     else (a length that is no multiple of a piece)       again for every sum, value by value
//
// The length of the row and the stored type decide which (arrays begin at multiples of 16 bytes: arena.hpp), and with
// the team's size they fix the order of sums: the same bits on any grid.
//
// Tests: tests/kernels/pieces_test.cpp, and those of the kernels that use it
#pragma once

#include <type_traits>
#include <vector>

#include "kernels/pieces.hpp"

namespace pipewright::grid_kernels {

// What every thread of a team keeps from one call to the next: on a GPU registers.
template <class T, class V>
struct KeptBy {
#ifdef __CUDACC__
  V value;
  PIPEWRIGHT_TEAM V& of(int) {
    return value;
  }
#else
  std::vector<V> values = std::vector<V>(T::size());
  V& of(int t) {
    return values[static_cast<std::size_t>(t)];
  }
#endif
};

// A column of a row: its values in each array, and those of up to two arrays that all rows share (0 of null).
template <class F, int kArrays>
struct ColumnValues {
  F of[kArrays], shared[2];
  std::int64_t column;
};

enum class RowWay { Kept, Again, ByValue };

constexpr int kKeptValues = 64;  // of each array, in a thread's registers
static_assert(kKeptValues * kWarp >= kWarpRow);

template <class S, int kArrays>
struct RowArrays {
  const S *in[kArrays], *shared[2];
};

// What is done with a row; Row::columns(t, f, done) calls f(values, place) for thread t's columns in order, which count
// on from piece to piece, and done(the piece's first column) behind those of a piece.
template <class Row, class T, class S, int kArrays>
struct RowSums {
  using F = Arithmetic<S>;
  using V = ColumnValues<F, kArrays>;
  const T& team;
  std::int64_t n;
  RowArrays<S, kArrays> arrays;

  // The sum of f(values) over the columns.
  template <class Term>
  PIPEWRIGHT_TEAM auto sum(const Term& f) {
    return team.sum([&](int t) {
      decltype(f(V{})) total{};
      self().columns(
          t, [&](const V& values, int) { total = total + f(values); }, [](std::int64_t) {});
      return total;
    });
  }
  // The sum of f(values), which a row that is kept keeps, too; and out[column] = g(what f gave). f: as before.
  template <class Term>
  PIPEWRIGHT_TEAM F sum_keeping(const Term& f) {
    return sum(f);
  }
  template <class Term, class Result>
  PIPEWRIGHT_TEAM void each_kept(S* out, const Term& f, const Result& g) {
    self().each(out, [&](const V& values) { return g(f(values)); });
  }
  // The largest of f(values), or of `least`.
  template <class Term>
  PIPEWRIGHT_TEAM F max(F least, const Term& f) {
    return team.max([&](int t) {
      F most = least;
      self().columns(
          t, [&](const V& values, int) { most = larger(most, f(values)); }, [](std::int64_t) {});
      return most;
    });
  }

 private:
  PIPEWRIGHT_TEAM Row& self() { return static_cast<Row&>(*this); }
};

template <class T, class S, int kArrays, bool kKept>
struct PieceRow : RowSums<PieceRow<T, S, kArrays, kKept>, T, S, kArrays> {
  using Sums = RowSums<PieceRow, T, S, kArrays>;
  using F = Arithmetic<S>;
  using V = typename Sums::V;
  static constexpr int kPer = kPerPiece<S>, kAtOnce = kKept ? kKeptValues / kPer : 4;
  struct Part {
    Piece at[kAtOnce][kArrays];
  };
  KeptBy<T, Part> kept{};
  KeptBy<T, Values<F, kKept ? kKeptValues : 1>> results{};

  PIPEWRIGHT_TEAM PieceRow(const T& by, std::int64_t length, const RowArrays<S, kArrays>& of) : Sums{by, length, of} {
    if constexpr (kKept) by.each([&](int t) { read(kept.of(t), t, 0); });
  }
  // out[column] = f(values); out may be one of the arrays.
  template <class Result>
  PIPEWRIGHT_TEAM void each(S* out, const Result& f) {
    this->team.each([&](int t) {
      Piece piece = {};
      columns(
          t, [&](const V& values, int place) { put_in(piece, place % kPer, S(f(values))); },
          [&](std::int64_t first) {
            put_words(out + first, piece);
            piece = {};
          });
    });
  }
  template <class Term>
  PIPEWRIGHT_TEAM F sum_keeping(const Term& f) {
    if constexpr (!kKept) return Sums::sum_keeping(f);
    return this->team.sum([&](int t) {
      F total{};
      columns(
          t, [&](const V& values, int place) { total = total + (results.of(t).of[place] = f(values)); },
          [](std::int64_t) {});
      return total;
    });
  }
  template <class Term, class Result>
  PIPEWRIGHT_TEAM void each_kept(S* out, const Term& f, const Result& g) {
    if constexpr (!kKept) return Sums::each_kept(out, f, g);
    this->team.each([&](int t) {
      Piece piece = {};
      columns(
          t, [&](const V&, int place) { put_in(piece, place % kPer, S(g(results.of(t).of[place]))); },
          [&](std::int64_t first) {
            put_words(out + first, piece);
            piece = {};
          });
    });
  }
  template <class Visit, class Done>
  PIPEWRIGHT_TEAM void columns(int t, const Visit& f, const Done& done) {
    if constexpr (kKept) {
      columns_of(kept.of(t), t, 0, f, done);
    } else {
      for (std::int64_t before = 0; before * kPer < this->n; before += kAtOnce * T::size()) {
        Part part;
        read(part, t, before);
        columns_of(part, t, before, f, done);
      }
    }
  }

 private:
  PIPEWRIGHT_TEAM void read(Part& part, int t, std::int64_t pieces_before) const {
    PIPEWRIGHT_UNROLL
    for (int p = 0; p < kAtOnce; ++p) {
      const std::int64_t first = (pieces_before + t + p * T::size()) * kPer;
      PIPEWRIGHT_UNROLL
      for (int a = 0; a < kArrays; ++a)
        part.at[p][a] = first < this->n ? words_at<16>(this->arrays.in[a] + first) : Piece{};
    }
  }
  template <class Visit, class Done>
  PIPEWRIGHT_TEAM void columns_of(const Part& part, int t, std::int64_t pieces_before, const Visit& f,
                                  const Done& done) const {
    PIPEWRIGHT_UNROLL
    for (int p = 0; p < kAtOnce; ++p) {
      const std::int64_t first = (pieces_before + t + p * T::size()) * kPer;
      if (first >= this->n) continue;
      Piece more[2] = {};
      PIPEWRIGHT_UNROLL
      for (int m = 0; m < 2; ++m)
        if (this->arrays.shared[m] != nullptr) more[m] = words_at<16>(this->arrays.shared[m] + first);
      PIPEWRIGHT_UNROLL
      for (int i = 0; i < kPer; ++i) {
        V values;
        PIPEWRIGHT_UNROLL
        for (int a = 0; a < kArrays; ++a)
          values.of[a] = value_in<S>(part.at[p][a], i);
        PIPEWRIGHT_UNROLL
        for (int m = 0; m < 2; ++m)
          values.shared[m] = value_in<S>(more[m], i);
        values.column = first + i;
        f(values, p * kPer + i);
      }
      done(first);
    }
  }
};

template <class T, class S, int kArrays>
struct ValueRow : RowSums<ValueRow<T, S, kArrays>, T, S, kArrays> {
  using Sums = RowSums<ValueRow, T, S, kArrays>;
  using V = typename Sums::V;

  PIPEWRIGHT_TEAM ValueRow(const T& by, std::int64_t length, const RowArrays<S, kArrays>& of) : Sums{by, length, of} {}
  template <class Result>
  PIPEWRIGHT_TEAM void each(S* out, const Result& f) {
    this->team.each([&](int t) {
      columns(
          t, [&](const V& values, int) { out[values.column] = S(f(values)); }, [](std::int64_t) {});
    });
  }
  template <class Visit, class Done>
  PIPEWRIGHT_TEAM void columns(int t, const Visit& f, const Done&) {
    for (std::int64_t j = t; j < this->n; j += T::size()) {
      V values{};
      PIPEWRIGHT_UNROLL
      for (int a = 0; a < kArrays; ++a)
        values.of[a] = this->arrays.in[a][j];
      PIPEWRIGHT_UNROLL
      for (int m = 0; m < 2; ++m)
        if (this->arrays.shared[m] != nullptr) values.shared[m] = this->arrays.shared[m][j];
      values.column = j;
      f(values, 0);
    }
  }
};

// body(row) with a row of n values of `in`, read as kWay says; shared: arrays that all rows share, or null.
template <RowWay kWay, int kArrays, class T, class S, class Body>
PIPEWRIGHT_TEAM void with_row(const T& team, std::int64_t n, const S* const (&in)[kArrays], const S* first_shared,
                              const S* second_shared, const Body& body) {
  RowArrays<S, kArrays> arrays;
  arrays.shared[0] = first_shared, arrays.shared[1] = second_shared;
  PIPEWRIGHT_UNROLL
  for (int a = 0; a < kArrays; ++a)
    arrays.in[a] = in[a];
  if constexpr (kWay == RowWay::ByValue) {
    ValueRow<T, S, kArrays> row(team, n, arrays);
    body(row);
  } else {
    PieceRow<T, S, kArrays, kWay == RowWay::Kept> row(team, n, arrays);
    body(row);
  }
}

template <RowWay kWay, class Body>
struct RowsBy {
  Body body;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, std::int64_t r) const {
    if constexpr (kWay != RowWay::Again || T::size() > kWarp)  // a warp's rows are short
      body.template row<kWay>(team, r);
  }
};
// body.row<way>(team, r) for all rows of n values of S: a kernel of its own for each way, as only some need the
// registers to keep a row. arrays: all that with_row and `each` take, in which rows lie one behind the other.
template <class S, class Grid, class Body, class... Arrays>
void rows_by_pieces(const Grid& grid, const char* name, std::int64_t rows, std::int64_t n, const Body& body,
                    const Arrays*... arrays) {
  static_assert((std::is_same_v<S, Arrays> && ...));
  if (n % kPerPiece<S> != 0 || !(begins_piece(arrays) && ...))
    grid.rows(name, rows, n, RowsBy<RowWay::ByValue, Body>{body});
  else if (n <= kBlock * kKeptValues)
    grid.rows(name, rows, n, RowsBy<RowWay::Kept, Body>{body});
  else
    grid.rows(name, rows, n, RowsBy<RowWay::Again, Body>{body});
}

}  // namespace pipewright::grid_kernels
