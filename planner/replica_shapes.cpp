#include "planner/replica_shapes.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "core/folds.hpp"

namespace pipewright::planner {
namespace {

// Where there are many workers, not every number of replicas: all up to 16, then in steps of an eighth, and the
// largest.
void add_numbers_of_replicas(std::vector<int>& sizes, int workers) {
  for (int r = 1; r <= workers; r += std::max(1, r / 8))
    sizes.push_back(r);
  for (int r = std::max(1, workers - 2); r <= workers; ++r)
    sizes.push_back(r);
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
}

SuffixProblem spread_out(const SuffixProblem& problem) {
  SuffixProblem spread = problem.of_class(0);
  spread.places = StagePlaces::Spread;
  return spread;
}

std::vector<SuffixProblem> by_class(const SuffixProblem& problem) {
  return mapped<SuffixProblem>(counted_to(problem.classes()), [&](int c) { return problem.of_class(c); });
}

}  // namespace

int ReplicaShape::workers_on(int device_class) const {
  int sum = 0;
  for (std::size_t k = 0; k < replicas.size(); ++k)
    if (class_of(k) == device_class) sum += replicas[k];
  return sum;
}

ReplicaShapes::ReplicaShapes(const Plan& shell, const CostModel& cost, int most_workers)
    : shell_(shell),
      cost_(cost),
      folded_(folded(suffix_problem(shell, cost, StagePlaces::Backwards))),
      problems_(by_class(folded_.problem)),
      stages_(problems_.begin(), problems_.end()),
      spread_out_(spread_out(folded_.problem)),
      elsewhere_(spread_out_) {
  PP_CHECK(most_workers == 0 || problems_.size() == 1);
  const int g = workers_per_node(shell, cost.scenario().cluster);
  int seats = 0;
  folded_.problem.replicas.clear();
  for (const SuffixProblem& problem : problems_) {
    workers_.push_back(most_workers > 0 ? std::min(problem.devices, most_workers) : problem.devices);
    workers_of_cluster_ += problem.devices;
    first_seat_.push_back(seats);
    seats += (problem.devices + g - 1) / g * g;
    add_numbers_of_replicas(folded_.problem.replicas, workers_.back());
  }
  folded_.problem.devices = workers_.front();
  for (const Bytes bytes : folded_.problem.gradients)
    gradients_.push_back(gradients_.back() + static_cast<double>(bytes.value));
  for (int w = 0; w < workers_.front(); ++w)
    in_order_.push_back(w);
  spread_ = in_order_;
  std::ranges::stable_sort(spread_, [g](int a, int b) { return a % g < b % g; });
}

void ReplicaShapes::set_buffered(std::int64_t messages) {
  folded_.problem.buffered = messages;
  for (SuffixProblem& problem : problems_)
    problem.buffered = messages;
}

ReplicaShape ReplicaShapes::of(const std::vector<SuffixStage>& stages) const {
  ReplicaShape shape;
  for (const SuffixStage& stage : stages) {
    shape.ends.push_back(stage.layers.end), shape.replicas.push_back(stage.replicas);
    if (classes() > 1) shape.classes.push_back(stage.device_class);
  }
  return shape;
}

std::vector<ReplicaShape> ReplicaShapes::one_stage() const {
  const int count = static_cast<int>(folded_.layers.size());
  if (classes() == 1) return {{{count}, {workers_.front()}}};
  return mapped<ReplicaShape>(counted_to(classes()), [&](int c) {
    return ReplicaShape{.ends = {count}, .replicas = {workers_of(c)}, .classes = {c}};
  });
}

ReplicaShape ReplicaShapes::elsewhere(const ReplicaShape& shape) const {
  using enum ReplicaShape::Order;
  ReplicaShape other = shape;
  other.order = shape.order == Spread ? Backwards : Spread;
  return other;
}

Time ReplicaShapes::estimate(const ReplicaShape& shape) const {
  const Traffic traffic = traffic_of(shape);
  double slowest = traffic.busiest, round_trip = 0;
  int behind = 0, end = static_cast<int>(folded_.layers.size());
  std::array<int, kMostClasses> behind_of_class{};
  for (std::size_t k = shape.ends.size(); k-- > 0;) {
    const int begin = k == 0 ? 0 : shape.ends[k - 1], r = shape.replicas[k], c = shape.class_of(k);
    const SuffixStages& stages = stages_[at(c)];
    if (stages.memory(begin, end, stages.in_flight(r, behind)) > stages.capacity()) return kNever;
    const auto compute = static_cast<double>(stages.compute(begin, end));
    const bool by_formula = shape.order == ReplicaShape::Order::Backwards;  // of other places the traffic says it
    const Neighbours neighbours{k == 0 || shape.class_of(k - 1) == c,
                                k + 1 == shape.ends.size() || shape.class_of(k + 1) == c};
    int& of_class = behind_of_class[at(c)];
    slowest = std::max(
        slowest, by_formula ? static_cast<double>(stages.time(begin, end, r, of_class, neighbours)) : compute / r);
    if (!by_formula) slowest = std::max(slowest, static_cast<double>(elsewhere_.waiting(begin, end, r, behind)));
    round_trip += compute;
    slowest = std::max(slowest, round_trip / static_cast<double>(replica_in_flight(r, behind)) / r);
    if (k > 0) round_trip += 2 * traffic.hop[k - 1];
    behind += r, of_class += r, end = begin;
  }
  return {static_cast<std::int64_t>(slowest)};
}

// Of the workers of a shape, in the order of the pipeline. The last stage of a class ends on its last seat.
std::span<const int> ReplicaShapes::seats_of(const ReplicaShape& shape, std::vector<int>& room) const {
  if (classes() == 1) {
    const std::vector<int>& all = shape.order == ReplicaShape::Order::Spread ? spread_ : in_order_;
    return std::span(all).last(at(shape.workers()));
  }
  room.clear();
  std::vector<int> next = first_seat_;
  for (int c = 0; c < classes(); ++c)
    next[at(c)] += workers_of(c) - shape.workers_on(c);
  for (std::size_t k = 0; k < shape.replicas.size(); ++k)
    for (int r = 0; r < shape.replicas[k]; ++r)
      room.push_back(next[at(shape.class_of(k))]++);
  return room;
}

DeviceId ReplicaShapes::device_at(int seat) const {
  int c = classes() - 1;
  while (c > 0 && seat < first_seat_[at(c)])
    --c;
  const Cluster& cluster = cost_.scenario().cluster;
  return cluster.first_node_of(c) * cluster.devices_per_node + (seat - first_seat_[at(c)]) * shell_.tensor_parallel;
}

// Per micro-batch, in ns: of the busiest link between nodes, for all messages and all-reduces of the stages there; and
// of one message behind each stage but the last, alone, on average over the pairs of replicas.
ReplicaShapes::Traffic ReplicaShapes::traffic_of(const ReplicaShape& shape) const {
  const SuffixProblem& problem = folded_.problem;
  const int g = std::max(problem.devices_per_node, 1);
  const bool flat = problem.devices_per_node == 0;
  std::vector<int> room;
  const std::span<const int> seats = seats_of(shape, room);
  Traffic traffic;
  std::vector<double> bytes(flat ? 0 : at((first_seat_.back() + workers_.back() - 1) / g + 1));
  int position = 0, begin = 0;
  for (std::size_t k = 0; k < shape.ends.size(); ++k) {
    const int r = shape.replicas[k], next = position + r, end = shape.ends[k];
    if (!flat) add_all_reduce(bytes, seats.subspan(at(position), at(r)), gradients_[at(end)] - gradients_[at(begin)]);
    if (k + 1 < shape.ends.size()) {
      const int behind = shape.replicas[k + 1], turns = flat ? 0 : std::lcm(r, behind);
      const auto message = static_cast<double>(problem.boundary[at(end) - 1].value);
      int crossing = 0;
      for (int m = 0; m < turns; ++m) {
        const int from = seats[at(position + dealt_to(m, r))] / g, to = seats[at(next + dealt_to(m, behind))] / g;
        if (from == to) continue;
        ++crossing;
        bytes[at(from)] += message / turns, bytes[at(to)] += message / turns;
      }
      const double share = flat ? 1 : static_cast<double>(crossing) / turns;
      traffic.hop.push_back(message * 1e9 * (share / problem.bandwidth.value + (1 - share) / problem.inside.value));
    }
    position = next, begin = end;
  }
  if (!flat) traffic.busiest = 1e9 * *std::ranges::max_element(bytes) / problem.bandwidth.value;
  return traffic;
}

// The part of an all-reduce among these seats that leaves each of its nodes.
void ReplicaShapes::add_all_reduce(std::vector<double>& bytes, std::span<const int> seats, double gradients) const {
  const int g = folded_.problem.devices_per_node;
  std::vector<char> member(bytes.size());
  for (const int seat : seats)
    member[at(seat / g)] = 1;
  const auto p = static_cast<double>(std::ranges::count(member, 1));
  const double rounds =
      folded_.problem.flush ? static_cast<double>(shell_.micro_batches) : static_cast<double>(seats.size());
  for (std::size_t node = 0; node < bytes.size(); ++node)
    if (member[node] != 0) bytes[node] += 2 * (p - 1) / p * gradients / rounds;
}

Plan ReplicaShapes::plan_of(const ReplicaShape& shape) const {
  Plan plan = shell_;
  plan.stages = static_cast<int>(shape.ends.size());
  plan.replicas = shape.replicas;
  plan.recompute.assign(shape.ends.size(), shell_.recompute.empty() ? Recompute::None : shell_.recompute.front());
  plan.layers.clear(), plan.device.clear();
  LayerId begin = 0;
  for (const int end : shape.ends) {
    plan.layers.push_back({begin, folded_.layers[at(end) - 1].end});
    begin = plan.layers.back().end;
  }
  std::vector<int> room;
  for (const int seat : seats_of(shape, room))
    plan.device.push_back(device_at(seat));
  return plan;
}

std::vector<ReplicaShapes::Change> ReplicaShapes::changes(const ReplicaShape& shape) const {
  std::vector<Change> list;
  const int count = static_cast<int>(folded_.layers.size()), stages = static_cast<int>(shape.ends.size());
  for (int k = 0; k + 1 < stages; ++k) {
    const bool alike = shape.class_of(at(k)) == shape.class_of(at(k) + 1);
    for (const int by : {-4, -2, -1, 1, 2, 4}) {
      ReplicaShape moved = shape;
      int& end = moved.ends[at(k)];
      end += by;
      if (end > (k == 0 ? 0 : shape.ends[at(k) - 1]) && end < shape.ends[at(k) + 1] && end < count)
        list.push_back({std::move(moved), "a cut moved"});
    }
    for (const int from : {k, k + 1}) {
      ReplicaShape handed = shape;
      if (!alike || --handed.replicas[at(from)] < 1) continue;
      ++handed.replicas[at(from == k ? k + 1 : k)];
      list.push_back({std::move(handed), "a replica moved"});
    }
    ReplicaShape joined = shape;
    joined.ends.erase(joined.ends.begin() + k);
    if (alike) joined.replicas[at(k)] += joined.replicas[at(k) + 1];
    joined.replicas.erase(joined.replicas.begin() + k + 1);
    if (!joined.classes.empty()) joined.classes.erase(joined.classes.begin() + k + 1);
    list.push_back({std::move(joined), "two stages joined"});
  }
  for (int k = 0; k < stages; ++k)
    for (const int r : std::set<int>{1, shape.replicas[at(k)] / 2, shape.replicas[at(k)] - 1})
      if (r >= 1 && r < shape.replicas[at(k)])
        if (std::optional<ReplicaShape> parts = split(shape, k, r))
          list.push_back({std::move(*parts), "a stage split"});
  for (int k = 0; k < stages; ++k) {
    const int c = shape.class_of(at(k));
    if (shape.workers_on(c) == workers_of(c)) continue;
    ReplicaShape more = shape;
    ++more.replicas[at(k)];
    list.push_back({std::move(more), "a worker added"});
  }
  for (int k = 0; classes() > 1 && k < stages; ++k)
    add_changes_of_class(list, shape, k);
  if (has_other_places()) list.push_back({elsewhere(shape), "on other devices"});
  return list;
}

// Stage k on free devices of another class, or on those of the stage behind it, which takes its own.
void ReplicaShapes::add_changes_of_class(std::vector<Change>& list, const ReplicaShape& shape, int k) const {
  for (int c = 0; c < classes(); ++c) {
    const int free = workers_of(c) - shape.workers_on(c);
    if (c == shape.class_of(at(k)) || free == 0) continue;
    for (const int r : std::set<int>{1, std::min(shape.replicas[at(k)], free), free}) {
      ReplicaShape other = shape;
      other.classes[at(k)] = c, other.replicas[at(k)] = r;
      list.push_back({std::move(other), "a stage on devices of another class"});
    }
  }
  if (at(k) + 1 == shape.ends.size() || shape.class_of(at(k)) == shape.class_of(at(k) + 1)) return;
  ReplicaShape swapped = shape;
  std::swap(swapped.classes[at(k)], swapped.classes[at(k) + 1]);
  std::swap(swapped.replicas[at(k)], swapped.replicas[at(k) + 1]);
  list.push_back({std::move(swapped), "two stages on each other's devices"});
}

// Stage k in two, the first with r of the replicas and their share of the work.
std::optional<ReplicaShape> ReplicaShapes::split(const ReplicaShape& shape, int k, int r) const {
  const int begin = k == 0 ? 0 : shape.ends[at(k) - 1], end = shape.ends[at(k)], all = shape.replicas[at(k)];
  if (end - begin < 2) return std::nullopt;
  const SuffixStages& stages = stages_[at(shape.class_of(at(k)))];
  const std::int64_t share = stages.compute_of(begin, end) / all * r;
  int cut = begin + 1;
  while (cut + 1 < end && stages.compute_of(begin, cut) < share)
    ++cut;
  ReplicaShape parts = shape;
  parts.ends.insert(parts.ends.begin() + k, cut);
  parts.replicas[at(k)] = r;
  parts.replicas.insert(parts.replicas.begin() + k + 1, all - r);
  if (!parts.classes.empty()) parts.classes.insert(parts.classes.begin() + k, shape.classes[at(k)]);
  return parts;
}

}  // namespace pipewright::planner
