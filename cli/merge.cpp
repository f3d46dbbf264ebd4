// `merge`: merge the databases of a sweep's shards into one.
#include <cstdio>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/commands.hpp"
#include "cli/outputs.hpp"
#include "cli/sweep_database.hpp"
#include "core/check.hpp"
#include "core/ending.hpp"
#include "io/text/utf8.hpp"
#include "io/writers/sweep.hpp"

namespace pipewright::cli {
namespace {

constexpr std::array<Option, 1> kMergeOptions = {{
    {"--output", "-o", "FILE", "the database to write: .db or .sqlite; it must not exist yet"},
}};

// Rows by point, with the database that each came from.
using Rows = std::map<std::int64_t, std::pair<SweepFinding, const std::string*>>;

void add(Rows& rows, const SweepQuestion& question, std::vector<SweepFinding> findings, const std::string& path) {
  for (SweepFinding& finding : findings) {
    const std::int64_t point = finding.point;
    const auto [at, is_new] = rows.try_emplace(point, finding, &path);
    if (is_new || at->second.first == finding) continue;
    throw InputError(fmt::format("{} and {} differ at point {} ({}); make one of them again", *at->second.second, path,
                                 point, point_name(question, point)));
  }
}

// Written next to its name, which it gets when it is whole.
void write_merged(const std::string& path, SweepStore& first, const std::vector<SweepFinding>& findings,
                  const std::vector<SweepShard>& shards) {
  const std::string part = fmt::format("{}.part{}", path, ::getpid());
  const auto clear = [&] {
    std::error_code ignored;
    std::filesystem::remove(part, ignored);
    std::filesystem::remove(part + "-journal", ignored);
  };
  const ClearedAtEnd cleared([] {}, clear);
  try {
    {
      SweepStore merged = SweepStore::for_sweep(part, first.question(), first.identity());
      for (const SweepShard& shard : shards)
        merged.note(shard);
      merged.note_asked(first.asked());
      merged.keep(findings);
    }
    if (std::rename(part.c_str(), path.c_str()) != 0)
      throw InputError(path + ": cannot be written; name another file with -o");
  } catch (...) {
    clear();
    throw;
  }
}

int merge_command(const Arguments& arguments) {
  check_store_available();
  const std::vector<std::string> outputs = arguments.all("--output");
  if (outputs.size() != 1) throw InputError("merge: name the one database to write, e.g. -o all.db");
  const std::string& output = outputs.front();
  check_outputs(outputs, arguments.positional, kDatabaseEndings);
  if (std::error_code none; std::filesystem::exists(output, none))
    throw InputError(output + ": is there already; remove it, or name another file with -o");
  Rows rows;
  std::vector<SweepShard> shards;
  std::optional<SweepStore> first;
  for (const std::string& path : arguments.positional) {
    SweepStore store = SweepStore::existing(path);
    if (first) {
      const std::string why = difference(first->identity(), store.identity());
      if (!why.empty())
        throw InputError(fmt::format("{} and {} are of different sweeps: {} (there: {})", arguments.positional.front(),
                                     path, why, arguments.positional.front()));
    }
    add(rows, store.question(), store.findings(), path);
    shards.insert(shards.end(), store.shards().begin(), store.shards().end());
    if (!first) first.emplace(std::move(store));
  }
  std::vector<SweepFinding> findings;
  for (auto& [point, row] : rows)
    findings.push_back(std::move(row.first));
  write_merged(output, *first, findings, shards);
  note(fmt::format("wrote {} ({} of {} points)", output, findings.size(), first->question().points()));
  SweepStore merged = SweepStore::existing(output);
  const std::string missing = missing_in(merged, findings);
  if (missing.empty()) return kDone;
  note(fmt::format("not whole: {}; merge theirs, too, or go on with {} --shard 1/1 --resume -o {}", missing,
                   printable(command_of(merged)), output));
  return kNo;
}

}  // namespace

constinit const Command kMerge{
    .name = "merge",
    .arguments = "DATABASE...",
    .summary = "merge the databases of a sweep's shards into one",
    .details =
        "  pipewright merge a.db b.db -o all.db\n"
        "  pipewright sweep all.db -o all.csv\n"
        "Databases of other sweeps are refused; rows that several have must be equal. Where points are missing the "
        "exit\n"
        "status is 1, and their shards are named.\n",
    .options = kMergeOptions,
    .least = 1,
    .most = static_cast<std::size_t>(-1),
    .run = merge_command,
};

}  // namespace pipewright::cli
