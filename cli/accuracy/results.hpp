// The folder of a study: every result a file of its own, there as soon as it is known, so that a second call goes on
// where the first one stopped.
//
//     study.json                          what was asked, and its hash
//     part-3/NAME.attempt-1.json          a result (io/study_record.hpp)
//     part-3/NAME/attempt-1/...           prediction, measurement, drawings
//     accuracy.md .json .svg              the summary, made from the results alone
//
// A file is written under another name and then renamed; what a killed program left of such names is taken away when
// the study goes on. In a dry run every file says so.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/study_record.hpp"

namespace pipewright {

// Names of settings: the changes of --set, a line each; and of every scenario the hash of what it says.
constexpr std::string_view kSetSetting = "--set", kScenarioSetting = "scenario ";

// The text of a file with the mark of a dry run, by the file's ending: a key of a JSON document, else a comment.
std::string stamped(const std::string& path, std::string text);

class StudyResults {
 public:
  // Makes the folder, or goes on in it. Throws InputError: a folder that holds something else, or a study that was
  // asked something else (then what differs); one of configs/devices or docs in a dry run.
  StudyResults(std::string folder, const StudySettings& settings, bool dry_run);
  // To look at: the results of a study that is there. Throws InputError where there is none.
  explicit StudyResults(std::string folder);

  const std::vector<StudyRecord>& records() const { return records_; }
  bool dry_run() const { return dry_run_; }
  const std::string& folder() const { return folder_; }
  std::vector<std::string> set() const;   // the changes of --set that the study was asked with
  std::string folder_of(int part) const;  // made

  // The latest attempt at `name`, or nullptr.
  const StudyRecord* latest(int part, std::string_view name) const;
  bool done(int part, std::string_view name) const;    // some attempt at it
  bool failed(int part, std::string_view name) const;  // the latest, and none was done
  int next_attempt(int part, std::string_view name) const;

  // Writes the record with the day (UTC) and keeps it; one of the same part, name and attempt is replaced, and one that
  // says that nothing was begun goes.
  void keep(StudyRecord record);
  // Takes the record and its file away.
  void drop(int part, std::string_view name, int attempt);
  // Any other file, stamped.
  void write(const std::string& path, const std::string& text) const;

 private:
  std::string path_of(const StudyRecord& record) const;
  void read_records();
  void forget(int part, std::string_view name, int attempt);

  std::string folder_, hash_, set_;
  bool dry_run_ = false;
  std::vector<StudyRecord> records_;  // by part, then in the order of the files' names
};

// A dry run keeps its figures away from what others take for measured: throws InputError for a folder under
// configs/devices or docs.
void check_dry_run_folder(const std::string& folder);

}  // namespace pipewright
