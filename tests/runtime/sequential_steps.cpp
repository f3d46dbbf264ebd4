#include "tests/runtime/sequential_steps.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <doctest/doctest.h>

#include "core/plan/op_index.hpp"
#include "runtime/backends/cpu.hpp"
#include "runtime/sequential.hpp"

namespace pipewright::tests {
namespace {

class Steps : Sequential {
 public:
  using Sequential::Sequential;

  std::vector<std::vector<float>> weights_after(int steps) {
    PP_CHECK(run_.plan->expert_parallel == 1);
    versions_.resize(run_.code.size()), states_.resize(run_.code.size()), stored_.resize(run_.code.size());
    updates_.resize(run_.code.size());
    for (std::size_t v = 0; v < run_.code.size(); ++v) {
      versions_[v].push_back(copy_of(v, masters_[v].at()));
      stored_[v].push_back(stored_of(run_.code[v], masters_[v]));
    }
    for (int step = 0; step < steps; ++step)
      do_step(step);
    std::vector<std::vector<float>> last;
    for (std::size_t v = 0; v < run_.code.size(); ++v)
      last.push_back(values_of(v, versions_[v].back()));
    return last;
  }

  double loss() {
    double sum = 0;
    for (CopyId copy = 0; copy < run_.plan->copies(); ++copy) {
      for (MicroBatchId m = 0; copy % together() == 0 && m < run_.schedule->shape.micro_batches; ++m)
        for (std::size_t v = 0; v < run_.code.size(); ++v)
          follow(copy, v, m, run_.code[v].forward, {});
      for (const Lane& lane : run_.schedule->positions) {
        double mine = 0;
        for (const Op& op : lane.compute)
          if (op.kind == Kind::F && run_.code[op.virtual_stage].label_rows > 0)
            for (const float value : losses_.at({copy, static_cast<MicroBatchId>(op.micro_batch)}))
              mine += static_cast<double>(value);
        sum += mine;
      }
    }
    return sum / static_cast<double>(run_.plan->global_batch_size * run_.plan->context_parallel *
                                     run_.schedule->shape.slices);
  }

 private:
  // Versions are counted from that of the step's begin.
  void do_step(std::int64_t step) {
    const Schedule& schedule = *run_.schedule;
    const auto workers = static_cast<std::size_t>(run_.plan->workers());
    begin(step);
    sums_.clear(), backwards_.clear();
    for (auto* const all : {&versions_, &stored_})
      for (std::vector<Block>& versions : *all)
        versions.erase(versions.begin(), versions.end() - 1);
    std::vector<std::size_t> next(workers);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t w = 0; w < workers; ++w) {
        if (!leads(w)) continue;
        const auto position = w % schedule.positions.size();
        const auto& ops = schedule.lane_of(WorkerId{w}).compute;
        while (next[w] < ops.size() && done(static_cast<WorkerId>(w), ops[next[w]], run_.versions[position][next[w]]))
          ++next[w], moved = true;
      }
    }
    for (std::size_t w = 0; w < workers; ++w)
      PP_CHECK(!leads(w) || next[w] == schedule.lane_of(WorkerId{w}).compute.size());
  }

  // Of workers that share sequences the first acts for all.
  bool leads(std::size_t worker) const {
    return static_cast<CopyId>(worker) / run_.plan->positions() % together() == 0;
  }

  int round_of(const Op& op) const { return run_.schedule->rounds().of(op.virtual_stage, op.micro_batch); }

  // Does the op if what it needs is there.
  bool done(WorkerId worker, const Op& op, const OpVersions& versions) {
    const auto v = static_cast<std::size_t>(op.virtual_stage);
    const CopyId copy = worker / run_.plan->positions();
    const auto m = static_cast<MicroBatchId>(op.micro_batch);
    if (op.kind == Kind::Update) return updated(v, static_cast<int>(op.micro_batch));
    const bool again = recomputed(run_.schedule->shape, op.virtual_stage, m);
    const std::vector<Instruction>& line = run_.code[v].line(op.kind, again);
    for (const Instruction& i : line)
      if (i.verb == Verb::Receive && !arrived(i, run_.code[v], copy, m)) return false;
    weights_[v] = stored_[v].at(static_cast<std::size_t>(versions.version)).at();
    std::vector<std::byte*> gradients;
    if (op.kind == Kind::BW || op.kind == Kind::W || op.kind == Kind::B)
      for (int part = 0; part < together(); ++part) {
        Block& block = sums_[{v, round_of(op), worker + part * run_.plan->positions()}];
        if (block.memory == nullptr) block = zeros_of(v);
        gradients.push_back(block.at());
      }
    follow(copy, v, m, line, gradients);
    if (op.kind == Kind::BW || op.kind == Kind::W) backwards_[{v, round_of(op)}] += together();
    return true;
  }
  bool arrived(const Instruction& i, const ChunkCode& code, CopyId copy, MicroBatchId m) const {
    const Port& port =
        i.forward ? code.in[static_cast<std::size_t>(i.other)] : code.out[static_cast<std::size_t>(i.other)];
    return messages_.find({port.edge, i.forward, copy, m}) != messages_.end();
  }

  // Micro-batches of a round, over all copies.
  int micro_batches_of(std::size_t v, int round) const {
    const std::int64_t here = run_.schedule->rounds().micro_batches(static_cast<VirtualStageId>(v), round);
    return static_cast<int>(here) * run_.plan->copies();
  }

  // Rounds of reductions of an update, in the order in which the first holder's backwards close them.
  std::vector<int> rounds_of(std::size_t v, int update) const {
    const core::Rounds rounds = run_.schedule->rounds();
    const auto chunk = static_cast<VirtualStageId>(v);
    std::vector<int> of;
    const auto add = [&](int round) {
      if (rounds.update_of(round) == update && std::ranges::count(of, round) == 0) of.push_back(round);
    };
    const PositionId first = run_.schedule->seating().position(chunk, 0);
    for (const Op& op : run_.schedule->positions[first].compute)
      if (op.virtual_stage == v && rule(op.kind).gradients) add(round_of(op));
    for (int round = 0; round < rounds.count(chunk); ++round)
      add(round);
    return of;
  }

  void add_term(std::size_t v, Block& sum, const Block& term) {
    if (sum.memory == nullptr)
      sum = copy_of(v, term.at());
    else
      backend_.add(reinterpret_cast<float*>(sum.at()), reinterpret_cast<const float*>(term.at()),
                   run_.code[v].gradient_bytes / 4);
  }

  // The sum of an update's gradients: each round's in the order of the workers, then in that of the rounds.
  Block summed(std::size_t v, const std::vector<int>& rounds) {
    Block sum;
    for (const int round : rounds) {
      Block one;
      for (const auto& [key, block] : sums_)
        if (std::get<0>(key) == v && std::get<1>(key) == round) add_term(v, one, block);
      if (one.memory != nullptr) add_term(v, sum, one);
    }
    return sum.memory == nullptr ? zeros_of(v) : std::move(sum);
  }

  // In their order, each once, whichever of its members asks first.
  bool updated(std::size_t v, int update) {
    const auto made = static_cast<int>(versions_[v].size()) - 1;
    if (made > update) return true;
    const std::vector<int> rounds = rounds_of(v, update);
    if (made < update || std::ranges::any_of(rounds, [&](int round) {
          return backwards_[{v, round}] < micro_batches_of(v, round);
        }))
      return false;
    const Block sum = summed(v, rounds);
    backend_.scale(reinterpret_cast<float*>(sum.at()), run_.code[v].gradient_bytes / 4,
                   run_.gradient_factor(static_cast<int>(v), update));
    while (static_cast<int>(states_[v].size()) < run_.states)
      states_[v].push_back(zeros_of(v));
    Block after = copy_of(v, versions_[v].back().at());
    std::vector<UpdatedParameter> updated;
    for (const CodeParameter& parameter : run_.code[v].parameters) {
      updated.push_back({parameter.tensor.elements,
                         reinterpret_cast<const float*>(versions_[v].back().at() + parameter.offset),
                         reinterpret_cast<float*>(after.at() + parameter.offset),
                         reinterpret_cast<const float*>(sum.at() + parameter.offset)});
      for (std::size_t s = 0; s < states_[v].size(); ++s)
        updated.back().states[s] = reinterpret_cast<float*>(states_[v][s].at() + parameter.offset);
    }
    backend_.update(settings_.optimizer, ++updates_[v], updated);
    backend_.finish();
    stored_[v].push_back(stored_of(run_.code[v], after));
    versions_[v].push_back(std::move(after));
    return true;
  }

  // Any schedule: weights by version as they are updated and as they are read, optimizer states, gradients by round and
  // worker, how many backwards they hold.
  std::vector<std::vector<Block>> versions_, stored_, states_;
  std::map<std::tuple<std::size_t, int, WorkerId>, Block> sums_;
  std::map<std::pair<std::size_t, int>, int> backwards_;
  std::vector<std::int64_t> updates_;  // of all steps, by virtual stage
};

}  // namespace

double sequential_loss(const RunPlan& run, const BackendMaker& backend, const Data& data, const RunSettings& settings) {
  PP_CHECK(run.schedule->flush);
  const std::unique_ptr<Backend> device = backend();
  return Steps(run, *device, data, settings).loss();
}

std::vector<std::vector<float>> sequential_weights(const RunPlan& run, const BackendMaker& backend, const Data& data,
                                                   const RunSettings& settings, int steps) {
  const std::unique_ptr<Backend> device = backend();
  return Steps(run, *device, data, settings).weights_after(steps);
}

std::vector<WorkerResult> check_bits_of_one_worker(const runtime_test::RunCase& run, runtime_test::Wait wait) {
  RunSettings settings = runtime_test::one_step();
  settings.optimizer.kind = run.scenario.training.optimizer;
  std::vector<WorkerResult> workers = run.run(settings, wait);
  CHECK(loss_of(workers, 0) == sequential_loss(run.run_plan, cpu_backend, *run.data, settings));
  for (int device = 0; device < run.plan.expert_parallel; ++device) {
    const auto reference = sequential_gradients(run.run_plan, cpu_backend, *run.data, settings, device);
    std::vector<char> seen(reference.size());
    for (std::size_t w = 0; w < workers.size(); ++w) {
      if (run.run_plan.expert_device(static_cast<CopyId>(w) / run.plan.positions()) != device) continue;
      for (std::size_t v = 0; v < workers[w].gradients.size(); ++v)
        if (!workers[w].gradients[v].empty()) {
          seen[v] = 1;
          CHECK(runtime_test::differing(workers[w].gradients[v], reference[v]) == 0);
        }
    }
    CHECK(std::ranges::count(seen, 1) == std::ssize(seen));
  }
  for (std::size_t w = 0; w < workers.size(); ++w)
    CHECK(workers[w].memory == replayed(run.run_plan, static_cast<PositionId>(w) % run.plan.positions()));
  return workers;
}

}  // namespace pipewright::tests
