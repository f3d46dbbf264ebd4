// The report on a terminal: the question, the answer, the drawing, then what it is made of and how it is known.
#include <algorithm>

#include <fmt/format.h>

#include "core/plan/idle_devices.hpp"
#include "io/format_quantity.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/text_table.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {
namespace {

constexpr int kStageRows = 16;  // more stages than that: evenly spread ones, the limiting and the fullest
constexpr int kLinkRows = 4;
constexpr std::size_t kFormulaRows = 8;
constexpr std::size_t kShortfallLines = 4;
constexpr int kPathParts = 6;
constexpr int kLabel = 13;  // columns of the labels "throughput   ", ...
constexpr int kNarrowest = 40;

class Page {
 public:
  Page(const Answer& answer, const TableOptions& options)
      : answer_(answer), report_(answer.report), width_(std::max(kNarrowest, options.width)), colour_(options.colour) {}

  std::string print() {
    text_ += paint(wrapped("", question(answer_), width_), "1");
    summary();
    heading("timeline");
    text_ += text_timeline(answer_, width_);
    stages();
    idle();
    memory();
    links();
    critical_path();
    sensitivity();
    formulas();
    references();
    remarks();
    return std::move(text_);
  }

 private:
  // Escapes stand around whole lines only, so that widths never count them.
  std::string paint(std::string line, std::string_view code) const {
    if (!colour_) return line;
    const auto end = line.find_last_not_of('\n') + 1;
    return fmt::format("\x1b[{}m{}\x1b[0m{}", code, line.substr(0, end), line.substr(end));
  }
  void heading(std::string_view name) { text_ += "\n" + paint(wrapped("", name, width_), "1"); }
  void line(std::string_view label, std::string_view value) {
    text_ += wrapped(padded(label, kLabel) + " ", value, width_);
  }

  void summary() {
    std::string step = short_time(report_.step_time, 4);
    if (report_.steady) {
      const auto& steady = *report_.steady;
      const double cycle = seconds(steady.growth) / static_cast<double>(steady.micro_batches);
      step += fmt::format(" ({} samples at the steady rate) · {} per micro-batch in the steady state{} · whole run {}",
                          answer_.plan.global_batch_size,
                          short_time(Time{static_cast<std::int64_t>(std::llround(cycle * 1e9))}, 4),
                          steady.exact ? "" : " (averaged: no exact period found)", short_time(report_.makespan, 4));
    }
    if (report_.range)
      step += fmt::format(" ({} to {} over the bands of the efficiencies)", short_time(report_.range->fastest, 3),
                          short_time(report_.range->slowest, 3));
    line("step time", step);
    const bool timed = report_.samples_per_s > 0;
    std::string rate = timed ? significant(report_.samples_per_s, 4) + " samples/s" : "none: the step takes no time";
    if (report_.range)
      rate += fmt::format(" ({} to {})", significant(report_.range->samples_per_s_low),
                          significant(report_.range->samples_per_s_high));
    if (report_.tokens_per_s) rate += " · " + significant(*report_.tokens_per_s, 4) + " tokens/s";
    if (report_.mfu) rate += " · MFU " + percent(*report_.mfu);
    line("throughput", rate);
    line("bubble", bubble());
    if (const StageReport* full = fullest()) line("memory peak", memory_peak(*full));
    if (timed) line("speed-up", speed_up());
    line("limited by", report_.limiting_factor);
    if (const std::string idle = idle_devices_in_words(answer_.plan, cluster()); !idle.empty()) line("idle", idle);
    if (!report_.fits) {
      line("infeasible", report_.shortfall.reason);
      const auto& details = report_.shortfall.details;
      for (std::size_t i = 0; i < std::min<std::size_t>(details.size(), kShortfallLines); ++i)
        line("", details[i]);
      if (details.size() > kShortfallLines) line("", fmt::format("{} more stages", details.size() - kShortfallLines));
      for (const auto& remedy : report_.shortfall.remedies)
        line("", remedy);
    }
  }

  // The sum of what the model holds, what the device must have for it, and the range in which that is expected.
  std::string memory_peak(const StageReport& full) const {
    const MemoryNeed& need = full.need;
    std::string text = fmt::format("{} of {} on stage {}{}", short_bytes(need.with_reserve), short_bytes(need.capacity),
                                   full.stage, report_.fits ? "" : ": DOES NOT FIT");
    if (short_bytes(need.with_reserve) != short_bytes(need.model))
      text += fmt::format(" · {} of it held by the model", short_bytes(need.model));
    if (answer_.memory.activation_band > 0)
      text += fmt::format(" · expected within {} to {}", short_bytes(need.low), short_bytes(need.high));
    return text;
  }

  std::string bubble() const {
    std::string text = percent(report_.bubble_fraction);
    text += report_.steady ? " of a steady period" : " of the makespan";
    text += fmt::format(" · {} of the longest worker's span", percent(report_.bubble_fraction_span));
    for (const auto& formula : report_.formulas)
      if (formula.quantity == "bubble")
        text += fmt::format(" · by formula {} = {}{}", formula.formula, with_unit(formula.value, formula.unit),
                            formula.applies.empty() ? "" : " (" + formula.applies + ")");
    return text;
  }

  std::string speed_up() const {
    const int workers = answer_.plan.devices();
    if (several_classes())
      return fmt::format("{}x over {} that could hold the model ({} of what all devices do alone)",
                         significant(report_.speedup_one_device),
                         report_.references.empty() ? "one device" : report_.references.front().what,
                         percent(report_.scaling_efficiency));
    std::string text = fmt::format("{}x over one device that could hold the model ({} of {} {})",
                                   significant(report_.speedup_one_device), percent(report_.scaling_efficiency),
                                   workers, answer_.plan.tensor_parallel > 1 ? "devices" : "workers");
    if (report_.speedup_data_parallel)
      text += fmt::format(" · {}x over data parallelism on as many {}", significant(*report_.speedup_data_parallel),
                          answer_.plan.tensor_parallel > 1 ? "devices" : "workers");
    return text;
  }

  const StageReport* fullest() const { return pipewright::fullest(report_); }

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
    return spread(static_cast<int>(report_.stages.size()), kStageRows, wanted);
  }

  TextColumn column(std::string head, bool drop_zero, auto cell) const {
    TextColumn result{std::move(head), false, drop_zero, {}};
    for (const int k : shown())
      result.cells.push_back(cell(report_.stages[static_cast<std::size_t>(k)]));
    return result;
  }
  TextColumn time_column(std::string_view head, bool drop_zero, Time StageReport::*member) const {
    Time largest;
    for (const auto& stage : report_.stages)
      largest = std::max(largest, stage.*member);
    const Scale scale = time_scale(largest);
    return column(fmt::format("{} {}", head, scale.name), drop_zero,
                  [&](const StageReport& s) { return in_scale((s.*member).value, scale); });
  }
  TextColumn stage_column() const {
    return column("stage", false, [](const StageReport& s) { return std::to_string(s.stage); });
  }
  void not_shown() {
    const std::size_t rows = shown().size(), all = report_.stages.size();
    if (rows < all) text_ += fmt::format("  {} of {} stages are listed; -o FILE.csv has every worker\n", rows, all);
  }

  void stages() {
    heading("stages (times per micro-batch; busy: of the makespan, busiest worker)");
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
    if (several_classes()) columns.insert(columns.begin() + 1, device_column());
    text_ += text_table(std::move(columns), width_);
    not_shown();
  }

  // In percent, one decimal.
  static std::string figure(double share) {
    if (share > 0 && share < 0.0005) return "<0.1";
    return share == 0 ? "0" : fmt::format("{:.1f}", 100 * share);
  }

  void idle() {
    heading("idle time in % of the makespan (busiest worker of each stage)");
    const auto part = [&](std::string head, bool drop, Time IdleSplit::*member) {
      return column(std::move(head), drop,
                    [&](const StageReport& s) { return figure(ratio(s.idle.*member, report_.makespan)); });
    };
    text_ += text_table(
        {stage_column(),
         column("idle %", false, [&](const StageReport& s) { return figure(ratio(s.idle.total(), report_.makespan)); }),
         part("= fill", false, &IdleSplit::fill), part("+ imbalance", false, &IdleSplit::imbalance),
         part("+ communication", false, &IdleSplit::communication), part("+ stall", false, &IdleSplit::stall),
         part("+ drain", false, &IdleSplit::drain)},
        width_);
  }

  void memory() {
    Bytes largest;
    for (const auto& stage : report_.stages)
      largest = std::max(largest, stage.memory.bytes.total());
    const Scale scale = bytes_scale(largest);
    heading(fmt::format("memory in {} at the moment of the peak (fullest worker of each stage{})", scale.name,
                        several_classes() ? "" : ", of " + short_bytes(answer_.memory.capacity)));
    const auto part = [&](std::string head, bool drop, Bytes MemoryBytes::*member) {
      return column(std::move(head), drop,
                    [&](const StageReport& s) { return in_scale((s.memory.bytes.*member).value, scale); });
    };
    const bool versions = std::any_of(report_.stages.begin(), report_.stages.end(),
                                      [](const StageReport& s) { return s.memory.weight_versions > 1; });
    std::vector<TextColumn> columns{
        stage_column(),
        column("peak", false, [&](const StageReport& s) { return in_scale(s.memory.bytes.total().value, scale); }),
        column("full", false,
               [&](const StageReport& s) { return whole_percent(ratio(s.memory.bytes.total(), s.need.capacity)); })};
    if (several_classes())
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
    text_ += text_table(columns, width_);
    peak_owners();
    not_shown();
  }

  // The words for peaks that no op made, of those that occur in the table.
  void peak_owners() {
    bool send = false, receive = false, reduce = false;
    for (const int k : shown()) {
      const MemoryOwner& owner = report_.stages[static_cast<std::size_t>(k)].memory.owner;
      if (const auto* message = std::get_if<BufferedMessage>(&owner))
        (message->end == Kind::Send ? send : receive) = true;
      else
        reduce = reduce || std::get<Op>(owner).kind == Kind::AllReduce;
    }
    std::vector<std::string> words;
    if (receive) words.push_back("RECV: a message that comes in or waits for its op");
    if (send) words.push_back("SEND: a message that waits to leave");
    if (send || receive) words.push_back("_F: activation, _B: gradient");
    if (reduce) words.push_back("AR: all-reduce of round.bucket");
    if (!words.empty()) text_ += wrapped("  ", fmt::format("{}", fmt::join(words, "; ")), width_);
  }

  void links() {
    if (report_.links.empty()) return;
    heading("links (busiest first)");
    std::vector<const LinkReport*> busiest;
    for (const auto& link : report_.links)
      busiest.push_back(&link);
    std::stable_sort(busiest.begin(), busiest.end(),
                     [](const auto* a, const auto* b) { return a->utilization > b->utilization; });
    if (busiest.size() > kLinkRows) busiest.resize(kLinkRows);
    TextColumn name{"link", true, false, {}}, bytes{"carried"}, rate{"bandwidth"}, use{"in use"};
    for (const LinkReport* link : busiest) {
      name.cells.push_back(link->name);
      bytes.cells.push_back(short_bytes(link->bytes));
      rate.cells.push_back(short_bandwidth(link->bandwidth));
      use.cells.push_back(percent(link->utilization));
    }
    text_ += text_table({name, bytes, rate, use}, width_);
    if (report_.links.size() > busiest.size())
      text_ += fmt::format("  {} more links carried something\n", report_.links.size() - busiest.size());
  }

  void critical_path() {
    if (report_.critical_path.empty()) return;
    std::string parts;
    Time rest;
    for (std::size_t i = 0; i < report_.critical_path.size(); ++i) {
      const CriticalPart& part = report_.critical_path[i];
      if (i >= kPathParts) {
        rest += part.time;
        continue;
      }
      parts += fmt::format("{}{} {}", i == 0 ? "" : " · ", percent(ratio(part.time, report_.makespan)), part.what);
    }
    if (rest.value > 0) parts += fmt::format(" · {} the rest", percent(ratio(rest, report_.makespan)));
    heading("critical path");
    text_ += wrapped("  ", parts, width_);
  }

  void sensitivity() {
    if (report_.sensitivity.empty()) return;
    heading("what would help (simulated again with one change)");
    TextColumn what{"change", true, false, {}}, step{"step time"}, gain{"faster"};
    for (const auto& entry : report_.sensitivity) {
      what.cells.push_back(entry.what);
      step.cells.push_back(short_time(entry.step_time, 4));
      gain.cells.push_back(fmt::format("{:.3f}x", entry.speedup));
    }
    text_ += text_table({what, step, gain}, width_);
  }

  static std::string with_unit(double value, const std::string& unit) {
    if (unit == "%") return percent(value / 100);
    if (unit == "s") return short_time(Time{static_cast<std::int64_t>(std::llround(value * 1e9))}, 4);
    return brief(value) + (unit.empty() ? "" : " " + unit);
  }

  // Figures in columns, then the formula and what differs from its assumptions, in words.
  void formulas() {
    if (report_.formulas.empty()) return;
    heading("textbook formulas beside the simulation");
    TextColumn quantity{"quantity", true, false, {}}, value{"by formula"}, simulated{"simulated"};
    const std::size_t shown = std::min<std::size_t>(report_.formulas.size(), kFormulaRows);
    for (std::size_t i = 0; i < shown; ++i) {
      const FormulaReport& f = report_.formulas[i];
      quantity.cells.push_back(f.quantity);
      value.cells.push_back(with_unit(f.value, f.unit));
      simulated.cells.push_back(with_unit(f.simulated, f.unit));
    }
    constexpr int kUnlimited = 1000;
    std::string rows = text_table({quantity, value, simulated}, kUnlimited);
    const auto next_row = [&] {
      const auto end = rows.find('\n');
      const std::string row = rows.substr(0, end);
      rows.erase(0, end + 1);
      return row;
    };
    text_ += next_row() + "  formula\n";
    for (std::size_t i = 0; i < shown; ++i) {
      const FormulaReport& f = report_.formulas[i];
      const bool again = i > 0 && f.formula == report_.formulas[i - 1].formula;
      std::string words = again ? "likewise" : f.formula;
      if (!again && !f.source.empty()) words += " [" + f.source + "]";
      if (!f.applies.empty()) words += "; but " + f.applies;
      text_ += wrapped(next_row() + "  ", words, width_);
    }
    if (shown < report_.formulas.size())
      text_ += fmt::format("  {} more formulas; -o FILE.json has them\n", report_.formulas.size() - shown);
  }

  void references() {
    if (report_.references.empty()) return;
    heading("for comparison");
    for (const auto& reference : report_.references) {
      std::string text = reference.what + ": ";
      if (reference.samples_per_s)
        text += fmt::format("{} samples/s, this plan is {}x as fast", significant(*reference.samples_per_s, 4),
                            significant(report_.samples_per_s / *reference.samples_per_s));
      if (!reference.note.empty()) text += (reference.samples_per_s ? " (" + reference.note + ")" : reference.note);
      text_ += wrapped("  ", text, width_);
    }
  }

  void remarks() {
    if (!report_.warnings.empty() || !report_.hints.empty()) text_ += "\n";
    for (const auto& warning : report_.warnings)
      text_ += paint(wrapped("warning: ", warning, width_), "33");
    for (const auto& hint : report_.hints)
      text_ += wrapped("hint: ", hint, width_);
    heading("how it is known");
    for (const auto& entry : report_.provenance)
      text_ += wrapped("  ", entry, width_);
  }

  const Answer& answer_;
  const Report& report_;
  int width_;
  bool colour_;
  std::string text_;
};

}  // namespace

std::string terminal_report(const Answer& answer, const TableOptions& options) {
  return Page(answer, options).print();
}

}  // namespace pipewright
