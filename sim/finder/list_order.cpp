#include "sim/finder/list_order.hpp"

#include <algorithm>
#include <limits>

namespace pipewright::sim {
namespace {

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max() / 4;

std::int64_t share(double of, std::int64_t length) {
  return static_cast<std::int64_t>(of * static_cast<double>(length));
}

}  // namespace

ListScheduler::ListScheduler(const OrderProblem& problem)
    : pricer_(problem),
      loop_(problem.chunk_order == ChunkOrder::Loop && problem.virtual_stages > 1),
      stages_(at(problem.stages)) {
  const std::size_t chunks = at(problem.chunks());
  while (leaves_ < stages_.size())
    leaves_ *= 2;
  winner_.resize(2 * leaves_);
  forward_at_.resize(chunks * at(problem.micro_batches)), input_at_.resize(chunks * at(problem.micro_batches));
  forwards_.resize(chunks), inputs_.resize(chunks), weights_.resize(chunks);
  const OrderProblem passes = problem.without_recomputation().without_pairs();
  growth_.resize(stages_.size());
  for (StageId k = 0; k < problem.stages; ++k) {
    least_work_.push_back(passes.work(k));
    for (int row = 0; row < problem.virtual_stages; ++row) {
      const std::size_t c = at(pricer_.chunk_at(k, row));
      growth_[at(k)] = std::max(growth_[at(k)], problem.kept_after_input[c] - problem.held[c]);
    }
  }
}

void ListScheduler::set_next(StageId stage, std::int64_t time) {
  stages_[at(stage)].next = time;
  const auto next = [&](StageId k) { return at(k) < stages_.size() ? stages_[at(k)].next : kUnknown; };
  for (std::size_t node = (leaves_ + at(stage)) / 2; node > 0; node /= 2) {
    const StageId a = winner_[2 * node], b = winner_[2 * node + 1];
    winner_[node] = next(a) <= next(b) ? a : b;
  }
}

void ListScheduler::wake(StageId stage, std::int64_t arrival) {
  const std::int64_t time = std::max(arrival, stages_[at(stage)].free);
  if (time < stages_[at(stage)].next) set_next(stage, time);
}

ListScheduler::Choice ListScheduler::pair_up(const ListRule& rule, StageId stage, std::int64_t now,
                                             VirtualStageId forward_of, VirtualStageId input_of) const {
  const OrderProblem& problem = pricer_.problem();
  const Stage& me = stages_[at(stage)];
  const std::size_t f = at(forward_of), b = at(input_of), M = at(problem.micro_batches);
  const std::int64_t saved = problem.forward[f] + problem.again_of(input_of, inputs_[b]) + problem.input[b] +
                             problem.weights[b] -
                             problem.pair[f * at(problem.virtual_stages) + at(pricer_.row_of(input_of))];
  const std::int64_t held = me.held + problem.held[f], growth = problem.kept_after_input[b] - problem.held[b];
  if (saved <= 0 || weights_[b] < inputs_[b] || me.in_flight > rule.most[at(stage)] ||
      held + std::max<std::int64_t>(0, growth) > problem.cap[at(stage)])
    return {};
  const std::int64_t both = std::max(forward_at_[f * M + at(forwards_[f])], input_at_[b * M + at(inputs_[b])]);
  if (both <= now) return {.kind = 3, .chunk = forward_of, .backward = input_of};
  return {.ask_again = both <= now + share(rule.partner, saved) ? both : 0};
}

bool ListScheduler::is_of_oldest(StageId stage, VirtualStageId chunk) const {
  return forwards_[at(chunk)] == forwards_[at(pricer_.chunk_at(stage, pricer_.problem().virtual_stages - 1))];
}

bool ListScheduler::leaves_room(StageId stage, VirtualStageId chunk) const {
  if (!loop_ || is_of_oldest(stage, chunk)) return true;
  const OrderProblem& problem = pricer_.problem();
  std::int64_t held = stages_[at(stage)].held + problem.held[at(chunk)] + growth_[at(stage)];
  for (int row = 0; row < problem.virtual_stages; ++row)
    if (const VirtualStageId each = pricer_.chunk_at(stage, row); is_of_oldest(stage, each))
      held += problem.held[at(each)];
  return held <= problem.cap[at(stage)];
}

ListScheduler::Choice ListScheduler::choose(const ListRule& rule, StageId stage, std::int64_t now) const {
  const OrderProblem& problem = pricer_.problem();
  const Stage& me = stages_[at(stage)];
  const int v = problem.virtual_stages, M = problem.micro_batches;
  std::int64_t input = kUnknown, forward = kUnknown;
  VirtualStageId input_of = -1, forward_of = -1, weights_of = -1;
  int oldest = M;
  for (int row = v - 1; row >= 0; --row) {
    const VirtualStageId chunk = pricer_.chunk_at(stage, row);
    const std::size_t c = at(chunk);
    if (inputs_[c] < M && (input_of < 0 || input > now))
      if (const std::int64_t arrival = input_at_[c * at(M) + at(inputs_[c])]; arrival < input)
        input = arrival, input_of = chunk;
    if (weights_[c] < inputs_[c] && weights_[c] <= oldest) oldest = weights_[c], weights_of = chunk;
  }
  for (int i = 0; i < v; ++i) {
    const VirtualStageId chunk = pricer_.chunk_at(stage, rule.deep_first ? v - 1 - i : i);
    const std::size_t c = at(chunk);
    if (forwards_[c] < M && (forward_of < 0 || forward > now) && leaves_room(stage, chunk))
      if (const std::int64_t arrival = forward_at_[c * at(M) + at(forwards_[c])]; arrival < forward)
        forward = arrival, forward_of = chunk;
  }
  if (rule.partner >= 0 && input_of >= 0 && forward_of >= 0 && !problem.pair.empty())
    if (const Choice cell = pair_up(rule, stage, now, forward_of, input_of); cell.kind >= 0 || cell.ask_again > now)
      return cell;
  const std::size_t back = at(std::max<int>(input_of, 0));
  const bool input_fits = me.held + problem.kept_after_input[back] - problem.held[back] <= problem.cap[at(stage)];
  if (input <= now && (input_fits || weights_of < 0)) return {.kind = 1, .chunk = input_of};
  if (input <= now) return {.kind = 2, .chunk = weights_of};
  const bool admitted =
      forward_of >= 0 && (me.in_flight < rule.most[at(stage)] || (loop_ && is_of_oldest(stage, forward_of)));
  // Room for what a B behind it needs more than its F left.
  const bool full =
      forward_of >= 0 && me.held + problem.held[at(forward_of)] + growth_[at(stage)] > problem.cap[at(stage)];
  if (admitted && !full && forward <= now &&
      input >= now + share(rule.patience[at(stage)], problem.forward[at(forward_of)]))
    return {.kind = 0, .chunk = forward_of};
  if (weights_of >= 0) {
    std::int64_t next = input;
    if (admitted && !full) next = std::min(next, std::max(forward, now));
    if (admitted && full && forward <= now) next = kUnknown;
    if (next - now >= share(rule.margin[at(stage)], problem.weights[at(weights_of)]))
      return {.kind = 2, .chunk = weights_of};
  }
  std::int64_t again = input;
  if (admitted && !full && forward > now) again = std::min(again, forward);
  return {.ask_again = again > now ? again : kUnknown};
}

void ListScheduler::end_forward(VirtualStageId chunk, std::int64_t end) {
  const OrderProblem& problem = pricer_.problem();
  Stage& me = stages_[at(pricer_.stage_of(chunk))];
  const std::size_t c = at(chunk), M = at(problem.micro_batches), m = at(forwards_[c]++);
  me.held += problem.held[c], ++me.in_flight;
  if (problem.last(chunk)) {
    input_at_[c * M + m] = end;
  } else {
    const std::int64_t arrival = forward_at_[(c + 1) * M + m] = end + problem.down[c];
    wake(pricer_.stage_of(chunk + 1), arrival);
  }
}

void ListScheduler::end_input(VirtualStageId chunk, std::int64_t end) {
  const OrderProblem& problem = pricer_.problem();
  Stage& me = stages_[at(pricer_.stage_of(chunk))];
  const std::size_t c = at(chunk), M = at(problem.micro_batches), m = at(inputs_[c]++);
  me.held += problem.kept_after_input[c] - problem.held[c], --me.in_flight;
  if (!problem.first(chunk)) {
    const std::int64_t arrival = input_at_[(c - 1) * M + m] = end + problem.up[c - 1];
    wake(pricer_.stage_of(chunk - 1), arrival);
  }
}

bool ListScheduler::run(const ListRule& rule, std::int64_t limit, PricedOrder& order) {
  const OrderProblem& problem = pricer_.problem();
  const int v = problem.virtual_stages;
  std::ranges::fill(forward_at_, kUnknown);
  for (VirtualStageId chunk = 0; chunk < problem.chunks(); ++chunk)
    if (problem.first(chunk))
      std::fill_n(forward_at_.begin() + chunk * problem.micro_batches, problem.micro_batches, 0);
  std::ranges::fill(input_at_, kUnknown);
  for (auto* const counts : {&forwards_, &inputs_, &weights_})
    std::fill(counts->begin(), counts->end(), 0);
  order.codes.resize(stages_.size());
  for (std::size_t k = 0; k < stages_.size(); ++k) {
    stages_[k] = {.next = kUnknown, .left = std::int64_t{kPassKinds} * v * problem.micro_batches};
    order.codes[k].clear();
  }
  for (std::size_t k = 0; k < leaves_; ++k)
    winner_[leaves_ + k] = static_cast<StageId>(k);
  for (std::size_t node = leaves_ - 1; node > 0; --node)
    winner_[node] = winner_[2 * node];
  for (VirtualStageId chunk = 0; chunk < problem.chunks(); ++chunk)
    if (problem.first(chunk)) set_next(pricer_.stage_of(chunk), 0);
  std::int64_t unfinished = problem.stages;
  while (true) {
    const StageId k = winner_[1];
    Stage& me = stages_[at(k)];
    if (me.next >= kUnknown) break;
    const std::int64_t now = std::max(me.next, me.free);
    const Choice choice = choose(rule, k, now);
    if (choice.kind < 0) {
      set_next(k, choice.ask_again);
      continue;
    }
    if (me.begin < 0) me.begin = now;
    const std::int64_t idle = now - me.busy - (problem.measure == OrderMeasure::Span ? me.begin : 0);
    if (idle > limit - least_work_[at(k)]) return false;
    const std::size_t c = at(choice.chunk);
    std::int64_t end = now;
    int code = choice.kind * v + pricer_.row_of(choice.chunk), passes = 1;
    if (choice.kind == 0) {
      end += problem.forward[c];
      end_forward(choice.chunk, end);
    } else if (choice.kind == 1) {
      end += problem.again_of(choice.chunk, inputs_[c]) + problem.input[c];
      end_input(choice.chunk, end);
    } else if (choice.kind == 2) {
      ++weights_[c];
      end += problem.weights[c], me.held -= problem.kept_after_input[c];
    } else {
      const std::size_t b = at(choice.backward);
      const CodedCell cell{pricer_.row_of(choice.chunk), pricer_.row_of(choice.backward)};
      code = code_of(cell, v), passes = kPassKinds;
      end += problem.pair[c * at(v) + at(cell.backward)];
      end_forward(choice.chunk, end), end_input(choice.backward, end);
      ++weights_[b], me.held -= problem.kept_after_input[b];
    }
    order.codes[at(k)].push_back(static_cast<std::uint8_t>(code));
    me.busy += end - now, me.free = end;
    if ((me.left -= passes) == 0) --unfinished;
    set_next(k, me.left > 0 ? end : kUnknown);
  }
  order.begin.clear(), order.end.clear();
  for (const Stage& stage : stages_)
    order.begin.push_back(stage.begin), order.end.push_back(stage.free);
  return unfinished == 0;
}

}  // namespace pipewright::sim
