// Options that ask for the whole training: short words for keys of the block `campaign:`.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.hpp"

namespace pipewright {

inline constexpr std::array<Option, 9> kCampaignOptions = {{
    {"--tokens", "", "AMOUNT", "the whole training: days, device-hours, cost, energy for so many tokens, e.g. 15T"},
    {"--samples", "", "AMOUNT", "likewise, for so many samples"},
    {"--epochs", "", "AMOUNT", "likewise, for so many times through the data (campaign.samples_per_epoch)"},
    {"--price", "", "MONEY", "of one device for an hour, in any currency"},
    {"--mtbf", "", "TIME", "mean time between failures of one device, e.g. \"50000 h\""},
    {"--checkpoint", "", "TIME", "that the training stands still while a checkpoint is written, e.g. 60s"},
    {"--restart", "", "TIME", "from a failure until the training goes on, e.g. 10min"},
    {"--seed", "", "N", "of everything that is drawn (default: 1)"},
    {"--ask", "", "QUESTIONS", "must be answered, else it is an error: cost,energy,goodput,spread"},
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

// Of an option that has one value: what was given, or "". Throws InputError where it was given with two.
std::string only_value(const Arguments& arguments, std::string_view option);

// What was given with --set, and behind it what these options say. Throws InputError, which names the option.
std::vector<std::string> settings(const Arguments& arguments);

// The message with "--set campaign.length=15 tokens", where that stands for an option, as it was given: "--tokens 15".
std::string with_campaign_as_given(std::string message, const Arguments& arguments);

}  // namespace pipewright
