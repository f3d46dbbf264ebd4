// The whole training: what one step's rate comes to in days, device-hours, energy and money, and what failures add.
//
//     samples    = tokens / tokens per sample,   or epochs * samples per epoch
//     steps      = ceil(samples / global batch),   days = steps * step time / 86400 s
//     device-h   = devices of the plan * hours,    cost = sum over devices of price per hour * hours
//     energy     = sum over devices of power * the time that they compute = power * (1 - bubble) * time
// 1 M samples in batches of 64: 15625 steps; of 2 s each: 8.68 h. On 8 devices of 3.00 an hour and 400 W with a bubble
// of 25 %: 69.4 device-hours, 208.33 of money, 20.83 kWh.    tests/core/campaign_test.cpp "The whole training"
//
// Power is the device's thermal design power: devices that compute draw less than that in the mean, so the energy is an
// upper estimate of what computing takes; what idle devices, hosts, network and cooling draw is not in it.
// `energy_most` counts the power all the time.
//
// Failures come to a device at the constant rate 1 / mtbf, independent of the others: all of them together fail every
//     M = 1 / (sum over devices of 1 / mtbf)                                        1024 devices of 50000 h: 48.8 h
// Every tau of training a checkpoint is written, which takes delta; a failure takes the work since the last one, and a
// restart, which takes R and may fail, too. The training takes, over its time without failures and checkpoints,
//     1 / goodput = M e^(R/M) (e^((tau + delta)/M) - 1) / tau                       [Daly06]
// M = 1 h, R = 5 min, delta = 1 min, tau = 10 min: 1.3122, so the goodput is 76.2 %.
// The interval for which that is least:
//     tau = sqrt(2 delta M)                                                         [Young74]: 657.3 s
//     tau = sqrt(2 delta M) (1 + sqrt(delta/2M)/3 + (delta/2M)/9) - delta where delta < 2M, else M
//                                                                                   [Daly06]: 617.9 s
//                                                         tests/core/campaign_test.cpp "the best checkpoint interval"
// tests/core/goodput_test.cpp simulates the same training, failure by failure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/plan/plan.hpp"
#include "core/question/campaign_request.hpp"
#include "core/question/scenario.hpp"
#include "core/units.hpp"

namespace pipewright::core {

struct Report;

struct Quantiles {
  double p5 = 0, p50 = 0, p95 = 0;
};
// Of at least one value, between neighbours on the line: of 0, 1, ..., 10 the 5 % quantile is 0.5.
Quantiles quantiles(std::vector<double> values);

// What failures make of a training.
struct GoodputReport {
  Time mtbf;  // of all devices together
  Time checkpoint, restart;
  Time young, daly;     // best intervals
  Time interval;        // that is used
  double formula = 0;   // share of the time that goes into the training
  double failures = 0;  // expected in the whole training, by formula
};

// Drawn anew `trials` times; seconds and bytes.
struct SpreadReport {
  std::int64_t trials = 0, seed = 0;
  std::optional<Quantiles> step_time;  // seconds
  std::string step_distribution;       // what was drawn, from which distribution; or why nothing was
  std::optional<Quantiles> memory;     // bytes, of the fullest device
  double not_fitting = 0;              // share of the trials
  std::string memory_distribution;     // likewise
};

struct Campaign {
  std::string length;   // "15T tokens"
  double samples = 0;   //
  double steps = 0;     // whole
  double duration = 0;  // seconds, without failures
  // Days with all efficiencies at the upper and at the lower ends of their bands, where they have bands.
  std::optional<double> days_low, days_high;
  std::int64_t devices = 0;  // of the plan
  double device_hours = 0;
  std::optional<double> cost;  // in the currency of the prices
  std::optional<Energy> energy, energy_most;
  std::optional<GoodputReport> goodput;
  std::optional<SpreadReport> spread;
  std::vector<std::string> missing;  // what cannot be told, which key it needs and how to give it
  std::vector<std::string> known;    // how the figures are known and how wrong they may be

  double days() const { return duration / 86400; }
  // With failures, by formula; nothing where the goodput is not known.
  std::optional<double> days_expected() const;
  std::optional<double> cost_expected() const;
};

// Throws InputError, at the place of the length, where it cannot be counted in samples, and where a question that `ask`
// names lacks a key. A scenario without `campaign` is good.
void check_campaign(const Scenario& scenario);

// All but what is drawn. Nothing: the scenario does not ask, or the step takes no time.
// Throws as check_campaign does.
std::optional<Campaign> campaign(const Scenario& scenario, const Plan& plan, const Report& report);

// Mean time between failures of all devices of the plan; nothing where a class has none.
std::optional<Time> mtbf_of(const Scenario& scenario, const Plan& plan);

// See above. Times in nanoseconds, more than 0; `restart` may be 0.
Time young_interval(Time checkpoint, Time mtbf);
Time daly_interval(Time checkpoint, Time mtbf);
double goodput_by_formula(Time interval, Time checkpoint, Time restart, Time mtbf);

// Of one device of a class: `campaign:` has one for all, else the device's own.
std::optional<double> price_per_hour(const Scenario& scenario, int device_class);
std::optional<Time> mtbf(const Scenario& scenario, int device_class);

// Of one device, for "cluster.other_nodes.old.device.mtbf".
std::string device_key(const Cluster& cluster, int device_class, const char* key);

}  // namespace pipewright::core
