#include "planner/search/switches.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.hpp"
#include "planner/search/deadline.hpp"
#include "planner/search/merged.hpp"
#include "planner/search/open_values.hpp"
#include "planner/search/replicas.hpp"

namespace pipewright::planner {
namespace {

constexpr std::size_t kMostCombinations = 64;

// The i-th name is that of the i-th value.
constexpr std::array<std::string_view, 2> kYesNo = {"true", "false"};
constexpr bool kYesNoValues[] = {true, false};
constexpr std::array<std::string_view, 4> kContext = {"ring", "all_gather", "all_to_all", "two_level"};
constexpr ContextExchange kContextValues[] = {ContextExchange::Ring, ContextExchange::AllGather,
                                              ContextExchange::AllToAll, ContextExchange::TwoLevel};
constexpr std::array<std::string_view, 2> kSplits = {"zigzag", "contiguous"};
constexpr ContextSplit kSplitValues[] = {ContextSplit::Zigzag, ContextSplit::Contiguous};
constexpr std::array<std::string_view, 3> kExperts = {"all_to_all", "all_gather", "per_node"};
constexpr ExpertExchange kExpertValues[] = {ExpertExchange::AllToAll, ExpertExchange::AllGather,
                                            ExpertExchange::PerNode};
constexpr std::array<std::string_view, 4> kOverlaps = {"true", "false", "ring", "backward"};
constexpr TensorOverlap kOverlapValues[] = {TensorOverlap::Beside, TensorOverlap::None, TensorOverlap::Ring,
                                            TensorOverlap::Backward};
constexpr std::array<std::string_view, 3> kSyncs = {"overlapped", "blocking", "at_once"};
constexpr GradientSync kSyncValues[] = {GradientSync::Overlapped, GradientSync::Blocking, GradientSync::AtOnce};
constexpr std::array<std::string_view, 2> kReductions = {"micro_batch", "step"};
constexpr ReduceGradients kReductionValues[] = {ReduceGradients::MicroBatch, ReduceGradients::Step};
constexpr std::array<std::string_view, 3> kBuckets = {"pytorch", "megatron", "deepspeed"};
constexpr BucketRule kBucketValues[] = {BucketRule::PyTorch, BucketRule::Megatron, BucketRule::DeepSpeed};

template <class T>
void assign(T& field, T value, const Place&) {
  field = value;
}
template <class T>
void assign(Placed<T>& field, T value, const Place& place) {
  field = {value, place};
}
template <class T>
void assign(std::optional<Placed<T>>& field, T value, const Place& place) {
  field = Placed<T>{value, place};
}
template <class T>
bool holds(const T& field, T value) {
  return field == value;
}
template <class T>
bool holds(const Placed<T>& field, T value) {
  return field.value == value;
}
template <class T>
bool holds(const std::optional<Placed<T>>& field, T value) {
  return field && field->value == value;
}

// A key whose values are names of `Values`.
template <auto Member, const auto& Values>
constexpr Switch switch_of(std::string_view key, std::span<const std::string_view> names, std::size_t usual,
                           bool (*matters)(const Layout&), bool (*fits)(const Layout&, std::size_t) = nullptr) {
  return {.key = key,
          .values = names,
          .usual = usual,
          .set = [](PlanRequest& plan, std::size_t i) { assign(plan.*Member, Values[i], plan.place); },
          .is = [](const PlanRequest& plan, std::size_t i) { return holds(plan.*Member, Values[i]); },
          .matters = matters,
          .fits = fits};
}

bool shares_sequences(const Layout& layout) {
  return layout.context_parallel > 1;
}
bool reduces_whole_gradients(const Layout& layout) {
  return layout.copies() > 1 && layout.zero < kGradientsSharded;
}
bool reduces_in_buckets(const Layout& layout) {  // units of sharded weights are buckets of their own
  return layout.copies() > 1 && layout.zero < kWeightsSharded;
}

// A new switch is a line here, and its key in io/read/read_plan.cpp.
constexpr Switch kSwitches[] = {
    switch_of<&PlanRequest::context_exchange, kContextValues>("context_exchange", kContext, 3, shares_sequences),
    switch_of<&PlanRequest::context_split, kSplitValues>("context_split", kSplits, 2, shares_sequences),
    switch_of<&PlanRequest::expert_exchange, kExpertValues>(
        "expert_exchange", kExperts, 3, [](const Layout& layout) { return layout.expert_parallel > 1; }),
    switch_of<&PlanRequest::tensor_overlap, kOverlapValues>(
        "tensor_overlap", kOverlaps, 3, [](const Layout& layout) { return layout.tensor_parallel > 1; },
        [](const Layout& layout, std::size_t i) {  // the others want halves
          return layout.sequence_parallel || kOverlapValues[i] == TensorOverlap::None ||
                 kOverlapValues[i] == TensorOverlap::Backward;
        }),
    switch_of<&PlanRequest::gradient_sync, kSyncValues>("gradient_sync", kSyncs, 2, reduces_whole_gradients),
    switch_of<&PlanRequest::bucket_rule, kBucketValues>("bucket", kBuckets, 3, reduces_in_buckets),
    switch_of<&PlanRequest::reshard_after_forward, kYesNoValues>(
        "reshard_after_forward", kYesNo, 2,
        [](const Layout& layout) { return layout.copies() > 1 && layout.zero >= kWeightsSharded; }),
    switch_of<&PlanRequest::reduce_gradients, kReductionValues>(
        "reduce_gradients", kReductions, 2,
        [](const Layout& layout) { return layout.copies() > 1 && layout.zero >= kGradientsSharded; }),
};

const OpenField* open_switch(const Scenario& scenario, const Switch& which) {
  return open_field(scenario, std::string(which.key));
}

// Of each open switch a value, or that it says nothing.
struct Combination {
  struct Chosen {
    const Switch* which;
    std::optional<std::size_t> value;
    std::vector<std::size_t> open;
  };
  std::vector<Chosen> chosen;

  // Whether a layout is searched with it: with each open value that says something to it, with none where none does.
  bool has(const Layout& layout) const {
    return std::ranges::all_of(chosen, [&](const Chosen& each) {
      const auto says = [&](std::size_t i) { return each.which->says(layout, i); };
      return each.value ? says(*each.value) : std::ranges::none_of(each.open, says);
    });
  }
  Scenario of(const Scenario& scenario) const {
    Scenario result = scenario;
    for (const auto& [which, value, open] : chosen) {
      result.plan.open.erase(std::string(which->key));
      if (value) which->set(result.plan, *value);
    }
    return result;
  }
  std::vector<std::pair<std::string, std::string>> in_words() const {
    std::vector<std::pair<std::string, std::string>> words;
    for (const auto& [which, value, open] : chosen)
      if (value) words.emplace_back(which->key, which->values[*value]);
    return words;
  }
};

std::vector<Combination> combinations(const Scenario& scenario) {
  std::vector<Combination> all = {{}};
  std::vector<std::string> open;
  for (const Switch& each : kSwitches) {
    const OpenField* field = open_switch(scenario, each);
    if (field == nullptr) continue;
    if (asks_for_replicas(scenario))
      throw InputError(field->place, "plan." + std::string(each.key),
                       "auto is not searched beside stages with replicas of their own; write one value");
    open.push_back("plan." + std::string(each.key));
    std::vector<std::optional<std::size_t>> values = {std::nullopt};
    const std::vector<std::size_t> among = values_of(each, scenario);
    values.insert(values.end(), among.begin(), among.end());
    std::vector<Combination> more;
    for (const Combination& before : all)
      for (const auto& value : values) {
        more.push_back(before);
        more.back().chosen.push_back({&each, value, among});
      }
    all = std::move(more);
    if (all.size() > kMostCombinations)
      throw InputError(scenario.plan.place, "plan",
                       fmt::format("{} leave more than {} combinations open, each of which is a search; settle some of "
                                   "them, or list fewer values",
                                   fmt::join(open, ", "), kMostCombinations));
  }
  return all;
}

class SwitchSearch {
 public:
  SwitchSearch(const Scenario& scenario, const SearchOptions& options) : scenario_(scenario), options_(options) {}

  SearchResult answer() {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (merged_.any() ? deadline_.over() : without_ && deadline_.asked_to_stop()) {
        merged_.one_is_left_out();
        break;
      }
      search_part(parts_[i],
                  std::max(deadline_.left(), 0.1 * options_.time_limit) / static_cast<double>(parts_.size() - i));
    }
    if (!merged_.any()) return nothing_found();
    SearchAnswer& all = merged_.answer();
    const double best = merged_.rank(options_);
    if (all.ended == Ended::No) all.ended = deadline_.ended();
    all.bound = merged_.all_bounded() ? std::min(merged_.least_bound(), best) : 0;
    all.left_out = std::move(left_out_);
    return std::move(all);
  }

 private:
  // A part without layouts is not counted. A value that cannot be priced is reported among the combinations that make no layout.
  void search_part(const Combination& part, double seconds) {
    SearchOptions own = options_;
    own.time_limit = seconds;
    own.within = within_of(part);
    own.remedies = options_.remedies && parts_.size() == 1;
    try {
      SearchResult found = search_settled(part.of(scenario_), own);
      if (auto* answer = std::get_if<SearchAnswer>(&found)) {
        for (Found& plan : answer->plans)
          plan.switches = part.in_words();
        for (const auto& [reason, count] : answer->left_out)
          left_out_[reason] += count;
      } else if (!without_ || std::holds_alternative<NoPlanYet>(found)) {
        without_ = found;
      }
      merged_.take(found);
    } catch (const OverflowError& error) {
      merged_.one_is_left_out();
      if (!refused_) refused_ = error;
    } catch (const InputError& error) {
      if (error.is(ErrorCode::TooLarge)) throw;
      if (error.is(ErrorCode::NoCombination)) {
        if (!none_) none_ = error;
        return;
      }
      if (!refused_) refused_ = error;
      std::string values;
      for (const auto& [key, value] : part.in_words())
        values += (values.empty() ? "" : ", ") + key + ": " + value;
      ++left_out_[values.empty() ? error.first().text : values + ": " + error.first().text];
    }
  }

  SearchResult nothing_found() {
    if (without_) return std::move(*without_);
    throw InputError(refused_ ? *refused_ : *none_);
  }

  Within within_of(const Combination& combination) const {
    Within within = options_.within;
    within.elsewhere = [combination](const Layout& layout) { return !combination.has(layout); };
    return within;
  }

  const Scenario& scenario_;
  const SearchOptions& options_;
  std::vector<Combination> parts_ = combinations(scenario_);
  Deadline deadline_ = Deadline(options_.time_limit, options_.stop);
  std::optional<InputError> refused_, none_;  // of the first part each
  std::optional<SearchResult> without_;       // of the first part that has no plan
  std::map<std::string, std::int64_t> left_out_;
  MergedSearches merged_;
};

}  // namespace

std::span<const Switch> switches() {
  return kSwitches;
}

std::vector<std::size_t> values_of(const Switch& which, const Scenario& scenario) {
  const OpenField* open = open_switch(scenario, which);
  std::vector<std::size_t> values;
  if (open == nullptr || open->among.empty()) {
    for (std::size_t i = 0; i < which.usual; ++i)
      values.push_back(i);
    return values;
  }
  for (const std::string& name : open->among) {
    const auto found = std::ranges::find(which.values, name);
    if (found == which.values.end())
      throw InputError(open->place, "plan." + std::string(which.key),
                       fmt::format("{} is not searched; auto lists {}, and another value stands by itself",
                                   "\"" + name + "\"", fmt::join(which.values, ", ")));
    values.push_back(at(found - which.values.begin()));
  }
  return values;
}

bool asks_for_switches(const Scenario& scenario) {
  return std::any_of(std::begin(kSwitches), std::end(kSwitches),
                     [&](const Switch& each) { return open_switch(scenario, each) != nullptr; });
}

SearchResult search_switches(const Scenario& scenario, const SearchOptions& options) {
  return SwitchSearch(scenario, options).answer();
}

std::int64_t layouts_of_switches(const Scenario& scenario) {
  std::int64_t layouts = 0;
  for (const Combination& each : combinations(scenario)) {
    Within within;
    within.elsewhere = [&](const Layout& layout) { return !each.has(layout); };
    layouts += layouts_of(each.of(scenario), within).layouts;
  }
  return layouts;
}

}  // namespace pipewright::planner
