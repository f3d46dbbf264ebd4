// YAML -> Scenario: references to configs/ followed, units checked, every error of the file reported at once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/question/scenario.hpp"

namespace pipewright::io {

struct ReadOptions {
  std::vector<std::string> set;          // "key=value", in order; keys that choose the form of `model` first
  std::vector<std::string> config_path;  // folders that hold models/ devices/ clusters/, searched in order
  // Scenarios, sweeps and orders (plan.schedule.file) that stand in memory, by the path that names them.
  std::map<std::string, std::string> texts = {};
};

// Throws InputError with one line per error.
Scenario read_scenario(const std::string& path, const ReadOptions& options = {});

// Models, devices and clusters by file, as `check` and `show` need them.
Model read_model(const std::string& path, const ReadOptions& options = {});
Device read_device(const std::string& path, const ReadOptions& options = {});
Cluster read_cluster(const std::string& path, const ReadOptions& options = {});

// The device as a file holds it; reading it back gives the same device.
std::string device_yaml(const Device& device);

// Profiles that `calibrate` measured, likewise.
MachineProfile read_profile(const std::string& path, const ReadOptions& options = {});
std::string profile_yaml(const MachineProfile& profile);

// The scenario as YAML again, every default filled in; each line ends in a comment that names the value's origin.
std::string resolved_yaml(const Scenario& scenario);

// Paths of configs/<kind>/*.yaml ("models", "devices", "clusters"), by name, from all config folders.
std::vector<std::string> config_files(const std::string& kind, const ReadOptions& options);

}  // namespace pipewright::io
