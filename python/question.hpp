// A scenario as Python names it, and long work without Python's lock.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "io/read/read_scenario.hpp"

namespace pipewright::python {

// What every call is asked about. It never changes, so that it is read without Python's lock.
struct Asked {
  std::string path;
  ReadOptions how;

  ReadOptions with(const std::vector<std::string>& set) const {
    ReadOptions options = how;
    options.set.insert(options.set.end(), set.begin(), set.end());
    return options;
  }
};

// Other threads of Python run meanwhile: `work` touches no Python object.
auto without_lock(const auto& work) {
  const nanobind::gil_scoped_release released;
  return work();
}

// While it lives, Ctrl-C is a wish that `asked_to_end()` tells, where `taken`: for a call in Python's main thread whose
// handler of SIGINT is Python's own. A second Ctrl-C is Python's again, once the call is over.
class CtrlC {
 public:
  explicit CtrlC(bool taken);
  ~CtrlC();
  CtrlC(const CtrlC&) = delete;
  CtrlC& operator=(const CtrlC&) = delete;

  bool asked() const;
  // KeyboardInterrupt, for a call that was ended before it had anything to show. A second Ctrl-C is answered with it.
  [[noreturn]] void raise() const;

 private:
  bool taken_;
};

// Exceptions of C++ become those of pipewright/_errors.py.
void translate_errors();

// One function per file: what it adds to the module.
void add_simulation(nanobind::module_& module);
void add_planning(nanobind::module_& module);
void add_tables(nanobind::module_& module);
void add_problem(nanobind::module_& module);
void add_runs(nanobind::module_& module);

}  // namespace pipewright::python
