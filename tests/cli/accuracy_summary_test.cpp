// What the summary makes of results. All figures here are made up; none was measured.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "cli/accuracy/summary.hpp"
#include "tests/cli/refusals.hpp"

using namespace pipewright;

namespace {

std::string name_of(std::int64_t stages, std::int64_t micro_batches, const std::string& schedule) {
  return "made-up-k" + std::to_string(stages) + "-m" + std::to_string(micro_batches) + "-" + schedule;
}

PlannedRow row(int part, std::int64_t stages, std::int64_t micro_batches, const std::string& schedule = "gpipe") {
  return {part,  name_of(stages, micro_batches, schedule),    stages, micro_batches, schedule, "fp32",
          "own", "groups-" + std::to_string(stages) + "-fp32"};
}

// A judged run: memory exact, bubbles alike, p5 and p95 1 % around the median.
StudyRecord ran(const PlannedRow& planned, double predicted, double measured, double shortest = 1e-3) {
  StudyRecord record{.part = planned.part, .name = planned.name};
  record.words = {{"schedule", planned.schedule}, {"group", std::to_string(planned.micro_batches) + " samples"}};
  record.figures = {{"stages", static_cast<double>(planned.stages)},
                    {"predicted_s", predicted},
                    {"measured_s", measured},
                    {"p5_s", 0.99 * measured},
                    {"p95_s", 1.01 * measured},
                    {"error", predicted / measured - 1},
                    {"shortest_op_s", shortest},
                    {"in_band", 1},
                    {"bubble_predicted", 0.2},
                    {"bubble_measured", 0.2},
                    {"memory_exact", 1}};
  return record;
}

const StudyTarget& target(const StudySummary& summary, const std::string& quantity) {
  for (const StudyTarget& one : summary.targets)
    if (one.quantity == quantity) return one;
  REQUIRE_MESSAGE(false, quantity);
  return summary.targets.front();
}

}  // namespace

TEST_CASE("Errors of steps: the mean over long ops, K by K, and the largest of all") {
  // 5.25 for 5 and 10.7 for 10: 5 and 7 %, 6 % in the mean, just what four may have; 20 % where ops are short.
  const PlannedRow a = row(3, 4, 16), b = row(3, 4, 8), c = row(3, 4, 4), d = row(3, 2, 8);
  const StudySummary s =
      summarized({ran(a, 5.25, 5), ran(b, 10.7, 10), ran(c, 1.2, 1, 0.49e-3), ran(d, 0.96, 1)}, {a, b, c, d}, false);
  REQUIRE(s.steps.size() == 2);
  CHECK(s.steps[0].stages == 2);
  CHECK(s.steps[0].mean == doctest::Approx(0.04));
  CHECK(s.steps[1].judged == 3);
  CHECK(s.steps[1].long_ops == 2);
  CHECK(s.steps[1].mean == doctest::Approx(0.06));
  CHECK(s.steps[1].largest == doctest::Approx(0.07));
  CHECK(s.steps[1].largest_with_short == doctest::Approx(0.2));
  CHECK(target(s, "step time, 2 virtual devices").state == TargetState::Met);
  CHECK(target(s, "step time, 2 virtual devices").result == "mean 4.0 %, largest 4.0 % over 1");
  CHECK(target(s, "step time, every run").state == TargetState::Met);
  CHECK(target(s, "step time, 2 virtual devices, stretch").state == TargetState::Missed);
  CHECK(target(s, "step time, 2 virtual devices, stretch").target == "mean error at most 2 %");
  CHECK(exit_status(s) == 0);  // whatever was hoped for
  CHECK(contains(summary_markdown(s), "mean error at most 2 % | mean 4.0 %, largest 4.0 % over 1 | missed |"));
  const StudySummary near = summarized({ran(a, 10.29, 10), ran(d, 1.021, 1)}, {a, d}, false);
  CHECK(target(near, "step time, 2 virtual devices, stretch").state == TargetState::Missed);
  CHECK(target(near, "step time, 4 virtual devices, stretch").state == TargetState::Met);  // 2.9 of 3 %
}

TEST_CASE("A target just missed is missed, and the exit status says so") {
  const PlannedRow a = row(3, 2, 8), b = row(3, 2, 4);
  const StudySummary mean = summarized({ran(a, 1.052, 1)}, {a}, false);
  CHECK(target(mean, "step time, 2 virtual devices").state == TargetState::Missed);
  CHECK(target(mean, "step time, every run").state == TargetState::Met);
  CHECK(exit_status(mean) == 1);
  const StudySummary one =
      summarized({ran(a, 1.121, 1), ran(b, 1, 1), ran(row(3, 2, 2), 1, 1)}, {a, b, row(3, 2, 2)}, false);
  CHECK(target(one, "step time, 2 virtual devices").state == TargetState::Met);  // 12.1 % over 3
  CHECK(target(one, "step time, every run").state == TargetState::Missed);

  StudyRecord bubble = ran(a, 1, 1), memory = ran(a, 1, 1);
  bubble.figures["bubble_measured"] = 0.2301;
  CHECK(target(summarized({bubble}, {a}, false), "bubble").state == TargetState::Missed);
  memory.figures["memory_exact"] = 0, memory.status = "withheld";  // memory counts where time does not
  CHECK(target(summarized({memory}, {a}, false), "memory in the arena").state == TargetState::Missed);
  CHECK(target(summarized({memory}, {a}, false), "bubble").state == TargetState::NotMeasured);
}

TEST_CASE("The attempt that counts is the first that was judged") {
  const PlannedRow a = row(3, 2, 8);
  StudyRecord withheld = ran(a, 2, 1), second = ran(a, 1.01, 1), third = ran(a, 1, 1);
  withheld.status = "withheld", second.attempt = 2, third.attempt = 3;
  const StudySummary s = summarized({withheld, second, third}, {a}, false);
  CHECK(s.counted(3, a.name)->attempt == 2);
  CHECK(s.steps.front().mean == doctest::Approx(0.01));
  const StudySummary none = summarized({withheld}, {a}, false);
  CHECK(none.steps.front().judged == 0);
  CHECK(exit_status(none) == 2);
  CHECK(exit_status(summarized({withheld}, {a}, true)) == 0);  // cores of a dry run are shared
  CHECK(contains(summary_markdown(none),
                 "| " + a.name + " | 2 | 8 | gpipe | fp32 | 1.00 ms | 2.00 s | 1.00 s | withheld |"));
}

TEST_CASE("What failed, never ended or was left out is in the exit status, in whichever part, planned or not") {
  const auto status_of = [](int part, const std::string& name, const std::string& status, bool dry_run = false) {
    StudyRecord record{.part = part, .name = name};
    record.status = status;
    return exit_status(summarized({record}, {}, dry_run));
  };
  for (const auto& [part, name] : {std::pair{1, "device"},
                                   {1, "groups-2"},
                                   {2, "groups-1-bf16"},
                                   {3, "no-more-planned"},
                                   {5, "largest-k1.layers-4"},
                                   {6, "compute-sanitizer"}}) {
    CAPTURE(name);
    for (const std::string status : {"failed", "left out", "interrupted"})
      for (const bool dry_run : {false, true})
        CHECK(status_of(part, name, status, dry_run) == 2);
    for (const std::string status : {"not run", "not applicable"})
      CHECK(status_of(part, name, status) == 0);
  }
  CHECK(status_of(3, "run", "withheld") == 2);
  CHECK(status_of(3, "run", "withheld", true) == 0);
  StudyRecord failed{.part = 1, .name = "groups-2"}, done = failed;
  failed.status = "failed", done.attempt = 2, done.figures = {{"sms", 8}, {"most_seen", 8}};
  CHECK(exit_status(summarized({failed, done}, {}, false)) == 0);
}

TEST_CASE("A pair of schedules counts to the ranking where it can be told apart") {
  const PlannedRow a = row(3, 4, 16, "gpipe"), b = row(3, 4, 16, "1f1b"), c = row(3, 4, 16, "other");
  // Ranges of 1 %: 1 and 1.005 are alike, 1.2 is not; c is predicted fastest and is slowest: wrong twice.
  const StudySummary s = summarized({ran(a, 1.1, 1), ran(b, 1.05, 1.005), ran(c, 1, 1.2)}, {a, b, c}, false);
  CHECK(s.ranking.pairs == 3);
  CHECK(s.ranking.told_apart == 2);
  CHECK(s.ranking.right == 0);
  CHECK(target(s, "ranking of schedules").result == "0 of 2, 2 of 3 told apart");
  // Other numbers of workers are no pair.
  const PlannedRow other = row(3, 2, 16, "1f1b");
  CHECK(summarized({ran(a, 1, 1), ran(other, 2, 0.5)}, {a, other}, false).ranking.pairs == 0);
}

TEST_CASE("Speed-ups are over one worker with as many micro-batches") {
  const PlannedRow one = row(4, 1, 4), two = row(4, 2, 4), four = row(4, 4, 4);
  const StudySummary s = summarized({ran(one, 8, 9), ran(two, 5, 6)}, {one, two, four}, false);
  REQUIRE(s.speed_ups.size() == 2);
  CHECK(*s.speed_ups[0].predicted == doctest::Approx(1.6));
  CHECK(*s.speed_ups[0].measured == doctest::Approx(1.5));
  CHECK_FALSE(s.speed_ups[1].measured);
  const std::string text = summary_markdown(s);
  CHECK(contains(text, "| 2 | 4 | 1.60 | 1.50 | +6.7 % |"));
  CHECK(contains(text, "| 4 | 4 | not measured | not measured | not measured |"));
}

TEST_CASE("SM groups, sizes and gradients are held to their targets") {
  StudyRecord groups{.part = 1, .name = "groups-4"};
  groups.figures = {{"sms_shared", 0}, {"most_seen", 32}, {"sms", 32}, {"one_delay_s", 0.02}, {"all_delays_s", 0.029}};
  CHECK(target(summarized({groups}, {}, false), "SMs of 2, 4 and 8 virtual devices").state == TargetState::Met);
  CHECK(target(summarized({groups}, {}, false), "delays on all virtual devices").state == TargetState::Met);
  groups.figures["sms_shared"] = 1, groups.figures["all_delays_s"] = 0.04;
  CHECK(target(summarized({groups}, {}, false), "SMs of 2, 4 and 8 virtual devices").state == TargetState::Missed);
  CHECK(target(summarized({groups}, {}, false), "delays on all virtual devices").state == TargetState::Missed);
  CHECK(target(summarized({groups}, {}, true), "delays on all virtual devices").state == TargetState::NotApplicable);

  StudyRecord family{.part = 2, .name = "family"};
  family.words = {{"kind", "matrix products"}}, family.figures = {{"mean_error", 0.051}};
  const std::string products = "matrix products: cross-validated mean error";
  CHECK(target(summarized({family}, {}, false), products).state == TargetState::Missed);
  family.figures["mean_error"] = 0.05;
  CHECK(target(summarized({family}, {}, false), products).state == TargetState::Met);

  const PlannedRow size = row(5, 4, 8), gradient = row(6, 4, 8);
  StudyRecord largest{.part = 5, .name = size.name}, gradients{.part = 6, .name = gradient.name};
  largest.figures = {{"predicted_layers", 36}, {"measured_layers", 36}, {"context_error", -0.021}};
  CHECK(target(summarized({largest}, {size}, false), "memory with all contexts").state == TargetState::Missed);
  largest.figures["context_error"] = -0.02;
  CHECK(target(summarized({largest}, {size}, false), "memory with all contexts").state == TargetState::Met);
  gradients.figures = {{"differing", 0}};
  const StudySummary met = summarized({largest, gradients}, {size, gradient}, true);  // these hold on a CPU, too
  CHECK(target(met, "largest number of layers").state == TargetState::Met);
  CHECK(target(met, "gradients on own kernels").state == TargetState::Met);
  largest.figures["measured_layers"] = 35, gradients.figures["differing"] = 1;
  const StudySummary missed = summarized({largest, gradients}, {size, gradient}, true);
  CHECK(target(missed, "largest number of layers").state == TargetState::Missed);
  CHECK(target(missed, "gradients on own kernels").state == TargetState::Missed);
}

TEST_CASE("Gradients of a library are near those of one worker, as near as their precision lets them") {
  const auto judged = [](const std::string& precision, double relative) {
    PlannedRow planned = row(6, 4, 8);
    planned.precision = precision, planned.kernels = "library";
    StudyRecord record{.part = 6, .name = planned.name};
    record.figures = {{"differing", 7}, {"relative", relative}};
    const StudySummary s = summarized({record}, {planned}, false);
    CHECK(target(s, "gradients on own kernels").state == TargetState::NotMeasured);
    return target(s, "gradients where cuBLASLt multiplies").state;
  };
  CHECK(judged("fp32", 1e-5) == TargetState::Met);
  CHECK(judged("fp32", 1.1e-5) == TargetState::Missed);
  CHECK(judged("tf32", 1e-3) == TargetState::Met);
  CHECK(judged("tf32", 1.1e-3) == TargetState::Missed);
  CHECK(judged("bf16", 1e-2) == TargetState::Met);
  CHECK(judged("bf16", 1.1e-2) == TargetState::Missed);
}

TEST_CASE("The summary's files say the same, and without results that nothing was measured") {
  const PlannedRow a = row(3, 2, 8);
  const auto json = nlohmann::json::parse(summary_json(summarized({ran(a, 1.02, 1)}, {a}, false)));
  CHECK(json["schema"] == "pipewright.study-summary/1");
  CHECK(json["steps"][0]["mean_error"].get<double>() == doctest::Approx(0.02));
  CHECK(json["attempts"].size() == 1);
  CHECK(contains(summary_svg(summarized({ran(a, 1.02, 1)}, {a}, false)), "made-up-k2-m8-gpipe, attempt 1: done"));
  const StudySummary none = summarized({}, {a}, false);
  CHECK(contains(summary_svg(none), "not measured"));
  CHECK(exit_status(none) == 0);
  for (const StudyTarget& one : none.targets)
    CHECK(one.state == TargetState::NotMeasured);
}
