#include "planner/what_if/spread.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/cluster/bands.hpp"
#include "core/cluster/measured_device.hpp"
#include "core/cost/cost_model.hpp"
#include "core/folds.hpp"
#include "core/question/profile.hpp"
#include "core/random.hpp"
#include "planner/price.hpp"
#include "planner/what_if/range_sources.hpp"
#include "planner/what_if/sensitivity.hpp"
#include "planner/what_if/speed_range.hpp"
#include "sim/at_load.hpp"

namespace pipewright::planner {
namespace {

constexpr double kMostSigmas = 3;
constexpr double kSigmasWithin90 = 3.29;       // p95 - p5 of a normal distribution, in standard deviations
constexpr std::int64_t kMemoryDraws = 10'000;  // each takes nothing
constexpr std::int64_t kFewestTrials = 20;
constexpr std::int64_t kRunsOfLargest = 10;  // work of all trials, in runs of `largest_repeated_run`

// What there is to be drawn of the step time.
struct Sources {
  std::vector<RangeSource> figures;
  bool profile = false;
  double device_spread = 0, op_spread = 0;

  bool any() const { return !figures.empty() || profile || device_spread > 0 || op_spread > 0; }
};

// Of the readings behind one time, as a standard deviation; the mean over all times.
double calibrated_op_spread(const Scenario& scenario) {
  double sum = 0, count = 0;
  if (scenario.cost == CostSourceKind::Profile && scenario.profile)
    for (const LayerTimes& layer : scenario.profile->layers)
      sum += layer.spread, ++count;
  if (scenario.cost == CostSourceKind::Roofline && scenario.cluster.device.measured)
    for (const MeasuredSeries& series : scenario.cluster.device.measured->series)
      for (const MeasuredSize& size : series.sizes)
        sum += size.spread, ++count;
  return count > 0 ? sum / count / kSigmasWithin90 : 0;
}

Sources sources_of(const Answer& answer) {
  const Scenario& scenario = *answer.scenario;
  const CampaignRequest& request = *scenario.campaign;
  Sources sources;
  sources.device_spread = request.device_spread.value_or(0);
  sources.op_spread = request.op_spread.value_or(calibrated_op_spread(scenario));
  if (!answer.schedule.flush) sources.op_spread = 0;  // a steady state is found in runs of another length
  if (scenario.cost == CostSourceKind::Profile && scenario.profile)
    sources.profile = scenario.profile->common_error > 0 || scenario.profile->independent_error > 0;
  sources.figures = range_sources(scenario);
  return sources;
}

std::string in_words(const Sources& sources, bool flush) {
  std::vector<std::string> parts;
  if (!sources.figures.empty()) parts.emplace_back("each cause of the 90 % interval normal, independent of the others");
  if (sources.profile) parts.emplace_back("op times normal with the profile's common and independent errors");
  if (sources.device_spread > 0)
    parts.push_back(fmt::format("speed of each device normal, {:.4g} %", 100 * sources.device_spread));
  if (sources.op_spread > 0) parts.push_back(fmt::format("time of each op normal, {:.4g} %", 100 * sources.op_spread));
  std::string text = fmt::format("{}", fmt::join(parts, "; "));
  if (sources.device_spread == 0 && sources.op_spread == 0)
    text += "; devices alike and steady (campaign.device_spread and op_spread are not given)";
  if (!flush) text += "; ops of an asynchronous run are not drawn one by one";
  return text;
}

double place(Random& random) {
  return random.normal_within(kMostSigmas) / kSigmas90;
}

double factor(Random& random, double deviation) {
  return 1 + deviation * random.normal_within(kMostSigmas);
}

Time times(Time time, double factor) {
  return Time{std::llround(static_cast<double>(time.value) * factor)};
}

class Trials {
 public:
  Trials(const Answer& answer, const Sources& sources, Engine engine)
      : answer_(answer), sources_(sources), engine_(engine), changed_(std::make_shared<Scenario>(*answer.scenario)) {}

  // Seconds of one step.
  double step(std::int64_t trial) {
    Random random(static_cast<std::uint64_t>(answer_.scenario->campaign->seed), static_cast<std::uint64_t>(trial) + 1);
    StepCosts costs = answer_.costs;
    if (!sources_.figures.empty()) {
      changed_->cluster = answer_.scenario->cluster;
      for (const RangeSource& each : sources_.figures)
        each.move(*changed_, place(random));
      costs = step_costs(answer_.plan, CostModel(changed_), answer_.costs.fold);
      if (!costs.loads.empty()) settle(answer_.schedule, costs, engine_);
    }
    // Settled times are those of the ops; whoever runs them again must not settle them anew.
    costs.loads.clear();
    if (sources_.profile) draw_profile(costs, random);
    const bool drawn = sources_.device_spread > 0 || sources_.op_spread > 0;
    const int copies = drawn ? answer_.plan.copies() : 1;
    Time slowest;
    for (int copy = 0; copy < copies; ++copy) {
      StepCosts of_copy = costs;
      if (drawn) draw_ops(of_copy, random);
      slowest = std::max(slowest, repeated_step_time(answer_, of_copy, engine_));
    }
    return seconds(slowest) * (sources_.figures.empty() ? 1 : std::pow(1 + kLeftOut, place(random)));
  }

 private:
  static std::size_t row(const StepCosts& costs, std::size_t chunk, std::size_t kind, std::size_t m) {
    return (chunk * kKinds + kind) * static_cast<std::size_t>(costs.shape.micro_batches) + m;
  }
  static std::size_t chunks(const StepCosts& costs) { return costs.duration.size() / kKinds; }

  // Nothing is drawn for what takes no time: another kind of op then changes no figure of a seed.
  static bool takes_time(const StepCosts& costs, std::size_t chunk, std::size_t kind) {
    const std::size_t at = chunk * kKinds + kind;
    return costs.duration[at].value > 0 || (!costs.duration_last.empty() && costs.duration_last[at].value > 0);
  }

  // All times of one kind of op of a chunk.
  static void scale(StepCosts& costs, std::size_t chunk, std::size_t kind, double factor) {
    const std::size_t at = chunk * kKinds + kind;
    costs.duration[at] = times(costs.duration[at], factor);
    for (StepCosts::Slice& slice : costs.slices)
      slice.duration[at] = times(slice.duration[at], factor);
    if (!costs.duration_last.empty()) costs.duration_last[at] = times(costs.duration_last[at], factor);
    if (costs.settled.empty()) return;
    for (std::size_t m = 0; m < static_cast<std::size_t>(costs.shape.micro_batches); ++m)
      costs.settled[row(costs, chunk, kind, m)] = times(costs.settled[row(costs, chunk, kind, m)], factor);
  }

  void draw_profile(StepCosts& costs, Random& random) const {
    const MachineProfile& profile = *answer_.scenario->profile;
    const double common = factor(random, profile.common_error);
    for (std::size_t chunk = 0; chunk < chunks(costs); ++chunk)
      for (std::size_t kind = 0; kind < kKinds; ++kind)
        if (takes_time(costs, chunk, kind))
          scale(costs, chunk, kind, std::max(0.0, common * factor(random, profile.independent_error)));
  }

  // One copy of the pipeline: its devices, then its ops.
  void draw_ops(StepCosts& costs, Random& random) const {
    const Seating seating = answer_.plan.seating();
    for (StageId stage = 0; stage < answer_.plan.stages; ++stage) {
      const int devices = answer_.plan.replicas[stage] * answer_.plan.tensor_parallel;
      auto slowest =
          most_over<double>(counted_to(devices), [&](int) { return factor(random, sources_.device_spread); });
      for (VirtualStageId v = 0; v < seating.chunks(); ++v)
        for (std::size_t kind = 0; kind < kKinds && seating.stage_of(v) == stage; ++kind)
          scale(costs, at(v), kind, slowest);
    }
    if (sources_.op_spread > 0) draw_each(costs, random);
  }

  void draw_each(StepCosts& costs, Random& random) const {
    const auto count = static_cast<std::size_t>(costs.shape.micro_batches);
    std::vector<Time> drawn(chunks(costs) * kKinds * count);
    for (std::size_t chunk = 0; chunk < chunks(costs); ++chunk)
      for (std::size_t kind = 0; kind < kKinds; ++kind)
        for (std::size_t m = 0; m < count && takes_time(costs, chunk, kind); ++m) {
          const Op op{static_cast<Kind>(kind), static_cast<std::uint16_t>(chunk), static_cast<std::uint32_t>(m)};
          const Time plain = costs.time_of(op);
          drawn[row(costs, chunk, kind, m)] = times(plain, factor(random, sources_.op_spread));
        }
    costs.settled = std::move(drawn);
  }

  const Answer& answer_;
  const Sources sources_;
  Engine engine_;
  std::shared_ptr<Scenario> changed_;
};

void draw_steps(SpreadReport& report, const Answer& answer, Engine engine) {
  const Sources sources = sources_of(answer);
  if (!sources.any()) {
    report.step_distribution =
        "nothing to be drawn: no time comes with an error; give campaign.device_spread or campaign.op_spread, price by "
        "roofline with efficiencies that have a band, or calibrate";
    return;
  }
  const bool copies = sources.device_spread > 0 || sources.op_spread > 0;
  const std::int64_t runs = copies ? answer.plan.copies() : 1;
  const std::int64_t size = std::max<std::int64_t>(1, run_size(answer.schedule, answer.costs)) * runs;
  const std::int64_t most = kRunsOfLargest * largest_repeated_run(answer.timeline) / size;
  if (most < kFewestTrials) {
    report.step_distribution = "not drawn: the run is too long to be repeated often enough";
    return;
  }
  report.trials = std::min(answer.scenario->campaign->trials, most);
  Trials trials(answer, sources, engine);
  auto steps = mapped<double>(counted_to(report.trials), [&](std::int64_t trial) { return trials.step(trial); });
  report.step_time = quantiles(std::move(steps));
  report.step_distribution = in_words(sources, answer.schedule.flush);
}

void draw_memory(SpreadReport& report, const Answer& answer) {
  if (!(answer.memory.activation_band > 0)) {
    report.memory_distribution = "no band: the layers state what they hold";
    return;
  }
  Random random(static_cast<std::uint64_t>(report.seed));
  std::vector<double> needs;
  std::int64_t too_large = 0;
  for (std::int64_t i = 0; i < kMemoryDraws; ++i) {
    const double place = random.uniform();
    double largest = 0;
    bool fits = true;
    for (const StageReport& stage : answer.report.stages) {
      const double low = static_cast<double>(stage.need.low.value), high = static_cast<double>(stage.need.high.value);
      const double need = low + place * (high - low);
      largest = std::max(largest, need);
      fits &= need <= static_cast<double>(stage.need.capacity.value);
    }
    needs.push_back(largest);
    too_large += fits ? 0 : 1;
  }
  report.memory = quantiles(std::move(needs));
  report.not_fitting = static_cast<double>(too_large) / static_cast<double>(kMemoryDraws);
  report.memory_distribution = fmt::format("uniform over the memory model's band (activations +-{:.0f} %), {} draws",
                                           100 * answer.memory.activation_band, kMemoryDraws);
}

}  // namespace

SpreadReport spread(const Answer& answer, Engine engine) {
  PP_CHECK(answer.scenario->campaign != nullptr);
  SpreadReport report;
  report.seed = answer.scenario->campaign->seed;
  draw_steps(report, answer, engine);
  draw_memory(report, answer);
  return report;
}

std::shared_ptr<const Campaign> whole_training(const Answer& answer, Engine engine) {
  const Scenario& scenario = *answer.scenario;
  std::optional<Campaign> found = campaign(scenario, answer.plan, answer.report);
  if (!found) return nullptr;
  found->spread = spread(answer, engine);
  const auto& ask = scenario.campaign->ask;
  if (!found->spread->step_time && std::ranges::find(ask, CampaignQuestion::Spread) != ask.end())
    throw InputError(scenario.campaign->place, "campaign", "asks for spread, but " + found->spread->step_distribution);
  return std::make_shared<const Campaign>(std::move(*found));
}

}  // namespace pipewright::planner
