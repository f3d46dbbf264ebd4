// The whole training, of many steps: `campaign:` of a scenario. Formulas: core/answers/campaign.hpp
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/units.hpp"

namespace pipewright::core {

struct CampaignLength {
  enum class Of { Tokens, Samples, Epochs } of = Of::Samples;
  double amount = 0;
  std::string text;  // "15T tokens"
  Place place;
};

enum class CampaignQuestion { Cost, EnergyUse, Goodput, Spread };

struct CampaignRequest {
  std::optional<CampaignLength> length;
  std::optional<std::int64_t> samples_per_epoch;
  std::optional<double> price_per_hour;  // of every device, in place of its own
  std::optional<Time> mtbf;              // likewise
  std::optional<Time> checkpoint;        // the training stands still while one is written
  std::optional<Time> restart;           // from a failure until the training goes on from the last checkpoint
  std::optional<Time> interval;          // of training between two checkpoints; absent: the best one
  // Relative standard deviations: of the speed of devices of one class, of the time of one op. Absent: what a
  // calibration says, else none.
  std::optional<double> device_spread, op_spread;
  std::int64_t seed = 1;              // of everything that is drawn
  std::int64_t trials = 200;          // at most; long runs are repeated less often
  std::vector<CampaignQuestion> ask;  // must be answered: what is missing for one is an error
  Place place;
};

}  // namespace pipewright::core
