// Orders, cases and optima that others published. Without the data (env PIPEWRIGHT_TEST_DATA, default ../shared/data next to
// the source tree) the program that asks for them ends as skipped, with the reason.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/run_program.hpp"

namespace pipewright::tests {

// With a slash at its end.
inline std::string published() {
  const char* data = std::getenv("PIPEWRIGHT_TEST_DATA");
  const std::string folder = (data ? data : source_folder() + "/../shared/data") + "/schedules/";
  if (!std::filesystem::exists(folder + "cases.csv")) {
    std::printf("skipped: no cases.csv in %s (PIPEWRIGHT_TEST_DATA names the folder above)\n", folder.c_str());
    std::exit(77);
  }
  return folder;
}

// Cells may stand in quotes, and hold commas then.
inline std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line)
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else if (c != '\r')
      cells.back() += c;
  return cells;
}

using PublishedRow = std::map<std::string, std::string>;  // by head of the column
inline std::vector<PublishedRow> published_rows(const std::string& file) {
  std::ifstream in(published() + file);
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> heads = cells_of(line);
  std::vector<PublishedRow> rows;
  while (std::getline(in, line)) {
    const std::vector<std::string> cells = cells_of(line);
    REQUIRE(cells.size() == heads.size());
    PublishedRow& row = rows.emplace_back();
    for (std::size_t i = 0; i < heads.size(); ++i)
      row[heads[i]] = cells[i];
  }
  return rows;
}

}  // namespace pipewright::tests
