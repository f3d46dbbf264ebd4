// Layer times as `calibrate` measured them, by what a layer computes and the size of the micro-batch. Messages are made
// by the workers themselves: the sender's copy and the receiver's first read lengthen their ops.
//
// A size of micro-batch that was not measured, between two that were, lies on the line through them:
//
//     t(s) = t(a) + (t(b) - t(a)) (s - a) / (b - a),  a < s < b           100 ns at 2, 160 at 8: 120 at 4
// Beyond them it lies on the line through all of them, `fit_sizes`; the report says so, and the error bar is wider.
//
//     F(v) = sum of its layers' forwards + op overhead + first read(bytes in) + send(bytes out);   likewise backwards
//
// Attention over sequences that c devices share (plan.context_parallel) was measured as c kernels over keys that were
// there. Its exchanges round a ring [RingAttention23] come in addition. Of K bytes of a device's own keys and values, with
// move(b) = send(b) + first read(b), and link(b) of ideal links 0:
//
//     forward    c - 1 times move(K), and what of link(K) + handoff a kernel does not hide: sent before it, read behind it
//     backward   c - 1 times move(2 K) + link(2 K) + handoff, for the gradients go along, behind the kernel that they
//                wait for; at last the gradients alone: move(K) + link(K) + handoff
//     c = 2, K = 1 KiB, a byte 10 ns to send and 1 to read, handoff 500 ns: 11.264 us; 23.028 us and 11.764 us
//                                                             tests/core/profile_test.cpp "ring"
//
// Rows of experts on e devices (plan.expert_parallel) pass two exchanges in a forward and two in a backward. In each a device
// sends e - 1 messages and reads as many, of b bytes, of what it computes (e - 1) / e:
//
//     (e - 1) move(b) + link + handoff      e = 2, b = 512 B, the figures above: 5632 + 500 ns, each way
//                                                             tests/core/profile_test.cpp "experts"
//
// Slices of a sequence (plan.slices, of equal tokens) were measured one by one. A layer takes their sum, and what attention has
// of it follows from how they grow (core/cost/slices.hpp). They have no prices by load.
//
// Tests: tests/core/profile_test.cpp
#include "core/question/profile.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/cost/context_exchange.hpp"
#include "core/cost/cost_model.hpp"
#include "core/cost/expert_exchange.hpp"
#include "core/cost/slices.hpp"
#include "core/model/each_device.hpp"

namespace pipewright::core {
namespace {

// Of the nearest measured sizes on both sides; nothing where there is none on one of them.
std::optional<CostSource::Passes> between(const MachineProfile& profile, std::string_view key, std::int64_t samples,
                                          int active) {
  const LayerTimes* below = nullptr;
  const LayerTimes* above = nullptr;
  for (const LayerTimes& times : profile.layers) {
    if (times.key != key || times.active != active) continue;
    if (times.samples < samples && (below == nullptr || times.samples > below->samples)) below = &times;
    if (times.samples > samples && (above == nullptr || times.samples < above->samples)) above = &times;
  }
  if (below == nullptr || above == nullptr) return std::nullopt;
  const double share =
      static_cast<double>(samples - below->samples) / static_cast<double>(above->samples - below->samples);
  const auto at = [&](Time a, Time b) {
    return Time{a.value + std::llround(share * static_cast<double>(b.value - a.value))};
  };
  return CostSource::Passes{at(below->forward, above->forward),
                            at(below->input_gradient, above->input_gradient),
                            at(below->weight_gradient, above->weight_gradient),
                            {},
                            {}};
}

// By the line through all measured sizes; nothing where there are fewer than two.
std::optional<CostSource::Passes> beyond(const MachineProfile& profile, std::string_view key, std::int64_t samples,
                                         int active) {
  const auto pass = [&](Time LayerTimes::*member) -> std::optional<Time> {
    std::vector<std::pair<double, double>> points;
    std::size_t sizes = 0;
    for (const LayerTimes& times : profile.layers) {
      if (times.key != key || times.active != active) continue;
      ++sizes;
      if (const Time time = times.*member; time > Time{})
        points.emplace_back(static_cast<double>(times.samples), static_cast<double>(time.value));
    }
    if (sizes < 2) return std::nullopt;
    if (points.size() < 2) return Time{};  // a pass that takes no time
    const double ns = fit_sizes(points, profile.independent_error).line.at(static_cast<double>(samples));
    return Time{std::llround(std::min(ns, 9e18))};
  };
  const auto forward = pass(&LayerTimes::forward), input = pass(&LayerTimes::input_gradient),
             weight = pass(&LayerTimes::weight_gradient);
  if (!forward) return std::nullopt;
  return CostSource::Passes{*forward, *input, *weight, {}, {}};
}

class Measured final : public CostSource {
 public:
  Measured(const Scenario& scenario, const Topology& topology)
      : scenario_(scenario), profile_(*scenario.profile), context_(scenario, topology), tokens_(scenario, topology) {
    if (context_.divides() || experts() > 1 || slices() > 0)
      of_each_ = of_each_device(scenario.model, context_.degree(), static_cast<int>(experts()), slices());
    for (const Work& work : (of_each_ ? *of_each_ : scenario.model).works)
      keys_.push_back(work.program.get() != nullptr && !work.frozen ? describe(*work.program.get()) : "");
  }

  Passes price(const Model& model, LayerId id, std::int64_t samples) const override {
    return price_at(model, id, samples, 0);
  }
  // The last is that of the times without a load of their own.
  std::vector<int> loads() const override {
    if (slices() > 0) return {};
    std::vector<int> loads = loads_of(profile_);
    if (!loads.empty() && loads.back() < profile_.active) loads.push_back(profile_.active);
    return loads;
  }
  // A layer that was not measured with so few busy takes what it takes with the next larger number, at last all.
  Passes price_at(const Model& model, LayerId id, std::int64_t samples, int active) const override {
    const Layer& layer = model.layers[id];
    if (layer.work < 0)
      throw InputError(layer.place, "layer \"" + layer.name +
                                        "\" has stated figures only, and a profile prices what it "
                                        "measured; give the layer an `op:`, or use cost: explicit");
    const auto work = static_cast<std::size_t>(layer.work);
    const std::string& key = keys_[work];
    if (const auto passes = slices() > 0 ? sum_of_slices(key, samples) : measured(key, samples, active))
      return with_exchanges(with_rings(*passes, model.works[work], samples), model.works[work], samples);
    if (active == 0) refuse(layer, key, samples);
    const std::vector<int> measured = loads_of(profile_);
    const auto more = std::upper_bound(measured.begin(), measured.end(), active);
    return price_at(model, id, samples, more == measured.end() ? 0 : *more);
  }

  Time op_overhead() const override { return profile_.op_overhead; }
  Time update(std::int64_t parameters) const override {
    if (parameters == 0) return {};
    const LinearTime* const time = find_update(profile_, scenario_.training.optimizer);
    if (time == nullptr)
      throw InputError(scenario_.model.place, "training.optimizer",
                       "its step was not measured in profile \"" + profile_.name +
                           "\"; calibrate with this scenario: pipewright calibrate SCENARIO");
    return time->at(static_cast<double>(parameters));
  }
  Time sending(Bytes bytes) const override { return profile_.send.at(static_cast<double>(bytes.value)); }
  Time first_reading(Bytes bytes) const override { return profile_.first_read.at(static_cast<double>(bytes.value)); }
  Time handing_over() const override { return profile_.handoff; }

  std::optional<Time> all_reduce(int members, Bytes bytes) const override {
    const LinearTime* const time = find_all_reduce(profile_, members);
    if (time == nullptr) return std::nullopt;
    return time->at(static_cast<double>(bytes.value));
  }
  std::string caution(const Model& model, std::int64_t samples) const override {
    const BeyondMeasured b = beyond_measured(profile_, of_each_ ? *of_each_ : model, samples, std::max(1, slices()));
    if (b.layers == 0) return "";
    return std::to_string(b.layers) + " layers were measured for micro-batches of " + std::to_string(b.smallest) +
           " to " + std::to_string(b.largest) + " samples and are priced at " + std::to_string(samples) +
           " by the line through those sizes, +- " + std::to_string(std::llround(1000 * 1.645 * b.error) / 10) + "." +
           std::to_string(std::llround(1000 * 1.645 * b.error) % 10) +
           " % (90 %); calibrate --sizes with that size to know";
  }

  AttentionShares attention_shares(const Work& work, std::int64_t samples) const override {
    if (slices() == 0) return CostSource::attention_shares(work, samples);
    const auto place = static_cast<std::size_t>(&work - scenario_.model.works.data());
    PP_CHECK(place < keys_.size());
    const std::string& key = keys_[place];
    std::vector<double> forward, input;
    for (int slice = 0; slice < slices(); ++slice) {
      const auto passes = measured(key_of_slice(key, slice, slices()), samples, 0).value_or(Passes{});
      forward.push_back(static_cast<double>(passes.forward.value));
      input.push_back(static_cast<double>(passes.backward_input.value));
    }
    return {attention_share_of(work, forward), attention_share_of(work, input)};
  }

  std::string provenance() const override { return "layer times: " + profile_.source + "; " + loads_text(profile_); }

 private:
  // A whole sequence takes what its slices take.
  std::optional<Passes> sum_of_slices(const std::string& key, std::int64_t samples) const {
    Passes sum{};
    for (int slice = 0; slice < slices(); ++slice) {
      const auto one = measured(key_of_slice(key, slice, slices()), samples, 0);
      if (!one) return std::nullopt;
      sum.forward += one->forward, sum.backward_input += one->backward_input;
      sum.backward_weight += one->backward_weight;
    }
    return sum;
  }
  std::optional<Passes> measured(const std::string& key, std::int64_t samples, int active) const {
    if (const LayerTimes* const times = find_times(profile_, key, samples, active))
      return Passes{times->forward, times->input_gradient, times->weight_gradient, {}, {}};
    if (auto passes = between(profile_, key, samples, active)) return passes;
    return beyond(profile_, key, samples, active);
  }

  Passes with_rings(Passes passes, const Work& work, std::int64_t samples) const {
    if (!context_.divides()) return passes;
    const auto move = [&](double bytes) {
      return static_cast<double>((profile_.send.at(bytes) + profile_.first_read.at(bytes)).value);
    };
    const double hops = context_.degree() - 1, handoff = static_cast<double>(profile_.handoff.value);
    const double attentions = attention_shares(work, samples).forward * static_cast<double>(passes.forward.value);
    double flops = 0;
    for (const Operator& op : work.operators)
      flops += op.attention.heads > 0 ? op.forward_flops : 0;
    const auto value_bytes = static_cast<double>(weight_bytes(scenario_.training.precision).value);
    double forward = 0, backward = 0;
    for (const Operator& op : work.operators) {
      if (op.attention.heads <= 0) continue;
      const double keys = context_tensors(op, scenario_.plan, static_cast<double>(samples), value_bytes).keys;
      const double kernel = flops > 0 ? attentions * op.forward_flops / flops / context_.degree() : 0;
      forward += hops * (move(keys) + std::max(0.0, context_.hop(keys) + handoff - kernel));
      backward +=
          hops * (move(2 * keys) + context_.hop(2 * keys) + handoff) + move(keys) + context_.hop(keys) + handoff;
    }
    passes.forward += Time{std::llround(std::min(forward, 9e18))};
    passes.backward_input += Time{std::llround(std::min(backward, 9e18))};
    return passes;
  }

  // That were measured one by one; 0: sequences are whole, or cut by FLOPs.
  int slices() const { return scenario_.plan.uneven_slices() ? static_cast<int>(scenario_.plan.slices->value) : 0; }
  std::int64_t experts() const { return scenario_.plan.split().experts; }
  // Bytes and the time to move them do not differ between the passes: what is sent back are gradients of as many values.
  Passes with_exchanges(Passes passes, const Work& work, std::int64_t samples) const {
    if (!tokens_.any()) return passes;
    const auto value_bytes = static_cast<double>(weight_bytes(scenario_.training.precision).value);
    double all = 0;
    for (const Operator& op : work.operators) {
      if (op.sent.tokens <= 0) continue;
      const double tokens = op.sent.tokens * static_cast<double>(samples), row = op.sent.features * value_bytes;
      const auto others = static_cast<double>(experts() - 1);
      const double message = tokens * op.sent.active * row / static_cast<double>(experts());
      const auto moved = static_cast<double>((profile_.send.at(message) + profile_.first_read.at(message)).value);
      all += others * moved + tokens_.time(op.sent, tokens, row) + static_cast<double>(profile_.handoff.value);
    }
    passes.forward += Time{std::llround(std::min(all, 9e18))};
    passes.backward_input += Time{std::llround(std::min(all, 9e18))};
    return passes;
  }

  [[noreturn]] void refuse(const Layer& layer, const std::string& key, std::int64_t samples) const {
    std::string sizes;
    std::set<std::int64_t> known;
    for (const LayerTimes& times : profile_.layers)
      if (times.key == key) known.insert(times.samples);
    for (const std::int64_t size : known)
      sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
    throw InputError(
        layer.place,
        "layer \"" + layer.name + "\" was not measured for micro-batches of " + std::to_string(samples) + " samples" +
            (sizes.empty() ? "" : " (measured: " + sizes + ")") + " in profile \"" + profile_.name +
            "\"; calibrate with this scenario: pipewright calibrate SCENARIO, with --sizes for more sizes");
  }

  const Scenario& scenario_;
  const MachineProfile& profile_;
  ContextAttention context_;
  TokenExchange tokens_;
  std::optional<Model> of_each_;   // where devices divide sequences, or hold experts of their own
  std::vector<std::string> keys_;  // by work
};

}  // namespace

std::unique_ptr<CostSource> measured_profile(const Scenario& scenario, int device_class, const Topology& topology) {
  if (!scenario.profile) throw InputError(scenario.model.place, "cost", "no profile was read");
  if (device_class > 0)
    throw InputError(scenario.cluster.place, "cost",
                     "a profile holds for one class of devices; use cost: roofline for " +
                         scenario.cluster.device_of(device_class).name);
  // A scenario that says nothing of runs is priced for whatever was measured.
  if (scenario.run.place != Place{})
    if (const std::string why =
            other_backend(*scenario.profile, scenario.run.backend == RunBackend::Cuda ? "cuda" : "cpu");
        !why.empty())
      throw InputError(scenario.run.place, "cost", why);
  if (const std::string why = other_precision(*scenario.profile, scenario.training.precision); !why.empty())
    throw InputError(scenario.training.place, "cost", why);
  return std::make_unique<Measured>(scenario, topology);
}

}  // namespace pipewright::core
