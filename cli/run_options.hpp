// The keys of `run:` as options, for the commands that run, and how these commands end.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "cli/commands.hpp"

namespace pipewright::cli {

inline constexpr std::array<Option, 19> kRunOptions = {{
    {"--backend", "", "NAME", "cpu (default) or cuda; this and the following replace the keys of `run:`"},
    {"--virtual-devices", "", "K", "cuda: groups of SMs, one per worker (default: as many as workers)"},
    {"--gpus", "", "N,N,...", "cuda: GPUs over which workers are distributed (default: 0)"},
    {"--transport", "", "NAME",
     "local (default), throttled: links as slow as the cluster's, staged: through the host's memory, peer: between "
     "GPUs, tcp, mpi: a process each"},
    {"--steps", "", "N", "steps that are timed (default: 20)"},
    {"--warmup", "", "N", "warm-up steps before them (default: 3)"},
    {"--seed", "", "N", "seed of weights and data (default: 1)"},
    {"--data", "", "FILE", "synthetic (default), a text, or images in IDX"},
    {"--loss", "", "NAME", "what the last layer computes: cross_entropy (default)"},
    {"--learning-rate", "", "X", "of the optimizer (default: 0.1)"},
    {"--momentum", "", "X", "of optimizer momentum (default: 0.9)"},
    {"--betas", "", "[X, X]", "decays of adam (default: [0.9, 0.999])"},
    {"--epsilon", "", "X", "of rmsprop and adam (default: 1e-08)"},
    {"--kernels", "", "NAME", "cuda: own products, or the library's (default where cuBLASLt is there)"},
    {"--loss-scale", "", "X", "factor on the loss (default: 1024 in fp16, else 1)"},
    {"--weight-stashing", "", "BOOL", "of asynchronous schedules: true (default) or false"},
    {"--memory-cap", "", "SIZE", "largest arena of a worker (default: none)"},
    {"--timeout", "", "SECONDS", "until a silent worker ends the run (default: 120)"},
    {"--synthetic", "", "",
     "no arithmetic: every op takes its stated time and moves its stated bytes; no `op:` needed"},
}};

// Options one after the other.
template <std::size_t... Sizes>
constexpr auto joined(const std::array<Option, Sizes>&... parts) {
  std::array<Option, (Sizes + ...)> all{};
  std::size_t at = 0;
  const auto take = [&](const auto& part) {
    for (const Option& option : part)
      all[at++] = option;
  };
  (take(parts), ...);
  return all;
}

// The changes `set`, and behind them these options as such: --steps 40 is --set run.steps=40.
std::vector<std::string> with_run_settings(std::vector<std::string> set, const Arguments& arguments);

// The message with "--set run.steps=x", where that stands for an option, as it was given: "--steps x".
std::string with_options_as_given(std::string message, const Arguments& arguments);

// Seconds of --budget. Throws InputError.
double calibration_seconds(const Arguments& arguments);

// Runs `body`; a worker that its cap or its device does not hold is the answer no, on all ranks, a run that failed an
// error with what was measured until then. Both are printed; so is what was measured of a run that was asked to end,
// and behind it what `kept` says is there to go on with.
int with_run_failures(const std::function<int()>& body, const std::function<std::string()>& kept = {});

}  // namespace pipewright::cli
