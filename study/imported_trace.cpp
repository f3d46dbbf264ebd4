#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "core/folds.hpp"
#include "io/text/format_quantity.hpp"
#include "io/writers/json_fields.hpp"
#include "runtime/measurement.hpp"
#include "study/imported.hpp"

namespace pipewright::study {
namespace {

constexpr std::size_t kShownActions = 5;
constexpr std::string_view kLetters = "FBIW";

using Key = std::tuple<std::int64_t, std::int64_t, char>;  // stage, micro-batch, kind

struct Predicted {
  Time start, duration;     // start: from the first action of its worker
  std::int64_t worker = 0;  // of the first copy
};

// PyTorch's letter; 0: no action that a trace has.
char letter(Kind kind) {
  switch (kind) {
    case Kind::F: return 'F';
    case Kind::B: return 'I';
    case Kind::W: return 'W';
    case Kind::BW: return 'B';
    default: return 0;
  }
}

// Of the first copy. A recomputation is part of the backward behind it, as PyTorch runs it.
std::map<Key, Predicted> predicted_actions(const Answer& answer) {
  std::map<Key, Predicted> actions;
  for (PositionId p = 0; p < std::ssize(answer.schedule.positions); ++p) {
    const std::vector<Op>& ops = answer.schedule.positions[p].compute;
    const std::vector<Span>& spans = answer.timeline.workers[p].compute;
    std::map<std::pair<int, std::uint32_t>, Span> rebuilt;
    std::vector<std::pair<Key, Predicted>> mine;
    Time first = kNever;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const std::pair<int, std::uint32_t> chunk{ops[i].virtual_stage, ops[i].micro_batch};
      if (ops[i].kind == Kind::R) rebuilt[chunk] = spans[i];
      const char kind = letter(ops[i].kind);
      if (kind == 0) continue;
      Predicted action{spans[i].start, spans[i].end - spans[i].start, static_cast<std::int64_t>(p)};
      if (const auto again = rebuilt.find(chunk); again != rebuilt.end() && (kind == 'B' || kind == 'I')) {
        action.duration = action.duration + (again->second.end - again->second.start);
        if (again->second.end == spans[i].start) action.start = again->second.start;
      }
      first = std::min(first, action.start);
      mine.push_back({{ops[i].virtual_stage, ops[i].micro_batch, kind}, action});
    }
    for (auto& [key, action] : mine) {
      action.start = action.start - first;
      actions[key] = action;
    }
  }
  return actions;
}

// The actions of one process of a file, by step: the k-th occurrence of a name belongs to step k.
struct RankSteps {
  std::map<Key, std::vector<const TracedAction*>> by_key;
  bool whole = true;  // every action occurs as often
  std::size_t steps = 0;
};

std::vector<RankSteps> ranks_of(const ActionTrace& trace) {
  std::map<std::int64_t, RankSteps> ranks;
  for (const TracedAction& action : trace.actions)
    ranks[action.process].by_key[{action.stage, action.micro_batch, action.kind}].push_back(&action);
  std::vector<RankSteps> list;
  for (auto& [process, rank] : ranks) {
    std::size_t most = 0;
    rank.steps = rank.by_key.begin()->second.size();
    for (const auto& [key, occurrences] : rank.by_key) {
      rank.steps = std::min(rank.steps, occurrences.size());
      most = std::max(most, occurrences.size());
    }
    rank.whole = most == rank.steps;
    list.push_back(std::move(rank));
  }
  return list;
}

// First start to last end of step k.
Span span_of(const RankSteps& rank, std::size_t k) {
  Span span{kNever, {}};
  for (const auto& [key, occurrences] : rank.by_key) {
    span.start = std::min(span.start, occurrences[k]->start);
    span.end = std::max(span.end, occurrences[k]->start + occurrences[k]->duration);
  }
  return span;
}

std::string name_of(const Key& key) {
  return fmt::format("{}{}{}", std::get<0>(key), std::get<2>(key), std::get<1>(key));
}

[[noreturn]] void refuse(const ActionTrace& trace, const TracedAction& action, const Answer& predicted,
                         const std::map<Key, Predicted>& known) {
  const Plan& plan = predicted.plan;
  const Key key{action.stage, action.micro_batch, action.kind};
  std::string why;
  if (action.stage >= plan.chunks())
    why = fmt::format("the plan has {} (virtual) stages", plan.chunks());
  else if (action.micro_batch >= plan.micro_batches)
    why = fmt::format("the plan has {} micro-batches", plan.micro_batches);
  else
    why = action.kind == 'B' ? "the plan's schedule splits its backwards (I and W)"
                             : "the plan's schedule has whole backwards (B)";
  PP_CHECK(!known.empty());
  throw InputError(Place{trace.file, action.line, 1},
                   fmt::format("action {}: {}, numbered from 0; validate the plan that was run, with --set plan... and "
                               "--set training...",
                               name_of(key), why));
}

const char* words(char kind) {
  switch (kind) {
    case 'F': return "forward";
    case 'B': return "backward";
    case 'I': return "gradient of the input";
    default: return "gradient of the weights";
  }
}

ImportedRow row(const std::string& what, Time predicted, Time measured, bool error = true) {
  return {what, short_time(predicted), short_time(measured),
          error ? signed_percent(error_of(predicted, measured)) : ""};
}

Time distance(Time a, Time b) {
  return a < b ? b - a : a - b;
}

Time mean(const std::vector<const ComparedAction*>& actions, Time ComparedAction::*member) {
  auto sum = sum_over<double>(
      actions, [&](const ComparedAction* action) { return static_cast<double>((action->*member).value); });
  return {std::llround(sum / static_cast<double>(actions.size()))};
}

// The actions with the largest differences of `predicted` and `measured`, if any.
std::vector<const ComparedAction*> farthest(const std::vector<ComparedAction>& actions, Time ComparedAction::*predicted,
                                            Time ComparedAction::*measured) {
  const auto off = [&](const ComparedAction* a) { return distance(a->*predicted, a->*measured); };
  std::vector<const ComparedAction*> list;
  for (const ComparedAction& action : actions)
    if (off(&action) > Time{}) list.push_back(&action);
  std::ranges::stable_sort(list, [&](const auto* a, const auto* b) { return off(a) > off(b); });
  if (list.size() > kShownActions) list.resize(kShownActions);
  return list;
}

std::vector<ImportedRow> farthest_off(const TraceComparison& c) {
  std::vector<ImportedRow> rows;
  const auto name = [](const ComparedAction* a) { return name_of({a->stage, a->micro_batch, a->kind}); };
  for (const ComparedAction* a : farthest(c.actions, &ComparedAction::predicted, &ComparedAction::measured))
    rows.push_back(row(fmt::format("  {} takes", name(a)), a->predicted, a->measured));
  if (c.starts)
    for (const ComparedAction* a :
         farthest(c.actions, &ComparedAction::predicted_start, &ComparedAction::measured_start))
      rows.push_back(row(fmt::format("  {} begins, from its rank's first", name(a)), a->predicted_start,
                         a->measured_start, false));
  if (!rows.empty()) rows.insert(rows.begin(), ImportedRow{"actions that are farthest off", "", "", ""});
  return rows;
}

// The longest span of a rank; without spans, the sum of the actions.
Time step_of(const TraceComparison& c, Time StageSpan::*span, Time ComparedAction::*action) {
  auto step = most_over<Time>(c.spans, [&](const StageSpan& each) { return each.*span; });
  for (std::size_t i = 0; c.spans.empty() && i < c.actions.size(); ++i)
    step = checked_sum(step, c.actions[i].*action);
  return step;
}

}  // namespace

Time TraceComparison::predicted_step() const {
  return step_of(*this, &StageSpan::predicted, &ComparedAction::predicted);
}

Time TraceComparison::measured_step() const {
  return step_of(*this, &StageSpan::measured, &ComparedAction::measured);
}

TraceComparison compare_traces(const Answer& predicted, const std::vector<ActionTrace>& traces) {
  const std::map<Key, Predicted> known = predicted_actions(predicted);
  TraceComparison c;
  std::map<Key, std::vector<Time>> durations, starts;
  std::map<std::int64_t, std::vector<Time>> spans;           // by stage
  std::map<std::int64_t, Time> predicted_spans;              // by worker
  std::map<std::int64_t, std::set<std::int64_t>> worker_of;  // by stage: one, but for replicas
  for (const auto& [key, action] : known) {
    Time& end = predicted_spans[action.worker];
    end = std::max(end, action.start + action.duration);
    worker_of[std::get<0>(key)].insert(action.worker);
  }
  for (const ActionTrace& trace : traces) {
    c.files.push_back(trace.file);
    c.on_device &= trace.on_device;
    c.other_actions += trace.other_actions;
    for (const TracedAction& action : trace.actions)
      if (!known.contains({action.stage, action.micro_batch, action.kind})) refuse(trace, action, predicted, known);
    for (const RankSteps& rank : ranks_of(trace)) {
      c.starts &= rank.whole;
      c.steps = durations.empty() ? rank.steps : std::min(c.steps, rank.steps);
      for (const auto& [key, occurrences] : rank.by_key)
        for (const TracedAction* action : occurrences)
          durations[key].push_back(action->duration);
      for (std::size_t k = 0; rank.whole && k < rank.steps; ++k) {
        const Span span = span_of(rank, k);
        std::set<std::int64_t> stages;
        for (const auto& [key, occurrences] : rank.by_key) {
          starts[key].push_back(occurrences[k]->start - span.start);
          stages.insert(std::get<0>(key));
        }
        for (const std::int64_t stage : stages)
          spans[stage].push_back(span.end - span.start);
      }
    }
  }
  for (const auto& [key, times] : durations) {
    const Predicted& action = known.at(key);
    c.actions.push_back({std::get<2>(key), std::get<0>(key), std::get<1>(key), action.duration, median(times),
                         action.start, c.starts ? median(starts[key]) : Time{}, times.size()});
  }
  for (const auto& [key, action] : known)
    if (durations.contains({std::get<0>(key), 0, 'F'}) && !durations.contains(key)) ++c.absent;
  for (const auto& [stage, times] : spans) {
    if (!c.starts) break;
    Time longest;
    for (const std::int64_t worker : worker_of.at(stage))
      longest = std::max(longest, predicted_spans.at(worker));
    c.spans.push_back({stage, longest, median(times)});
  }
  return c;
}

std::string trace_title(const TraceComparison& c) {
  return fmt::format("trace{} {} ({} step{}, times {})", c.files.size() == 1 ? "" : "s",
                     c.files.size() <= 3 ? fmt::format("{}", fmt::join(c.files, ", "))
                                         : fmt::format("{} and {} more", c.files.front(), c.files.size() - 1),
                     c.steps, c.steps == 1 ? "" : "s",
                     c.on_device ? "of the device" : "of the host, which may run ahead of its device");
}

std::vector<ImportedRow> trace_rows(const TraceComparison& c) {
  std::vector<ImportedRow> rows = {{"", "predicted", "measured", "error"}};
  for (const StageSpan& span : c.spans)
    rows.push_back(row(fmt::format("stage {}, first to last action", span.stage), span.predicted, span.measured));
  std::map<std::pair<std::int64_t, std::size_t>, std::vector<const ComparedAction*>> kinds;
  for (const ComparedAction& action : c.actions)
    kinds[{action.stage, kLetters.find(action.kind)}].push_back(&action);
  for (const auto& [key, actions] : kinds)
    rows.push_back(row(fmt::format("stage {} {} (mean of {})", key.first, words(kLetters[key.second]), actions.size()),
                       mean(actions, &ComparedAction::predicted), mean(actions, &ComparedAction::measured)));
  for (ImportedRow& each : farthest_off(c))
    rows.push_back(std::move(each));
  return rows;
}

std::vector<std::string> trace_notes(const TraceComparison& c) {
  std::vector<std::string> notes;
  if (!c.starts) notes.emplace_back("the trace begins or ends within a step: when actions begin is not compared");
  if (c.absent > 0)
    notes.push_back(
        fmt::format("{} action{} of these stages not in the trace", c.absent, c.absent == 1 ? " is" : "s are"));
  if (c.other_actions > 0)
    notes.push_back(fmt::format("{} other action{} (sends, receives, overlapped pairs) {} left out", c.other_actions,
                                c.other_actions == 1 ? "" : "s", c.other_actions == 1 ? "is" : "are"));
  return notes;
}

void write_trace(JsonFields& json, const TraceComparison& c) {
  json.field("files", c.files).field("on_device", c.on_device).field("steps", c.steps);
  json.field("absent", c.absent).field("other_actions", c.other_actions);
  json.list("stages", c.spans, [&](const StageSpan& span) {
    json.field("stage", span.stage).field("predicted_span_s", span.predicted);
    json.field("measured_span_s", span.measured);
  });
  json.list("actions", c.actions, [&](const ComparedAction& a) {
    json.field("name", name_of({a.stage, a.micro_batch, a.kind})).field("stage", a.stage);
    json.word("kind", std::string(1, a.kind), {"F", "B", "I", "W"}).field("micro_batch", a.micro_batch);
    json.field("occurrences", a.occurrences).field("predicted_s", a.predicted).field("measured_s", a.measured);
    json.field("predicted_start_s", a.predicted_start);
    json.field("measured_start_s", c.starts ? std::optional(a.measured_start) : std::nullopt);
  });
}

}  // namespace pipewright::study
