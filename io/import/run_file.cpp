#include "io/import/run_file.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>
#include <sys/stat.h>

#include "io/read/read_file.hpp"
#include "io/read/read_scenario.hpp"
#include "io/store/sha256.hpp"
#include "io/text/quantity.hpp"
#include "io/text/quote.hpp"
#include "io/text/utf8.hpp"
#include "io/yaml/fields.hpp"

namespace pipewright::io {
namespace {

constexpr std::string_view kRunSchema = "pipewright.run/1";

// ---- source ---------------------------------------------------------------------------------------------------------

template <auto Member>
void write_lines(YamlText& out, std::string_view key, const ImportSource& source) {
  if (!(source.*Member).empty()) out.items(key, source.*Member, yaml_string);
}

constexpr Field<ImportSource> kSource[] = {
    {"format", "text", "whose file it was", member<&ImportSource::format>, Need::Required},
    {"file", "text", "its name", member<&ImportSource::file>, Need::Required},
    {"dated", "text", "when it was last changed", changed<&ImportSource::dated>},
    {"bytes", "whole number", "its size", changed<&ImportSource::bytes>},
    {"sha256", "text", "of the file, where it is no larger than 64 MiB", changed<&ImportSource::sha256>},
    {"tool", "text", "who imported it", changed<&ImportSource::tool>},
    {"synthetic", "text", "what it says of itself where no run made it", changed<&ImportSource::synthetic>},
    {"assumed", "list of texts", "what to look over", read_as<&ImportSource::assumed>,
     write_lines<&ImportSource::assumed>},
    {"absent", "list of texts", "what the file did not say", read_as<&ImportSource::absent>,
     write_lines<&ImportSource::absent>},
};

// ---- log ------------------------------------------------------------------------------------------------------------

// A loss may be no number: then the run has diverged, which is worth keeping.
void read_loss(Reader& reader, const At& at, LoggedStep& step) {
  const std::string* text = scalar(reader, at, "a number, or nan");
  if (text == nullptr) return;
  if (*text == "nan") {
    step.loss = std::nan("");
    return;
  }
  const bool negative = text->starts_with('-');
  const Parsed<double> value = parse_number(std::string_view(*text).substr(negative ? 1 : 0));
  if (!value.value) return reader.error(at, value.why);
  step.loss = negative ? -*value.value : *value.value;
}

constexpr Field<LoggedStep> kStep[] = {
    {"number", "whole number", "of the step", member<&LoggedStep::number>, Need::Required},
    {"time", "time", "that it took", member<&LoggedStep::time, Positive>},
    {"tokens_per_s_device", "number > 0", "tokens per second and device",
     member<&LoggedStep::tokens_per_s_device, Positive>},
    {"flop_rate_device", "FLOP rate", "of a device, by the framework's own count",
     [](Reader& reader, const At& at, LoggedStep& step) {
       FlopRate rate{};
       if (read_lawful<Positive>(reader, at, rate)) step.flop_rate_device = rate.value;
     },
     write_as<&LoggedStep::flop_rate_device>},
    {"global_batch_size", "whole number >= 1", "samples of the step", member<&LoggedStep::global_batch_size, AtLeast1>},
    {"loss", "number or nan", "of the step", read_loss, write_as<&LoggedStep::loss>},
};

std::string number_text(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

std::string step_text(const LoggedStep& step) {
  std::string text = fmt::format("{{number: {}", step.number);
  if (step.time) text += ", time: " + to_text(*step.time);
  if (step.tokens_per_s_device && *step.tokens_per_s_device > 0 && std::isfinite(*step.tokens_per_s_device))
    text += fmt::format(", tokens_per_s_device: {}", *step.tokens_per_s_device);
  if (step.flop_rate_device && *step.flop_rate_device >= 1 && *step.flop_rate_device < 1e24)
    text += ", flop_rate_device: " + to_text(FlopRate{*step.flop_rate_device});
  if (step.global_batch_size && *step.global_batch_size > 0)
    text += fmt::format(", global_batch_size: {}", *step.global_batch_size);
  if (step.loss) text += ", loss: " + number_text(*step.loss);
  return text + "}";
}

void read_steps(Reader& reader, const At& at, TrainingLog& log) {
  if (!is_list(reader, at, "a list of steps")) return;
  if (at.yaml.list.empty() || at.yaml.list.size() > kMostRunSteps)
    return reader.errors.add(at.yaml.place, path(at),
                             fmt::format("{} steps; a run file has 1 to {}", at.yaml.list.size(), kMostRunSteps));
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i) {
    const At here = at.entry(i);
    LoggedStep step;
    step.place = here.yaml.place;
    read_fields<LoggedStep>(reader, here, kStep, step);
    if (!log.steps.empty() && step.number <= log.steps.back().number)
      reader.errors.add(
          here.yaml.place, path(here),
          fmt::format("step {} behind step {}; write each once, in order", step.number, log.steps.back().number));
    log.steps.push_back(std::move(step));
  }
}

constexpr Field<TrainingLog> kLog[] = {
    {"max_allocated", "size", "of the fullest rank", member<&TrainingLog::max_allocated>},
    {"max_reserved", "size", "by its caching allocator", member<&TrainingLog::max_reserved>},
    {"layout", "text", "as the log says it: world size: 64, data-parallel size: 4, ...", changed<&TrainingLog::layout>},
    {"steps", "list of maps", "number, time or tokens_per_s_device, ...", read_steps,
     [](YamlText& out, std::string_view key, const TrainingLog& log) { out.items(key, log.steps, step_text); },
     Need::Required},
};

// ---- trace ----------------------------------------------------------------------------------------------------------

std::string action_text(const TracedAction& action, Time from) {
  std::string text = fmt::format("{}{}{} at {} for {}", action.stage, action.kind, action.micro_batch,
                                 to_text(action.start - from), to_text(action.duration));
  if (action.process >= 0) text += fmt::format(" on {}", action.process);
  return text;
}

// "0F3 at 0 ns for 21000.125 us on 7", the process left out where it has no number.
std::optional<TracedAction> action_of(std::string_view text) {
  std::array<std::string_view, 9> words;
  std::size_t count = 0;
  for (std::size_t begin = 0; begin <= text.size(); ++count) {
    if (count == words.size()) return std::nullopt;
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    words[count] = text.substr(begin, end - begin);
    begin = end + 1;
  }
  if ((count != 7 && count != 9) || words[1] != "at" || words[4] != "for") return std::nullopt;
  std::optional<TracedAction> action = action_named(words[0]);
  const Parsed<Time> start =
      parse_time(text.substr(words[2].data() - text.data(), words[2].size() + 1 + words[3].size()));
  const Parsed<Time> duration =
      parse_time(text.substr(words[5].data() - text.data(), words[5].size() + 1 + words[6].size()));
  if (!action || !start.value || !duration.value) return std::nullopt;
  action->start = *start.value, action->duration = *duration.value, action->process = -1;
  if (count == 7) return action;
  const Parsed<std::int64_t> process = parse_count(words[8]);
  if (words[7] != "on" || !process.value) return std::nullopt;
  action->process = *process.value;
  return action;
}

void read_actions(Reader& reader, const At& at, ActionTrace& trace) {
  if (!is_list(reader, at, "a list of actions")) return;
  if (at.yaml.list.empty() || at.yaml.list.size() > kMostRunActions)
    return reader.errors.add(at.yaml.place, path(at),
                             fmt::format("{} actions; a run file has 1 to {}", at.yaml.list.size(), kMostRunActions));
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i) {
    const At here = at.entry(i);
    const std::string* text = scalar(reader, here, "an action such as 0F3 at 0 ns for 21 ms");
    if (text == nullptr) continue;
    std::optional<TracedAction> action = action_of(*text);
    if (!action || action->start > Time{kLargest} || action->duration > Time{kLargest}) {
      reader.error(here, "is not an action; write e.g. 0F3 at 0 ns for 21 ms, or 0F3 at 0 ns for 21 ms on 7");
      continue;
    }
    action->line = here.yaml.place.line;
    trace.actions.push_back(*action);
  }
  std::ranges::stable_sort(trace.actions,
                           [](const TracedAction& a, const TracedAction& b) { return a.start < b.start; });
}

constexpr Field<ActionTrace> kTrace[] = {
    {"rank", "whole number", "whose trace it is", member<&ActionTrace::rank>},
    {"on_device", "true | false", "times of the device; else of the host", member<&ActionTrace::on_device>,
     Need::Required},
    {"other_actions", "whole number", "sends, receives, overlapped pairs, which are left out; default: 0",
     member<&ActionTrace::other_actions>},
    {"actions", "list of texts", "0F3 at 0 ns for 21 ms on 7", read_actions,
     [](YamlText& out, std::string_view key, const ActionTrace& trace) {
       const Time from = trace.actions.empty() ? Time{} : trace.actions.front().start;
       out.items(key, trace.actions, [&](const TracedAction& action) { return action_text(action, from); });
     },
     Need::Required},
};

// ---- the file -------------------------------------------------------------------------------------------------------

void read_schema(Reader& reader, const At& at, ImportedRun&) {
  const std::string* text = scalar(reader, at, std::string(kRunSchema));
  if (text != nullptr && *text != kRunSchema)
    reader.error(at,
                 fmt::format("is not a schema of runs that this program knows; import the run again ({})", kRunSchema));
}

constexpr Field<ImportedRun> kImportedRun[] = {
    {"schema", "pipewright.run/1", "of this format", read_schema,
     [](YamlText& out, std::string_view key, const ImportedRun&) { out.line(key, std::string(kRunSchema)); },
     Need::Required},
    {"source", "map", "where it comes from", section<&ImportedRun::source, kSource>, Need::Required},
    {"log", "map", "what a training framework printed", section<&ImportedRun::log, kLog>},
    {"trace", "map", "actions of a pipeline", section<&ImportedRun::trace, kTrace>},
};

template <class List>
void check_size(const ImportSource& source, const List& list, std::size_t most, const char* what, const char* way_out) {
  if (list.size() > most)
    throw InputError(fmt::format("{}: has {} {}, and a run file holds {} at most; {}", source.file, list.size(), what,
                                 most, way_out));
}

std::string date_of(std::time_t seconds) {
  const std::chrono::sys_seconds time{std::chrono::seconds(seconds)};
  const std::chrono::year_month_day day(std::chrono::floor<std::chrono::days>(time));
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()), static_cast<unsigned>(day.month()),
                     static_cast<unsigned>(day.day()));
}

std::string hash_of(const std::string& path) {
  FilePieces file(path);
  Sha256 sum;
  std::array<char, 65536> block;
  while (const std::size_t count = file.read(block))
    sum.add({block.data(), count});
  return sum.digits();
}

template <class Member>
bool any_step_has(const TrainingLog& log, Member member) {
  return std::ranges::any_of(log.steps, [&](const LoggedStep& step) { return (step.*member).has_value(); });
}

void tell_of_log(const TrainingLog& log, ImportSource& source) {
  source.assumed.emplace_back(
      "of several lines of a step the slowest time, the most memory and the largest loss count");
  if (log.format == "Megatron-LM") {
    source.assumed.emplace_back("the time of a step is the mean since the line before, as Megatron-LM prints it");
    if (log.max_allocated || log.max_reserved)
      source.assumed.emplace_back("megabytes of memory are 2^20 bytes, gigabytes 10^9");
  } else {
    source.assumed.emplace_back("tps counts tokens per second and device; the plan's batch makes a time of it");
  }
  const auto lacks = [&](bool there, const char* what) {
    if (!there) source.absent.emplace_back(what);
  };
  lacks(any_step_has(log, &LoggedStep::time), "times of steps");
  lacks(any_step_has(log, &LoggedStep::global_batch_size), "global batch size");
  lacks(any_step_has(log, &LoggedStep::flop_rate_device), "FLOP/s of a device");
  lacks(any_step_has(log, &LoggedStep::loss), "losses");
  lacks(log.max_allocated.has_value(), "memory that was allocated");
  lacks(log.max_reserved.has_value(), "memory that the allocator reserved");
  source.absent.emplace_back(log.layout.empty() ? "model, plan and devices of the run"
                                                : "model of the run, and of its plan all but the layout");
}

}  // namespace

bool is_run_file(const std::string& path) {
  std::error_code unknown;  // a pipe could be read once only
  if (path == "-" || !std::filesystem::is_regular_file(path, unknown)) return false;
  std::string text(4096, '\0');
  try {
    FilePieces file(path);
    text.resize(file.read(text));
  } catch (const InputError&) {
    return false;
  }
  for (std::string_view rest = without_byte_order_mark(text); !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty() || line.starts_with('#')) continue;
    return line.starts_with("schema:") && line.find("pipewright.run/") != std::string_view::npos;
  }
  return false;
}

std::string run_yaml(ImportedRun run) {
  if (run.log)
    check_size(run.source, run.log->steps, kMostRunSteps, "steps",
               "give validate --log the log itself, or import a part of it");
  if (run.trace)
    check_size(run.source, run.trace->actions, kMostRunActions, "actions",
               "give validate --trace the trace itself, or profile fewer steps");
  YamlText out(nullptr, {});
  write_fields<ImportedRun>(out, kImportedRun, run);
  return comment(
             "A run that was measured elsewhere; `pipewright validate` puts it next to a prediction "
             "(docs/reference/importing.md).") +
         out.text();
}

std::vector<SectionDoc> run_file_docs() {
  return {document<ImportedRun>("run_file", kImportedRun), document<ImportSource>("run_file.source", kSource),
          document<TrainingLog>("run_file.log", kLog), document<LoggedStep>("run_file.log.steps[]", kStep),
          document<ActionTrace>("run_file.trace", kTrace)};
}

ImportedRun parse_run_file(const std::string& text, const std::string& file) {
  const ReadOptions options;
  Errors errors;
  Reader reader{options, errors};
  reader.keep_origins = false;
  ImportedRun run;
  const Yaml yaml = parse_yaml(text, file);
  read_fields<ImportedRun>(reader, At{yaml}, kImportedRun, run);
  if (errors.empty() && !run.log && !run.trace)
    errors.add(yaml.place, "has neither log nor trace; import the run again");
  errors.throw_if_any();
  if (run.log) run.log->file = file, run.log->format = run.source.format, run.log->synthetic = run.source.synthetic;
  if (run.trace) run.trace->file = file;
  return run;
}

ImportedRun read_run_file(const std::string& path) {
  return parse_run_file(read_file(path), path == "-" ? "standard input" : path);
}

ImportSource source_of(const std::string& path, const std::string& format) {
  ImportSource source{.file = "standard input", .format = format, .tool = "pipewright " PIPEWRIGHT_VERSION};
  struct stat info {};
  if (path == "-") return source;
  source.file = one_line(std::filesystem::path(path).filename().string());
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return source;  // a pipe
  source.bytes = info.st_size;
  source.dated = date_of(info.st_mtime);
  if (source.bytes <= kLargestHashed) source.sha256 = hash_of(path);
  return source;
}

std::string as_comment(const ImportSource& source) {
  std::string first = fmt::format("{}: {}", source.format, source.file);
  if (source.bytes >= 0) first += fmt::format(", {} bytes, last changed {}", source.bytes, source.dated);
  std::string text = comment(first);
  if (!source.sha256.empty()) text += comment("sha256 " + source.sha256);
  text += comment(fmt::format("imported by {}: look it over before use", source.tool));
  if (!source.synthetic.empty()) text += comment("it says of itself: " + source.synthetic);
  for (const std::string& line : source.assumed)
    text += comment("assumed: " + line);
  for (const std::string& line : source.absent)
    text += comment("not in the file: " + line);
  return text;
}

ImportedRun import_log(const std::string& path, std::string_view format) {
  TrainingLog log = read_training_log(path);
  if (log.format != format)
    throw InputError(fmt::format("{}: is a log of {}, not of {}; write import {} instead", log.file, log.format, format,
                                 log.format == "torchtitan" ? "torchtitan-log" : "megatron-log"));
  ImportedRun run{.source = source_of(path, log.format)};
  run.source.synthetic = log.synthetic;
  tell_of_log(log, run.source);
  run.log = std::move(log);
  return run;
}

ImportedRun import_kineto(const std::string& path) {
  ActionTrace trace = read_action_trace(path);
  ImportedRun run{.source = source_of(path, "trace of PyTorch's profiler")};
  run.source.assumed.emplace_back(trace.on_device ? "times are of the device, where several streams had work from the "
                                                    "first to the last of them"
                                                  : "times are of the host, which may run ahead of its device");
  run.source.assumed.emplace_back("starts count from the first action of the file");
  if (trace.other_actions > 0)
    run.source.assumed.push_back(
        fmt::format("{} sends, receives or overlapped pairs are left out", trace.other_actions));
  if (!trace.rank) run.source.absent.emplace_back("rank");
  run.source.absent.emplace_back("memory; everything that is not an action of a pipeline is left out");
  run.trace = std::move(trace);
  return run;
}

}  // namespace pipewright::io
