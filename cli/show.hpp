// What `show` shows one by one.
#pragma once

#include <functional>
#include <string>

#include "cli/commands.hpp"
#include "io/read/read_scenario.hpp"

namespace pipewright::cli {

// `show model NAME|FILE`: a name of configs/models, a family, or a file of a model or scenario; its layers, with
// totals.
int show_model(const Arguments& arguments);

// `show device NAME|FILE`: its figures; with --curve its kernels and collectives by size, with --points how far the
// curve of its products is off measured ones. `summary`: the line of a device's file in a list.
int show_device(const Arguments& arguments, const std::function<std::string(const std::string& file)>& summary);

// The file of that name on a shelf: "models", "devices", "clusters". Throws InputError.
std::string config_file(const std::string& kind, const std::string& name, const ReadOptions& options);

// The table of sim/schedules, and one schedule drawn. Throws InputError for an unknown name.
std::string schedule_list();
std::string schedule_in_detail(const std::string& name, int width);

}  // namespace pipewright::cli
