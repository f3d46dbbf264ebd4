#include "planner/launch/narrowed.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/answers/ranking.hpp"
#include "core/check.hpp"
#include "planner/plan_errors.hpp"
#include "planner/refusals.hpp"
#include "planner/search/switches.hpp"
#include "planner/words.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

std::string either(const std::vector<std::string>& values) {
  return listed(values, "or");
}

bool flushes(const std::string& schedule) {
  const ScheduleRule* rule = find_schedule(schedule);
  return rule == nullptr || rule->flush;
}

class Narrowing {
 public:
  Narrowing(const Scenario& scenario, Framework framework) : words_(words(framework)), asked_(scenario) {}

  Narrowed all() {
    check_model(found_.scenario, words_.framework);
    refuse_replicas();
    choose("schedule", plan().schedule.value,
           words_.runs == nullptr ? std::vector<std::string>{} : schedules_of(words_));
    if (!words_.chunks) one_chunk();
    if (words_.own_cuts) cut_evenly();
    experts();
    context();
    recompute();
    placement();
    switches_of_framework();
    training();
    within();
    keep_what_is_fixed();
    return std::move(found_);
  }

 private:
  PlanRequest& plan() { return found_.scenario.plan; }
  bool has_copies() {
    return plan().open.contains("data_parallel") || plan().open.contains("context_parallel") ||
           plan().data_parallel.value > 1 || plan().context_parallel.value > 1;
  }

  // Whether the scenario has one value of this key.
  bool states(const std::string& key) const {
    const std::string field = key.substr(key.find('.') + 1);
    const OpenFields& open = key.starts_with("plan.") ? asked_.plan.open : asked_.training.open;
    return asked_.origins.contains(key) && !open.contains(field);
  }

  void tell(const std::string& key, const std::string& what) {
    found_.restricted.push_back(what);
    if (states(key)) found_.replaced.push_back(key.substr(0, key.find('.') + 1) + what);
    found_.keys.push_back(key);
    found_.scenario.origins[key] = Place{fmt::format("--for {}", words_.word), 0, 0};
  }
  [[noreturn]] void refuse(const Place& place, const std::string& key, const std::string& value,
                           const std::string& way_out) {
    throw InputError(or_else(place, plan().place),
                     fmt::format("plan.{}: {}, which {} does not have; {}, or leave --for {} out", key, value,
                                 words_.name, way_out, words_.word));
  }

  void refuse_replicas() {
    if (plan().open.contains("replicas") || !plan().replicas.value.empty())
      refuse(plan().replicas.place, "replicas", "workers that share a stage", "leave plan.replicas out");
    if (std::holds_alternative<SuffixDp>(plan().partition.value))
      refuse(plan().partition.place, "partition", "stages with replicas of their own", "write plan.partition: auto");
  }

  bool runs(const std::string& schedule) const {
    const ScheduleRule* rule = find_schedule(schedule);
    return words_.runs == nullptr ? flushes(schedule) : rule != nullptr && words_.runs(*rule);
  }

  // Of an open field what is left of its values; of a fixed one whether it is among them. `all`: of the framework;
  // empty: any but those of asynchronous training.
  void choose(const std::string& key, const std::string& own, const std::vector<std::string>& all) {
    const auto open = plan().open.find(key);
    if (open == plan().open.end()) {
      if (!runs(own)) refuse(plan().schedule.place, key, own, all.empty() ? "write auto" : "write " + either(all));
      return;
    }
    std::vector<std::string>& among = open->second.among;
    std::vector<std::string> left;
    for (const std::string& value : among.empty() ? all : among)
      if (runs(value)) left.push_back(value);
    if (left == among) return;
    if (left.empty())
      refuse(open->second.place, key, "auto, but among values", all.empty() ? "write auto" : "list " + either(all));
    among = left;
    tell("plan." + key, fmt::format("{}: {}", key, either(left)));
  }

  void one_chunk() {
    if (plan().open.erase("virtual_stages") > 0) {
      plan().virtual_stages.value = 1;
      tell("plan.virtual_stages", "virtual_stages: 1");
    } else if (plan().virtual_stages.value > 1) {
      refuse(plan().virtual_stages.place, "virtual_stages", std::to_string(plan().virtual_stages.value), "write 1");
    }
  }

  void cut_evenly() {
    const bool stated = plan().open.erase("partition") == 0 && found_.scenario.origins.contains("plan.partition");
    if (stated && std::holds_alternative<EqualLayers>(plan().partition.value)) return;
    if (stated) refuse(plan().partition.place, "partition", "cuts of its own", "write equal_layers, or auto");
    plan().partition.value = EqualLayers{};
    tell("plan.partition", "partition: equal_layers, by its own methods");
  }

  std::vector<std::string> modes_of_framework() const {
    std::vector<std::string> modes{words_.recompute.begin(), words_.recompute.end()};
    if (words_.framework == Framework::Torchtitan && !by_operator()) std::erase(modes, "selective");
    return modes;
  }

  bool by_operator() const { return found_.scenario.plan.recompute_modules.has(Module::Operators); }

  // torchtitan's selective checkpoints are those by operator, and nobody else has them.
  void modules() {
    if (words_.framework != Framework::Torchtitan) {
      if (by_operator())
        refuse(plan().recompute.place, "recompute_modules", "[operators]", "leave it out, or ask for torchtitan");
      return;
    }
    if (!plan().open.contains("recompute") || found_.scenario.origins.contains("plan.recompute_modules")) return;
    const Modules before = std::exchange(plan().recompute_modules, Modules{Module::Operators});
    // Shared sequences are not checkpointed so: the other ways are left.
    const bool shared = plan().context_parallel.value > 1 && !plan().open.contains("context_parallel");
    if (shared || operators_refusal(found_.scenario)) plan().recompute_modules = before;
  }

  // What the model has, too: blocks, and attention cores that can be rebuilt alone.
  std::vector<std::string> recomputations() const {
    const Model& model = found_.scenario.model;
    const bool blocks = std::ranges::any_of(model.layers, [](const Layer& l) { return l.block; });
    const bool cores = drops_any(model, found_.scenario.plan.recompute_modules);
    std::vector<std::string> modes;
    for (const std::string& mode : modes_of_framework())
      if ((mode != "blocks" || blocks) && (mode != "selective" || cores)) modes.push_back(mode);
    return modes;
  }

  void recompute() {
    if (plan().recompute_except_last) {
      plan().recompute_except_last = false;
      tell("plan.recompute_except_last", "recompute_except_last: false, micro-batches are treated alike");
    }
    modules();
    const auto open = plan().open.find("recompute");
    if (open == plan().open.end()) return check_recompute(modes_of_framework());
    const std::vector<std::string> all = open->second.among.empty() ? recomputations() : modes_of_framework();
    std::vector<std::string> left;
    for (const std::string& mode : all)
      if (open->second.among.empty() || std::ranges::find(open->second.among, mode) != open->second.among.end())
        left.push_back(mode);
    if (left.empty()) refuse(open->second.place, "recompute", "auto, but among modes", "list " + either(all));
    open->second.among = left;
    found_.within.one_recompute = words_.one_recompute && left.size() > 1;
    tell("plan.recompute",
         fmt::format("recompute: {}{}", either(left), found_.within.one_recompute ? ", one for all stages" : ""));
  }

  // A mode that is fixed, of all stages alike where the framework has one for all.
  void check_recompute(const std::vector<std::string>& all) {
    const std::vector<Recompute>& modes = plan().recompute.value;
    const auto there = [&](Recompute mode) {
      const std::string asked = mode == Recompute::Layers ? "knapsack" : std::string(word(mode));
      return mode == Recompute::None || std::ranges::find(all, asked) != all.end();
    };
    for (const Recompute mode : modes)
      if (!there(mode))
        refuse(plan().recompute.place, "recompute", std::string(word(mode)), "write auto or " + either(all));
    if (words_.one_recompute && std::ranges::adjacent_find(modes, std::not_equal_to<>()) != modes.end())
      refuse(plan().recompute.place, "recompute", "several modes", "write one for all stages");
  }

  void placement() {
    if (words_.pipeline_placement || !has_copies()) return;
    const bool open = plan().open.erase("placement") > 0;
    const auto* order = std::get_if<PlacementOrder>(&plan().placement);
    if (!open && order != nullptr && *order == PlacementOrder::Data) return;
    if (!open && found_.scenario.origins.contains("plan.placement"))
      refuse(plan().placement_place, "placement", order != nullptr ? "pipeline" : "a list of devices", "write data");
    plan().placement = PlacementOrder::Data;
    tell("plan.placement", "placement: data");
  }

  void context() {
    if (!words_.context.empty()) return shared_sequences();
    if (plan().open.erase("context_parallel") > 0) {
      plan().context_parallel.value = 1;
      tell("plan.context_parallel", "context_parallel: 1");
    } else if (plan().context_parallel.value > 1) {
      refuse(plan().context_parallel.place, "context_parallel", std::to_string(plan().context_parallel.value),
             "write 1");
    }
  }

  // torchtitan shares sequences and divides experts only where weights are divided among the copies.
  bool lacks_sharding() {
    const Training& training = found_.scenario.training;
    if (words_.framework != Framework::Torchtitan) return false;
    const auto open = training.open.find("zero");
    if (open == training.open.end()) return training.zero < kGradientsSharded;
    const std::vector<std::string>& among = open->second.among;
    return !among.empty() && std::ranges::find(among, "3") == among.end();
  }

  // What is open without a list becomes 1.
  void close(const char* key, Placed<std::int64_t> PlanRequest::*field, const std::string& why) {
    const auto open = plan().open.find(key);
    if (open == plan().open.end() || !open->second.among.empty()) return;
    plan().open.erase(open);
    (plan().*field).value = 1;
    tell(fmt::format("plan.{}", key), fmt::format("{}: 1{}", key, why));
  }

  void experts() {
    const bool none = words_.framework == Framework::Torch || words_.framework == Framework::DeepSpeed;
    if (none || lacks_sharding())
      close("expert_parallel", &PlanRequest::expert_parallel,
            none ? "" : "; more needs zero: 3 there, which --set training.zero=3 searches");
  }

  void shared_sequences() {
    if (lacks_sharding())
      close("context_parallel", &PlanRequest::context_parallel,
            "; more needs zero: 3 there, which --set training.zero=3 searches");
  }

  bool has_stages() { return plan().open.contains("stages") || plan().stages.value > 1; }

  // Values of an open switch that `launch` would replace are not searched.
  void switches_of_framework() {
    for (const Switch& each : switches()) {
      const auto open = plan().open.find(std::string(each.key));
      if (open == plan().open.end()) continue;
      std::vector<std::string> left;
      const std::vector<std::size_t> all = values_of(each, found_.scenario);
      for (const std::size_t value : all) {
        Scenario trial = found_.scenario;
        trial.plan.open.erase(open->first);
        each.set(trial.plan, value);
        settle_training(trial, words_.framework, has_copies(), has_stages(), [](const std::string&) {});
        if (each.is(trial.plan, value)) left.emplace_back(each.values[value]);
      }
      if (left.size() == all.size()) continue;
      if (left.empty()) {  // its own choice, which settle_training makes and tells
        plan().open.erase(open);
        continue;
      }
      tell("plan." + open->first, fmt::format("{}: {}", each.key, either(left)));
      open->second.among = std::move(left);
      if (open->second.among.size() > 1) continue;
      each.set(plan(), values_of(each, found_.scenario).front());
      plan().open.erase(open);
    }
  }

  void training() {
    zero();
    const bool stages = has_stages();
    settle_training(found_.scenario, words_.framework, has_copies(), stages, [&](const std::string& what) {
      const std::string key = what.substr(0, what.find_first_of(": "));
      const bool of_plan = key == "gradient_sync" || key == "data_parallel_shard" || key.starts_with("re") ||
                           key.starts_with("context_") || key.starts_with("expert_") ||
                           key.starts_with("shared_experts") || key == "tensor_overlap" || key == "pairs" ||
                           key == "offload_layers";
      tell((of_plan ? "plan." : "training.") + key, what);
    });
  }

  // ZeRO 2 or 3 where pipelines may be chosen that have 1 at most: both are searched.
  void one_in_pipelines() {
    Training& training = found_.scenario.training;
    if (words_.zeros_in_pipelines || words_.zeros.size() < 4 || !has_copies() || !plan().open.contains("stages"))
      return;
    const auto open = training.open.find("zero");
    std::vector<std::string> among =
        open == training.open.end() ? std::vector{std::to_string(training.zero)} : open->second.among;
    if (among.size() != 1 || (among.front() != "2" && among.front() != "3")) return;
    tell("training.zero", fmt::format("zero: {} on one stage; 1 in pipelines, which have no more", among.front()));
    asked_zero_ = std::stoll(among.front());
    among.insert(among.begin(), "1");
    training.open["zero"] = {.place = training.place, .among = std::move(among)};
    training.zero = 0;
  }

  // Of the stages of ZeRO that may be chosen those that the framework has; the one that is left is settled.
  void zero() {
    Training& training = found_.scenario.training;
    one_in_pipelines();
    const auto open = training.open.find("zero");
    if (open == training.open.end()) return;
    std::vector<std::string>& among = open->second.among;
    std::vector<std::string> left;
    const bool stages = !plan().open.contains("stages") && plan().stages.value > 1;
    // What the search opens by itself they have: 2 and 3 on one stage alone.
    if (among.empty() && words_.zeros.size() == 4) return;
    std::vector<std::string> usual;
    for (const std::int64_t zero : words_.zeros)
      if (words_.zeros_in_pipelines || !stages || zero < kGradientsSharded) usual.push_back(std::to_string(zero));
    for (const std::string& value : among.empty() ? usual : among)
      if (std::ranges::find(usual, value) != usual.end()) left.push_back(value);
    if (left.empty())
      throw InputError(open->second.place,
                       fmt::format("training.zero: none of these is there in {}; write {}, or leave --for {} out",
                                   words_.name, either(usual), words_.word));
    if (left.size() > 1) {
      among = left;
      return;
    }
    training.zero = std::stoll(left.front());  // read_plan has seen that it is 0 to 3
    tell("training.zero", fmt::format("zero: {}{}", left.front(), training.zero == 0 ? ", copies are whole" : ""));
    training.open.erase(open);
  }

  void within() {
    found_.within.whole_nodes = true;
    found_.within.lacks = [framework = words_.framework, asked = asked_zero_,
                           scenario = std::make_shared<const Scenario>(found_.scenario)](const Layout& layout) {
      Layout more = layout;
      more.zero = asked;
      const bool less = layout.copies() > 1 && layout.zero < asked && lacks(framework, *scenario, more).empty();
      return less ? fmt::format("zero: {} where {} is there", layout.zero, asked) : lacks(framework, *scenario, layout);
    };
    if (found_.scenario.cluster.nodes > 1) found_.restricted.push_back("devices: of one node, or of whole nodes");
  }

  // A remedy would open these for any value, and copies where placement and their gradients were not settled for them:
  // with --for its line would find another plan.
  void keep_what_is_fixed() {
    std::vector<std::string> keys = {"plan.recompute", "training.zero", "training.precision"};
    if (!has_copies()) keys.emplace_back("plan.data_parallel");
    for (std::string& key : keys)
      if (std::ranges::find(found_.keys, key) == found_.keys.end()) found_.keys.push_back(std::move(key));
  }

  const FrameworkWords& words_;
  const Scenario& asked_;
  Narrowed found_{without_what_is_not_there(asked_), {}, {}, {}, {}};
  std::int64_t asked_zero_ = 0;  // where pipelines may have less
};

}  // namespace

Narrowed narrowed(const Scenario& scenario, Framework framework) {
  return Narrowing(scenario, framework).all();
}

}  // namespace pipewright::planner
