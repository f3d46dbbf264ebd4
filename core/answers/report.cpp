#include "core/answers/report.hpp"

#include <algorithm>

#include "core/folds.hpp"
#include "core/model/flops.hpp"

namespace pipewright::core {
namespace {

// [worker of the simulated copies]: where its transfers begin, and one more.
std::vector<std::size_t> first_transfers(const Timeline& timeline) {
  std::vector<std::size_t> first(timeline.workers.size() + 1);
  for (const Transfer& transfer : timeline.transfers)
    ++first[at(transfer.from) + 1];
  for (std::size_t w = 1; w < first.size(); ++w)
    first[w] += first[w - 1];
  return first;
}

// FLOPs of one sample that the layer's backward repeats.
double repeated(const Scenario& scenario, const Plan& plan, StageId stage, LayerId id) {
  const Model& model = scenario.model;
  const Layer& layer = model.layers[id];
  const Recompute kind = plan.recompute[stage];
  const double whole = layer.flops->value / static_cast<double>(model.batch);
  if (kind == Recompute::Full) return whole;
  if (plan.rebuilds(stage, id, model)) {
    if (layer.work < 0 || !scenario.training.checkpoint_early_stop) return whole;
    const Work& work = model.works[at(layer.work)];
    double left = 0;
    for (std::size_t i = repeated_until_read(work); i < work.operators.size(); ++i)
      if (work.operators[i].product) left += work.operators[i].forward_flops;
    return std::max(0.0, whole - left);
  }
  if (kind != Recompute::Selective || layer.work < 0) return 0;
  const Work& work = model.works[at(layer.work)];
  const Modules modules = scenario.plan.recompute_modules;
  const std::size_t end = !modules.has(Module::Operators)           ? work.operators.size()
                          : scenario.training.checkpoint_early_stop ? repeated_until_read(work)
                                                                    : work.operators.size();
  double cores = 0;
  for (std::size_t i = 0; i < end; ++i) {
    const Operator& each = work.operators[i];
    if (!each.product) continue;
    if (rebuilt_with(each, modules)) cores += each.forward_flops;
    if (modules.has(Module::Operators) && !work.replay.empty()) cores += work.replay[i].again * each.forward_flops;
  }
  return cores;
}

}  // namespace

const StageReport* fullest(const Report& report) {
  const auto left = [](const StageReport& stage) { return stage.need.capacity - stage.need.to_fit; };
  const auto least =
      std::ranges::min_element(report.stages, [&](const auto& a, const auto& b) { return left(a) < left(b); });
  return least == report.stages.end() ? nullptr : &*least;
}

double fit_probability(const Report& report) {
  return least_over<double>(
      report.stages, [&](const StageReport& stage) { return fit_probability(stage.need); }, 1);
}

// From the copies that were simulated back to all: see core/cost/fold.hpp.
Timeline unfolded(const Timeline& timeline, const Plan& plan, const Fold* fold) {
  if (fold == nullptr) return timeline;
  Timeline whole{.workers = {},
                 .transfers = {},
                 .makespan = timeline.makespan,
                 .engine = timeline.engine,
                 .engine_reason = timeline.engine_reason};
  const std::vector<std::size_t> first = first_transfers(timeline);
  const int positions = plan.positions();
  for (WorkerId w = 0; w < plan.workers(); ++w) {
    const WorkerId like = simulated_worker(fold, w, positions);
    whole.workers.push_back(timeline.workers[like]);
    for (std::size_t i = first[at(like)]; i < first[at(like) + 1]; ++i) {
      whole.transfers.push_back(timeline.transfers[i]);
      whole.transfers.back().from = w;
      whole.transfers.back().to += w - like;  // in the same copy
    }
  }
  return whole;
}

Answer unfolded(const Answer& answer) {
  Answer whole = answer;
  whole.timeline = unfolded(answer.timeline, answer.plan, answer.costs.fold.get());
  whole.schedule.shape.data_parallel = answer.plan.copies();
  whole.costs.fold = nullptr;
  return whole;
}

Report::Report() = default;
Report::Report(const Report&) = default;
Report::Report(Report&&) noexcept = default;
Report& Report::operator=(const Report&) = default;
Report& Report::operator=(Report&&) noexcept = default;
Report::~Report() = default;

Answer::Answer() = default;
Answer::Answer(const Answer&) = default;
Answer::Answer(Answer&&) noexcept = default;
Answer& Answer::operator=(const Answer&) = default;
Answer& Answer::operator=(Answer&&) noexcept = default;
Answer::~Answer() = default;

std::optional<double> hardware_flop_utilization(const Scenario& scenario, const Plan& plan, std::optional<double> mfu) {
  const Model& model = scenario.model;
  if (!mfu || plan.recompute.empty()) return std::nullopt;
  double forward = 0, again = 0;
  for (VirtualStageId v = 0; v < std::ssize(plan.layers); ++v)
    for (LayerId id = plan.layers[v].begin; id < plan.layers[v].end; ++id) {
      const Layer& layer = model.layers[id];
      if (!layer.flops) return std::nullopt;
      forward += layer.flops->value / static_cast<double>(model.batch);
      again += repeated(scenario, plan, plan.stage_of(static_cast<VirtualStageId>(v)), id);
    }
  if (plan.recompute_except_last)  // torchgpipe: the last micro-batch keeps everything
    again *= 1 - static_cast<double>(plan.last_micro_batch_size * plan.data_parallel) /
                     static_cast<double>(plan.global_batch_size);
  if (!(forward > 0) || !(again > 0)) return std::nullopt;
  const double passes = forward_passes(model);
  return *mfu * (passes * forward + again) / (passes * forward);
}

}  // namespace pipewright::core
