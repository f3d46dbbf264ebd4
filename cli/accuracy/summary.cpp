#include "cli/accuracy/summary.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "cli/commands.hpp"

namespace pipewright {
namespace {

// The targets, set before anything was measured.
constexpr double kLongOp = 0.5e-3;      // s
constexpr double kNoStepBeyond = 0.12;  // |error|
constexpr double kBubblePoints = 0.03;
constexpr double kFamilyError = 0.05;   // mean |error| of a family of shapes
constexpr double kContextError = 0.02;  // |error| of the memory with all that is on the GPU beside the arenas
constexpr double kAtOnce = 1.5;  // delays of all groups at once, over one alone: less is "at once", K would be in turn
struct StepTarget {
  std::int64_t stages;
  double mean, stretch;
};
constexpr std::array<StepTarget, 3> kSteps = {{{2, 0.05, 0.02}, {4, 0.06, 0.03}, {8, 0.08, 0.04}}};

// Of a tensor's gradients, |g - g0|_2 / |g0|_2, where the order of sums is the library's.
double gradient_tolerance(const std::string& precision) {
  if (precision == "fp32") return 1e-5;
  return precision == "tf32" ? 1e-3 : 1e-2;
}

std::string percents(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

class Summarizer {
 public:
  explicit Summarizer(StudySummary& summary) : s_(summary) {}

  void all() {
    steps();
    ranking();
    speed_ups();
    device_targets();
    family_targets();
    run_targets();
    largest_targets();
    gradient_targets();
  }

 private:
  // The judged runs of a part, in the order of the plan.
  std::vector<const StudyRecord*> judged(int part) const {
    std::vector<const StudyRecord*> list;
    for (const PlannedRow& row : s_.plan)
      if (const StudyRecord* const record = s_.counted(row.part, row.name);
          row.part == part && record != nullptr && record->done())
        list.push_back(record);
    return list;
  }
  // All that ran: memory can be judged also where time cannot.
  std::vector<const StudyRecord*> ran(int part) const {
    std::vector<const StudyRecord*> list;
    for (const PlannedRow& row : s_.plan)
      if (const StudyRecord* const record = s_.counted(row.part, row.name);
          row.part == part && record != nullptr && record->figures.contains("memory_exact"))
        list.push_back(record);
    return list;
  }

  void steps() {
    std::map<std::int64_t, StepErrors> by_stages;
    for (const PlannedRow& row : s_.plan)
      if (row.part == 3) by_stages[row.stages].stages = row.stages;
    for (const StudyRecord* const record : judged(3)) {
      StepErrors& errors = by_stages[static_cast<std::int64_t>(record->figure("stages"))];
      const double error = std::abs(record->figure("error"));
      ++errors.judged;
      errors.largest_with_short = std::max(errors.largest_with_short, error);
      if (record->figure("shortest_op_s") < kLongOp) continue;
      ++errors.long_ops;
      errors.mean += error, errors.largest = std::max(errors.largest, error);
    }
    for (auto& [stages, errors] : by_stages) {
      if (errors.long_ops > 0) errors.mean /= errors.long_ops;
      s_.steps.push_back(errors);
    }
  }

  void ranking() {
    std::map<std::pair<std::string, double>, std::vector<const StudyRecord*>> groups;
    for (const StudyRecord* const record : judged(3))
      groups[{record->word("group"), record->figure("stages")}].push_back(record);
    for (const auto& [key, members] : groups)
      for (std::size_t i = 0; i < members.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
          rank(*members[j], *members[i]);
  }
  void rank(const StudyRecord& a, const StudyRecord& b) {
    ++s_.ranking.pairs;
    const double apart = a.figure("measured_s") - b.figure("measured_s");
    const auto half_range = [](const StudyRecord& r) { return (r.figure("p95_s") - r.figure("p5_s")) / 2; };
    if (std::abs(apart) <= std::max(half_range(a), half_range(b))) return;
    ++s_.ranking.told_apart;
    s_.ranking.right += (a.figure("predicted_s") - b.figure("predicted_s")) * apart > 0 ? 1 : 0;
  }

  void speed_ups() {
    const auto step = [&](std::int64_t stages, std::int64_t micro_batches) -> const StudyRecord* {
      for (const PlannedRow& row : s_.plan)
        if (row.part == 4 && row.stages == stages && row.micro_batches == micro_batches) {
          const StudyRecord* const record = s_.counted(4, row.name);
          return record != nullptr && record->done() ? record : nullptr;
        }
      return nullptr;
    };
    for (const PlannedRow& row : s_.plan) {
      if (row.part != 4 || row.stages == 1) continue;
      SpeedUp one{row.stages, row.micro_batches, std::nullopt, std::nullopt};
      const StudyRecord* const alone = step(1, row.micro_batches);
      const StudyRecord* const piped = step(row.stages, row.micro_batches);
      if (alone != nullptr && piped != nullptr) {
        one.predicted = alone->figure("predicted_s") / piped->figure("predicted_s");
        one.measured = alone->figure("measured_s") / piped->figure("measured_s");
      }
      s_.speed_ups.push_back(one);
    }
  }

  void add(int part, std::string quantity, std::string target, const std::optional<bool>& met, std::string result) {
    StudyTarget one{part, std::move(quantity), std::move(target)};
    if (met) one.result = std::move(result), one.state = *met ? TargetState::Met : TargetState::Missed;
    s_.targets.push_back(std::move(one));
  }
  // What a CPU says nothing of.
  void add_of_gpu(int part, std::string quantity, std::string target, const std::optional<bool>& met,
                  std::string result) {
    add(part, std::move(quantity), std::move(target), met, std::move(result));
    if (!s_.dry_run) return;
    s_.targets.back().state = TargetState::NotApplicable;
    s_.targets.back().result = "not applicable";
  }

  void device_targets() {
    int groups = 0, apart = 0, at_once = 0;
    for (const int asked : {2, 4, 8})
      if (const StudyRecord* const record = s_.counted(1, fmt::format("groups-{}", asked));
          record != nullptr && record->done()) {
        ++groups;
        apart += record->figure("sms_shared") == 0 && record->figure("most_seen") <= record->figure("sms") ? 1 : 0;
        at_once += record->figure("all_delays_s") <= kAtOnce * record->figure("one_delay_s") ? 1 : 0;
      }
    const std::optional<bool> known = groups > 0 ? std::optional(true) : std::nullopt;
    const auto of = [&](int n) { return fmt::format("{} of {}", n, groups); };
    add_of_gpu(1, "SMs of 2, 4 and 8 virtual devices", "no two share one",
               known ? std::optional(apart == groups) : known, of(apart));
    add_of_gpu(1, "delays on all virtual devices", fmt::format("at once: within {} of one", kAtOnce),
               known ? std::optional(at_once == groups) : known, of(at_once));
  }

  void family_targets() {
    for (const char* const kind : {"matrix products", "memory-bound"}) {
      double worst = 0;
      int families = 0;
      for (const StudyRecord& record : s_.records)
        if (record.part == 2 && record.done() && record.word("kind") == kind)
          ++families, worst = std::max(worst, record.figure("mean_error"));
      add_of_gpu(2, fmt::format("{}: cross-validated mean error", kind),
                 fmt::format("at most {:.0f} %", 100 * kFamilyError),
                 families > 0 ? std::optional(worst <= kFamilyError) : std::nullopt,
                 fmt::format("at most {} over {}", percents(worst), families));
    }
  }

  void run_targets() {
    double largest = 0;
    int long_ops = 0;
    for (const StepTarget& target : kSteps)
      for (const StepErrors& errors : s_.steps) {
        if (errors.stages != target.stages) continue;
        const std::string result = fmt::format("mean {}, largest {} over {}", percents(errors.mean),
                                               percents(errors.largest), errors.long_ops);
        for (const bool stretch : {false, true}) {
          const double mean = stretch ? target.stretch : target.mean;
          add_of_gpu(3, fmt::format("step time, {} virtual devices{}", target.stages, stretch ? ", stretch" : ""),
                     fmt::format("mean error at most {:.0f} %", 100 * mean),
                     errors.long_ops > 0 ? std::optional(errors.mean <= mean) : std::nullopt, result);
          s_.targets.back().stretch = stretch;
        }
        largest = std::max(largest, errors.largest), long_ops += errors.long_ops;
      }
    add_of_gpu(3, "step time, every run", fmt::format("no error above {:.0f} %", 100 * kNoStepBeyond),
               long_ops > 0 ? std::optional(largest <= kNoStepBeyond) : std::nullopt,
               fmt::format("largest {} over {}", percents(largest), long_ops));
    int bubbles = 0, near = 0, in_band = 0;
    for (const StudyRecord* const record : judged(3)) {
      ++bubbles, in_band += record->figure("in_band") != 0 ? 1 : 0;
      near += std::abs(record->figure("bubble_predicted") - record->figure("bubble_measured")) <= kBubblePoints ? 1 : 0;
    }
    const auto of = [](int n, int all) { return fmt::format("{} of {}", n, all); };
    const std::optional<bool> none;
    add_of_gpu(3, "bubble", fmt::format("within {:.0f} points", 100 * kBubblePoints),
               bubbles > 0 ? std::optional(near == bubbles) : none, of(near, bubbles));
    const auto all = ran(3);
    const auto exact = static_cast<int>(std::count_if(
        all.begin(), all.end(), [](const StudyRecord* record) { return record->figure("memory_exact") == 1; }));
    const auto number = static_cast<int>(all.size());
    add(3, "memory in the arena", "to the byte", number > 0 ? std::optional(exact == number) : none, of(exact, number));
    const PairsInOrder& r = s_.ranking;
    add_of_gpu(3, "ranking of schedules", "every pair that can be told apart",
               r.told_apart > 0 ? std::optional(r.right == r.told_apart) : none,
               fmt::format("{} of {}, {} of {} told apart", r.right, r.told_apart, r.told_apart, r.pairs));
  }

  void largest_targets() {
    int found = 0, equal = 0, watched = 0;
    double worst = 0;
    for (const PlannedRow& row : s_.plan) {
      const StudyRecord* const record = row.part == 5 ? s_.counted(5, row.name) : nullptr;
      if (record == nullptr || !record->done()) continue;
      ++found, equal += record->figure("predicted_layers") == record->figure("measured_layers") ? 1 : 0;
      if (!record->figures.contains("context_error")) continue;
      ++watched, worst = std::max(worst, std::abs(record->figure("context_error")));
    }
    add(5, "largest number of layers", "as predicted", found > 0 ? std::optional(equal == found) : std::nullopt,
        fmt::format("{} of {}", equal, found));
    add_of_gpu(5, "memory with all contexts", fmt::format("within {:.0f} %", 100 * kContextError),
               watched > 0 ? std::optional(worst <= kContextError) : std::nullopt,
               fmt::format("at most {} off over {}", percents(worst), watched));
  }

  void gradient_targets() {
    int own = 0, same = 0, library = 0, near = 0;
    for (const PlannedRow& row : s_.plan) {
      const StudyRecord* const record = row.part == 6 ? s_.counted(6, row.name) : nullptr;
      if (record == nullptr || !record->done()) continue;
      if (row.kernels == "own")
        ++own, same += record->figure("differing", 1) == 0 ? 1 : 0;
      else
        ++library, near += record->figure("relative", 1) <= gradient_tolerance(row.precision) ? 1 : 0;
    }
    add(6, "gradients on own kernels", "the same bits on 1, 2, 4 and 8",
        own > 0 ? std::optional(same == own) : std::nullopt, fmt::format("{} of {}", same, own));
    add_of_gpu(6, "gradients where cuBLASLt multiplies", "within 1e-5 in fp32, 1e-3 in tf32, 1e-2 in bf16",
               library > 0 ? std::optional(near == library) : std::nullopt, fmt::format("{} of {}", near, library));
    const StudyRecord* const tool = s_.counted(6, "compute-sanitizer");
    add_of_gpu(6, "compute-sanitizer on the kernels' tests", "clean",
               tool != nullptr && tool->done() ? std::optional(tool->word("clean") == "yes") : std::nullopt,
               tool != nullptr ? tool->word("said") : "");
    if (!s_.dry_run && tool != nullptr && tool->status == "not run")
      s_.targets.back().result = "not run: " + tool->reason;
  }

  StudySummary& s_;
};

}  // namespace

const StudyRecord* StudySummary::counted(int part, const std::string& name) const {
  const StudyRecord* last = nullptr;
  for (const StudyRecord& record : records) {
    if (record.part != part || record.name != name) continue;
    if (record.done()) return &record;
    last = &record;
  }
  return last;
}

StudySummary summarized(std::vector<StudyRecord> records, std::vector<PlannedRow> plan, bool dry_run) {
  StudySummary summary;
  summary.dry_run = dry_run, summary.plan = std::move(plan), summary.records = std::move(records);
  Summarizer(summary).all();
  return summary;
}

int exit_status(const StudySummary& summary) {
  for (const StudyTarget& target : summary.targets)
    if (target.state == TargetState::Missed && !target.stretch) return kNo;
  for (const StudyRecord& record : summary.records) {
    const std::string& status = summary.counted(record.part, record.name)->status;
    if (status == "failed" || status == "left out" || status == "interrupted") return kBadInput;
    if (status == "withheld" && !summary.dry_run) return kBadInput;
  }
  return kDone;
}

}  // namespace pipewright
