// Options that ask for the whole training: short words for keys of the block `campaign:`.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.hpp"

namespace pipewright::cli {

inline constexpr std::array<Option, 9> kCampaignOptions = {{
    {"--tokens", "", "AMOUNT",
     "report the whole training (days, device-hours, cost, energy) for this many tokens, e.g. 15T"},
    {"--samples", "", "AMOUNT", "the same for this many samples"},
    {"--epochs", "", "AMOUNT", "the same for this many passes over the data (campaign.samples_per_epoch)"},
    {"--price", "", "MONEY", "price of one device per hour, in any currency"},
    {"--mtbf", "", "TIME", "mean time between failures of one device, e.g. \"50000 h\""},
    {"--checkpoint", "", "TIME", "time that training pauses to write a checkpoint, e.g. 60s"},
    {"--restart", "", "TIME", "time from a failure until training resumes, e.g. 10min"},
    {"--seed", "", "N", "seed of all random draws (default: 1)"},
    {"--ask", "", "QUESTIONS", "fail unless these can be answered: cost,energy,goodput,spread"},
}};

// A command's own options and these.
template <std::size_t Own>
constexpr std::array<Option, Own + kCampaignOptions.size()> with_campaign(const std::array<Option, Own>& own) {
  std::array<Option, Own + kCampaignOptions.size()> all{};
  for (std::size_t i = 0; i < Own; ++i)
    all[i] = own[i];
  for (std::size_t i = 0; i < kCampaignOptions.size(); ++i)
    all[Own + i] = kCampaignOptions[i];
  return all;
}

// The first of these options that was given, or "": for what cannot be asked for the whole training.
std::string campaign_option(const Arguments& arguments);

// What was given with --set, and behind it what these options say. Throws InputError, which names the option.
std::vector<std::string> settings(const Arguments& arguments);

// The message with "--set campaign.length=15 tokens", where that stands for an option, as it was given: "--tokens 15".
std::string with_campaign_as_given(std::string message, const Arguments& arguments);

}  // namespace pipewright::cli
