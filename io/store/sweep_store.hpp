// What a sweep has found, kept in a database: rows are committed while the sweep runs, so that one that is killed goes
// on where it was. docs/reference/sweep.md describes the tables.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/answers/sweep.hpp"
#include "io/store/store.hpp"

namespace pipewright::io {

class SweepFile;

// What makes two sweeps the same, part by part: name ("base", "variant no_nvlink", "program") and text. Of scenarios
// the text is that of every value, defaults included, so that comments and names of files do not matter and a changed
// device does.
using SweepIdentity = std::vector<std::pair<std::string, std::string>>;
SweepIdentity identity_of(const SweepFile& file, const std::string& search);  // `search`: how `replan` searches

// "" or the first difference, in words: "base: plan.stages is 8 there and 4 here".
std::string difference(const SweepIdentity& there, const SweepIdentity& here);

// A finding as the values of its row, the point first, and back: for whatever else hands rows on. Throws
// std::exception for values that are none.
std::vector<StoreValue> values_of(const SweepQuestion& question, const SweepFinding& finding);
SweepFinding finding_of(std::span<const StoreValue> values);

class SweepStore {
 public:
  // An empty database is made where there is none. Throws InputError: it holds another sweep (and what differs), or
  // something else.
  static SweepStore for_sweep(const std::string& path, const SweepQuestion& question, const SweepIdentity& identity);
  // As it is there. Throws InputError: no such file, no sweep in it.
  static SweepStore existing(const std::string& path);

  const std::string& path() const { return store_->path(); }
  const SweepQuestion& question() const { return question_; }
  const SweepIdentity& identity() const { return identity_; }
  // Options of the sweep, name and value, with which it is gone on with. Those noted first stay.
  using Asked = std::vector<std::pair<std::string, std::string>>;
  void note_asked(const Asked& options);
  const Asked& asked() const { return asked_; }
  const std::vector<SweepShard>& shards() const { return shards_; }  // that have been asked for, in order

  std::vector<SweepFinding> findings();  // by point
  std::int64_t count();                  // of them

  // One transaction each. When it returns, they are kept, whatever happens to the process.
  void keep(const std::vector<SweepFinding>& findings);
  void note(const SweepShard& shard);

 private:
  SweepStore(const std::string& path, Store::Access access);
  void make(const SweepQuestion& question, const SweepIdentity& identity);
  bool empty();
  void load();

  std::unique_ptr<Store> store_;
  SweepQuestion question_;
  SweepIdentity identity_;
  std::vector<SweepShard> shards_;
  Asked asked_;
  std::string insert_;
};

}  // namespace pipewright::io
