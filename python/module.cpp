// The module pipewright._core: what the package (python/pipewright) calls. Its types are not an interface of their own.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/check_handler.hpp"
#include "io/console.hpp"
#include "python/question.hpp"

namespace pipewright::python {

namespace nb = nanobind;
using namespace nb::literals;

NB_MODULE(_core, module) {
  nb::set_leak_warnings(false);  // an interpreter that ends need not have freed everything
  throw_where_checks_fail();
  keep_quiet();
  translate_errors();
  module.attr("version") = PIPEWRIGHT_VERSION;
  module.attr("source_configs") = PIPEWRIGHT_SOURCE_CONFIGS;
  nb::class_<Asked>(module, "Asked")
      .def(
          "__init__",
          [](Asked* self, std::string path, std::map<std::string, std::string> texts, std::vector<std::string> set,
             std::vector<std::string> config_path) {
            new (self) Asked{std::move(path), {std::move(set), std::move(config_path), std::move(texts)}};
          },
          "path"_a, "texts"_a, "set"_a, "config_path"_a)
      .def("resolved", [](const Asked& asked) {
        return without_lock([&] { return resolved_yaml(read_scenario(asked.path, asked.how)); });
      });
  add_simulation(module);
  add_planning(module);
  add_tables(module);
  add_problem(module);
  add_runs(module);
}

}  // namespace pipewright::python
