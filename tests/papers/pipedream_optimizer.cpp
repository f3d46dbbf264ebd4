#include "tests/papers/pipedream_optimizer.hpp"

#include <algorithm>
#include <limits>

#include "core/check.hpp"

namespace pipewright::tests {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

// Sums over layers i..j in O(1).
template <class Unit>
std::vector<double> prefix_sums(const std::vector<Unit>& values, double scale) {
  std::vector<double> sums(values.size() + 1);
  for (std::size_t i = 0; i < values.size(); ++i)
    sums[i + 1] = sums[i] + static_cast<double>(values[i].value) * scale;
  return sums;
}

double stage_time(PipeDreamRule rule, double compute, double bytes, int machines, Bandwidth bandwidth) {
  const auto m = static_cast<double>(machines);
  const double once = (m - 1) * bytes / bandwidth.value;
  switch (rule) {
    case PipeDreamRule::Sosp: return std::max(compute, 2 * once) / m;
    case PipeDreamRule::Released: return (compute + 4 * once / m) / m;
    case PipeDreamRule::Ring: return std::max(compute, 2 * once / m) / m;
  }
  return kNone;
}

// The table of one level: A(i..j, m) with the choice that gives it.
class Level {
 public:
  Level(std::size_t layers, int machines)
      : layers_(layers), machines_(static_cast<std::size_t>(machines)), cells_(layers * layers * machines_) {}

  struct Cell {
    double time = kNone;
    std::int32_t cut = -1;    // last layer of what stands before the last stage; -1: one stage
    std::int32_t behind = 0;  // machines of the last stage
    std::int32_t stages = 1;  // of this level
  };
  Cell& at(std::size_t i, std::size_t j, int m) {
    return cells_[(i * layers_ + j) * machines_ + static_cast<std::size_t>(m) - 1];
  }
  const Cell& at(std::size_t i, std::size_t j, int m) const { return const_cast<Level*>(this)->at(i, j, m); }
  int machines() const { return static_cast<int>(machines_); }

 private:
  std::size_t layers_, machines_;
  std::vector<Cell> cells_;
};

struct Problem {
  const ChainCosts& chain;
  std::span<const MachineLevel> levels;
  PipeDreamRule rule;
  PipeDreamTransfer transfer;
  std::vector<double> compute, bytes;  // prefix sums: seconds, bytes

  double transfer_time(std::size_t cut, int receivers, Bandwidth bandwidth) const {
    if (transfer == PipeDreamTransfer::None) return 0;
    const double time = 2 * static_cast<double>(chain.boundary[cut].value) / bandwidth.value;
    return transfer == PipeDreamTransfer::OverReceivers ? time / receivers : time;
  }
};

// One stage of layers i..j on m machines of level k.
double one_stage(const Problem& problem, const std::vector<Level>& below, std::size_t i, std::size_t j, int m) {
  const std::size_t k = below.size();
  const double compute =
      k == 0 ? problem.compute[j + 1] - problem.compute[i] : below[k - 1].at(i, j, below[k - 1].machines()).time;
  return stage_time(problem.rule, compute, problem.bytes[j + 1] - problem.bytes[i], m, problem.levels[k].bandwidth);
}

void fill(const Problem& problem, const std::vector<Level>& below, Level& level, std::size_t i) {
  const std::size_t layers = problem.chain.compute.size();
  const Bandwidth bandwidth = problem.levels[below.size()].bandwidth;
  for (std::size_t j = i; j < layers; ++j)
    for (int m = 1; m <= level.machines(); ++m) {
      Level::Cell& best = level.at(i, j, m);
      best = {one_stage(problem, below, i, j, m), -1, m, 1};
      for (std::size_t s = i; s < j; ++s)
        for (int behind = 1; behind < m; ++behind) {
          const Level::Cell& before = level.at(i, s, m - behind);
          if (before.time > best.time) continue;
          const double time = std::max(
              {before.time, problem.transfer_time(s, behind, bandwidth), one_stage(problem, below, s + 1, j, behind)});
          if (time < best.time || (time == best.time && before.stages + 1 < best.stages))
            best = {time, static_cast<std::int32_t>(s), behind, before.stages + 1};
        }
    }
}

// The stages of layers i..j on m machines of level k, each on `copies` times as many devices.
void collect(const std::vector<Level>& levels, std::size_t k, std::size_t i, std::size_t j, int m, int copies,
             std::vector<PipeDreamStage>& stages) {
  const Level::Cell& cell = levels[k].at(i, j, m);
  if (cell.cut >= 0) {
    const auto s = static_cast<std::size_t>(cell.cut);
    collect(levels, k, i, s, m - cell.behind, copies, stages);
    i = s + 1, m = cell.behind;
  }
  if (k > 0)
    collect(levels, k - 1, i, j, levels[k - 1].machines(), copies * m, stages);
  else
    stages.push_back({{static_cast<LayerId>(i), static_cast<LayerId>(j + 1)}, copies * m, copies});
}

}  // namespace

PipeDreamPlan pipedream(const ChainCosts& chain, std::span<const MachineLevel> levels, PipeDreamRule rule,
                        PipeDreamTransfer transfer) {
  const std::size_t layers = chain.compute.size();
  PP_CHECK(layers > 0 && !levels.empty());
  PP_CHECK(chain.parameters.size() == layers && chain.boundary.size() == layers);
  Problem problem{chain, levels, rule, transfer, prefix_sums(chain.compute, 1e-9), prefix_sums(chain.parameters, 1)};
  std::vector<Level> tables;
  tables.reserve(levels.size());
  for (const MachineLevel& level : levels) {
    PP_CHECK(level.machines > 0 && level.bandwidth.value > 0);
    Level table(layers, level.machines);
    const bool outermost = tables.size() + 1 == levels.size();
    for (std::size_t i = 0; i < (outermost ? 1 : layers); ++i)  // of the outermost only what begins with layer 0
      fill(problem, tables, table, i);
    tables.push_back(std::move(table));
  }
  PipeDreamPlan plan;
  const int all = levels.back().machines;
  plan.time = tables.back().at(0, layers - 1, all).time;
  collect(tables, tables.size() - 1, 0, layers - 1, all, 1, plan.stages);
  return plan;
}

}  // namespace pipewright::tests
