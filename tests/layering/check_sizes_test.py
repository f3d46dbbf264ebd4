#!/usr/bin/env python3
"""The test of check_sizes.py: what is too large is found in planted code, and what only looks large is not.

usage: check_sizes_test.py
"""
import pathlib
import tempfile
import unittest

import check_sizes

LONG = "\n".join("  step();" for _ in range(check_sizes.MOST_LINES))
MANY = "\n".join(f"  int field_{i} = 0;" for i in range(check_sizes.MOST_FIELDS + 1))


class PlantedSizes(unittest.TestCase):
    def found(self, code):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "sim/planted.cpp"
            file.parent.mkdir(parents=True)
            file.write_text("namespace pipewright::sim {\n" + code + "\n}\n", encoding="utf-8")
            return [line for line in check_sizes.violations(folder) if line.startswith("sim/planted.cpp")]

    def test_long_functions_are_found(self):
        lines = check_sizes.MOST_LINES + 2
        for head, name in (("void run()", "run"), ("int Run::of(const std::vector<int>& a) const noexcept", "of"),
                           ("Run::Run(int a)\n    : a_(a),\n      b_(f(a))", "Run"), ("template <class T>\nauto made(T a) -> T", "made")):
            with self.subTest(head=head):
                found = self.found(head + " {\n" + LONG + "\n}")
                self.assertEqual(len(found), 1, found)
                self.assertRegex(found[0], rf"^sim/planted.cpp:2: {name} has {lines + head.count(chr(10))} lines")
        in_class = "class Run {\n  void go() {\n" + LONG + "\n  }\n};"
        self.assertEqual(len(self.found(in_class)), 1)
        with_lambda = "void run() {\n  each([&](int a) {\n" + LONG + "\n  });\n}"
        self.assertEqual(len(self.found(with_lambda)), 1)

    def test_many_fields_are_found(self):
        for head in ("struct Facts", "class Facts final : public Base"):
            found = self.found(head + " {\n" + MANY + "\n};")
            self.assertEqual(len(found), 1, found)
            self.assertIn(f"Facts has {check_sizes.MOST_FIELDS + 1} fields", found[0])
        together = "struct Facts {\n  double " + ", ".join(f"a{i} = 0" for i in range(check_sizes.MOST_FIELDS + 1)) + ";\n};"
        self.assertEqual(len(self.found(together)), 1)

    def test_what_only_looks_large_is_not_found(self):
        table = "constexpr Row kTable[] = {\n" + "\n".join('    {"{", 1},' for _ in range(200)) + "\n};"
        functions = "struct Calls {\n" + "\n".join(f"  int call_{i}(int a, int b);" for i in range(50)) + "\n};"
        short = "\n".join(f"int f{i}() {{\n  return {i};\n}}" for i in range(60))
        for code in (table, functions, short, "// {\n" * 100, 'const char* kText = "' + "{" * 100 + '";'):
            self.assertEqual(self.found(code), [])

    def test_the_list_of_large_types_holds_no_small_one(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(len(check_sizes.violations(folder)), len(check_sizes.LARGE))


if __name__ == "__main__":
    unittest.main()
