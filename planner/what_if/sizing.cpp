#include "planner/what_if/sizing.hpp"

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "core/answers/campaign.hpp"
#include "core/check.hpp"
#include "core/cluster/topology.hpp"
#include "planner/answer.hpp"
#include "planner/search/deadline.hpp"

namespace pipewright::planner {
namespace {

constexpr double kWorthMore = 1.001;  // nodes that bring less bring nothing
constexpr int kDoublings = 2;         // of which each has its share of the time that is left
constexpr int kFlat = 3;  // rows in a row that bring nothing: a batch of 27 does not gain from 2 copies or 4

std::string counted(int nodes) {
  return fmt::format("{} node{}", nodes, nodes == 1 ? "" : "s");
}

class Sizes {
 public:
  Sizes(const Scenario& scenario, const SizingQuestion& question, const SearchOptions& options)
      : scenario_(scenario), question_(question), options_(options) {
    options_.top = 1, options_.remedies = false, options_.proof = true;
    sizing_.deadline = question.deadline;
  }

  Sizing all() {
    check();
    auto listed = std::ssize(question_.nodes);
    for (const int nodes : question_.nodes) {
      if (!sizing_.rows.empty() && stopped()) break;
      ask(nodes, static_cast<int>(listed--));
      if (question_.ends_itself && nodes != question_.nodes.back() && no_gain()) {
        sizing_.notes.push_back(fmt::format("more than {} were not tried: more brought nothing from {} to {}",
                                            counted(nodes), std::prev(sizing_.rows.end(), kFlat + 1)->nodes, nodes));
        break;
      }
    }
    if (question_.ends_itself && question_.deadline) double_until_in_time();
    if (question_.looks_between) {
      look_between([](const SizedNodes& row) { return row.best.has_value(); });
      if (question_.deadline) look_between([this](const SizedNodes& row) { return in_time(row); });
    }
    if (failed_ == std::ssize(sizing_.rows)) std::rethrow_exception(error_);
    stopped();
    share();
    mark();
    for (SizedNodes& row : sizing_.rows)
      if (marked(row.nodes) && !stopped()) add_bands(row);
    return std::move(sizing_);
  }

 private:
  bool stopped() {
    if (options_.stop && options_.stop()) sizing_.ended = Ended::Interrupted;
    for (const SizedNodes& row : sizing_.rows)
      if (row.ended == Ended::Interrupted) sizing_.ended = row.ended;
    return sizing_.ended != Ended::No;
  }

  void check() const {
    const Cluster& cluster = scenario_.cluster;
    if (cluster.classes() > 1)
      throw InputError(cluster.place, "--nodes",
                       "asks for more or fewer nodes of one kind, and this cluster has several device classes; "
                       "leave cluster.other_nodes out");
    const int most = question_.nodes.back();
    if (most > 1 && !cluster.network)
      throw InputError(cluster.place, "--nodes",
                       fmt::format("{} need cluster.network, which is missing; write e.g. "
                                   "--set 'cluster.network={{bandwidth: 50 GB/s, latency: 5 us}}'",
                                   counted(most)));
    if (most > kMostDevices / cluster.devices_per_node)
      throw InputError(cluster.place, "--nodes",
                       fmt::format("{} of {} devices are more than {} devices; use fewer", counted(most),
                                   cluster.devices_per_node, kMostDevices));
    if (question_.deadline && (!scenario_.campaign || !scenario_.campaign->length))
      throw InputError(scenario_.plan.place, "--deadline",
                       "is met or missed by a whole training, and nothing says how long that is; give e.g. "
                       "--tokens 15T, or campaign.length");
  }

  // What is fixed takes more devices than there are.
  static bool too_few(const Scenario& scenario) {
    const PlanRequest& plan = scenario.plan;
    double least = 1;
    for (const auto& [key, value] : {std::pair{"stages", plan.stages.value},
                                     {"tensor_parallel", plan.tensor_parallel.value},
                                     {"context_parallel", plan.context_parallel.value},
                                     {"data_parallel", plan.data_parallel.value}})
      if (!plan.open.contains(key)) least *= static_cast<double>(value);
    return least > scenario.cluster.devices();
  }

  // Numbers that halving asks between two that lie `apart`.
  static int between(int apart) { return apart < 2 ? 0 : std::bit_width(static_cast<unsigned>(apart - 1)); }

  // Of the halvings that are still to come, at most.
  int halvings_to_come() const {
    int apart = 0;
    for (std::size_t i = 1; i < question_.nodes.size(); ++i)
      apart = std::max(apart, question_.nodes[i] - question_.nodes[i - 1]);
    return halvings_ * between(apart);
  }

  // Searched once, in its share of the time that `rest` searches have and those that halve, and put in its place.
  const SizedNodes& ask(int nodes, int rest) {
    Scenario changed = scenario_;
    changed.cluster.nodes = nodes;
    SizedNodes row{.nodes = nodes, .devices = changed.cluster.devices()};
    options_.time_limit = limit_.share(rest + halvings_to_come());
    try {
      take(row, search(changed, options_));
    } catch (const OverflowError&) {
      throw;
    } catch (const InputError& error) {  // too few devices for what is fixed, or too many to list what is open
      if (failed_++ == 0) error_ = std::current_exception();
      row.known = too_few(changed), refused_ = !row.known;
      row.why = words(error.first());
    }
    const auto behind =
        std::ranges::find_if(sizing_.rows, [&](const SizedNodes& other) { return other.nodes > nodes; });
    return *sizing_.rows.insert(behind, std::move(row));
  }

  static void take(SizedNodes& row, SearchResult result) {
    if (auto* found = std::get_if<SearchAnswer>(&result)) {
      row.bound = found->bound, row.ended = found->ended, row.gap_left = found->gap_left;
      row.best = std::move(found->plans.front());
      if (const auto whole = campaign(*row.best->scenario, row.best->plan, row.best->report)) {
        row.failures = whole->goodput.has_value();
        if (!row.failures) row.days = whole->days();
        if (row.failures) row.days = whole->days_expected();  // nothing: it never ends
      }
    } else if (const auto* none = std::get_if<NoPlanYet>(&result)) {
      row.known = false, row.ended = none->ended, row.why = in_words(*none);
    } else {
      const Infeasible& why = std::get<Infeasible>(result);
      row.known = why.known;
      row.why = why.details.empty() ? why.reason : why.details.front();
    }
  }

  // Plans of fewer nodes are plans of more, which a search that was cut may have missed; and what none of more nodes
  // beats, none of fewer does.
  void share() {
    for (std::size_t i = 1; i < sizing_.rows.size(); ++i) {
      SizedNodes &row = sizing_.rows[i], &fewer = sizing_.rows[i - 1];
      if (!fewer.best || (row.best && row.best->value <= fewer.best->value)) continue;
      if (!row.best)
        sizing_.notes.push_back(
            fmt::format("on {}: {}; shown is the plan of {}", counted(row.nodes), row.why, counted(fewer.nodes)));
      if (row.days && (!fewer.days || *row.days < *fewer.days)) continue;  // more devices fail more often
      row.best = fewer.best, row.days = fewer.days, row.failures = fewer.failures;
      row.known = true, row.why.clear();
    }
    for (std::size_t i = sizing_.rows.size() - 1; i-- > 0;)
      if (SizedNodes& row = sizing_.rows[i]; row.best && row.bound > 0)
        row.bound = std::min(std::max(row.bound, sizing_.rows[i + 1].bound), row.best->value);
    for (SizedNodes& row : sizing_.rows)
      if (row.best && row.bound > 0 && row.best->value <= row.bound * (1 + options_.gap)) row.gap_left.clear();
  }

  bool in_time(const SizedNodes& row) const { return row.best && row.days && *row.days <= *question_.deadline; }

  bool any_in_time() const {
    return std::ranges::any_of(sizing_.rows, [this](const SizedNodes& row) { return in_time(row); });
  }

  // Whether the last rows bring nothing, and there is no deadline that is not met yet: it may still be.
  bool no_gain() const { return flat() && (!question_.deadline || any_in_time()); }

  // Whether the last rows are no faster than the one before them, and all of them had their time.
  bool flat() const {
    if (std::ssize(sizing_.rows) <= kFlat) return false;
    const auto first = std::prev(sizing_.rows.end(), kFlat + 1);
    const auto no_faster = [&](const SizedNodes& row) {
      return row.best && row.ended == Ended::No && first->best &&
             row.best->report.samples_per_s < first->best->report.samples_per_s * kWorthMore;
    };
    return std::all_of(first, sizing_.rows.end(), no_faster);
  }

  // Beyond the numbers that are asked by themselves: until a plan is in time, or more nodes bring nothing.
  void double_until_in_time() {
    const int most = kMostDevices / scenario_.cluster.devices_per_node;
    while (!stopped() && !any_in_time() && !flat() && !refused_ &&
           (sizing_.rows.back().best || sizing_.rows.back().ended == Ended::No) && sizing_.rows.back().nodes < most)
      ask(static_cast<int>(std::min<std::int64_t>(2 * std::int64_t{sizing_.rows.back().nodes}, most)), kDoublings);
    if (!any_in_time() && flat())
      sizing_.notes.push_back(fmt::format("more than {} were not tried: more brought nothing from {} on",
                                          counted(sizing_.rows.back().nodes),
                                          std::prev(sizing_.rows.end(), kFlat + 1)->nodes));
  }

  // Between the last row that does not and the first one that does: the fewest nodes that do.
  void look_between(const auto& does) {
    --halvings_;
    const auto first = std::ranges::find_if(sizing_.rows, does);
    if (first == sizing_.rows.end() || first == sizing_.rows.begin()) return;
    int high = first->nodes, low = std::prev(first)->nodes;
    while (high - low > 1 && !stopped()) {
      const int middle = low + (high - low) / 2;
      (does(ask(middle, between(high - low))) ? high : low) = middle;
    }
  }

  void mark() {
    for (const SizedNodes& row : sizing_.rows) {
      if (!row.known) sizing_.notes.push_back(fmt::format("on {}: {}", counted(row.nodes), row.why));
      if (!row.best) continue;
      if (row.failures && !row.days)
        sizing_.notes.push_back(fmt::format(
            "on {}: failures come faster than checkpoints and restarts: the training never ends", counted(row.nodes)));
      const auto of = [&](int nodes) -> const Found& {
        return *std::ranges::find_if(sizing_.rows, [&](const SizedNodes& other) { return other.nodes == nodes; })->best;
      };
      const auto device_time = [](const Found& found) { return found.plan.devices() / found.report.samples_per_s; };
      const auto rate = [](const Found& found) { return found.report.samples_per_s; };
      if (!sizing_.smallest) sizing_.smallest = row.nodes;
      if (!sizing_.cheapest || device_time(*row.best) < device_time(of(*sizing_.cheapest)))
        sizing_.cheapest = row.nodes;
      if (!sizing_.fastest || rate(*row.best) > rate(of(*sizing_.fastest)) * kWorthMore) sizing_.fastest = row.nodes;
      if (question_.deadline && !sizing_.in_time && in_time(row)) sizing_.in_time = row.nodes;
    }
    for (const SizedNodes& row : sizing_.rows)
      if (marked(row.nodes)) say_idle(row);
    say_open();
    say_what_lies_between();
  }

  bool marked(int nodes) const {
    return sizing_.smallest == nodes || sizing_.cheapest == nodes || sizing_.fastest == nodes ||
           sizing_.in_time == nodes;
  }

  // What `simulate` says of the plan: how it is known, and how wrong its days may be.
  static void add_bands(SizedNodes& row) {
    const auto told = answer(*row.best->scenario, {.ignore_memory = true});
    const Report& report = std::get<Answer>(told).report;
    row.best->report.range = report.range;
    row.best->report.provenance = report.provenance;
    const auto& whole = report.campaign;
    if (!whole || !whole->days_low || !row.days) return;
    row.days_low = *row.days * *whole->days_low / whole->days();
    row.days_high = *row.days * *whole->days_high / whole->days();
  }

  void say_idle(const SizedNodes& row) {
    const int used = row.best->plan.devices(), each = scenario_.cluster.devices_per_node;
    if (used == row.devices) return;
    const int nodes = (used + each - 1) / each;
    sizing_.notes.push_back(fmt::format(
        "on {} the plan uses {} of {} devices{}; device time and cost are of these alone", counted(row.nodes), used,
        row.devices, nodes < row.nodes ? fmt::format(", {}", counted(nodes)) : ""));
  }

  // A plan of fewer nodes is one of more: what is proven of a row holds of all before it.
  void say_open() {
    if (!sizing_.in_time) return;
    int excluded = 0;
    bool open = false;
    for (const SizedNodes& row : sizing_.rows) {
      if (row.nodes == *sizing_.in_time) break;
      open = !too_late(row);
      if (!open) excluded = row.nodes;
    }
    if (!open) return;
    sizing_.notes.push_back(fmt::format(
        "fewer than {} are not excluded: the gaps of the searches leave room for plans on {} that are in time",
        counted(*sizing_.in_time),
        excluded + 2 == *sizing_.in_time ? counted(excluded + 1)
                                         : fmt::format("{} to {} nodes", excluded + 1, *sizing_.in_time - 1)));
  }

  // Proven: by the bound of all plans, were there no failures.
  bool too_late(const SizedNodes& row) const {
    if (!row.best) return row.known;
    if (!row.failures && row.bound >= row.best->value) return true;
    const auto whole = campaign(*row.best->scenario, row.best->plan, row.best->report);
    return whole && row.bound * whole->samples / 86400 > *question_.deadline;
  }

  // A list that was given is asked as it stands, and nothing in front of a range.
  void say_what_lies_between() {
    const auto gap = [&](std::optional<int> nodes, const char* what) {
      if (!nodes || (question_.looks_between && nodes != sizing_.rows.front().nodes)) return;
      const auto row =
          std::ranges::find_if(sizing_.rows, [&](const SizedNodes& other) { return other.nodes == *nodes; });
      const int before = row == sizing_.rows.begin() ? 0 : std::prev(row)->nodes;
      if (*nodes - before > 1)
        sizing_.notes.push_back(fmt::format("{} not tried: fewer than {} may {}",
                                            *nodes - before > 2
                                                ? fmt::format("{} to {} nodes were", before + 1, *nodes - 1)
                                                : counted(before + 1) + (before == 0 ? " was" : " were"),
                                            *nodes, what));
    };
    gap(sizing_.smallest, "do");
    if (sizing_.in_time != sizing_.smallest) gap(sizing_.in_time, "meet the deadline");
    const bool fail = std::ranges::any_of(sizing_.rows, [](const SizedNodes& row) { return row.failures; });
    if (fail && question_.looks_between && sizing_.in_time && sizing_.in_time != sizing_.rows.front().nodes)
      sizing_.notes.push_back(
          fmt::format("more devices fail more often, so more nodes need not be done earlier: of fewer than {} only the "
                      "numbers of the table are known not to meet the deadline",
                      counted(*sizing_.in_time)));
  }

  const Scenario& scenario_;
  const SizingQuestion& question_;
  SearchOptions options_;
  SharedLimit limit_ = SharedLimit(options_.time_limit, question_.clock);
  int halvings_ = !question_.looks_between ? 0 : question_.deadline ? 2 : 1;  // that are still to come
  Sizing sizing_;
  bool refused_ = false;       // a number of nodes could not be asked, and so can no larger one
  std::ptrdiff_t failed_ = 0;  // rows that could not be asked
  std::exception_ptr error_;   // of the first of these
};

}  // namespace

SizingQuestion nodes_by_themselves(const Scenario& scenario) {
  SizingQuestion question = nodes_between(1, std::clamp(std::max(kMostNodesByItself, scenario.cluster.nodes), 1,
                                                        std::max(1, kMostDevices / scenario.cluster.devices_per_node)));
  question.ends_itself = true;
  return question;
}

SizingQuestion nodes_between(int first, int last) {
  SizingQuestion question;
  question.nodes.push_back(first);
  for (std::int64_t power = 1; power < last; power *= 2)
    if (power > first) question.nodes.push_back(static_cast<int>(power));
  if (last > first) question.nodes.push_back(last);
  question.looks_between = true;
  return question;
}

Sizing size_cluster(const Scenario& scenario, const SizingQuestion& question, const SearchOptions& options) {
  return Sizes(scenario, question, options).all();
}

}  // namespace pipewright::planner
