#include "planner/search/likely.hpp"

#include <algorithm>
#include <utility>

#include "core/units.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

constexpr double kNearlyAll = 0.95;  // of the devices that any group uses
constexpr double kForStates = 0.6;   // of a device's memory
constexpr std::size_t kSome = 1024,
                      kFew = 64;  // groups whose layouts are bounded where they lie; and with their memory

bool bounded(const std::string& schedule) {
  return find_schedule(schedule)->bounded_in_flight;
}

struct Likely {
  double bound = 0;  // seconds per sample: batches differ where not all devices are used
  const LayoutGroup* group = nullptr;
  Layout layout;  // one of it
};

// The best of them, by what `bound` says of a layout.
template <class Bound>
void keep_best(std::vector<Likely>& all, std::size_t count, const Bound& bound) {
  for (Likely& each : all)
    each.bound = std::max(each.bound, seconds(bound(each)) / static_cast<double>(each.layout.global_batch()));
  std::ranges::stable_sort(all, [](const Likely& a, const Likely& b) { return a.bound < b.bound; });
  if (all.size() > count) all.resize(count);
}

}  // namespace

std::vector<Layout> likely_layouts(const Space& space, Evaluator& evaluator) {
  std::int64_t most_devices = 0, smallest = kLargest;
  for (const LayoutGroup& group : space.groups) {
    most_devices = std::max<std::int64_t>(most_devices, group.first.devices());
    smallest = std::min(smallest, group.first.micro_batch_size);
  }
  const auto memory = static_cast<double>(evaluator.scenario().cluster.device.memory.value);
  std::vector<Likely> all;
  for (const LayoutGroup& group : space.groups) {
    if (group.first.micro_batch_size != smallest) continue;
    if (static_cast<double>(group.first.devices()) < kNearlyAll * static_cast<double>(most_devices)) continue;
    const auto schedule = std::ranges::find_if(group.schedules, [](const std::string& name) {
      return bounded(name) && !find_schedule(name)->facts.takes_chunks;
    });
    if (schedule == group.schedules.end()) continue;
    Likely one{.bound = 0, .group = &group, .layout = group.first};
    one.layout.schedule = *schedule, one.layout.placement = group.placements.back();
    std::vector<std::int64_t> zeros = group.zeros;  // 1 takes no longer than 0; 2 and 3 gather weights
    std::ranges::sort(zeros, [](auto a, auto b) { return (a + 3) % 4 < (b + 3) % 4; });
    const auto leaves_room = [&](std::int64_t zero) {
      one.layout.zero = zero;
      return static_cast<double>(evaluator.least_states(one.layout).value) <= kForStates * memory;
    };
    if (std::ranges::any_of(zeros, leaves_room)) all.push_back(one);
  }
  keep_best(all, kSome, [&](const Likely& each) { return evaluator.bound(*each.group); });
  keep_best(all, kFew, [&](const Likely& each) { return evaluator.bound(each.layout); });
  keep_best(all, kFew, [&](const Likely& each) { return evaluator.tight_bound(each.layout); });
  std::vector<Layout> layouts;
  for (const Likely& each : all)
    for (Layout& layout : members(*each.group))
      if (layout.zero == each.layout.zero && layout.virtual_stages <= 2 && bounded(layout.schedule))
        layouts.push_back(std::move(layout));
  return layouts;
}

}  // namespace pipewright::planner
