#include "io/writers/report_tables.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/folds.hpp"
#include "io/text/format_quantity.hpp"
#include "io/writers/anchored.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/interval_text.hpp"

namespace pipewright::io {
namespace {

constexpr std::size_t kShortfallLines = 4;

std::int64_t adapters_of(const Model& model, LayerId layer) {
  const std::int32_t work = model.layers[layer].work;
  return work < 0 ? 0 : model.works[static_cast<std::size_t>(work)].adapter_parameters;
}

class Tables {
 public:
  Tables(const Answer& answer, int rows) : answer_(answer), report_(answer.report), rows_(rows) {}

  std::vector<std::pair<std::string, std::string>> summary() const {
    std::vector<std::pair<std::string, std::string>> lines;
    const auto line = [&](std::string label, std::string text) {
      lines.emplace_back(std::move(label), std::move(text));
    };
    std::string step = short_time(report_.step_time, 4);
    if (report_.steady) {
      const auto& steady = *report_.steady;
      const double cycle = seconds(steady.growth) / static_cast<double>(steady.micro_batches);
      step += fmt::format(" ({} samples at the steady rate) · {} per micro-batch in the steady state{} · whole run {}",
                          answer_.plan.global_batch_size,
                          short_time(Time{static_cast<std::int64_t>(std::llround(cycle * 1e9))}, 4),
                          steady.exact ? "" : " (averaged: no exact period found)", short_time(report_.makespan, 4));
    }
    if (overlaps())
      step += " (longest span of a stage: steps overlap; the first takes " + short_time(report_.makespan, 4) + ")";
    if (report_.range)
      step +=
          fmt::format(" ({})", within_90(short_time(report_.range->fastest, 3), short_time(report_.range->slowest, 3)));
    line("step time", step);
    const bool timed = report_.samples_per_s > 0;
    std::string rate = timed ? significant(report_.samples_per_s, 4) + " samples/s" : "none: the step takes no time";
    if (report_.range)
      rate += fmt::format(" ({} to {})", significant(report_.range->samples_per_s_low),
                          significant(report_.range->samples_per_s_high));
    if (report_.tokens_per_s) rate += " · " + significant(*report_.tokens_per_s, 4) + " tokens/s";
    if (report_.mfu) rate += " · MFU " + percent(*report_.mfu);
    if (report_.mfu > 1) rate += " (more than the peak allows: see the warnings)";
    if (report_.hfu) rate += " · HFU " + percent(*report_.hfu);
    line("throughput", rate);
    line("bubble", bubble_of_all() + " · " + other_bubbles());
    if (const StageReport* full = fullest()) line("memory peak", memory_peak(*full));
    explain(lines);
    return lines;
  }

  std::vector<std::pair<std::string, std::string>> beside_figures() const {
    std::vector<std::pair<std::string, std::string>> lines;
    if (report_.samples_per_s <= 0) lines.emplace_back("throughput", "none: the step takes no time");
    lines.emplace_back("other bubbles", other_bubbles());
    const StageReport* full = fullest();
    if (full != nullptr && limited() && short_bytes(full->need.with_reserve) != short_bytes(full->need.model))
      lines.emplace_back("held by the model", short_bytes(full->need.model) + " of the memory peak");
    explain(lines);
    return lines;
  }

  ReportTable stages() const {
    const Time makespan = report_.makespan;
    std::vector<TextColumn> columns{
        stage_column(),
        column("workers", false, [](const StageReport& s) { return std::to_string(s.workers.size()); }),
        column("layers", false, [](const StageReport& s) { return layer_ranges(s.layers); }),
        column("parameters", false,
               [](const StageReport& s) { return short_count(static_cast<double>(s.parameters)); }),
        time_column("forward", false, &StageReport::forward),
        time_column("backward", false, &StageReport::backward),
        time_column("recompute", true, &StageReport::recompute),
        time_column("busy", false, &StageReport::busy),
        column("busy %", false, [&](const StageReport& s) { return figure(ratio(s.busy, makespan)); })};
    const Model& model = answer_.scenario->model;
    if (trained_count(model) != parameter_count(model))  // adapters alone
      columns.insert(columns.begin() + 4, column("trained", false, [&](const StageReport& s) {
                       std::int64_t trained = 0;
                       for (const LayerRange& range : s.layers)
                         for (LayerId i = range.begin; i < range.end; ++i)
                           trained += adapters_of(model, i);
                       return short_count(static_cast<double>(trained));
                     }));
    if (several_classes()) columns.insert(columns.begin() + 1, device_column());
    return {"stages (times per micro-batch; busy: of the makespan, busiest worker)", std::move(columns), not_shown()};
  }

  ReportTable idle() const {
    const auto part = [&](std::string head, bool drop, Time IdleSplit::*member) {
      return column(std::move(head), drop,
                    [&](const StageReport& s) { return figure(ratio(s.idle.*member, report_.makespan)); });
    };
    return {
        "idle time in % of the makespan (busiest worker of each stage)",
        {stage_column(),
         column("idle %", false, [&](const StageReport& s) { return figure(ratio(s.idle.total(), report_.makespan)); }),
         part("= fill", false, &IdleSplit::fill), part("+ waiting", false, &IdleSplit::imbalance),
         part("+ communication", false, &IdleSplit::communication), part("+ stall", false, &IdleSplit::stall),
         part("+ drain", false, &IdleSplit::drain)},
        {}};
  }

  ReportTable memory() const {
    auto largest = most_over<Bytes>(report_.stages, [](const auto& stage) { return stage.memory.bytes.total(); });
    const Scale scale = bytes_scale(largest);
    ReportTable table{fmt::format("memory in {} at the moment of the peak (fullest worker of each stage{})", scale.name,
                                  several_classes() ? ""
                                  : limited()       ? ", of " + short_bytes(answer_.memory.capacity)
                                                    : ""),
                      {},
                      peak_owners()};
    const auto part = [&](std::string head, bool drop, Bytes MemoryBytes::*member) {
      return column(std::move(head), drop,
                    [&](const StageReport& s) { return in_scale((s.memory.bytes.*member).value, scale); });
    };
    const bool versions =
        std::ranges::any_of(report_.stages, [](const StageReport& s) { return s.memory.weight_versions > 1; });
    std::vector<TextColumn> columns{
        stage_column(),
        column("peak", false, [&](const StageReport& s) { return in_scale(s.memory.bytes.total().value, scale); }),
        column("full", !limited(),
               [&](const StageReport& s) { return whole_percent(ratio(s.memory.bytes.total(), s.need.capacity)); })};
    if (several_classes() && limited())
      columns.insert(columns.begin() + 2,
                     column("of", false, [&](const StageReport& s) { return in_scale(s.need.capacity.value, scale); }));
    columns.push_back(part("weights", false, &MemoryBytes::weights));
    if (versions)
      columns.push_back(
          column("versions", false, [](const StageReport& s) { return fmt::format("x{}", s.memory.weight_versions); }));
    columns.push_back(part("grads", true, &MemoryBytes::gradients));
    columns.push_back(part("optimizer", true, &MemoryBytes::optimizer));
    columns.push_back(part("stash", false, &MemoryBytes::stash));
    columns.push_back(part("logits", true, &MemoryBytes::logits));
    columns.push_back(part("recompute", true, &MemoryBytes::recompute));
    columns.push_back(part("buffers", true, &MemoryBytes::buffers));
    columns.push_back(part("workspace", true, &MemoryBytes::workspace));
    columns.push_back(part("reserve", true, &MemoryBytes::reserve));
    columns.push_back(
        column("in flight", false, [](const StageReport& s) { return std::to_string(s.memory.in_flight); }));
    columns.push_back(column("peak at", false, [](const StageReport& s) {
      return fmt::format("{} {}", label(s.memory.owner), short_time(s.memory.at));
    }));
    table.columns = std::move(columns);
    if (const StageReport* full = fullest();
        full && short_bytes(full->need.with_reserve) != short_bytes(full->memory.bytes.total()))
      table.notes.push_back(
          fmt::format("peak: what the model holds; the device of stage {} must have {}, with what the "
                      "allocator rounds up and fragments{}",
                      full->stage, short_bytes(full->need.with_reserve),
                      full->need.anchored.value != 0 ? " and what a measured run adds" : ""));
    for (std::string& line : not_shown())
      table.notes.push_back(std::move(line));
    return table;
  }

  ReportTable links() const {
    if (report_.links.empty()) return {};
    auto busiest = mapped<const LinkReport*>(report_.links, [](const auto& link) { return &link; });
    std::ranges::stable_sort(busiest, [](const auto* a, const auto* b) { return a->utilization > b->utilization; });
    // Links of which the same is told share a row, which has the name of the busiest.
    using Told = std::array<std::string, 3>;
    std::vector<std::pair<Told, std::size_t>> alike;
    TextColumn name{"link", true, false, {}}, bytes{"carried"}, rate{"bandwidth"}, use{"in use"};
    std::size_t left_out = 0;
    const LinkReport* last = nullptr;  // links that carry the same stand together: what is told is worked out once
    Told told;
    for (const LinkReport* link : busiest) {
      if (last == nullptr || last->bytes != link->bytes || last->bandwidth != link->bandwidth ||
          last->utilization != link->utilization)
        told = {short_bytes(link->bytes), short_bandwidth(link->bandwidth), percent(link->utilization)};
      last = link;
      const auto known = std::ranges::find_if(alike, [&](const auto& each) { return each.first == told; });
      if (known != alike.end()) {
        ++known->second;
      } else if (std::ssize(alike) < rows_) {
        alike.emplace_back(told, 1);
        name.cells.push_back(link->name);
        bytes.cells.push_back(told[0]), rate.cells.push_back(told[1]), use.cells.push_back(told[2]);
      } else {
        ++left_out;
      }
    }
    for (std::size_t i = 0; i < alike.size(); ++i)
      if (alike[i].second > 1)
        name.cells[i] += fmt::format(" (+{} identical)", alike[i].second - 1), bytes.head = "carried each";
    ReportTable table{"links (busiest first)", {name, bytes, rate, use}, {}};
    if (left_out > 0)
      table.notes.push_back(fmt::format("{} more link{} carried something", left_out, left_out == 1 ? "" : "s"));
    return table;
  }

  ReportTable sensitivity() const {
    if (report_.sensitivity.empty()) return {};
    TextColumn what{"change", true, false, {}}, step{"step time"}, gain{"faster"};
    for (const auto& entry : report_.sensitivity) {
      what.cells.push_back(entry.what);
      step.cells.push_back(short_time(entry.step_time, 4));
      gain.cells.push_back(fmt::format("{:.3f}x", entry.speedup));
    }
    return {"what would help (simulated again with one change)", {what, step, gain}, {}};
  }

  FormulaTable formulas() const {
    FormulaTable table{{"quantity", true, false, {}}, {"by formula"}, {"simulated"}, {}};
    const std::size_t shown = std::min<std::size_t>(report_.formulas.size(), static_cast<std::size_t>(rows_));
    for (std::size_t i = 0; i < shown; ++i) {
      const FormulaReport& f = report_.formulas[i];
      table.quantity.cells.push_back(f.quantity);
      table.by_formula.cells.push_back(with_unit(f.value, f.unit));
      table.simulated.cells.push_back(with_unit(f.simulated, f.unit));
      const bool again = i > 0 && f.formula == report_.formulas[i - 1].formula;
      std::string words = again ? "likewise" : f.formula;
      if (!again && !f.source.empty()) words += " [" + f.source + "]";
      if (!f.applies.empty()) words += "; but " + f.applies;
      table.words.push_back(std::move(words));
    }
    return table;
  }

 private:
  // Speed-up, what limits the step, and what keeps the plan from fitting.
  void explain(std::vector<std::pair<std::string, std::string>>& lines) const {
    for (auto& line : interval_lines(report_))
      lines.push_back(std::move(line));
    if (report_.samples_per_s > 0 && !is_measured(answer_)) lines.emplace_back("speed-up", speed_up());
    lines.emplace_back("limited by", report_.limiting_factor);
    if (report_.fits) return;
    lines.emplace_back("infeasible", report_.shortfall.reason);
    const auto& details = report_.shortfall.details;
    for (std::size_t i = 0; i < std::min<std::size_t>(details.size(), kShortfallLines); ++i)
      lines.emplace_back("", details[i]);
    if (details.size() > kShortfallLines)
      lines.emplace_back("", fmt::format("{} more stages", details.size() - kShortfallLines));
    for (const auto& remedy : report_.shortfall.remedies)
      lines.emplace_back("", remedy);
  }

  // The sum of what the model holds, what the device must have for it, and the range in which that is expected.
  std::string memory_peak(const StageReport& full) const {
    const MemoryNeed& need = full.need;
    if (!limited()) return fmt::format("{} on stage {}", short_bytes(need.with_reserve), full.stage);
    std::string text = fmt::format("{} of {} on stage {}{}", short_bytes(need.with_reserve), short_bytes(need.capacity),
                                   full.stage, report_.fits ? "" : ": DOES NOT FIT");
    if (short_bytes(need.with_reserve) != short_bytes(need.model))
      text += fmt::format(" · {} of it held by the model", short_bytes(need.model));
    if (const std::string within = memory_within_90(need); !within.empty()) text += " · " + within;
    const Bytes on_host = in_host_memory(answer_.memory, answer_.schedule, answer_.plan, full.stage);
    if (on_host > Bytes{}) text += fmt::format(" · {} more in its host's memory", short_bytes(on_host));
    if (need.fit > 0) text += fmt::format(" · with {} up to {}", fit_text(need.fit), short_bytes(need.to_fit));
    if (is_anchored(*answer_.scenario)) text += " · " + anchored_text(need);
    return text;
  }

  // A real run without a cap says of no memory how full it is.
  bool limited() const { return answer_.memory.capacity.value > 0; }

  bool overlaps() const { return answer_.plan.barrier.value != Barrier::Flush; }

  std::string bubble_of_all() const { return percent(report_.bubble_fraction) + bubble_of(answer_); }
  std::string other_bubbles() const {
    std::string text = percent(report_.bubble_fraction_span) + " of the longest worker's span";
    for (const auto& formula : report_.formulas)
      if (formula.quantity == "bubble")
        text += fmt::format(" · by formula {} = {}{}", formula.formula, with_unit(formula.value, formula.unit),
                            formula.applies.empty() ? "" : " (" + formula.applies + ")");
    return text;
  }

  std::string more_than_all() const {
    return report_.scaling_efficiency > 1 && answer_.plan.micro_batches_at_expert() > 1
               ? fmt::format("; alone, experts get the tokens of 1 micro-batch at once, here of {:.4g}",
                             answer_.plan.micro_batches_at_expert())
               : "";
  }

  std::string speed_up() const {
    const int workers = answer_.plan.devices();
    if (report_.speedup_one_device <= 0)
      return report_.references.empty() ? "" : report_.references.front().what + ": " + report_.references.front().note;
    if (several_classes())
      return fmt::format("{}x over {} that could hold the model ({} of what all devices do alone{})",
                         significant(report_.speedup_one_device),
                         report_.references.empty() ? "one device" : report_.references.front().what,
                         percent(report_.scaling_efficiency), more_than_all());
    std::string text = fmt::format("{}x over one device with enough memory for the model ({} of {} {}{})",
                                   significant(report_.speedup_one_device), percent(report_.scaling_efficiency),
                                   workers, answer_.plan.tensor_parallel > 1 ? "devices" : "workers", more_than_all());
    if (!report_.speedup_data_parallel) return text;
    text += fmt::format(" · {}x over data parallelism on as many {}", significant(*report_.speedup_data_parallel),
                        answer_.plan.tensor_parallel > 1 ? "devices" : "workers");
    if (!answer_.schedule.flush) text += " that waits for its gradients";
    for (const Reference& each : report_.references)
      if (each.data_parallelism && !each.shortfall.empty())
        text += fmt::format(", which would not fit: {}", each.shortfall);
    return text;
  }

  const StageReport* fullest() const { return core::fullest(report_); }

  const Cluster& cluster() const { return answer_.scenario->cluster; }
  bool several_classes() const { return cluster().classes() > 1; }
  // Names of the devices of every stage, where there are several.
  TextColumn device_column() const {
    return column("device", false, [&](const StageReport& s) {
      return cluster().device_of(class_of_stage(answer_.plan, cluster(), s.stage)).name;
    });
  }

  // Stages that get a row.
  std::vector<int> shown() const {
    std::vector<int> wanted{report_.limiting_stage};
    if (const StageReport* full = fullest()) wanted.push_back(full->stage);
    return spread(static_cast<int>(report_.stages.size()), rows_, wanted);
  }

  TextColumn column(std::string head, bool drop_zero, auto cell) const {
    TextColumn result{std::move(head), false, drop_zero, {}};
    for (const int k : shown())
      result.cells.push_back(cell(report_.stages[static_cast<std::size_t>(k)]));
    return result;
  }
  TextColumn time_column(std::string_view head, bool drop_zero, Time StageReport::*member) const {
    auto largest = most_over<Time>(report_.stages, [&](const auto& stage) { return stage.*member; });
    const Scale scale = time_scale(largest);
    return column(fmt::format("{} {}", head, scale.name), drop_zero,
                  [&](const StageReport& s) { return in_scale((s.*member).value, scale); });
  }
  TextColumn stage_column() const {
    return column("stage", false, [](const StageReport& s) { return std::to_string(s.stage); });
  }
  std::vector<std::string> not_shown() const {
    const std::size_t rows = shown().size(), all = report_.stages.size();
    if (rows == all) return {};
    return {fmt::format("{} of {} stages are listed; -o FILE.csv has every worker", rows, all)};
  }

  // In percent, one decimal.
  static std::string figure(double share) {
    if (share > 0 && share < 0.0005) return "<0.1";
    return share == 0 ? "0" : fmt::format("{:.1f}", 100 * share);
  }

  // The words for peaks that no op made, of those that occur in the table.
  std::vector<std::string> peak_owners() const {
    bool send = false, receive = false, reduce = false;
    for (const int k : shown()) {
      const MemoryOwner& owner = report_.stages[static_cast<std::size_t>(k)].memory.owner;
      if (const auto* message = std::get_if<BufferedMessage>(&owner))
        (message->end == BufferedMessage::End::Sender ? send : receive) = true;
      else
        reduce = reduce || std::get<Op>(owner).kind == Kind::AllReduce;
    }
    std::vector<std::string> words;
    if (receive) words.push_back("RECV: a message that is arriving or waiting for its op");
    if (send) words.push_back("SEND: a message that waits to leave");
    if (send || receive) words.push_back("_F: activation, _B: gradient");
    if (reduce) words.push_back("AR: all-reduce of round.bucket");
    if (words.empty()) return {};
    return {fmt::format("{}", fmt::join(words, "; "))};
  }

  static std::string with_unit(double value, const std::string& unit) {
    if (unit == "%") return percent(value / 100);
    if (unit == "s") return short_time(Time{static_cast<std::int64_t>(std::llround(value * 1e9))}, 4);
    return brief(value) + (unit.empty() ? "" : " " + unit);
  }

  const Answer& answer_;
  const Report& report_;
  int rows_;
};

}  // namespace

std::string bubble_of(const Answer& answer) {
  if (answer.plan.barrier.value != Barrier::Flush) return " of the longest span of a stage, updates included";
  return answer.report.steady ? " of a steady period" : " of the makespan";
}

std::vector<std::pair<std::string, std::string>> summary_lines(const Answer& answer) {
  return Tables(answer, 0).summary();
}
std::vector<std::pair<std::string, std::string>> lines_beside_figures(const Answer& answer) {
  return Tables(answer, 0).beside_figures();
}
ReportTable stage_table(const Answer& answer, int rows) {
  return Tables(answer, rows).stages();
}
ReportTable idle_table(const Answer& answer, int rows) {
  return Tables(answer, rows).idle();
}
ReportTable memory_table(const Answer& answer, int rows) {
  return Tables(answer, rows).memory();
}
ReportTable link_table(const Answer& answer, std::size_t rows) {
  return Tables(answer, static_cast<int>(rows)).links();
}
ReportTable sensitivity_table(const Answer& answer) {
  return Tables(answer, 0).sensitivity();
}
FormulaTable formula_table(const Answer& answer, std::size_t rows) {
  return Tables(answer, static_cast<int>(rows)).formulas();
}

std::string critical_path_text(const Answer& answer, std::size_t most) {
  const Report& report = answer.report;
  std::string parts;
  Time rest;
  for (std::size_t i = 0; i < report.critical_path.size(); ++i) {
    const CriticalPart& part = report.critical_path[i];
    if (i >= most) {
      rest += part.time;
      continue;
    }
    parts += fmt::format("{}{} {}", i == 0 ? "" : " · ", percent(ratio(part.time, report.makespan)), part.what);
  }
  if (rest.value > 0) parts += fmt::format(" · {} the rest", percent(ratio(rest, report.makespan)));
  return parts;
}

std::vector<std::string> reference_lines(const Answer& answer) {
  std::vector<std::string> lines;
  for (const auto& reference : answer.report.references) {
    std::string text = reference.what + ": ";
    if (reference.samples_per_s)
      text += fmt::format("{} samples/s, this plan is {}x as fast", significant(*reference.samples_per_s, 4),
                          significant(answer.report.samples_per_s / *reference.samples_per_s));
    if (!reference.note.empty()) text += (reference.samples_per_s ? " (" + reference.note + ")" : reference.note);
    lines.push_back(std::move(text));
  }
  return lines;
}

}  // namespace pipewright::io
