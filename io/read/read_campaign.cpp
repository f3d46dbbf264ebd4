// campaign: of a scenario, the whole training.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "io/read/campaign_text.hpp"
#include "io/text/quote.hpp"
#include "io/text/trimmed.hpp"
#include "io/yaml/sections.hpp"
#include "io/yaml/value_rules.hpp"

namespace pipewright::io {
namespace {

constexpr double kLargestAmount = 1e21;
constexpr std::int64_t kMostTrials = 100'000;

constexpr std::array<std::string_view, 4> kQuestions = {"cost", "energy", "goodput", "spread"};  // CampaignQuestion

double power_of(char suffix) {
  switch (suffix) {
    case 'k': return 1e3;
    case 'M': return 1e6;
    case 'G':
    case 'B': return 1e9;  // nobody counts tokens in bytes
    case 'T': return 1e12;
    default: return 0;
  }
}

struct Deviation {
  const char* operator()(double value) const {
    return value >= 0 && value <= 0.3 ? "" : "must be at least 0, at most 0.3: a share of the time";
  }
};
struct Trials {
  const char* operator()(std::int64_t value) const {
    return value >= 20 && value <= kMostTrials ? "" : "must be 20 to 100000";
  }
};

void read_length(Reader& reader, const At& at, CampaignRequest& campaign) {
  const std::string* text = scalar(reader, at, "a length, e.g. 15T tokens");
  if (!text) return;
  Parsed<CampaignLength> length = parse_length(*text);
  if (!length.value) return reader.error(at, length.why);
  length.value->place = at.yaml.place;
  campaign.length = std::move(*length.value);
}

void read_ask(Reader& reader, const At& at, CampaignRequest& campaign) {
  if (!is_list(reader, at, "a list of questions, e.g. [cost, goodput],")) return;
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i) {
    const At here = at.entry(i);
    const std::string* name = scalar(reader, here, "a question, e.g. cost");
    if (!name) continue;
    const auto found = std::find(kQuestions.begin(), kQuestions.end(), *name);
    if (found == kQuestions.end())
      reader.errors.add(here.yaml.place, path(here), unknown_name(std::string_view(*name).substr(0, 64), kQuestions));
    else
      campaign.ask.push_back(static_cast<CampaignQuestion>(found - kQuestions.begin()));
  }
}

constexpr Field<CampaignRequest> kCampaign[] = {
    {"length", "text, e.g. 15T tokens, 1.2e9 samples, 90 epochs",
     "how much is trained on (k, M, G or B, T); --tokens, --samples, --epochs", read_length,
     [](YamlText& out, std::string_view key, const CampaignRequest& campaign) {
       if (campaign.length) out.line(key, yaml_string(campaign.length->text));
     }},
    {"samples_per_epoch", "whole number >= 1", "size of the data; needed where length counts epochs",
     member<&CampaignRequest::samples_per_epoch, AtLeast1>},
    {"price_per_hour", "number", "of every device, in place of the devices' own; --price",
     read_by_rule<&CampaignRequest::price_per_hour, kPriceRule>, write_as<&CampaignRequest::price_per_hour>},
    {"mtbf", "time", "mean time between failures of every device, in place of the devices' own; --mtbf",
     read_by_rule<&CampaignRequest::mtbf, kMtbfRule>, write_as<&CampaignRequest::mtbf>},
    {"checkpoint", "time", "how long training stops while a checkpoint is written; --checkpoint",
     read_by_rule<&CampaignRequest::checkpoint, kCheckpointRule>, write_as<&CampaignRequest::checkpoint>},
    {"restart", "time", "from a failure until the training goes on from the last checkpoint; --restart",
     read_by_rule<&CampaignRequest::restart, kRestartRule>, write_as<&CampaignRequest::restart>},
    {"interval", "time", "of training between two checkpoints; default: the best one",
     read_by_rule<&CampaignRequest::interval, kIntervalRule>, write_as<&CampaignRequest::interval>},
    {"device_spread", "number in [0, 0.3]",
     "relative standard deviation of the speed of devices of one class; default: none",
     member<&CampaignRequest::device_spread, Deviation>},
    {"op_spread", "number in [0, 0.3]",
     "relative standard deviation of an op's time from one time to the next; default: what a calibration says, else "
     "none",
     member<&CampaignRequest::op_spread, Deviation>},
    {"seed", "whole number >= 0", "of all that is drawn; default: 1; --seed", member<&CampaignRequest::seed>},
    {"trials", "whole number from 20 to 100000", "times that a run is drawn; long runs fewer; default: 200",
     member<&CampaignRequest::trials, Trials>},
    {"ask", "list of cost | energy | goodput | spread",
     "what must be answered: a key that is missing for it is an error; default: whatever can be", read_ask,
     [](YamlText& out, std::string_view key, const CampaignRequest& campaign) {
       std::string names;
       for (const CampaignQuestion question : campaign.ask)
         names += (names.empty() ? "" : ", ") + std::string(kQuestions[static_cast<std::size_t>(question)]);
       if (!names.empty()) out.line(key, "[" + names + "]");
     }},
};

}  // namespace

Parsed<double> parse_amount(std::string_view text) {
  text = trimmed(text, kSpaces);
  double power = 1;
  if (!text.empty() && power_of(text.back()) > 0) {
    power = power_of(text.back());
    text = trimmed(text.substr(0, text.size() - 1), kSpaces);
  }
  Parsed<double> number = parse_number(text);
  if (!number.value)
    return {{},
            number.no_number  ? "is not a number; write e.g. 15T, 300B or 4.9e9"
            : number.negative ? "is negative; write more than 0, e.g. 15T"
                              : number.why};
  *number.value *= power;
  if (!(*number.value > 0)) return {{}, "must be more than 0"};
  if (*number.value > kLargestAmount) return {{}, "is more than 1e21; write a smaller number"};
  return number;
}

Parsed<CampaignLength> parse_length(std::string_view text) {
  constexpr std::array<std::string_view, 3> words = {"tokens", "samples", "epochs"};  // CampaignLength::Of
  text = trimmed(text, kSpaces);
  const std::size_t space = text.rfind(' ');
  const std::string_view word = space == std::string_view::npos ? "" : text.substr(space + 1);
  const auto found = std::find(words.begin(), words.end(), word);
  if (found == words.end())
    return {{}, "is not a length of a training; write e.g. 15T tokens, 10M samples or 90 epochs"};
  const Parsed<double> amount = parse_amount(text.substr(0, space));
  if (!amount.value) return {{}, amount.why};
  CampaignLength length;
  length.of = static_cast<CampaignLength::Of>(found - words.begin());
  length.amount = *amount.value;
  length.text = std::string(text);
  return {length, {}};
}

void read_campaign_section(Reader& reader, const At& at, Scenario& scenario) {
  auto campaign = std::make_shared<CampaignRequest>();
  campaign->place = at.yaml.place;
  read_fields<CampaignRequest>(reader, at, kCampaign, *campaign);
  scenario.campaign = std::move(campaign);
}

void write_campaign_section(YamlText& out, const CampaignRequest& campaign) {
  write_fields<CampaignRequest>(out, kCampaign, campaign);
}

std::vector<SectionDoc> campaign_docs() {
  return {document<CampaignRequest>("campaign", kCampaign)};
}

}  // namespace pipewright::io
