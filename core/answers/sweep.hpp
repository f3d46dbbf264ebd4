// What-if questions: a base scenario x named variants x a grid of values, and the row of figures that each point gets.
//
// Points are numbered: variants in file order, each over the whole grid, the last key of the grid fastest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/answers/condition.hpp"
#include "core/units.hpp"

namespace pipewright::core {

// Columns that a sweep can show, plot and be filtered by.
enum class SweepFigure {
  StepTime,           // one optimizer step
  SamplesPerS,        //
  SamplesPerSDevice,  // per device of the plan
  TokensPerS,         // where the scenario says how many tokens a sample has
  TokensPerSDevice,
  Mfu,
  Bubble,      // bubble_fraction of the result document
  PeakMemory,  // what the fullest device must have
  Headroom,    // what that leaves of its memory; negative: it does not fit
  Devices,     // of the plan
  SpeedUp,     // samples/s over the baseline's
  Hfu,         // where the plan repeats forwards
  // In files where `metrics` asks for them:
  LongestSpan,    // of a stage, from its first op to its last: a step without a barrier
  WeightsMemory,  // weights, gradients and optimizer states of the fullest device
  // Of the whole training (`campaign:`), where it can be told; `expected`: with failures, by formula.
  Days,
  DeviceHours,
  Cost,  // money
  EnergyKwh,
  Goodput,
  DaysExpected,
  CostExpected,
};
// In a table. Scaled: in the unit that its largest value asks for, which the head names.
enum class CellForm { Scaled, Percent, ThreeDigits, FourDigits, Whole, Times };
enum class Better { Less, More };
struct SweepFigureName {
  std::string_view name;
  SweepFigure figure;
  Unit unit;
  std::string_view head;  // of its column
  CellForm form;
  Better better;
};
inline constexpr std::array<SweepFigureName, 21> kSweepFigures = {{
    {"step_time", SweepFigure::StepTime, Unit::Second, "step", CellForm::Scaled, Better::Less},
    {"samples_per_s", SweepFigure::SamplesPerS, Unit::None, "samples/s", CellForm::FourDigits, Better::More},
    {"samples_per_s_per_device", SweepFigure::SamplesPerSDevice, Unit::None, "samples/s/dev", CellForm::FourDigits,
     Better::More},
    {"tokens_per_s", SweepFigure::TokensPerS, Unit::None, "tokens/s", CellForm::FourDigits, Better::More},
    {"tokens_per_s_per_device", SweepFigure::TokensPerSDevice, Unit::None, "tokens/s/dev", CellForm::FourDigits,
     Better::More},
    {"mfu", SweepFigure::Mfu, Unit::None, "MFU", CellForm::Percent, Better::More},
    {"bubble", SweepFigure::Bubble, Unit::None, "bubble", CellForm::Percent, Better::Less},
    {"peak_memory", SweepFigure::PeakMemory, Unit::Byte, "peak", CellForm::Scaled, Better::Less},
    {"headroom", SweepFigure::Headroom, Unit::Byte, "left", CellForm::Scaled, Better::More},
    {"devices", SweepFigure::Devices, Unit::None, "devices", CellForm::Whole, Better::Less},
    {"speed_up", SweepFigure::SpeedUp, Unit::None, "speed-up", CellForm::Times, Better::More},
    {"hfu", SweepFigure::Hfu, Unit::None, "HFU", CellForm::Percent, Better::More},
    {"longest_span", SweepFigure::LongestSpan, Unit::Second, "span", CellForm::Scaled, Better::Less},
    {"weights_memory", SweepFigure::WeightsMemory, Unit::Byte, "weights", CellForm::Scaled, Better::Less},
    {"days", SweepFigure::Days, Unit::None, "days", CellForm::ThreeDigits, Better::Less},
    {"device_hours", SweepFigure::DeviceHours, Unit::None, "device-h", CellForm::FourDigits, Better::Less},
    {"cost", SweepFigure::Cost, Unit::None, "cost", CellForm::FourDigits, Better::Less},
    {"energy_kwh", SweepFigure::EnergyKwh, Unit::None, "kWh at most", CellForm::FourDigits, Better::Less},
    {"goodput", SweepFigure::Goodput, Unit::None, "goodput", CellForm::Percent, Better::More},
    {"days_expected", SweepFigure::DaysExpected, Unit::None, "days with failures", CellForm::ThreeDigits, Better::Less},
    {"cost_expected", SweepFigure::CostExpected, Unit::None, "cost with failures", CellForm::FourDigits, Better::Less},
}};
const SweepFigureName* find_sweep_figure(std::string_view name);
const SweepFigureName& name_of(SweepFigure figure);

struct SweepAxis {
  std::string key;                                // "cluster.network.bandwidth"
  std::vector<std::string> texts;                 // of its values, as written
  std::vector<std::optional<Magnitude>> amounts;  // of those that are numbers or quantities
};

struct SweepQuestion {
  std::string file, base;  // paths as messages show them
  std::string description;
  std::vector<std::string> variants;  // names, at least one
  std::size_t baseline = 0;           // number of the variant that ratios refer to
  std::vector<SweepAxis> axes;
  std::vector<Comparison> where;     // all must hold
  std::vector<SweepFigure> metrics;  // columns; empty: the usual ones
  bool replan = false;               // the planner chooses the plan of every point anew

  std::int64_t combinations() const;  // of the grid: 1 where it is empty
  std::int64_t points() const;        // both throw InputError above 2^63-1
  std::size_t variant(std::int64_t point) const;
  std::vector<std::size_t> values(std::int64_t point) const;  // which of each axis

  // The point of the baseline variant at the same place of the grid.
  std::int64_t baseline_of(std::int64_t point) const;
};

// A sweep of more points is refused.
constexpr std::int64_t kMostSweepPoints = 1'000'000;

struct SweepRow {
  enum class Outcome : std::uint8_t {
    Fits,
    DoesNotFit,  // the figures are those of the plan all the same
    NoPlan,      // the planner found none that fits
    Invalid,     // no scenario: it does not divide, needs more devices than there are, ...
  };
  std::int64_t point = 0;
  Outcome outcome = Outcome::Invalid;
  std::string reason;  // why it does not fit, or has no figures
  Time step_time;
  double samples_per_s = 0;
  std::optional<double> tokens_per_s, mfu, speed_up, hfu;
  std::optional<double> longest_span, weights_memory;
  std::optional<double> days, device_hours, cost, energy_kwh, goodput;  // of the whole training
  double bubble = 0;
  Bytes peak_memory, capacity;
  std::int64_t devices = 0;
  std::string plan;           // in words: "PP4 DP2 TP8 MBS1 x 16 1f1b"
  std::string layers;         // of the stages: "6 6 7 5"
  bool plan_changes = false;  // it is not the baseline's

  bool has_figures() const { return outcome == Outcome::Fits || outcome == Outcome::DoesNotFit; }
  bool operator==(const SweepRow&) const = default;
};

// What is known of one point.
struct SweepFinding {
  std::int64_t point = 0;
  std::optional<SweepRow> row;  // nothing: `where` leaves it out
  bool operator==(const SweepFinding&) const = default;
};

// One of several parts that are asked for apart, on other machines: number 1 .. of.
struct SweepShard {
  int number = 1, of = 1;
  bool whole() const { return of == 1; }
  bool operator==(const SweepShard&) const = default;
};
// The shard that a point belongs to. Neighbours share what is read for them, so points are dealt several at a time: as
// many as give every shard 8 turns, 16 at most.
//     100 points in 3 shards: 4 at a time, points 0..3, 12..15, ... are of shard 1: 36 in all, 32 of each other one
//                                                      tests/planner/sweep_test.cpp "shards share the points"
int shard_of(std::int64_t point, std::int64_t points, int shards);
std::vector<std::int64_t> points_of(const SweepShard& shard, std::int64_t points);

// In SI base units; nothing where the row has no such figure.
std::optional<double> figure(const SweepRow& row, SweepFigure figure);

struct Sweep {
  SweepQuestion question;
  std::vector<SweepRow> rows;  // by point; those that `where` keeps
  std::int64_t left_out = 0;   // by `where`
  std::int64_t not_run = 0;    // when it was interrupted
  SweepShard shard;            // points of other shards are neither rows nor not run
};

// The answer that findings, in any order, make of a question, ratios included. `asked`: the number of points that were
// to be found.
Sweep swept(const SweepQuestion& question, std::vector<SweepFinding> findings, std::int64_t asked,
            const SweepShard& shard = {});

}  // namespace pipewright::core
