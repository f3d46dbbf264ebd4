#include "core/cost/profile.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace pipewright {
namespace {

std::string joined(const Shape& shape) {
  std::string text;
  for (int i = 0; i < shape.rank; ++i)
    text += (i > 0 ? "x" : "") + std::to_string(shape[i]);
  return text;
}

std::string number(std::int64_t value) {
  return std::to_string(value);
}

struct Settings {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(const Conv2d& c) const {
    return " kernel " + number(c.kernel_height) + "x" + number(c.kernel_width) + " stride " + number(c.stride) +
           " padding " + number(c.padding_height) + "x" + number(c.padding_width) +
           (c.groups > 1 ? " groups " + number(c.groups) : "") + (c.bias ? " bias" : "");
  }
  std::string operator()(const Linear& l) const { return l.bias ? " bias" : ""; }
  std::string operator()(const AttentionCore& a) const {
    return " heads " + number(a.heads) + "/" + number(a.key_heads) + " of " + number(a.key_size) + "/" +
           number(a.value_size) + (a.causal ? " causal" : "") + (a.window > 0 ? " window " + number(a.window) : "") +
           (a.flash ? " flash" : "");
  }
  std::string operator()(const NormSpec& n) const {
    return std::string(n.affine ? " affine" : "") + (n.bias ? " bias" : "");
  }
  std::string operator()(const PoolSpec& p) const {
    return " kernel " + number(p.kernel) + " stride " + number(p.stride) + " padding " + number(p.padding);
  }
  std::string operator()(const Activation&) const { return ""; }
  std::string operator()(const GatedActivation& g) const { return " kind " + number(static_cast<int>(g.kind)); }
  std::string operator()(const Embedding& e) const { return " vocabulary " + number(e.vocabulary); }
  std::string operator()(const LearnedTable& t) const { return " rows " + number(t.rows); }
  std::string operator()(const Lstm& l) const { return " hidden " + number(l.hidden); }
};

}  // namespace

Time LinearTime::at(double amount) const {
  return {std::llround(std::clamp(fixed_ns + ns_per_unit * amount, 0.0, 9e18))};
}

std::string describe(const Program& program) {
  std::string text;
  for (const ProgramStep& step : program.steps) {
    text += (text.empty() ? "" : "; ") + std::string(step.operation);
    for (const std::int32_t input : step.inputs) {
      const ProgramTensor& tensor = program.tensors[static_cast<std::size_t>(input)];
      text += " " + joined(tensor.shape) + (tensor.needs_gradient ? "" : "!");  // !: no gradient is asked for
    }
    text += " -> " + joined(program.tensors[static_cast<std::size_t>(step.output)].shape);
    text += std::visit(Settings{}, step.spec);
  }
  return text.empty() ? "nothing" : text;
}

const LinearTime* find_update(const MachineProfile& profile, Optimizer optimizer) {
  for (const UpdateTime& update : profile.updates)
    if (update.optimizer == optimizer) return &update.by_parameters;
  return nullptr;
}

const LayerTimes* find_times(const MachineProfile& profile, std::string_view key, std::int64_t samples) {
  const auto found = std::lower_bound(
      profile.layers.begin(), profile.layers.end(), std::pair(key, samples), [](const LayerTimes& a, const auto& b) {
        return std::tuple(std::string_view(a.key), a.samples) < std::tuple(b.first, b.second);
      });
  return found != profile.layers.end() && found->key == key && found->samples == samples ? &*found : nullptr;
}

}  // namespace pipewright
