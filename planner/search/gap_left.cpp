#include "planner/search/gap_left.hpp"

#include <fmt/format.h>

namespace pipewright {

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
  if (!options.keep_going)
    return fmt::format("the cuts of a layout get {} simulations ({}); --gap 0 goes on", options.most_simulations,
                       in_words(open.lowest->layout));
  return fmt::format("the search for cuts came to the most prefixes that it keeps ({})", in_words(open.lowest->layout));
}

}  // namespace pipewright
