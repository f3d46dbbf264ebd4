#include "core/cost/slices.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/cost/context_exchange.hpp"

namespace pipewright::core {
double attention_of_first(const Work& work, double part) {
  double first = 0, all = 0;
  for (const Operator& op : work.operators) {
    const AttentionShape& shape = op.attention;
    if (shape.heads <= 0) continue;
    first += op.forward_flops * pairs_of(shape, 0, part * shape.queries) / pairs_of(shape, 0, shape.queries);
    all += op.forward_flops;
  }
  return all > 0 ? first / all : part;
}

double attention_share_of(const Work& work, const std::vector<double>& slices) {
  const auto count = static_cast<double>(slices.size());
  double all = 0, above = 0, below = 0;
  for (const double slice : slices)
    all += slice;
  for (std::size_t i = 0; i < slices.size() && all > 0; ++i) {
    const auto end = [&](std::size_t of) { return attention_of_first(work, static_cast<double>(of) / count); };
    const double more = end(i + 1) - end(i) - 1 / count;
    above += (slices[i] / all - 1 / count) * more, below += more * more;
  }
  return below > 0 ? std::clamp(above / below, 0.0, 1.0) : 0;
}

namespace {

// A slice of equal tokens, between two ends of the sequence.
struct EvenSlice {
  CostSource::AttentionShares shares;   // of the layer
  double begin = 0, end = 0;            // in tokens, of all
  double work_begin = 0, work_end = 0;  // in attention's work, of all

  Time of(Time pass, double attention) const {
    const auto at = [&](double tokens, double work) -> std::int64_t {
      if (tokens >= 1) return pass.value;
      return std::llround(static_cast<double>(pass.value) * ((1 - attention) * tokens + attention * work));
    };
    return Time{at(end, work_end) - at(begin, work_begin)};
  }
};

EvenSlice even_slice(const Work* work, const CostSource& source, std::int64_t samples, int slice, std::int64_t slices) {
  EvenSlice even;
  const auto end = [&](int i) { return static_cast<double>(i) / static_cast<double>(slices); };
  even.begin = even.work_begin = end(slice), even.end = even.work_end = end(slice + 1);
  if (work == nullptr) return even;
  even.shares = source.attention_shares(*work, samples);
  even.work_begin = attention_of_first(*work, even.begin), even.work_end = attention_of_first(*work, even.end);
  return even;
}

// The host issues as much for a slice as for all of them, and the device, whose kernels are shorter, waits for it at least
// as long.
KernelQueue queue_of_slice(const KernelQueue& whole, Time device) {
  const auto shorter = [&](Time late) { return std::max(Time{}, late - whole.device + device); };
  return {whole.host,
          device,
          std::max(whole.host, whole.end - whole.device + device),
          whole.waits,
          whole.waits ? shorter(whole.late_host) : Time{},
          whole.waits ? std::max(device, shorter(whole.late_device)) : Time{}};
}

void cut_times(LayerCosts& costs, const Scenario& scenario, const CostSource& source, std::int64_t samples, int slice) {
  const Model& model = scenario.model;
  std::vector<std::optional<EvenSlice>> by_work(model.works.size());
  for (LayerId i = 0; i < std::ssize(model.layers); ++i) {
    const int work = model.layers[i].work;
    const auto cut = [&](const Work* of) {
      return even_slice(of, source, samples, slice, scenario.plan.slices->value);
    };
    EvenSlice even;
    if (work < 0) {
      even = cut(nullptr);
    } else {
      std::optional<EvenSlice>& known = by_work[static_cast<std::size_t>(work)];
      if (!known) known = cut(&model.works[static_cast<std::size_t>(work)]);
      even = *known;
    }
    const double forward = even.shares.forward;
    // A forward that is repeated in part repeats its attention.
    const double again = costs.again[i] > Time{} ? std::min(1.0, forward * ratio(costs.forward[i], costs.again[i])) : 0;
    costs.again[i] = even.of(costs.again[i], again);
    costs.forward[i] = even.of(costs.forward[i], forward);
    costs.backward_input[i] = even.of(costs.backward_input[i], even.shares.input);
    costs.backward_weight[i] = even.of(costs.backward_weight[i], 0);
    costs.apart[i] = even.of(costs.apart[i], 0);
    costs.rebuild[i] = even.of(costs.rebuild[i], 0);  // of modules beside attention that one kernel does
  }
}

}  // namespace

CostSource::AttentionShares CostSource::attention_shares(const Work& work, std::int64_t) const {
  double forward = 0, input = 0, all_forward = 0, all_input = 0;
  for (const Operator& op : work.operators) {
    const double of_input = op.input_flops + op.rebuilt_flops;
    all_forward += op.forward_flops, all_input += of_input;
    if (op.attention.heads > 0) forward += op.forward_flops, input += of_input;
  }
  return {all_forward > 0 ? forward / all_forward : 0, all_input > 0 ? input / all_input : 0};
}

void cut_into_slices(LayerCosts& costs, const Scenario& scenario, const CostSource& source, std::int64_t samples,
                     std::optional<int> slice) {
  const PlanRequest& plan = scenario.plan;
  if (slice)
    cut_times(costs, scenario, source, samples, *slice);
  else
    for (auto* const times :
         {&costs.forward, &costs.backward_input, &costs.backward_weight, &costs.apart, &costs.rebuild, &costs.again})
      for (Time& time : *times)
        time = Time{ceil_div(time.value, plan.slices->value)};
  for (std::size_t i = 0; i < costs.backward.size(); ++i)
    costs.backward[i] = costs.backward_input[i] + costs.backward_weight[i];
  for (std::size_t i = 0; i < costs.issued.size(); ++i) {
    IssuedPasses& issued = costs.issued[i];
    issued.forward = queue_of_slice(issued.forward, costs.forward[i]);
    issued.input = queue_of_slice(issued.input, costs.backward_input[i]);
    issued.weight = queue_of_slice(issued.weight, costs.backward_weight[i]);
    issued.rebuild = queue_of_slice(issued.rebuild, costs.rebuild[i]);
    issued.again = queue_of_slice(issued.again, costs.again[i]);
  }
  for (auto* const sizes : {&costs.activation, &costs.stash, &costs.core, &costs.selective, &costs.logits})
    for (Bytes& size : *sizes)
      size = slice_part(size, plan);
}

}  // namespace pipewright::core
