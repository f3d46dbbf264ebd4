#include "planner/search/remedies.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "core/cluster/topology.hpp"
#include "planner/words.hpp"

namespace pipewright::planner {
namespace {

constexpr Bytes kMoreThanAny{std::int64_t{1} << 50};
constexpr double kShort = 2;  // seconds
constexpr int kMostTimesAsManyNodes = 64;

struct Field {
  const char* key;
  bool training;
};
constexpr std::array<Field, 8> kFields = {{{"recompute", false},
                                           {"stages", false},
                                           {"tensor_parallel", false},
                                           {"context_parallel", false},
                                           {"expert_parallel", false},
                                           {"data_parallel", false},
                                           {"zero", true},
                                           {"micro_batch_size", true}}};

std::string found_in_words(const Found& found) {
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
  const Size enough = rounded_up(best.to_fit);
  const Bytes surely{static_cast<std::int64_t>(least.bound)};
  const bool proven = rounded_up(surely).bytes() >= enough.bytes();
  return fmt::format("with {} per device ({}): {}: --set cluster.node.device.memory={}{}", bytes_text(enough.bytes()),
                     proven ? "no plan needs less" : "the least found; every plan needs at least " + bytes_text(surely),
                     found_in_words(best), enough.count, enough.name);
}

// An answer to "does anything fit?".
struct FitFound {
  bool yes = false, known = true;  // not known: time, or the cuts that were tried, did not show it
  std::string best;                // of what does
};

// Asks short questions, and says how many of them are answered.
class Questions {
 public:
  Questions(const SearchOptions& options, std::int64_t all) : options_(options), all_(all) {}

  FitFound fits(const Scenario& changed) {
    SearchOptions quick = options_;
    quick.objective = Objective::Throughput;
    quick.top = 1, quick.gap = 0.2, quick.time_limit = kShort, quick.most_simulations = 1;
    quick.keep_going = quick.remedies = false;
    if (options_.progress) quick.progress = [this](const Progress&) { tell(); };
    ++asked_;
    try {
      const auto found = search(changed, quick);
      if (const auto* there = std::get_if<SearchAnswer>(&found))
        return {true, true, found_in_words(there->plans.front())};
      const auto* none = std::get_if<Infeasible>(&found);
      return {false, none != nullptr && none->known, ""};
    } catch (const InputError&) {
    }
    return {};
  }
  bool stopped() const { return options_.stop && options_.stop(); }

 private:
  void tell() const { options_.progress({"changes", std::min(asked_, all_), all_, 0}); }

  const SearchOptions& options_;
  std::int64_t all_, asked_ = 0;
};

Scenario on_nodes(const Scenario& scenario, int nodes) {
  Scenario changed = scenario;
  changed.cluster.nodes = nodes;
  return changed;
}

// The fewest nodes of the same kind on which something fits: doubled until it does, then halved in between. A plan on
// some nodes is a plan on more of them. "": none was found, or there is no network for more.
std::string fewest_nodes(const Scenario& scenario, Questions& questions) {
  const Cluster& cluster = scenario.cluster;
  if (!cluster.network || cluster.classes() > 1) return "";
  int low = cluster.nodes, high = 0;
  bool known = true;
  FitFound found;
  for (int factor = 2; factor <= kMostTimesAsManyNodes && high == 0 && !questions.stopped(); factor *= 2) {
    if (cluster.nodes > kMostDevices / cluster.devices_per_node / factor) break;
    found = questions.fits(on_nodes(scenario, cluster.nodes * factor));
    known &= found.known;
    (found.yes ? high : low) = cluster.nodes * factor;
  }
  if (high == 0) return "";
  while (high - low > 1 && !questions.stopped()) {
    const int middle = low + (high - low) / 2;
    FitFound here = questions.fits(on_nodes(scenario, middle));
    known &= here.known;
    (here.yes ? high : low) = middle;
    if (here.yes) found = std::move(here);
  }
  known &= high - low == 1;
  return fmt::format("on {} nodes ({} devices{}): {}: --set cluster.nodes={}", high, high * cluster.devices_per_node,
                     known ? "; on fewer none was found" : "; fewer may do: not all of their layouts were ruled out",
                     found.best, high);
}

bool is_kept(const SearchOptions& options, std::string_view key) {
  return std::ranges::find(options.kept, key) != options.kept.end();
}

// Half the bytes of weights and activations, where layers are priced from operators and devices have such a peak.
std::string shorter_numbers(const Scenario& scenario, const SearchOptions& options, Questions& questions) {
  if (is_kept(options, "training.precision")) return "";
  const Training& training = scenario.training;
  if (training.precision != Precision::Fp32 && training.precision != Precision::Tf32) return "";
  if (scenario.cost != CostSourceKind::Roofline || !scenario.cluster.device.peak.contains(Precision::Bf16)) return "";
  Scenario changed = scenario;
  changed.training.precision = Precision::Bf16;
  const FitFound found = questions.fits(changed);
  return found.yes ? fmt::format("with training.precision: bf16: {}: --set training.precision=bf16", found.best) : "";
}

bool has_long_gradients(const Training& training) {
  return training.gradient_precision && weight_bytes(training.precision) < weight_bytes(*training.gradient_precision);
}

// Gradients accumulated in the 16 bits of the weights.
std::string shorter_gradients(const Scenario& scenario, const SearchOptions& options, Questions& questions) {
  if (is_kept(options, "training.gradient_precision") || !has_long_gradients(scenario.training)) return "";
  Scenario changed = scenario;
  changed.training.gradient_precision = changed.training.precision;
  const char* name = changed.training.precision == Precision::Bf16 ? "bf16" : "fp16";
  const FitFound found = questions.fits(changed);
  return found.yes ? fmt::format("with training.gradient_precision: {0}: {1}: --set training.gradient_precision={0}",
                                 name, found.best)
                   : "";
}

// Where no field suffices alone: those that cost no devices, opened together.
std::string opened_together(const Scenario& scenario, const SearchOptions& options, Questions& questions) {
  Scenario changed = scenario;
  std::vector<std::string> opened, settings;
  for (const Field& field : {Field{"recompute", false}, Field{"zero", true}, Field{"micro_batch_size", true}}) {
    OpenFields& fields = field.training ? changed.training.open : changed.plan.open;
    const std::string key = std::string(field.training ? "training." : "plan.") + field.key;
    if (is_kept(options, key) || (fields.contains(field.key) && fields.at(field.key).among.empty())) continue;
    fields[field.key] = {};
    opened.push_back(key + ": auto"), settings.push_back("--set " + key + "=auto");
  }
  if (opened.size() < 2) return "";
  const FitFound found = questions.fits(changed);
  return found.yes ? fmt::format("with {}: {}: {}", fmt::join(opened, " and "), found.best, fmt::join(settings, " "))
                   : "";
}

// What fits by the estimate alone.
std::string by_estimate(const Scenario& scenario, Questions& questions) {
  if (fit_asked(scenario) == 0) return "";
  Scenario changed = scenario;
  changed.plan.fit = 0;
  const FitFound found = questions.fits(changed);
  return found.yes ? fmt::format("by the estimate alone, so with less than {}: {}: --fit 50% (plan.fit)",
                                 fit_text(scenario.plan.fit), found.best)
                   : "";
}

}  // namespace

std::optional<SearchAnswer> least_memory(const Scenario& scenario, const SearchOptions& options) {
  Scenario roomy = scenario;
  roomy.cluster.device.memory = kMoreThanAny;
  SearchOptions ask = options;
  ask.objective = Objective::Memory;
  ask.top = 1, ask.gap = 0;
  ask.keep_going = ask.remedies = ask.proof = false;
  auto found = search(roomy, ask);
  if (auto* there = std::get_if<SearchAnswer>(&found)) return std::move(*there);
  return std::nullopt;
}

std::string in_words(const NearestMiss& nearest) {
  return fmt::format("{} needs {}{}{} on stage {}, {} more than the {} of a device", in_words(nearest.layout),
                     nearest.at_least ? "at least " : "", bytes_text(nearest.need),
                     nearest.fit > 0 ? " to fit with " + fit_text(nearest.fit) : "", nearest.stage,
                     bytes_text(nearest.need - nearest.capacity), bytes_text(nearest.capacity));
}

StageId fullest_stage(const Found& found) {
  const auto& workers = found.report.workers;
  return std::ranges::max_element(
             workers, [](const WorkerReport& a, const WorkerReport& b) { return a.need.to_fit < b.need.to_fit; })
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
    if (is_kept(options, key)) continue;
    if (fields.find(field.key) != fields.end() && fields.at(field.key).among.empty()) continue;
    fields[field.key] = {};
    if (const FitFound found = questions.fits(changed); found.yes)
      remedies.push_back(fmt::format("with {0}: auto: {1}: --set {0}=auto", key, found.best));
  }
  if (std::string line = shorter_gradients(scenario, options, questions); !line.empty())
    remedies.push_back(std::move(line));
  if (remedies.empty())
    if (std::string line = opened_together(scenario, options, questions); !line.empty())
      remedies.push_back(std::move(line));
  for (std::string line : {shorter_numbers(scenario, options, questions), fewest_nodes(scenario, questions),
                           by_estimate(scenario, questions)})
    if (!line.empty()) remedies.push_back(std::move(line));
  if (least) remedies.push_back(memory_line(*least));
  return remedies;
}

}  // namespace pipewright::planner
