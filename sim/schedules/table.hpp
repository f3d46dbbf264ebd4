// Every schedule that pipewright knows: one generator file each, one line in the table.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/schedule.hpp"

namespace pipewright::sim {

// A textbook value as an exact fraction, with the text that derives it.
struct Formula {
  std::string text;  // "(K-1)/(M+K-1)"
  std::int64_t numerator = 0, denominator = 1;
};

// Of one micro-batch on one stage. Without a unit: only their ratios count.
struct PassTimes {
  std::int64_t forward = 1, input_gradient = 1, weight_gradient = 1;  // f, b, w
  bool equal() const { return forward == input_gradient && forward == weight_gradient; }
};

// Which of the formulas of tests/planner/bounds.hpp holds for every cut into stages of one chunk.
enum class StepBound : std::uint8_t {
  None,
  Work,    // work_bound: whole backwards in a fixed order
  Window,  // that and window_bound: at most K - k micro-batches in flight on stage k
  Phases,  // gpipe_step, which is exact: all forwards, then all backwards
};

struct OrderProblem;  // sim/finder/problem.hpp

struct ScheduleRule {
  std::string_view name;    // as written in YAML
  std::string_view title;   // "one forward, one backward, with a flush"
  std::string_view source;  // key of docs/reference/references.md
  std::string_view memory;  // in words: "min(K-k, M) micro-batches on stage k"
  bool flush = true;
  bool splits_backward = false;  // W apart from B: no other stage waits for W
  // The passes of every worker, in order: F, B, W and BW.
  Schedule (*compute)(const ScheduleShape&);
  // What else of a shape is refused, which the traits below do not say; nullptr: nothing.
  std::string (*also_refused)(const ScheduleShape&) = nullptr;
  // Bubble fraction of makespan for equal stages and free communication; none, or nullptr, where no formula is known.
  std::optional<Formula> (*bubble)(const ScheduleShape&) = nullptr;
  // Micro-batches (chunks of them) in flight at the peak on one worker of stage k.
  std::optional<std::int64_t> (*peak_in_flight)(const ScheduleShape&, StageId);
  // The bubble where it depends on the times of the passes, too; nullptr: it does not.
  std::optional<Formula> (*bubble_of_times)(const ScheduleShape&, const PassTimes&) = nullptr;
  ScheduleFacts facts = {};
  StepBound bound = StepBound::None;
  // No stage ever holds more micro-batches than some number that does not grow with M, and memory repeats itself once
  // the pipeline is full: 4 K of them show the peak. False: it holds all M, as GPipe does.          [GPipe19] section 2.3
  bool bounded_in_flight = true;
  ChunkOrder chunk_order = ChunkOrder::Loop;
  int chunks = 0;                    // on each stage, of a schedule that takes several; 0: as many as are asked for
  bool one_stage_at_a_time = false;  // no two stages ever work: all cuts take as long                 [GPipe19] fig. 2
  bool from_file = false;            // the order of ScheduleShape::given
  // The schedule that does the same on one stage, or does no worse there: where both are searched, `plan` tries that
  // one alone.
  std::string_view on_one_stage = {};
  // The schedule to try where a plan does not fit: it holds fewer micro-batches, and takes as long where transfers are
  // free.                                                                                         [DAPPLE20] section 2
  std::string_view leaner = {};
  // The schedule that hides transfers which this one waits for, for more micro-batches in flight. [DAPPLE20] section 2
  std::string_view hides_hops = {};
  // From 1: the order in which `plan` takes schedules where all are open, and of equal steps the first; 0: only where
  // it is named. With replicas: those that PipeDream's planner is for.                          [PipeDream19] section 3.1
  int searched = 0, searched_with_replicas = 0;
  bool in_megatron = false;  // Megatron-LM runs it                                          [Megatron21] section 2.2
  // The order is made for the times of a plan and for what may be in flight; nullptr: it follows from the shape alone.
  std::vector<std::vector<Op>> (*made_for)(const OrderProblem& problem) = nullptr;
  bool finds_order = false;   // it is made by the finder of orders (sim/finder)
  bool in_deepspeed = false;  // DeepSpeed's pipeline engine runs it                                    [DeepSpeed26]

  // Why this schedule cannot be built for the shape, or "": "M = 10 is not a multiple of K = 4: use 8 or 12".
  std::string refusal(const ScheduleShape& shape) const;
  // All that is run: the passes, and what `expand` puts between them (sim/schedules/expand). The shape must not be refused.
  Schedule generate(const ScheduleShape& shape) const;
};

// The bubble by whichever of the two the rule has.
std::optional<Formula> textbook_bubble(const ScheduleRule& rule, const ScheduleShape& shape, const PassTimes& times);

// In the order of the table.
std::span<const ScheduleRule> schedules();

// The rule of that name, or nullptr. Knows "file", too, the order that a file gives: it stands in no list, since it is
// no schedule to choose among.
const ScheduleRule* find_schedule(std::string_view name);

std::vector<std::string_view> schedule_names();
// Of those that have the trait, in the order of the table.
std::vector<std::string> schedule_names(const std::function<bool(const ScheduleRule&)>& has);
// Of those with a place, in that order: `searched` or `searched_with_replicas`.
std::vector<std::string> searched_schedules(int ScheduleRule::*place);

}  // namespace pipewright::sim
