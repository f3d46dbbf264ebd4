// Layouts that left a search without proof that they are no better: their bounds are the answer's, too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "core/answers/ranking.hpp"

namespace pipewright {

// Least bounds, of the objective; infinite where there is no such layout.
struct Unsettled {
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  double pruned = kNone;         // left in the queue: no better than what is wanted
  double unreached = kNone;      // left in the queue by a limit
  double given_up = kNone;       // of which no cut was found that fits
  double not_simulated = kNone;  // too large
  double not_worth_it = kNone;   // that turned out to need more than is wanted

  double least() const { return std::min({pruned, unreached, given_up, not_simulated, not_worth_it}); }

  // Figures in a message differ from layout to layout: of one key ("training.micro_batches") the first message stands
  // for all.
  void leave_out(Ranking& answer, const std::string& why, double bound, std::int64_t layouts) {
    not_simulated = std::min(not_simulated, bound);
    answer.not_simulated[said_.try_emplace(why.substr(0, why.find(':')), why).first->second] += layouts;
  }

 private:
  std::map<std::string, std::string> said_;
};

}  // namespace pipewright
