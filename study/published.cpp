#include "study/published.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/ending.hpp"
#include "io/console.hpp"
#include "planner/anchor.hpp"
#include "planner/reproduce.hpp"
#include "runtime/signals.hpp"

namespace pipewright::study {

// A new table: its file in scenarios/ and a line here.
const std::vector<Published>& published() {
  static const std::vector<Published> table = {
      {"gpipe-table1",
       "GPipe, table 1: the largest Transformer and AmoebaNet-D on 1 to 128 accelerators",
       {"gpipe/table1-transformer.yaml", "gpipe/table1-amoebanet.yaml"}},
      {"gpipe-table2",
       "GPipe, table 2: throughput by stages and micro-batches on TPUs",
       {"gpipe/table2-transformer.yaml", "gpipe/table2-amoebanet.yaml"}},
      {"gpipe-table3",
       "GPipe, table 3: speed-up on GPUs without fast links",
       {"gpipe/table3-transformer.yaml", "gpipe/table3-amoebanet.yaml"}},
      {"gpipe-memory",
       "GPipe: activations over the number of micro-batches, N + L/K N/M, next to the simulated peak",
       {"gpipe/memory-formula.yaml"}},
      {"gpipe-claims",
       "GPipe: 25x and 298x the parameters, 3.5x the speed, a negligible bubble",
       {"gpipe/claims-transformer.yaml", "gpipe/claims-amoebanet.yaml"}},
      {"torchgpipe",
       "torchgpipe's benchmarks: speed, memory, and what recomputation costs",
       {"torchgpipe/speed.yaml", "torchgpipe/amoebanet-speed.yaml", "torchgpipe/amoebanet-memory.yaml",
        "torchgpipe/unet-memory.yaml", "torchgpipe/recompute-tax.yaml"}},
      {"korthikanti",
       "Korthikanti et al.: activations by formula, one layer's times, iteration times of 22B and 175B",
       {"korthikanti/layer.yaml", "korthikanti/22b.yaml", "korthikanti/175b.yaml"}},
      {"pipedream-table1",
       "PipeDream, table 1: asynchronous pipelines with replicated stages against data parallelism",
       {"pipedream/table1-a.yaml", "pipedream/table1-b.yaml", "pipedream/table1-c.yaml"}},
      {"megatron", "Megatron-LM, table 1: parameters and iteration times on 32 to 1024 GPUs", {"megatron/table1.yaml"}},
      {"zero-bubble",
       "Zero Bubble Pipeline Parallelism, tables 4, 5 and 8",
       {"zero_bubble/1.5b-p8.yaml", "zero_bubble/6.2b-p8.yaml", "zero_bubble/14.6b-p16.yaml",
        "zero_bubble/28.3b-p32.yaml"}},
  };
  return table;
}

// A new set of measured runs: its file in scenarios/ and a line here.
const std::vector<Published>& measured_runs() {
  static const std::vector<Published> table = {
      {"megatron-a100", "GPT on 2 to 512 A100: iteration times", {"megatron/a100-runs.yaml"}},
      {"b200-node", "Llama 3 and DeepSeek-V2 on eight B200: times and memory", {"runs/b200-node.yaml"}},
      {"h100-layouts",
       "Llama of 1 to 80 billion on 8 to 512 H100: speed, memory, failures",
       {"runs/h100-layouts.yaml"}},
      {"zero-bubble-times",
       "zero-bubble's runs, priced from the times printed with them",
       {"runs/zero-bubble-times.yaml"}},
      {"zero-bubble-runs", "zero-bubble's runs, priced from the model", {"runs/zero-bubble-runs.yaml"}},
      {"zero-a100", "GPT and Llama with ZeRO on eight A100: speed and memory", {"runs/zero-a100.yaml"}},
      {"memory-golden", "Megatron-LM's own memory references", {"runs/memory-golden.yaml"}},
      {"dgxc", "weak scaling of Llama and others on 8 to 2304 H100 and GB200", {"runs/dgxc.yaml"}},
      {"schedules-measured", "six schedules of one job on MI300X", {"runs/schedules-measured.yaml"}},
      {"megatron-bridge", "NVIDIA's performance summary", {"runs/megatron-bridge.yaml"}},
      {"mlperf", "MLPerf Training: Llama 3.1 on 256 to 1024 GPUs", {"runs/mlperf.yaml"}},
      {"fsdp-mpt", "MPT with FSDP on A100", {"runs/fsdp-mpt.yaml"}},
      {"fsdp-mpt-h100", "MPT with FSDP on H100", {"runs/fsdp-mpt-h100.yaml"}},
      {"long-sequence", "context parallelism from 4K to 1M tokens", {"runs/long-sequence.yaml"}},
      {"ab-pairs", "pairs of runs that differ by one switch", {"runs/ab-pairs.yaml"}},
  };
  return table;
}

const Published* find_published(const std::vector<Published>& table, std::string_view name) {
  const auto found = std::ranges::find_if(table, [&](const Published& each) { return each.name == name; });
  return found == table.end() ? nullptr : &*found;
}

std::string shipped_scenario(const std::string& file, const std::vector<std::string>& config_path) {
  namespace fs = std::filesystem;
  std::error_code absent;
  if (const std::string here = "scenarios/" + file; fs::is_regular_file(here, absent)) return here;
  for (const std::string& folder : config_path) {
    const fs::path path = (fs::path(folder) / "../scenarios" / file).lexically_normal();
    if (fs::is_regular_file(path, absent)) return path.string();
  }
  throw InputError("the shipped scenario scenarios/" + file +
                   " is nowhere to be found; run in the source folder, name the file itself, or set PIPEWRIGHT_PATH to "
                   "a folder configs that has scenarios next to it");
}

namespace {

// Tables of one title are one, whatever file their rows stand in.
void add_cells(std::vector<TableResult>& tables, const ExpectationTable& table, std::vector<Cell> cells) {
  auto found = std::ranges::find_if(tables, [&](const TableResult& t) { return t.title == table.title; });
  if (found == tables.end()) {
    tables.push_back({table.title, table.source, table.note, {}, {}});
    found = tables.end() - 1;
  }
  for (const std::string& axis : table.box)
    if (std::ranges::find(found->box, axis) == found->box.end()) found->box.push_back(axis);
  if (found->note.empty()) found->note = table.note;
  for (Cell& cell : cells)
    found->cells.push_back(std::move(cell));
}

}  // namespace

std::vector<TableResult> reproduced_tables(const std::vector<const ScenarioFile*>& files) {
  std::vector<TableResult> tables;
  const Interruption interruption;
  ProgressLine line;
  std::int64_t read = 0;
  for (const ScenarioFile* each : files) {
    const ScenarioFile& file = *each;
    const std::string& path = file.path();
    if (file.expectations().empty())
      throw InputError(
          Place{path, 0, 0},
          "has no expect: and no measured: block, so there is nothing to compare; see docs/guide/by-task.md");
    const VariantSource variants{
        .scenario =
            [&](int changes, const std::vector<std::string>& set) {
              end_if_asked(path);
              line.say(fmt::format("reproduce: {} scenarios, now {}", ++read, path));
              return anchored(file.scenario(changes, set));
            },
        .whole_number = [&](const std::string& key, int changes) { return file.whole_number(key, changes); }};
    for (const ExpectationTable& table : file.expectations())
      try {
        add_cells(tables, table, reproduce(table, path, variants));
      } catch (const Interrupted&) {
        return tables;
      }
  }
  return tables;
}

}  // namespace pipewright::study
