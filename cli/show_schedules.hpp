// `show schedules`: the table of sim/schedules, and one schedule drawn.
#pragma once

#include <string>

namespace pipewright {

std::string schedule_list();
// Throws InputError for an unknown name.
std::string schedule_in_detail(const std::string& name, int width);

}  // namespace pipewright
