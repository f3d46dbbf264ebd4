// The rule of each schedule, defined in the file of the same name. table.cpp puts them in order.
#pragma once

#include "sim/schedules/table.hpp"

namespace pipewright::sim {

ScheduleRule naive();
ScheduleRule gpipe();
ScheduleRule one_f_one_b();
ScheduleRule eager_1f1b();
ScheduleRule bpipe();
ScheduleRule seq1f1b();
ScheduleRule interleaved_1f1b();
ScheduleRule moe_overlap_1f1b();
ScheduleRule looped_bfs();
ScheduleRule zb_h1();
ScheduleRule zb_h2();
ScheduleRule zb_auto();
ScheduleRule search_order();
ScheduleRule v_search();
ScheduleRule interleaved_zb();
ScheduleRule zbv();
ScheduleRule zbv_auto();
ScheduleRule v_half();
ScheduleRule v_min();
ScheduleRule v_zb();
ScheduleRule v_1f1b();
ScheduleRule v_auto();
ScheduleRule hanayo();
ScheduleRule gems();
ScheduleRule chimera();
ScheduleRule dualpipe();
ScheduleRule dualpipev();
ScheduleRule pipedream();
ScheduleRule pipedream_2bw();
ScheduleRule data_parallel();
ScheduleRule given_order();

}  // namespace pipewright::sim
