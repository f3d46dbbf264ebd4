#include "planner/search/no_plan.hpp"

#include <map>

#include <fmt/format.h>

#include "planner/search/remedies.hpp"
#include "planner/what_if/bytes_text.hpp"

namespace pipewright {
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

}  // namespace pipewright
