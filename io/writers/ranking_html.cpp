// A ranking as an HTML page.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/answers/campaign.hpp"
#include "core/answers/idle_devices.hpp"
#include "core/answers/ranking.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/quote.hpp"
#include "io/writers/campaign_lines.hpp"
#include "io/writers/html.hpp"
#include "io/writers/html_page.hpp"
#include "io/writers/interval_text.hpp"
#include "io/writers/ranking.hpp"
#include "io/writers/ranking_parts.hpp"
#include "io/writers/svg_canvas.hpp"

namespace pipewright::io {

namespace {

// The plans that no other beats, as points: time per sample to the right, since plans may have different batches;
// memory upwards, or cost where memory was not asked for.

constexpr double kParetoLeft = 90, kParetoTop = 30, kParetoWidth = 760, kParetoHeight = 340, kParetoRight = 40,
                 kParetoBottom = 64;

struct AxisSteps {
  double step, end;
  explicit AxisSteps(double largest)
      : step(round_step(largest > 0 ? largest : 1)), end(step * std::ceil(1.02 * (largest > 0 ? largest : 1) / step)) {}
};

// Of a ranking with `pareto`; points bear the numbers of its rows, from 1.
std::string pareto_svg(const Ranking& ranking) {
  const auto& plans = ranking.pareto;
  const auto& axes = ranking.pareto_axes;
  const bool memory = std::ranges::find(axes, "memory") != axes.end();
  const auto x_of = [](const Found& found) {
    return found.report.samples_per_s > 0 ? 1000 / found.report.samples_per_s : 0;
  };
  const auto y_of = [&](const Found& found) {
    if (memory) return static_cast<double>(found.peak.value) / 1073741824.0;
    return found.report.samples_per_s > 0 ? found.plan.devices() / found.report.samples_per_s : 0;
  };
  double largest_x = 0, largest_y = 0;
  for (const Found& found : plans)
    largest_x = std::max(largest_x, x_of(found)), largest_y = std::max(largest_y, y_of(found));
  const AxisSteps x(largest_x), y(largest_y);
  const auto px = [&](double value) { return kParetoLeft + kParetoWidth * value / x.end; };
  const auto py = [&](double value) { return kParetoTop + kParetoHeight * (1 - value / y.end); };
  Canvas canvas;
  for (double at = 0; at <= x.end * 1.001; at += x.step) {
    canvas.line(px(at), kParetoTop, px(at), kParetoTop + kParetoHeight, "grid");
    canvas.text(px(at), kParetoTop + kParetoHeight + 18, fmt::format("{:.4g}", at), "mid quiet", 11);
  }
  for (double at = 0; at <= y.end * 1.001; at += y.step) {
    canvas.line(kParetoLeft, py(at), kParetoLeft + kParetoWidth, py(at), "grid");
    canvas.text(kParetoLeft - 8, py(at) + 4, fmt::format("{:.4g}", at), "end quiet", 11);
  }
  canvas.text(kParetoLeft + kParetoWidth / 2, kParetoTop + kParetoHeight + 38, "ms per sample", "mid quiet", 12);
  canvas.text(12, kParetoTop - 12, memory ? "memory of the fullest device in GiB" : "device seconds per sample",
              "quiet", 12);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const double at_x = px(x_of(plans[i])), at_y = py(y_of(plans[i]));
    canvas.raw(fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"9\" class=\"f\"><title>{}</title></circle>\n",
                           coordinate(at_x), coordinate(at_y), xml(in_words(plans[i].layout))));
    canvas.text(at_x, at_y + 4, std::to_string(i + 1), "mid num", 11);
  }
  return canvas.document(kParetoLeft + kParetoWidth + kParetoRight, kParetoTop + kParetoHeight + kParetoBottom,
                         "plans that no other beats");
}

}  // namespace

using namespace ranked;

std::string ranking_html(const Ranking& ranking, const Scenario& asked, const Answer& best, std::string_view command) {
  const Found& first = ranking.plans.front();
  const Sizes sizes(asked);
  const Fullest device = fullest(first);
  HtmlPage page(
      asked.name.empty() ? "best plans" : asked.name + ": best plans",
      fmt::format("{} ({} layers) on {}{}", asked.model.name, asked.model.layers.size(),
                  asked.cluster.devices_in_words(), asked.cluster.name.empty() ? "" : " (" + asked.cluster.name + ")"));
  std::string range;
  if (const auto& interval = best.report.range)
    range = within_90(seconds_text(interval->fastest), seconds_text(interval->slowest) + " s");
  std::vector<HtmlPage::Figure> figures = {
      {"step time", seconds_text(first.report.step_time) + " s", range},
      {"samples per second", fmt::format("{:.4g}", first.report.samples_per_s), ""},
      {"memory of the fullest device", sizes.with_unit(device.need), "of " + sizes.with_unit(device.capacity)}};
  if (first.report.mfu)
    figures.insert(figures.begin() + 2, {"model FLOPs utilization", percent(*first.report.mfu), ""});
  if (first.report.hfu)
    figures.insert(figures.begin() + 3, {"hardware FLOPs utilization", percent(*first.report.hfu), ""});
  page.heading("Best plan: " + in_words(first.layout));
  add_campaign_figures(figures, best);
  page.figures(figures);
  warn_of_tight_memory(page, best);
  for (const auto* warnings : {&ranking.framework_warnings, &best.report.warnings})
    for (const std::string& warning : *warnings)
      page.warning(warning);
  std::vector<std::pair<std::string, std::string>> facts = {{"recomputation", recompute_in_words(first.plan)},
                                                            {"cut", layers_text(first.plan)}};
  if (const std::string idle = idle_devices_in_words(first.plan, asked.cluster); !idle.empty())
    facts.insert(facts.begin(), {"idle devices", idle});
  if (!ranking.order.empty()) facts.emplace_back("layer order", ranking.order);
  facts.emplace_back("optimality", quality(ranking));
  if (asked.plan.fit > 0) facts.emplace_back("memory", memory_text(first, sizes));
  for (std::size_t i = 0; i < ranking.restricted.size(); ++i)
    facts.emplace_back(i == 0 ? "searched for " + ranking.framework + " alone" : "", ranking.restricted[i]);
  facts.emplace_back("limited by", first.report.limiting_factor);
  for (const std::string& line : tried(ranking))
    facts.emplace_back(facts.back().first == "searched" || facts.back().first.empty() ? "" : "searched", line);
  for (const Flip& flip : ranking.flips)
    facts.emplace_back("another is better", flip_text(flip));
  for (const Unmoved& each : ranking.unmoved)
    facts.emplace_back("no other is better", fmt::format("for a {} from {} to {}", each.what,
                                                         short_bandwidth(each.from), short_bandwidth(each.to)));
  page.facts(facts);
  if (best.report.campaign) {
    page.heading("The whole training, by the best plan");
    page.facts(campaign_lines(best, CampaignLines::BesideFigures));
  }
  page.heading("Plans, best first");
  add_differing(page, columns(ranking.plans));
  if (!ranking.pareto.empty()) {
    page.heading(fmt::format("Not beaten in all of {}", fmt::join(ranking.pareto_axes, ", ")));
    page.drawing(pareto_svg(ranking));
    add_differing(page, columns(ranking.pareto));
  }
  add_timeline_and_tables(page, best);
  page.heading("How it is known");
  page.list(best.report.provenance);
  add_making(page, command, *first.scenario);
  return page.document();
}

}  // namespace pipewright::io
