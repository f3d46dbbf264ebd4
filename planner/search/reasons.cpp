#include "planner/search/reasons.hpp"

#include <fmt/format.h>

#include "planner/search/remedies.hpp"
#include "planner/words.hpp"

namespace pipewright::planner {
namespace {

std::string layouts_need(std::int64_t count) {
  return count == 1 ? "1 layout needs" : fmt::format("{} layouts need", count);
}

}  // namespace

std::vector<std::string> reasons_in_words(const Ranking& answer) {
  std::vector<std::string> lines;
  for (const auto* by_reason : {&answer.refused, &answer.not_simulated})
    for (const auto& [reason, count] : *by_reason)
      lines.push_back(fmt::format("{} x {}", count, reason));
  return lines;
}

NoPlanYet no_plan_yet(const Ranking& answer) {
  NoPlanYet none{answer.ended, answer.layouts, answer.not_reached, {}};
  if (answer.too_large > 0) none.details.push_back(layouts_need(answer.too_large) + " more memory than a device has");
  if (answer.nearest_miss) none.details.push_back("nearest so far: " + in_words(*answer.nearest_miss));
  for (std::string& line : reasons_in_words(answer))
    none.details.push_back(std::move(line));
  return none;
}

Infeasible without_remedies(const Ranking& answer, double fit) {
  Infeasible none;
  none.details = reasons_in_words(answer);
  none.known = answer.not_simulated.empty() && answer.no_cut == 0;
  if (!answer.nearest_miss) {
    none.reason = none.known ? "no layout can be scheduled" : "no layout can be simulated";
    return none;
  }
  const std::string with = fit > 0 ? " with " + fit_text(fit) : "";
  if (none.known) {
    none.reason = fmt::format("no plan fits{}: {} more memory than a device has", with, layouts_need(answer.too_large));
    none.details.clear();
    return none;
  }
  none.reason = fmt::format("no plan was found that fits{}", with);
  if (answer.no_cut > 0)
    none.reason += answer.no_cut == 1
                       ? ": of 1 layout no cut that was tried fits, others may"
                       : fmt::format(": of {} layouts no cut that was tried fits, others may", answer.no_cut);
  if (answer.too_large > 0)
    none.reason +=
        (answer.no_cut > 0 ? "; " : ": ") + layouts_need(answer.too_large) + " more memory than a device has";
  return none;
}

std::string gap_left(const Ranking& answer, const SearchOptions& options, const OpenBounds& open) {
  constexpr double kRounding = 1e-12;
  if (answer.ended != Ended::No || answer.proven()) return "";
  if (answer.bound > 0 && answer.gap() <= options.gap * (1 + kRounding)) return "";
  if (options.objective == Objective::Memory)
    return "the bound of the memory counts no buffers, and of several chunks per stage the states of the parameters "
           "alone";
  if (open.not_simulated <= answer.bound)
    return fmt::format("layouts that are too large to be simulated may be better ({})",
                       answer.not_simulated.empty() ? "" : answer.not_simulated.begin()->first);
  if (open.given_up <= answer.bound)
    return "layouts of which no cut was found that fits are not ruled out: their cuts are found by a heuristic";
  if (open.lowest == nullptr || open.lowest_bound > answer.bound || open.lowest_bound >= open.lowest_value)
    return "bounds do not know the waiting for links that several transfers share";
  if (open.lowest->layout.virtual_stages > 1 && open.cuts_open)
    return fmt::format("cuts of interleaved schedules are heuristic, and their bound allows fractional layers ({})",
                       in_words(open.lowest->layout));
  if (open.lowest->layout.zero >= kWeightsSharded)
    return fmt::format("of sharded weights one cut is tried, and which units recompute is a heuristic ({})",
                       in_words(open.lowest->layout));
  if (!options.keep_going)
    return fmt::format("the cuts of a layout get {} simulations ({}); --gap 0 goes on", options.most_simulations,
                       in_words(open.lowest->layout));
  return fmt::format("the search for cuts came to the most prefixes that it keeps ({})", in_words(open.lowest->layout));
}

}  // namespace pipewright::planner
