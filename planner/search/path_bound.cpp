#include "planner/search/path_bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "core/plan/schedule.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Forwards and backwards of one copy, each with what it waits for, in an order in which that comes first.
struct Chains {
  struct Node {
    std::int32_t lane = -1, message = -1;  // -1: none
    std::int32_t chunk = 0;
    bool back = false, hop = false;
  };
  std::vector<Node> nodes;
  std::vector<std::int32_t> last;  // of every stage
};

class ChainBuilder {
 public:
  explicit ChainBuilder(const Schedule& schedule)
      : schedule_(schedule), micro_batches_(schedule.shape.micro_batches), chunks_(schedule.shape.chunks()) {
    forward_.assign(at(std::int64_t{chunks_} * micro_batches_), -1), backward_ = forward_;
    chains_.last.assign(at(schedule.shape.stages), -1);
    next_.assign(at(schedule.shape.stages), 0);
  }

  // Nothing: there are other ops, or one that waits for ever.
  std::optional<Chains> build() {
    for (bool any = true; any;) {
      any = false;
      for (StageId k = 0; k < schedule_.shape.stages; ++k)
        while (take(k))
          any = true;
    }
    for (StageId k = 0; k < schedule_.shape.stages; ++k)
      if (next_[at(k)] < lane(k).size() || chains_.last[at(k)] < 0) return std::nullopt;
    return std::move(chains_);
  }

 private:
  const std::vector<Op>& lane(StageId k) const { return schedule_.positions[as<PositionId>(k)].compute; }
  std::int32_t& of(std::vector<std::int32_t>& known, int chunk, MicroBatchId m) {
    return known[at(std::int64_t{chunk} * micro_batches_ + m)];
  }

  // The next op of the stage, where it need not wait for one that is not taken yet.
  bool take(StageId k) {
    if (next_[at(k)] == lane(k).size()) return false;
    const Op& op = lane(k)[next_[at(k)]];
    const KindRule& does = rule(op.kind);
    if (does.backward != does.gradients) return false;  // it is split
    if (!does.forward && !does.backward) return ++next_[at(k)], true;
    const int chunk = op.virtual_stage;
    Chains::Node node{.lane = chains_.last[at(k)], .chunk = chunk, .back = does.backward};
    const int from = node.back ? chunk + 1 : chunk - 1;
    if (from >= 0 && from < chunks_) {
      node.message = of(node.back ? backward_ : forward_, from, op.micro_batch);
      if (node.message < 0) return false;
      node.hop = std::abs(schedule_.shape.stage_of(from) - k) == 1;
    }
    of(node.back ? backward_ : forward_, chunk, op.micro_batch) = static_cast<std::int32_t>(chains_.nodes.size());
    chains_.last[at(k)] = static_cast<std::int32_t>(chains_.nodes.size());
    chains_.nodes.push_back(node);
    return ++next_[at(k)], true;
  }

  const Schedule& schedule_;
  int micro_batches_, chunks_;
  Chains chains_;
  std::vector<std::int32_t> forward_, backward_;  // by chunk and micro-batch: the node, -1: none yet
  std::vector<std::size_t> next_;
};

// A mean of chains: how often it visits every chunk. `on_lane`: backwards that it comes to from the op before them on
// their stage, so behind an R of theirs.
struct Mean {
  std::vector<double> forward, backward, on_lane;
  double hops = 0;

  explicit Mean(std::size_t chunks) : forward(chunks), backward(chunks), on_lane(chunks) {}
  void move(const Mean& to, double share) {
    const auto each = [share](std::vector<double>& mine, const std::vector<double>& other) {
      for (std::size_t i = 0; i < mine.size(); ++i)
        mine[i] += share * (other[i] - mine[i]);
    };
    each(forward, to.forward), each(backward, to.backward), each(on_lane, to.on_lane);
    hops += share * (to.hops - hops);
  }
};

// The chains that are nearly the longest for some times of the chunks. Ways into an op whose lengths differ by less
// than `smooth` are both taken.
class LongestChains {
 public:
  LongestChains(const Chains& chains, double hop) : chains_(chains), hop_(hop) {
    end_.resize(chains.nodes.size()), by_message_.resize(chains.nodes.size()), share_.resize(chains.nodes.size());
  }

  void mean(const std::vector<double>& forward, const std::vector<double>& backward, double smooth, Mean& mean) {
    lengthen(forward, backward, smooth);
    std::ranges::fill(share_, 0.0);
    for (std::vector<double>* counts : {&mean.forward, &mean.backward, &mean.on_lane})
      std::fill(counts->begin(), counts->end(), 0.0);
    mean.hops = 0;
    deal_out(smooth);
    for (std::size_t i = chains_.nodes.size(); i-- > 0;)
      if (share_[i] > kNothing) visit(i, mean);
  }

 private:
  static constexpr double kNothing = 1e-12;

  void lengthen(const std::vector<double>& forward, const std::vector<double>& backward, double smooth) {
    for (std::size_t i = 0; i < chains_.nodes.size(); ++i) {
      const Chains::Node& node = chains_.nodes[i];
      const double time = (node.back ? backward : forward)[at(node.chunk)];
      const double lane = node.lane < 0 ? 0 : end_[at(node.lane)];
      const double message = node.message < 0 ? 0 : end_[at(node.message)] + (node.hop ? hop_ : 0);
      const double ahead = node.message < 0 ? -1 : node.lane < 0 ? 1 : (message - lane) / smooth;
      by_message_[i] = std::clamp(0.5 + 0.5 * ahead, 0.0, 1.0);
      end_[i] = time + (ahead <= -1  ? lane
                        : ahead >= 1 ? message
                                     : 0.5 * (lane + message) + 0.25 * smooth * (1 + ahead * ahead));
    }
  }

  // The ends of the stages, as far as they are nearly the last.
  void deal_out(double smooth) {
    double latest = 0, sum = 0;
    for (const std::int32_t last : chains_.last)
      latest = std::max(latest, end_[at(last)]);
    const auto weight = [&](std::int32_t last) { return std::max(0.0, 1 - (latest - end_[at(last)]) / smooth); };
    for (const std::int32_t last : chains_.last)
      sum += weight(last);
    for (const std::int32_t last : chains_.last)
      share_[at(last)] += weight(last) / sum;
  }

  void visit(std::size_t i, Mean& mean) {
    const Chains::Node& node = chains_.nodes[i];
    const double share = share_[i], message = share * by_message_[i];
    (node.back ? mean.backward : mean.forward)[at(node.chunk)] += share;
    if (node.back) mean.on_lane[at(node.chunk)] += share - message;
    if (node.lane >= 0) share_[at(node.lane)] += share - message;
    if (node.message >= 0) share_[at(node.message)] += message;
    if (node.hop) mean.hops += message;
  }

  const Chains& chains_;
  double hop_;
  std::vector<double> end_, by_message_, share_;
};

// The layers of a chunk, in units of the run's.
struct Ends {
  double forward = 0, backward = 0;
};

class PathBound {
 public:
  // Only steps shorter than `enough` are of interest: stages that are busy for as long are not looked at.
  PathBound(const PathProblem& problem, const Chains& chains, double enough)
      : problem_(problem),
        enough_(enough),
        seating_(problem.shell.seating()),
        stages_(problem.shell.stages),
        chunks_(problem.shell.chunks()),
        layers_(problem.run.size()),
        forward_(time(problem.layers.forward, problem.run.begin)),
        again_(time(problem.layers.again, problem.run.begin)),
        backward_(time(problem.layers.backward, problem.run.begin)),
        first_{time(problem.layers.forward, 0), time(problem.layers.backward, 0)},
        longest_(chains, nanoseconds(problem.hop)) {
    const bool last_is_other = problem.run.end < static_cast<LayerId>(problem.layers.forward.size());
    if (last_is_other)
      last_ = {time(problem.layers.forward, problem.run.end), time(problem.layers.backward, problem.run.end)};
    least_.assign(at(chunks_), 1);
    least_.front() = 0;
    if (last_is_other) least_.back() = 0;
    for (const int least : least_)
      free_ -= least;
    free_ += layers_;
    for (StageId k = 0; k < stages_; ++k)
      list_choices(k);
  }

  double at_least(int rounds) {
    double best = 0;
    if (free_ < 0) return kInfinite;
    if (!(unit() > 0)) return 0;
    Descent descent(seating_);
    Mean now(at(chunks_));
    constexpr int kBetween = 20;  // rounds between two looks at the bound
    for (int round = 1; round <= rounds; ++round) {
      const double step = 2.0 / (round + 1);
      descent.look_between(step);
      longest_.mean(forward_times(descent), backward_times(descent), smooth(), now);
      mean_.move(now, step);
      descent.go(step, weights(now), now.backward, problem_.shell.micro_batches);
      if (round % kBetween != 0 && round != rounds) continue;
      best = std::max(best, least_over_cuts());
      if (best >= enough_) break;
    }
    return best;
  }

 private:
  static double nanoseconds(Time time) { return static_cast<double>(time.value); }
  static double time(const std::vector<Time>& of, LayerId layer) { return nanoseconds(of[at(layer)]); }

  // A stage with so many layers of the run and what recomputation adds to each of its micro-batches.
  struct Choice {
    int layers = 0;
    double extra = 0;       // time
    bool by_stage = false;  // full recomputation: it runs before the gradient arrives
    double in_flight = 0;   // sum of c_j n_j at most, beyond one layer in each chunk
    double busy = 0;        // of the stage alone
    double least = 0;       // price for the mean of now: the least of those before it with as many layers, and its own
  };

  double unit() const { return forward_ + backward_; }

  // As many layers as fit, with each recomputation that may do; what adds more and needs less behind what does not.
  void list_choices(StageId k) {
    std::vector<Choice> all;
    const int least = least_of(k);
    for (int n = least; n <= layers_; ++n) {
      const std::size_t before = all.size();
      for (const Recompute mode : problem_.modes)
        add_choices(k, n, mode, all);
      if (all.size() == before) break;
    }
    std::ranges::stable_sort(
        all, [](const Choice& a, const Choice& b) { return std::tie(a.layers, a.busy) < std::tie(b.layers, b.busy); });
    choices_.push_back(std::move(all));
  }

  // Whether a stage that is busy for less than `enough` has it.
  bool add(StageId k, Choice choice, std::vector<Choice>& all) {
    choice.busy = busy(k, choice.layers, choice.extra);
    if (choice.busy >= enough_) return left_out_ = true, false;
    all.push_back(choice);
    return true;
  }

  std::size_t chunk_of(StageId k, int i) const { return at(seating_.chunk_of(k, i)); }

  int least_of(StageId k) const {
    int sum = 0;
    for (int i = 0; i < seating_.held(); ++i)
      sum += least_[chunk_of(k, i)];
    return sum;
  }

  double in_flight_of_least(StageId k) const {
    const InFlight& now = problem_.memory.fullest(k);
    double sum = 0;
    for (int i = 0; i < seating_.held(); ++i)
      sum += least_[chunk_of(k, i)] * static_cast<double>(now.of_chunk[at(i)]);
    return sum;
  }

  void add_choices(StageId k, int n, Recompute mode, std::vector<Choice>& all) {
    if (mode == Recompute::Knapsack || mode == Recompute::Layers || mode == Recompute::None) {
      const int most = mode == Recompute::None ? 0 : n;
      const bool any = mode == Recompute::None ? problem_.memory.fits(k, n, mode) : true;
      for (int r = mode == Recompute::None ? 0 : problem_.memory.least_rebuilt(k, n); any && r <= most; ++r) {
        const double room = problem_.memory.most_in_flight(k, n, r) - in_flight_of_least(k);
        if (room < 0) continue;
        if (!add(k, {.layers = n, .extra = r * again_, .in_flight = room}, all)) break;
        if (room >= (n - least_of(k)) * static_cast<double>(problem_.memory.fullest(k).most)) break;
      }
    } else if (problem_.memory.fits(k, n, mode)) {
      const double each = mode == Recompute::Full                       ? forward_
                          : mode == Recompute::Blocks && problem_.block ? again_
                          : mode == Recompute::Selective ? time(problem_.layers.rebuild, problem_.run.begin)
                                                         : 0;
      add(k, {.layers = n, .extra = n * each, .by_stage = mode == Recompute::Full, .in_flight = kInfinite}, all);
    }
  }

  // The stage begins after a forward of those before it, and its last gradient passes them back: a layer each, or the
  // model's first alone on the first.
  double busy(StageId k, int n, double extra) const {
    const double before = k == 0 ? 0 : first_.forward + first_.backward + (k - 1) * unit();
    const double ends =
        (k == 0 ? first_.forward + first_.backward : 0) + (k + 1 == stages_ ? last_.forward + last_.backward : 0);
    return before + static_cast<double>(problem_.shell.micro_batches) * (n * unit() + extra + ends);
  }

  // Of a layer of the run in every chunk.
  std::vector<double> weights(const Mean& mean) const {
    std::vector<double> weight(at(chunks_));
    for (std::size_t i = 0; i < weight.size(); ++i)
      weight[i] = forward_ * mean.forward[i] + backward_ * mean.backward[i];
    return weight;
  }

  // Where the descent stands: how the layers of the run that may lie anywhere are dealt out, and what is rebuilt.
  class Descent {
   public:
    explicit Descent(const Seating& seating)
        : seating_(seating),
          layers_(at(seating.chunks()), 1.0 / seating.chunks()),
          rebuilt_(at(seating.chunks()), static_cast<double>(seating.stages) / seating.chunks()),
          to_(layers_),
          rebuilt_to_(rebuilt_),
          between_(layers_),
          rebuilt_between_(rebuilt_) {}

    void look_between(double step) {
      mix(between_, layers_, to_, step), mix(rebuilt_between_, rebuilt_, rebuilt_to_, step);
    }
    // Away from what is visited more often than the mean.
    void go(double step, const std::vector<double>& weight, const std::vector<double>& backward,
            std::int64_t micro_batches) {
      double mean = 0;
      for (const double each : weight)
        mean += each / static_cast<double>(weight.size());
      const double usual = static_cast<double>(micro_batches) / seating_.stages;
      for (std::size_t i = 0; i < to_.size(); ++i) {
        to_[i] *= std::exp(-std::min(kMost, kRate / step * (weight[i] / mean - 1)));
        rebuilt_to_[i] *= std::exp(-std::min(kMost, kRate / step * (backward[i] / usual - 1)));
      }
      scale(to_, seating_.chunks(), [](int i) { return at(i); });
      for (StageId k = 0; k < seating_.stages; ++k)
        scale(rebuilt_to_, seating_.held(), [&](int i) { return at(seating_.chunk_of(k, i)); });
      mix(layers_, layers_, to_, step), mix(rebuilt_, rebuilt_, rebuilt_to_, step);
    }
    double layers(std::size_t chunk) const { return between_[chunk]; }
    double rebuilt(std::size_t chunk) const { return rebuilt_between_[chunk]; }

   private:
    static constexpr double kRate = 0.003, kMost = 5;
    using Shares = std::vector<double>;
    static void mix(Shares& result, const Shares& a, const Shares& b, double share) {
      for (std::size_t i = 0; i < result.size(); ++i)
        result[i] = (1 - share) * a[i] + share * b[i];
    }
    // Those of the `count` chunks that `chunk` numbers to 1 in all.
    static void scale(Shares& shares, int count, const auto& chunk) {
      double sum = 0;
      for (int i = 0; i < count; ++i)
        sum += shares[chunk(i)];
      for (int i = 0; i < count; ++i)
        shares[chunk(i)] /= sum;
    }

    Seating seating_;
    Shares layers_, rebuilt_, to_, rebuilt_to_, between_, rebuilt_between_;
  };

  double smooth() const { return 0.2 * forward_ * layers_ / chunks_ + 1e-3; }

  double layers_in(const Descent& descent, std::size_t chunk) const {
    return least_[chunk] + free_ * descent.layers(chunk);
  }

  const std::vector<double>& forward_times(const Descent& descent) {
    forward_times_.resize(at(chunks_));
    for (std::size_t i = 0; i < forward_times_.size(); ++i)
      forward_times_[i] = forward_ * layers_in(descent, i);
    forward_times_.front() += first_.forward, forward_times_.back() += last_.forward;
    return forward_times_;
  }

  const std::vector<double>& backward_times(const Descent& descent) {
    backward_times_.resize(at(chunks_));
    for (StageId k = 0; k < stages_; ++k) {
      const double extra = extra_of(k, descent);
      for (int i = 0; i < seating_.held(); ++i) {
        const std::size_t chunk = chunk_of(k, i);
        backward_times_[chunk] = backward_ * layers_in(descent, chunk) + extra * descent.rebuilt(chunk);
      }
    }
    backward_times_.front() += first_.backward, backward_times_.back() += last_.backward;
    return backward_times_;
  }

  // What memory makes the stage add to a micro-batch, about: only the descent goes by it.
  double extra_of(StageId k, const Descent& descent) const {
    double layers = 0, in_flight = -in_flight_of_least(k);
    for (int i = 0; i < seating_.held(); ++i) {
      const double here = layers_in(descent, chunk_of(k, i));
      layers += here;
      in_flight += here * static_cast<double>(problem_.memory.fullest(k).of_chunk[at(i)]);
    }
    double least = kInfinite;
    for (const Choice& choice : choices_[at(k)])
      if (choice.layers >= layers - 0.5 && choice.layers < layers + 0.5 && choice.in_flight >= in_flight)
        least = std::min(least, choice.extra);
    return least < kInfinite ? least : choices_[at(k)].empty() ? 0 : choices_[at(k)].back().extra;
  }

  // T >= min(T', least of the choices that are busy for less than T'), for the largest T' up to `enough`, about.
  double least_over_cuts() {
    constexpr int kHalvings = 8;
    constexpr double kMost = 1.3;
    price_choices();
    const double all = least_below(kInfinite);
    if (all == kInfinite && !left_out_) return all;
    double low = left_out_ ? std::min(all, enough_) : all, high = std::min(enough_, kMost * all);
    for (int i = 0; i <= kHalvings && low < high; ++i) {
      const double limit = i == 0 ? high : low + (high - low) / 2;
      const double least = least_below(limit);
      if (least >= limit)
        low = limit;
      else
        low = std::max(low, least), high = limit;
    }
    return low;
  }

  void price_choices() {
    const std::vector<double> weight = weights(mean_);
    for (StageId k = 0; k < stages_; ++k) {
      const Prices prices = prices_of(k, weight);
      const int least = least_of(k);
      for (std::size_t i = 0; i < choices_[at(k)].size(); ++i) {
        Choice& choice = choices_[at(k)][i];
        const double more = choice.layers - least;
        const double layers = more == 0 ? 0 : more * prices.of_layer(choice.in_flight / more);
        choice.least = prices.all + layers + choice.extra * (choice.by_stage ? prices.on_lane : prices.backward);
        if (i == 0) continue;
        const Choice& before = choices_[at(k)][i - 1];
        if (before.layers == choice.layers) choice.least = std::min(choice.least, before.least);
      }
    }
  }

  double least_below(double limit) const {
    std::vector<double> sums(at(layers_) + 1, kInfinite), next;
    sums.front() = mean_.hops * nanoseconds(problem_.hop) + mean_.forward.front() * first_.forward +
                   mean_.backward.front() * first_.backward + mean_.forward.back() * last_.forward +
                   mean_.backward.back() * last_.backward;
    for (StageId k = 0; k < stages_; ++k) {
      next.assign(sums.size(), kInfinite);
      // Of choices with as many layers the last that is busy for less than the limit has the least price of all these.
      const std::vector<Choice>& choices = choices_[at(k)];
      for (std::size_t i = 0; i < choices.size(); ++i) {
        const bool last = i + 1 == choices.size() || choices[i + 1].layers != choices[i].layers;
        if (choices[i].busy >= limit || !(last || choices[i + 1].busy >= limit)) continue;
        const std::size_t n = at(choices[i].layers);
        const double price = choices[i].least;
        for (std::size_t have = 0; have + n < sums.size(); ++have)
          next[have + n] = std::min(next[have + n], sums[have] + price);
      }
      sums.swap(next);
    }
    return sums.back();
  }

  // What layers cost on a stage: one in every chunk, and more of them where c_j is at most `in_flight` in the mean.
  struct Prices {
    double all = 0, backward = kInfinite, on_lane = kInfinite;
    std::vector<std::pair<double, double>> by_chunk;  // c_j, and the price of a layer

    double of_layer(double in_flight) const {
      double least = kInfinite;
      for (const auto& [here, price] : by_chunk) {
        if (here <= in_flight) least = std::min(least, price);
        for (const auto& [fewer, other] : by_chunk)
          if (here > in_flight && fewer < in_flight)
            least = std::min(least, other + (price - other) * (in_flight - fewer) / (here - fewer));
      }
      return least;
    }
  };
  Prices prices_of(StageId k, const std::vector<double>& weight) const {
    Prices prices;
    for (int i = 0; i < seating_.held(); ++i) {
      const std::size_t chunk = chunk_of(k, i);
      prices.all += least_[chunk] * weight[chunk];
      prices.backward = std::min(prices.backward, mean_.backward[chunk]);
      prices.on_lane = std::min(prices.on_lane, mean_.on_lane[chunk]);
      prices.by_chunk.emplace_back(problem_.memory.fullest(k).of_chunk[at(i)], weight[chunk]);
    }
    return prices;
  }

  const PathProblem& problem_;
  double enough_;
  bool left_out_ = false;  // for being busy too long
  Seating seating_;
  int stages_, chunks_, layers_;
  double forward_, again_, backward_;  // of a layer of the run
  Ends first_, last_;
  LongestChains longest_;
  Mean mean_{at(chunks_)};
  std::vector<int> least_;                    // layers of the run in every chunk
  double free_ = 0;                           // those that may lie anywhere
  std::vector<std::vector<Choice>> choices_;  // by stage
  std::vector<double> forward_times_, backward_times_;
};

}  // namespace

Time path_bound(const PathProblem& problem, Time enough, int rounds) {
  constexpr std::int64_t kMostVisits = std::int64_t{1} << 22;  // of nodes, by all rounds: some 20 ms
  Plan plan = problem.shell;
  if (plan.chunk_order != ChunkOrder::Loop) return {};
  ScheduleShape shape;
  shape.stages = plan.stages, shape.virtual_stages = plan.virtual_stages;
  const std::int64_t nodes = 2 * plan.chunks() * plan.micro_batches;
  rounds = static_cast<int>(std::min<std::int64_t>(rounds, kMostVisits / std::max<std::int64_t>(1, nodes)));
  if (rounds < 1) return {};
  shape.micro_batches = static_cast<int>(plan.micro_batches);
  const Schedule schedule = find_schedule(plan.schedule)->generate(shape);
  const std::optional<Chains> chains = ChainBuilder(schedule).build();
  if (!chains) return {};
  const double bound = PathBound(problem, *chains, static_cast<double>(enough.value)).at_least(rounds);
  constexpr double kRounding = 1e-9;
  return bound >= static_cast<double>(kLargest) ? kNever : Time{static_cast<std::int64_t>(bound * (1 - kRounding))};
}

}  // namespace pipewright::planner
