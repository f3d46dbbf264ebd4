// Orders made of a building block: the slots of one micro-batch's passes on every stage, with two chunks there and
// back. Each further micro-batch has its own six slots later, as long as its passes take where f = b = w = 1. The
// farther a block spreads, the more micro-batches a stage holds.                                [ControllableMemory24]
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/schedules/table.hpp"

namespace pipewright::sim {

// The slots of micro-batch 0 on one stage, in the order in which it gets there: forward there, forward back, backward
// back, backward there. Micro-batch m has its slots 6 m later.
using BlockSlots = std::array<int, 4>;

// One row for each stage. Backwards are split; the Ws take the slots that are free.
Schedule from_split_block(std::string_view name, const ScheduleShape& shape, const std::vector<BlockSlots>& block);

// One row for each stage. A backward is one op of two slots.
Schedule from_whole_block(std::string_view name, const ScheduleShape& shape, const std::vector<BlockSlots>& block);

// `idle` slots next to 6 M of work, as a share of both: "K even: (3K-7)/(6M+3K-7)" of text "3K-7" where "K even". None
// below 2 K micro-batches, where warm-up and tail meet.
std::optional<Formula> idle_share(const ScheduleShape& shape, int idle, std::string_view text, std::string_view where);

}  // namespace pipewright::sim
