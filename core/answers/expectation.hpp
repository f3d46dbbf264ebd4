// Published figures beside which a scenario puts its predictions: the `expect:` block of its file, and what comes of
// it.
//
// A cell says which figure of which variant of the scenario it is, what was published, and how near a prediction must
// come. The published value is compared, never read by the model. A cell with a status stays in its table, is printed
// with its reason, leaves the averages and does not decide the exit status.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.hpp"
#include "core/cost/memory_model.hpp"
#include "core/question/memory_anchor.hpp"

namespace pipewright::core {

enum class CellStatus {
  Compared,       // counts
  Fitted,         // a constant was set on this cell: no prediction
  KnownMiss,      // misses, and its reason says why
  AboveBound,     // beyond what any schedule can reach with the batch of the other cells
  Analytic,       // a formula of the paper, not a measurement: never in one average with measured cells
  InputsAssumed,  // the source leaves out inputs that the prediction needs
  NotSimulated,   // nothing here predicts it yet
};

enum class Figure {
  StepTime,
  SamplesPerS,
  SamplesPerSDevice,
  TokensPerS,
  TokensPerSDevice,
  Mfu,
  TflopsDevice,          // the model's FLOPs per second and device, in TFLOP/s (core/model/flops.hpp)
  TflopsDeviceAllPairs,  // likewise, with the pairs that a causal mask leaves out
  BubbleFraction,
  BubbleFractionSpan,
  BubbleFractionKthWrap,  // as zero-bubble's authors work out interleaved 1F1B (sim/kth_wrap.hpp)
  ForwardTime,            // of a stage and micro-batch
  BackwardTime,           // likewise, with what it recomputes
  Parameters,             // of the model, or of a stage
  Layers,                 // of the model
  Memory,                 // FigureSought::of names what
  Fits,                   // 1: every stage fits its device
  Capacity,               // the largest value of the key FigureSought::of with which it fits
};

enum class Dimension { Count, Duration, Size, Share, Rate, Truth };
Dimension dimension(Figure figure);

// Parts of a memory peak: the report's categories, and sums of them.
//     total            everything, the device's reserve included
//     training_state   weights, gradients, optimizer
//     held             what stays between steps: training_state, and what the framework holds (training.framework)
//     activations      the rest without the reserve: what comes and goes with the micro-batches
//     allocated        everything but the reserve: what the framework's allocator hands out
//     reserved         that, with what the allocator adds by rounding and fragmentation (planner/figures.hpp)
//     in_use           reserved and the reserve: what the device must have, and nvidia-smi shows
inline constexpr std::array<std::string_view, 7> kMemorySums = {"total",     "training_state", "held",  "activations",
                                                                "allocated", "reserved",       "in_use"};
Bytes memory_part(const MemoryBytes& bytes, std::string_view part);

struct FigureSought {
  std::string text;  // as written: "memory.weights", "capacity(model.layers)"
  Figure figure = Figure::StepTime;
  std::string of;  // "weights", "model.layers"
  Where where = Where::Fullest;
  std::int64_t stage = 0;  // Where::Stage
};

// How near is near enough; relative: a share of the published value, else in the cell's unit.
struct Tolerance {
  double value = 0;
  bool relative = false;
};

// The trivial prediction that ours must beat.
struct Baseline {
  enum class Kind {
    None,
    BubbleBound,    // K M / (M + K - 1) over that of the row it is a ratio to: equal stages, nothing but the bubble
    BubbleFormula,  // the schedule's textbook bubble
    BubbleRate,     // a bubble rate that is published itself: time = work of a stage / (1 - rate)
    Stated,         // someone else's figure
  };
  Kind kind = Kind::None;
  double value = 0;    // BubbleRate, Stated
  std::string source;  // Stated
};

// One cell.
struct Expectation {
  std::string name;
  std::string largest;  // "training.micro_batch_size": the variant takes the largest value that fits
  int changes = -1;     // which changes of the file make its variant; -1: none
  std::optional<FigureSought> quantity;
  std::string ratio_to;             // the figure is divided by that of the row of this name
  std::optional<double> published;  // in `unit`; absent: the row only serves ratios of others
  std::string published_text;       // as written, with all its digits
  std::string unit;                 // "GiB", "M", "ms"; "": as the figure comes
  double unit_size = 1;             // in SI base units
  std::optional<Tolerance> tolerance;
  std::string reason;  // for the tolerance, or for the status
  std::string source;
  CellStatus status = CellStatus::Compared;
  Baseline baseline;
  // Published beside a speed-up: the ratio of the times to a given accuracy. Epochs are an input, the published
  // quotient of the two: time to accuracy = speed-up * (published time to accuracy / published speed-up).
  std::optional<double> time_to_accuracy;
  // Published plans: the changes that make the scenario in which the planner looks for its own stages and replicas.
  std::optional<int> search;
  std::vector<int> box;  // the changes of its variant at the corners of the table's box
  Place place;
};

struct ExpectationTable {
  std::string title;
  std::string source;
  std::string note;              // what a reader must know: normalisation, assumptions, fitted constants
  std::vector<std::string> box;  // the axes of the parameter box over which predictions have an interval
  std::vector<Expectation> rows;
  Place place;
};

// ---- what comes of it -----------------------------------------------------------------------------------------------

// The published plan beside the planner's own, by workers per stage: {15, 1}; {16} is data parallelism. Speeds are
// divided by that of the row that the ratio is to, data parallelism; both as simulated.
struct PlanChoice {
  std::vector<int> published, own;
  double published_speed = 0, own_speed = 0;
  int idle = 0;  // workers that the planner's own leaves without work

  bool same() const { return published == own; }
  // Published is within 5 % of the planner's best.
  bool near() const { return published_speed >= own_speed / 1.05; }
  bool right() const { return same() || near(); }
  bool same_kind() const { return (published.size() == 1) == (own.size() == 1); }
  bool right_kind() const { return same_kind() || near(); }
};

struct Cell {
  Expectation row;
  std::string file;
  std::optional<double> predicted, baseline;    // in the row's unit
  std::optional<double> error, baseline_error;  // predicted / published - 1; none where 0 was published
  std::optional<double> lowest, highest;        // prediction over the box, the nominal one included
  std::optional<PlanChoice> choice;             // where the row has a search
  std::optional<double> time_to_accuracy;       // predicted, with the published epochs
  bool within = false;                          // the tolerance
  // Divided by itself, or by a row of the same changes (a plan published as the one it is compared with): 1 by
  // definition.
  bool reference = false;
  std::string note;  // "with training.micro_batch_size = 17", "does not fit: ..."

  bool counts() const { return row.status == CellStatus::Compared && !reference; }
  bool missed() const { return counts() && !within; }
  // Unfitted, its inputs known: what a mean over a whole table is about, misses included.
  bool predicts() const { return row.status == CellStatus::Compared || row.status == CellStatus::KnownMiss; }
};

struct Accuracy {
  int cells = 0;  // that count
  int missed = 0;
  std::optional<double> mean, largest;                    // |error|
  std::optional<double> mean_with_misses;                 // the same with the known misses, where there are any
  std::optional<double> baseline_mean, baseline_largest;  // over the counting cells that have a baseline
  std::optional<double> mean_beside_baseline;             // |error| of ours over these
  // |error| of whole tables of ratios: every cell that predicts, known misses included, and with those that are 1 by
  // definition as well. Beside the baselines: cells that predict, and all of any status.
  std::optional<double> mean_of_all, mean_with_references;
  int all = 0, with_references = 0, predicted_baselines = 0, all_baselines = 0;
  std::optional<double> baseline_of_predicted, beside_predicted, baseline_of_all, beside_all;
  std::optional<double> tau;  // Kendall's tau-b of published and predicted, where the counting cells are ratios
};

struct TableResult {
  std::string title, source, note;
  std::vector<Cell> cells;
  std::vector<std::string> box;  // axes
  Accuracy accuracy() const;
};

// Kendall's tau-b: +1 the same order, -1 the reverse; pairs tied in one list count half. None for fewer than two pairs
// of different values in either list.
//     (1, 2, 3) and (1, 3, 2): two pairs in order, one reversed: 1/3.
std::optional<double> kendall_tau(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace pipewright::core
