// One table of kernels and arguments for all who run them: the CPU's reference, the grid of the host, a GPU.
//
// visit(KernelCase, call): call(machine, arguments) calls the kernel by its name; what `machine` is decides whose.
// Shapes are chosen to end within blocks, warps and chunks, and beyond one of them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "kernels/columns.hpp"
#include "kernels/dropout_mask.hpp"
#include "kernels/functions.hpp"
#include "kernels/gpu_shapes.hpp"
#include "kernels/optimizers.hpp"

namespace pipewright::tests::kernel_test {

using I = std::int64_t;

// Values come in (at random, in (-1, 1)), go out, or both (a sum that is added to); a state is both, and positive;
// scratch is not compared.
enum class Role { In, Out, InOut, State, Scratch };
struct Array {
  Role role;
  I size;
  bool wide = false;  // in the type of the arithmetic, whatever the stored type: statistics, gradients of weights
};
constexpr Array wide(Role role, I size) {
  return {role, size, true};
}

struct KernelCase {
  std::string name;
  std::vector<Array> arrays;
  std::vector<I> index{};  // token numbers or labels
  I positions = 0;         // of max_pool, 32 bits each, compared
  I order = 0;             // workspace of numbers
  int roundings = 1;       // how often a result went through storage on its way
  I terms = 1;             // of a sum that tensor cores may take: they cut, and do not round
};

// Pointers to a machine's copies of the arrays. S: the stored type, F: its arithmetic's.
template <class Stored>
struct KernelArguments {
  using S = Stored;
  using F = Arithmetic<S>;
  const KernelCase* kernel;
  std::vector<void*> p;
  const I* index;
  std::int32_t* positions;
  I* order;
  S* operator[](std::size_t i) const { return PP_CHECK(!kernel->arrays[i].wide), static_cast<S*>(p[i]); }
  F* f(std::size_t i) const { return PP_CHECK(kernel->arrays[i].wide), static_cast<F*>(p[i]); }
};

inline std::vector<I> some_numbers(I count, I limit) {
  std::vector<I> numbers;
  for (I i = 0; i < count; ++i)
    numbers.push_back((i * i + 3 * i / 2) % limit);  // many equal ones
  return numbers;
}

template <class Visit>
void visit_rows(const Visit& visit) {
  using enum Role;
  for (const auto& [rows, features] :
       {std::pair<I, I>{5, 33}, {70, 100}, {3, 2500}, {9, 1024}, {3, 4096}, {2, 16400}}) {
    const I r = rows, f = features, n = rows * features, w = grid_kernels::columns_workspace(r, f);
    const auto named = [&](const char* name) {
      return std::string(name) + " " + std::to_string(r) + " x " + std::to_string(f);
    };
    visit({named("layer_norm"), {{In, n}, {In, f}, {In, f}, {Out, n}, wide(Out, 2 * r)}},
          [=](const auto& k, const auto& a) { layer_norm(k, r, f, a[0], a[1], a[2], a[3], a.f(4)); });
    visit({named("layer_norm_input_gradient"), {{In, n}, wide(In, 2 * r), {In, f}, {In, n}, {Out, n}}},
          [=](const auto& k, const auto& a) { layer_norm_input_gradient(k, r, f, a[0], a.f(1), a[2], a[3], a[4]); });
    visit({named("layer_norm_weight_gradient"),
           {{In, n}, wide(In, 2 * r), {In, n}, wide(InOut, f), wide(InOut, f), wide(Scratch, w)}},
          [=](const auto& k, const auto& a) {
            layer_norm_weight_gradient(k, r, f, a[0], a.f(1), a[2], a.f(3), a.f(4), a.f(5));
          });
    visit({named("rms_norm"), {{In, n}, {In, f}, {Out, n}, wide(Out, r)}},
          [=](const auto& k, const auto& a) { rms_norm(k, r, f, a[0], a[1], a[2], a.f(3)); });
    visit({named("rms_norm_input_gradient"), {{In, n}, wide(In, r), {In, f}, {In, n}, {Out, n}}},
          [=](const auto& k, const auto& a) { rms_norm_input_gradient(k, r, f, a[0], a.f(1), a[2], a[3], a[4]); });
    visit({named("rms_norm_weight_gradient"), {{In, n}, wide(In, r), {In, n}, wide(InOut, f), wide(Scratch, w)}},
          [=](const auto& k, const auto& a) { rms_norm_weight_gradient(k, r, f, a[0], a.f(1), a[2], a.f(3), a.f(4)); });
    visit({named("softmax"), {{In, n}, {Out, n}}}, [=](const auto& k, const auto& a) { softmax(k, r, f, a[0], a[1]); });
    visit({named("softmax_input_gradient"), {{In, n}, {In, n}, {Out, n}}},
          [=](const auto& k, const auto& a) { softmax_input_gradient(k, r, f, a[0], a[1], a[2]); });
    visit({named("cross_entropy"),
           {{In, 2 * n}, wide(Out, 2), {Out, 2 * n}, wide(Scratch, 2 * r)},
           some_numbers(2 * r, f)},
          [=](const auto& k, const auto& a) {
            using F = typename std::decay_t<decltype(a)>::F;
            // By the number of classes: so that what is no label's is of size 1, too.
            cross_entropy(k, I{2}, r, f, a[0], a.index, F(f), a.f(1), a[2], a.f(3));
          });
    visit({named("bias_gradient"), {{In, n}, wide(InOut, f), wide(Scratch, w)}},
          [=](const auto& k, const auto& a) { bias_gradient(k, r, f, a[0], a.f(1), a.f(2)); });
    visit({named("global_average_pool"), {{In, n}, {Out, r}}},
          [=](const auto& k, const auto& a) { global_average_pool(k, r, f, a[0], a[1]); });
  }
}

template <class Visit>
void visit_values(const Visit& visit) {
  using enum Role;
  constexpr I n = 3000, r = 7, f = 130, m = r * f;
  visit({"fill", {{Out, n}}}, [=](const auto& k, const auto& a) {
    using F = typename std::decay_t<decltype(a)>::F;
    fill(k, n, F(0.5), a[0]);
  });
  visit({"normal", {{Out, n}}}, [=](const auto& k, const auto& a) {
    using F = typename std::decay_t<decltype(a)>::F;
    normal(k, n, std::uint64_t{7}, F(0.25), a[0]);
  });
  for (const I size : {n, n - 1})
    visit({"copy of " + std::to_string(size), {{In, size}, {Out, size}}},
          [=](const auto& k, const auto& a) { copy_values(k, size, a[0], a[1]); });
  visit({"sum_of_terms", {{In, n}, {InOut, n}, {In, n}}}, [=](const auto& k, const auto& a) {
    using S = typename std::decay_t<decltype(a)>::S;
    const std::array<const S*, 3> terms = {a[0], a[1], a[2]};
    sum_of_terms(k, n, terms.data(), 3, a[1]);
  });
  visit({"scale", {{InOut, n}}}, [=](const auto& k, const auto& a) {
    using F = typename std::decay_t<decltype(a)>::F;
    scale(k, n, F(0.75), a[0]);
  });
  visit({"convert, to store", {wide(In, n), {Out, n}}},
        [=](const auto& k, const auto& a) { convert(k, n, a.f(0), a[1]); });
  visit({"convert, to compute", {{In, n}, wide(Out, n)}},
        [=](const auto& k, const auto& a) { convert(k, n, a[0], a.f(1)); });
  constexpr DropoutMask mask = {0.3, 0x0123456789abcdef, 0xfedcba9876543210};
  for (const I size : {n, n - 1})  // whole draws, and not
    visit({"dropout of " + std::to_string(size), {{In, size}, {Out, size}}},
          [=](const auto& k, const auto& a) { dropout(k, mask, size, a[0], a[1]); });
  visit({"dropout beside a piece's begin, in place", {{InOut, n}}},
        [=](const auto& k, const auto& a) { dropout(k, mask, n - 1, a[0] + 1, a[0] + 1); });
  visit({"add", {{In, n}, {In, n}, {Out, n}}}, [=](const auto& k, const auto& a) { add(k, n, a[0], a[1], a[2]); });
  visit({"multiply", {{In, n}, {In, n}, {Out, n}}},
        [=](const auto& k, const auto& a) { multiply(k, n, a[0], a[1], a[2]); });
  visit({"add_bias", {{In, m}, {In, f}, {Out, m}}}, [=](const auto& k, const auto& a) {
    add_bias(k, r, f, a[0], a[1], static_cast<decltype(a[0])>(nullptr), a[2]);
  });
  visit({"add_bias, residual", {{In, m}, {In, f}, {In, m}, {Out, m}}},
        [=](const auto& k, const auto& a) { add_bias(k, r, f, a[0], a[1], a[2], a[3]); });
  for (const GpuFunction function :
       {GpuFunction::Relu, GpuFunction::Gelu, GpuFunction::Silu, GpuFunction::Tanh, GpuFunction::Sigmoid}) {
    const auto named = [&](const char* name) {
      return std::string(name) + ", function " + std::to_string(static_cast<int>(function));
    };
    visit({named("activation"), {{In, n}, {Out, n}}},
          [=](const auto& k, const auto& a) { activation(k, function, n, a[0], a[1]); });
    visit({named("activation_input_gradient"), {{In, n}, {In, n}, {Out, n}}},
          [=](const auto& k, const auto& a) { activation_input_gradient(k, function, n, a[0], a[1], a[2]); });
    visit({named("gated"), {{In, 2 * m}, {Out, m}}},
          [=](const auto& k, const auto& a) { gated(k, function, r, f, a[0], a[1]); });
    visit({named("gated_input_gradient"), {{In, 2 * m}, {In, m}, {Out, 2 * m}}},
          [=](const auto& k, const auto& a) { gated_input_gradient(k, function, r, f, a[0], a[1], a[2]); });
  }
  visit({"transpose", {{In, 3 * m}, {Out, 3 * m}}},
        [=](const auto& k, const auto& a) { transpose(k, I{3}, r, f, a[0], a[1]); });
  visit({"copy_rows", {{In, m}, {InOut, r * 200}}},
        [=](const auto& k, const auto& a) { copy_rows(k, r, I{100}, a[0] + 3, f, a[1] + 7, I{180}); });
}

template <class Visit>
void visit_tables(const Visit& visit) {
  using enum Role;
  constexpr I rows = 150, vocabulary = 40;
  for (const I f : {I{20}, I{2100}}) {
    const std::string width = " of " + std::to_string(f);
    visit({"embedding" + width, {{In, vocabulary * f}, {Out, rows * f}}, some_numbers(rows, vocabulary)},
          [=](const auto& k, const auto& a) { embedding(k, rows, f, a.index, a[0], a[1]); });
    visit({"embedding_weight_gradient" + width,
           {{In, rows * f}, wide(InOut, vocabulary * f)},
           some_numbers(rows, vocabulary),
           0,
           rows},
          [=](const auto& k, const auto& a) { embedding_weight_gradient(k, rows, f, a.index, a[0], a.f(1), a.order); });
  }
}

template <class Visit>
void visit_windows(const Visit& visit) {
  using enum Role;
  constexpr I samples = 2;
  // Windows that overlap, that leave gaps, and padding.
  for (const GpuPoolShape& s : {GpuPoolShape{3, 9, 8, 5, 4, 3, 2, 1}, GpuPoolShape{2, 8, 8, 3, 3, 2, 3, 0},
                                GpuPoolShape{1, 5, 5, 5, 5, 3, 1, 1}}) {
    const I in = samples * s.channels * s.height_in * s.width_in,
            out = samples * s.channels * s.height_out * s.width_out;
    const std::string name = ", stride " + std::to_string(s.stride);
    visit({"max_pool and its gradient" + name, {{In, in}, {Out, out}, {In, out}, {Out, in}}, {}, out},
          [=](const auto& k, const auto& a) {
            using S = typename std::decay_t<decltype(a)>::S;
            max_pool(k, s, samples, a[0], a[1], a.positions);
            max_pool_input_gradient(k, s, samples, static_cast<const std::int32_t*>(a.positions),
                                    static_cast<const S*>(a[2]), a[3]);
          });
    visit({"average_pool" + name, {{In, in}, {Out, out}}},
          [=](const auto& k, const auto& a) { average_pool(k, s, samples, a[0], a[1]); });
    visit({"average_pool_input_gradient" + name, {{In, out}, {Out, in}}},
          [=](const auto& k, const auto& a) { average_pool_input_gradient(k, s, samples, a[0], a[1]); });
  }
  visit({"global_average_pool_input_gradient", {{In, 6}, {Out, 6 * 49}}},
        [=](const auto& k, const auto& a) { global_average_pool_input_gradient(k, I{6}, I{49}, a[0], a[1]); });
}

template <class Visit>
void visit_linear(const Visit& visit) {
  using enum Role;
  // Sizes that a library takes and such that it may not take; a long sum.
  for (const auto& [r, i, o] :
       {std::array<I, 3>{5, 3, 7}, {130, 50, 140}, {1, 8, 8}, {40, 72, 21}, {64, 128, 256}, {2100, 24, 40}}) {
    const I rows = r, in = i, out = o;
    const std::string name = " " + std::to_string(r) + " x " + std::to_string(i) + " x " + std::to_string(o);
    visit({"linear" + name, {{In, rows * in}, {In, out * in}, {In, out}, {Out, rows * out}}, {}, 0, 0, 1, in},
          [=](const auto& k, const auto& a) { linear(k, rows, in, out, a[0], a[1], a[2], a[3]); });
    visit({"linear_input_gradient" + name, {{In, rows * out}, {In, out * in}, {Out, rows * in}}, {}, 0, 0, 1, out},
          [=](const auto& k, const auto& a) { linear_input_gradient(k, rows, in, out, a[0], a[1], a[2]); });
    visit({"linear_weight_gradient" + name,
           {{In, rows * in},
            {In, rows * out},
            wide(InOut, out * in),
            wide(InOut, out),
            wide(Scratch, grid_kernels::columns_workspace(rows, out))},
           {},
           0,
           0,
           1,
           rows},
          [=](const auto& k, const auto& a) {
            linear_weight_gradient(k, rows, in, out, a[0], a[1], a.f(2), a.f(3), a.f(4));
          });
  }
}

template <class Visit>
void visit_products(const Visit& visit) {
  using enum Role;
  visit_linear(visit);
  constexpr I samples = 3;
  // Plain 3 x 3; two groups with stride 2 and windows of unequal sides; 1 x 1 with stride 2 (values that nobody reads).
  for (const GpuConvShape& s :
       {GpuConvShape{4, 7, 6, 5, 7, 6, 3, 3, 1, 1, 1, 1}, GpuConvShape{4, 9, 8, 6, 5, 4, 3, 2, 2, 1, 0, 2},
        GpuConvShape{3, 6, 6, 2, 3, 3, 1, 1, 2, 0, 0, 1}}) {
    const I in = samples * s.channels_in * s.height_in * s.width_in;
    const I out = samples * s.channels_out * s.height_out * s.width_out;
    const I w = s.channels_out * s.channels_in / s.groups * s.kernel_height * s.kernel_width;
    const std::string name = ", groups " + std::to_string(s.groups) + ", stride " + std::to_string(s.stride);
    visit({"conv2d" + name, {{In, in}, {In, w}, {In, s.channels_out}, {Out, out}}},
          [=](const auto& k, const auto& a) { conv2d(k, s, samples, a[0], a[1], a[2], a[3]); });
    visit({"conv2d_input_gradient" + name, {{In, out}, {In, w}, {Out, in}}},
          [=](const auto& k, const auto& a) { conv2d_input_gradient(k, s, samples, a[0], a[1], a[2]); });
    visit({"conv2d_weight_gradient" + name, {{In, in}, {In, out}, wide(InOut, w), wide(InOut, s.channels_out)}},
          [=](const auto& k, const auto& a) { conv2d_weight_gradient(k, s, samples, a[0], a[1], a.f(2), a.f(3)); });
  }
  // As many key heads as heads, side by side in one tensor; fewer key heads, causal, more keys than queries; long rows.
  for (const GpuAttentionShape& s :
       {GpuAttentionShape{2, 2, 4, 4, 9, 9, false, 24, 24, 24}, GpuAttentionShape{4, 2, 6, 5, 7, 11, true, 24, 12, 10},
        GpuAttentionShape{2, 2, 4, 4, 16, 16, true, 24, 24, 24},
        GpuAttentionShape{1, 1, 4, 4, 3, 2056, true, 12, 12, 12}}) {
    const I q = samples * s.queries * s.query_stride, key = samples * s.keys * s.key_stride;
    const I v = samples * s.keys * s.value_stride, p = samples * s.heads * s.queries * s.keys;
    const I y = samples * s.queries * s.heads * s.value_size;
    const std::string name = (s.causal ? ", causal, " : ", all, ") + std::to_string(s.keys) + " keys";
    visit({"attention" + name, {{In, q}, {In, key}, {In, v}, {Out, y}, {Out, p}}, {}, 0, 0, 3},
          [=](const auto& k, const auto& a) { attention(k, s, samples, a[0], a[1], a[2], a[3], a[4]); });
    visit({"attention_gradient" + name,
           {{In, q},
            {In, key},
            {In, v},
            {Scratch, p},
            {In, y},
            {InOut, q},
            {InOut, key},
            {InOut, v},
            {Scratch, p},
            {Scratch, y}},
           {},
           0,
           0,
           5},
          [=](const auto& k, const auto& a) {
            using S = typename std::decay_t<decltype(a)>::S;
            attention(k, s, samples, a[0], a[1], a[2], a[9], a[3]);
            attention_gradient(k, s, samples, a[0], a[1], a[2], static_cast<const S*>(a[3]),
                               static_cast<const S*>(a[4]), a[5], a[6], a[7], a[8]);
          });
  }
}

// Heads as wide as they may be, keys that several heads share.
template <class Visit>
void visit_flash(const Visit& visit) {
  using enum Role;
  constexpr I samples = 2;
  for (const GpuAttentionShape& s :
       {GpuAttentionShape{2, 2, 4, 4, 9, 9, false, 24, 24, 24}, GpuAttentionShape{4, 2, 6, 5, 37, 71, true, 24, 12, 10},
        GpuAttentionShape{2, 1, 128, 128, 40, 40, true, 256, 128, 128}}) {
    const I q = samples * s.queries * s.query_stride, key = samples * s.keys * s.key_stride;
    const I v = samples * s.keys * s.value_stride, rows = samples * s.heads * s.queries;
    const I y = samples * s.queries * s.heads * s.value_size;
    const std::string name = " of " + std::to_string(s.key_size) + (s.causal ? ", causal" : ", all keys");
    visit({"flash_attention" + name, {{In, q}, {In, key}, {In, v}, {Out, y}, wide(Out, rows)}},
          [=](const auto& k, const auto& a) { flash_attention(k, s, samples, a[0], a[1], a[2], a[3], a.f(4)); });
    visit({"flash_attention_gradient" + name,
           {{In, q},
            {In, key},
            {In, v},
            {In, y},
            {InOut, q},
            {InOut, key},
            {InOut, v},
            {Scratch, y},
            wide(Scratch, rows),
            wide(Scratch, rows)},
           {},
           0,
           0,
           3},
          [=](const auto& k, const auto& a) {
            using S = typename std::decay_t<decltype(a)>::S;
            using F = typename std::decay_t<decltype(a)>::F;
            flash_attention(k, s, samples, a[0], a[1], a[2], a[7], a.f(8));
            flash_attention_gradient(k, s, samples, a[0], a[1], a[2], static_cast<const S*>(a[7]),
                                     static_cast<const F*>(a.f(8)), static_cast<const S*>(a[3]), a[4], a[5], a[6],
                                     a.f(9));
          });
  }
}

// Several tensors of odd sizes in one launch, and more of them than a launch takes.
template <class Visit>
void visit_optimizers(const Visit& visit) {
  using enum Role;
  for (const GpuOptimizer kind :
       {GpuOptimizer::Sgd, GpuOptimizer::Momentum, GpuOptimizer::RmsProp, GpuOptimizer::Adam}) {
    constexpr I tensors = 70, n = tensors * (tensors + 1) / 2;  // of 1, 2, ... 70 values
    visit({"update, optimizer " + std::to_string(static_cast<int>(kind)),
           {wide(In, n), wide(In, n), wide(Out, n), wide(State, n), wide(State, n), {Out, n}}},
          [=](const auto& k, const auto& a) {
            using F = typename std::decay_t<decltype(a)>::F;
            std::vector<UpdatedTensor<F, typename std::decay_t<decltype(a)>::S>> list;
            for (I i = 0, at = 0; i < tensors; at += ++i)
              list.push_back({i + 1, a.f(0) + at, a.f(1) + at, a.f(2) + at, a.f(3) + at, a.f(4) + at, a[5] + at});
            update(k, UpdateRule<F>{kind, F(0.1), F(0.9), F(0.9), F(0.999), F(1e-8), F(0.19), F(0.002)}, list.data(),
                   tensors);
          });
  }
}

template <class Visit>
void visit_kernels(const Visit& visit) {
  visit_rows(visit);
  visit_values(visit);
  visit_tables(visit);
  visit_windows(visit);
  visit_products(visit);
  visit_flash(visit);
  visit_optimizers(visit);
}

}  // namespace pipewright::tests::kernel_test
