#include "cli/plan_nodes.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "core/check.hpp"
#include "core/cluster/topology.hpp"
#include "io/writers/sizing.hpp"
#include "planner/what_if/sizing.hpp"
#include "study/ranks.hpp"

namespace pipewright::cli {
namespace {

constexpr std::array<std::string_view, 5> kNodesEndings = {".html", ".json", ".csv", ".md", ".yaml"};
constexpr int kMostAsked = 1000;

[[noreturn]] void no_nodes(const std::string& text) {
  throw InputError(
      Place{}, "--nodes",
      fmt::format("\"{}\" does not say numbers of nodes; write auto, a list like 1,2,4,6 or a range like 1..64",
                  text.substr(0, 64)));
}

int nodes(std::string_view part, const std::string& text) {
  const auto value = digits(part);
  if (!value || *value < 1) no_nodes(text);
  if (*value > kMostDevices)
    throw InputError(Place{}, "--nodes", fmt::format("{} nodes are more than {}; write fewer", *value, kMostDevices));
  return static_cast<int>(*value);
}

std::vector<int> listed(const std::string& text) {
  std::set<int> sorted;
  for (const std::string& part : parts_of(text))
    sorted.insert(nodes(part, text));
  if (std::ssize(sorted) > kMostAsked)
    throw InputError(Place{}, "--nodes",
                     fmt::format("{} numbers are more than {}; list fewer", sorted.size(), kMostAsked));
  return {sorted.begin(), sorted.end()};
}

// Without the scenario `auto` is empty.
SizingQuestion nodes_of(const Arguments& arguments) {
  const std::string text = arguments.has("--nodes") ? only_value(arguments, "--nodes") : "auto";
  if (text == "auto") return {};
  const auto dots = text.find("..");
  if (dots == std::string::npos) return {.nodes = listed(text)};
  const int first = nodes(std::string_view(text).substr(0, dots), text),
            last = nodes(std::string_view(text).substr(dots + 2), text);
  if (last < first) no_nodes(text);
  return nodes_between(first, last);
}

// Days.
std::optional<double> deadline(const Arguments& arguments) {
  if (!arguments.has("--deadline")) return std::nullopt;
  return static_cast<double>(option_time(arguments, "--deadline", "30d").value) / 86400e9;
}

void write(const std::string& path, std::string_view ending, const Sizing& sizing, const Scenario& scenario,
           const std::string& command) {
  write_output(path,
               ending == ".html"   ? sizing_html(sizing, scenario, command)
               : ending == ".json" ? sizing_json(sizing, scenario)
               : ending == ".csv"  ? sizing_csv(sizing)
                                   : sizing_markdown(sizing),
               "best plans by nodes");
}

// A command to be asked next. What came on standard input is there no more: it goes by a file name.
std::string asked_next(Arguments arguments, const std::string& behind) {
  const bool read = arguments.positional.front() == "-";
  if (read) arguments.positional.front() = "scenario.yaml";
  return command_line("plan", arguments) + behind +
         (read ? "    # scenario.yaml: a file with what was on standard input" : "");
}

// A deadline that no row meets: more nodes, where the most that were asked are the fastest ("": more bring nothing).
std::string more_nodes(const Arguments& arguments, const Sizing& sizing, int devices_per_node) {
  const int last = sizing.rows.back().nodes, most = kMostDevices / std::max(1, devices_per_node);
  if (sizing.fastest != last || last >= most) return "";
  Arguments more = arguments;
  for (const char* option : {"--nodes", "--format", "--json"})
    more.options.erase(option);
  more.options["--nodes"] = {fmt::format("{}..{}", last + 1, std::min<std::int64_t>(4 * std::int64_t{last}, most))};
  return asked_next(more, "");
}

// The plan of the row that the question is answered with, as a command; "": none.
std::string next_command(const Arguments& arguments, const Sizing& sizing, int devices_per_node) {
  if (sizing.deadline && !sizing.in_time && !sizing.rows.empty())
    return more_nodes(arguments, sizing, devices_per_node);
  const auto nodes = !sizing.deadline ? sizing.cheapest : sizing.in_time;
  if (!nodes) return "";
  Arguments one = arguments;
  for (const char* option : {"--nodes", "--deadline", "--format", "--json"})
    one.options.erase(option);
  std::erase_if(one.options["--set"], [](const std::string& set) { return set.starts_with("cluster.nodes="); });
  one.options["--set"].push_back(fmt::format("cluster.nodes={}", *nodes));
  const bool taken = arguments.positional.front() == "plan.yaml";
  return asked_next(one, taken ? " -o best.yaml" : " -o plan.yaml");
}

}  // namespace

bool asks_for_nodes(const Arguments& arguments) {
  return arguments.has("--nodes") || arguments.has("--deadline");
}

void check_nodes(const Arguments& arguments) {
  static_cast<void>(nodes_of(arguments));
  static_cast<void>(deadline(arguments));
  refuse_options(arguments, {"--explain", "--pareto", "--top"},
                 ": is for one cluster, and --nodes asks several; leave one of them out");
  if (const std::string objective = arguments.last("--objective", "throughput"); objective != "throughput")
    throw InputError(
        Place{}, "--objective",
        fmt::format(
            "{}: --nodes finds the plans of most samples per second, and marks of these the cheapest; leave "
            "--objective out, or plan one cluster: --set cluster.nodes=N --objective {} without --nodes and --deadline",
            objective, objective));
  for (const std::size_t ending : check_outputs(arguments.all("--output"), {arguments.positional.front()},
                                                kNodesEndings, arguments.last("--format", "")))
    if (kNodesEndings[ending] == ".yaml")
      throw InputError(Place{}, "--output",
                       "--nodes has a plan for every number of nodes; for the scenario of one: plan without --nodes, "
                       "with --set cluster.nodes=N -o plan.yaml");
}

int plan_nodes(const Arguments& arguments, const Scenario& scenario, const SearchOptions& options,
               const std::vector<std::string>& notes, const std::function<void()>& searched) {
  SizingQuestion question = nodes_of(arguments);
  if (question.nodes.empty()) question = nodes_by_themselves(scenario);
  question.deadline = deadline(arguments);
  const std::vector<std::string> outputs = arguments.all("--output");
  const std::vector<std::size_t> endings =
      check_outputs(outputs, {arguments.positional.front()}, kNodesEndings, arguments.last("--format", ""));
  Sizing sizing = size_cluster(scenario, question, options);
  searched();
  sizing.notes.insert(sizing.notes.end(), notes.begin(), notes.end());
  if (std::string caution = expert_caution(scenario); !caution.empty()) sizing.notes.push_back(std::move(caution));
  sizing.next = next_command(arguments, sizing, scenario.cluster.devices_per_node);
  print(arguments.has("--json") ? sizing_json(sizing, scenario)
                                : sizing_text(sizing, scenario, {output_width(arguments), use_colour(arguments)}));
  for (std::size_t i = 0; i < outputs.size(); ++i)
    write(outputs[i], kNodesEndings[endings[i]], sizing, scenario, command_line("plan", arguments));
  if (sizing.ended != Ended::No) return interrupted("the rows that were found are printed");
  return sizing.smallest && (!sizing.deadline || sizing.in_time) ? kDone : kNo;
}

}  // namespace pipewright::cli
