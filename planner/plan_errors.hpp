// What the errors of a plan that a scenario states have in common.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/cluster/cluster.hpp"

namespace pipewright::planner {

// Errors of independent parts of the plan, so that one run names them all.
class PlanErrors {
 public:
  void add(const Place& place, const std::string& key, const std::string& text) { keep({place, key, text}); }
  std::size_t count() const { return faults_.size(); }
  // What `step` throws is kept; the steps after it still run.
  void attempt(const auto& step) {
    try {
      step();
    } catch (const OverflowError&) {
      throw;  // whoever knows the file adds it
    } catch (const InputError& error) {
      for (const Fault& fault : error.faults())
        keep(fault);
    }
  }
  void throw_if_any() const {
    if (!faults_.empty()) throw InputError(faults_);
  }

 private:
  // Once, however many steps say it.
  void keep(Fault fault) {
    if (std::ranges::find(faults_, fault) == faults_.end()) faults_.push_back(std::move(fault));
  }

  std::vector<Fault> faults_;
};

// "1 stage", "2 stages"
inline std::string counted(std::int64_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

// What looks at the times and memory of one device class alone cannot answer for a cluster of several: it says so.
constexpr const char* kPlanSearch = "the search for the best plan";
// Throws InputError at `place` where the cluster has several classes; `who`: "plan.partition: balanced".
inline void refuse_classes(const Cluster& cluster, const Place& place, const std::string& who) {
  if (cluster.classes() == 1) return;
  throw InputError(place,
                   fmt::format("{} knows devices of one class, and the cluster has {}; write "
                               "plan.partition: suffix_dp, which chooses the class of every stage, or simulate the "
                               "layers of each stage with plan.placement, or leave out cluster.other_nodes",
                               who, cluster.devices_in_words()));
}

inline const Place& or_else(const Place& place, const Place& otherwise) {
  return place.file.empty() ? otherwise : place;
}

}  // namespace pipewright::planner
