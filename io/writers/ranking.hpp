// The best plans for what a scenario leaves open: as a table, JSON (docs/reference/ranking-json.md), CSV, Markdown, and
// the best one as a scenario of its own.
#pragma once

#include <string>

#include "core/answers/ranking.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {

struct RankingText {
  TableOptions table;
  bool explain = false;  // why: what limits each plan, what was rejected and why
};
std::string ranking_text(const Ranking& ranking, const Scenario& asked, const RankingText& options);
std::string ranking_json(const Ranking& ranking, const Scenario& asked);
std::string ranking_csv(const Ranking& ranking);
std::string ranking_markdown(const Ranking& ranking);

// Where the search ended before it had a plan: what it knows, and a JSON document without plans.
std::string no_plan_text(const NoPlanYet& none);
std::string no_plan_json(const NoPlanYet& none, const Scenario& asked, Objective objective);

// The scenario of one plan, which `simulate` accepts: every value with its origin, the plan's own from the search.
// `command`: how it was made.
std::string plan_yaml(const Ranking& ranking, const Found& found, const Scenario& asked, const std::string& command);

}  // namespace pipewright::io
