// How far a measured step may be from a predicted one, on a machine that others use, too.
//
// Run and looks at the machine (calibrate/looks.hpp) take turns: look, steps, look, steps, ..., look. From every look
// the step is predicted once more: an op takes its price and what it took longer in a round of the look than its price
// without messages,
//
//     d(op) = max(0, price(op) + measured(op) - price without messages(op)),
//
// both prices with all workers computing. The first may be that of an op next to fewer (sim/at_load.hpp) where the
// machine was quiet in the look (q <= 10 %, below) and as fast as in the calibration (to 10 %), which was quiet then,
// too: other programs move to a core that a calibration leaves free, not to that of a worker that waits, so prices of
// ops that were alone say more about them than about the ops. A calibration among four programs, a run on idle cores:
// 17 % too fast with these prices.
//
// each worker in a round of its own, 32 times; the median counts. A message to a worker that waits lies there until the
// system gives that worker its core again, which no time of an op says. A thread that was away for a share q of the
// time, in n pieces of lost / n on average and of any length (exponential), is away with probability q, and then stays
// away for one piece more:
//
//     wait = q lost / n                    away for 2 of 3 s in 250 pieces of 8 ms: 2/3 x 8 ms = 5.3 ms a message
//
// Part k of the run lies between two looks: p_k is the mean of the two predictions, m_k the median of the part's steps.
// What is compared are their means p and m over all K parts. The interval around p, as a share of it, at 90 %:
//
//     half = sqrt((t s)^2 + 1.645^2 (prices^2 + model^2) + waits^2)
//     s       standard deviation of p_k - m_k over p sqrt(K): a machine that changes slowly changes both alike, what is
//             left is what it did within a part. t = 2.13 for K = 5 (Student, K - 1 degrees of freedom)
//     prices  standard error of layers that were measured at other sizes only; the error that all prices share is not
//             in it, as looks measure it again
//     model   what the simulator leaves out: sqrt((2 %)^2 + (17 % q)^2), with q as above, mean of workers and looks.
//             1.9 % is the root mean square of the errors of eleven scenarios on quiet cores (docs/results/accuracy-cpu.md
//             fourth run); 17 % q is what the errors of twenty attempts on shared cores leave when that and s are taken
//             out (docs/how-it-works/running.md, 2026-11-24: q was 0.24 to 0.8)
//     waits   the share of p that is there for the wait above, which may be none of it (a thread that is woken at once)
//             or twice as long
//
// Without looks (a GPU, a synthetic run) the price is divided by the speed of the cores, as a small piece of arithmetic
// before each step has it. What that does not see, nothing has measured: s is then the spread of single steps,
// (p95 - p5) / (3.29 median), t = 1.645, the interval is wider by |speed - 1|, and prices have the error of all in
// place of the model's.
//
// p_k = 100, 110, 120 ms and m_k = 104, 108, 118 ms: p = m = 110 ms, differences -4, 2, 2 ms: s = 3.46 / 110 / sqrt(3)
// = 1.8 %, t = 2.92; prices 1 %, waits 2 %: half = 6.8 %.                        tests/study/judgement_test.cpp "by hand"
#pragma once

#include <string>
#include <vector>

#include "calibrate/looks.hpp"
#include "core/answers/report.hpp"
#include "runtime/measurement.hpp"

namespace pipewright::study {

// Beyond this the interval's upper end is more than twice its lower one: it does not tell two plans apart.
constexpr double kWidest = 1.0 / 3;

// What one look says of the plan's step and of the cores' speed, 1 while they were calibrated.
struct SeenStep {
  Time step;
  double speed = 1;
  double waits = 0;  // share of `step` that waits for interrupted workers
  double away = 0;   // q: share of the time that workers were without their core
};

struct Judgement {
  Time predicted;              // p: on the machine as it was during the run
  Time measured;               // m
  double speed = 1;            // of the cores, 1 while they were calibrated: mean
  std::vector<double> speeds;  // by look; empty: none was taken
  double unrest = 0;           // s
  double waits = 0, away = 0;  // means of the looks
  double half = 0;             // of the interval around `predicted`, as a share of it

  double error() const;  // predicted / measured - 1
  Time low() const;
  Time high() const;
  bool holds() const { return low() <= measured && measured <= high(); }
  bool too_wide() const { return half > kWidest; }
};

// `parts`: lengths of the timed steps between each two looks, at least one; one look more than parts.
Judgement judged(const std::vector<SeenStep>& looks, const std::vector<std::vector<Time>>& parts, double prices);
// Without looks: of all timed steps.
Judgement judged(Time predicted, double speed, double prices, const StepTimes& measured);

// The step of the predicted plan whose ops take what they took in this look. `bare`: its prices without messages.
SeenStep seen_step(const Answer& predicted, const StepCosts& bare, const MachineLook& look);

// "cores ran at 71 to 80 % of their calibrated speed; other programs used them for 24 % of the time"
std::string movement_text(const Judgement& judgement, const std::string& cores);

}  // namespace pipewright::study
