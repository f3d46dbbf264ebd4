#include "io/writers/sizing.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/answers/campaign.hpp"
#include "io/text/quote.hpp"
#include "io/writers/campaign_lines.hpp"
#include "io/writers/documents.hpp"
#include "io/writers/html.hpp"
#include "io/writers/interval_text.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/ranking_parts.hpp"
#include "io/writers/sweep.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright::io {

using namespace ranked;

namespace {

std::string counted(int nodes) {
  return fmt::format("{} node{}", nodes, nodes == 1 ? "" : "s");
}

double gap(const SizedNodes& row) {
  return row.bound > 0 ? row.best->value / row.bound - 1 : 0;
}

// With failures as the days are.
std::optional<double> cost_of(const SizedNodes& row) {
  const auto whole = campaign(*row.best->scenario, row.best->plan, row.best->report);
  if (!whole) return std::nullopt;
  return row.failures ? whole->cost_expected() : whole->cost;
}

// Likewise.
std::optional<double> device_hours(const SizedNodes& row) {
  if (!row.failures) return whole_training(*row.best).device_hours;
  return row.days ? std::optional(*row.days * 24 * row.best->plan.devices()) : std::nullopt;
}

// Of a list of numbers those between may do, too.
std::string_view smallest_of(const Sizing& sizing) {
  if (*sizing.smallest == 1) return "smallest";
  const bool before =
      std::ranges::any_of(sizing.rows, [&](const SizedNodes& row) { return row.nodes == *sizing.smallest - 1; });
  return before ? "smallest" : "smallest tried";
}

// "smallest, cheapest"
std::string marks(const Sizing& sizing, int nodes) {
  std::string text;
  for (const auto& [who, what] :
       {std::pair{sizing.smallest, sizing.smallest ? smallest_of(sizing) : std::string_view()},
        {sizing.cheapest, "cheapest"},
        {sizing.fastest, "fastest"},
        {sizing.in_time, "in time"}})
    if (who == nodes) text += (text.empty() ? "" : ", ") + std::string(what);
  return text;
}

// Of the rows that have a plan; what the numbers of nodes say in place of the ranks.
std::vector<TextColumn> table(const Sizing& sizing) {
  std::vector<Found> plans;
  TextColumn nodes{"nodes"}, gaps{"gap %"}, marked{"mark", true}, days{"days expected"}, costs{"cost expected"};
  bool failures = false;
  for (const SizedNodes& row : sizing.rows) {
    if (!row.best) continue;
    plans.push_back(*row.best);
    nodes.cells.push_back(std::to_string(row.nodes));
    gaps.cells.push_back(row.bound > 0 ? fmt::format("{:.2f}", 100 * gap(row)) : "-");
    marked.cells.push_back(marks(sizing, row.nodes));
    days.cells.push_back(row.days ? fmt::format("{:.4g}", *row.days) : "never");
    const auto cost = cost_of(row);
    costs.cells.push_back(cost ? money_text(*cost) : "-");
    failures |= row.failures;
  }
  if (plans.empty()) return {};
  std::vector<TextColumn> all = columns(plans);
  all.front() = std::move(nodes);
  all.insert(all.begin() + 1, std::move(marked));
  all.insert(all.begin() + 2, std::move(gaps));
  for (TextColumn& column : all)
    if (failures && (column.head == "days" || column.head == "cost"))
      column = std::move(column.head == "days" ? days : costs);
  // What the question is about first: nodes, mark, gap, GPUs, then these.
  std::stable_partition(all.begin() + 4, all.end(), [](const TextColumn& column) {
    return column.head.starts_with("days") || column.head.starts_with("cost") || column.head == "samples/s";
  });
  return all;
}

std::string days_words(double days) {
  const std::string text = fmt::format("{:.4g}", days);
  return text + (text == "1" ? " day" : " days");
}

// "46.3 days (90 % within 36.7 to 64.0)"
std::string days_text(const SizedNodes& row) {
  std::string text = days_words(*row.days);
  if (row.days_low)
    text +=
        fmt::format(" ({})", within_90(fmt::format("{:.4g}", *row.days_low), fmt::format("{:.4g}", *row.days_high)));
  return text;
}

std::string in_time_text(const SizedNodes& row, double deadline) {
  const std::string text = days_text(row);
  if (!row.days_high) return text;
  return text + (*row.days_high <= deadline ? ": in time over all of it" : ": in time at the central estimate only");
}

std::string none_in_time(const Sizing& sizing) {
  const SizedNodes* least = nullptr;
  for (const SizedNodes& row : sizing.rows)
    if (row.best && row.days && (least == nullptr || *row.days < *least->days)) least = &row;
  return fmt::format("none of these is done in {}; {}", days_words(*sizing.deadline),
                     least == nullptr
                         ? "with these failures none ever is"
                         : fmt::format("the least are {}, on {}", days_text(*least), counted(least->nodes)));
}

double device_time(const SizedNodes& row) {
  return row.best->plan.devices() / row.best->report.samples_per_s;
}

// " (8, 16 and 32 nodes are within the gaps of their searches)": rows that could be the cheapest were their best plans
// found; "": no other.
std::string alike_cheap(const Sizing& sizing) {
  const double least = device_time(
      *std::ranges::find_if(sizing.rows, [&](const SizedNodes& row) { return row.nodes == *sizing.cheapest; }));
  std::vector<int> open;
  for (const SizedNodes& row : sizing.rows)
    if (row.best && device_time(row) / (1 + gap(row)) <= least) open.push_back(row.nodes);
  if (open.size() < 2) return "";
  return fmt::format(" (within the gap of the search: {} nodes)", fmt::join(open, ", "));
}

// The answer, a sentence per question.
std::vector<std::string> answers(const Sizing& sizing) {
  const auto of = [&](int nodes) -> const SizedNodes& {
    return *std::ranges::find_if(sizing.rows, [&](const SizedNodes& row) { return row.nodes == nodes; });
  };
  const auto with_devices = [&](int nodes) {
    return fmt::format("{} ({} devices)", counted(nodes), of(nodes).devices);
  };
  std::vector<std::string> lines;
  if (!sizing.smallest) {
    const bool known = std::ranges::all_of(sizing.rows, [](const SizedNodes& row) { return row.known; });
    lines.push_back(fmt::format("{} on up to {}", known ? "no plan fits" : "no plan found yet",
                                with_devices(sizing.rows.back().nodes)));
    return lines;
  }
  lines.push_back(std::string(smallest_of(sizing)) + " on which a plan fits: " + with_devices(*sizing.smallest));
  lines.push_back(fmt::format("cheapest, least device time: {}, {:.4g} device seconds per sample{}",
                              with_devices(*sizing.cheapest), device_time(of(*sizing.cheapest)), alike_cheap(sizing)));
  lines.push_back(fmt::format("fastest: {}, {:.4g} samples/s", with_devices(*sizing.fastest),
                              of(*sizing.fastest).best->report.samples_per_s));
  if (sizing.deadline && sizing.in_time)
    lines.push_back(fmt::format("fewest nodes that finish in {}: {}, {}", days_words(*sizing.deadline),
                                with_devices(*sizing.in_time), in_time_text(of(*sizing.in_time), *sizing.deadline)));
  if (sizing.deadline && !sizing.in_time) lines.push_back(none_in_time(sizing));
  return lines;
}

std::vector<std::string> without_plan(const Sizing& sizing) {
  std::vector<std::string> lines;
  for (const SizedNodes& row : sizing.rows)
    if (!row.best && row.known) lines.push_back(fmt::format("no plan on {}: {}", counted(row.nodes), row.why));
  return lines;
}

// Whether the plan fits over the memory model's range; "" where it does so for certain.
std::string how_sure(const Found& found) {
  const Fullest device = fullest(found);
  if (device.fit == 0 && device.high <= device.capacity) return "";
  const std::string text = memory_text(found, Sizes(*found.scenario));
  return text.substr(text.find("; ") + 2);
}

std::vector<std::string> remarks(const Sizing& sizing) {
  std::vector<std::string> lines = sizing.notes;
  for (const SizedNodes& row : sizing.rows)
    if (row.best && row.ended != Ended::No && row.ended != sizing.ended && (row.bound <= 0 || gap(row) > 0.01))
      lines.push_back(fmt::format("on {}: {} ended the search; a longer --time-limit may find a better plan",
                                  counted(row.nodes), name(row.ended)));
  std::map<std::string, std::string> left;  // nodes by reason
  for (const SizedNodes& row : sizing.rows)
    if (row.best && !row.gap_left.empty()) {
      std::string& nodes = left[row.gap_left.substr(0, row.gap_left.find(" ("))];
      nodes += (nodes.empty() ? "" : ", ") + std::to_string(row.nodes);
    }
  for (const auto& [reason, nodes] : left)
    lines.push_back(fmt::format("what is left of the gap on {} node{}: {}", nodes, nodes == "1" ? "" : "s", reason));
  for (const SizedNodes& row : sizing.rows)
    if (std::string sure = row.best ? how_sure(*row.best) : ""; !sure.empty())
      lines.push_back(fmt::format("on {}: {}", counted(row.nodes), sure));
  if (sizing.ended != Ended::No)
    lines.push_back("an interrupt (Ctrl-C or SIGTERM) ended the search: rows may be missing");
  return lines;
}

// As a sweep over the number of nodes, for its curves.
Sweep over_nodes(const Sizing& sizing) {
  Sweep sweep;
  sweep.question.variants = {"best plan"};
  SweepAxis axis{"nodes", {}, {}};
  for (const SizedNodes& row : sizing.rows) {
    axis.texts.push_back(std::to_string(row.nodes));
    axis.amounts.push_back(Magnitude{static_cast<double>(row.nodes), Unit::None});
    SweepRow& point = sweep.rows.emplace_back();
    point.point = std::ssize(sweep.rows) - 1;
    point.outcome = row.best ? SweepRow::Outcome::Fits : SweepRow::Outcome::NoPlan;
    if (!row.best) continue;
    point.step_time = row.best->report.step_time;
    point.samples_per_s = row.best->report.samples_per_s;
    point.days = row.days, point.cost = cost_of(row);
    point.devices = row.best->plan.devices();
  }
  sweep.question.axes.push_back(std::move(axis));
  return sweep;
}

// Throughput over the nodes, and days and cost where the whole training is asked for; none of a single number of nodes.
void add_curves(HtmlPage& page, const Sizing& sizing) {
  if (sizing.rows.size() < 2 || !sizing.smallest) return;
  Sweep sweep = over_nodes(sizing);
  const auto has = [&](auto member) {
    return std::ranges::any_of(sweep.rows, [&](const SweepRow& row) { return (row.*member).has_value(); });
  };
  const auto draw = [&](const char* heading, const char* figure) {
    sweep.question.description = std::string(heading) + " of the best plan";
    page.heading(heading);
    page.drawing(sweep_svg(sweep, {"nodes", figure}));
  };
  draw("Samples per second", "samples_per_s");
  if (has(&SweepRow::days)) draw("Days", "days");
  if (has(&SweepRow::cost)) draw("Cost", "cost");
}

void write_sizing(JsonFields& json, const Sizing& sizing, const Scenario& asked) {
  json.field("scenario", asked.name).field("devices_per_node", asked.cluster.devices_per_node);
  json.field("deadline_days", sizing.deadline);
  json.field("smallest_nodes", sizing.smallest).field("cheapest_nodes", sizing.cheapest);
  json.field("fastest_nodes", sizing.fastest).field("in_time_nodes", sizing.in_time);
  json.list("rows", sizing.rows, [&](const SizedNodes& row) {
    json.field("nodes", row.nodes).field("devices", row.devices);
    json.word("outcome",
              row.best    ? "fits"
              : row.known ? "does_not_fit"
                          : "not_known",
              {"fits", "does_not_fit", "not_known"});
    json.field("reason", row.why)
        .field("ended", name(row.ended))
        .field("gap_left", row.gap_left)
        .field("bound", row.bound);
    json.field("gap", row.best ? gap(row) : 0.0).field("days", row.days);
    json.field("days_low", row.days_low).field("days_high", row.days_high);
    json.maybe("plan", row.best, [&](const Found& found) { write_plan(json, found); });
  });
  json.field("notes", remarks(sizing)).field("next", sizing.next).field("ended", name(sizing.ended));
}

// "256 devices, 46.3 days (36.7 to 64.0), cost 208.33"
std::string under_card(const Sizing& sizing, int nodes) {
  const SizedNodes& row =
      *std::ranges::find_if(sizing.rows, [&](const SizedNodes& each) { return each.nodes == nodes; });
  std::string text = fmt::format("{} devices", row.devices);
  if (row.days) text += ", " + days_text(row);
  if (const auto cost = cost_of(row)) text += ", cost " + money_text(*cost);
  return text;
}

}  // namespace

std::string sizing_text(const Sizing& sizing, const Scenario& asked, const TableOptions& options) {
  std::string text =
      wrapped("",
              fmt::format("{} · {} ({} layers) on nodes of {} x {}{}", asked.name, asked.model.name,
                          asked.model.layers.size(), asked.cluster.devices_per_node, asked.cluster.device.name,
                          asked.cluster.name.empty() ? "" : " (" + asked.cluster.name + ")"),
              options.width);
  if (const std::vector<TextColumn> all = table(sizing); !all.empty()) text += text_table(all, options.width) + "\n";
  const char* head = "answer        ";
  for (const std::string& line : answers(sizing))
    text += wrapped(std::exchange(head, "              "), line, options.width);
  head = "              ";
  for (const std::string& line : without_plan(sizing))
    text += wrapped(head, line, options.width);
  head = "note          ";
  for (const std::string& line : remarks(sizing))
    text += wrapped(std::exchange(head, "              "), line, options.width);
  if (!sizing.next.empty()) text += "next          " + sizing.next + "\n";
  return text;
}

constinit const JsonDocument kSizingDocument{"pipewright.sizing/1",
                                             [](JsonFields& json) { write_sizing(json, {}, {}); }};

std::string sizing_json(const Sizing& sizing, const Scenario& asked) {
  return kSizingDocument.text([&](JsonFields& json) { write_sizing(json, sizing, asked); });
}

std::string sizing_csv(const Sizing& sizing) {
  std::string text =
      "nodes,devices,outcome,plan,plan_devices,step_time_s,samples_per_s,tokens_per_s,mfu,peak_bytes,capacity_bytes,"
      "gap,days,device_hours,cost,mark,reason\n";
  for (const SizedNodes& row : sizing.rows) {
    text += fmt::format("{},{},{}", row.nodes, row.devices,
                        row.best    ? "fits"
                        : row.known ? "does_not_fit"
                                    : "not_known");
    if (row.best) {
      const Found& found = *row.best;
      text += fmt::format(",{},{},{:.9f},{},{},{},{},{},{}", csv_field(in_words(found.layout)), found.plan.devices(),
                          seconds(found.report.step_time), found.report.samples_per_s,
                          found.report.tokens_per_s ? fmt::format("{}", *found.report.tokens_per_s) : "",
                          found.report.mfu ? fmt::format("{}", *found.report.mfu) : "", fullest(found).need.value,
                          fullest(found).capacity.value, row.bound > 0 ? fmt::format("{}", gap(row)) : "");
      for (const auto& value : {row.days, device_hours(row), cost_of(row)})
        text += value ? fmt::format(",{}", *value) : ",";
    } else {
      text += ",,,,,,,,,,,,";
    }
    text += fmt::format(",{},{}\n", csv_field(marks(sizing, row.nodes)), csv_field(row.why));
  }
  return text;
}

std::string sizing_markdown(const Sizing& sizing) {
  std::string text = markdown_table(table(sizing));
  text += "\n";
  for (const auto& lines : {answers(sizing), without_plan(sizing), remarks(sizing)})
    for (const std::string& line : lines)
      text += "- " + markdown_text(line) + "\n";
  return text;
}

std::string sizing_html(const Sizing& sizing, const Scenario& asked, std::string_view command) {
  HtmlPage page(asked.name.empty() ? "how many nodes" : asked.name + ": how many nodes",
                fmt::format("{} ({} layers) on nodes of {} x {}", asked.model.name, asked.model.layers.size(),
                            asked.cluster.devices_per_node, asked.cluster.device.name));
  std::vector<HtmlPage::Figure> figures;
  const std::string smallest = sizing.smallest ? std::string(smallest_of(sizing)) + " that fits" : "";
  for (const auto& [who, what] : {std::pair{sizing.smallest, smallest.c_str()},
                                  {sizing.cheapest, "cheapest"},
                                  {sizing.fastest, "fastest"},
                                  {sizing.in_time, "fewest in time"}})
    if (who)
      figures.push_back({what, counted(*who),
                         under_card(sizing, *who) + (std::string_view(what) == "cheapest" ? alike_cheap(sizing) : "")});
  page.figures(figures);
  page.list(answers(sizing));
  if (const std::vector<TextColumn> all = table(sizing); !all.empty()) {
    page.heading("The best plan on each number of nodes");
    add_differing(page, all);
  }
  for (const auto& lines : {without_plan(sizing), remarks(sizing)})
    if (!lines.empty()) page.list(lines);
  add_curves(page, sizing);
  const auto known = std::ranges::find_if(
      sizing.rows, [](const SizedNodes& row) { return row.best && !row.best->report.provenance.empty(); });
  if (known != sizing.rows.end()) {
    page.heading("How it is known");
    page.list(known->best->report.provenance);
  }
  add_making(page, command, asked);
  return page.document();
}

}  // namespace pipewright::io
