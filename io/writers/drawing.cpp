#include "io/writers/drawing.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include <fmt/format.h>

#include "core/answers/idle_devices.hpp"
#include "core/folds.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/names.hpp"

namespace pipewright::io {
namespace {

constexpr std::size_t kMostDrawnOps = std::size_t{1} << 24;  // some 100 bytes each, and as many again for messages

// Of `cap` rows the nearest that is no end gives way to the wanted one: of two rows either end does.
std::vector<int> spread_around(int count, int cap, int wanted) {
  std::vector<int> rows = spread(count, cap);
  if (rows.empty() || std::ranges::binary_search(rows, wanted)) return rows;
  const std::ptrdiff_t ends = rows.size() > 2 ? 1 : 0;
  *std::min_element(rows.begin() + ends, rows.end() - ends,
                    [&](int a, int b) { return std::abs(a - wanted) < std::abs(b - wanted); }) = wanted;
  return rows;
}

// Of its stage, in a copy that is drawn.
WorkerId fullest_worker(const Answer& answer, const StageReport& stage, int drawn) {
  const auto need = [&](WorkerId w) { return answer.report.workers[at(w)].need.to_fit; };
  WorkerId fullest = stage.workers.front();
  for (const WorkerId w : stage.workers)
    if (w < drawn && need(w) > need(fullest)) fullest = w;
  return fullest;
}

}  // namespace

DrawnCopies::DrawnCopies(const Answer& simulated, Of of) : simulated_(simulated) {
  if (!simulated.costs.fold) return;
  if (of == Of::Distinct && distinct_workers(simulated).size() == simulated.schedule.positions.size()) return;
  if (const std::size_t ops = op_count(simulated); ops > kMostDrawnOps)
    throw InputError(fmt::format(
        "{} ops of {} copies are too many to draw; at most {}: draw fewer copies with --set "
        "plan.data_parallel (or context_parallel), or fewer micro-batches with --set training.micro_batches",
        ops, simulated.plan.copies(), kMostDrawnOps));
  whole_ = unfolded(simulated);
}

Look look(Kind kind) {
  switch (kind) {
    case Kind::F: return Look::Forward;
    case Kind::W: return Look::WeightGradient;
    case Kind::R: return Look::Recompute;
    case Kind::Update: return Look::Update;
    case Kind::AllReduce:
    case Kind::TableReduce:
    case Kind::NormReduce: return Look::AllReduce;
    case Kind::AllGather: return Look::AllGather;
    case Kind::Offload:
    case Kind::Reload:
    case Kind::Fetch:
    case Kind::Store: return Look::Move;
    default: return Look::Backward;  // B, BW
  }
}

std::string_view words(Look look) {
  switch (look) {
    case Look::Forward: return "forward";
    case Look::Backward: return "backward";
    case Look::WeightGradient: return "weight gradient";
    case Look::Recompute: return "recompute";
    case Look::Update: return "update";
    case Look::AllReduce: return "all-reduce";
    case Look::AllGather: return "all-gather";
    case Look::Move: return "offload or reload";
    case Look::Idle: break;
  }
  return "idle";
}

std::string worker_name(const Answer& answer, WorkerId worker) {
  const WorkerReport& w = answer.report.workers[at(worker)];
  std::string text = answer.plan.copies() > 1 ? fmt::format("copy {} ", w.copy) : "";
  text += fmt::format("stage {}", w.stage);
  if (answer.plan.replicas[w.stage] > 1) text += fmt::format(" r{}", w.replica);
  return text;
}

const Lane& lane(const Answer& answer, WorkerId worker) {
  return answer.schedule.lane_of(worker);
}

std::vector<int> spread(int count, int cap) {
  std::vector<int> rows;
  const int shown = std::min(count, cap);
  for (int i = 0; i < shown; ++i)
    rows.push_back(shown == 1 ? 0
                              : static_cast<int>((static_cast<long>(i) * (count - 1) + (shown - 1) / 2) / (shown - 1)));
  return rows;
}

std::vector<WorkerId> distinct_workers(const Answer& answer) {
  const auto& workers = answer.timeline.workers;
  const std::size_t positions = answer.schedule.positions.size();
  bool same = true;
  for (std::size_t w = positions; w < workers.size() && same; ++w)
    same = workers[w] == workers[w % positions];
  std::vector<WorkerId> result(same ? positions : answer.report.workers.size());
  std::iota(result.begin(), result.end(), 0);
  return result;
}

std::vector<WorkerId> drawn_workers(const Answer& answer, int cap) {
  const int distinct = static_cast<int>(distinct_workers(answer).size());  // copy 0 comes first
  const StageReport* stage = fullest(answer.report);
  const std::vector<int> rows =
      stage == nullptr ? spread(distinct, cap) : spread_around(distinct, cap, fullest_worker(answer, *stage, distinct));
  return {rows.begin(), rows.end()};
}

std::vector<StageId> drawn_stages(const Answer& answer, int cap) {
  const StageReport* stage = fullest(answer.report);
  const std::vector<int> rows =
      spread_around(static_cast<int>(answer.report.stages.size()), cap, stage == nullptr ? 0 : int{stage->stage});
  return {rows.begin(), rows.end()};
}

std::string how_spread(int count, const std::vector<int>& shown) {
  return shown == spread(count, static_cast<int>(shown.size())) ? "evenly spread" : "evenly spread, and the fullest";
}

std::string not_drawn(const Answer& answer, const std::vector<WorkerId>& shown) {
  const std::size_t drawn = shown.size();
  const std::size_t all = answer.report.workers.size(), distinct = distinct_workers(answer).size();
  if (drawn == all) return {};
  std::string text = fmt::format("{} of {} workers are drawn", drawn, all);
  if (drawn < distinct) text += ", " + how_spread(static_cast<int>(distinct), {shown.begin(), shown.end()});
  if (distinct < all)
    text += fmt::format("; {} copies of the pipeline run the same", answer.plan.copies() == 2 ? "both" : "all");
  return text;
}

bool occurs(const Answer& answer, Look wanted) {
  if (wanted == Look::Idle) return true;
  for (PositionId p = 0; p < std::ssize(answer.schedule.positions); ++p) {
    const Lane& lane = answer.schedule.positions[p];
    const LaneTimes& times = answer.timeline.workers[p];
    const auto takes_time = [&](const std::vector<Op>& ops, const std::vector<Span>& spans) {
      for (std::size_t i = 0; i < ops.size(); ++i)
        if (look(ops[i].kind) == wanted && spans[i].end > spans[i].start) return true;
      return false;
    };
    if (takes_time(lane.compute, times.compute)) return true;
    for (StreamId s = 0; s < kStreams.size(); ++s)
      if (takes_time(lane.communication[s], times.communication[s])) return true;
  }
  return false;
}

std::vector<int> spread(int count, int cap, const std::vector<int>& wanted) {
  std::vector<int> rows = spread(count, cap);
  rows.insert(rows.end(), wanted.begin(), wanted.end());
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

std::string layer_ranges(const std::vector<LayerRange>& ranges) {
  std::string text;
  for (const auto& range : ranges) {
    if (!text.empty()) text += ", ";
    text += range.size() == 1 ? fmt::format("{}", range.begin) : fmt::format("{}-{}", range.begin, range.end - 1);
  }
  return text;
}

std::string question(const Answer& answer) {
  const Plan& plan = answer.plan;
  const auto plural = [](std::int64_t n, std::string_view word) {
    return fmt::format("{} {}{}", n, word, n == 1 ? "" : (word.ends_with('h') ? "es" : "s"));
  };
  std::string text = plural(plan.stages, "stage");
  if (plan.virtual_stages > 1) text += fmt::format(" x {} chunks", plan.virtual_stages);
  if (std::ranges::any_of(plan.replicas, [](int r) { return r > 1; }))
    text += fmt::format(" (replicas {})", fmt::join(plan.replicas, "-"));
  if (plan.tensor_parallel > 1)
    text += fmt::format(" · {} devices per worker{}", plan.tensor_parallel,
                        plan.sequence_parallel ? " (tensor and sequence parallel)" : " (tensor parallel)");
  if (plan.data_parallel > 1) text += fmt::format(" · {} copies", plan.data_parallel);
  if (plan.context_parallel > 1)
    text +=
        fmt::format(" · sequences on {} devices each ({})", plan.context_parallel, name(plan.context_exchange.value));
  if (plan.split().sends_tokens())
    text += fmt::format(" · experts on {} devices each ({})", plan.split().expert_devices(),
                        name(plan.expert_exchange.value));
  text +=
      fmt::format(" · {} of {} · {}", plural(plan.micro_batches, "micro-batch"), plan.micro_batch_size, plan.schedule);
  if (plan.pairs.value == Pairs::Fused) text += ", pairs fused";
  if (plan.barrier.value != Barrier::Flush) text += ", no barrier between steps";
  const Scenario& scenario = *answer.scenario;
  text += fmt::format(" · {} ({})", scenario.model.name,
                      plural(static_cast<std::int64_t>(scenario.model.layers.size()), "layer"));
  if (is_measured(answer)) return text + ", measured on " + answer.timeline.engine_reason;
  text += " on " + devices_in_words(plan, scenario.cluster);
  if (!scenario.cluster.name.empty() && scenario.cluster.name != scenario.cluster.device.name)
    text += fmt::format(" ({})", scenario.cluster.name);
  return text;
}

std::string headline(const Answer& answer) {
  const std::string idle = is_measured(answer) ? "" : idle_devices_in_words(answer.plan, answer.scenario->cluster);
  return question(answer) + (idle.empty() ? "" : " · " + idle);
}

std::string of_capacity(Bytes capacity) {
  return capacity.value > 0 ? " of " + short_bytes(capacity) : "";
}

bool is_measured(const Answer& answer) {
  return answer.timeline.engine == EngineRan::RealRun;
}

std::size_t op_count(const Answer& answer) {
  auto count = sum_over<std::size_t>(answer.schedule.positions, [](const Lane& lane) { return lane.ops(); });
  return count * at(answer.plan.copies());
}

ByStream<std::vector<bool>> stream_rows(const Answer& answer, const std::vector<WorkerId>& shown) {
  const auto stage = [&](WorkerId w) { return answer.report.workers[at(w)].stage; };
  ByStream<std::vector<bool>> rows;
  for (StreamId s = 0; s < kStreams.size(); ++s) {
    const auto spans = [&](WorkerId w) -> const std::vector<Span>& { return answer.times(w).communication[s]; };
    const bool drawn = std::ranges::any_of(answer.timeline.workers, [&](const auto& one) {
      return std::ranges::any_of(one.communication[s], [](const Span& span) { return span.end > span.start; });
    });
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const auto& mine = spans(shown[i]);
      const bool again = std::any_of(shown.begin() + static_cast<std::ptrdiff_t>(i) + 1, shown.end(), [&](WorkerId w) {
        return (kStreams[s].among == Among::All || stage(w) == stage(shown[i])) && spans(w) == mine;
      });
      rows[s].push_back(drawn && !mine.empty() && !again);
    }
  }
  return rows;
}

}  // namespace pipewright::io
