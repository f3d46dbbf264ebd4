// Tables to paste into an issue or a README. The first has the columns of Megatron-Bridge's performance summary.
#include <algorithm>

#include <fmt/format.h>

#include "core/cost/low_precision.hpp"
#include "core/folds.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/quote.hpp"
#include "io/writers/campaign_lines.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/html.hpp"
#include "io/writers/interval_text.hpp"
#include "io/writers/text_table.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {
namespace {

std::string gib(Bytes bytes) {
  return significant(static_cast<double>(bytes.value) / 1073741824.0);
}

// Model FLOP/s of the run on one device: MFU is the share of the peak, so peak * MFU. Not said of several classes.
std::string teraflops(const Answer& answer) {
  if (answer.scenario->cluster.classes() > 1) return "-";
  const auto& device = answer.scenario->cluster.device;
  const auto peak = device.peak.find(rated_precision(*answer.scenario));
  if (!answer.report.mfu || peak == device.peak.end()) return "-";
  return significant(*answer.report.mfu * peak->second.value * 1e-12);
}

std::string summary(const Answer& answer) {
  const Report& r = answer.report;
  const Plan& p = answer.plan;
  const double workers = static_cast<double>(p.devices());
  auto peak = most_over<Bytes>(r.stages, [](const auto& stage) { return stage.need.with_reserve; });
  const auto& sequence = answer.scenario->training.sequence_length;
  std::string copies = std::to_string(p.data_parallel);
  if (std::ranges::any_of(p.replicas, [](int n) { return n > 1; }))
    copies = fmt::format("{} ({})", copies, fmt::join(p.replicas, "-"));
  std::vector<std::pair<std::string, std::string>> figures = {
      {"devices", std::to_string(p.devices())},
      {"GBS", std::to_string(p.global_batch_size)},
      {"MBS", std::to_string(p.micro_batch_size)},
      {"Seq", sequence ? std::to_string(*sequence) : "-"},
      {"TP", std::to_string(p.tensor_parallel)},
      {"PP", std::to_string(p.stages)},
      {"VP", std::to_string(p.virtual_stages)},
      {"DP", copies},
      {"step s", significant(seconds(r.step_time), 4)},
      {"tokens/s/device", r.tokens_per_s ? significant(*r.tokens_per_s / workers, 4) : "-"},
      {"model TFLOP/s/device", teraflops(answer)},
      {"MFU", r.mfu ? percent(*r.mfu) : "-"},
      {"bubble", percent(r.bubble_fraction)},
      {"peak GiB", gib(peak)}};
  if (p.expert_parallel > 1) figures.insert(figures.begin() + 5, {"EP", std::to_string(p.expert_parallel)});
  if (p.context_parallel > 1) figures.insert(figures.begin() + 5, {"CP", std::to_string(p.context_parallel)});
  std::vector<TextColumn> columns;
  for (const auto& [name, figure] : figures)
    columns.push_back({.head = name, .cells = {figure}});
  return markdown_table(columns);
}

std::string stages(const Answer& answer) {
  std::vector<TextColumn> columns = {{"stage", true}, {"layers", true}, {"workers"}, {"parameters"},
                                     {"forward"},     {"backward"},     {"busy"},    {"idle"}};
  const auto& categories = kMemoryCategories;
  for (const auto name : categories)
    columns.push_back({fmt::format("{} GiB", name)});
  columns.push_back({"peak GiB"});
  for (const StageReport& s : answer.report.stages) {
    std::vector<std::string> cells{std::to_string(s.stage),
                                   layer_ranges(s.layers),
                                   std::to_string(s.workers.size()),
                                   short_count(static_cast<double>(s.parameters)),
                                   short_time(s.forward, 4),
                                   short_time(s.backward, 4),
                                   percent(ratio(s.busy, answer.report.makespan)),
                                   percent(ratio(s.idle.total(), answer.report.makespan))};
    for (std::size_t i = 0; i < categories.size(); ++i)
      cells.push_back(gib(category(s.memory.bytes, i)));
    cells.push_back(gib(s.memory.bytes.total()));
    for (std::size_t i = 0; i < columns.size(); ++i)
      columns[i].cells.push_back(cells[i]);
  }
  return markdown_table(columns);
}

}  // namespace

std::string markdown_report(const Answer& answer) {
  const Report& r = answer.report;
  std::string text = "**" + markdown_text(headline(answer)) + "**\n\n" + summary(answer);
  text +=
      "\nGBS: global batch; MBS: micro-batch; Seq: tokens per sample; TP, PP, DP: tensor, pipeline and data "
      "parallelism (replicas per stage in brackets); VP: chunks per stage; MFU: model FLOPs utilization.\n";
  if (answer.plan.expert_parallel > 1) text += "EP: devices that hold the experts between them (expert parallelism).\n";
  if (answer.plan.context_parallel > 1) text += "CP: devices that share every sequence (context parallelism).\n";
  if (r.steady)
    text += fmt::format("Asynchronous: one cycle of {} per micro-batch in the steady state.\n",
                        short_time(Time{r.steady->growth.value / r.steady->micro_batches}, 4));
  text += "\n" + stages(answer);
  if (r.range)
    text += fmt::format(
        "\nStep: {}; samples/s: {}.\n", within_90(short_time(r.range->fastest, 4), short_time(r.range->slowest, 4)),
        within_90(significant(r.range->samples_per_s_low, 4), significant(r.range->samples_per_s_high, 4)));
  for (const auto& [label, line] : interval_lines(r))
    text += fmt::format("\n{}: {}.\n", label, markdown_text(line));
  text += fmt::format("\nLimited by: {}\n", markdown_text(r.limiting_factor));
  if (r.campaign) text += "\nThe whole training:\n";
  std::string_view label;
  for (const auto& [name, line] : campaign_lines(answer)) {
    if (!name.empty()) label = name;
    text += fmt::format("- {}: {}\n", label, markdown_text(line));
  }
  for (const auto& warning : all_warnings(r))
    text += "\n> warning: " + markdown_text(warning) + "\n";
  text += is_measured(answer)
              ? fmt::format("\nMeasured by pipewright {} on {}.\n", PIPEWRIGHT_VERSION,
                            markdown_text(answer.timeline.engine_reason))
              : fmt::format("\nPredicted by pipewright {} with the {} engine ({}).\n", PIPEWRIGHT_VERSION,
                            name(answer.timeline.engine), markdown_text(answer.timeline.engine_reason));
  for (const auto& entry : r.provenance)
    text += "- " + markdown_text(entry) + "\n";
  return text;
}

}  // namespace pipewright::io
