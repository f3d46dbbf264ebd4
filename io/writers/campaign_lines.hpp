// What an answer says of the whole training (`campaign:`).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/answers/campaign.hpp"
#include "core/answers/report.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {

// "time", "412 days on 64 devices ...": a line each, as summary_lines. No lines: the scenario does not ask.
// BesideFigures: without what a page's figures say.
enum class CampaignLines { All, BesideFigures };
std::vector<std::pair<std::string, std::string>> campaign_lines(const Answer& answer,
                                                                CampaignLines which = CampaignLines::All);

// The same as a part of a report, with a heading; "" where there are no lines.
std::string whole_training_text(const Answer& answer, const TableOptions& options);

// Under the key "campaign" where there is one, SI base units; docs/reference/result-json.md.
void write_campaign(JsonFields& json, const Campaign* campaign, const Report& report);

std::string days_text(double days);    // "8.68 hours", "31.4 days", "2.10 years"
std::string money_text(double money);  // "208.33", "1.580 M"

}  // namespace pipewright::io
