// Tables to paste into an issue or a README. The first has the columns of Megatron-Bridge's performance summary.
#include <algorithm>

#include <fmt/format.h>

#include "io/format_quantity.hpp"
#include "io/writers/campaign_lines.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/html.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {
namespace {

// Text in a cell: bars end a cell, line breaks end a row.
std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find_first_of("|\n", at)) != std::string::npos; at += 2)
    text.replace(at, 1, text[at] == '|' ? "\\|" : "  ");
  return text;
}

std::string row(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const auto& entry : cells)
    text += " " + cell(entry) + " |";
  return text + "\n";
}

// Names to the left, figures to the right.
std::string rule(std::size_t columns, std::size_t left) {
  std::string text = "|";
  for (std::size_t i = 0; i < columns; ++i)
    text += i < left ? "---|" : "--:|";
  return text + "\n";
}

std::string gib(Bytes bytes) {
  return significant(static_cast<double>(bytes.value) / 1073741824.0);
}

// Model FLOP/s of the run on one device: MFU is the share of the peak, so peak * MFU. Not said of several classes.
std::string teraflops(const Answer& answer) {
  if (answer.scenario->cluster.classes() > 1) return "-";
  const auto& device = answer.scenario->cluster.device;
  const auto peak = device.peak.find(answer.scenario->training.precision);
  if (!answer.report.mfu || peak == device.peak.end()) return "-";
  return significant(*answer.report.mfu * peak->second.value * 1e-12);
}

std::string summary(const Answer& answer) {
  const Report& r = answer.report;
  const Plan& p = answer.plan;
  const double workers = static_cast<double>(p.devices());
  const std::vector<std::string> head{"devices",
                                      "GBS",
                                      "MBS",
                                      "Seq",
                                      "TP",
                                      "PP",
                                      "VP",
                                      "DP",
                                      "step s",
                                      "tokens/s/device",
                                      "model TFLOP/s/device",
                                      "MFU",
                                      "bubble",
                                      "peak GiB"};
  Bytes peak;
  for (const auto& stage : r.stages)
    peak = std::max(peak, stage.need.with_reserve);
  const auto& sequence = answer.scenario->training.sequence_length;
  std::string copies = std::to_string(p.data_parallel);
  if (std::any_of(p.replicas.begin(), p.replicas.end(), [](int n) { return n > 1; }))
    copies = fmt::format("{} ({})", copies, fmt::join(p.replicas, "-"));
  return row(head) + rule(head.size(), 0) +
         row({std::to_string(p.devices()), std::to_string(p.global_batch_size), std::to_string(p.micro_batch_size),
              sequence ? std::to_string(*sequence) : "-", std::to_string(p.tensor_parallel), std::to_string(p.stages),
              std::to_string(p.virtual_stages), copies, significant(seconds(r.step_time), 4),
              r.tokens_per_s ? significant(*r.tokens_per_s / workers, 4) : "-", teraflops(answer),
              r.mfu ? percent(*r.mfu) : "-", percent(r.bubble_fraction), gib(peak)});
}

std::string stages(const Answer& answer) {
  std::vector<std::string> head{"stage", "layers", "workers", "parameters", "forward", "backward", "busy", "idle"};
  const auto& categories = kMemoryCategories;
  for (const auto name : categories)
    head.push_back(fmt::format("{} GiB", name));
  head.push_back("peak GiB");
  std::string text = row(head) + rule(head.size(), 2);
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
    text += row(cells);
  }
  return text;
}

}  // namespace

std::string markdown_report(const Answer& answer) {
  const Report& r = answer.report;
  std::string text = "**" + headline(answer) + "**\n\n" + summary(answer);
  text +=
      "\nGBS: global batch; MBS: micro-batch; Seq: tokens per sample; TP, PP, DP: tensor, pipeline and data "
      "parallelism "
      "(replicas per stage in brackets); VP: chunks per stage; MFU: model FLOPs utilization.\n";
  if (r.steady)
    text += fmt::format("Asynchronous: one cycle of {} per micro-batch in the steady state.\n",
                        short_time(Time{r.steady->growth.value / r.steady->micro_batches}, 4));
  text += "\n" + stages(answer);
  if (r.range)
    text += fmt::format(
        "\nStep {} to {} s, {} to {} samples/s with the device's efficiencies at the ends of their bands.\n",
        significant(seconds(r.range->fastest), 4), significant(seconds(r.range->slowest), 4),
        significant(r.range->samples_per_s_low, 4), significant(r.range->samples_per_s_high, 4));
  text += fmt::format("\nLimited by: {}\n", r.limiting_factor);
  if (r.campaign) text += "\nThe whole training:\n";
  std::string_view label;
  for (const auto& [name, line] : campaign_lines(answer)) {
    if (!name.empty()) label = name;
    text += fmt::format("- {}: {}\n", label, line);
  }
  for (const auto& warning : all_warnings(r))
    text += "\n> warning: " + cell(warning) + "\n";
  text += is_measured(answer)
              ? fmt::format("\nMeasured by pipewright {} on {}.\n", PIPEWRIGHT_VERSION, answer.timeline.engine_reason)
              : fmt::format("\nPredicted by pipewright {} with the {} engine ({}).\n", PIPEWRIGHT_VERSION,
                            answer.timeline.engine, answer.timeline.engine_reason);
  for (const auto& entry : r.provenance)
    text += "- " + entry + "\n";
  return text;
}

}  // namespace pipewright
