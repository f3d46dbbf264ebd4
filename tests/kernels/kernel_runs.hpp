// A kernel of kernel_cases.hpp run once on host memory, and how two runs are compared.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/functions.hpp"
#include "tests/kernels/kernel_cases.hpp"

namespace pipewright::tests::kernel_test {

// Single precision against double: values are of size 1, the longest sums have 2500 terms.
constexpr double kFloatTolerance = 2e-5;

// What a 16-bit result may be off: half a unit of its last place, as often as it was stored on its way, and twice that
// where values above 1 went into a sum.
template <class T>
constexpr double kRoundoff = 0;
template <>
inline constexpr double kRoundoff<Bf16> = 0x1p-9;
template <>
inline constexpr double kRoundoff<Fp16> = 0x1p-12;
// Sums of tensor cores (cuBLASLt's products) lose up to a unit of their last place, always toward zero, for every 8 or
// 16 terms [Fasi21]: what they are off by grows with the terms, not with their root. Other sums round each partial sum,
// which grows with the root of the terms: of 2100 terms from -1 to 1 right ones in any order lie up to 7e-5 off. 250
// terms are within the tolerance.
template <class T>
double tolerance(const KernelCase& kernel, const Array& array) {
  const double cuts = std::max(1.0, static_cast<double>(kernel.terms) / 250);
  return kFloatTolerance * cuts + (array.wide ? 0 : 2 * kernel.roundings * kRoundoff<T>);
}

// The contents that every machine begins with, as `Stored` holds them: those that it cannot hold exactly are no error
// of a kernel's.
template <class Stored>
std::vector<std::vector<double>> first_contents(const KernelCase& kernel) {
  std::vector<std::vector<double>> out;
  for (std::size_t i = 0; i < kernel.arrays.size(); ++i) {
    const Array& array = kernel.arrays[i];
    std::vector<double>& values = out.emplace_back(static_cast<std::size_t>(array.size), -77);
    if (array.role == Role::Out || array.role == Role::Scratch) continue;
    for (std::size_t j = 0; j < values.size(); ++j) {
      float value = 2 * grid_kernels::unit_of(grid_kernels::random_bits(i + 1, j)) - 1;
      if (array.role == Role::State) value = std::abs(value);
      values[j] =
          array.wide ? static_cast<double>(value) : static_cast<double>(static_cast<Arithmetic<Stored>>(Stored(value)));
    }
  }
  return out;
}

// An array in host memory, in the type that a kernel on S has it in.
template <class S>
class HostArray {
 public:
  HostArray(const Array& array, const std::vector<double>& values) : wide_(array.wide) {
    for (const double value : values)
      if (wide_)
        computed_.push_back(static_cast<Arithmetic<S>>(value));
      else
        stored_.push_back(S(static_cast<Arithmetic<S>>(value)));
  }
  void* data() { return wide_ ? static_cast<void*>(computed_.data()) : static_cast<void*>(stored_.data()); }
  const void* data() const {
    return wide_ ? static_cast<const void*>(computed_.data()) : static_cast<const void*>(stored_.data());
  }
  std::size_t size() const { return wide_ ? computed_.size() : stored_.size(); }
  std::size_t bytes() const { return size() * (wide_ ? sizeof(Arithmetic<S>) : sizeof(S)); }
  double operator[](std::size_t i) const {
    return wide_ ? static_cast<double>(computed_[i]) : static_cast<double>(static_cast<Arithmetic<S>>(stored_[i]));
  }

 private:
  bool wide_;
  std::vector<S> stored_;
  std::vector<Arithmetic<S>> computed_;
};
template <class S, class Stored>
std::vector<HostArray<S>> host_arrays(const KernelCase& kernel) {
  std::vector<HostArray<S>> arrays;
  const auto contents = first_contents<Stored>(kernel);
  for (std::size_t i = 0; i < contents.size(); ++i)
    arrays.emplace_back(kernel.arrays[i], contents[i]);
  return arrays;
}

// S: what the machine stores; it begins with what `Stored` can hold.
template <class S, class Stored = S>
class HostRun {
 public:
  template <class Call, class Machine>
  HostRun(const KernelCase& kernel, const Call& call, const Machine& machine)
      : arrays(host_arrays<S, Stored>(kernel)), positions(static_cast<std::size_t>(kernel.positions)) {
    std::vector<I> order(static_cast<std::size_t>(kernel.order));
    KernelArguments<S> arguments{&kernel, {}, kernel.index.data(), positions.data(), order.data()};
    for (HostArray<S>& array : arrays)
      arguments.p.push_back(array.data());
    call(machine, arguments);
  }

  std::vector<HostArray<S>> arrays;
  std::vector<std::int32_t> positions;
};

inline bool compared(const Array& array) {
  return array.role != Role::Scratch;
}

// Largest |a - b| / max(1, |b|) of what went in and came out, as a share of what a result stored as T may be off;
// infinite where one is NaN, or positions differ. Where all of b is small (probabilities of a long row) its root mean
// square stands for the 1: it is to be compared as closely.
template <class T, class A, class B>
double largest_difference(const KernelCase& kernel, const A& a, const B& b) {
  if (a.positions != b.positions) return INFINITY;
  double largest = 0;
  for (std::size_t i = 0; i < kernel.arrays.size(); ++i) {
    const double allowed = tolerance<T>(kernel, kernel.arrays[i]);
    double squares = 0;
    for (std::size_t j = 0; compared(kernel.arrays[i]) && j < b.arrays[i].size(); ++j)
      squares += b.arrays[i][j] * b.arrays[i][j];
    const double mean = std::sqrt(squares / static_cast<double>(b.arrays[i].size()));
    const double usual = mean > 0 ? std::min(1.0, mean) : 1;
    for (std::size_t j = 0; compared(kernel.arrays[i]) && j < a.arrays[i].size(); ++j) {
      const double right = b.arrays[i][j];
      const double error = std::abs(a.arrays[i][j] - right) / std::max(usual, std::abs(right)) / allowed;
      if (!(error <= largest)) largest = std::isnan(error) ? INFINITY : error;
    }
  }
  return largest;
}

template <class A, class B>
bool same_bits(const KernelCase& kernel, const A& a, const B& b) {
  bool same = a.positions == b.positions;
  for (std::size_t i = 0; i < kernel.arrays.size(); ++i)
    if (compared(kernel.arrays[i]) && kernel.arrays[i].size > 0)
      same = same && std::memcmp(a.arrays[i].data(), b.arrays[i].data(), a.arrays[i].bytes()) == 0;
  return same;
}

}  // namespace pipewright::tests::kernel_test
