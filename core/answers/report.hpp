// The answer in figures, computed from a Timeline by `summarize` (sim/) and by `answer` (planner/), printed by io/writers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cost/memory_model.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/timeline.hpp"

namespace pipewright::core {

struct Campaign;  // core/answers/campaign.hpp

// Idle time of a worker's compute stream; the parts sum to makespan - busy to the nanosecond.
//   fill           before its first op                       drain   after its last op
//   imbalance      the producer of what the next op waits for was still computing (or waiting itself)
//   communication  it was in transit (a message, an all-reduce)
//   stall          anything else
struct IdleSplit {
  Time fill, imbalance, communication, stall, drain;
  Time total() const { return fill + imbalance + communication + stall + drain; }
};

struct WorkerReport {
  WorkerId id = 0;
  CopyId copy = 0;
  StageId stage = 0;
  int replica = 0;
  DeviceId device = 0;
  Time busy;                                  // all compute ops, Update included
  Time forward, backward, recompute, update;  // parts of busy
  IdleSplit idle;
  MemoryPeak memory;
  MemoryNeed need;   // at that moment
  bool fits = true;  // need.to_fit <= capacity
};

struct StageReport {
  StageId stage = 0;
  std::vector<WorkerId> workers;
  std::vector<LayerRange> layers;  // one per chunk
  std::int64_t parameters = 0;
  Time forward, backward, recompute;  // per full micro-batch, all chunks
  Time update;                        // of all chunks
  Time busy;                          // of its busiest worker
  IdleSplit idle;                     // of that worker
  MemoryPeak memory;                  // of its fullest worker
  MemoryNeed need;                    // of it
  int in_flight = 0;                  // chunks
};

struct LinkReport {
  std::string name;
  Bytes bytes;  // carried in the whole run
  Bandwidth bandwidth;
  double utilization = 0;  // bytes / (bandwidth * makespan)
};

struct CriticalPart {
  enum class Class { Compute, Update, Transfer, AllReduce, AllGather, Offload, Reload, Fetch, Store, Add, Waiting };
  std::string what;  // "forward of stage 2", "transfer stage 1 -> 2", "all-reduce of stage 0", "waiting"
  Time time;
  Class kind = Class::Waiting;
};

// What one change of the world would bring: simulated again, nothing else changed.
struct Sensitivity {
  std::string what;  // "2x FLOP rate", "2x network bandwidth", "2x link bandwidth inside the node"
  Time step_time;
  double speedup = 1;  // samples/s over today's
};

// Something that is not known better, independent of the others.
struct RangeCause {
  std::string what;               // "matrix products on a100-sxm-80g"
  std::string known;              // "+-10 %, measured"
  std::string measure;            // what would tell it: "calibrate --backend cuda"; "": no measurement alone
  double faster = 0, slower = 0;  // |ln(step / stated step)| at the ends of its own 90 %
  double share = 0;               // of the variance
  Time fastest, slowest;          // the interval if it were known exactly
};

// The 90 % interval of the step time: planner/what_if/speed_range.hpp.
struct SpeedRange {
  Time fastest, slowest;  // one optimizer step
  double samples_per_s_low = 0, samples_per_s_high = 0;
  std::vector<RangeCause> causes;  // the largest share first
  int to_halve = 0;                // so many of the first that can be measured halve it; 0: measuring does not
};

// A textbook formula beside the simulated value.
struct FormulaReport {
  std::string quantity;  // "bubble", "step time", "peak in flight, stage 0"
  std::string formula;   // "(K-1)/(M+K-1) = 3/11"
  double value = 0;      // by the formula, in `unit`: 27.3 for "%"
  double simulated = 0;
  std::string unit;     // "%", "s", ""
  std::string source;   // key of docs/reference/references.md
  std::string applies;  // "" when its assumptions hold, else what differs: "stages are unequal"
};

struct Reference {
  std::string what;  // "one device", "data parallelism on 16 workers"
  std::optional<double> samples_per_s;
  std::string note;  // why there is no figure, or what it ignores
  bool data_parallelism = false;
  std::string shortfall = {};  // "it needs 21.0 GiB of 16.0 GiB", in the note, too; "": it fits, or nothing is known
};

// A report is figures, what explains them, and notes for the reader.
struct ReportFigures {
  Time step_time;                     // one optimizer step; asynchronous: global batch / samples_per_s
  std::optional<SteadyState> steady;  // asynchronous schedules only
  Time makespan;                      // the whole run, with fill and drain
  Time longest_span;                  // of a worker, from its first op to its last
  double samples_per_s = 0;
  std::optional<SpeedRange> range;  // where figures with a stated band or measured ones price the step
  std::optional<double> tokens_per_s, mfu;
  std::optional<double> hfu;        // as mfu, with the forwards that are repeated; where any is
  double bubble_fraction = 0;       // 1 - busy / (workers * makespan); asynchronous: of one steady period
  double bubble_fraction_span = 0;  // 1 - work / largest worker span (zero-bubble's); asynchronous: likewise
  std::vector<WorkerReport> workers;
  std::vector<StageReport> stages;
  std::vector<LinkReport> links;             // links that carried something, in topology order
  std::shared_ptr<const Campaign> campaign;  // the whole training, where the scenario asks for it
  bool fits = true;
  Infeasible shortfall;  // filled when it does not fit
};
struct ReportExplanation {
  std::vector<CriticalPart> critical_path;  // by time, longest first; sums to the makespan
  StageId limiting_stage = 0;
  std::string limiting_factor;  // one sentence
  std::vector<Sensitivity> sensitivity;
  std::vector<FormulaReport> formulas;
  std::vector<Reference> references;
  double speedup_one_device = 0;  // over one device with enough memory for the model
  std::optional<double> speedup_data_parallel;
  double scaling_efficiency = 0;  // speedup_one_device / devices
};
struct ReportNotes {
  std::vector<std::string> warnings, hints, provenance;
};

struct Report : ReportFigures, ReportExplanation, ReportNotes {
  // Defined in the .cpp: compiled once, not in each file that includes this.
  Report();
  Report(const Report&);
  Report(Report&&) noexcept;
  Report& operator=(const Report&);
  Report& operator=(Report&&) noexcept;
  ~Report();
};

// The stage whose devices have the least left; none: nullptr.
const StageReport* fullest(const Report& report);

// With which probability the plan fits over the memory model's range: that of the stage with the least.
double fit_probability(const Report& report);

// The whole answer: what the writers print and draw. Where copies run alike (core/cost/fold.hpp), schedule, costs and
// timeline are those of the simulated ones; the plan and the report are of all.
struct Answer {
  std::shared_ptr<const Scenario> scenario;  // as priced: anchored, its layers in their new order
  Plan plan;
  Schedule schedule;
  StepCosts costs;
  MemoryModel memory;
  Timeline timeline;
  Report report;

  // The worker of `timeline` that runs as this worker of the plan does, and its times.
  WorkerId simulated(WorkerId worker) const { return simulated_worker(costs.fold.get(), worker, plan.positions()); }
  const LaneTimes& times(WorkerId worker) const { return timeline.workers[at(simulated(worker))]; }

  // Defined in the .cpp: compiled once, not in each file that includes this.
  Answer();
  Answer(const Answer&);
  Answer(Answer&&) noexcept;
  Answer& operator=(const Answer&);
  Answer& operator=(Answer&&) noexcept;
  ~Answer();
};

// The timeline of every copy.
Timeline unfolded(const Timeline& timeline, const Plan& plan, const Fold* fold);
// An answer with the timeline of every copy, as a trace has it; its costs are still those of the simulated ones.
Answer unfolded(const Answer& answer);

// Hardware FLOPs utilization: model FLOPs utilization with the forwards that the plan repeats counted, too:
//     HFU = MFU * (3 F + R) / (3 F)               [Korthikanti22] section 6.3
// F: FLOPs of a sample's forward, of which the backward takes twice as many; R: of them, those that are repeated (under
// `selective` the attention cores). Full recomputation, MFU 30 %: 40 %.   tests/core/campaign_test.cpp "HFU"
// What a fused attention kernel computes again by itself is not counted. Nothing where the plan repeats nothing, or a
// layer's FLOPs are not known.
std::optional<double> hardware_flop_utilization(const Scenario& scenario, const Plan& plan, std::optional<double> mfu);

}  // namespace pipewright::core
