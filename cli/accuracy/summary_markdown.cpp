// The tables of a study. Every cell of a run that was not made says so.
#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "cli/accuracy/summary.hpp"
#include "io/format_quantity.hpp"
#include "io/writers/markdown_table.hpp"

namespace pipewright {
namespace {

const std::string kNotMeasured = "not measured";

// "name" to the left, ">name" to the right.
std::string header(const std::vector<std::string>& names) {
  std::vector<TextColumn> columns;
  for (const std::string& name : names) {
    const bool right = name.starts_with(">");
    columns.push_back({.head = name.substr(right ? 1 : 0), .left = !right});
  }
  return markdown_head(columns);
}

std::string time_of(double seconds) {
  return short_time({std::llround(seconds * 1e9)});
}
std::string signed_percent(double value) {
  return fmt::format("{:+.1f} %", 100 * value);
}

class Tables {
 public:
  explicit Tables(const StudySummary& summary) : s_(summary) {}

  std::string text() const {
    return head() + targets() + device() + calibration() + runs() + speed_ups() + largest() + gradients() + attempts();
  }

 private:
  // Why a run has no figures, as its cells say it.
  std::string status_of(const StudyRecord* record) const {
    if (record == nullptr || record->status == "left out") return kNotMeasured;
    return record->status;
  }
  // The figure as `write` writes it, where the run was made.
  std::string cell(const StudyRecord* record, const std::string& key,
                   const std::function<std::string(double)>& write) const {
    if (record == nullptr || !record->figures.contains(key)) return status_of(record);
    return write(record->figure(key));
  }
  std::string plain(const StudyRecord* record, const std::string& key) const {
    return cell(record, key, [](double value) { return fmt::format("{:.0f}", value); });
  }
  std::string word(const StudyRecord* record, const std::string& key) const {
    const std::string text = record == nullptr ? "" : record->word(key);
    return text.empty() ? status_of(record) : text;
  }

  std::string head() const {
    std::string text = "## On GPUs\n\n";
    if (s_.dry_run)
      return text +
             "**A dry run**: every step was gone through on a CPU with small sizes. No figure here is one of a GPU, "
             "and "
             "times of workers that share cores say nothing.\n\n";
    text +=
        "Written by `pipewright accuracy`, which goes through six parts on a machine with a GPU "
        "([how](../how-it-works/gpu.md#on-a-machine-with-a-gpu)); "
        "one GPU is cut into K virtual devices, groups of its SMs. The scenarios are those of "
        "[scenarios/gpu](../../scenarios/gpu). What a CPU gave is in [accuracy-cpu.md](accuracy-cpu.md).\n\n"
        "```sh\nbuild/pipewright accuracy -o accuracy\n```\n\n";
    if (s_.records.empty()) text += "**No GPU has been measured yet**: every cell below says so.\n\n";
    return text;
  }

  std::string targets() const {
    std::string text =
        "### Targets\n\nSet before anything was measured. Steps count where the shortest op takes at least "
        "0.5 ms; a stretch is hoped for, missing it is no failure.\n\n" +
        header({"part", "quantity", "target", "result", "verdict"});
    for (const StudyTarget& target : s_.targets) {
      const std::array<std::string, 4> verdicts = {kNotMeasured, "not applicable", "met",
                                                   target.stretch ? "missed" : "MISSED"};
      text += markdown_row({std::to_string(target.part), target.quantity, target.target, target.result,
                            verdicts[static_cast<std::size_t>(target.state)]});
    }
    return text + "\n";
  }

  std::string device() const {
    const StudyRecord* const facts = s_.counted(1, "device");
    std::string text = "### Part 1: the device and its SM groups\n\n" + header({"question", "answer"});
    const auto fact = [&](const std::string& question, const std::string& answer) {
      text += markdown_row({question, answer});
    };
    fact("device", word(facts, "name"));
    fact("date", word(facts, "date"));
    fact("pipewright", word(facts, "program"));
    const auto bytes = [](double value) { return short_bytes({std::llround(value)}); };
    const auto hertz = [](double value) { return fmt::format("{:.0f} MHz", value / 1e6); };
    if (s_.dry_run) {
      fact("cores", plain(facts, "cores"));
    } else {
      fact("driver", word(facts, "driver"));
      fact("toolkit", word(facts, "toolkit"));
      fact("SMs", plain(facts, "sms"));
      fact("memory", cell(facts, "memory", bytes));
      fact("L2", cell(facts, "l2", bytes));
      fact("highest SM clock", cell(facts, "sm_clock_hz", hertz));
      fact("highest memory clock", cell(facts, "memory_clock_hz", hertz));
      fact("cuBLASLt", word(facts, "cuBLASLt"));
    }
    text += "\n" + header({">virtual devices", ">groups given", ">SMs each", ">left over", ">SM ids seen",
                           ">of them shared", ">a delay on one", ">delays on all"});
    for (const int asked : {2, 4, 8}) {
      const StudyRecord* const r = s_.counted(1, fmt::format("groups-{}", asked));
      text += markdown_row({std::to_string(asked), plain(r, "groups"), plain(r, "sms"), plain(r, "left_over"),
                            plain(r, "sms_seen"), plain(r, "sms_shared"), cell(r, "one_delay_s", time_of),
                            cell(r, "all_delays_s", time_of)});
    }
    return text + "\n";
  }

  std::string calibration() const {
    std::string text =
        "### Part 2: the calibration\n\nWhat parts 3 and 4 predict with: one measurement per size of the "
        "virtual devices.\n\n" +
        header({"profile", ">layers and sizes", ">error common to all", ">of each op's own", ">took"});
    for (const std::string& name : profiles()) {
      const StudyRecord* const r = s_.counted(2, name);
      text += markdown_row({name, plain(r, "layers"), cell(r, "common_error", percent),
                            cell(r, "independent_error", percent), cell(r, "seconds", time_of)});
    }
    text += "\nCross-validated by family of shapes: each family left out of the fit, then predicted by it.\n\n" +
            header({"family", ">SMs", ">shapes", ">mean error", ">p95", ">bias"});
    bool any = false;
    for (const StudyRecord& r : s_.records) {
      if (r.part != 2 || r.word("kind").empty()) continue;
      any = true;
      text += markdown_row({r.word("family"), plain(&r, "sms"), plain(&r, "shapes"), cell(&r, "mean_error", percent),
                            cell(&r, "p95_error", percent), cell(&r, "bias", signed_percent)});
    }
    const std::string cell_text = s_.dry_run ? "not applicable" : kNotMeasured;
    if (!any)
      for (const char* const kind : {"matrix products", "memory-bound"})
        text += markdown_row({kind, cell_text, cell_text, cell_text, cell_text, cell_text});
    return text + "\n";
  }
  std::vector<std::string> profiles() const {
    std::set<std::string> names;
    for (const PlannedRow& p : s_.plan)
      if (p.part == 3 || p.part == 4) names.insert(p.price_group);
    return {names.begin(), names.end()};
  }

  // Predicted and measured step of a run; a step that is withheld has no error.
  std::vector<std::string> step_cells(const StudyRecord* r) const {
    const bool judged = r != nullptr && r->done();
    return {cell(r, "predicted_s", time_of), cell(r, "measured_s", time_of),
            judged ? signed_percent(r->figure("error")) : status_of(r)};
  }

  std::string runs() const {
    std::string text =
        "### Part 3: pipelines, predicted and run\n\n"
        "An op is priced by what it took while as many of the K virtual devices worked; sharing of memory bandwidth is "
        "not modelled in addition.\n\n" +
        header({"scenario", ">K", ">M", "schedule", "precision", ">shortest op", ">predicted", ">measured", ">error",
                "in band", ">bubble, predicted", ">measured", "memory", ">p95/p5"});
    for (const PlannedRow& p : s_.plan) {
      if (p.part != 3) continue;
      const StudyRecord* const r = s_.counted(3, p.name);
      std::vector<std::string> cells = {
          p.name,      std::to_string(p.stages),         std::to_string(p.micro_batches), p.schedule,
          p.precision, cell(r, "shortest_op_s", time_of)};
      for (std::string& each : step_cells(r))
        cells.push_back(std::move(each));
      const bool judged = r != nullptr && r->done();
      cells.push_back(judged ? (r->figure("in_band") != 0 ? "yes" : "no") : status_of(r));
      cells.push_back(cell(r, "bubble_predicted", percent));
      cells.push_back(cell(r, "bubble_measured", percent));
      cells.push_back(cell(r, "memory_exact", [](double exact) { return exact != 0 ? "exact" : "NOT EXACT"; }));
      const bool spread = r != nullptr && r->figure("p5_s") > 0;
      cells.push_back(spread ? fmt::format("{:.2f}", r->figure("p95_s") / r->figure("p5_s")) : status_of(r));
      text += markdown_row(cells);
    }
    return text + "\n";
  }

  std::string speed_ups() const {
    std::string text =
        "### Part 4: speed-up of K virtual devices over one\n\nGPipe's table 2, on one GPU; the same samples "
        "on one of them take T(1, M), on K of them T(K, M).\n\n" +
        header({">K", ">M", ">predicted", ">measured", ">error"});
    for (const SpeedUp& one : s_.speed_ups) {
      std::vector<std::string> cells = {std::to_string(one.stages), std::to_string(one.micro_batches)};
      if (one.predicted && one.measured)
        cells.insert(cells.end(), {fmt::format("{:.2f}", *one.predicted), fmt::format("{:.2f}", *one.measured),
                                   signed_percent(*one.predicted / *one.measured - 1)});
      else
        cells.insert(cells.end(), 3, missing(one));
      text += markdown_row(cells);
    }
    return text + "\n";
  }
  std::string missing(const SpeedUp& one) const {
    for (const std::int64_t stages : {one.stages, std::int64_t{1}})
      for (const PlannedRow& p : s_.plan)
        if (p.part == 4 && p.stages == stages && p.micro_batches == one.micro_batches)
          if (const StudyRecord* const r = s_.counted(4, p.name); r == nullptr || !r->done()) return status_of(r);
    return kNotMeasured;
  }

  std::string largest() const {
    std::string text =
        "### Part 5: the largest model under a cap\n\nGPipe's table 1, on one GPU: Transformer blocks, as "
        "`capacity` predicts them and as real runs of one step find them.\n\n" +
        header({">K", ">cap of each", ">predicted", ">found by runs", ">parameters", ">runs",
                ">memory with contexts, error"});
    for (const PlannedRow& p : s_.plan) {
      if (p.part != 5) continue;
      const StudyRecord* const r = s_.counted(5, p.name);
      const auto bytes = [](double value) { return short_bytes({std::llround(value)}); };
      text +=
          markdown_row({std::to_string(p.stages), cell(r, "cap", bytes), plain(r, "predicted_layers"),
                        plain(r, "measured_layers"), cell(r, "parameters", [](double n) { return short_count(n); }),
                        plain(r, "runs"), s_.dry_run ? "not applicable" : cell(r, "context_error", signed_percent)});
    }
    return text + "\n";
  }

  std::string gradients() const {
    std::string text =
        "### Part 6: gradients\n\nOf one step, by parameter tensor, against those of one worker. Tolerances "
        "where cuBLASLt multiplies: 1e-5 in fp32, 1e-3 in tf32, 1e-2 in bf16.\n\n" +
        header({">K", "precision", "kernels", ">values", ">that differ", ">furthest tensor, relative distance"});
    for (const PlannedRow& p : s_.plan) {
      if (p.part != 6) continue;
      const StudyRecord* const r = s_.counted(6, p.name);
      text += markdown_row(
          {std::to_string(p.stages), p.precision, p.kernels, plain(r, "values"), plain(r, "differing"),
           cell(r, "relative", [](double d) { return d == 0 ? std::string("0") : fmt::format("{:.1e}", d); })});
    }
    return text + "\n";
  }

  // Runs that no attempt of which was judged, with what the latest says; all attempts are in the JSON.
  std::string attempts() const {
    std::string rows;
    for (std::size_t i = 0; i < s_.records.size(); ++i) {
      const StudyRecord& r = s_.records[i];
      const bool last =
          i + 1 == s_.records.size() || s_.records[i + 1].part != r.part || s_.records[i + 1].name != r.name;
      const StudyRecord* const counts = s_.counted(r.part, r.name);
      if (!last || counts->done() || r.status == "not applicable") continue;
      rows += markdown_row({std::to_string(r.part), r.name, std::to_string(r.attempt), r.status, r.reason});
    }
    if (rows.empty()) return "";
    return "### Without a judgement\n\n" + header({">part", "name", ">attempts", "status", "reason of the latest"}) +
           rows + "\n";
  }
  const StudySummary& s_;
};

}  // namespace

std::string summary_markdown(const StudySummary& summary) {
  std::string text = Tables(summary).text();
  text.pop_back();  // one newline at the end
  return text;
}

}  // namespace pipewright
