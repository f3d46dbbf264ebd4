// Many scenarios confronted with their runs, from one calibration: how near the predictions come on this machine.
//
// Nothing is chosen after it was seen: every scenario is calibrated before any is run, each runs once in the given
// order, those whose run was withheld because the machine changed too much are repeated at most twice after that, and
// every attempt is written down.
#pragma once

#include <string>
#include <vector>

#include "io/read/read_scenario.hpp"

namespace pipewright::study {

struct Study {
  std::vector<std::string> scenarios;  // files, in the order of the runs
  ReadOptions read;                    // of all of them
  std::string profile;                 // prices from this file; "": calibrate
  std::string output;                  // folder
  bool chosen = false;                 // it was named by -o
  std::vector<std::string> pages;      // .html, written at the end
  std::string command;                 // how it was asked
  double seconds = 3;                  // of the calibration, each scenario
  double tolerance = 0.1;
  bool forced = false;
  bool as_json = false;
};

// Writes profile.yaml, SCENARIO/attempt-N/ and accuracy.md, accuracy.json; prints the table. The exit status of the
// worst scenario: 1 before 2 before 0. Throws InputError.
int validate_all(const Study& study);

}  // namespace pipewright::study
