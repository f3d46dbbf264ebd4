#include "calibrate/looks.hpp"

#include <utility>

#include "runtime/bytes.hpp"
#include "runtime/measurement.hpp"

namespace pipewright::calibrate {
namespace {

std::vector<std::vector<Time>> op_times_of(const WorkerResult& worker) {
  std::vector<std::vector<Time>> rounds;
  for (const WorkerStep& step : worker.steps) {
    std::vector<Time>& round = rounds.emplace_back();
    for (const Span& span : step.times.compute)
      round.push_back(span.end - span.start);
  }
  return rounds;
}

RunSettings of_rounds(RunSettings settings, const RunPlan& run, const Ranks* ranks) {
  settings.memory_cap = {}, settings.checkpoints = nullptr, settings.pauses = nullptr;
  if (ranks == nullptr) return settings;
  settings.core = ranks->own_core(threads_of(run.schedule->lane_of(ranks->rank())));
  return settings;
}

Blob bytes_of(const std::vector<MachineLook>& looks, std::size_t worker) {
  BytesOut out;
  for (const MachineLook& look : looks) {
    out.put(look[worker].core).put(static_cast<std::uint64_t>(look[worker].rounds.size()));
    for (const std::vector<Time>& round : look[worker].rounds)
      out.put(round);
  }
  return out.bytes();
}

void read_looks(const Blob& bytes, std::size_t worker, std::vector<MachineLook>& looks) {
  BytesIn in(bytes);
  for (MachineLook& look : looks) {
    look[worker].core = in.get<CoreUse>();
    look[worker].rounds.resize(in.counted(1));
    for (std::vector<Time>& round : look[worker].rounds)
      round = in.list<Time>();
  }
}

}  // namespace

std::vector<int> looked_at(const RunSettings& settings) {
  std::vector<int> steps;
  const int timed = settings.steps - settings.warmup;
  for (int i = 0; i < kMachineLooks; ++i) {
    const int step = settings.warmup + timed * i / (kMachineLooks - 1);
    if (steps.empty() || steps.back() != step) steps.push_back(step);
  }
  return steps;
}

MachineLooks::MachineLooks(const RunPlan& run, BackendMaker backend, const Data& data, const RunSettings& settings,
                           double seconds, const Ranks* ranks)
    : rounds_(run, std::move(backend), data, of_rounds(settings, run, ranks), false),
      seconds_(seconds),
      pauses_{looked_at(settings), [this] { look(); }} {
  if (ranks != nullptr) busy_ = {ranks->rank()};
}

void MachineLooks::look() {
  MachineLook& look = looks_.emplace_back();
  for (const WorkerResult& worker : rounds_.measured(seconds_, busy_, kLeastRounds))
    look.push_back({op_times_of(worker), worker.core});
}

std::vector<MachineLook> MachineLooks::taken(Ranks* ranks) {
  if (ranks == nullptr) return std::move(looks_);
  const std::vector<Blob> all = ranks->gathered(bytes_of(looks_, at(ranks->rank())));
  for (std::size_t worker = 0; ranks->first() && worker < all.size(); ++worker)
    read_looks(all[worker], worker, looks_);
  return std::move(looks_);
}

}  // namespace pipewright::calibrate
