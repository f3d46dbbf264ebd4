#!/usr/bin/env python3
"""The test of the layering test: wrong includes planted in a copy of the tree are found, right ones are not.

usage: check_includes_test.py SOURCE_ROOT
"""
import pathlib
import shutil
import sys
import tempfile
import unittest

import check_includes

ROOT = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]

# file, include line planted at its end, and what the complaint must say ("" = none may come).
PLANTS = [
    ("core/units.cpp", '#include "sim/simulate.hpp"', "core may include nothing but itself"),
    ("core/units.hpp", "#include <fmt/format.h>", "fmt (<fmt/format.h>) may be included by"),
    ("core/units.hpp", "#include <sys/stat.h>", "header of the operating system"),
    ("sim/simulate.hpp", '#include "planner/find_plan.hpp"', "sim may include core"),
    ("sim/simulate.hpp", "#include <boost/graph/howard_cycle_ratio.hpp>", "Boost"),
    ("sim/des/planted.hpp", '#include "core/plan/plan.hpp"', "sim/des may include core/units.hpp"),
    ("sim/des/planted.hpp", '#include "core/check.hpp"', "sim/des may include core/units.hpp"),
    ("sim/des/planted.hpp", "#include <fmt/format.h>", "fmt"),
    ("core/plan/plan.hpp", '#include "core/cost/cost_model.hpp"', "core/plan may include core/check.hpp"),
    ("core/question/scenario.hpp", '#include "core/answers/report.hpp"', "core/question may include core/check.hpp"),
    ("planner/find_plan.hpp", '#include "io/yaml/yaml.hpp"', "planner may include sim, core"),
    ("io/yaml/yaml.hpp", '#include "sim/simulate.hpp"', "io may include core"),
    ("io/read/read_scenario.hpp", "#include <yaml-cpp/yaml.h>", "yaml-cpp"),
    ("io/read/read_scenario.hpp", "#include <CLI/CLI.hpp>", "CLI11"),
    ("planner/find_plan.hpp", "#include <Eigen/Dense>", "Eigen"),
    ("planner/find_plan.hpp", "#include <nlohmann/json.hpp>", "nlohmann-json"),
    ("runtime/transports/tcp.cpp", "#include <openssl/evp.h>", "OpenSSL"),
    ("planner/find_plan.hpp", "#include <doctest/doctest.h>", "doctest"),
    ("planner/find_plan.hpp", "#include <absl/strings/str_cat.h>", "nor a listed dependency"),
    ("kernels/gpu_api.hpp", '#include "core/plan/plan.hpp"', "kernels may include core/units.hpp"),
    ("study/attempt.hpp", '#include "cli/outputs.hpp"', "study may include io, planner"),
    ("study/attempt.hpp", "#include <CLI/CLI.hpp>", "CLI11"),
    ("calibrate/looks.hpp", '#include "study/attempt.hpp"', "calibrate may include runtime, kernels, core"),
    ("cli/main.cpp", "#include <cuda_runtime.h>", "CUDA"),
    ("runtime/planted.cu", "#include <cuda_runtime.h>", "CUDA"),
    ("tests/planted.cpp", "#include <cuda_runtime_api.h>", "CUDA"),
    ("kernels/planted.cpp", '#include "core/plan/plan.hpp"', "kernels may include core/units.hpp"),
    ("cli/main.cpp", '#include "../io/yaml.hpp"', 'never with ".."'),
    ("cli/main.cpp", '#include "yaml.hpp"', "written from the root"),
    ("cli/main.cpp", '#include "fmt/format.h"', "write <fmt/format.h>"),
    ("cli/main.cpp", "#include <io/yaml/yaml.hpp>", 'write "io/yaml/yaml.hpp"'),
    ("cli/main.cpp", '  #  include "io/no_such_file.hpp"', "no such file"),
    ("widgets/planted.hpp", "#pragma once", "not in a known room"),
    ("sim/simulate.hpp", "namespace pipewright::planner {", "a file of sim is in pipewright::sim"),
    ("core/units.hpp", "namespace pipewright {", "a file of core is in pipewright::core"),
    ("io/yaml/yaml.hpp", "namespace pipewright::planner::words {", "a file of io is in pipewright::io"),
    ("io/yaml/yaml.hpp", "namespace pipewright::core {", ""),
    ("planner/find_plan.hpp", "#include <boost/graph/adjacency_list.hpp>", ""),
    ("planner/find_plan.hpp", '#include "sim/simulate.hpp"', ""),
    ("sim/des/planted.hpp", '#include "core/units.hpp"', ""),
    ("sim/steady_state.hpp", "#include <boost/graph/howard_cycle_ratio.hpp>", ""),
    ("cli/main.cpp", "#include <CLI/CLI.hpp>", ""),
    ("io/read/read_scenario.hpp", "#include <sys/stat.h>", ""),
    ("kernels/planted.cu", "#include <cuda_runtime.h>", ""),
    ("kernels/planted.cu", "#include <mma.h>", ""),
    ("kernels/planted.cpp", "#include <cublasLt.h>", ""),
    ("core/units.hpp", '// #include "sim/simulate.hpp"', ""),
    ("tests/support/pictures.cpp", "#include <yaml-cpp/yaml.h>", ""),
]


class PlantedIncludes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.copy = pathlib.Path(self.folder.name) / "tree"
        self.copy.mkdir()
        for room in {room.split("/")[0] for room in check_includes.ROOMS}:
            if (ROOT / room).is_dir():
                shutil.copytree(ROOT / room, self.copy / room, ignore=shutil.ignore_patterns("__pycache__"))

    def test_the_tree_itself_is_in_order(self):
        self.assertEqual(check_includes.violations(self.copy), [])

    def test_every_planted_include_is_judged_as_the_table_says(self):
        for path, include, complaint in PLANTS:
            with self.subTest(path=path, include=include):
                file = self.copy / path
                before = file.read_text(encoding="utf-8") if file.exists() else None
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text((before or "") + include + "\n", encoding="utf-8")
                found = check_includes.violations(self.copy)
                if before is None:
                    file.unlink()
                else:
                    file.write_text(before, encoding="utf-8")
                if complaint == "":
                    self.assertEqual(found, [])
                else:
                    line = 1 if include == "#pragma once" else (before or "").count("\n") + 1
                    self.assertEqual(len(found), 1, found)
                    self.assertTrue(found[0].startswith(f"{path}:{line}: "), found)
                    self.assertIn(complaint, found[0])

    def test_a_room_that_uses_names_of_one_above_is_found(self):
        file = self.copy / check_includes.SPACES
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("namespace sim {", "namespace sim {\nusing namespace io;"), encoding="utf-8")
        self.assertIn("core/rooms.hpp:1: sim uses the names of ['core', 'io'] and may include ['core']", check_includes.violations(self.copy))


if __name__ == "__main__":
    unittest.main()
