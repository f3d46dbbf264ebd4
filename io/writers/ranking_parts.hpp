// What every form of a ranking shows: its table, its figures and its sentences.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/answers/ranking.hpp"
#include "io/text/format_quantity.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright::io::ranked {

// One unit for all sizes of a ranking: that of a device's memory.
class Sizes {
 public:
  explicit Sizes(const Scenario& scenario) : scale_(bytes_scale(scenario.cluster.device.memory)) {}
  std::string operator()(Bytes bytes) const { return in_scale(bytes.value, scale_); }
  std::string with_unit(Bytes bytes) const { return (*this)(bytes) + " " + scale_.name; }
  const std::string& unit() const { return scale_.name; }

 private:
  Scale scale_;
};

// What the fullest device must have, up to which that is expected, and what it has. Where devices differ it is the one
// that has the least left.
struct Fullest {
  Bytes need, high, capacity;
  Bytes to_fit;    // MemoryNeed::to_fit
  double fit = 0;  // MemoryNeed::fit
};
Fullest fullest(const Found& found);

// Nothing where the scenario does not say how many tokens a sample has.
std::optional<double> tokens_per_s_per_device(const Found& found);
// The model's FLOPs alone: MFU x peak. Nothing where either is not known, or where the devices are of several classes.
std::optional<double> tflops_per_device(const Found& found);

// With which it fits over the memory model's range; nothing where there is none.
std::optional<double> fit_probability(const Found& found);
// "60.1 of 80.0 GiB on the fullest device, 19.9 GiB left", and how sure that is.
std::string memory_text(const Found& found, const Sizes& sizes);

// Of the whole training, where the scenario asks for it.
struct Figures {
  std::optional<double> days, device_hours, cost, energy_kwh, goodput;
};
Figures whole_training(const Found& found);

// Columns in the order of Megatron-Bridge's performance tables.
std::vector<TextColumn> columns(const std::vector<Found>& plans);

// Keys that are no part of a layout, of which some plan has a value, each once; and that value: "-" where every one makes
// the same plan.
std::vector<std::string> switches_of(const std::vector<Found>& plans);
std::string value_of_switch(const Found& found, const std::string& key);

std::string short_recompute(const Plan& plan);  // of all stages in one word
std::string replicas_text(const Plan& plan);    // "15-1", or "-" where no stage has a replica
std::string layers_text(const Plan& plan);      // "layers per stage 11 10 10 10"
bool several_classes(const Found& found);
std::vector<int> classes_of(const Found& found);  // by stage
std::string classes_text(const Found& found);     // "0-0-1"
std::string class_names(const Cluster& cluster);
std::string figure(const std::optional<double>& value, const char* form);  // "-" where there is none
std::string seconds_text(Time time);

// The members of a plan of a document; ranking.cpp.
void write_plan(JsonFields& json, const Found& found);

std::string ended_text(const Ranking& ranking);  // why the search ended before it was through
std::string quality(const Ranking& ranking);     // how far from the best possible the first plan may be
std::vector<std::string> tried(const Ranking& ranking);
std::string flip_text(const Flip& flip);

}  // namespace pipewright::io::ranked
