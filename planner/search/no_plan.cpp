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
  none.known = answer.not_simulated.empty();
  if (!answer.nearest_miss) {
    none.reason = none.known ? "no layout can be scheduled" : "no layout can be simulated";
    return none;
  }
  const bool proven = none.known && answer.no_cut == 0;
  none.reason =
      fmt::format("{}{}: {} more memory than a device has", proven ? "no plan fits" : "no plan was found that fits",
                  fit > 0 ? " with " + fit_text(fit) : "", layouts_need(answer.too_large + answer.no_cut));
  if (proven) none.details.clear();
  return none;
}

}  // namespace pipewright
