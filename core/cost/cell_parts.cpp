#include "core/cost/cell_parts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace pipewright::core {
namespace {

double sum_of(const std::vector<double>& all) {
  return std::accumulate(all.begin(), all.end(), 0.0);
}

// Share i of them; equal ones where all are 0.
double share(const std::vector<double>& of, std::size_t i) {
  const double all = sum_of(of);
  return all > 0 ? of[i] / all : 1 / static_cast<double>(of.size());
}

bool travels(const Operator& op) {
  return op.expert && op.sent.tokens > 0;
}

// Sums up to whole nanoseconds that miss none: each is what all up to it makes, less what those before it made.
class Rounding {
 public:
  explicit Rounding(double factor) : factor_(factor) {}
  Time operator()(double more) {
    sum_ += more;
    const Time upto{std::llround(sum_ * factor_)}, before = std::exchange(done_, upto);
    return upto - before;
  }

 private:
  double factor_, sum_ = 0;
  Time done_;
};

}  // namespace

CostSource::ExchangeCuts CostSource::exchange_cuts(const Work& work, std::int64_t) const {
  ExchangeCuts cuts{{0}, {0}, {0}, {}, {}, {}};
  const auto cut = [&] {
    for (std::vector<double>* pass : {&cuts.forward, &cuts.input, &cuts.weight})
      pass->push_back(0);
    cuts.exchanges.push_back(1);
  };
  for (const Operator& op : work.operators) {
    const bool back = op.name == "combine";
    if (travels(op) && back) cut();
    cuts.forward.back() += op.forward_flops, cuts.input.back() += op.input_flops + op.rebuilt_flops;
    cuts.weight.back() += op.weight_flops;
    if (travels(op) && !back) cut();
  }
  cuts.rebuilt = cuts.forward, cuts.rebuilt_exchanges = cuts.exchanges;
  return cuts;
}

CellParts::CellParts(const Plan& plan, VirtualStageId v, const Model& model, const CostSource& source,
                     const LayerCosts& all, const LayerCosts& computing)
    : plan_(plan),
      model_(model),
      stage_(plan.stage_of(v)),
      range_(plan.layers[static_cast<std::size_t>(v)]),
      all_(all),
      computing_(computing) {
  for (LayerId i = range_.begin; i < range_.end; ++i) {
    std::optional<Cuts> of;
    if (const std::int32_t number = model_.layers[i].work; number >= 0) {
      const Work& work = model_.works[static_cast<std::size_t>(number)];
      const bool known = i > range_.begin && model_.layers[i - 1].work == number;
      if (known)
        of = cuts_.back();
      else if (std::any_of(work.operators.begin(), work.operators.end(), travels))
        of = source.exchange_cuts(work, plan.micro_batch_size);
    }
    cuts_.push_back(std::move(of));
  }
}

CellParts::Pass CellParts::pass(std::vector<Time> LayerCosts::*times, LayerId layer) const {
  const auto i = static_cast<std::size_t>(layer);
  const auto whole = static_cast<double>((all_.*times)[i].value);
  const double computed = std::min(whole, static_cast<double>((computing_.*times)[i].value));
  return {computed, whole - computed};
}

void CellParts::forward(LayerId layer, const Pass& pass, bool modules, std::vector<Part>& parts) const {
  const std::optional<Cuts>& of = cuts(layer);
  if (!of || pass.exchanged <= 0) {
    parts.push_back({pass.computing, 0, 0});
    return;
  }
  const std::vector<double>&computing = modules ? of->rebuilt : of->forward,
        &exchanges = modules ? of->rebuilt_exchanges : of->exchanges;
  for (std::size_t i = 0; i < computing.size(); ++i)
    parts.push_back(
        {pass.computing * share(computing, i), 0, i < exchanges.size() ? pass.exchanged * share(exchanges, i) : 0});
}

void CellParts::backward(LayerId layer, bool weights, std::vector<Part>& parts) const {
  const Pass input = pass(&LayerCosts::backward_input, layer);
  const double of_weights = weights ? pass(&LayerCosts::backward_weight, layer).computing : 0;
  const std::optional<Cuts>& of = cuts(layer);
  if (!of || input.exchanged <= 0) {
    parts.push_back({input.computing, of_weights, 0});
    return;
  }
  for (std::size_t i = of->input.size(); i-- > 0;)
    parts.push_back({input.computing * share(of->input, i), of_weights * share(of->weight, i),
                     i > 0 ? input.exchanged * share(of->exchanges, i - 1) : 0});
}

std::vector<CellParts::Part> CellParts::raw(Kind kind) const {
  std::vector<Part> parts;
  if (rule(kind).forward || rule(kind).rebuilds)
    for (LayerId i = range_.begin; i < range_.end; ++i)
      forward(i, pass(&LayerCosts::forward, i), false, parts);
  if (rule(kind).backward)
    for (LayerId i = range_.end; i-- > range_.begin;) {
      if (plan_.recompute[static_cast<std::size_t>(stage_)] == Recompute::Selective)
        forward(i, pass(&LayerCosts::rebuild, i), true, parts);
      else if (plan_.rebuilds(stage_, i, model_))
        forward(i, pass(&LayerCosts::again, i), false, parts);
      backward(i, rule(kind).gradients, parts);
    }
  return parts;
}

std::vector<StepCosts::Part> CellParts::of(Kind kind, Time all, Time computing) const {
  std::vector<StepCosts::Part> parts;
  const std::vector<Part> raw = this->raw(kind);
  double computed = 0, exchanged = 0;
  for (const Part& part : raw)
    computed += part.rest + part.weights, exchanged += part.exchange;
  if (exchanged <= 0 || computed <= 0) return parts;
  const auto factor = [](Time time, double of) { return static_cast<double>(time.value) / of; };
  Rounding computes(factor(computing, computed)), sends(factor(all - computing, exchanged));
  for (const Part& part : raw) {
    // Weights' gradients are what is left of a part, so that both add up.
    const Time rest = computes(part.rest), weights = computes(part.weights), sent = sends(part.exchange);
    if (parts.empty() || parts.back().exchange > Time{})
      parts.push_back({rest + weights, weights, sent});
    else
      parts.back().computing += rest + weights, parts.back().weights += weights, parts.back().exchange = sent;
  }
  return parts;
}

}  // namespace pipewright::core
