// Values by pieces of 16 bytes, which move by one instruction where they begin at a multiple of 16.
//
// A kernel over values is written once, for W values side by side: `body.at<W>(i)` takes those from i on,
//
//     put<W>(y, i, each<W>([](auto a, auto b) { return a + b; }, take<W>(a, i), take<W>(b, i)));
//
// and `by_pieces` runs it with W > 1 where all arrays are whole pieces, else with W = 1. What a value becomes does not
// depend on W.
//
// Tests: tests/kernels/pieces_test.cpp, and those of the kernels that use it
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "kernels/storage.hpp"

namespace pipewright::grid_kernels {

template <int kBytes>
struct alignas(kBytes) Words {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  std::uint32_t words[kBytes / 4];
};
using Piece = Words<16>;
template <class S>
constexpr int kPerPiece = static_cast<int>(sizeof(Piece) / sizeof(S));

#ifndef __CUDA_ARCH__
template <int kBytes>
void check_begins(const void* at) {
  if (reinterpret_cast<std::uintptr_t>(at) % kBytes != 0) throw std::logic_error("a piece begins between two");
}
#endif
// By one instruction on a GPU, which fails where `at` is no multiple of kBytes; so does the host.
template <int kBytes>
PIPEWRIGHT_BOTH inline Words<kBytes> words_at(const void* at) {
#ifdef __CUDA_ARCH__
  return *static_cast<const Words<kBytes>*>(at);
#else
  check_begins<kBytes>(at);
  Words<kBytes> words;
  std::memcpy(&words, at, sizeof words);
  return words;
#endif
}
template <int kBytes>
PIPEWRIGHT_BOTH inline void put_words(void* at, const Words<kBytes>& words) {
#ifdef __CUDA_ARCH__
  *static_cast<Words<kBytes>*>(at) = words;
#else
  check_begins<kBytes>(at);
  std::memcpy(at, &words, sizeof words);
#endif
}

// The same, said outright: where single words are used again, nvcc takes an assignment apart into as many stores. It
// may not be moved, so it costs registers where a row is kept.
template <int kBytes>
PIPEWRIGHT_BOTH inline void put_words_outright(void* at, const Words<kBytes>& words) {
#ifdef __CUDA_ARCH__
  if constexpr (kBytes == 16)
    __stwb(static_cast<uint4*>(at), make_uint4(words.words[0], words.words[1], words.words[2], words.words[3]));
  else if constexpr (kBytes == 8)
    __stwb(static_cast<uint2*>(at), make_uint2(words.words[0], words.words[1]));
  else
    put_words(at, words);
#else
  put_words(at, words);
#endif
}

// The i-th value of some words.
template <class S, int kBytes>
PIPEWRIGHT_BOTH inline S value_in(const Words<kBytes>& from, int i) {
  S value;
  if constexpr (sizeof(S) == 2)
    value.bits = static_cast<std::uint16_t>(from.words[i / 2] >> i % 2 * 16);
  else if constexpr (sizeof(S) == 4)
    value = storage::float_of(from.words[i]);
  else  // in tests
    std::memcpy(&value, from.words + 2 * i, sizeof(S));
  return value;
}
// Into words that began as zeros.
template <class S, int kBytes>
PIPEWRIGHT_BOTH inline void put_in(Words<kBytes>& into, int i, S value) {
  if constexpr (sizeof(S) == 2)
    into.words[i / 2] |= static_cast<std::uint32_t>(value.bits) << i % 2 * 16;
  else if constexpr (sizeof(S) == 4)
    into.words[i] = storage::bits_of(value);
  else
    std::memcpy(into.words + 2 * i, &value, sizeof(S));
}

PIPEWRIGHT_BOTH inline bool begins_piece(const void* at) {
  return reinterpret_cast<std::uintptr_t>(at) % sizeof(Piece) == 0;  // null, too
}

// ---- W values side by side -----------------------------------------------------------------------------------------

template <class F, int W>
struct Values {
  F of[W];
};

// x[i] ... x[i + W - 1] in the type of the arithmetic.
template <int W, class S>
PIPEWRIGHT_BOTH inline Values<Arithmetic<S>, W> take(const S* x, std::int64_t i) {
  Values<Arithmetic<S>, W> values;
  if constexpr (W == 1) {
    values.of[0] = x[i];
  } else {
    constexpr int kBytes = W * sizeof(S) < 16 ? W * static_cast<int>(sizeof(S)) : 16, kEach = kBytes / sizeof(S);
    PIPEWRIGHT_UNROLL
    for (int part = 0; part < W / kEach; ++part) {
      const Words<kBytes> words = words_at<kBytes>(x + i + part * kEach);
      PIPEWRIGHT_UNROLL
      for (int j = 0; j < kEach; ++j)
        values.of[part * kEach + j] = value_in<S>(words, j);
    }
  }
  return values;
}
// y[i] ... y[i + W - 1] = values, each rounded once.
template <int W, class S>
PIPEWRIGHT_BOTH inline void put(S* y, std::int64_t i, const Values<Arithmetic<S>, W>& values) {
  if constexpr (W == 1) {
    y[i] = S(values.of[0]);
  } else {
    constexpr int kBytes = W * sizeof(S) < 16 ? W * static_cast<int>(sizeof(S)) : 16, kEach = kBytes / sizeof(S);
    PIPEWRIGHT_UNROLL
    for (int part = 0; part < W / kEach; ++part) {
      Words<kBytes> words = {};
      PIPEWRIGHT_UNROLL
      for (int j = 0; j < kEach; ++j)
        put_in(words, j, S(values.of[part * kEach + j]));
      put_words_outright(y + i + part * kEach, words);
    }
  }
}
// y[k] ... = x[i] ..., bit for bit.
template <int W, class S>
PIPEWRIGHT_BOTH inline void move(S* y, std::int64_t k, const S* x, std::int64_t i) {
  if constexpr (W == 1)
    y[k] = x[i];
  else
    put_words_outright(y + k, words_at<W* static_cast<int>(sizeof(S))>(x + i));
}
// f(of each), value by value.
template <int W, class Function, class F, class... More>
PIPEWRIGHT_BOTH inline Values<F, W> each(const Function& f, const Values<F, W>& first, const Values<More, W>&... more) {
  Values<F, W> results;
  PIPEWRIGHT_UNROLL
  for (int j = 0; j < W; ++j)
    results.of[j] = f(first.of[j], more.of[j]...);
  return results;
}

template <class Body, int W>
struct SideBySide {
  Body body;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const { body.template at<W>(i * W); }
};
// body.at<W>(i) for all of n values, which come in runs of `run` (n, if they are one): with W > 1 where every run is
// whole pieces of W and every array begins at a multiple of 16 bytes.
template <int W, class Grid, class Body, class... Arrays>
void by_pieces(const Grid& grid, const char* name, std::int64_t n, std::int64_t run, const Body& body,
               const Arrays*... arrays) {
  if (run % W == 0 && (begins_piece(arrays) && ...))
    grid.values(name, n / W, SideBySide<Body, W>{body});
  else
    grid.values(name, n, SideBySide<Body, 1>{body});
}

}  // namespace pipewright::grid_kernels
