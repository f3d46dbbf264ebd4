// Sweeps and their databases: which file is one, going on with one, showing one.
#pragma once

#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "core/answers/sweep.hpp"
#include "io/store/sweep_store.hpp"

namespace pipewright::io {
class SweepFile;
}

namespace pipewright::cli {

constexpr std::string_view kDatabaseEndings[] = {".db", ".sqlite"};
// By its ending, or, for what was renamed, by how the file begins.
bool names_database(const std::string& path);

// The database to keep this sweep's rows in. Throws InputError: it holds another sweep, or rows of this one without
// `resume`.
SweepStore database_for(const std::string& path, const SweepFile& file, const std::string& search, bool resume);

// What a sweep was asked with, as its database keeps it, and the command that goes on with it.
SweepStore::Asked asked_with(const Arguments& arguments);
std::string command_of(const SweepStore& store);

// What a database holds, as the answer of its sweep.
Sweep sweep_in(SweepStore& store);

// The shards that a database was asked for, and of its points those that are not there: "" where none is missing, else
// e.g. "shard 2/3 is missing (33 points)".
std::string missing_in(SweepStore& store, const std::vector<SweepFinding>& findings);

}  // namespace pipewright::cli
