// A ranking as an HTML page.
#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "core/answers/campaign.hpp"
#include "core/answers/idle_devices.hpp"
#include "io/text/format_quantity.hpp"
#include "io/writers/campaign_lines.hpp"
#include "io/writers/html.hpp"
#include "io/writers/html_page.hpp"
#include "io/writers/interval_text.hpp"
#include "io/writers/pareto_svg.hpp"
#include "io/writers/ranking.hpp"
#include "io/writers/ranking_parts.hpp"

namespace pipewright {

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
  for (const std::string& warning : best.report.warnings)
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

}  // namespace pipewright
