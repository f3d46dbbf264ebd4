// Every schedule that pipewright knows: one generator file each, one line in the table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/schedule.hpp"

namespace pipewright {

// A textbook value as an exact fraction, with the text that derives it.
struct Formula {
  std::string text;  // "(K-1)/(M+K-1)"
  std::int64_t numerator = 0, denominator = 1;
};

// Of one micro-batch on one stage. Without a unit: only their ratios count.
struct PassTimes {
  std::int64_t forward = 1, input_gradient = 1, weight_gradient = 1;  // f, b, w
};

struct ScheduleRule {
  std::string_view name;    // as written in YAML
  std::string_view title;   // "one forward, one backward, with a flush"
  std::string_view source;  // key of docs/reference/references.md
  std::string_view memory;  // in words: "min(K-k, M) micro-batches on stage k"
  bool flush = true;
  bool splits_backward = false;  // W apart from B: no other stage waits for W
  Schedule (*generate)(const ScheduleShape&);
  // Why this schedule cannot be built for the shape, or "": "M = 10 is not a multiple of K = 4: use 8 or 12".
  std::string (*refusal)(const ScheduleShape&);
  // Bubble fraction of makespan for equal stages and free communication; none where no formula is known.
  std::optional<Formula> (*bubble)(const ScheduleShape&);
  // Micro-batches (chunks of them) in flight at the peak on one worker of stage k.
  std::optional<std::int64_t> (*peak_in_flight)(const ScheduleShape&, StageId);
  // The bubble where it depends on the times of the passes, too; nullptr: it does not.
  std::optional<Formula> (*bubble_of_times)(const ScheduleShape&, const PassTimes&) = nullptr;
};

// The bubble by whichever of the two the rule has.
std::optional<Formula> textbook_bubble(const ScheduleRule& rule, const ScheduleShape& shape, const PassTimes& times);

// In the order of the table: naive, gpipe, 1f1b, eager_1f1b, interleaved_1f1b, zb_h1, pipedream, data_parallel.
std::span<const ScheduleRule> schedules();

// The rule of that name, or nullptr. Knows "file", too, the order that a file gives: it stands in no list, since it is
// no schedule to choose among.
const ScheduleRule* find_schedule(std::string_view name);

std::vector<std::string_view> schedule_names();

}  // namespace pipewright
