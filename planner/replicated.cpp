#include "planner/replicated.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "planner/price.hpp"
#include "sim/schedules/table.hpp"
#include "sim/steady_state.hpp"

namespace pipewright {
namespace {

std::size_t at(std::int64_t number) {
  return static_cast<std::size_t>(number);
}

Recompute mode_of(const Plan& shell) {
  return shell.recompute.empty() ? Recompute::None : shell.recompute.front();
}

bool has_flush(const Plan& shell) {
  const ScheduleRule* rule = find_schedule(shell.schedule);
  PP_CHECK(rule != nullptr);
  return rule->flush;
}

// Workers of a node: groups of t devices, t = tensor_parallel.
int workers_per_node(const Plan& shell, const Cluster& cluster) {
  return std::max(1, cluster.devices_per_node / shell.tensor_parallel);
}

// Workers that the cluster has room for, in whole groups inside nodes, or of whole nodes.
int all_workers(const Plan& shell, const Cluster& cluster) {
  const int t = shell.tensor_parallel;
  if (t > cluster.devices())
    throw InputError(cluster.place, fmt::format("plan.tensor_parallel: {} devices per worker, the cluster has {}", t,
                                                cluster.devices()));
  const bool whole =
      t <= cluster.devices_per_node ? cluster.devices_per_node % t == 0 : t % cluster.devices_per_node == 0;
  return whole && t <= cluster.devices_per_node ? cluster.nodes * (cluster.devices_per_node / t)
                                                : cluster.devices() / t;
}

// --- the DP's problem ------------------------------------------------------------------------------------------------

constexpr Bandwidth kEndless{std::numeric_limits<double>::infinity()};

Bandwidth or_endless(Bandwidth bandwidth) {
  return bandwidth.value > 0 ? bandwidth : kEndless;
}

Bandwidth scaled_by(Bandwidth bandwidth, double factor) {
  return {bandwidth.value * factor};
}

// Links by the routes of neighbours, as the lead devices of the workers see them.
void add_links(SuffixProblem& problem, const Plan& shell, const CostModel& cost) {
  const Cluster& cluster = cost.scenario().cluster;
  const int g = workers_per_node(shell, cluster);
  const bool bound = problem.places == StagePlaces::Anywhere;
  const auto half = [&](Duplex duplex) { return !bound && duplex == Duplex::Half ? 0.5 : 1.0; };
  Bandwidth inside = kEndless, between = kEndless;
  if (g > 1) {
    const Bandwidth one = or_endless(cost.topology().route(0, shell.tensor_parallel).bandwidth);
    const bool mesh = cluster.links.kind == LinkKind::Mesh;
    inside = scaled_by(bound ? or_endless(cluster.links.bandwidth) : one,
                       half(cluster.links.duplex) * (bound && mesh ? cluster.devices_per_node - 1 : 1));
    if (cluster.links.kind == LinkKind::Ideal) inside = kEndless;
  }
  if (cluster.nodes > 1 && !cluster.network->ideal) {
    const int sharing = std::min(shell.tensor_parallel, cluster.devices_per_node);
    between = scaled_by(cluster.network->bandwidth,
                        half(cluster.network->duplex) * (cluster.network->per == NicPer::Node ? 1.0 / sharing : g));
  }
  problem.one_link = cluster.links.kind == LinkKind::Pcie || (g == 1 && cluster.nodes > 1) || cluster.nodes == 1;
  if (g == 1) {
    problem.bandwidth = between;
  } else if (cluster.nodes == 1) {
    problem.bandwidth = inside;
  } else {
    problem.devices_per_node = g;
    problem.inside = inside, problem.bandwidth = between;
  }
}

// Bytes as the memory model counts them, but for workspaces, buffers and rounding; of states that ZeRO divides, the
// share of one among all workers.
void add_memory(SuffixProblem& problem, const Plan& shell, const CostModel& cost, const LayerCosts& layers) {
  const Scenario& scenario = cost.scenario();
  const Training& training = scenario.training;
  const Bytes weight = weight_bytes(training.precision), gradient = gradient_bytes(training),
              optimizer = optimizer_bytes(training.precision, training.optimizer);
  const bool versions = !has_flush(shell);
  const Recompute mode = mode_of(shell);
  const std::vector<Bytes> over = bytes_over_cuts(scenario.model, layers.activation);
  for (std::size_t i = 0; i < layers.forward.size(); ++i) {
    const Layer& layer = scenario.model.layers[i];
    const auto of_parameters = [&](Bytes each) {
      return Bytes{checked_product(layer.held(), each.value, "the bytes of the parameters")};
    };
    Bytes kept = layers.stash[i];
    if (mode == Recompute::Selective) kept -= layers.core[i];
    if (layer.work >= 0 && !layer.keeps_output) kept -= std::min(kept, layers.activation[i]);
    Bytes states = of_parameters(optimizer);
    if (training.zero == 1) states = Bytes{states.value / problem.devices};
    Bytes resident = checked_sum(of_parameters(gradient), states), stash;
    (versions ? stash : resident) += of_parameters(weight);
    (mode == Recompute::Full ? resident : stash) += kept;
    problem.resident.push_back(resident);
    problem.stash.push_back(stash);
    const bool hop = shell.skips == Skips::Hop;
    problem.entry.push_back(i == 0 ? scaled(scenario.model.input, shell.micro_batch_size, scenario.model.batch)
                            : hop  ? over[i]
                                   : Bytes{});
    problem.boundary.push_back(hop || problem.places == StagePlaces::Backwards ? over[i + 1] : Bytes{});
    problem.gradients.push_back(of_parameters(gradient));
  }
  const Device& device = scenario.cluster.device;
  const auto room = static_cast<double>(std::max((device.memory - device.reserve).value, std::int64_t{0}));
  problem.capacity = {static_cast<std::int64_t>(room / (1 + device.fragmentation))};
}

// Whether a worker waits for the all-reduce of a round behind its backward.
bool waits(const SuffixProblem& problem, const Plan& shell) {
  return !problem.flush && shell.gradient_sync != GradientSync::Overlapped;
}

// Times of a micro-batch that each replica spends on it, its share of the optimizer step included where every round has
// one.
void add_times(SuffixProblem& problem, const Plan& shell, const CostModel& cost, const LayerCosts& layers) {
  const Model& model = cost.scenario().model;
  const Recompute mode = mode_of(shell);
  std::int64_t parameters = 0;
  for (const Layer& layer : model.layers)
    parameters = checked_sum(parameters, layer.held(), "the parameters");
  const bool updates = !problem.flush && cost.scenario().training.zero == 0;
  const auto update = updates ? static_cast<double>(cost.source().update(parameters).value) : 0.0;
  for (std::size_t i = 0; i < layers.forward.size(); ++i) {
    Time time = checked_sum(layers.forward[i], layers.backward[i]);
    if (mode == Recompute::Full && !shell.recompute_except_last) time = checked_sum(time, layers.forward[i]);
    if (mode == Recompute::Selective) time = checked_sum(time, layers.rebuild[i]);
    if (parameters > 0)
      time += Time{static_cast<std::int64_t>(update * static_cast<double>(model.layers[i].held()) /
                                             static_cast<double>(parameters))};
    problem.compute.push_back(time);
    if (!waits(problem, shell)) continue;
    Time beside;  // the backward op of this layer
    if (shell.gradient_sync == GradientSync::AtOnce)
      beside = mode == Recompute::Selective ? layers.backward[i] + layers.rebuild[i] : layers.backward[i];
    problem.apart.push_back(time - beside);
  }
  const int ops = mode == Recompute::Full && !shell.recompute_except_last ? 3 : 2;
  problem.per_stage = Time{checked_product(ops, cost.source().op_overhead().value, "the overhead of a stage")};
}

}  // namespace

SuffixProblem suffix_problem(const Plan& shell, const CostModel& cost, StagePlaces places) {
  const LayerCosts layers = cost.layers(shell.micro_batch_size);
  SuffixProblem problem;
  problem.places = places;
  problem.devices = all_workers(shell, cost.scenario().cluster);
  problem.flush = has_flush(shell);
  problem.micro_batches = shell.micro_batches;
  add_links(problem, shell, cost);
  add_memory(problem, shell, cost, layers);
  add_times(problem, shell, cost, layers);
  return problem;
}

namespace {

// --- fewer cuts ------------------------------------------------------------------------------------------------------

// Layers that take no time and have no parameters do not decide where work lies: of the cuts between two layers that
// do, the one with the fewest bytes is kept (of several the first). Every entry of the result is a range of layers.
struct Folded {
  SuffixProblem problem;
  std::vector<LayerRange> layers;
};
Folded folded(const SuffixProblem& whole) {
  Folded result{whole, {}};
  const auto count = static_cast<LayerId>(whole.compute.size());
  const auto idle = [&](LayerId i) { return whole.compute[at(i)] == Time{} && whole.gradients[at(i)] == Bytes{}; };
  LayerId begin = 0;
  for (LayerId i = 0; i < count;) {
    LayerId next = i + 1;  // the cuts behind layers i .. next - 1 have the same work on either side
    while (next < count && idle(next))
      ++next;
    LayerId end = i + 1;
    for (LayerId cut = i + 1; cut <= next && next < count; ++cut)
      if (whole.boundary[at(cut) - 1] < whole.boundary[at(end) - 1]) end = cut;
    if (next == count) end = count;
    result.layers.push_back({begin, end});
    begin = end, i = next;
  }
  const auto sums = [&](auto& values) {
    const auto all = std::exchange(values, {});
    for (const LayerRange& range : result.layers) {
      auto sum = all[at(range.begin)];
      for (LayerId i = range.begin + 1; i < range.end; ++i)
        sum = checked_sum(sum, all[at(i)]);
      values.push_back(sum);
    }
  };
  SuffixProblem& problem = result.problem;
  if (!problem.apart.empty()) sums(problem.apart);
  sums(problem.compute), sums(problem.resident), sums(problem.stash), sums(problem.gradients);
  problem.entry.clear(), problem.boundary.clear();
  for (const LayerRange& range : result.layers) {
    problem.entry.push_back(whole.entry[at(range.begin)]);
    problem.boundary.push_back(whole.boundary[at(range.end) - 1]);
  }
  return result;
}

// Where there are many workers, not every number of replicas: all up to 16, then in steps of an eighth, and the
// largest.
std::vector<int> numbers_of_replicas(int workers) {
  std::vector<int> sizes;
  for (int r = 1; r <= workers; r += std::max(1, r / 8))
    sizes.push_back(r);
  for (int r = std::max(1, workers - 2); r <= workers; ++r)
    sizes.push_back(r);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

// --- candidates ------------------------------------------------------------------------------------------------------

enum class Order {
  Backwards,  // the last stage on the last devices of the last node, and so on towards the front
  Spread,     // neighbouring workers on different nodes
};

struct Shape {
  std::vector<int> ends;      // of the stages, in folded layers
  std::vector<int> replicas;  // per stage
  Order order = Order::Backwards;
  auto operator<=>(const Shape&) const = default;
  int workers() const { return std::accumulate(replicas.begin(), replicas.end(), 0); }
};

struct Candidate {
  Shape shape;
  Time estimate;
  std::string from;
};

struct Simulated {
  Candidate candidate;
  Plan plan;
  double samples_per_s = 0;
};

// Faster first; then fewer workers, fewer stages, and the shape itself.
bool better(const Simulated& a, const Simulated& b) {
  if (a.samples_per_s != b.samples_per_s) return a.samples_per_s > b.samples_per_s;
  const auto key = [](const Simulated& s) {
    return std::tuple(s.candidate.shape.workers(), s.candidate.shape.ends.size(), s.candidate.shape);
  };
  return key(a) < key(b);
}

SuffixProblem at_places(SuffixProblem problem, StagePlaces places) {
  problem.places = places;
  return problem;
}

class Search {
 public:
  Search(const Plan& shell, const CostModel& cost, const ReplicatedOptions& options)
      : shell_(shell),
        cost_(cost),
        options_(options),
        rule_(find_schedule(shell.schedule)),
        whole_(suffix_problem(shell, cost, StagePlaces::Backwards)),
        folded_(folded(whole_)) {
    PP_CHECK(shell.data_parallel == 1 && shell.virtual_stages == 1 && rule_ != nullptr);
    workers_ = whole_.devices;
    if (options.workers > 0) workers_ = std::min(workers_, options.workers);
    folded_.problem.devices = workers_;
    folded_.problem.replicas = numbers_of_replicas(workers_);
    for (const Bytes bytes : folded_.problem.gradients)
      gradients_.push_back(gradients_.back() + static_cast<double>(bytes.value));
    for (int w = 0; w < workers_; ++w)
      in_order_.push_back(w);
    spread_ = in_order_;
    const int g = workers_per_node(shell, cost.scenario().cluster);
    std::stable_sort(spread_.begin(), spread_.end(), [g](int a, int b) { return a % g < b % g; });
  }

  ReplicatedAnswer run() {
    const int count = static_cast<int>(folded_.layers.size());
    const Shape one{{count}, {workers_}};
    consider({one, estimate(one), "data parallelism"});
    answer_.lower_bound = lower_bound();
    // What messages take in buffers shows in the simulation alone: where it was too much, more room is set aside.
    for (const std::int64_t messages : {0, 1, 2, 4, 8}) {
      if (proven() || stopped()) break;
      folded_.problem.buffered = messages;
      promising_rejected_ = 0;
      simulate_in_order(by_stages());
      improve();
      if (promising_rejected_ == 0) break;
    }
    also_elsewhere();
    finish();
    return std::move(answer_);
  }

 private:
  bool stopped() {
    if (!answer_.interrupted && options_.stopped && options_.stopped()) answer_.interrupted = true;
    return answer_.interrupted;
  }
  bool may_simulate() { return answer_.simulated < options_.most_simulations && !stopped(); }

  // Nothing better than the best so far is left.
  bool proven() const { return !found_.empty() && best_cycle() <= answer_.lower_bound; }

  // Times are rounded once per layer and bucket: so much less than the DP's bottleneck a cycle may be. Where no plan is
  // below the best so far, that one is the bound.
  Time lower_bound() const {
    SuffixProblem problem = suffix_problem(shell_, cost_, StagePlaces::Anywhere);
    problem.devices = workers_;
    problem.limit = best_cycle();
    const SuffixAnswer least = suffix_dp(problem);
    if (least.stages.empty()) return found_.empty() ? Time{} : best_cycle();
    const std::int64_t rounding = static_cast<std::int64_t>(problem.compute.size()) + 1;
    return {std::max(least.bottleneck.value - rounding, std::int64_t{0})};
  }

  Time best_cycle() const { return found_.empty() ? kNever : cycle(found_.front()); }
  Time cycle(const Simulated& simulated) const {
    if (!(simulated.samples_per_s > 0)) return {};  // nothing takes any time
    return {static_cast<std::int64_t>(static_cast<double>(shell_.micro_batch_size) / simulated.samples_per_s * 1e9)};
  }

  Candidate candidate(const std::vector<SuffixStage>& stages, std::string from) const {
    Shape shape;
    for (const SuffixStage& stage : stages)
      shape.ends.push_back(stage.layers.end), shape.replicas.push_back(stage.replicas);
    return {shape, estimate(shape), std::move(from)};
  }

  std::vector<Candidate> by_stages() {
    SuffixProblem problem = folded_.problem;
    problem.limit = best_cycle();
    const int wanted = options_.most_stages > 0 ? options_.most_stages : 32;
    std::vector<Candidate> list;
    std::vector<int> whole_nodes;
    for (int n = problem.devices_per_node; n > 0 && n < workers_; n += problem.devices_per_node)
      whole_nodes.push_back(n);
    for (const SuffixAnswer& each : suffix_dp_by_stages(problem, wanted, whole_nodes))
      list.push_back(candidate(
          each.stages, fmt::format("the least bottleneck of {} stage{} on {} worker{}", each.stages.size(),
                                   each.stages.size() == 1 ? "" : "s", each.devices, each.devices == 1 ? "" : "s")));
    if (problem.devices_per_node == 0) return list;
    const std::size_t count = list.size();
    for (std::size_t i = 0; i < count; ++i)
      list.push_back(elsewhere(list[i].shape));
    problem.places = StagePlaces::Spread;
    for (const SuffixAnswer& each : suffix_dp_by_stages(problem, wanted))
      list.push_back(elsewhere(candidate(each.stages, "").shape));
    return list;
  }

  // The largest of the slowest stage, the busiest link and the slowest round trip; kNever where a stage does not fit.
  Time estimate(const Shape& shape) const {
    const SuffixProblem& problem = folded_.problem;
    const Traffic traffic = traffic_of(shape);
    double slowest = traffic.busiest, round_trip = 0;
    int behind = 0, end = static_cast<int>(folded_.layers.size());
    for (std::size_t k = shape.ends.size(); k-- > 0;) {
      const int begin = k == 0 ? 0 : shape.ends[k - 1], r = shape.replicas[k];
      if (stages_.memory(begin, end, stages_.in_flight(r, behind)) > problem.capacity.value) return kNever;
      const auto compute = static_cast<double>(stages_.compute(begin, end));
      const bool by_formula = shape.order == Order::Backwards;  // of other places the traffic says it
      slowest = std::max(slowest, by_formula ? static_cast<double>(stages_.time(begin, end, r, behind)) : compute / r);
      if (!by_formula) slowest = std::max(slowest, static_cast<double>(elsewhere_.waiting(begin, end, r, behind)));
      round_trip += compute;
      slowest = std::max(slowest, round_trip / static_cast<double>(replica_in_flight(r, behind)) / r);
      if (k > 0) round_trip += 2 * traffic.hop[k - 1];
      behind += r, end = begin;
    }
    return {static_cast<std::int64_t>(slowest)};
  }

  // Per micro-batch, in ns: of the busiest link between nodes, for all messages and all-reduces of the stages there;
  // and of one message behind each stage but the last, alone, on average over the pairs of replicas.
  struct Traffic {
    double busiest = 0;
    std::vector<double> hop;
  };
  Traffic traffic_of(const Shape& shape) const {
    const SuffixProblem& problem = folded_.problem;
    const int g = std::max(problem.devices_per_node, 1);
    const bool flat = problem.devices_per_node == 0;
    const std::vector<int>& seats = shape.order == Order::Spread ? spread_ : in_order_;
    Traffic traffic;
    std::vector<double> bytes(flat ? 0 : at((workers_ - 1) / g + 1));
    int position = workers_ - shape.workers(), begin = 0;
    for (std::size_t k = 0; k < shape.ends.size(); ++k) {
      const int r = shape.replicas[k], next = position + r, end = shape.ends[k];
      if (!flat) add_all_reduce(bytes, seats, position, next, gradients_[at(end)] - gradients_[at(begin)]);
      if (k + 1 < shape.ends.size()) {
        const int behind = shape.replicas[k + 1], turns = flat ? 0 : std::lcm(r, behind);
        const auto message = static_cast<double>(problem.boundary[at(end) - 1].value);
        int crossing = 0;
        for (int m = 0; m < turns; ++m) {
          const int from = seats[at(position + m % r)] / g, to = seats[at(next + m % behind)] / g;
          if (from == to) continue;
          ++crossing;
          bytes[at(from)] += message / turns, bytes[at(to)] += message / turns;
        }
        const double share = flat ? 1 : static_cast<double>(crossing) / turns;
        traffic.hop.push_back(message * 1e9 * (share / problem.bandwidth.value + (1 - share) / problem.inside.value));
      }
      position = next, begin = end;
    }
    if (!flat) traffic.busiest = 1e9 * *std::max_element(bytes.begin(), bytes.end()) / problem.bandwidth.value;
    return traffic;
  }

  // The part of an all-reduce that leaves each of its nodes, among the seats of positions first .. last - 1.
  void add_all_reduce(std::vector<double>& bytes, const std::vector<int>& seats, int first, int last,
                      double gradients) const {
    const int g = folded_.problem.devices_per_node;
    std::vector<char> member(bytes.size());
    for (int w = first; w < last; ++w)
      member[at(seats[at(w)] / g)] = 1;
    const auto p = static_cast<double>(std::count(member.begin(), member.end(), 1));
    const double rounds = folded_.problem.flush ? static_cast<double>(shell_.micro_batches) : last - first;
    for (std::size_t node = 0; node < bytes.size(); ++node)
      if (member[node] != 0) bytes[node] += 2 * (p - 1) / p * gradients / rounds;
  }

  Plan plan_of(const Shape& shape) const {
    Plan plan = shell_;
    plan.stages = static_cast<int>(shape.ends.size());
    plan.replicas = shape.replicas;
    plan.recompute.assign(shape.ends.size(), mode_of(shell_));
    plan.layers.clear(), plan.device.clear();
    LayerId begin = 0;
    for (const int end : shape.ends) {
      plan.layers.push_back({begin, folded_.layers[at(end) - 1].end});
      begin = plan.layers.back().end;
    }
    const std::vector<int>& seats = shape.order == Order::Spread ? spread_ : in_order_;
    for (int w = workers_ - shape.workers(); w < workers_; ++w)
      plan.device.push_back(seats[at(w)] * shell_.tensor_parallel);
    return plan;
  }

  static bool sooner(const Candidate& a, const Candidate& b) { return a.estimate < b.estimate; }

  // The most promising first, each also after small changes as far as they lower its estimate.
  void simulate_in_order(std::vector<Candidate> list) {
    std::stable_sort(list.begin(), list.end(), sooner);
    const std::size_t count = std::min(list.size(), kDescents);
    for (std::size_t i = 0; i < count; ++i)
      list.push_back(descended(list[i]));
    std::stable_sort(list.begin(), list.end(), sooner);
    for (const Candidate& each : list)
      if (each.estimate < best_cycle() && may_simulate() && promising_rejected_ < kRejectedPerRound) consider(each);
  }
  static constexpr std::size_t kDescents = 12;

  Candidate descended(Candidate candidate) const {
    while (true) {
      const std::vector<Candidate> moves = changes(candidate.shape);
      const auto least = std::min_element(moves.begin(), moves.end(), sooner);
      if (least == moves.end() || !(least->estimate < candidate.estimate)) return candidate;
      candidate = *least;
    }
  }
  static constexpr int kRejectedPerRound = 4;

  // What was simulated; nothing where it is known already, or no plan that could run.
  std::optional<Simulated> consider(const Candidate& candidate) {
    if (static_cast<int>(candidate.shape.ends.size()) < options_.least_stages) return std::nullopt;
    if (!seen_.insert(candidate.shape).second) return std::nullopt;
    ++answer_.candidates;
    const Plan plan = plan_of(candidate.shape);
    const Scenario& scenario = cost_.scenario();
    const ScheduleShape shape = schedule_shape(plan, scenario.model, scenario.training);
    if (const std::string why = rule_->refusal(shape); !why.empty()) {
      ++answer_.rejected["schedule: " + why];
      return std::nullopt;
    }
    ++answer_.simulated;
    Simulated simulated{candidate, plan, 0};
    const std::optional<Excess> excess = simulate_shortly(simulated);
    if (excess) {
      reject(plan, *excess, found_.empty() || better(simulated, found_.front()));
      return std::nullopt;
    }
    found_.insert(std::upper_bound(found_.begin(), found_.end(), simulated, better), simulated);
    return simulated;
  }

  struct Excess {
    StageId stage = 0;
    Bytes bytes;
  };

  void reject(const Plan& plan, const Excess& excess, bool promising) {
    ++answer_.rejected["memory"];
    if (promising) ++promising_rejected_;
    if (answer_.missing != Bytes{} && answer_.missing <= excess.bytes) return;
    answer_.missing = excess.bytes;
    answer_.nearest_miss = fmt::format("replicas {}: stage {} needs {} bytes more than its device has",
                                       fmt::join(plan.replicas, "-"), excess.stage, excess.bytes.value);
  }

  // Fills in the throughput; what the fullest device lacks is returned. Asynchronous: a run that is just long enough
  // for a period in most cases; what the planner returns runs longer.
  std::optional<Excess> simulate_shortly(Simulated& simulated) const {
    Plan run = simulated.plan;
    if (!rule_->flush) {
      std::int64_t round = 1;
      for (const int r : run.replicas)
        round = std::min(std::lcm(round, std::int64_t{r}), kLongestRound);
      const std::int64_t depth = run.positions() + run.replicas.front();
      run.micro_batches = (2 * depth + 3 * std::max(depth, round)) / round * round + round;
      run.last_micro_batch_size = run.micro_batch_size;
    }
    const StepCosts costs = step_costs(run, cost_);
    const Schedule schedule = rule_->generate(costs.shape);
    const Timeline timeline = simulate(schedule, costs);
    std::optional<SteadyState> steady;
    if (!rule_->flush) steady = steady_state(schedule, costs, timeline);
    simulated.samples_per_s = samples_per_second(run, timeline.makespan, steady);
    const MemoryModel memory = memory_model(run, cost_);
    std::optional<Excess> most;
    const std::vector<MemoryPeak> fullest = peaks(memory, schedule, costs, timeline);
    for (std::size_t w = 0; w < fullest.size(); ++w) {
      const Bytes excess = need(memory, fullest[w].bytes).with_reserve - memory.capacity;
      if (excess > Bytes{} && (!most || excess > most->bytes))
        most = Excess{run.stage_at(static_cast<PositionId>(w)), excess};
    }
    return most;
  }
  static constexpr std::int64_t kLongestRound = 256;

  // One change at a time, the most promising first, as long as one helps: from each of the best few plans.
  void improve() {
    std::vector<Shape> starts;  // of different numbers of stages
    for (const Simulated& each : found_) {
      const Shape& shape = each.candidate.shape;
      const auto like = [&](const Shape& start) { return start.ends.size() == shape.ends.size(); };
      if (starts.size() < kStarts && std::none_of(starts.begin(), starts.end(), like)) starts.push_back(shape);
    }
    for (const Shape& start : starts) {
      Shape shape = start;
      double rate = rate_of(shape);
      while (may_simulate() && !proven() && promising_rejected_ < kRejectedPerRound) {
        const std::optional<Simulated> next = better_neighbour(shape, rate);
        if (!next) break;
        shape = next->candidate.shape, rate = next->samples_per_s;
      }
    }
  }
  static constexpr std::size_t kStarts = 6;

  double rate_of(const Shape& shape) const {
    for (const Simulated& each : found_)
      if (each.candidate.shape == shape) return each.samples_per_s;
    return 0;
  }

  std::optional<Simulated> better_neighbour(const Shape& shape, double rate) {
    std::vector<Candidate> moves = changes(shape);
    std::stable_sort(moves.begin(), moves.end(), sooner);
    int tried = 0;
    for (const Candidate& move : moves) {
      if (tried == kMovesTried || move.estimate >= best_cycle() || !may_simulate()) break;
      if (seen_.contains(move.shape)) continue;
      ++tried;
      if (const std::optional<Simulated> simulated = consider(move); simulated && simulated->samples_per_s > rate)
        return simulated;
    }
    return std::nullopt;
  }
  static constexpr int kMovesTried = 24;

  std::vector<Candidate> changes(const Shape& shape) const {
    std::vector<Candidate> list;
    const auto add = [&](Shape changed, const char* how) {
      const Time time = estimate(changed);
      list.push_back({std::move(changed), time, how});
    };
    const int count = static_cast<int>(folded_.layers.size()), stages = static_cast<int>(shape.ends.size());
    for (int k = 0; k + 1 < stages; ++k) {
      for (const int by : {-4, -2, -1, 1, 2, 4}) {
        Shape moved = shape;
        int& end = moved.ends[at(k)];
        end += by;
        if (end > (k == 0 ? 0 : shape.ends[at(k) - 1]) && end < shape.ends[at(k) + 1] && end < count)
          add(std::move(moved), "a cut moved");
      }
      for (const int from : {k, k + 1}) {
        Shape handed = shape;
        if (--handed.replicas[at(from)] < 1) continue;
        ++handed.replicas[at(from == k ? k + 1 : k)];
        add(std::move(handed), "a replica moved");
      }
      Shape joined = shape;
      joined.ends.erase(joined.ends.begin() + k);
      joined.replicas[at(k)] += joined.replicas[at(k) + 1];
      joined.replicas.erase(joined.replicas.begin() + k + 1);
      add(std::move(joined), "two stages joined");
    }
    for (int k = 0; k < stages; ++k)
      for (const int r : std::set<int>{1, shape.replicas[at(k)] / 2, shape.replicas[at(k)] - 1})
        if (r >= 1 && r < shape.replicas[at(k)])
          if (const std::optional<Shape> parts = split(shape, k, r)) add(*parts, "a stage split");
    if (shape.workers() < workers_)
      for (int k = 0; k < stages; ++k) {
        Shape more = shape;
        ++more.replicas[at(k)];
        add(std::move(more), "a worker added");
      }
    if (folded_.problem.devices_per_node > 0) list.push_back(elsewhere(shape));
    return list;
  }

  // Stage k in two, the first with r of the replicas and their share of the work.
  std::optional<Shape> split(const Shape& shape, int k, int r) const {
    const int begin = k == 0 ? 0 : shape.ends[at(k) - 1], end = shape.ends[at(k)], all = shape.replicas[at(k)];
    if (end - begin < 2) return std::nullopt;
    const std::int64_t share = stages_.compute_of(begin, end) / all * r;
    int cut = begin + 1;
    while (cut + 1 < end && stages_.compute_of(begin, cut) < share)
      ++cut;
    Shape parts = shape;
    parts.ends.insert(parts.ends.begin() + k, cut);
    parts.replicas[at(k)] = r;
    parts.replicas.insert(parts.replicas.begin() + k + 1, all - r);
    return parts;
  }

  Candidate elsewhere(const Shape& shape) const {
    Shape other = shape;
    other.order = shape.order == Order::Spread ? Order::Backwards : Order::Spread;
    return {other, estimate(other), "on other devices"};
  }

  // Transfers that meet may show in a long run only: the best shapes are priced in their other places, too, even where
  // a short run was as fast as the bound.
  void also_elsewhere() {
    if (folded_.problem.devices_per_node == 0) return;
    std::vector<Shape> best;
    for (const Simulated& each : found_)
      if (best.size() < options_.top) best.push_back(each.candidate.shape);
    for (const Shape& shape : best)
      if (!stopped()) consider(elsewhere(shape));
  }

  // The best ones as `price` has them: the whole run, buffers in memory, the full steady state.
  void finish() {
    const Time cycle_bound = answer_.lower_bound;
    for (const Simulated& each : found_) {
      if (answer_.ranking.size() >= options_.top) break;
      const Answer priced = price(each.plan, cost_, Engine::Auto);
      if (!priced.report.fits) {
        for (const WorkerReport& worker : priced.report.workers)
          if (!worker.fits) reject(each.plan, {worker.stage, worker.need.with_reserve - priced.memory.capacity}, false);
        continue;
      }
      ReplicatedPlan entry;
      entry.plan = each.plan;
      entry.step = priced.report.step_time;
      entry.samples_per_s = priced.report.samples_per_s;
      entry.cycle = Time{entry.step.value / each.plan.micro_batches};
      entry.estimate = each.candidate.estimate;
      entry.idle = whole_.devices - each.plan.positions();
      entry.from = each.candidate.from;
      answer_.ranking.push_back(std::move(entry));
    }
    std::stable_sort(
        answer_.ranking.begin(), answer_.ranking.end(),
        [](const ReplicatedPlan& a, const ReplicatedPlan& b) { return a.samples_per_s > b.samples_per_s; });
    const double micro_batches =
        static_cast<double>(shell_.global_batch_size) / static_cast<double>(shell_.micro_batch_size);
    answer_.lower_bound = {static_cast<std::int64_t>(static_cast<double>(cycle_bound.value) * micro_batches)};
  }

  const Plan& shell_;
  const CostModel& cost_;
  const ReplicatedOptions& options_;
  const ScheduleRule* rule_;
  SuffixProblem whole_;
  Folded folded_;
  SuffixStages stages_{folded_.problem};
  SuffixProblem spread_out_{at_places(folded_.problem, StagePlaces::Spread)};
  SuffixStages elsewhere_{spread_out_};  // for Order::Spread
  int workers_ = 1;
  std::vector<double> gradients_{0};    // sums over the folded layers before
  std::vector<int> in_order_, spread_;  // seats in the cluster, by the place in the pipeline
  std::set<Shape> seen_;
  std::vector<Simulated> found_;  // best first
  int promising_rejected_ = 0;    // for memory, although they would have been the best
  ReplicatedAnswer answer_;
};

}  // namespace

ReplicatedAnswer replicated_plans(const Plan& shell, const CostModel& cost, const ReplicatedOptions& options) {
  return Search(shell, cost, options).run();
}

}  // namespace pipewright
