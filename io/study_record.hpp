// One result of a study (`pipewright accuracy`), as a file of its own: what its summary is made from.
//
//     {"schema": "pipewright.study-record/1", "dry_run": false, "settings": "5f0c...", "part": 3,
//      "name": "pipeline-k4-m16-1f1b", "attempt": 1, "status": "done", "reason": "",
//      "words": {"date": "2026-01-31", "schedule": "1f1b"},
//      "figures": {"measured_s": 0.0213}, "lists": {"timed_s": [0.0213, 0.0214]}}
//
// Figures are in SI units (seconds, bytes) and shares of 1.   tests/io/study_record_test.cpp
#pragma once

#include <map>
#include <string>
#include <vector>

namespace pipewright {

struct StudyRecord {
  int part = 0;
  std::string name;  // of the scenario or the question, unique in its part
  int attempt = 1;   // 0: none was made
  // done; withheld: it ran, and says nothing about time; failed; interrupted: it was begun and never ended; left out:
  // no time was left; not run; not applicable
  std::string status = "done";
  std::string reason;  // of another status than done
  bool dry_run = false;
  std::string settings;  // hash of what the study was asked
  std::map<std::string, std::string> words;
  std::map<std::string, double> figures;
  std::map<std::string, std::vector<double>> lists;

  bool done() const { return status == "done"; }
  // The value, or what stands for it where it is not there.
  double figure(const std::string& key, double otherwise = 0) const;
  std::string word(const std::string& key) const;
  bool operator==(const StudyRecord&) const = default;
};

std::string study_record_json(const StudyRecord& record);
// Throws InputError, with the file named, where the text is no such document.
StudyRecord parse_study_record(const std::string& text, const std::string& file);

// What a study was asked: name and value, in order of the names; of two that differ in nothing a run can go on.
//     {"schema": "pipewright.study/1", "dry_run": true, "hash": "5f0c...", "settings": {"backend": "cpu", ...}}
using StudySettings = std::map<std::string, std::string>;
std::string study_hash(const StudySettings& settings);
std::string study_settings_json(const StudySettings& settings, bool dry_run);
StudySettings parse_study_settings(const std::string& text, const std::string& file);

}  // namespace pipewright
