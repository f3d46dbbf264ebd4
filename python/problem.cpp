// An order of ops that is compiled once and timed with any costs.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/check.hpp"
#include "core/cost/step_costs.hpp"
#include "core/plan/given_schedule.hpp"
#include "io/import/schedule_csv.hpp"
#include "io/writers/schedule_csv.hpp"
#include "planner/find_plan.hpp"
#include "python/columns.hpp"
#include "python/question.hpp"
#include "sim/compiled_order.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

// What a column of the costs prices: an op of a chunk, or a hop of an edge in either direction.
struct CostColumn {
  std::size_t row = 0;  // of StepCosts::duration; of a hop: number of the edge
  bool hop = false;
  std::int64_t times = 0;  // at most so often on the way to any end
  std::string name;        // "F0", "hop0"
};

class Problem {
 public:
  explicit Problem(const std::string& csv) {
    auto given = std::make_shared<const GivenSchedule>(parse_schedule_csv(csv, "order"));
    ScheduleShape shape;
    shape.stages = given->stages, shape.virtual_stages = given->virtual_stages;
    shape.micro_batches = given->micro_batches, shape.chunk_order = given->chunk_order;
    shape.given = std::move(given);
    const ScheduleRule& rule = *find_schedule(kGivenSchedule);
    if (const std::string why = rule.refusal(shape); !why.empty()) throw InputError(why);
    schedule_ = rule.generate(shape);
    const std::vector<Time> nothing(static_cast<std::size_t>(shape.chunks()));
    costs_ = plain_costs(shape, nothing, nothing, Time{});
    name_columns();
    order_ = CompiledOrder::of(schedule_, costs_);
  }

  const std::vector<CostColumn>& columns() const { return columns_; }
  const Schedule& schedule() const { return schedule_; }

  std::vector<std::int64_t> makespans(const std::int64_t* costs, std::size_t rows) const {
    StepCosts priced = costs_;
    std::vector<std::int64_t> ends(rows);
    for (std::size_t r = 0; r < rows; ++r) {
      price(priced, costs + r * columns_.size(), r);
      ends[r] = order_->makespan(priced).value;
    }
    return ends;
  }

  OpColumns timeline(const std::int64_t* costs) const {
    StepCosts priced = costs_;
    price(priced, costs, 0);
    return op_columns(schedule_, order_->timeline(schedule_, priced).workers);
  }

 private:
  void name_columns() {
    const auto chunks = static_cast<std::size_t>(schedule_.shape.chunks());
    std::vector<std::int64_t> times(chunks * kKinds);
    for (const Lane& lane : schedule_.positions)
      for (const Op& op : lane.compute)
        ++times[op.virtual_stage * static_cast<std::size_t>(kKinds) + static_cast<std::size_t>(op.kind)];
    for (const Kind kind : {Kind::F, Kind::B, Kind::W, Kind::BW})
      for (std::size_t v = 0; v < chunks; ++v)
        if (const std::size_t row = v * kKinds + static_cast<std::size_t>(kind); times[row] > 0)
          columns_.push_back({row, false, times[row], std::string(rule(kind).name) + std::to_string(v)});
    for (std::size_t e = 0; e < costs_.edges.size(); ++e)
      columns_.push_back({e, true, 2 * std::int64_t{schedule_.shape.micro_batches}, "hop" + std::to_string(e)});
  }

  // No sum of them passes kLargest.
  void check(const std::int64_t* costs, std::size_t r) const {
    double longest = 0;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (costs[c] < 0)
        throw InputError(Place{}, "costs",
                         "row " + std::to_string(r) + ", column " + columns_[c].name + ": " + std::to_string(costs[c]) +
                             " ns is negative; write 0 or more");
      longest += static_cast<double>(costs[c]) * static_cast<double>(columns_[c].times);
    }
    if (longest > static_cast<double>(kLargest))
      throw InputError(Place{}, "costs",
                       "row " + std::to_string(r) + ": the run may take longer than 2^62 ns; use smaller costs");
  }

  void price(StepCosts& priced, const std::int64_t* costs, std::size_t r) const {
    check(costs, r);
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const CostColumn& column = columns_[c];
      if (!column.hop) {
        priced.duration[column.row] = priced.duration_last[column.row] = Time{costs[c]};
        continue;
      }
      const std::size_t begin = priced.first_message[2 * column.row];
      const std::size_t end = 2 * column.row + 2 < priced.first_message.size()
                                  ? priced.first_message[2 * column.row + 2]
                                  : priced.messages.size();
      for (std::size_t i = begin; i < end; ++i)
        if (priced.messages[i].channel >= 0)
          priced.messages[i].latency = priced.messages_last[i].latency = Time{costs[c]};
    }
  }

  Schedule schedule_;
  StepCosts costs_;
  std::vector<CostColumn> columns_;
  std::optional<CompiledOrder> order_;
};

using CostMatrix = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void check_width(const Problem& problem, const CostMatrix& costs) {
  if (costs.shape(1) != problem.columns().size())
    throw InputError(Place{}, "costs",
                     "has " + std::to_string(costs.shape(1)) + " columns, and the order " +
                         std::to_string(problem.columns().size()) + " costs; see Problem.columns");
}

nb::object makespans_of(const Problem& problem, const CostMatrix& costs) {
  check_width(problem, costs);
  const std::int64_t* const data = costs.data();
  const std::size_t rows = costs.shape(0);
  auto* const ends = new std::vector<std::int64_t>(without_lock([&] { return problem.makespans(data, rows); }));
  nb::capsule owner(ends, [](void* held) noexcept { delete static_cast<std::vector<std::int64_t>*>(held); });
  return nb::cast(nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>>(ends->data(), {ends->size()}, owner));
}

// The order of a schedule that pipewright knows, as PyTorch's CSV.
std::string order_csv(const std::string& name, int stages, int micro_batches, int virtual_stages) {
  const ScheduleRule* const rule = find_schedule(name);
  if (rule == nullptr || rule->from_file)
    throw InputError(Place{}, "schedule", unknown_name(name.substr(0, 64), schedule_names()));
  ScheduleShape shape;
  shape.stages = stages, shape.micro_batches = micro_batches, shape.virtual_stages = virtual_stages;
  shape.chunk_order = rule->chunk_order;
  if (std::int64_t{stages} * virtual_stages > kMostChunks ||
      4 * std::int64_t{stages} * virtual_stages * micro_batches > kMostOps)
    throw InputError(Place{}, "schedule", "is larger than 2^24 ops; ask for fewer stages or micro-batches");
  if (const std::string why = rule->refusal(shape); !why.empty()) throw InputError(Place{}, "schedule", why);
  return schedule_csv(rule->generate(shape));
}

}  // namespace

void add_problem(nb::module_& module) {
  nb::class_<Problem>(module, "Problem")
      .def(
          "__init__",
          [](Problem* self, const std::string& csv) { new (self) Problem(without_lock([&] { return Problem(csv); })); },
          "csv"_a)
      .def_prop_ro("columns",
                   [](const Problem& problem) {
                     std::vector<std::string> names;
                     for (const CostColumn& column : problem.columns())
                       names.push_back(column.name);
                     return names;
                   })
      .def_prop_ro("stages", [](const Problem& problem) { return problem.schedule().shape.stages; })
      .def_prop_ro("chunks", [](const Problem& problem) { return problem.schedule().shape.chunks(); })
      .def_prop_ro("micro_batches", [](const Problem& problem) { return problem.schedule().shape.micro_batches; })
      .def("makespans", makespans_of)
      .def("timeline", [](const Problem& problem, const CostMatrix& costs) {
        check_width(problem, costs);
        if (costs.shape(0) != 1) throw InputError(Place{}, "costs", "a timeline is of one row of costs");
        return without_lock([&, data = costs.data()] { return problem.timeline(data); });
      });
  module.def("order_csv", order_csv);
}

}  // namespace pipewright::python
