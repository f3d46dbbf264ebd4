#!/usr/bin/env python3
"""The test of check_message_texts.py: searches planted in an empty tree are found, and harmless lines are not.

usage: check_message_texts_test.py
"""
import pathlib
import sys
import tempfile
import unittest

import check_message_texts

FOUND = [
    'if (std::string_view(error.what()).find("unknown key") == npos) return;',
    'if (std::string(error.what()).starts_with("plan")) throw;',
    'const std::string message = error.what();\n\n  if (message.find("model.") != npos) throw;',
    'const std::string_view why(error.what());\nif (why == "memory") return;',
]
HARMLESS = [
    "row.failed = error.what();",
    'throw InputError(place, std::string("cost: ") + error.what());',
    'const std::string name = of(key);\nif (name.starts_with("plan.")) return;',
    "if (error.is(ErrorCode::UnknownKey)) return;",
]


class PlantedSearches(unittest.TestCase):
    def judged(self, code, path):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / path
            file.parent.mkdir(parents=True)
            file.write_text(code + "\n", encoding="utf-8")
            return check_message_texts.violations(folder)

    def test_searches_are_found(self):
        for code in FOUND:
            with self.subTest(code=code):
                self.assertEqual(len(self.judged(code, "planner/planted.cpp")), 1)

    def test_harmless_lines_are_not(self):
        for code in HARMLESS:
            with self.subTest(code=code):
                self.assertEqual(self.judged(code, "planner/planted.cpp"), [])

    def test_the_one_exception_is_a_file(self):
        self.assertEqual(self.judged(FOUND[0], "cli/main.cpp"), [])
        self.assertEqual(len(self.judged(FOUND[0], "cli/plan.cpp")), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
