// Many scenarios that differ in a few values, read in series: the points of a sweep.
//
// The base file, and every file that it names, is read and parsed once. From one point to the next only the sections
// are read anew in which a value changes, and those that depend on them: of a grid over plan.micro_batches the model is
// built once. The scenario is the same, to the last figure, as `read_scenario` with the same changes gives
// (tests/io/point_reader_test.cpp "a point is what read_scenario reads").
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/answers/condition.hpp"
#include "core/question/scenario.hpp"
#include "io/read/read_scenario.hpp"
#include "io/yaml/yaml.hpp"

namespace pipewright::io {

struct KnownFiles;

// What the points of a sweep may change, in the order of reading.
inline constexpr std::array<std::string_view, 7> kSweptSections = {"model", "cluster", "training", "plan",
                                                                   "cost",  "run",     "campaign"};

class PointReader {
 public:
  // The base with the changes of `options.set`. Throws InputError when that is a bad scenario.
  PointReader(const std::string& path, const ReadOptions& options);
  PointReader(const PointReader& other);  // for another thread: shares nothing that is written
  PointReader& operator=(const PointReader&) = delete;
  ~PointReader();

  // The scenario with these changes, applied in order; they begin with one of `kSweptSections`, and must
  // outlive the reader. Valid until the next call. Throws InputError, after which the reader can be used as before.
  const Scenario& read(std::span<const Assignment* const> changes);

 private:
  struct Section {
    std::string key;
    bool good = false;                       // `scenario_` holds it, read with `changes`
    std::vector<const Assignment*> changes;  // in which it differs from the base
  };
  void read_section(Section& section);

  ReadOptions options_;
  Yaml root_;
  std::unique_ptr<KnownFiles> files_;
  std::vector<Section> sections_;
  Scenario scenario_;
  Yaml cost_;  // the tree's `cost:`, all that `complete` asks of it
};

// The value that stands under a key ("plan.stages", "cluster.network.bandwidth", "model.layers"), defaults included,
// where it is a number or a quantity. Of the batch, what follows from the other figures is filled in.
std::optional<Magnitude> magnitude_under(const Scenario& scenario, const std::string& key);

}  // namespace pipewright::io
