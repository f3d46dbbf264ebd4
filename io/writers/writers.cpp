#include "io/writers/writers.hpp"

#include <fmt/format.h>

#include "io/writers/html.hpp"
#include "io/writers/schedule_csv.hpp"

namespace pipewright::io {
namespace {

std::string json_figures(const Answer& answer) {
  return json_report(answer);
}

std::string packed_trace(const Answer& answer) {
  return gzip(trace_json(answer));
}

template <ScheduleActions actions>
std::string schedule_of(const Answer& answer, std::string_view) {
  return schedule_csv(answer.schedule, actions);
}

// A format that does not tell how it was made.
template <std::string (*write)(const Answer&)>
std::string plain(const Answer& answer, std::string_view) {
  return write(answer);
}

// Longest ending first, so that "x.trace.json" is not taken for ".json".
constexpr Writer kWriters[] = {
    {".trace.json.gz", "trace for Perfetto (https://ui.perfetto.dev), compressed", plain<packed_trace>},
    {".trace.json", "trace for Perfetto or chrome://tracing", plain<trace_json>},
    {".json", "every figure of the report, schema pipewright.result/1", plain<json_figures>},
    {".comms.schedule.csv", "schedule with its messages, PyTorch's compute_comms",
     schedule_of<ScheduleActions::WithMessages>},
    {".schedule.csv", "schedule, PyTorch's compute_only", schedule_of<ScheduleActions::Compute>},
    {".timeline.csv", "one row per op", plain<timeline_csv>},
    {".messages.csv", "one row per message", plain<messages_csv>},
    {".memory.csv", "one row per change of memory", plain<memory_csv>},
    {".csv", "one row per worker", plain<csv_report>},
    {".dot", "layer graph for Graphviz, coloured by stage", plain<dot_graph>},
    {".html", "report in one page, for any browser", html_report},
    {".svg", "drawing of the schedule", plain<svg_timeline>},
    {".md", "Markdown tables", plain<markdown_report>},
};

}  // namespace

std::span<const Writer> writers() {
  return kWriters;
}

bool ends_in(std::string_view path, std::string_view ending) {
  if (path.size() > ending.size() && path.ends_with(ending)) return true;
  const std::string_view name = path.substr(path.rfind('/') == std::string_view::npos ? 0 : path.rfind('/') + 1);
  return ending == ".schedule.csv" && name == ending.substr(1);
}

std::string size_warning(std::string_view path, std::size_t bytes) {
  // The viewer is a 32-bit WebAssembly program: it addresses 4 GiB at most, and unpacked events take more room than
  // text.
  constexpr std::size_t kLarge = 200'000'000;
  if (bytes < kLarge || !path.ends_with(".trace.json")) return {};
  return fmt::format("{} is {} MB: a viewer may refuse it; write .trace.json.gz, or simulate fewer micro-batches", path,
                     bytes / 1'000'000);
}

}  // namespace pipewright::io
