#include "tests/runtime/naive_forward.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.hpp"

namespace pipewright::tests::runtime_test {

namespace {

using Index = std::int64_t;

// One sample of a step.
struct Sample {
  const StepRunner<double>& run;
  Index number;

  const Shape& in(std::size_t i = 0) const {
    return run.program().tensors[static_cast<std::size_t>(run.step().inputs[i])].shape;
  }
  const Shape& out() const { return run.program().tensors[static_cast<std::size_t>(run.step().output)].shape; }
  static Index size(const Shape& shape) { return static_cast<Index>(shape.elements()); }
  double x(Index at, std::size_t i = 0) const { return run.x[i][number * size(in(i)) + at]; }
  double w(Index at, std::size_t i = 0) const { return i < run.w.size() ? run.w[i][at] : 0; }
  bool has(std::size_t i) const { return i < run.w.size(); }
  Index columns() const { return in()[in().rank - 1]; }
  Index rows() const { return size(in()) / columns(); }
};

double function(Activation kind, double x) {
  switch (kind) {
    case Activation::Relu: return std::max(x, 0.0);
    case Activation::Gelu: return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    case Activation::Silu: return x / (1 + std::exp(-x));
    case Activation::Tanh: return std::tanh(x);
    case Activation::Sigmoid: return 1 / (1 + std::exp(-x));
  }
  return 0;
}

std::vector<double> linear(const Sample& s) {
  std::vector<double> y;
  const Index out = s.out()[s.out().rank - 1];
  for (Index r = 0; r < s.rows(); ++r)
    for (Index o = 0; o < out; ++o) {
      double sum = s.w(o, 1);
      for (Index i = 0; i < s.columns(); ++i)
        sum += s.x(r * s.columns() + i) * s.w(o * s.columns() + i);
      y.push_back(sum);
    }
  return y;
}

std::vector<double> grouped_linear(const Sample& s, const GroupedLinear& g) {
  std::vector<double> y;
  const Index in = s.columns();
  for (Index r = 0; r < s.rows(); ++r)
    for (Index o = 0; o < g.features; ++o) {
      const Index output = r / (s.rows() / g.groups) * g.features + o;
      double sum = s.w(output, 1);
      for (Index i = 0; i < in; ++i)
        sum += s.x(r * in + i) * s.w(output * in + i);
      y.push_back(sum);
    }
  return y;
}

// Row `i` of an expert is that of copy q = i E + expert, of token q / k.
std::vector<double> dispatch(const Sample& s, const ExpertRows& e) {
  std::vector<double> y;
  const Index rows = s.in()[0] * e.active / e.experts, features = s.columns();
  for (Index expert = 0; expert < e.experts; ++expert)
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < features; ++j)
        y.push_back(s.x((i * e.experts + expert) / e.active * features + j));
  return y;
}

std::vector<double> combine(const Sample& s, const ExpertRows& e) {
  std::vector<double> y;
  const Index tokens = s.out()[0], rows = tokens * e.active / e.experts, features = s.columns();
  for (Index t = 0; t < tokens; ++t)
    for (Index j = 0; j < features; ++j) {
      double sum = 0;
      for (Index expert = 0; expert < e.experts; ++expert)
        for (Index i = 0; i < rows; ++i)
          if ((i * e.experts + expert) / e.active == t)
            sum += s.x(t * e.experts + expert, 1) * s.x((expert * rows + i) * features + j);
      y.push_back(sum);
    }
  return y;
}

std::vector<double> conv2d(const Sample& s, const Conv2d& c) {
  std::vector<double> y;
  const Index in_each = s.in()[0] / c.groups, out_each = c.channels / c.groups;
  for (Index o = 0; o < c.channels; ++o)
    for (Index oy = 0; oy < s.out()[1]; ++oy)
      for (Index ox = 0; ox < s.out()[2]; ++ox) {
        double sum = s.w(o, 1);
        for (Index i = 0; i < in_each; ++i)
          for (Index ky = 0; ky < c.kernel_height; ++ky)
            for (Index kx = 0; kx < c.kernel_width; ++kx) {
              const Index yy = oy * c.stride + ky - c.padding_height, xx = ox * c.stride + kx - c.padding_width;
              if (yy < 0 || yy >= s.in()[1] || xx < 0 || xx >= s.in()[2]) continue;
              const Index channel = o / out_each * in_each + i;
              sum += s.x((channel * s.in()[1] + yy) * s.in()[2] + xx) *
                     s.w(((o * in_each + i) * c.kernel_height + ky) * c.kernel_width + kx);
            }
        y.push_back(sum);
      }
  return y;
}

std::vector<double> attention(const Sample& s, const AttentionCore& c) {
  const std::size_t inputs = s.run.step().inputs.size();
  const Index q_all = c.heads * c.key_size, k_all = c.key_heads * c.key_size, v_all = c.key_heads * c.value_size;
  const auto query = [&](Index row, Index at) { return s.x(row * (inputs == 1 ? q_all + k_all + v_all : q_all) + at); };
  const auto key = [&](Index row, Index at) {
    if (inputs == 1) return s.x(row * (q_all + k_all + v_all) + q_all + at);
    return s.x(row * (inputs == 2 ? k_all + v_all : k_all) + at, 1);
  };
  const auto value = [&](Index row, Index at) {
    if (inputs == 1) return s.x(row * (q_all + k_all + v_all) + q_all + k_all + at);
    return inputs == 2 ? s.x(row * (k_all + v_all) + k_all + at, 1) : s.x(row * v_all + at, 2);
  };
  std::vector<double> y;
  for (Index i = 0; i < c.queries; ++i)
    for (Index head = 0; head < c.heads; ++head) {
      const Index shared = head / (c.heads / c.key_heads);
      std::vector<double> weight;
      for (Index j = 0; j < c.keys; ++j) {
        double score = 0;
        for (Index d = 0; d < c.key_size; ++d)
          score += query(i, head * c.key_size + d) * key(j, shared * c.key_size + d);
        const bool hidden = c.causal && j - (c.keys - c.queries) > i;
        weight.push_back(hidden ? 0 : std::exp(score / std::sqrt(static_cast<double>(c.key_size))));
      }
      const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
      for (Index d = 0; d < c.value_size; ++d) {
        double sum = 0;
        for (Index j = 0; j < c.keys; ++j)
          sum += weight[static_cast<std::size_t>(j)] / total * value(j, shared * c.value_size + d);
        y.push_back(sum);
      }
    }
  return y;
}

std::vector<double> norm(const Sample& s, const NormSpec& spec) {
  std::vector<double> y;
  const Index n = s.columns();
  for (Index r = 0; r < s.rows(); ++r) {
    double mean = 0, square = 0;
    for (Index j = 0; j < n; ++j)
      mean += spec.kind == Norm::Rms ? 0 : s.x(r * n + j) / static_cast<double>(n);
    for (Index j = 0; j < n; ++j)
      square += std::pow(s.x(r * n + j) - mean, 2) / static_cast<double>(n);
    for (Index j = 0; j < n; ++j)
      y.push_back((s.x(r * n + j) - mean) / std::sqrt(square + 1e-5) * (s.has(0) ? s.w(j) : 1) + s.w(j, 1));
  }
  return y;
}

std::vector<double> softmax(const Sample& s) {
  std::vector<double> y;
  for (Index r = 0; r < s.rows(); ++r) {
    double total = 0;
    for (Index j = 0; j < s.columns(); ++j)
      total += std::exp(s.x(r * s.columns() + j));
    for (Index j = 0; j < s.columns(); ++j)
      y.push_back(std::exp(s.x(r * s.columns() + j)) / total);
  }
  return y;
}

std::vector<double> cross_entropy(const Sample& s) {
  const std::vector<double> p = softmax(s);
  double loss = 0;
  for (Index r = 0; r < s.rows(); ++r)
    loss -= std::log(p[static_cast<std::size_t>(r * s.columns() + s.run.labels[s.number * s.rows() + r])]);
  return {loss / static_cast<double>(s.rows())};
}

std::vector<double> pool(const Sample& s, const PoolSpec& p) {
  std::vector<double> y;
  for (Index c = 0; c < s.in()[0]; ++c)
    for (Index oy = 0; oy < s.out()[1]; ++oy)
      for (Index ox = 0; ox < s.out()[2]; ++ox) {
        std::vector<double> window;
        for (Index ky = 0; ky < p.kernel; ++ky)
          for (Index kx = 0; kx < p.kernel; ++kx) {
            const Index yy = oy * p.stride + ky - p.padding, xx = ox * p.stride + kx - p.padding;
            if (yy >= 0 && yy < s.in()[1] && xx >= 0 && xx < s.in()[2])
              window.push_back(s.x((c * s.in()[1] + yy) * s.in()[2] + xx));
          }
        y.push_back(p.kind == Pool::Max
                        ? *std::max_element(window.begin(), window.end())
                        : std::accumulate(window.begin(), window.end(), 0.0) / static_cast<double>(window.size()));
      }
  return y;
}

std::vector<double> global_average_pool(const Sample& s) {
  std::vector<double> y;
  const Index plane = s.in()[1] * s.in()[2];
  for (Index c = 0; c < s.in()[0]; ++c) {
    double sum = 0;
    for (Index i = 0; i < plane; ++i)
      sum += s.x(c * plane + i);
    y.push_back(sum / static_cast<double>(plane));
  }
  return y;
}

std::vector<double> concat(const Sample& s) {
  std::vector<double> y;
  const bool image = s.out().rank == 3;
  const Index rows = image ? 1 : Sample::size(s.out()) / s.out()[s.out().rank - 1];
  for (Index r = 0; r < rows; ++r)
    for (std::size_t i = 0; i < s.run.step().inputs.size(); ++i)
      for (Index j = 0; j < Sample::size(s.in(i)) / rows; ++j)
        y.push_back(s.x(r * (Sample::size(s.in(i)) / rows) + j, i));
  return y;
}

std::vector<double> slice(const Sample& s) {
  std::vector<double> y;
  for (Index i = 0; i < Sample::size(s.out()); ++i) {
    Index rest = i, from = 0, stride = 1;
    for (int axis = s.out().rank - 1; axis >= 0; --axis) {
      from += rest % s.out()[axis] * stride;
      rest /= s.out()[axis], stride *= s.in()[axis];
    }
    y.push_back(s.x(s.in().rank == s.out().rank ? from : i));
  }
  return y;
}

template <class F>
std::vector<double> per_value(const Sample& s, const F& f) {
  std::vector<double> y;
  for (Index i = 0; i < Sample::size(s.out()); ++i)
    y.push_back(f(i));
  return y;
}

std::vector<double> of_sample(const Sample& s) {
  const ProgramStep& step = s.run.step();
  const std::string_view name = step.operation;
  const Index features = s.out()[s.out().rank - 1];
  if (name == "linear") return linear(s);
  if (const auto* spec = std::get_if<GroupedLinear>(&step.spec)) return grouped_linear(s, *spec);
  if (name == "dispatch") return dispatch(s, std::get<ExpertRows>(step.spec));
  if (name == "combine") return combine(s, std::get<ExpertRows>(step.spec));
  if (const auto* conv = std::get_if<Conv2d>(&step.spec)) return conv2d(s, *conv);
  if (const auto* core = std::get_if<AttentionCore>(&step.spec)) return attention(s, *core);
  if (const auto* spec = std::get_if<NormSpec>(&step.spec)) return norm(s, *spec);
  if (const auto* spec = std::get_if<PoolSpec>(&step.spec)) return pool(s, *spec);
  if (const auto* kind = std::get_if<Activation>(&step.spec))
    return per_value(s, [&](Index i) { return function(*kind, s.x(i)); });
  if (const auto* gate = std::get_if<GatedActivation>(&step.spec))
    return per_value(s, [&](Index i) {
      const Index at = i / features * 2 * features + i % features;
      return function(gate->kind, s.x(at)) * s.x(at + features);
    });
  if (name == "embedding")
    return per_value(
        s, [&](Index i) { return s.w(s.run.tokens[s.number * s.in()[0] + i / features] * features + i % features); });
  if (name == "learned_table") return per_value(s, [&](Index i) { return s.x(i) + s.w(i); });
  if (name == "add") return per_value(s, [&](Index i) { return s.x(i) + s.x(i, 1); });
  if (name == "multiply") return per_value(s, [&](Index i) { return s.x(i) * s.x(i, 1); });
  if (name == "image_to_tokens")
    return per_value(s, [&](Index i) { return s.x(i % features * s.out()[0] + i / features); });
  if (name == "softmax") return softmax(s);
  if (name == "cross_entropy") return cross_entropy(s);
  if (name == "global_average_pool") return global_average_pool(s);
  if (name == "concat") return concat(s);
  if (name == "slice") return slice(s);
  PP_CHECK(false);
  return {};
}

}  // namespace

std::vector<double> naive_forward(const StepRunner<double>& run) {
  std::vector<double> y;
  for (std::int64_t sample = 0; sample < run.samples(); ++sample)
    for (const double value : of_sample({run, sample}))
      y.push_back(value);
  return y;
}

}  // namespace pipewright::tests::runtime_test
