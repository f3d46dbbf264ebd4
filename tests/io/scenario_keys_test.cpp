// docs/reference/scenario.md and docs/reference/sweep.md list the keys of their files; the reader's own tables say
// which there are.
// PIPEWRIGHT_ACCEPT=1 writes the tables into the document instead of comparing.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "io/read/read_sweep.hpp"
#include "io/yaml/sections.hpp"

using namespace pipewright::tests;

namespace {

// `|` ends a cell of a Markdown table, `<` begins HTML.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    c == '<' ? escaped += "&lt;" : escaped += c;
  }
  return escaped;
}

std::string tables(const std::vector<SectionDoc>& sections) {
  std::string text;
  for (const SectionDoc& section : sections) {
    text += "\n### `" + section.name + "`\n\n| key | takes | meaning |\n|---|---|---|\n";
    for (const FieldDoc& field : section.fields)
      text += "| `" + std::string(field.key) + "`" + (field.required ? " (required)" : "") + " | " + cell(field.takes) +
              " | " + cell(field.meaning) + " |\n";
  }
  return text + "\n";
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.is_open());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void lists_exactly(const char* file, const std::vector<SectionDoc>& sections) {
  const std::string path = std::string(std::getenv("PIPEWRIGHT_SOURCE")) + file;
  std::string text = contents(path);
  const std::size_t mark = text.find("<!-- keys:"), begin = text.find('\n', mark) + 1;
  const std::size_t end = text.find("<!-- /keys -->");
  REQUIRE(mark != std::string::npos);
  REQUIRE(end != std::string::npos);
  if (std::getenv("PIPEWRIGHT_ACCEPT") != nullptr) {
    std::ofstream(path, std::ios::binary) << text.replace(begin, end - begin, tables(sections));
    MESSAGE("wrote the tables into ", path);
    return;
  }
  CHECK(text.substr(begin, end - begin) == tables(sections));
}

}  // namespace

TEST_CASE("docs/reference/scenario.md lists exactly the keys that the reader knows") {
  lists_exactly("/docs/reference/scenario.md", scenario_docs());
}

TEST_CASE("docs/reference/sweep.md lists exactly the keys that the reader knows") {
  lists_exactly("/docs/reference/sweep.md", sweep_docs());
}
