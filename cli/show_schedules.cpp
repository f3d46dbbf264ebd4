#include "cli/show_schedules.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/plan/report.hpp"
#include "io/writers/writers.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"

namespace pipewright {
namespace {

// The smallest shape that shows what is special about a schedule: K = 4 and M = 8, with two chunks per stage where one
// is not enough, else four workers with the whole model.
ScheduleShape example(const ScheduleRule& rule) {
  const ScheduleShape plain{.stages = 4, .micro_batches = 8};
  const ScheduleShape interleaved{.stages = 4, .virtual_stages = 2, .micro_batches = 8};
  const ScheduleShape copies{.stages = 1, .micro_batches = 2, .data_parallel = 4};
  for (const ScheduleShape& shape : {plain, interleaved, copies})
    if (rule.refusal(shape).empty()) return shape;
  check_failed("an example shape fits every schedule", __FILE__, __LINE__);
}

std::string in_words(const ScheduleShape& shape) {
  std::string text = fmt::format("K = {}, M = {}", shape.stages, shape.micro_batches);
  if (shape.virtual_stages > 1) text += fmt::format(", {} chunks per stage", shape.virtual_stages);
  if (shape.data_parallel > 1) text += fmt::format(", {} workers", shape.data_parallel);
  return text;
}

// Forward 1 ms and backward 2 ms per stage, free communication.
std::string drawing(const ScheduleRule& rule, const ScheduleShape& shape, int width) {
  const auto chunks = static_cast<std::size_t>(shape.chunks());
  const Time forward{1'000'000 / shape.virtual_stages};
  Answer answer;
  answer.schedule = rule.generate(shape);
  answer.costs = plain_costs(shape, std::vector<Time>(chunks, forward), std::vector<Time>(chunks, 2 * forward), {});
  answer.timeline = static_order(answer.schedule, answer.costs);
  Plan& plan = answer.plan;
  plan.schedule = rule.name;
  plan.stages = shape.stages;
  plan.virtual_stages = shape.virtual_stages;
  plan.data_parallel = shape.data_parallel;
  plan.replicas.assign(static_cast<std::size_t>(shape.stages), 1);
  plan.recompute.assign(static_cast<std::size_t>(shape.stages), Recompute::None);
  plan.micro_batches = shape.micro_batches;
  plan.global_batch_size = std::int64_t{shape.micro_batches} * shape.data_parallel;
  for (LayerId i = 0; i < shape.chunks(); ++i)
    plan.layers.push_back({i, i + 1});
  plan.device.resize(static_cast<std::size_t>(plan.workers()));
  std::iota(plan.device.begin(), plan.device.end(), 0);
  return text_timeline(answer, width);
}

std::string bubble_text(const ScheduleRule& rule, const ScheduleShape& shape) {
  const auto bubble = rule.bubble(shape);
  return bubble ? bubble->text : "-";
}

}  // namespace

std::string schedule_list() {
  std::size_t name_width = 0, bubble_width = 0;
  for (const ScheduleRule& rule : schedules()) {
    name_width = std::max(name_width, rule.name.size());
    bubble_width = std::max(bubble_width, bubble_text(rule, example(rule)).size());
  }
  std::string text =
      fmt::format("{:<{}}  {:<{}}  what it is; memory at the peak\n", "schedule", name_width, "bubble", bubble_width);
  for (const ScheduleRule& rule : schedules())
    text += fmt::format("{:<{}}  {:<{}}  {}; {}\n", rule.name, name_width, bubble_text(rule, example(rule)),
                        bubble_width, rule.title, rule.memory);
  return text + "\nOne of them, drawn: pipewright show schedules NAME\n";
}

std::string schedule_in_detail(const std::string& name, int width) {
  const ScheduleRule* rule = find_schedule(name);
  if (rule == nullptr) throw InputError("show schedules: " + unknown_name(name, schedule_names()));
  const ScheduleShape shape = example(*rule);
  std::string text = fmt::format("{}: {}\n\n", rule->name, rule->title);
  if (const auto bubble = rule->bubble(shape))
    text += fmt::format("bubble  {}; here {}/{} = {:.1f} %\n", bubble->text, bubble->numerator, bubble->denominator,
                        100.0 * static_cast<double>(bubble->numerator) / static_cast<double>(bubble->denominator));
  text += fmt::format("memory  {}\nupdate  {}\nsource  {}, see docs/references.md\n", rule->memory,
                      rule->flush ? "once, after a flush" : "after every micro-batch, no flush", rule->source);
  return text + fmt::format("\n{}, backward twice the forward, free communication:\n", in_words(shape)) +
         drawing(*rule, shape, width);
}

}  // namespace pipewright
