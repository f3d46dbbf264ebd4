#include "cli/reproduce_profiles.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/config_path.hpp"
#include "cli/scenario_path.hpp"
#include "cli/shapes.hpp"
#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "io/quote.hpp"
#include "io/scenario_file.hpp"
#include "io/writers/json_document.hpp"
#include "io/writers/markdown_table.hpp"
#include "io/writers/text_table.hpp"
#include "planner/find_plan.hpp"
#include "planner/pipedream_plans.hpp"
#include "planner/price.hpp"
#include "planner/replicated.hpp"

namespace pipewright {
namespace {

// Profiles with the samples that they were taken with where the file does not tell (recurrent networks): from the bytes
// of the LSTM's state, 131072 = 32 x 1024 x 4 and 524288 = 128 x 1024 x 4.
struct Profile {
  const char* name;
  std::int64_t batch;
};
constexpr std::array<Profile, 7> kProfiles = {{{"vgg16", 128},
                                               {"alexnet", 256},
                                               {"resnet50", 128},
                                               {"densenet121", 64},
                                               {"inception_v3", 128},
                                               {"gnmt", 32},
                                               {"gnmt_large", 128}}};

struct Machines {
  const char* name;
  int nodes, devices;
};
constexpr std::array<Machines, 2> kMachines = {{{"flat", 16, 1}, {"4x4", 4, 4}}};
constexpr std::array<const char*, 2> kNetworks = {"1.25 GB/s", "3.125 GB/s"};

struct Rule {
  const char* name;
  PipeDreamRule rule;
  PipeDreamTransfer transfer;
};
constexpr std::array<Rule, 2> kRules = {{{"as printed", PipeDreamRule::Sosp, PipeDreamTransfer::Whole},
                                         {"released", PipeDreamRule::Released, PipeDreamTransfer::OverReceivers}}};

struct Planned {
  std::string plan;   // replicas per stage
  double cycle = 0;   // seconds per micro-batch, simulated
  double memory = 0;  // GiB on the fullest device, simulated
  double time = 0;    // seconds of one core to plan
};

struct Row {
  std::string profile, machines, network;
  Planned ours;
  double gap = 0;
  std::array<Planned, kRules.size()> theirs;
};

// Processor time of this process: what else the machine does is no part of it.
double since(std::clock_t start) {
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

// 1-1-1-2 as 3x1-2: three stages of one replica, then one of two.
std::string in_words(const std::vector<int>& replicas) {
  std::string text;
  for (std::size_t i = 0; i < replicas.size();) {
    std::size_t same = i;
    while (same < replicas.size() && replicas[same] == replicas[i])
      ++same;
    const std::string dash = text.empty() ? "" : "-";
    if (same - i > 2)
      text += fmt::format("{}{}x{}", dash, same - i, replicas[i]);
    else
      for (std::size_t k = i; k < same; ++k)
        text += fmt::format("{}{}", k == i ? dash : "-", replicas[i]);
    i = same;
  }
  return text;
}

Planned simulated(const Plan& plan, const CostModel& cost) {
  const Answer answer = price(plan, cost, Engine::Auto);
  Planned planned;
  planned.plan = in_words(plan.replicas);
  planned.cycle = static_cast<double>(plan.micro_batch_size) / answer.report.samples_per_s;
  for (const WorkerReport& worker : answer.report.workers)
    planned.memory = std::max(planned.memory, static_cast<double>(worker.need.with_reserve.value) / (1 << 30));
  return planned;
}

Planned planned_by(const Rule& rule, const Plan& shell, const CostModel& cost) {
  const std::clock_t start = std::clock();
  const std::vector<Plan> plans = pipedream_plans(shell, cost, rule.rule, rule.transfer);
  const double time = since(start);
  std::optional<Planned> fastest;
  for (const Plan& plan : plans)
    if (const Planned each = simulated(plan, cost); !fastest || each.cycle < fastest->cycle) fastest = each;
  fastest->time = time;
  return *fastest;
}

Row row_of(const ScenarioFile& file, const std::string& folder, const Profile& profile, const Machines& machines,
           const char* network) {
  Scenario scenario = file.scenario(
      -1,
      {fmt::format("model={{pipedream_profile: {}, batch: {}, name: {}}}",
                   yaml_string(fmt::format("{}/{}.txt", folder, profile.name)), profile.batch, profile.name),
       fmt::format("training.micro_batch_size={}", profile.batch), fmt::format("cluster.nodes={}", machines.nodes),
       fmt::format("cluster.node.devices={}", machines.devices), fmt::format("cluster.network.bandwidth={}", network)});
  // PipeDream's optimizer does not look at memory unless asked: neither does this comparison. What the plans need is
  // printed.
  scenario.cluster.device.memory = Bytes{std::int64_t{1} << 50};
  const CostModel cost(scenario);
  const Plan shell = find_plan(scenario, cost);
  Row row{profile.name, machines.name, network, {}, 0, {}};
  const std::clock_t start = std::clock();
  const ReplicatedAnswer answer = replicated_plans(shell, cost, {.top = 1});
  const double time = since(start);
  PP_CHECK(!answer.ranking.empty());
  row.ours = simulated(answer.ranking.front().plan, cost);
  row.ours.time = time;
  row.gap = answer.gap();
  for (std::size_t i = 0; i < kRules.size(); ++i)
    row.theirs[i] = planned_by(kRules[i], shell, cost);
  return row;
}

// Slower than the rule's plan by more than what whole nanoseconds explain.
bool slower(const Row& row, const Planned& theirs) {
  return row.ours.cycle > theirs.cycle * (1 + 1e-6);
}

std::string csv(const std::vector<Row>& rows) {
  std::string text =
      "profile,machines,network,planner,replicas,cycle_s,memory_gib,planning_s,gap_to_lower_bound,"
      "their_cycle_over_ours\n";
  for (const Row& row : rows) {
    const auto line = [&](const char* planner, const Planned& planned, const std::string& gap) {
      text += fmt::format("{},{},{},{},{},{:.9g},{:.4g},{:.3g},{},{:.4f}\n", row.profile, row.machines, row.network,
                          planner, planned.plan, planned.cycle, planned.memory, planned.time, gap,
                          planned.cycle / row.ours.cycle);
    };
    line("pipewright", row.ours, fmt::format("{:.4f}", row.gap));
    for (std::size_t i = 0; i < kRules.size(); ++i)
      line(kRules[i].name, row.theirs[i], "");
  }
  return text;
}

void write_planned(JsonText& json, const Planned& planned, const Row& row) {
  json.field("replicas", planned.plan).field("cycle_s", planned.cycle).field("memory_gib", planned.memory);
  json.field("cycle_over_ours", planned.cycle / row.ours.cycle);
}

// Without the times that planning took: the same input gives the same bytes.
std::string json(const std::vector<Row>& rows) {
  JsonText json;
  open_document(json, "pipewright.profile-plans/1");
  json.key("rows").open('[');
  for (const Row& row : rows) {
    json.open('{').field("profile", row.profile).field("machines", row.machines).field("network", row.network);
    json.key("plans").open('[').open('{').field("planner", "pipewright");
    write_planned(json, row.ours, row);
    json.field("gap_to_lower_bound", row.gap).close();
    for (std::size_t i = 0; i < kRules.size(); ++i) {
      json.open('{').field("planner", fmt::format("PipeDream, {}", kRules[i].name));
      write_planned(json, row.theirs[i], row);
      json.close();
    }
    json.close().close();
  }
  json.close().close();
  return std::move(json).text();
}

std::vector<TextColumn> columns(const std::vector<Row>& rows) {
  std::vector<TextColumn> list = {{.head = "profile", .left = true},
                                  {.head = "16 V100", .left = true},
                                  {.head = "GB/s"},
                                  {.head = "our plan", .left = true},
                                  {.head = "ms"},
                                  {.head = "gap %"},
                                  {.head = "GiB"},
                                  {.head = "planned in ms"}};
  for (const Rule& rule : kRules) {
    list.push_back({.head = fmt::format("{}: plan", rule.name), .left = true});
    for (const char* head : {"ms", "GiB", "planned in ms", "times ours"})
      list.push_back({.head = head});
  }
  for (const Row& row : rows) {
    std::vector<std::string> cells = {row.profile,
                                      row.machines,
                                      row.network.substr(0, row.network.find(' ')),
                                      row.ours.plan,
                                      fmt::format("{:.2f}", row.ours.cycle * 1e3),
                                      fmt::format("{:.1f}", row.gap * 100),
                                      fmt::format("{:.1f}", row.ours.memory),
                                      fmt::format("{:.0f}", row.ours.time * 1e3)};
    for (const Planned& theirs : row.theirs)
      for (const std::string& cell :
           {theirs.plan, fmt::format("{:.2f}", theirs.cycle * 1e3), fmt::format("{:.1f}", theirs.memory),
            fmt::format("{:.0f}", theirs.time * 1e3), fmt::format("{:.2f}", theirs.cycle / row.ours.cycle)})
        cells.push_back(cell);
    for (std::size_t i = 0; i < cells.size(); ++i)
      list[i].cells.push_back(cells[i]);
  }
  return list;
}

constexpr std::string_view kHow =
    "plan: replicas per stage, 3x1: three stages of one. ms: per micro-batch in the steady state of asynchronous 1F1B, "
    "both plans simulated alike. gap: above the lower "
    "bound of all contiguous plans in the profile's order of layers. GiB: on the fullest device; no limit is set, as "
    "PipeDream's optimizer sets none unless asked. planned in ms: this program's own implementation of either, on one "
    "core of "
    "this machine. as printed: the paper's rule with transfers 2 a / B; released: the published program's, with "
    "transfers "
    "over the receiving replicas.";

std::string folder_of(const Arguments& arguments) {
  if (!arguments.has("--data"))
    throw InputError(
        "reproduce pipedream-profiles: needs the profiles; give --data DIR, with vgg16.txt and so on: "
        "profiler/*/profiles/*/graph.txt of https://github.com/msr-fiddle/pipedream");
  std::string folder = arguments.last("--data", "");
  for (const Profile& profile : kProfiles)
    if (const std::string file = folder + "/" + profile.name + ".txt"; !std::filesystem::exists(file))
      throw InputError("--data: there is no " + file + "; name a folder with the seven profiles as <name>.txt");
  return std::filesystem::absolute(folder).string();
}

}  // namespace

int reproduce_profiles(const Arguments& arguments) {
  const std::string folder = folder_of(arguments);
  const ScenarioFile file(shipped_scenario("pipedream/profiles.yaml"),
                          {.set = arguments.all("--set"), .config_path = config_path()});
  std::vector<Row> rows;
  for (const Profile& profile : kProfiles)
    for (const Machines& machines : kMachines)
      for (const char* network : kNetworks)
        rows.push_back(row_of(file, folder, profile, machines, network));
  if (arguments.has("--json"))
    print(json(rows));
  else if (arguments.has("--csv"))
    print(csv(rows));
  else if (arguments.has("--md"))
    print(markdown_table(columns(rows)) + "\n" + std::string(kHow) + "\n");
  else
    print(text_table(columns(rows), output_width(arguments)) + "\n" + wrapped("  ", kHow, output_width(arguments)) +
          "\n");
  bool any_slower = false;
  for (const Row& row : rows)
    for (std::size_t i = 0; i < kRules.size(); ++i) {
      if (!slower(row, row.theirs[i])) continue;
      any_slower = true;
      note(fmt::format("{} {} {}: our plan is slower than PipeDream's {}", row.profile, row.machines, row.network,
                       kRules[i].name));
    }
  return any_slower ? kNo : kDone;
}

JsonShape profile_plans_shape() {
  using namespace shape;
  const JsonShape plan = object({{"planner", text()},
                                 {"replicas", text()},
                                 {"cycle_s", number()},
                                 {"memory_gib", number()},
                                 {"cycle_over_ours", number()},
                                 {"gap_to_lower_bound?", number()}});
  const JsonShape row = object({{"profile", text()}, {"machines", text()}, {"network", text()}, {"plans", list(plan)}});
  return document("pipewright.profile-plans/1", {{"rows", list(row)}});
}

}  // namespace pipewright
