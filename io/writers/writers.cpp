#include "io/writers/writers.hpp"

#include <fmt/format.h>

namespace pipewright {
namespace {

std::string packed_trace(const Answer& answer) {
  return gzip(trace_json(answer));
}

// Longest ending first, so that "x.trace.json" is not taken for ".json".
constexpr Writer kWriters[] = {
    {".trace.json.gz", "trace for Perfetto (https://ui.perfetto.dev), compressed", packed_trace},
    {".trace.json", "trace for Perfetto or chrome://tracing", trace_json},
    {".json", "every figure of the report, schema pipewright.result/1", json_report},
    {".csv", "one row per worker", csv_report},
    {".dot", "layer graph for Graphviz, coloured by stage", dot_graph},
    {".svg", "drawing of the schedule", svg_timeline},
    {".md", "Markdown tables", markdown_report},
};

}  // namespace

std::span<const Writer> writers() {
  return kWriters;
}

const Writer* writer_for(std::string_view path) {
  for (const Writer& writer : kWriters)
    if (path.size() > writer.ending.size() && path.ends_with(writer.ending)) return &writer;
  return nullptr;
}

std::string size_warning(std::string_view path, std::size_t bytes) {
  // The viewer is a 32-bit WebAssembly program: it addresses 4 GiB at most, and unpacked events take more room than
  // text.
  constexpr std::size_t kLarge = 200'000'000;
  if (bytes < kLarge || !path.ends_with(".trace.json")) return {};
  return fmt::format("{} is {} MB: a viewer may refuse it; write .trace.json.gz, or simulate fewer micro-batches", path,
                     bytes / 1'000'000);
}

}  // namespace pipewright
