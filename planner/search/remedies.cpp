#include "planner/search/remedies.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "planner/what_if/bytes_text.hpp"

namespace pipewright {
namespace {

constexpr Bytes kMoreThanAny{std::int64_t{1} << 50};
constexpr double kShort = 2;  // seconds
constexpr int kMostTimesAsManyNodes = 64;

struct Field {
  const char* key;
  bool training;
};
constexpr std::array<Field, 6> kFields = {{{"recompute", false},
                                           {"stages", false},
                                           {"tensor_parallel", false},
                                           {"data_parallel", false},
                                           {"zero", true},
                                           {"micro_batch_size", true}}};

std::string in_words(const Found& found) {
  return fmt::format("{}, {}: {:.4g} samples/s", in_words(found.layout), recompute_in_words(found.plan),
                     found.report.samples_per_s);
}

// Rounded up, as `--set` takes it.
struct Size {
  std::int64_t count, unit;
  const char* name;
  Bytes bytes() const { return {count * unit}; }
};
Size rounded_up(Bytes bytes) {
  constexpr std::int64_t kFewest = 64;  // so that rounding adds little
  for (const auto& [unit, name] : {std::pair{std::int64_t{1} << 20, "MiB"}, {std::int64_t{1} << 10, "KiB"}})
    if (bytes.value >= kFewest * unit) return {(bytes.value + unit - 1) / unit, unit, name};
  return {bytes.value, 1, "B"};
}

std::string memory_line(const SearchAnswer& least) {
  const Found& best = least.plans.front();
  const Size enough = rounded_up(best.peak);
  const Bytes surely{static_cast<std::int64_t>(least.bound)};
  const bool proven = rounded_up(surely).bytes() >= enough.bytes();
  return fmt::format("with {} per device ({}): {}: --set cluster.node.device.memory={}{}", bytes_text(enough.bytes()),
                     proven ? "no plan needs less" : "the least found; every plan needs at least " + bytes_text(surely),
                     in_words(best), enough.count, enough.name);
}

// Asks short questions, and says how many of them are answered.
class Questions {
 public:
  Questions(const SearchOptions& options, std::int64_t all) : options_(options), all_(all) {}

  std::optional<std::string> fits(const Scenario& changed) {
    SearchOptions quick = options_;
    quick.objective = Objective::Throughput;
    quick.top = 1, quick.gap = 0.2, quick.time_limit = kShort, quick.most_simulations = 1;
    quick.keep_going = quick.remedies = false;
    if (options_.progress) quick.progress = [this](const Progress&) { tell(); };
    ++asked_;
    try {
      const auto found = search(changed, quick);
      if (const auto* there = std::get_if<SearchAnswer>(&found)) return in_words(there->plans.front());
    } catch (const InputError&) {
    }
    return std::nullopt;
  }

 private:
  void tell() const { options_.progress({"changes", std::min(asked_, all_), all_, 0}); }

  const SearchOptions& options_;
  std::int64_t all_, asked_ = 0;
};

}  // namespace

std::optional<SearchAnswer> least_memory(const Scenario& scenario, const SearchOptions& options) {
  Scenario roomy = scenario;
  roomy.cluster.device.memory = kMoreThanAny;
  SearchOptions ask = options;
  ask.objective = Objective::Memory;
  ask.top = 1, ask.gap = 0;
  ask.keep_going = ask.remedies = false;
  auto found = search(roomy, ask);
  if (auto* there = std::get_if<SearchAnswer>(&found)) return std::move(*there);
  return std::nullopt;
}

std::string in_words(const NearestMiss& nearest) {
  return fmt::format("{} needs {}{} on stage {}, {} more than the {} of a device", in_words(nearest.layout),
                     nearest.at_least ? "at least " : "", bytes_text(nearest.need), nearest.stage,
                     bytes_text(nearest.need - nearest.capacity), bytes_text(nearest.capacity));
}

StageId fullest_stage(const Found& found) {
  const auto& workers = found.report.workers;
  return std::max_element(
             workers.begin(), workers.end(),
             [](const WorkerReport& a, const WorkerReport& b) { return a.need.with_reserve < b.need.with_reserve; })
      ->stage;
}

std::vector<std::string> cheapest_changes(const Scenario& scenario, const SearchOptions& options,
                                          const std::optional<SearchAnswer>& least) {
  std::vector<std::string> remedies;
  Questions questions(options, std::ssize(kFields));
  for (const Field& field : kFields) {
    Scenario changed = scenario;
    OpenFields& fields = field.training ? changed.training.open : changed.plan.open;
    const std::string key = std::string(field.training ? "training." : "plan.") + field.key;
    if (std::find(options.kept.begin(), options.kept.end(), key) != options.kept.end()) continue;
    if (fields.find(field.key) != fields.end() && fields.at(field.key).among.empty()) continue;
    fields[field.key] = {};
    if (const auto best = questions.fits(changed))
      remedies.push_back(fmt::format("with {0}: auto: {1}: --set {0}=auto", key, *best));
  }
  for (int factor = 2; factor <= kMostTimesAsManyNodes && remedies.empty(); factor *= 2) {
    Scenario changed = scenario;
    if (changed.cluster.nodes > kMostDevices / factor || !changed.cluster.network) break;
    changed.cluster.nodes *= factor;
    if (const auto best = questions.fits(changed))
      remedies.push_back(
          fmt::format("on {} nodes: {}: --set cluster.nodes={}", changed.cluster.nodes, *best, changed.cluster.nodes));
  }
  if (least) remedies.push_back(memory_line(*least));
  return remedies;
}

}  // namespace pipewright
