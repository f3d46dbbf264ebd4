#include "io/writers/found_order.hpp"

#include <fmt/format.h>

#include "core/plan/given_schedule.hpp"
#include "io/text/format_quantity.hpp"
#include "io/writers/documents.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright::io {
namespace {

std::string_view measure_word(OrderMeasure measure) {
  return measure == OrderMeasure::Span ? "span" : "step";
}

std::string milliseconds(Time time) {
  return fmt::format("{:.3f}", static_cast<double>(time.value) * 1e-6);
}

// How far the value is above what no order can beat.
std::string above(Time value, Time bound) {
  const double share = ratio(value, bound) - 1;
  return share <= 0 ? "0" : signed_percent(share);
}

std::vector<TextColumn> order_columns(const ScheduleAnswer& found) {
  std::vector<TextColumn> columns = {{"order", true}, {"span ms"},
                                     {"step ms"},     {"over the bound"},
                                     {"in flight"},   {fmt::format("+-{:.3g} %: mean ms", 100 * found.jitter)},
                                     {"worst ms"}};
  for (const OrderRow& row : found.rows) {
    const Time value = found.measure == OrderMeasure::Span ? row.span : row.step;
    const std::vector<std::string> cells = {row.name,
                                            milliseconds(row.span),
                                            milliseconds(row.step),
                                            above(value, found.bound),
                                            fmt::format("{:.4g}", row.in_flight),
                                            milliseconds(row.jittered),
                                            milliseconds(row.slowest)};
    for (std::size_t i = 0; i < columns.size(); ++i)
      columns[i].cells.push_back(cells[i]);
  }
  return columns;
}

std::vector<TextColumn> cap_columns(const ScheduleAnswer& found) {
  std::vector<TextColumn> columns = {
      {"in flight"}, {fmt::format("{} ms", measure_word(found.measure))}, {"bound ms"}, {"over the bound"}};
  for (const CapRow& row : found.pareto) {
    const std::vector<std::string> cells = {fmt::format("{:.4g}", row.in_flight), milliseconds(row.value),
                                            milliseconds(row.bound), above(row.value, row.bound)};
    for (std::size_t i = 0; i < columns.size(); ++i)
      columns[i].cells.push_back(cells[i]);
  }
  return columns;
}

std::string ended(const ScheduleAnswer& found) {
  // Blocks that go to the host come back later before a backward in two parts than before a whole one.
  if (found.gap() <= 0)
    return found.answer.plan.offloaded.empty() ? "no order is better: it equals the bound"
                                               : "no order with backwards in two parts is better: it equals the bound";
  const std::string gap = fmt::format("another order may take up to {} less", percent(found.gap()));
  return found.stopped ? gap + "; the search was ended early, so that another run may find another order" : gap;
}

void write_found_order(JsonFields& json, const ScheduleAnswer& found) {
  json.word("measure", measure_word(found.measure), {"span", "step"});
  json.field("stages", found.stages).field("chunks", found.chunks).field("micro_batches", found.micro_batches);
  json.field("room", found.cap).field("bound_ns", found.bound.value).field("bound", found.bound_why);
  json.field("gap", [&] { return found.gap(); }).field("evaluations", found.evaluations);
  json.field("seed", static_cast<std::int64_t>(found.seed)).field("stopped", found.stopped);
  json.field("jitter", found.jitter);
  json.list("orders", found.rows, [&](const OrderRow& row) {
    json.field("name", row.name).field("span_ns", row.span.value).field("step_ns", row.step.value);
    json.field("in_flight", row.in_flight).field("jittered_mean_ns", row.jittered.value);
    json.field("jittered_worst_ns", row.slowest.value);
  });
  json.list("caps", found.pareto, [&](const CapRow& row) {
    json.field("in_flight", row.in_flight).field("value_ns", row.value.value).field("bound_ns", row.bound.value);
  });
  json.field("simulated_step_ns", found.answer.report.step_time.value).field("fits", found.answer.report.fits);
  json.field("planned", found.planned).field("planned_step_ns", found.planned_step.value);
}

}  // namespace

std::string found_order_text(const ScheduleAnswer& found, const TableOptions& options) {
  const int width = options.width;
  const auto line = [&](std::string_view label, const std::string& value) {
    return wrapped(padded(label, 12), value, width);
  };
  std::string text = wrapped(
      "",
      fmt::format("order of passes for K = {}, M = {}{}, backwards in two parts", found.stages, found.micro_batches,
                  found.chunks > 1 ? fmt::format(", {} chunks a stage", found.chunks) : ""),
      width);
  text += "\n" + text_table(order_columns(found), width) + "\n";
  text += line("measure", found.measure == OrderMeasure::Span
                              ? "span: the longest time from a stage's first op to its last, a step's time where no "
                                "stage waits for the others to update"
                              : "step: the end of the last op, a step's time with a flush");
  text += line("room", found.cap + ", from F to W");
  text += line("bound", fmt::format("{} ms: {}", milliseconds(found.bound), found.bound_why));
  text += line("gap", ended(found));
  text += line("search", fmt::format("{} orders, seed {}", found.evaluations, found.seed));
  const Report& report = found.answer.report;
  const bool beside = !found.planned.empty() && found.planned != kGivenSchedule;
  text +=
      line("simulated",
           fmt::format("{} a step with messages, all-reduce and update{}; peak {}{}", short_time(report.step_time, 4),
                       beside ? fmt::format(" ({}: {}{})", found.planned, short_time(found.planned_step, 4),
                                            found.planned_step < report.step_time ? ", which is faster" : "")
                              : "",
                       short_bytes(report.stages.empty() ? Bytes{} : fullest(report)->need.to_fit),
                       report.fits ? "" : ", which does not fit"));
  if (found.measure == OrderMeasure::Span && found.flush)
    text += line("", "with a flush; plan.barrier: post_validation makes the span a step's time");
  if (!found.pareto.empty()) text += "\ntime and memory\n" + text_table(cap_columns(found), width);
  return text;
}

constinit const JsonDocument kFoundOrderDocument{"pipewright.found-order/1",
                                                 [](JsonFields& json) { write_found_order(json, {}); }};

std::string found_order_json(const ScheduleAnswer& found) {
  return kFoundOrderDocument.text([&](JsonFields& json) { write_found_order(json, found); });
}

}  // namespace pipewright::io
