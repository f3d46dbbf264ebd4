#include "planner/search/switches.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.hpp"
#include "planner/search/deadline.hpp"
#include "planner/search/merged.hpp"
#include "planner/search/open_values.hpp"

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
constexpr std::array<std::string_view, 3> kOverlaps = {"true", "false", "ring"};
constexpr TensorOverlap kOverlapValues[] = {TensorOverlap::Beside, TensorOverlap::None, TensorOverlap::Ring};
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
                           bool (*matters)(const Layout&)) {
  return {.key = key,
          .values = names,
          .usual = usual,
          .set = [](PlanRequest& plan, std::size_t i) { assign(plan.*Member, Values[i], plan.place); },
          .is = [](const PlanRequest& plan, std::size_t i) { return holds(plan.*Member, Values[i]); },
          .matters = matters};
}

bool shares_sequences(const Layout& layout) {
  return layout.context_parallel > 1;
}
bool reduces_whole_gradients(const Layout& layout) {
  return layout.copies() > 1 && layout.zero < kGradientsSharded;
}

// A new switch is a line here, and its key in io/read/read_plan.cpp.
constexpr Switch kSwitches[] = {
    switch_of<&PlanRequest::context_exchange, kContextValues>("context_exchange", kContext, 3, shares_sequences),
    switch_of<&PlanRequest::context_split, kSplitValues>("context_split", kSplits, 2, shares_sequences),
    switch_of<&PlanRequest::expert_exchange, kExpertValues>(
        "expert_exchange", kExperts, 3, [](const Layout& layout) { return layout.expert_parallel > 1; }),
    switch_of<&PlanRequest::tensor_overlap, kOverlapValues>(
        "tensor_overlap", kOverlaps, 3,
        [](const Layout& layout) { return layout.tensor_parallel > 1 && layout.sequence_parallel; }),
    switch_of<&PlanRequest::gradient_sync, kSyncValues>("gradient_sync", kSyncs, 2, reduces_whole_gradients),
    switch_of<&PlanRequest::bucket_rule, kBucketValues>("bucket", kBuckets, 3, reduces_whole_gradients),
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
  };
  std::vector<Chosen> chosen;

  // Whether a layout is searched with it: with a value where the switch matters, with none where it does not.
  bool has(const Layout& layout) const {
    return std::all_of(chosen.begin(), chosen.end(),
                       [&](const Chosen& each) { return each.which->matters(layout) == each.value.has_value(); });
  }
  Scenario of(const Scenario& scenario) const {
    Scenario result = scenario;
    for (const auto& [which, value] : chosen) {
      result.plan.open.erase(std::string(which->key));
      if (value) which->set(result.plan, *value);
    }
    return result;
  }
  std::vector<std::pair<std::string, std::string>> in_words() const {
    std::vector<std::pair<std::string, std::string>> words;
    for (const auto& [which, value] : chosen)
      if (value) words.emplace_back(which->key, which->values[*value]);
    return words;
  }
};

std::vector<Combination> combinations(const Scenario& scenario) {
  std::vector<Combination> all = {{}};
  std::vector<std::string> open;
  for (const Switch& each : kSwitches) {
    if (open_switch(scenario, each) == nullptr) continue;
    open.push_back("plan." + std::string(each.key));
    std::vector<std::optional<std::size_t>> values = {std::nullopt};
    for (const std::size_t value : values_of(each, scenario))
      values.emplace_back(value);
    std::vector<Combination> more;
    for (const Combination& before : all)
      for (const auto& value : values) {
        more.push_back(before);
        more.back().chosen.push_back({&each, value});
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
  SwitchSearch(const Scenario& scenario, const SearchOptions& options)
      : options_(options), deadline_(options.time_limit, options.stop) {
    for (Combination& each : combinations(scenario)) {
      Scenario own = each.of(scenario);
      const Within within = within_of(each);
      try {
        if (layouts_of(own, within).groups.empty()) continue;
      } catch (const InputError& error) {
        if (!refused_) refused_ = error;
        continue;
      }
      parts_.push_back({std::move(each), std::move(own)});
    }
    if (parts_.empty() && refused_) throw InputError(*refused_);
    if (parts_.empty())
      throw InputError(scenario.plan.place, "plan", "no combination of the values that are left open makes a plan");
  }

  SearchResult answer() {
    std::optional<SearchResult> first_without;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (i > 0 && deadline_.asked_to_stop()) {
        merged_.one_is_left_out();
        break;
      }
      SearchOptions own = options_;
      own.time_limit = std::max(deadline_.left(), 0.1 * options_.time_limit) / static_cast<double>(parts_.size() - i);
      own.within = within_of(parts_[i].combination);
      own.remedies = options_.remedies && parts_.size() == 1;
      SearchResult found = search_settled(parts_[i].scenario, own);
      if (auto* answer = std::get_if<SearchAnswer>(&found))
        for (Found& plan : answer->plans)
          plan.switches = parts_[i].combination.in_words();
      else if (!first_without || std::holds_alternative<NoPlanYet>(found))
        first_without = found;
      merged_.take(found);
    }
    if (!merged_.any()) return std::move(*first_without);
    SearchAnswer& all = merged_.answer();
    const double best = merged_.rank(options_);
    if (all.ended == Ended::No) all.ended = deadline_.ended();
    all.bound = merged_.all_bounded() ? std::min(merged_.least_bound(), best) : 0;
    return std::move(all);
  }

 private:
  struct Part {
    Combination combination;
    Scenario scenario;
  };

  Within within_of(const Combination& combination) const {
    Within within = options_.within;
    within.elsewhere = [combination](const Layout& layout) { return !combination.has(layout); };
    return within;
  }

  const SearchOptions& options_;
  Deadline deadline_;
  std::vector<Part> parts_;
  std::optional<InputError> refused_;
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
    const auto found = std::find(which.values.begin(), which.values.end(), name);
    if (found == which.values.end())
      throw InputError(open->place, "plan." + std::string(which.key), unknown_name(name, which.values));
    values.push_back(static_cast<std::size_t>(found - which.values.begin()));
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

Scenario with_switches_of(const Found& found, Scenario scenario) {
  for (const Switch& each : kSwitches)
    for (const auto& [key, value] : found.switches)
      if (key == each.key)
        each.set(scenario.plan, static_cast<std::size_t>(std::find(each.values.begin(), each.values.end(), value) -
                                                         each.values.begin()));
  for (const Switch& each : kSwitches)
    scenario.plan.open.erase(std::string(each.key));
  return scenario;
}

}  // namespace pipewright::planner
