// Keys of the plan that are open and no part of a layout: how keys and values travel, whether exchanges run beside
// products, when weights are gathered again. Each of their values is a search of its own.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/answers/ranking.hpp"
#include "core/question/scenario.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {

struct Switch {
  std::string_view key;                           // of the plan: "context_exchange"
  std::span<const std::string_view> values;       // that it can have
  std::size_t usual = 0;                          // `auto` stands for so many of them, the first ones
  void (*set)(PlanRequest& plan, std::size_t i);  // to values[i]
  bool (*is)(const PlanRequest& plan, std::size_t i);
  bool (*matters)(const Layout& layout);                        // other layouts are the same with all values
  bool (*fits)(const Layout& layout, std::size_t i) = nullptr;  // whether it can have values[i]; none: all that matter

  bool says(const Layout& layout, std::size_t i) const { return matters(layout) && (!fits || fits(layout, i)); }
};
std::span<const Switch> switches();

// The values that are left open, as they stand in `values`. Throws InputError for one that is not there.
std::vector<std::size_t> values_of(const Switch& which, const Scenario& scenario);

bool asks_for_switches(const Scenario& scenario);

// Searches all combinations of the values, one after the other, each in an even share of the time that is left: layouts
// to which a switch says nothing are searched once. The bound is the least of all of them; once there is a plan, a limit
// leaves out the rest, and there is none. A value that no layout can have is reported in SearchLog::left_out.
// Throws InputError where no combination can be searched, where there are more than 64, and with replicas.
//                                                                        tests/planner/switches_test.cpp
SearchResult search_switches(const Scenario& scenario, const SearchOptions& options);

// How many layouts it looks at, all combinations together. Throws as search_switches.
std::int64_t layouts_of_switches(const Scenario& scenario);

}  // namespace pipewright::planner
