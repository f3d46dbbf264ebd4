// Searches of parts of a space, as one: their plans, and what they counted.
#pragma once

#include <limits>
#include <optional>

#include "planner/search/search.hpp"

namespace pipewright::planner {

class MergedSearches {
 public:
  // Of one that found no plan, whether that is certain. Why combinations make no layout is kept of the first one alone.
  void take(SearchResult& result);

  bool any() const { return all_.has_value(); }
  SearchAnswer& answer() { return *all_; }
  double least_bound() const { return least_; }      // of those with plans; infinite: none has one
  bool all_bounded() const { return all_bounded_; }  // the others have no plan, for certain
  void one_is_left_out() { all_bounded_ = false; }

  // Sorts the plans, the best first; of those of one layout, and of one value of each switch, the best stays.
  // Returns the best value.
  double rank(const SearchOptions& options);

 private:
  void take(SearchAnswer found);

  std::optional<SearchAnswer> all_;
  double least_ = std::numeric_limits<double>::infinity();
  bool all_bounded_ = true;
};

}  // namespace pipewright::planner
