#include "core/question/profile.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>

namespace pipewright::core {
namespace {

std::string joined(const Shape& shape) {
  std::string text;
  for (int i = 0; i < shape.rank; ++i)
    text += (i > 0 ? "x" : "") + std::to_string(shape[i]);
  return text;
}

struct Settings {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(const Conv2d& c) const {
    return " kernel " + std::to_string(c.kernel_height) + "x" + std::to_string(c.kernel_width) + " stride " +
           std::to_string(c.stride) + " padding " + std::to_string(c.padding_height) + "x" +
           std::to_string(c.padding_width) + (c.groups > 1 ? " groups " + std::to_string(c.groups) : "") +
           (c.bias ? " bias" : "");
  }
  std::string operator()(const Linear& l) const { return l.bias ? " bias" : ""; }
  std::string operator()(const AttentionCore& a) const {
    return " heads " + std::to_string(a.heads) + "/" + std::to_string(a.key_heads) + " of " +
           std::to_string(a.key_size) + "/" + std::to_string(a.value_size) + (a.causal ? " causal" : "") +
           (a.window > 0 ? " window " + std::to_string(a.window) : "") + (a.flash ? " flash" : "") +
           (a.parts > 1 ? " in parts " + std::to_string(a.parts) : "");
  }
  std::string operator()(const NormSpec& n) const {
    return std::string(n.affine ? " affine" : "") + (n.bias ? " bias" : "");
  }
  std::string operator()(const PoolSpec& p) const {
    return " kernel " + std::to_string(p.kernel) + " stride " + std::to_string(p.stride) + " padding " +
           std::to_string(p.padding);
  }
  std::string operator()(const Activation&) const { return ""; }
  std::string operator()(const GatedActivation& g) const { return " kind " + std::to_string(static_cast<int>(g.kind)); }
  std::string operator()(const Embedding& e) const { return " vocabulary " + std::to_string(e.vocabulary); }
  std::string operator()(const LearnedTable& t) const { return " rows " + std::to_string(t.rows); }
  std::string operator()(const ExpertRows& e) const {
    return " experts " + std::to_string(e.active) + "/" + std::to_string(e.experts);
  }
  std::string operator()(const GroupedLinear& g) const {
    return " groups " + std::to_string(g.groups) + (g.bias ? " bias" : "");
  }
  std::string operator()(const RowExchange& e) const {
    return " experts " + std::to_string(e.experts) + " on " + std::to_string(e.devices);
  }
  std::string operator()(const Lstm& l) const { return " hidden " + std::to_string(l.hidden); }
};

bool has_all(const MachineProfile& profile, const Model& model, int slices) {
  std::set<std::string, std::less<>> known;
  for (const LayerTimes& times : profile.layers)
    known.insert(times.key);
  return std::ranges::all_of(model.layers, [&](const Layer& layer) {
    const Program* const program = layer.work < 0 ? nullptr : model.works[at(layer.work)].program.get();
    if (program == nullptr) return true;
    const std::string key = describe(*program);
    for (int slice = 0; slice < slices; ++slice)
      if (!known.contains(key_of_slice(key, slice, slices))) return false;
    return slices > 0 || known.contains(key);
  });
}

}  // namespace

Time LinearTime::at(double amount) const {
  return {std::llround(std::clamp(fixed_ns + ns_per_unit * amount, 0.0, 9e18))};
}

std::string describe(const Program& program) {
  std::string text;
  for (const ProgramStep& step : program.steps) {
    text += (text.empty() ? "" : "; ") + std::string(step.operation);
    for (const std::int32_t input : step.inputs) {
      const ProgramTensor& tensor = program.tensors[at(input)];
      text += " " + joined(tensor.shape) + (tensor.needs_gradient ? "" : "!");  // !: no gradient is asked for
    }
    text += " -> " + joined(program.tensors[at(step.output)].shape);
    text += std::visit(Settings{}, step.spec);
  }
  return text.empty() ? "nothing" : text;
}

std::string other_backend(const MachineProfile& profile, std::string_view backend) {
  if (profile.backend == backend) return "";
  return "profile \"" + profile.name + "\" holds times of backend " + profile.backend + " (" +
         profile.machine.processor + "), and run.backend is " + std::string(backend) +
         ": they price no run of it; calibrate with --backend " + std::string(backend) + ", or run with --backend " +
         profile.backend;
}

std::string other_precision(const MachineProfile& profile, Precision precision) {
  constexpr std::array<std::string_view, 4> names = {"fp32", "tf32", "fp16", "bf16"};
  if (profile.precision == precision) return "";
  const std::string measured(names.at(at(profile.precision)));
  const std::string asked(names.at(at(precision)));
  return "profile \"" + profile.name + "\" holds times in " + measured + ", and training.precision is " + asked +
         ": they price no run of it; calibrate in " + asked + ", or set training.precision=" + measured;
}

std::string key_of_slice(std::string_view key, int slice, int slices) {
  return std::string(key) + "; slice " + std::to_string(slice) + " of " + std::to_string(slices);
}

bool has_layers(const MachineProfile& profile, const Model& model) {
  return has_all(profile, model, 0);
}
bool has_slices(const MachineProfile& profile, const Model& model, int slices) {
  return has_all(profile, model, slices);
}

const LinearTime* find_update(const MachineProfile& profile, Optimizer optimizer) {
  for (const UpdateTime& update : profile.updates)
    if (update.optimizer == optimizer) return &update.by_parameters;
  return nullptr;
}

const LayerTimes* find_times(const MachineProfile& profile, std::string_view key, std::int64_t samples, int active) {
  const auto found = std::lower_bound(
      profile.layers.begin(), profile.layers.end(), std::tuple(key, samples, active),
      [](const LayerTimes& a, const auto& b) { return std::tuple(std::string_view(a.key), a.samples, a.active) < b; });
  return found != profile.layers.end() && found->key == key && found->samples == samples && found->active == active
             ? &*found
             : nullptr;
}

std::vector<int> loads_of(const MachineProfile& profile) {
  std::set<int> loads;
  for (const LayerTimes& times : profile.layers)
    if (times.active > 0) loads.insert(times.active);
  return {loads.begin(), loads.end()};
}

std::string loads_text(const MachineProfile& profile) {
  std::vector<int> loads = loads_of(profile);
  if (loads.empty() || loads.back() < profile.active) loads.push_back(profile.active);
  std::string text = "ops as measured while ";
  for (std::size_t i = 0; i < loads.size(); ++i)
    text += (i == 0 ? "" : i + 1 == loads.size() ? " or " : ", ") + std::to_string(loads[i]);
  return text + " of " + std::to_string(profile.active) +
         " workers worked; sharing of memory bandwidth is not modelled in addition";
}

const LinearTime* find_all_reduce(const MachineProfile& profile, int members) {
  for (const AllReduceTime& time : profile.all_reduces)
    if (time.members == members) return &time.by_bytes;
  return nullptr;
}

double SizeFit::relative_error(double samples) const {
  const double time = line.at(samples);
  if (!(time > 0)) return 0;
  const double variance = inverse[0] + 2 * samples * inverse[1] + samples * samples * inverse[2];
  return sigma * std::sqrt(std::max(0.0, variance)) / time;
}

SizeFit fit_sizes(const std::vector<std::pair<double, double>>& points, double sigma) {
  // Rows (1, s) / t against 1: what is least is the sum of the squared relative errors.
  double a = 0, b = 0, c = 0, u = 0, v = 0;
  for (const auto& [samples, ns] : points) {
    a += 1 / (ns * ns), b += samples / (ns * ns), c += samples * samples / (ns * ns);
    u += 1 / ns, v += samples / ns;
  }
  const double determinant = a * c - b * b;
  SizeFit fit;
  fit.sigma = sigma;
  if (determinant > 0) fit.line = {(u * c - b * v) / determinant, (a * v - b * u) / determinant};
  std::size_t free = 2;
  if (determinant > 0 && fit.line.fixed_ns >= 0 && fit.line.ns_per_sample >= 0) {
    fit.inverse[0] = c / determinant, fit.inverse[1] = -b / determinant, fit.inverse[2] = a / determinant;
  } else if (fit.line.ns_per_sample >= 0) {  // no fixed part
    fit.line = {0, v / c}, fit.inverse[2] = 1 / c, free = 1;
  } else {
    fit.line = {u / a, 0}, fit.inverse[0] = 1 / a, free = 1;
  }
  double squares = 0;
  for (const auto& [samples, ns] : points)
    squares += (fit.line.at(samples) / ns - 1) * (fit.line.at(samples) / ns - 1);
  if (points.size() > free) fit.sigma = std::max(sigma, std::sqrt(squares / static_cast<double>(points.size() - free)));
  return fit;
}

BeyondMeasured beyond_measured(const MachineProfile& profile, const Model& model, std::int64_t samples, int slices) {
  BeyondMeasured beyond;
  double sum = 0, off = 0;
  for (const Layer& layer : model.layers) {
    if (layer.work < 0) continue;
    const Program* const program = model.works[at(layer.work)].program.get();
    if (program == nullptr) continue;
    const std::string key = slices > 1 ? key_of_slice(describe(*program), slices - 1, slices) : describe(*program);
    std::vector<const LayerTimes*> known;
    for (const LayerTimes& times : profile.layers)
      if (times.active == 0 && times.key == key) known.push_back(&times);
    if (known.empty()) continue;
    if (known.front()->samples <= samples && samples <= known.back()->samples) {
      // The next size that was measured: what it weighs among the layers, not what it costs.
      const auto next = std::ranges::find_if(known, [&](const LayerTimes* t) { return t->samples >= samples; });
      sum += static_cast<double>(((*next)->forward + (*next)->input_gradient + (*next)->weight_gradient).value) *
             static_cast<double>(samples) / static_cast<double>((*next)->samples);
      continue;
    }
    if (known.size() < 2) continue;
    ++beyond.layers;
    beyond.smallest = known.front()->samples, beyond.largest = known.back()->samples;
    for (const Time LayerTimes::*pass :
         {&LayerTimes::forward, &LayerTimes::input_gradient, &LayerTimes::weight_gradient}) {
      std::vector<std::pair<double, double>> points;
      for (const LayerTimes* const times : known)
        if ((times->*pass).value > 0)
          points.emplace_back(static_cast<double>(times->samples), static_cast<double>((times->*pass).value));
      if (points.size() < 2) continue;
      const SizeFit fit = fit_sizes(points, profile.independent_error);
      const double ns = fit.line.at(static_cast<double>(samples));
      sum += ns, off += ns * fit.relative_error(static_cast<double>(samples));
    }
  }
  beyond.error = sum > 0 ? off / sum : 0;
  return beyond;
}

}  // namespace pipewright::core
