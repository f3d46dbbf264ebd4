#include "planner/search/merged.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/search/found.hpp"

namespace pipewright::planner {

void MergedSearches::take(SearchResult& result) {
  if (auto* found = std::get_if<SearchAnswer>(&result)) return take(std::move(*found));
  const auto* none = std::get_if<Infeasible>(&result);
  all_bounded_ &= none != nullptr && none->known;
}

void MergedSearches::take(SearchAnswer found) {
  least_ = std::min(least_, found.bound);
  if (!all_) {
    all_ = std::move(found);
    return;
  }
  SearchAnswer& all = *all_;
  const auto best = [](const SearchAnswer& of) { return *std::ranges::min_element(of.plans, is_better); };
  if (best(found).value < best(all).value)
    all.candidates = std::move(found.candidates), all.idle_devices = found.idle_devices, all.gap_left = found.gap_left;
  for (Found& plan : found.plans)
    all.plans.push_back(std::move(plan));
  all.layouts += found.layouts, all.evaluated += found.evaluated, all.bounded += found.bounded;
  all.refined += found.refined, all.simulations += found.simulations;
  all.not_reached += found.not_reached, all.too_large += found.too_large;
  all.within_gap += found.within_gap, all.no_cut += found.no_cut;
  for (const auto& [reason, count] : found.refused)
    all.refused[reason] += count;
  for (const auto& [reason, count] : found.not_simulated)
    all.not_simulated[reason] += count;
  if (found.nearest_miss && (!all.nearest_miss || found.nearest_miss->need < all.nearest_miss->need))
    all.nearest_miss = found.nearest_miss;
  if (all.ended == Ended::No) all.ended = found.ended;
}

double MergedSearches::rank(const SearchOptions& options) {
  SearchAnswer& all = *all_;
  std::ranges::stable_sort(all.plans, is_better);
  const double least = all.plans.front().value;
  prefer_fewer_devices(all.plans, options);
  std::vector<Found> kept;
  for (Found& plan : all.plans) {
    const bool known = std::ranges::any_of(
        kept, [&](const Found& other) { return other.layout == plan.layout && other.switches == plan.switches; });
    if (!known && std::ssize(kept) < options.top) kept.push_back(std::move(plan));
  }
  all.plans = std::move(kept);
  return least;
}

}  // namespace pipewright::planner
