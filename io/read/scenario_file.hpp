// A scenario file from which many scenarios are made: the variants of its `expect:` and `vary:` blocks, and values
// changed from outside. The file is read and parsed once.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/answers/expectation.hpp"
#include "core/answers/measured.hpp"
#include "core/question/scenario.hpp"
#include "io/read/read_scenario.hpp"
#include "io/yaml/yaml.hpp"

namespace pipewright::io {

// One point of `vary:`: the keys that it sets, with their values as text, and which changes of the file make it.
struct VariedPoint {
  std::vector<std::pair<std::string, std::string>> values;
  int changes = -1;
};

class ScenarioFile {
 public:
  // Throws InputError with one line per error, those of `expect:` and `vary:` included.
  ScenarioFile(const std::string& path, const ReadOptions& options);

  const std::string& path() const { return path_; }
  const std::vector<ExpectationTable>& expectations() const { return expectations_; }
  const std::vector<VariedPoint>& varied() const { return varied_; }
  const std::optional<MeasuredTable>& measured() const { return measured_; }

  // The scenario with changes number `changes` of the file (-1: none), then those of the command line, then `set`
  // ("key=value"). Throws InputError.
  Scenario scenario(int changes = -1, const std::vector<std::string>& set = {}) const;

  // What is written under `key`, without its source; nothing where no single value stands there. Throws InputError.
  std::optional<std::string> written(const std::string& key) const;

  // The whole number that stands under `key` ("model.layers") with these changes; nothing where the file does not say
  // it (a default, or a figure of a file that it names). Throws InputError when something else stands there.
  std::optional<std::int64_t> whole_number(const std::string& key, int changes) const;

  // The keys under which whole numbers stand with these changes, in the order of the file, those of a model's file
  // included.
  std::vector<std::string> whole_numbers(int changes) const;

 private:
  std::string path_;
  ReadOptions options_;
  Yaml root_;
  std::vector<std::vector<Assignment>> changes_;
  std::vector<ExpectationTable> expectations_;
  std::vector<VariedPoint> varied_;
  std::optional<MeasuredTable> measured_;
};

}  // namespace pipewright::io
