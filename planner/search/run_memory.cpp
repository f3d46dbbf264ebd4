#include "planner/search/run_memory.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "core/cost/buckets.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

constexpr std::int64_t kRoundedUp = 64;  // bytes by which a layer's share of divided states is rounded up

double bytes(Bytes of) {
  return static_cast<double>(of.value);
}

// No moment needs less for any layers.
bool beats(const InFlight& a, const InFlight& b, bool one_chunk) {
  if (a.all_ran < b.all_ran || a.all_accumulate < b.all_accumulate) return false;
  return a.all >= b.all && a.fewest >= b.fewest && (one_chunk || a.most <= b.most);
}

// `count` layers of the run on a stage of their own, behind a chunk with the layers before them. One stage holds all.
Plan laid_out(Plan plan, const EqualRun& run, LayerId count) {
  const LayerId before = plan.stages > 1 ? run.begin + 1 : int{run.begin};
  const LayerRange here{before, std::min<LayerId>(before + count, run.end)};
  plan.layers.assign(at(plan.chunks()), {here.end, here.end});
  plan.layers.front() = plan.stages > 1 ? LayerRange{0, before} : here;
  if (plan.stages > 1) plan.layers[1] = here;
  return plan;
}

}  // namespace

EqualRunMemory::EqualRunMemory(const EqualRun& run, const Plan& shell, const CostModel& cost, const LayerCosts& layers)
    : cost_(cost), plan_(shell) {
  for (const Recompute mode : {Recompute::Full, Recompute::Blocks, Recompute::Selective, Recompute::None})
    measure(mode, run, layers);
  sums_ = need_sums(memory_);
  for (const LayerId count : {1, 2, 3}) {
    const Plan plan = laid_out(plan_, run, count);
    for (const LayerKept& kept : kept_by_layers(plan, cost, layers, plan.stages > 1 ? 1 : 0)) {
      freed_ = std::max(freed_, bytes(kept.stash - kept.input));
      again_ = again_ == 0 ? bytes(kept.again) : std::min(again_, bytes(kept.again));
    }
  }
  for (const Recompute mode : {Recompute::None, Recompute::Full}) {
    plan_.layers.assign(at(plan_.chunks()), {run.begin, run.begin + 1});
    plan_.recompute.assign(at(plan_.stages), mode);
    ScheduleShape shape = schedule_shape(plan_, cost.scenario().model, cost.scenario().training);
    shape.buckets.clear();
    // Once the pipeline is full its memory repeats itself: a longer run has no higher peak.
    const ScheduleRule& rule = *find_schedule(plan_.schedule);
    if (rule.bounded_in_flight) shape.micro_batches = std::min(shape.micro_batches, 4 * plan_.stages);
    const Schedule schedule = rule.generate(shape);
    for (StageId k = 0; k < plan_.stages; ++k)
      moments_[mode == Recompute::Full ? kInFull : kWithout].push_back(
          moments(schedule.positions[as<PositionId>(k)], k, run, shape.micro_batches));
  }
}

// What one layer of the run keeps, as the first of a chunk and as a later one.
void EqualRunMemory::measure(Recompute mode, const EqualRun& run, const LayerCosts& layers) {
  const StageId here = plan_.stages > 1 ? 1 : 0;
  plan_.recompute.assign(at(plan_.stages), mode);
  const auto of = [&](LayerId count) {
    return memory_of_stage(laid_out(plan_, run, count), cost_, {layers, layers}, here);
  };
  memory_ = of(1);
  const auto chunk = as<VirtualStageId>(here);  // the first of that stage
  const ChunkMemory& one = memory_.chunks[chunk];
  double kept = bytes(plan_.stages > 1 ? one.stash[0] : one.working[0]);
  if (run.size() > 2) kept = std::min(kept, bytes(of(2).chunks[chunk].stash[0] - one.stash[0]));
  if (mode == Recompute::Full) boundary_ = plan_.stages > 1 ? bytes(one.boundary[0]) : 0;
  kept_[at(static_cast<int>(mode))] = mode == Recompute::Full ? 0 : std::max(0.0, kept);
}

double EqualRunMemory::states(const InFlight& now, int layers) const {
  const ChunkMemory& one = memory_.chunks[plan_.stages > 1 ? 1 : 0];
  Bytes all = one.weights + one.gradients + one.optimizer - Bytes{kRoundedUp};
  if (plan_.resharding && now.all_ran) all += one.gathered;
  if (plan_.resharding && now.all_accumulate && !plan_.reduce_each) all += one.unreduced;
  return layers * bytes(all);
}

double EqualRunMemory::room(const InFlight& now, int layers) const {
  double room = std::numeric_limits<double>::infinity();
  for (const NeedSum& sum : sums_)
    room = std::min(room, (bytes(memory_.capacity) * (1 + 1e-12) - bytes(memory_.reserve) -
                           (states(now, layers) + bytes(memory_.correction)) * sum.model) /
                              (sum.model + sum.activation));
  return room;
}

// Of full recomputation the input of every chunk is left, but of the first one of the model.
double EqualRunMemory::in_flight_bytes(const InFlight& now, int layers, Recompute mode) const {
  if (mode != Recompute::Full)
    return static_cast<double>(surely_in_flight(now, layers)) * kept_[at(static_cast<int>(mode))];
  return plan_.virtual_stages > 1 ? static_cast<double>(now.all) * boundary_ : 0;
}

bool EqualRunMemory::fits(StageId k, int layers, Recompute mode) const {
  const auto& all = moments_[mode == Recompute::Full ? kInFull : kWithout][at(k)];
  return std::ranges::all_of(all, [&](const InFlight& now) {
    const double most = room(now, layers);
    return most >= 0 && in_flight_bytes(now, layers, mode) <= most;
  });
}

int EqualRunMemory::least_rebuilt(StageId k, int layers) const {
  if (fits(k, layers, Recompute::None)) return 0;
  double least = 0;
  for (const InFlight& now : moments_[kWithout][at(k)]) {
    const double most = room(now, layers);
    const double surely = in_flight_bytes(now, layers, Recompute::None);
    // The backward that follows has as many in flight where the stage has one chunk, and that is not cut into units: those
    // behind one that is repeated are gone by then.
    const bool in_units = cost_.scenario().training.zero >= kWeightsSharded && plan_.copies() > 1;
    const double again = plan_.virtual_stages == 1 && !in_units ? again_ : 0;
    if (surely <= most) continue;
    if (freed_ <= 0) return layers + 1;
    least = std::max(least, (surely + again - most) / (freed_ * static_cast<double>(now.most)));
  }
  return least > layers ? layers + 1 : static_cast<int>(std::ceil(least * (1 - 1e-9)));
}

double EqualRunMemory::most_in_flight(StageId k, int layers, int rebuilt) const {
  const double kept = kept_[at(static_cast<int>(Recompute::None))];
  if (kept <= 0) return std::numeric_limits<double>::infinity();
  return (room(fullest(k), layers) + rebuilt * freed_ * static_cast<double>(fullest(k).most)) / kept;
}

const InFlight& EqualRunMemory::fullest(StageId k) const {
  const auto& all = moments_[kWithout][at(k)];
  return *std::ranges::max_element(all, [](const InFlight& a, const InFlight& b) {
    return std::tie(a.all, a.all_accumulate, a.all_ran) < std::tie(b.all, b.all_accumulate, b.all_ran);
  });
}

// Micro-batches in flight, summed over n layers.
std::int64_t EqualRunMemory::surely_in_flight(const InFlight& now, int layers) const {
  return plan_.virtual_stages == 1 ? layers * now.fewest
                                   : now.all + std::max<std::int64_t>(0, layers - now.chunks) * now.fewest;
}

// The layers before and behind the run may be a chunk each.
std::vector<InFlight> EqualRunMemory::moments(const Lane& lane, StageId k, const EqualRun& run,
                                              std::int64_t micro_batches) const {
  const int v = plan_.virtual_stages;
  const auto surely = [&](int i) {
    const VirtualStageId chunk = plan_.seating().chunk_of(k, i);
    return v == 1 || (chunk >= int{run.begin} && chunk < plan_.chunks() - run.behind());
  };
  std::vector<std::int64_t> count(at(v)), ran(at(v));
  std::vector<InFlight> result;
  for (const Op& op : lane.compute) {
    const std::size_t chunk = at(plan_.seating().local(op.virtual_stage, k));
    if (rule(op.kind).gradients) --count[chunk];
    if (op.kind != Kind::F) continue;
    ++count[chunk], ++ran[chunk];
    InFlight now{0, 0, count[0], count[0], count, true, true};
    for (std::size_t j = 0; j < count.size(); ++j) {
      const std::int64_t back = ran[j] - count[j];
      now.all_ran = now.all_ran && ran[j] > 0;
      now.all_accumulate = now.all_accumulate && back > 0 && back < micro_batches;
    }
    for (int j = 0; j < v; ++j) {
      now.fewest = std::min(now.fewest, count[at(j)]), now.most = std::max(now.most, count[at(j)]);
      if (surely(j)) now.all += count[at(j)], ++now.chunks;
    }
    if (std::ranges::any_of(result, [&](const InFlight& known) { return beats(known, now, v == 1); })) continue;
    std::erase_if(result, [&](const InFlight& known) { return beats(now, known, v == 1); });
    result.push_back(now);
  }
  return result;
}

}  // namespace pipewright::planner
