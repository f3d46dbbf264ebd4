#include "sim/finder/problem.hpp"

#include <algorithm>
#include <array>

#include "core/folds.hpp"

namespace pipewright::sim {

std::int64_t OrderProblem::work(StageId stage) const {
  std::int64_t sum = 0;
  for (VirtualStageId v = 0; v < chunks(); ++v)
    if (seating().stage_of(v) == stage)
      sum += micro_batches * (forward[at(v)] + input[at(v)] + weights[at(v)]) + again_count * again_of(v);
  return sum;
}

OrderProblem OrderProblem::without_pairs() const {
  OrderProblem less = *this;
  less.pair.clear();
  if (pair.empty()) return less;
  const OrderPricer pricer(*this);
  const auto each = [&](auto&& act) {
    for (VirtualStageId f = 0; f < chunks(); ++f)
      for (int row = 0; row < virtual_stages; ++row)
        act(at(f), at(pricer.chunk_at(pricer.stage_of(f), row)), pair[at(f * virtual_stages + row)]);
  };
  // What a cell saves is taken from W, which no other stage waits for; what is left then, from B, and from F.
  const auto take = [&](std::int64_t& time, std::size_t f, std::size_t b, std::int64_t together) {
    const std::int64_t saved = less.forward[f] + less.input[b] + less.weights[b] - together;
    time -= std::clamp<std::int64_t>(saved, 0, time);
  };
  each([&](std::size_t f, std::size_t b, std::int64_t together) { take(less.weights[b], f, b, together); });
  each([&](std::size_t f, std::size_t b, std::int64_t together) { take(less.input[b], f, b, together); });
  each([&](std::size_t f, std::size_t b, std::int64_t together) { take(less.forward[f], f, b, together); });
  return less;
}

OrderProblem OrderProblem::without_recomputation() const {
  OrderProblem less = *this;
  less.again.clear(), less.again_count = 0;
  if (again_count == 0 || pair.empty()) return less;
  const OrderPricer pricer(*this);
  for (VirtualStageId f = 0; f < chunks(); ++f)
    for (int row = 0; row < virtual_stages; ++row) {
      std::int64_t& cell = less.pair[at(f * virtual_stages + row)];
      cell = std::max<std::int64_t>(0, cell - again_of(pricer.chunk_at(pricer.stage_of(f), row)));
    }
  return less;
}

OrderProblem OrderProblem::direction(bool upward) const {
  OrderProblem one = *this;
  one.pair.clear();
  one.virtual_stages = 1, one.chunk_order = ChunkOrder::Loop, one.two_ways = false;
  const auto part = [&](std::vector<std::int64_t>& all, int length) {
    const auto from = all.begin() + (upward ? stages : 0);
    all = std::vector<std::int64_t>(from, from + length);
  };
  for (auto* const each : {&one.forward, &one.input, &one.weights, &one.held, &one.kept_after_input})
    part(*each, stages);
  if (!again.empty()) part(one.again, stages);
  part(one.down, stages - 1), part(one.up, stages - 1);
  if (upward) std::ranges::reverse(one.cap);
  return one;
}

std::int64_t PricedOrder::span() const {
  return most_over<std::int64_t>(counted_to(end.size()), [&](std::size_t k) { return end[k] - begin[k]; });
}

std::int64_t PricedOrder::step() const {
  return end.empty() ? 0 : *std::ranges::max_element(end);
}

OrderPricer::OrderPricer(const OrderProblem& problem) : problem_(problem) {
  const std::size_t chunks = at(problem.chunks()), stages = at(problem.stages);
  const Seating seating = problem.seating();
  stage_of_.resize(chunks), chunk_at_.resize(chunks);
  row_of_.resize(chunks);
  for (VirtualStageId v = 0; v < problem.chunks(); ++v) {
    stage_of_[at(v)] = seating.stage_of(v), row_of_[at(v)] = seating.local(v, stage_of_[at(v)]);
    chunk_at_[at(stage_of_[at(v)] * problem.virtual_stages + row_of_[at(v)])] = v;
  }
  forward_at_.resize(chunks * at(problem.micro_batches)), input_at_.resize(chunks * at(problem.micro_batches));
  position_.resize(stages), waits_for_.resize(stages), count_.resize(chunks * kPassKinds);
}

// Nothing has run: what the first chunks wait for is there, and each stage is asked.
void OrderPricer::set_out(PricedOrder& order) {
  const std::int64_t M = problem_.micro_batches, chunks = problem_.chunks();
  std::ranges::fill(forward_at_, -1);
  for (VirtualStageId chunk = 0; chunk < chunks; ++chunk)
    if (problem_.first(chunk)) std::fill_n(forward_at_.begin() + chunk * M, M, 0);
  std::ranges::fill(input_at_, -1);
  std::ranges::fill(position_, 0);
  std::ranges::fill(count_, 0);
  std::ranges::fill(waits_for_, -1);
  order.begin.assign(at(problem_.stages), -1), order.end.assign(at(problem_.stages), 0);
  ready_.clear();
  for (StageId k = problem_.stages - 1; k >= 0; --k)
    ready_.push_back(k);
}

bool OrderPricer::price(PricedOrder& order) {
  const int v = problem_.virtual_stages;
  const std::int64_t M = problem_.micro_batches, chunks = problem_.chunks();
  set_out(order);
  std::int64_t done = 0;
  const auto wake = [&](StageId stage, std::int64_t arrival) {
    if (waits_for_[at(stage)] == arrival) waits_for_[at(stage)] = -1, ready_.push_back(stage);
  };
  const auto forward_ends = [&](VirtualStageId chunk, std::int64_t here, std::int64_t now) {
    if (problem_.last(chunk)) {
      input_at_[at(here)] = now;
    } else {
      forward_at_[at(here + M)] = now + problem_.down[at(chunk)];
      wake(stage_of(chunk + 1), here + M);
    }
  };
  const auto input_ends = [&](VirtualStageId chunk, std::int64_t here, std::int64_t now) {
    if (problem_.first(chunk)) return;
    input_at_[at(here - M)] = now + problem_.up[at(chunk - 1)];
    wake(stage_of(chunk - 1), chunks * M + here - M);
  };
  while (!ready_.empty()) {
    const StageId k = ready_.back();
    ready_.pop_back();
    const PassCodes& codes = order.codes[at(k)];
    std::int64_t now = order.end[at(k)];
    std::size_t i = position_[at(k)];
    for (; i < codes.size(); ++i) {
      if (const auto cell = cell_of(codes[i], v)) {
        const VirtualStageId f = chunk_at(k, cell->forward), b = chunk_at(k, cell->backward);
        int& forwards = count_[at(f)];
        int& inputs = count_[at(chunks + b)];
        int& weights = count_[at(2 * chunks + b)];
        if (problem_.pair.empty() || forwards >= M || inputs >= M || weights != inputs) return false;
        const std::int64_t here = f * M + forwards, back = b * M + inputs;
        const std::int64_t arrival = forward_at_[at(here)], back_arrival = input_at_[at(back)];
        if (arrival < 0 || back_arrival < 0) {
          waits_for_[at(k)] = arrival < 0 ? here : chunks * M + back;
          break;
        }
        now = std::max({now, arrival, back_arrival});
        if (order.begin[at(k)] < 0) order.begin[at(k)] = now;
        now += problem_.pair[at(f * v + cell->backward)];
        forward_ends(f, here, now), input_ends(b, back, now);
        ++forwards, ++inputs, ++weights, done += kPassKinds;
        continue;
      }
      const int kind = codes[i] / v;
      const VirtualStageId chunk = chunk_at(k, codes[i] % v);
      int& m = count_[at(kind * chunks + chunk)];
      if (m >= M) return false;
      const std::int64_t here = chunk * M + m;
      if (kind == 0) {
        const std::int64_t arrival = forward_at_[at(here)];
        if (arrival < 0) {
          waits_for_[at(k)] = here;
          break;
        }
        now = std::max(now, arrival);
        if (order.begin[at(k)] < 0) order.begin[at(k)] = now;
        now += problem_.forward[at(chunk)];
        forward_ends(chunk, here, now);
      } else if (kind == 1) {
        const std::int64_t arrival = input_at_[at(here)];
        if (arrival < 0) {
          waits_for_[at(k)] = chunks * M + here;
          break;
        }
        now = std::max(now + problem_.again_of(chunk, m), arrival) + problem_.input[at(chunk)];
        input_ends(chunk, here, now);
      } else {
        if (m >= count_[at(chunks + chunk)]) return false;
        now += problem_.weights[at(chunk)];
      }
      ++m, ++done;
    }
    position_[at(k)] = i, order.end[at(k)] = now;
  }
  return done == kPassKinds * chunks * M;
}

const std::vector<std::int64_t>& OrderPricer::begins(const PricedOrder& order, StageId stage) {
  std::vector<std::int64_t>& begins = begins_[at(stage)];
  if (!begins.empty()) return begins;
  const int v = problem_.virtual_stages;
  const std::int64_t M = problem_.micro_batches;
  std::vector<std::int64_t> turn(at(kPassKinds * v), 0);
  std::int64_t now = 0;
  for (const std::uint8_t code : order.codes[at(stage)]) {
    const auto cell = cell_of(code, v);
    const int forward = cell ? cell->forward : code / v == 0 ? code : -1;
    const int input = cell ? cell->backward : code / v == 1 ? code % v : -1;
    if (forward >= 0) now = std::max(now, forward_at_[at(chunk_at(stage, forward) * M + turn[at(forward)]++)]);
    if (input >= 0) {
      const VirtualStageId chunk = chunk_at(stage, input);
      const std::int64_t m = turn[at(v + input)]++;
      now = std::max(now + (cell ? 0 : problem_.again_of(chunk, m)), input_at_[at(chunk * M + m)]);
    }
    begins.push_back(now);
    now += length(stage, code);
  }
  return begins;
}

std::int64_t OrderPricer::length(StageId stage, int code) const {
  const int v = problem_.virtual_stages;
  if (const auto cell = cell_of(code, v)) return problem_.pair[at(chunk_at(stage, cell->forward) * v + cell->backward)];
  const std::array all = {&problem_.forward, &problem_.input, &problem_.weights};
  return (*all[at(code / v)])[at(chunk_at(stage, code % v))];
}

// The pass of another stage whose message has come when this one begins; stage -1: there is none.
OrderPricer::Place OrderPricer::sender(const PricedOrder& order, Place of, std::int64_t begin) const {
  const int v = problem_.virtual_stages;
  const std::int64_t M = problem_.micro_batches;
  const auto runs = [&](int code, int kind, int row) {
    const auto cell = cell_of(code, v);
    return cell ? (kind == 0 ? cell->forward : cell->backward) == row : code == kind * v + row;
  };
  const PassCodes& codes = order.codes[at(of.stage)];
  const auto cell = cell_of(codes[at(of.index)], v);
  for (const int kind : {0, 1}) {
    if (!cell && codes[at(of.index)] / v != kind) continue;
    const int row = !cell ? codes[at(of.index)] % v : kind == 0 ? cell->forward : cell->backward;
    const VirtualStageId chunk = chunk_at(of.stage, row), from = chunk + (kind == 0 ? -1 : 1);
    if (kind == 0 ? problem_.first(chunk) : problem_.last(chunk)) continue;
    auto turn =
        sum_over<std::int64_t>(counted_to(of.index), [&](int i) { return runs(codes[at(i)], kind, row) ? 1 : 0; });
    if ((kind == 0 ? forward_at_ : input_at_)[at(chunk * M + turn)] != begin) continue;
    const PassCodes& theirs = order.codes[at(stage_of(from))];
    for (int i = 0; i < static_cast<int>(theirs.size()); ++i)
      if (runs(theirs[at(i)], kind, row_of(from)) && turn-- == 0) return {stage_of(from), i};
  }
  return {-1, 0};
}

const std::vector<OrderPricer::Place>& OrderPricer::critical_path(const PricedOrder& order, StageId stage) {
  begins_.assign(at(problem_.stages), {});
  path_.clear();
  Place at_now{stage, static_cast<int>(order.codes[at(stage)].size()) - 1};
  while (at_now.stage >= 0) {
    path_.push_back(at_now);
    const auto [k, i] = at_now;
    const std::vector<std::int64_t>& begin = begins(order, k);
    // A recomputation before it counts as part of the pass.
    const bool follows = i > 0 && begin[at(i)] == begin[at(i - 1)] + length(k, order.codes[at(k)][at(i - 1)]);
    at_now = follows ? Place{k, i - 1} : sender(order, at_now, begin[at(i)]);
    if (at_now.stage < 0 && i > 0) at_now = {k, i - 1};
  }
  return path_;
}

std::int64_t OrderPricer::peak(StageId stage, const PassCodes& codes) const {
  const int v = problem_.virtual_stages;
  std::int64_t held = 0, most = 0;
  for (const std::uint8_t code : codes) {
    if (const auto cell = cell_of(code, v)) {
      const std::size_t b = at(chunk_at(stage, cell->backward));
      most = std::max(most, held += problem_.held[at(chunk_at(stage, cell->forward))]);
      most = std::max(most, held + problem_.kept_after_input[b] - problem_.held[b]);
      held -= problem_.held[b];
      continue;
    }
    const std::size_t chunk = at(chunk_at(stage, code % v));
    switch (code / v) {
      case 0: most = std::max(most, held += problem_.held[chunk]); break;
      case 1: most = std::max(most, held += problem_.kept_after_input[chunk] - problem_.held[chunk]); break;
      default: held -= problem_.kept_after_input[chunk];
    }
  }
  return most;
}

ScheduleShape shape_of_ops(const OrderProblem& problem) {
  return {.stages = problem.stages,
          .virtual_stages = problem.two_ways ? 1 : problem.virtual_stages,
          .micro_batches = problem.micro_batches * (problem.two_ways ? 2 : 1),
          .chunk_order = problem.two_ways ? ChunkOrder::BothWays : problem.chunk_order};
}

std::vector<std::vector<Op>> ops_of(const OrderProblem& problem, const std::vector<PassCodes>& codes) {
  const OrderPricer pricer(problem);
  const ScheduleShape shape = shape_of_ops(problem);
  const Seating seating = shape.seating();
  constexpr std::array kKinds3 = {Kind::F, Kind::B, Kind::W};
  std::vector<std::vector<Op>> ops(codes.size());
  std::vector<std::uint32_t> count(at(problem.chunks() * kPassKinds), 0);
  const auto add = [&](std::size_t k, int kind, int row, Kind name) {
    VirtualStageId chunk = pricer.chunk_at(static_cast<StageId>(k), row);
    std::uint32_t m = count[at(kind * problem.chunks() + chunk)]++;
    if (problem.two_ways) {
      const int holder = chunk < problem.stages ? 0 : 1;
      chunk -= holder * problem.stages;
      m = static_cast<std::uint32_t>(seating.micro_batch(chunk, holder, m));
    }
    ops[k].push_back({.kind = name, .virtual_stage = static_cast<std::uint16_t>(chunk), .micro_batch = m});
  };
  for (std::size_t k = 0; k < codes.size(); ++k)
    for (const std::uint8_t code : codes[k])
      if (const auto cell = cell_of(code, problem.virtual_stages)) {
        add(k, 0, cell->forward, Kind::F);
        ops[k].back().with_next = 1;
        add(k, 1, cell->backward, Kind::BW);
        ++count[at(2 * problem.chunks() + pricer.chunk_at(static_cast<StageId>(k), cell->backward))];
      } else {
        const int kind = code / problem.virtual_stages;
        add(k, kind, code % problem.virtual_stages, kKinds3[at(kind)]);
      }
  return ops;
}

std::optional<std::vector<PassCodes>> codes_of(const OrderProblem& problem, const std::vector<std::vector<Op>>& ops,
                                               const Seating& seating) {
  const OrderPricer pricer(problem);
  if (ops.size() != at(problem.stages)) return std::nullopt;
  std::vector<PassCodes> codes(ops.size());
  std::vector<std::int64_t> count(at(problem.chunks() * kPassKinds), 0);
  for (std::size_t k = 0; k < ops.size(); ++k) {
    bool beside = false;  // the F before is in one cell with what follows
    for (const Op& op : ops[k]) {
      const KindRule& does = rule(op.kind);
      if (!does.forward && !does.backward && !does.gradients) continue;
      VirtualStageId chunk = op.virtual_stage;
      std::int64_t turn = op.micro_batch;
      if (problem.two_ways && chunk < problem.stages) {
        chunk += seating.holder_of(chunk, op.micro_batch) * problem.stages;
        turn = seating.turn_of(op.virtual_stage, op.micro_batch);
      }
      if (chunk >= problem.chunks() || pricer.stage_of(chunk) != static_cast<StageId>(k)) return std::nullopt;
      const auto append = [&](int kind) {
        codes[k].push_back(static_cast<std::uint8_t>(kind * problem.virtual_stages + pricer.row_of(chunk)));
        return count[at(kind * problem.chunks() + chunk)]++ == turn;
      };
      bool ascending = true;
      if (does.forward) ascending = append(0);
      if (does.backward) ascending = append(1);
      if (does.gradients) ascending = append(2) && ascending;
      if (!ascending) return std::nullopt;
      if (op.kind == Kind::F) beside = op.with_next != 0;
      if (op.kind == Kind::BW && beside && !problem.pair.empty()) {  // the F, B and W at the end are a cell
        const int forward = codes[k][codes[k].size() - 3], v = problem.virtual_stages;
        codes[k].resize(codes[k].size() - 3);
        codes[k].push_back(code_of({forward, pricer.row_of(chunk)}, v));
      }
      if (op.kind != Kind::F) beside = false;
    }
  }
  return codes;
}

}  // namespace pipewright::sim
