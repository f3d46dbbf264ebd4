#include "io/writers/campaign_lines.hpp"

#include <cmath>

#include <fmt/format.h>

#include "io/text/format_quantity.hpp"
#include "io/writers/interval_text.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright::io {
namespace {

using Lines = std::vector<std::pair<std::string, std::string>>;

std::string duration_text(Time time) {
  return days_text(seconds(time) / 86400);
}

std::string energy_text(Energy energy) {
  const double kwh = energy.value / 3.6e6;
  if (kwh >= 1e6) return significant(kwh * 1e-6) + " GWh";
  return kwh >= 1e3 ? significant(kwh * 1e-3) + " MWh" : significant(kwh) + " kWh";
}

std::string share_of_draws(double share) {
  return share > 0 ? percent(share) : "0 (no draw)";
}

std::string price_of(const Campaign& campaign, double all) {
  return fmt::format("{} per device-hour{}", brief(all / campaign.device_hours),
                     campaign.cost_expected() ? ", without failures" : "");
}

std::string cost_of(const Campaign& campaign, double all) {
  std::string text = money_text(all);
  if (campaign.days_low)
    text += fmt::format(" ({})", within_90(money_text(all * *campaign.days_low / campaign.days()),
                                           money_text(all * *campaign.days_high / campaign.days())));
  return text + " · " + price_of(campaign, all);
}

// Less than one, where so few tokens are asked for, is no "0 samples".
std::string samples_of(const Campaign& campaign) {
  if (campaign.samples < 1) return "less than 1 sample";
  const std::string count = short_count(campaign.samples);
  return count + (count == "1" ? " sample" : " samples");
}

std::string length_text(const Campaign& campaign, const Answer& answer) {
  std::string text = campaign.length;
  if (text.starts_with("1 ")) text.pop_back();  // "1 tokens", as it has to be written
  if (const auto& tokens = answer.scenario->training.sequence_length)
    text += fmt::format(" · {} of {} token{}", samples_of(campaign), *tokens, *tokens == 1 ? "" : "s");
  else if (!campaign.length.ends_with("samples"))
    text += " · " + samples_of(campaign);
  const std::string steps = fmt::format("{:.0f}", campaign.steps);
  return text + fmt::format(" · {} step{} of {}", steps, steps == "1" ? "" : "s", answer.plan.global_batch_size);
}

std::string devices_text(const Campaign& campaign) {
  return fmt::format("{} device{}", campaign.devices, campaign.devices == 1 ? "" : "s");
}

std::string hours_text(const Campaign& campaign) {
  const double hours = campaign.device_hours;
  return fmt::format("{} device-hours{}", hours < 1000 ? significant(hours) : short_count(hours),
                     campaign.goodput ? " · without failures" : "");
}

std::string time_text(const Campaign& campaign) {
  std::string text = days_text(campaign.days());
  if (text.ends_with("years")) text += fmt::format(", {:.0f} days,", campaign.days());
  text += " on " + devices_text(campaign);
  if (campaign.days_low)
    text += fmt::format(" ({})", within_90(days_text(*campaign.days_low), days_text(*campaign.days_high)));
  return text + " · " + hours_text(campaign);
}

void add_failures(Lines& lines, const Campaign& campaign) {
  const GoodputReport& good = *campaign.goodput;
  lines.emplace_back("goodput", percent(good.formula) + " by formula [Daly06]");
  std::string text = fmt::format("one in {} on {}", duration_text(good.mtbf), devices_text(campaign));
  if (good.failures > 0) text += fmt::format(" · {} in the whole training by formula", significant(good.failures));
  lines.emplace_back("failures", std::move(text));
  const bool own = good.interval != good.daly;
  lines.emplace_back(
      "checkpoints",
      fmt::format("every {}{}, each {} · best by Daly {}, by Young {} [Daly06] [Young74] · restart {}",
                  duration_text(good.interval), own ? " as asked for" : "", duration_text(good.checkpoint),
                  duration_text(good.daly), duration_text(good.young), duration_text(good.restart)));
  if (!campaign.days_expected()) return;
  text = fmt::format("{}, {} of it for failures and checkpoints", days_text(*campaign.days_expected()),
                     days_text(*campaign.days_expected() - campaign.days()));
  if (campaign.cost_expected())
    text += fmt::format(" · cost {}, {} of it", money_text(*campaign.cost_expected()),
                        money_text(*campaign.cost_expected() - *campaign.cost));
  lines.emplace_back("expected", std::move(text));
}

// Where the work of all draws, and not campaign.trials, says how many there are.
std::string fewer_draws(const SpreadReport& drawn, const Answer& answer) {
  const std::int64_t asked = answer.scenario->campaign ? answer.scenario->campaign->trials : drawn.trials;
  if (drawn.trials >= asked) return "";
  return fmt::format(" of the {} of campaign.trials (a step of so many ops is not simulated more often)", asked);
}

void add_spread(Lines& lines, const Campaign& campaign, const Answer& answer) {
  const SpreadReport& drawn = *campaign.spread;
  if (drawn.step_time) {
    const auto step = [](double value) { return short_time(Time{std::llround(value * 1e9)}); };
    const auto days = [&](double value) { return days_text(value * campaign.steps / 86400); };
    const Quantiles& q = *drawn.step_time;
    lines.emplace_back("step spread",
                       fmt::format("{} · {} · {} (5, 50, 95 %), so {} to {} · {} draws{}, seed {}: {}", step(q.p5),
                                   step(q.p50), step(q.p95), days(q.p5), days(q.p95), drawn.trials,
                                   fewer_draws(drawn, answer), drawn.seed, drawn.step_distribution));
  } else {
    lines.emplace_back("step spread", drawn.step_distribution);
  }
  if (!drawn.memory) return lines.emplace_back("fits", drawn.memory_distribution), void();
  const auto bytes = [](double value) { return short_bytes(Bytes{std::llround(value)}); };
  const StageReport* full = fullest(answer.report);
  lines.emplace_back("fits",
                     fmt::format("probability of not fitting {} · {} · {} · {} of {} (5, 50, 95 %) · seed {}: {}",
                                 share_of_draws(drawn.not_fitting), bytes(drawn.memory->p5), bytes(drawn.memory->p50),
                                 bytes(drawn.memory->p95), full ? short_bytes(full->need.capacity) : "?", drawn.seed,
                                 drawn.memory_distribution));
}

void write_quantiles(JsonFields& json, const char* key, const std::optional<Quantiles>& of) {
  json.maybe(key, of, [&](const Quantiles& q) { json.field("p5", q.p5).field("p50", q.p50).field("p95", q.p95); });
}

void write_members(JsonFields& json, const Campaign& campaign, const Report& report) {
  json.field("length", campaign.length).field("samples", campaign.samples).field("steps", campaign.steps);
  json.field("duration_s", campaign.duration).field("days", campaign.days());
  json.maybe("days_band", campaign.days_low ? &campaign : nullptr, [&](const Campaign& banded) {
    json.field("low", banded.days_low.value_or(0)).field("high", banded.days_high.value_or(0));
  });
  json.field("devices", campaign.devices).field("device_hours", campaign.device_hours);
  json.field("mfu", report.mfu).field("hfu", report.hfu).field("cost", campaign.cost);
  json.field("energy_j", campaign.energy).field("energy_most_j", campaign.energy_most);
  json.maybe("goodput", campaign.goodput, [&](const GoodputReport& good) {
    json.field("mtbf_s", good.mtbf).field("checkpoint_s", good.checkpoint).field("restart_s", good.restart);
    json.field("interval_young_s", good.young).field("interval_daly_s", good.daly).field("interval_s", good.interval);
    json.field("by_formula", good.formula).field("failures_by_formula", good.failures);
  });
  json.field("days_expected", campaign.days_expected()).field("cost_expected", campaign.cost_expected());
  json.maybe("spread", campaign.spread, [&](const SpreadReport& spread) {
    json.field("seed", spread.seed).field("trials", spread.trials);
    write_quantiles(json, "step_time_s", spread.step_time);
    json.field("step_time_distribution", spread.step_distribution);
    write_quantiles(json, "memory_bytes", spread.memory);
    json.field("probability_not_fitting", spread.memory ? std::optional(spread.not_fitting) : std::nullopt);
    json.field("memory_distribution", spread.memory_distribution);
  });
  json.field("not_told", campaign.missing).field("known_by", campaign.known);
}

}  // namespace

std::string days_text(double days) {
  if (days < 1.0 / 24 / 60) return significant(days * 86400) + " s";
  if (days < 1.0 / 24) return significant(days * 1440) + " min";
  if (days < 2) return significant(days * 24) + " h";
  return days < 1000 ? significant(days) + " days" : significant(days / 365.25) + " years";
}

std::string money_text(double money) {
  if (money < 1e5) return fmt::format("{:.2f}", money);
  if (money < 1e6) return significant(money * 1e-3, 4) + " k";
  return money < 1e9 ? significant(money * 1e-6, 4) + " M" : significant(money * 1e-9, 4) + " B";
}

std::vector<std::pair<std::string, std::string>> campaign_lines(const Answer& answer, CampaignLines which) {
  Lines lines;
  const Report& report = answer.report;
  if (!report.campaign) return lines;
  const Campaign& campaign = *report.campaign;
  lines.emplace_back("length", length_text(campaign, answer));
  const bool all = which == CampaignLines::All;
  lines.emplace_back("time", all ? time_text(campaign) : "on " + devices_text(campaign) + " · " + hours_text(campaign));
  if (report.mfu && all)
    lines.emplace_back("utilization", fmt::format("MFU {} · HFU {}", percent(*report.mfu),
                                                  report.hfu ? percent(*report.hfu) + ", with repeated forwards"
                                                             : "the same: no forward is repeated"));
  if (campaign.cost)
    lines.emplace_back("cost", all ? cost_of(campaign, *campaign.cost) : price_of(campaign, *campaign.cost));
  if (campaign.energy)
    lines.emplace_back("energy",
                       fmt::format("{} at most for computing (an upper estimate: TDP x busy time) · {} if all "
                                   "devices drew it all the time",
                                   energy_text(*campaign.energy), energy_text(*campaign.energy_most)));
  if (campaign.goodput) add_failures(lines, campaign);
  if (campaign.spread) add_spread(lines, campaign, answer);
  for (const std::string& missing : campaign.missing)
    lines.emplace_back("not known", missing);
  for (const std::string& known : campaign.known)
    lines.emplace_back("known by", known);
  for (std::size_t i = lines.size() - 1; i > 0; --i)
    if (lines[i].first == lines[i - 1].first) lines[i].first.clear();
  return lines;
}

std::string whole_training_text(const Answer& answer, const TableOptions& options) {
  constexpr int kLabel = 13;
  const Lines lines = campaign_lines(answer);
  if (lines.empty()) return "";
  const std::string_view heading = "the whole training";
  std::string text = options.colour ? fmt::format("\n\x1b[1m{}\x1b[0m\n", heading) : fmt::format("\n{}\n", heading);
  for (const auto& [label, line] : lines)
    text += wrapped(padded(label, kLabel) + " ", line, options.width);
  return text;
}

void write_campaign(JsonFields& json, const Campaign* campaign, const Report& report) {
  json.when(campaign != nullptr,
            [&] { json.object("campaign", [&] { write_members(json, campaign ? *campaign : Campaign{}, report); }); });
}

}  // namespace pipewright::io
