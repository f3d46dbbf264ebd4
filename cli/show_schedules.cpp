#include <algorithm>

#include <fmt/format.h>

#include "cli/show.hpp"
#include "core/answers/report.hpp"
#include "core/check.hpp"
#include "core/question/scenario.hpp"
#include "io/writers/writers.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::cli {
namespace {

// The smallest shape that shows what is special about a schedule: K = 4 and M = 8, with two chunks per stage where one
// is not enough, else four workers with the whole model.
ScheduleShape example(const ScheduleRule& rule) {
  const ScheduleShape plain{.stages = 4, .micro_batches = 8};
  const ScheduleShape interleaved{.stages = 4, .virtual_stages = 2, .micro_batches = 8};
  const ScheduleShape copies{.stages = 1, .micro_batches = 2, .data_parallel = 4};
  for (ScheduleShape shape : {plain, interleaved, copies}) {
    shape.chunk_order = rule.chunk_order;
    if (rule.facts.states_slices) shape.slices = 2;
    if (rule.refusal(shape).empty()) return shape;
  }
  check_failed("an example shape fits every schedule", __FILE__, __LINE__);
}

std::string in_words(const ScheduleShape& shape) {
  std::string text = fmt::format("K = {}, M = {}", shape.stages, shape.micro_batches);
  if (shape.virtual_stages > 1) text += fmt::format(", {} chunks per stage", shape.virtual_stages);
  if (shape.slices > 1)
    text = fmt::format("K = {}, M = {} of {} slices", shape.stages, shape.micro_batches / shape.slices, shape.slices);
  if (shape.data_parallel > 1) text += fmt::format(", {} workers", shape.data_parallel);
  return text;
}

// A scenario of that shape: forward 1 ms and backward 2 ms per stage, free communication, room for everything.
Scenario scenario_of(const ScheduleRule& rule, const ScheduleShape& shape) {
  Scenario scenario;
  scenario.name = rule.name;
  for (LayerId i = 0; i < shape.chunks(); ++i) {
    Layer layer;
    layer.name = std::to_string(i);
    layer.forward = Time{1'000'000 / shape.virtual_stages};
    layer.backward = Time{2'000'000 / shape.virtual_stages};
    layer.backward_weight = Time{1'000'000 / shape.virtual_stages};
    if (i > 0) layer.inputs = {i - 1};
    scenario.model.layers.push_back(layer);
  }
  scenario.cluster.devices_per_node = shape.stages * shape.data_parallel;
  scenario.cluster.device.memory = Bytes{kLargest};
  scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  scenario.training.micro_batches = Placed<std::int64_t>{shape.micro_batches / shape.slices, {}};
  if (shape.slices > 1) scenario.plan.slices = Placed<std::int64_t>{shape.slices, {}};
  scenario.plan.stages.value = shape.stages;
  scenario.plan.virtual_stages.value = shape.virtual_stages;
  scenario.plan.data_parallel.value = shape.data_parallel;
  scenario.plan.schedule.value = rule.name;
  return scenario;
}

std::string drawing(const ScheduleRule& rule, const ScheduleShape& shape, int width) {
  const Scenario scenario = scenario_of(rule, shape);
  const CostModel cost(scenario);
  return text_timeline(price(find_plan(scenario, cost), cost, Engine::StaticOrder), width);
}

std::string bubble_text(const ScheduleRule& rule, const ScheduleShape& shape) {
  const auto bubble = textbook_bubble(rule, shape, {});
  return bubble ? bubble->text : "-";
}

// How often a device holds the weights of a stage: both ways a stage lies on several devices, and without a flush a
// stage keeps the versions that micro-batches in flight began with.
std::string_view weights_text(const ScheduleRule& rule) {
  if (rule.facts.states_pipelines) return "2 to K";
  if (both_ways(rule.chunk_order) || rule.facts.states_round) return "2";
  return rule.flush ? "1" : "K-k";
}

}  // namespace

std::string schedule_list() {
  std::size_t name_width = 0, bubble_width = 0;
  for (const ScheduleRule& rule : schedules()) {
    name_width = std::max(name_width, rule.name.size());
    bubble_width = std::max(bubble_width, bubble_text(rule, example(rule)).size());
  }
  std::string text = fmt::format("{:<{}}  {:<{}}  weights  what it is; memory at the peak\n", "schedule", name_width,
                                 "bubble", bubble_width);
  for (const ScheduleRule& rule : schedules())
    text += fmt::format("{:<{}}  {:<{}}  {:<7}  {}; {}\n", rule.name, name_width, bubble_text(rule, example(rule)),
                        bubble_width, weights_text(rule), rule.title, rule.memory);
  return text + "\nOne of them, drawn: pipewright show schedules NAME\n";
}

std::string schedule_in_detail(const std::string& name, int width) {
  const ScheduleRule* rule = find_schedule(name);
  if (rule == nullptr || rule->from_file) throw InputError("show schedules: " + unknown_name(name, schedule_names()));
  const ScheduleShape shape = example(*rule);
  std::string text = fmt::format("{}: {}\n\n", rule->name, rule->title);
  text += "bubble  " + bubble_text(*rule, shape);
  if (const auto bubble = textbook_bubble(*rule, shape, {}); bubble && bubble->numerator > 0)
    text += fmt::format("; here {}/{} = {:.1f} %", bubble->numerator, bubble->denominator,
                        100.0 * static_cast<double>(bubble->numerator) / static_cast<double>(bubble->denominator));
  if (!rule->flush) text += "; the run drawn below also fills and drains, which the steady state leaves out";
  text += fmt::format("\nmemory  {}\nweights {} a stage\nupdate  {}\nsource  {}, see docs/reference/references.md\n",
                      rule->memory, weights_text(*rule),
                      rule->flush                ? "once, after a flush"
                      : rule->facts.states_round ? "after every round of micro-batches, no flush"
                                                 : "after every micro-batch, no flush",
                      rule->source);
  return text + fmt::format("\n{}, backward twice the forward, free communication:\n", in_words(shape)) +
         drawing(*rule, shape, width);
}

}  // namespace pipewright::cli
