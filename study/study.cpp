#include "study/study.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "calibrate/calibrate.hpp"
#include "core/check.hpp"
#include "core/ending.hpp"
#include "core/question/profile.hpp"
#include "io/console.hpp"
#include "io/read/read_file.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/quote.hpp"
#include "io/writers/html_page.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/writers.hpp"
#include "runtime/signals.hpp"
#include "study/attempt.hpp"
#include "study/documents.hpp"

namespace pipewright::study {
namespace {

constexpr Time kShortOp{100'000};       // an op of less is a short one: told apart in the summary
constexpr double kBubblePoints = 0.02;  // within which a bubble counts as predicted

// The attempt that counts for a scenario: the first that was judged.
const Row* counted(const std::vector<Row>& rows, const std::string& scenario) {
  for (const Row& row : rows)
    if (row.scenario == scenario && row.judged()) return &row;
  return nullptr;
}

std::vector<std::string> names_in_order(const std::vector<Row>& rows) {
  std::vector<std::string> names;
  for (const Row& row : rows)
    if (std::ranges::find(names, row.scenario) == names.end()) names.push_back(row.scenario);
  return names;
}

struct StudySummary {
  int scenarios = 0, judged = 0, withheld = 0, failed = 0, in_band = 0, bubbles = 0, exact = 0, short_ops = 0;
  double mean_error = 0, largest_error = 0;            // of those with long ops
  double mean_with_short = 0, largest_with_short = 0;  // of all that were judged
};

StudySummary summary(const std::vector<Row>& rows) {
  StudySummary s;
  for (const std::string& name : names_in_order(rows)) {
    ++s.scenarios;
    const Row* const row = counted(rows, name);
    if (row == nullptr) {
      const bool failed =
          std::ranges::all_of(rows, [&](const Row& r) { return r.scenario != name || !r.failed.empty(); });
      ++(failed ? s.failed : s.withheld);
      continue;
    }
    ++s.judged;
    const double error = std::abs(row->error);
    s.mean_with_short += error, s.largest_with_short = std::max(s.largest_with_short, error);
    if (row->shortest_op < kShortOp) {
      ++s.short_ops;
    } else {
      s.mean_error += error, s.largest_error = std::max(s.largest_error, error);
    }
    s.in_band += row->in_band, s.exact += row->memory_exact;
    s.bubbles += std::abs(row->bubble_off()) <= kBubblePoints;
  }
  if (s.judged > 0) s.mean_with_short /= s.judged;
  if (s.judged > s.short_ops) s.mean_error /= s.judged - s.short_ops;
  return s;
}

// Of scenarios that do the same work on the same devices: is the one predicted best the one measured best?
struct Best {
  std::string group, predicted, measured;
  std::size_t of = 0;
  double regret = 0;  // how much longer the one predicted best took than the one measured best
};

std::vector<Best> best_of_groups(const std::vector<Row>& rows) {
  std::map<std::string, std::vector<const Row*>> groups;
  for (const std::string& name : names_in_order(rows))
    if (const Row* const row = counted(rows, name)) groups[row->group].push_back(row);
  std::vector<Best> list;
  for (const auto& [group, members] : groups) {
    if (members.size() < 2) continue;
    const Row* const predicted = *std::min_element(
        members.begin(), members.end(), [](const Row* a, const Row* b) { return a->predicted < b->predicted; });
    const Row* const measured =
        *std::ranges::min_element(members, [](const Row* a, const Row* b) { return a->median < b->median; });
    list.push_back({group, predicted->scenario, measured->scenario, members.size(),
                    static_cast<double>(predicted->median.value) / static_cast<double>(measured->median.value) - 1});
  }
  return list;
}

// What they say together: how many were judged, then a sentence each.
std::vector<std::string> remarks(const std::vector<Row>& rows) {
  const StudySummary s = summary(rows);
  const auto errors = [](double mean, double largest, int count) {
    return fmt::format("mean |error| {:.1f} %, largest {:.1f} % over {}", 100 * mean, 100 * largest, count);
  };
  std::string judged = fmt::format("{} of {} scenarios judged", s.judged, s.scenarios);
  if (s.withheld > 0) judged += fmt::format(", {} withheld: the machine was too restless", s.withheld);
  if (s.failed > 0) judged += fmt::format(", {} failed", s.failed);
  std::vector<std::string> lines = {judged + "."};
  const int long_ops = s.judged - s.short_ops;
  if (long_ops > 0)
    lines.push_back(
        fmt::format("Ops of at least {}: {}.", short_time(kShortOp), errors(s.mean_error, s.largest_error, long_ops)));
  if (s.short_ops > 0)
    lines.push_back(fmt::format("With shorter ones: {}.", errors(s.mean_with_short, s.largest_with_short, s.judged)));
  if (s.judged > 0)
    lines.push_back(
        fmt::format("Bubble within {:.0f} points: {} of {}. Measured step in the 90 % band: {} of {}. Peak memory to "
                    "the byte: {} of {}.",
                    100 * kBubblePoints, s.bubbles, s.judged, s.in_band, s.judged, s.exact, s.judged));
  for (const Best& best : best_of_groups(rows))
    lines.push_back(fmt::format(
        "Best of {} ({}): predicted {}, measured {}{}.", best.of, best.group, best.predicted, best.measured,
        best.predicted == best.measured ? ""
                                        : fmt::format("; the predicted one takes {:.1f} % longer", 100 * best.regret)));
  return lines;
}

std::string markdown(const std::vector<Row>& rows, const MachineProfile& profile, double tolerance) {
  std::string text = fmt::format(
      "Profile: {}; pipewright {}. Each scenario ran once, in this order, after all had been calibrated; one whose run "
      "was withheld ran again, at most twice. Every attempt is here. The step is the median of the timed ones, "
      "predicted as the machine was meanwhile; band: 90 %.\n\n",
      markdown_text(profile.source), profile.machine.revision);
  text +=
      "| scenario | attempt | schedule, K x M | shortest op | predicted | measured | error | in band | bubble, "
      "predicted | measured | memory | p95/p5 | verdict |\n|---|--:|---|--:|--:|--:|--:|---|--:|--:|---|--:|---|\n";
  for (const Row& r : rows) {
    if (!r.failed.empty()) {
      text += fmt::format("| {} | {} | | | | | | | | | | | failed: {} |\n", markdown_cell(r.scenario), r.attempt,
                          markdown_cell(r.failed));
      continue;
    }
    // A run that says nothing about time has no error: its cells say so, its times are in the JSON.
    const bool judged = r.judged();
    text += fmt::format(
        "| {} | {} | {}, {} x {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.2f} | {} |\n", markdown_cell(r.scenario),
        r.attempt, r.schedule, r.stages, r.micro_batches, short_time(r.shortest_op), short_time(r.predicted),
        short_time(r.median), judged ? signed_percent(r.error) : "withheld", judged ? (r.in_band ? "yes" : "no") : "",
        percent(r.bubble_predicted), percent(r.bubble_measured), r.memory_exact ? "exact" : "NOT EXACT", r.spread(),
        r.verdict == Verdict::Within    ? "within " + whole_percent(tolerance)
        : r.verdict == Verdict::Outside ? "outside " + whole_percent(tolerance)
        : r.never                       ? markdown_cell(r.text)
                                        : "withheld: the machine changed");
  }
  const std::vector<std::string> said = remarks(rows);
  text += "\n" + markdown_text(said.front()) + "\n";
  for (std::size_t i = 1; i < said.size(); ++i)
    text += "- " + markdown_text(said[i]) + "\n";
  return text;
}

void write_attempt(JsonFields& json, const Row& r) {
  json.field("scenario", r.scenario).field("attempt", r.attempt);
  json.field("schedule", r.schedule).field("stages", r.stages).field("micro_batches", r.micro_batches);
  json.field("group", r.group).field("shortest_op", r.shortest_op);
  json.object("step", [&] {
    json.field("predicted", r.predicted).field("measured_median", r.median);
    json.field("measured_p5", r.p5).field("measured_p95", r.p95).field("error", std::optional(r.error));
    json.field("band", r.half_band).field("in_band", r.in_band).field("timed", r.timed);
  });
  write_compared(json, "bubble", r.bubble_predicted, r.bubble_measured);
  json.field("memory_exact", r.memory_exact).field("verdict", r.verdict).field("reason", r.text);
}

void write_failed(JsonFields& json, const Row& r) {
  json.field("scenario", r.scenario).field("attempt", r.attempt).field("failed", r.failed);
}

void write_study(JsonFields& json, const std::vector<Row>& rows, const MachineProfile& profile) {
  json.field("profile", profile.source).field("date", profile.date).field("revision", profile.machine.revision);
  json.list("attempts", rows, [&](const Row& row) {
    return JsonEither{row.failed.empty(), [&] { write_attempt(json, row); }, [&] { write_failed(json, row); }};
  });
  json.object("summary", [&] {
    const StudySummary s = summary(rows);
    json.field("scenarios", s.scenarios).field("judged", s.judged).field("withheld", s.withheld);
    json.field("failed", s.failed).field("with_short_ops", s.short_ops);
    json.field("mean_error", s.mean_error).field("largest_error", s.largest_error);
    json.field("mean_error_with_short_ops", s.mean_with_short);
    json.field("largest_error_with_short_ops", s.largest_with_short);
    json.field("bubbles_within_2_points", s.bubbles).field("in_band", s.in_band).field("memory_exact", s.exact);
  });
  json.list("best", best_of_groups(rows), [&](const Best& best) {
    json.field("of", best.group).field("scenarios", best.of).field("predicted", best.predicted);
    json.field("measured", best.measured).field("regret", std::optional(best.regret));
  });
}

std::string json(const std::vector<Row>& rows, const MachineProfile& profile) {
  return kStudyDocument.text([&](JsonFields& fields) { write_study(fields, rows, profile); });
}

std::vector<Scenario> read_all(const Study& study) {
  std::vector<Scenario> scenarios;
  std::map<std::string, std::string> path_of;
  for (const std::string& path : study.scenarios) {
    scenarios.push_back(read_scenario(path, study.read));
    if (scenarios.back().run.synthetic)
      throw InputError(scenarios.back().run.place, "run.synthetic",
                       "several scenarios share one calibration, and a synthetic run has none; validate it alone");
    const auto [first, added] = path_of.try_emplace(file_name_of(scenarios.back()), path);
    if (!added)
      throw InputError("validate: " + first->second + " and " + path + " are both named \"" + first->first +
                       "\"; give each scenario a name of its own");
  }
  return scenarios;
}

int status_of(const std::vector<Row>& rows) {
  int status = kDone;
  for (const std::string& name : names_in_order(rows)) {
    const Row* const row = counted(rows, name);
    const int one = row == nullptr ? kBadInput : exit_status(row->verdict);
    if (one == kNo || (one == kBadInput && status == kDone)) status = one;
  }
  return status;
}

// One page: the table of all attempts, then each one's timelines. `remarks`: what the study says of them together.
// `profile`: what it was predicted with. Drawings are read from `folder`, where the attempts left them; one that is not
// there (the run failed) is left out.
std::string study_html(const std::vector<Row>& rows, const std::vector<std::string>& remarks,
                       const std::string& profile, const std::string& folder, const std::string& command) {
  HtmlPage page("Predictions next to runs",
                "Every scenario was predicted from one calibration, before it ran; every attempt is here.");
  std::vector<TextColumn> columns = {
      {"scenario", true}, {"attempt"},  {"schedule, K x M", true}, {"predicted"}, {"measured"},     {"error"},
      {"bubble"},         {"measured"}, {"memory", true},          {"p95/p5"},    {"verdict", true}};
  for (const Row& r : rows) {
    const bool failed = !r.failed.empty();
    const std::string cells[] = {r.scenario,
                                 std::to_string(r.attempt),
                                 failed ? "" : fmt::format("{}, {} x {}", r.schedule, r.stages, r.micro_batches),
                                 failed ? "" : short_time(r.predicted),
                                 failed ? "" : short_time(r.median),
                                 r.judged() ? signed_percent(r.error) : "",
                                 failed ? "" : percent(r.bubble_predicted),
                                 failed ? "" : percent(r.bubble_measured),
                                 failed           ? ""
                                 : r.memory_exact ? "exact"
                                                  : "NOT EXACT",
                                 failed ? "" : fmt::format("{:.2f}", r.spread()),
                                 failed ? "failed: " + r.failed : std::string(name(r.verdict))};
    for (std::size_t i = 0; i < columns.size(); ++i)
      columns[i].cells.push_back(cells[i]);
  }
  page.heading("All attempts");
  page.table(columns);
  page.list(remarks);
  for (const Row& r : rows) {
    if (!r.failed.empty()) continue;
    page.heading(fmt::format("{}, attempt {}", r.scenario, r.attempt));
    page.paragraph(r.text + ".");
    const std::string drawing = fmt::format("{}/{}/attempt-{}/overlay.svg", folder, r.file, r.attempt);
    std::error_code absent;
    if (std::filesystem::exists(drawing, absent)) page.drawing(read_file(drawing));
  }
  page.heading("How it is known");
  page.list({"prices: " + profile});
  if (!command.empty()) {
    page.heading("Made by");
    page.text_block(command);
  }
  return page.document();
}

}  // namespace

constinit const JsonDocument kStudyDocument{"pipewright.accuracy/1",
                                            [](JsonFields& fields) { write_study(fields, {}, {}); }, nullptr, false};

int validate_all(const Study& study) {
  const std::vector<Scenario> scenarios = read_all(study);
  for (const Scenario& scenario : scenarios)
    check_like_first(scenarios.front(), scenario);
  Ranks* const ranks = joined_ranks(scenarios.front());  // rank 0 writes and prints
  std::optional<StudyFolder> folder;
  if (prints()) folder.emplace(study.output, study.chosen);
  const Interruption interruption;
  const MachineProfile profile = profile_for(
      study.profile, scenarios, study.seconds, "validation", folder,
      [&] { note(fmt::format("calibrating {} scenarios", scenarios.size())); }, ranks);
  if (folder) folder->make();
  if (prints()) write_file(study.output + "/profile.yaml", profile_yaml(profile));

  std::vector<Row> rows;
  const auto run = [&](const Scenario& scenario, int number) {
    rows.push_back(attempted(priced_with(scenario, profile), number,
                             {.folder = fmt::format("{}/{}/attempt-{}", study.output, file_name_of(scenario), number),
                              .tolerance = study.tolerance,
                              .forced = study.forced,
                              .seconds = study.seconds},
                             ranks));
    if (asked_to_end() != 0 && !rows.back().failed.empty()) {
      rows.pop_back();  // it would have gone on
      throw Interrupted("a run was ended");
    }
    const Row& row = rows.back();
    const bool again = told_by_first(ranks, row.calls_for_another());
    if (!prints()) return again;
    note(fmt::format("{}, attempt {}: {}", row.scenario, number, row.failed.empty() ? row.text : row.failed));
    // What is there is kept, should a later run end the program.
    write_file(study.output + "/accuracy.json", json(rows, profile));
    write_file(study.output + "/accuracy.md", markdown(rows, profile, study.tolerance));
    return again;
  };
  try {
    std::vector<const Scenario*> again;
    for (const Scenario& scenario : scenarios)
      if (run(scenario, 1)) again.push_back(&scenario);
    for (int number = 2; number <= kAttempts; ++number) {
      std::vector<const Scenario*> still;
      for (const Scenario* const scenario : again)
        if (run(*scenario, number)) still.push_back(scenario);
      again = std::move(still);
    }
  } catch (const Interrupted&) {
    if (rows.empty() || !prints()) throw;
  }
  if (!prints()) return kDone;  // the status is rank 0's
  print(study.as_json ? json(rows, profile) : markdown(rows, profile, study.tolerance));
  for (const std::string& page : study.pages) {
    write_file(page, study_html(rows, remarks(rows), profile.source, study.output, study.command));
    note("wrote " + page + " (all attempts in one page, for any browser)");
  }
  note("wrote " + study.output + "/: profile.yaml accuracy.md accuracy.json and a folder for each scenario");
  if (asked_to_end() != 0) return interrupted(fmt::format("the {} attempts that were done are printed", rows.size()));
  return status_of(rows);
}

}  // namespace pipewright::study
