#include "study/judgement.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/folds.hpp"
#include "sim/simulate.hpp"

namespace pipewright::study {
namespace {

constexpr double kNinety = 1.645;  // half the width of 90 % of a normal spread, in standard deviations
constexpr double kModel = 0.02;    // standard error of a step whose ops are priced right
constexpr double kAway = 0.17;     // and what it has more where workers are always without their core
constexpr double kQuiet = 0.1;     // cores away, or at another speed, for less than that
constexpr int kDraws = 32;         // steps made of one look

double value(Time time) {
  return static_cast<double>(time.value);
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double standard_deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values);
  auto sum = sum_over<double>(values, [&](const double each) { return (each - mean) * (each - mean); });
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

// Student's t: half the width of 90 %, by degrees of freedom.
double student(std::size_t freedom) {
  constexpr double kTable[] = {6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83};
  return freedom == 0 ? 0 : freedom <= std::size(kTable) ? kTable[freedom - 1] : kNinety;
}

double root_of_squares(double a, double b, double c) {
  return std::sqrt(a * a + b * b + c * c);
}

std::size_t row_of(const Op& op) {
  return at(op.virtual_stage) * kKinds + at(op.kind);
}

// The prices of ops while all workers compute.
StepCosts all_computing(StepCosts costs, std::size_t workers) {
  costs.settled.clear();
  if (!costs.loads.empty() && at(costs.loads.back().active) >= workers)
    costs.duration = costs.loads.back().duration, costs.duration_last = costs.loads.back().duration_last;
  return costs;
}

// The prices of ops as in one round of each worker of a copy.
class Drawn {
 public:
  Drawn(const Schedule& schedule, const StepCosts& prices, const StepCosts& bare, Time wait)
      : schedule_(schedule), prices_(prices), bare_(bare), costs_(prices) {
    costs_.settled.resize(costs_.duration.size() * at(costs_.shape.micro_batches));
    for (std::vector<Message>* const messages : {&costs_.messages, &costs_.messages_last})
      for (Message& message : *messages)
        if (message.channel >= 0) message.latency += wait;
  }

  void clear() { updates_.assign(costs_.duration.size(), {}); }
  void put(const std::vector<Op>& ops, const std::vector<Time>& round) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Time price = prices_.time_of(ops[i]);
      const Time time = std::max(Time{}, price + round[i] - bare_.time_of(ops[i]));
      if (ops[i].kind == Kind::Update)
        updates_[row_of(ops[i])].push_back(value(time));
      else
        costs_.settled[row_of(ops[i]) * at(costs_.shape.micro_batches) + ops[i].micro_batch] = time;
    }
  }
  Time step() {
    for (std::size_t row = 0; row < updates_.size(); ++row)
      if (!updates_[row].empty()) costs_.duration[row] = {std::llround(mean_of(updates_[row]))};
    return simulate(schedule_, costs_).makespan;
  }

 private:
  const Schedule& schedule_;
  const StepCosts &prices_, &bare_;
  StepCosts costs_;
  std::vector<std::vector<double>> updates_;  // a stage's updates have one price
};

// Rounds of other workers at another distance each time all rounds of the first one have had their turn.
const std::vector<Time>& round_of(const std::vector<std::vector<Time>>& rounds, std::size_t worker, int draw) {
  const std::size_t shift = at(draw) / rounds.size();
  return rounds[(at(draw) + worker * shift) % rounds.size()];
}

double away(const CoreUse& core) {
  return core.wall > core.cpu ? static_cast<double>(core.wall - core.cpu) / static_cast<double>(core.wall) : 0;
}

double mean_away(const MachineLook& look) {
  auto sum = sum_over<double>(look, [&](const WorkerLook& worker) { return away(worker.core); });
  return sum / static_cast<double>(look.size());
}

// How long a message lies there until a worker that waits for it has its core again: mean of the workers.
Time mean_wait(const MachineLook& look) {
  double sum = 0;
  for (const WorkerLook& worker : look)
    if (worker.core.interruptions > 0)
      sum += away(worker.core) * static_cast<double>(worker.core.wall - worker.core.cpu) /
             static_cast<double>(worker.core.interruptions);
  return {std::llround(sum / static_cast<double>(look.size()))};
}

double speed_of(const Schedule& schedule, const StepCosts& bare, const MachineLook& look) {
  double priced = 0, measured = 0;
  for (std::size_t w = 0; w < look.size(); ++w)
    for (const std::vector<Time>& round : look[w].rounds) {
      const std::vector<Op>& ops = schedule.lane_of(WorkerId{w}).compute;
      for (std::size_t i = 0; i < ops.size(); ++i)
        priced += value(bare.time_of(ops[i])), measured += value(round[i]);
    }
  return measured > 0 ? priced / measured : 1;
}

// Of 32 steps, the median.
Time step_of(const Schedule& schedule, const StepCosts& prices, const StepCosts& bare, const MachineLook& look,
             Time wait) {
  std::vector<Time> steps;
  const std::size_t positions = schedule.positions.size();
  Drawn drawn(schedule, prices, bare, wait);
  for (int draw = 0; draw < kDraws; ++draw) {
    Time longest;  // of the copies, who wait for one another
    for (std::size_t first = 0; first < look.size(); first += positions) {
      drawn.clear();
      for (PositionId p = 0; p < std::ssize(schedule.positions); ++p)
        drawn.put(schedule.positions[p].compute, round_of(look[first + p].rounds, first + p, draw));
      longest = std::max(longest, drawn.step());
    }
    steps.push_back(longest);
  }
  return median(steps);
}

}  // namespace

double Judgement::error() const {
  return measured > Time{} ? value(predicted) / value(measured) - 1 : 0;
}
Time Judgement::low() const {
  return {std::llround(value(predicted) * std::max(0.0, 1 - half))};
}
Time Judgement::high() const {
  return {std::llround(value(predicted) * (1 + half))};
}

Judgement judged(const std::vector<SeenStep>& looks, const std::vector<std::vector<Time>>& parts, double prices) {
  PP_CHECK(!parts.empty() && looks.size() == parts.size() + 1);
  std::vector<double> predicted, measured, differences, waits, away;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    predicted.push_back((value(looks[k].step) + value(looks[k + 1].step)) / 2);
    measured.push_back(value(median(parts[k])));
    differences.push_back(predicted.back() - measured.back());
  }
  Judgement j;
  for (const SeenStep& look : looks)
    j.speeds.push_back(look.speed), waits.push_back(look.waits), away.push_back(look.away);
  const double p = mean_of(predicted);
  j.predicted = {std::llround(p)}, j.measured = {std::llround(mean_of(measured))}, j.speed = mean_of(j.speeds);
  j.unrest = p > 0 ? standard_deviation(differences) / p / std::sqrt(static_cast<double>(parts.size())) : 0;
  j.waits = mean_of(waits), j.away = mean_of(away);
  const double model = std::hypot(kModel, kAway * j.away);
  j.half = root_of_squares(student(parts.size() - 1) * j.unrest, kNinety * std::hypot(prices, model), j.waits);
  return j;
}

Judgement judged(Time predicted, double speed, double prices, const StepTimes& measured) {
  PP_CHECK(speed > 0);
  Judgement j;
  j.predicted = {std::llround(value(predicted) / speed)}, j.measured = measured.median, j.speed = speed;
  if (measured.median > Time{}) j.unrest = value(measured.p95 - measured.p5) / (2 * kNinety * value(measured.median));
  j.half = root_of_squares(kNinety * j.unrest, kNinety * prices, 0) + std::abs(speed - 1);
  return j;
}

SeenStep seen_step(const Answer& predicted, const StepCosts& bare, const MachineLook& look) {
  const Schedule& schedule = predicted.schedule;
  const StepCosts all = all_computing(predicted.costs, look.size()), without = all_computing(bare, look.size());
  const double speed = speed_of(schedule, without, look), away = mean_away(look);
  const bool quiet = away <= kQuiet && std::abs(speed - 1) <= kQuiet;
  const StepCosts& prices = quiet ? predicted.costs : all;
  const Time step = step_of(schedule, prices, without, look, mean_wait(look));
  const Time at_once = step_of(schedule, prices, without, look, {});
  return {step, speed, step > Time{} ? 1 - value(at_once) / value(step) : 0, away};
}

std::string movement_text(const Judgement& j, const std::string& cores) {
  if (j.speeds.empty()) return fmt::format("{} ran at {:.0f} % of their calibrated speed", cores, 100 * j.speed);
  const auto [slowest, fastest] = std::ranges::minmax_element(j.speeds);
  return fmt::format(
      "{} ran at {:.0f} to {:.0f} % of their calibrated speed; other programs used them for {:.0f} % of the time",
      cores, 100 * *slowest, 100 * *fastest, 100 * j.away);
}

}  // namespace pipewright::study
