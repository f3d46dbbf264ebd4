// The sweep file: which points of which base scenario are asked for. docs/reference/sweep.md describes it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/answers/sweep.hpp"
#include "io/yaml/point_reader.hpp"

namespace pipewright::io {

struct SectionDoc;

// Points that are read to find one with which a value makes a scenario, before the value is called wrong.
inline constexpr std::int64_t kMostTried = 200;

class SweepFile {
 public:
  // `options.set` changes the base, before every point. Throws InputError with the errors of the sweep file, of the
  // base, and for every value with which no point can be read.
  SweepFile(const std::string& path, const ReadOptions& options);

  const SweepQuestion& question() const { return question_; }
  const PointReader& base() const { return *base_; }                 // copied by every thread that reads points
  std::vector<const Assignment*> changes(std::int64_t point) const;  // of the base: the variant's, then the grid's

 private:
  void check_readable();

  SweepQuestion question_;
  std::vector<std::vector<Assignment>> variants_;
  std::vector<std::vector<Assignment>> axes_;  // per key of the grid, a value each
  std::unique_ptr<PointReader> base_;
};

std::vector<SectionDoc> sweep_docs();

}  // namespace pipewright::io
