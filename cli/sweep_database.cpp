#include "cli/sweep_database.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/campaign_options.hpp"
#include "core/check.hpp"
#include "core/folds.hpp"
#include "io/read/read_sweep.hpp"

namespace pipewright::cli {
namespace {

// Of all points, those that the database was asked for. Only one shard is counted out: a database may name as many as
// it has points, and several are asked together for all that is missing.
std::int64_t asked_points(const SweepStore& store) {
  const std::int64_t all = store.question().points();
  if (store.shards().size() != 1) return all;
  const SweepShard& shard = store.shards().front();
  return sum_over<std::int64_t>(counted_to(all),
                                [&](std::int64_t point) { return shard_of(point, all, shard.of) == shard.number; });
}

// Options without which it would be another sweep; the others are of one way to run it.
bool changes_the_sweep(std::string_view option) {
  return option == "--set" || option == "--time-limit" ||
         std::ranges::any_of(kCampaignOptions, [&](const Option& each) { return each.name == option; });
}

}  // namespace

bool names_database(const std::string& path) {
  return std::any_of(std::begin(kDatabaseEndings), std::end(kDatabaseEndings),
                     [&](std::string_view ending) { return path.ends_with(ending); }) ||
         is_store(path);
}

SweepStore database_for(const std::string& path, const SweepFile& file, const std::string& search, bool resume) {
  const SweepQuestion& question = file.question();
  SweepStore store = SweepStore::for_sweep(path, question, identity_of(file, search));
  if (const std::int64_t there = store.count(); there > 0 && !resume)
    throw InputError(
        fmt::format("{}: has {} of the {} points of this sweep already; go on with --resume, show them with "
                    "`pipewright sweep {}`, or name another file with -o",
                    path, there, question.points(), path));
  return store;
}

SweepStore::Asked asked_with(const Arguments& arguments) {
  SweepStore::Asked asked;
  for (const auto& [name, values] : arguments.options)
    if (changes_the_sweep(name))
      for (const std::string& value : values)
        asked.emplace_back(name, value);
  return asked;
}

std::string command_of(const SweepStore& store) {
  Arguments arguments{.positional = {store.question().file}, .options = {}, .defaults = {}};
  for (const auto& [name, value] : store.asked())
    if (changes_the_sweep(name)) arguments.options[name].push_back(value);  // whoever wrote the database
  return command_line("sweep", arguments);
}

Sweep sweep_in(SweepStore& store) {
  const std::int64_t all = store.question().points(), asked = asked_points(store);
  std::vector<SweepFinding> findings = store.findings();
  const auto found = static_cast<std::int64_t>(findings.size());
  const bool one_shard = store.shards().size() == 1 && found <= asked;
  return swept(store.question(), std::move(findings), one_shard ? asked : all,
               one_shard ? store.shards().front() : SweepShard{});
}

std::string missing_in(SweepStore& store, const std::vector<SweepFinding>& findings) {
  const std::int64_t all = store.question().points();
  if (static_cast<std::int64_t>(findings.size()) == all) return "";
  auto of = most_over<int>(store.shards(), &SweepShard::of, 1);
  std::vector<std::int64_t> missing(at(of) + 1), points(at(of) + 1);
  std::size_t next = 0;
  for (std::int64_t point = 0; point < all; ++point) {
    const auto shard = at(shard_of(point, all, of));
    ++points[shard];
    if (next < findings.size() && findings[next].point == point)
      ++next;
    else
      ++missing[shard];
  }
  constexpr int kNamed = 8;
  std::string text;
  int named = 0, left = 0;
  for (std::size_t shard = 1; shard < missing.size(); ++shard) {
    if (missing[shard] == 0) continue;
    if (named == kNamed) {
      ++left;
      continue;
    }
    ++named;
    text += fmt::format(
        "{}{}", text.empty() ? "" : "; ",
        of == 1 ? fmt::format("{} of {} points are missing", missing[shard], all)
        : missing[shard] == points[shard]
            ? fmt::format("shard {}/{} is missing ({} points)", shard, of, points[shard])
            : fmt::format("shard {}/{} lacks {} of its {} points", shard, of, missing[shard], points[shard]));
  }
  return left > 0 ? text + fmt::format("; and {} other shards", left) : text;
}

}  // namespace pipewright::cli
