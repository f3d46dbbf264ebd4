// One step of a program with its arguments, as a backend's operations see it: shapes, typed pointers, and where the
// parts of a tensor lie. What is the same for every device. Inside runtime/backends only.
#pragma once

#include <array>
#include <cstdint>
#include <variant>

#include "core/check.hpp"
#include "core/model/program.hpp"
#include "runtime/backend.hpp"

namespace pipewright::runtime::backends {

inline std::int64_t count(const Shape& shape) {
  std::int64_t product = 1;
  for (int i = 0; i < shape.rank; ++i)
    product *= shape[i];
  return product;
}
inline std::int64_t width(const Shape& shape) {
  return shape[shape.rank - 1];
}

struct StepView {
  const Program& program;
  const ProgramStep& step;
  std::int64_t samples = 0;

  std::size_t inputs() const { return step.inputs.size(); }
  const Shape& in(std::size_t i = 0) const {
    PP_CHECK(i < inputs());
    return program.tensors[at(step.inputs[i])].shape;
  }
  const Shape& out() const { return program.tensors[at(step.output)].shape; }
  std::int64_t values() const { return samples * count(out()); }
  std::int64_t rows(const Shape& shape) const { return samples * (count(shape) / width(shape)); }
  template <class Spec>
  const Spec& spec() const {
    const Spec* const found = std::get_if<Spec>(&step.spec);
    PP_CHECK(found != nullptr);
    return *found;
  }
};

// The arguments with their types: T of tensors, S of sums and of what the arithmetic keeps. What a pass does not use is
// null.
template <class T, class S = T>
struct Call : StepView {
  const StepArguments& a;

  explicit Call(const StepArguments& arguments)
      : StepView{*arguments.program, *arguments.step, arguments.samples}, a(arguments) {}

  const T* x(std::size_t i = 0) const { return static_cast<const T*>(i < a.inputs.size() ? a.inputs[i] : nullptr); }
  const std::int64_t* tokens() const { return static_cast<const std::int64_t*>(a.inputs[0]); }
  T* y() const { return static_cast<T*>(a.output); }
  const T* dy() const { return static_cast<const T*>(a.output_gradient); }
  T* dx(std::size_t i = 0) const {
    return static_cast<T*>(i < a.input_gradients.size() ? a.input_gradients[i] : nullptr);
  }
  const T* w(std::size_t i = 0) const {
    return static_cast<const T*>(i < a.parameters.size() ? a.parameters[i] : nullptr);
  }
  S* dw(std::size_t i = 0) const {
    return reinterpret_cast<S*>(i < a.parameter_gradients.size() ? a.parameter_gradients[i] : nullptr);
  }
  S* losses() const { return static_cast<S*>(a.output); }
  S* saved() const { return static_cast<S*>(a.saved); }
  S* workspace() const { return static_cast<S*>(a.workspace); }
  // Of attention and cross_entropy: tensors.
  T* saved_tensor() const { return static_cast<T*>(a.saved); }
  T* workspace_tensor() const { return static_cast<T*>(a.workspace); }
};

// Shapes as the kernels of a device have them; all have the same members in the same order.
template <class ConvShape>
ConvShape conv_shape(const StepView& s) {
  const auto& conv = s.spec<Conv2d>();
  return {s.in()[0],          s.in()[1],         s.in()[2],   s.out()[0],          s.out()[1],         s.out()[2],
          conv.kernel_height, conv.kernel_width, conv.stride, conv.padding_height, conv.padding_width, conv.groups};
}

template <class PoolShape>
PoolShape pool_shape(const StepView& s) {
  const auto& pool = s.spec<PoolSpec>();
  return {s.in()[0], s.in()[1], s.in()[2], s.out()[1], s.out()[2], pool.kernel, pool.stride, pool.padding};
}

// Where q, k and v lie in one, two or three tensors: number of the tensor, and the first value within its rows.
template <class AttentionShape>
struct AttentionPlaces {
  AttentionShape shape;
  std::array<std::size_t, 3> tensor;
  std::array<std::int64_t, 3> offset;
};
template <class AttentionShape>
AttentionPlaces<AttentionShape> attention_places(const StepView& s) {
  const auto& core = s.spec<AttentionCore>();
  const std::int64_t q = core.heads * core.key_size, k = core.key_heads * core.key_size;
  // The first queries would see no key, and a softmax over nothing is none. LayerBuilder makes no such layer.
  PP_CHECK(!core.causal || core.keys >= core.queries);
  AttentionPlaces<AttentionShape> places{};
  places.shape = {
      core.heads, core.key_heads, core.key_size, core.value_size, core.queries, core.keys, core.causal, 0, 0, 0};
  if (s.inputs() == 1) places.tensor = {0, 0, 0}, places.offset = {0, q, q + k};
  if (s.inputs() == 2) places.tensor = {0, 1, 1}, places.offset = {0, 0, k};
  if (s.inputs() == 3) places.tensor = {0, 1, 2}, places.offset = {0, 0, 0};
  places.shape.query_stride = width(s.in(places.tensor[0]));
  places.shape.key_stride = width(s.in(places.tensor[1]));
  places.shape.value_stride = width(s.in(places.tensor[2]));
  return places;
}

// Rows before the axis along which parts lie side by side (channels of an image, else the last), and the values of a
// part in each.
struct Side {
  std::int64_t rows, values;
};
inline Side side(const StepView& s, const Shape& shape) {
  return shape.rank == 3 ? Side{s.samples, count(shape)} : Side{s.rows(shape), width(shape)};
}

// Calls visit(first value in the tensor, first value in the part) for every run of `width(part)` values of a sample.
template <class Visit>
void for_slice(const Shape& whole, const Shape& part, const Visit& visit) {
  if (whole.rank != part.rank) return visit(0, 0);  // the sample's first values: a run of all
  std::int64_t to = 0;
  const std::int64_t runs = count(part) / width(part);
  for (std::int64_t run = 0; run < runs; ++run, to += width(part)) {
    std::int64_t rest = run, from = 0, stride = width(whole);
    for (int axis = whole.rank - 2; axis >= 0; --axis) {
      from += rest % part[axis] * stride;
      rest /= part[axis], stride *= whole[axis];
    }
    visit(from, to);
  }
}
inline std::int64_t slice_run(const Shape& whole, const Shape& part) {
  return whole.rank != part.rank ? count(part) : width(part);
}

}  // namespace pipewright::runtime::backends
