// PyTorch's pipeline schedule as a file: one row per rank, one cell per action.                        [PyTorchPP26]
//
//     0F0,0F1,0B0,0B1          <stage><action><micro-batch>: F forward, B whole backward, I gradient of the input,
//     1F0,1B0,1F1,1B1          W gradient of the weights; an empty cell: idle
//
// "compute_only" files hold these. "compute_comms" files hold, too, 0SEND_F1 1RECV_F1 1SEND_B1 0RECV_B1 0UNSHARD
// 0RESHARD 0REDUCE_GRAD: read, counted and left out, since messages and all-reduces follow from the order.
// (0F1;1B0)OVERLAP_F_B, two actions at a time, is read as one after the other.
#pragma once

#include <string>
#include <string_view>

#include "core/plan/given_schedule.hpp"

namespace pipewright::io {

// Settled. Throws InputError with one line per wrong cell (file:line:column); quotes, CRLF and a byte order mark are
// taken as csv readers do.
GivenSchedule parse_schedule_csv(std::string_view text, const std::string& file);
GivenSchedule read_schedule_csv(const std::string& path);

}  // namespace pipewright::io
