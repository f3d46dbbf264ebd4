// Stages with replicas on a cluster, as `replicated_plans` searches among them: what a shape costs by estimate, what
// small changes there are, and the plan that it stands for.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "planner/suffix_problem.hpp"

namespace pipewright::planner {

struct ReplicaShape {
  enum class Order {
    Backwards,  // the last stage on the last devices of the last node, and so on towards the front; of several classes
                // each stage on those of its own
    Spread,     // neighbouring workers on different nodes; one class only
  };
  std::vector<int> ends;      // of the stages, in folded layers
  std::vector<int> replicas;  // per stage
  Order order = Order::Backwards;
  std::vector<int> classes{};  // per stage; none: all of class 0
  auto operator<=>(const ReplicaShape&) const = default;
  int workers() const { return std::accumulate(replicas.begin(), replicas.end(), 0); }
  int class_of(std::size_t stage) const { return classes.empty() ? 0 : classes[stage]; }
  int workers_on(int device_class) const;
};

class ReplicaShapes {
 public:
  // Keeps references. `most_workers` of a cluster of one class; 0: all.
  ReplicaShapes(const Plan& shell, const CostModel& cost, int most_workers);

  // With few cuts, all workers, and those numbers of replicas that are looked at.
  const SuffixProblem& problem() const { return folded_.problem; }
  void set_buffered(std::int64_t messages);
  int classes() const { return static_cast<int>(workers_.size()); }
  int workers_of(int device_class) const { return workers_[at(device_class)]; }
  int workers() const { return std::accumulate(workers_.begin(), workers_.end(), 0); }
  int workers_of_cluster() const { return workers_of_cluster_; }
  bool has_other_places() const { return folded_.problem.devices_per_node > 0 && classes() == 1; }

  ReplicaShape of(const std::vector<SuffixStage>& stages) const;
  std::vector<ReplicaShape> one_stage() const;  // on all workers of each class
  ReplicaShape elsewhere(const ReplicaShape& shape) const;

  // The largest of the slowest stage, the busiest link and the slowest round trip; kNever where a stage does not fit.
  Time estimate(const ReplicaShape& shape) const;
  Plan plan_of(const ReplicaShape& shape) const;

  struct Change {
    ReplicaShape shape;
    const char* how;
  };
  std::vector<Change> changes(const ReplicaShape& shape) const;

 private:
  struct Traffic {
    double busiest = 0;
    std::vector<double> hop;
  };
  Traffic traffic_of(const ReplicaShape& shape) const;
  void add_all_reduce(std::vector<double>& bytes, std::span<const int> seats, double gradients) const;
  std::span<const int> seats_of(const ReplicaShape& shape, std::vector<int>& room) const;
  DeviceId device_at(int seat) const;
  void add_changes_of_class(std::vector<Change>& list, const ReplicaShape& shape, int k) const;
  std::optional<ReplicaShape> split(const ReplicaShape& shape, int k, int r) const;

  const Plan& shell_;
  const CostModel& cost_;
  Folded folded_;
  std::vector<SuffixProblem> problems_;  // by class
  std::vector<SuffixStages> stages_;     // likewise
  SuffixProblem spread_out_;
  SuffixStages elsewhere_;  // for Order::Spread
  int workers_of_cluster_ = 0;
  std::vector<int> workers_;            // by class
  std::vector<int> first_seat_;         // likewise: seats are numbered class by class, in whole nodes
  std::vector<double> gradients_{0};    // sums over the folded layers before
  std::vector<int> in_order_, spread_;  // seats in a cluster of one class, by the place in the pipeline
};

}  // namespace pipewright::planner
