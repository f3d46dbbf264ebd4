// An Answer in the formats people use. Every function is pure: same answer, same bytes.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/answers/report.hpp"

namespace pipewright::core {
struct Model;
}

namespace pipewright::io {

struct TableOptions {
  int width = 100;  // columns of the terminal
  bool colour = false;
  bool given = false;  // --width: wide tables keep to it, too
};

std::string terminal_report(const Answer& answer, const TableOptions& options);  // table + text timeline
// Rows of at most `width` columns with their labels, and a legend; exact where the run fits at one character per unit.
std::string text_timeline(const Answer& answer, int width);
// "schema": "pipewright.result/1", SI base units; docs/reference/result-json.md. `timeline`: with ops, messages and memory.
std::string json_report(const Answer& answer, bool timeline = false);
std::string json_infeasible(
    const Infeasible& why);  // the same schema where no answer exists: "fits": false, "shortfall"
std::string infeasible_text(const Infeasible& why);
std::string csv_report(const Answer& answer);    // one row per worker
std::string timeline_csv(const Answer& answer);  // one row per op
std::string messages_csv(const Answer& answer);  // one row per message
std::string memory_csv(const Answer& answer);    // one row per worker and change of what it holds
std::string markdown_report(const Answer& answer);
std::string svg_timeline(const Answer& answer);
std::string trace_json(const Answer& answer);  // Chrome trace events, for Perfetto
// Both in one document, each worker's two timelines one above the other.
std::string trace_json(const Answer& predicted, const Answer& measured);
std::string dot_graph(const Answer& answer);  // layers, coloured by stage
std::string dot_graph(const Model& model);    // layers alone

// A table of layers with totals: equal neighbours share a row ("block.0 .. block.47"). With `operators`, those of every
// distinct layer follow.
std::string model_table(const Model& model, const TableOptions& options, bool operators);
// FLOPs of one sample by every counting convention, and of the complete count by kind of operator.
std::string flop_tables(const Model& model, const TableOptions& options);

// Output formats by file ending, longest first; one line each in the table.
struct Writer {
  std::string_view ending;                                        // ".trace.json.gz"
  std::string_view what;                                          // "trace for Perfetto, compressed"
  std::string (*write)(const Answer&, std::string_view command);  // `command`: how the answer was made
};
std::span<const Writer> writers();
// Whether a path has an ending and something before it; the name "schedule.csv" alone has the ending ".schedule.csv".
bool ends_in(std::string_view path, std::string_view ending);

// What to say after writing so many bytes to `path`: "" unless it is a trace that viewers may refuse.
std::string size_warning(std::string_view path, std::size_t bytes);

std::string gzip(const std::string& text);  // deterministic: no time, no name in the header

// Writes to a temporary name beside `path`, flushes, then renames. Throws InputError; leaves no partial file behind.
void write_file(const std::string& path, const std::string& bytes);

// Throws what `write_file` would throw before the first byte: no such folder, a folder itself, no permission. Leaves
// nothing behind.
void check_writable(const std::string& path);

}  // namespace pipewright::io
