#!/usr/bin/env python3
"""What packaging/package.sh and pip make is installed where nothing else is, and answers as the build folder does.

usage: packages_test.py SOURCE_ROOT BUILD_FOLDER deb|tarball|wheel

Exit 77, with the reason: not asked for (PIPEWRIGHT_PACKAGES=1), or a tool is missing. The tar archive is of a portable build, in
build-portable of the sources or where PIPEWRIGHT_PORTABLE says. "Where nothing else is": of the Debian package a folder that
becomes the root, with the libraries that its Depends name and nothing besides.
"""
import hashlib
import os
import pathlib
import shutil
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import started

ROOT, BUILD, KIND = (pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3])
del sys.argv[1:]
PACK = ROOT / "packaging/package.sh"
PORTABLE = pathlib.Path(os.environ.get("PIPEWRIGHT_PORTABLE", ROOT / "build-portable"))
CLEAN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
LONGEST = 3000


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def output(*command, **how):
    run = started.run([str(each) for each in command], capture_output=True, text=True, longest=LONGEST, **how)
    assert run.returncode == 0, f"{command}\n{run.stdout}{run.stderr}"
    return run.stdout


def figures(text):
    """Of the report of the quickstart: what does not name a path."""
    return [line for line in text.splitlines() if line.startswith(("step time", "throughput", "bubble", "memory peak"))]


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.expected = figures(output(BUILD / "pipewright", "simulate", "scenarios/quickstart.yaml", cwd=ROOT))
        assert len(cls.expected) == 4, cls.expected

    def pack(self, kind, build, folder):
        output(PACK, kind, build, folder)
        (file,) = folder.iterdir()
        return file

    def answers(self, run, share):
        """The program, as `run` starts it, finds what lies beside it."""
        self.assertIn("pipewright 0.", run("--version"))
        self.assertEqual(figures(run("simulate", f"{share}/pipewright/scenarios/quickstart.yaml")), self.expected)
        self.assertIn("llama3-8b", run("show", "models"))
        run("check", f"{share}/pipewright/scenarios/what_if/llama3-70b.yaml")  # names a cluster and a model of configs


class Deb(Package):
    def test_it_is_the_same_twice(self):
        files = []
        for name in ("one", "two"):
            (self.folder / name).mkdir()
            files.append(self.pack("deb", BUILD, self.folder / name))
        self.assertEqual(*[hashlib.sha256(file.read_bytes()).hexdigest() for file in files])

    def test_it_says_what_it_is_and_puts_files_where_debian_has_them(self):
        (self.folder / "deb").mkdir()
        file = self.pack("deb", BUILD, self.folder / "deb")
        version = output(BUILD / "pipewright", "--version").split()[1]
        self.assertEqual(output("dpkg-deb", "--field", file, "Package", "Version"), f"Package: pipewright\nVersion: {version}\n")
        listed = [line.split()[5] for line in output("dpkg-deb", "--contents", file).splitlines()]
        for path in listed:
            self.assertRegex(path, r"^\./(usr/((bin|share)/.*)?)?$")
        for path in ("usr/bin/pipewright", "usr/share/man/man1/pipewright.1.gz", "usr/share/doc/pipewright/copyright",
                     "usr/share/pipewright/configs/models/char-transformer.yaml", "usr/share/pipewright/schemas/scenario.json",
                     "usr/share/bash-completion/completions/pipewright.bash"):
            self.assertIn("./" + path, listed)
        with self.subTest("what the linker wants is what Depends names"):
            unpacked = self.folder / "unpacked"
            output("dpkg-deb", "--extract", file, unpacked)
            depends = {each.split()[0].split(":")[0] for each in output("dpkg-deb", "--field", file, "Depends").split(",")}
            for line in output("readelf", "--dynamic", unpacked / "usr/bin/pipewright").splitlines():
                if "(NEEDED)" in line:
                    library = line.split("[")[1].rstrip("]")
                    found = output("dpkg", "--search", "*/" + library)
                    owners = {row.split(":")[0] for row in found.splitlines()}
                    self.assertTrue(owners & depends, f"{library}: {owners} and {depends}")

    def test_it_is_installed_into_an_empty_root_runs_there_and_goes_without_a_trace(self):
        if os.geteuid() != 0:
            self.skipTest("only root may change the root folder")
        (self.folder / "root-deb").mkdir()
        file = self.pack("deb", BUILD, self.folder / "root-deb")
        root = self.folder / "root"
        (root / "var/lib/dpkg").mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        options = ["dpkg", f"--root={root}", "--force-depends", "--log=/dev/null"]
        output(*options, "--install", file, env=CLEAN)
        self.assertIn("ok installed", output("dpkg-query", f"--admindir={root}/var/lib/dpkg", "--status", "pipewright"))
        # Of the system the libraries alone, at their places.
        for line in output("ldd", root / "usr/bin/pipewright").splitlines():
            for word in line.split():
                if word.startswith("/"):
                    place = root / word.lstrip("/")
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(word, place)
        self.answers(lambda *arguments: output("chroot", root, "/usr/bin/pipewright", *arguments, env=CLEAN), "/usr/share")
        output(*options, "--purge", "pipewright", env=CLEAN)
        left = [path for path in (root / "usr").rglob("*pipewright*")]
        self.assertEqual(left, [])


class Tarball(Package):
    def test_it_runs_where_it_is_unpacked(self):
        (self.folder / "tar").mkdir()
        file = self.pack("tarball", PORTABLE, self.folder / "tar")
        with tarfile.open(file) as archive:
            archive.extractall(self.folder / "elsewhere")
        (tree,) = (self.folder / "elsewhere").iterdir()
        self.assertTrue(tree.name.startswith("pipewright-0."), tree.name)
        for name in ("LICENSE", "README.md", "CITATION.cff", "share/pipewright/configs", "share/man/man1/pipewright.1"):
            self.assertTrue((tree / name).exists(), name)
        (self.folder / "empty").mkdir()

        def run(*arguments):
            return output(tree / "bin/pipewright", *arguments, env=CLEAN, cwd=self.folder / "empty")

        self.answers(run, tree / "share")
        # Its own configurations, not those of the sources that it was built from.
        resolved = run("check", "--resolved", tree / "share/pipewright/scenarios/what_if/llama3-70b.yaml")
        self.assertIn(str(tree / "share/pipewright/configs"), resolved.replace("bin/../", ""))
        self.assertNotIn(str(ROOT / "configs"), resolved)

    def test_a_build_that_needs_libraries_is_refused(self):
        run = started.run([PACK, "tarball", BUILD, self.folder / "none"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        self.assertIn("is no portable build, it needs ", run.stderr)


class Wheel(Package):
    def test_source_archive_to_wheel_to_an_empty_environment(self):
        python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
        tools, empty = self.folder / "tools", self.folder / "empty-env"
        output(python, "-m", "venv", tools)
        made = started.run([tools / "bin/python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:", "build", "meson-python", "nanobind>=2.4"],
                           capture_output=True, text=True, longest=LONGEST)
        if made.returncode != 0:
            self.skipTest("pip finds no build, meson-python and nanobind: " + made.stderr.strip().splitlines()[-1])
        path = f"{tools}/bin:{os.environ['PATH']}"
        output(tools / "bin/python", "-m", "build", "--sdist", "--no-isolation", "--outdir", self.folder / "sdist", ROOT,
               env=dict(os.environ, PATH=path))
        (archive,) = (self.folder / "sdist").iterdir()
        with tarfile.open(archive) as names:
            members = {name.split("/", 1)[-1] for name in names.getnames()}
        for name in ("pyproject.toml", "LICENSE", "configs/models/char-transformer.yaml", "python/module.cpp"):
            self.assertIn(name, members)
        output(tools / "bin/python", "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir",
               self.folder / "wheels", archive, env=dict(os.environ, PATH=path))
        (wheel,) = (self.folder / "wheels").iterdir()
        output(python, "-m", "venv", empty)
        output(empty / "bin/python", "-m", "pip", "install", "--quiet", "--no-index", wheel)
        code = ("import pathlib, pipewright as pw\n"
                "files = pathlib.Path(pw.__file__).parent\n"
                "assert 'empty-env' in str(files), files\n"
                "print(pw.simulate(files / 'scenarios/quickstart.yaml'))\n"
                "assert 'gpipe-table1' in pw.published_tables()\n"
                "pw.Scenario(model={'hf': 'llama3-8b', 'sequence_length': 4096}, cluster='dgx-h100x8', training={'global_batch_size': 64,\n"
                "    'micro_batch_size': 1, 'precision': 'bf16', 'optimizer': 'adam'}, plan={'stages': 8, 'schedule': '1f1b'}).resolved()\n")
        (self.folder / "nowhere").mkdir()
        printed = output(empty / "bin/python", "-c", code, env=CLEAN, cwd=self.folder / "nowhere")
        self.assertEqual(figures(printed), self.expected)


if __name__ == "__main__":
    if not os.environ.get("PIPEWRIGHT_PACKAGES"):
        skip("minutes long; PIPEWRIGHT_PACKAGES=1 asks for it")
    if KIND == "deb" and not (shutil.which("dpkg-deb") and shutil.which("dpkg-shlibdeps")):
        skip("dpkg-deb or dpkg-shlibdeps is missing (Debian: dpkg-dev)")
    if KIND == "tarball" and not (PORTABLE / "pipewright").exists():
        skip(f"{PORTABLE} is not built: meson setup {PORTABLE} -Dportable=true && meson compile -C {PORTABLE} program")
    if KIND == "wheel" and not shutil.which("git"):
        skip("git is missing, by which the source archive is made")
    suite = unittest.defaultTestLoader.loadTestsFromTestCase({"deb": Deb, "tarball": Tarball, "wheel": Wheel}[KIND])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    if result.wasSuccessful() and len(result.skipped) == result.testsRun:
        skip("; ".join(why for _, why in result.skipped))
    sys.exit(0 if result.wasSuccessful() else 1)
