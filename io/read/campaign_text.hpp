// How long a whole training is, as text: "15T tokens", "300e9 tokens", "10M samples", "90 epochs".
#pragma once

#include <string>
#include <string_view>

#include "core/answers/campaign.hpp"
#include "io/text/quantity.hpp"

namespace pipewright::io {

// A count of what a training goes through: a number, more than 0 and at most 1e21, with k, M, G or B (1e9), or T behind
// it.   15T, 4.9e9, 300 B
Parsed<double> parse_amount(std::string_view text);

// The same with its word behind it: tokens, samples or epochs.
Parsed<CampaignLength> parse_length(std::string_view text);

}  // namespace pipewright::io
