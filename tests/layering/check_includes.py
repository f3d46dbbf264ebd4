#!/usr/bin/env python3
"""Who may include whom: checks every #include of the tree against the tables below (docs/how-it-works/house.md explains them).
A room is a namespace as well: core/rooms.hpp has the same table, and no file speaks in the namespace of a room above its own.

usage: check_includes.py SOURCE_ROOT

Prints one line per violation, "file:line: rule", and exits 1 when there is any.
"""
import pathlib
import re
import sys

import report

# Room -> what it may include besides itself. A room is a folder; an entry that ends in .hpp is that one header.
# The longest matching folder decides, so sim/des has a rule of its own.
BASICS = ["core/check.hpp", "core/check_handler.hpp", "core/divisors.hpp", "core/folds.hpp", "core/ending.hpp", "core/ids.hpp", "core/plain_words.hpp", "core/random.hpp",
          "core/rooms.hpp", "core/units.hpp"]
ROOMS = {
    "core": [],
    # From the question to the answer: each knows those before it.
    "core/model": BASICS,
    "core/cluster": BASICS + ["core/model"],
    "core/question": BASICS + ["core/model", "core/cluster"],
    "core/plan": BASICS + ["core/model", "core/cluster", "core/question"],
    "core/cost": BASICS + ["core/model", "core/cluster", "core/question", "core/plan"],
    "core/answers": BASICS + ["core/model", "core/cluster", "core/question", "core/plan", "core/cost"],
    "sim": ["core"],
    "sim/des": ["core/units.hpp", "core/rooms.hpp"],  # an event queue that knows no layer, no stage, no device
    "planner": ["sim", "core"],
    "kernels": ["core/units.hpp", "core/rooms.hpp"],
    "runtime": ["kernels", "core"],
    "calibrate": ["runtime", "kernels", "core"],
    "io": ["core"],
    "study": ["io", "planner", "sim", "calibrate", "runtime", "kernels", "core"],
    "python": ["study", "io", "planner", "sim", "calibrate", "runtime", "kernels", "core"],
    "cli": ["study", "io", "planner", "sim", "calibrate", "runtime", "kernels", "core"],
    "tests": ["core", "sim", "planner", "kernels", "runtime", "calibrate", "io", "study", "cli"],
}

# Third-party headers: name, how an include of it begins, and the files (prefixes of their paths) that may have one.
# tests/ may include all of them but CUDA, which one folder stands in for.
THIRD_PARTY = [
    ("yaml-cpp", ["yaml-cpp/"], ["io/yaml/yaml."]),
    ("CLI11", ["CLI/"], ["cli/main.cpp"]),
    ("Boost", ["boost/"], ["planner/", "sim/steady_state."]),
    ("Eigen", ["Eigen/"], ["calibrate/fit.", "runtime/backends/cpu"]),
    ("CUDA", ["cuda", "cublas", "cudnn", "nvml.h", "nccl.h", "cub/", "mma.h", "cooperative_groups"], ["kernels/", "tests/made_up_cuda/"]),
    ("MPI", ["mpi.h"], ["runtime/transports/mpi."]),
    ("zlib", ["zlib.h"], ["io/"]),
    ("nlohmann-json", ["nlohmann/"], ["io/"]),
    ("expat", ["expat.h"], []),
    ("OpenSSL", ["openssl/"], ["io/store/sha256.", "runtime/transports/proof."]),
    ("SQLite", ["sqlite3.h"], ["io/store/store."]),
    ("fmt", ["fmt/"], ["sim/", "planner/", "runtime/", "calibrate/", "io/", "study/", "cli/", "python/"]),
    ("nanobind", ["nanobind/"], ["python/"]),
    ("doctest", ["doctest/"], []),
    ("Google Benchmark", ["benchmark/"], []),
]
NOT_FMT = ["sim/des/"]  # fmt is for every room except core, kernels and sim/des

# Headers of the operating system: files, terminals, processes. Rooms that only compute have no use for them.
SYSTEM = re.compile(r"^(sys/.*|unistd|spawn|fcntl|signal|dlfcn|link|poll|pthread|sched|errno|stdlib|string|stdio|netdb|ifaddrs|net/if|netinet/.*|arpa/.*)(\.h)?$")
SYSTEM_ROOMS = ["io/", "study/", "cli/", "runtime/", "calibrate/", "kernels/", "tests/"]

STANDARD = set("""
algorithm any array atomic barrier bit bitset charconv chrono climits cmath codecvt compare complex concepts
condition_variable coroutine deque exception execution filesystem forward_list fstream functional future
initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map memory memory_resource mutex
new numbers numeric optional ostream queue random ranges ratio regex scoped_allocator semaphore set shared_mutex
source_location span sstream stack stdexcept stop_token streambuf string string_view syncstream system_error thread
tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant vector version
cassert cctype cerrno cfenv cfloat cinttypes climits clocale csetjmp csignal cstdarg cstddef cstdint cstdio cstdlib
cstring ctime cuchar cwchar cwctype
""".split())

SOURCES = {".hpp", ".cpp", ".h", ".inc", ".cu", ".cuh"}
NO_ROOMS = {"configs", "scenarios", "docs", "subprojects"}  # folders without sources
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]*)[>"]')
NAMESPACE = re.compile(r"^namespace pipewright(?:::(\w+))?\b.*\{")
SPACES = "core/rooms.hpp"  # who uses whose names


def room_of(path):
    """The longest folder of ROOMS that holds the path, or None."""
    return max((room for room in ROOMS if path.startswith(room + "/")), key=len, default=None)


def allowed(room, target):
    own = room + "/"
    return target.startswith(own) or any(
        target == entry if entry.endswith(".hpp") else target.startswith(entry + "/") for entry in ROOMS[room])


def begins_with_any(text, prefixes):
    return any(text.startswith(prefix) for prefix in prefixes)


def fault_of_third_party(path, target):
    """None when `path` may include the header `target` that is none of ours, else the broken rule."""
    for name, beginnings, files in THIRD_PARTY:
        if not begins_with_any(target, beginnings):
            continue
        if path.startswith("tests/") and name != "CUDA":  # what needs a GPU is tested by its plain header
            return None
        if not begins_with_any(path, files) or (name == "fmt" and begins_with_any(path, NOT_FMT)):
            where = ", ".join(files) or "tests/"
            return f"{name} (<{target}>) may be included by {where} only"
        return None
    if target in STANDARD:
        return None
    if SYSTEM.match(target):
        if begins_with_any(path, SYSTEM_ROOMS):
            return None
        return f"<{target}> is a header of the operating system: only {', '.join(SYSTEM_ROOMS)} may include those"
    return f"<{target}> is neither the standard library nor a listed dependency (docs/decisions/0005-dependencies.md)"


def fault(root, path, bracket, target):
    """None when the include is in order, else the broken rule."""
    ours = target.split("/")[0] in {room.split("/")[0] for room in ROOMS} and "/" in target
    if ".." in target.split("/"):
        return f'"{target}": includes are written from the root, never with ".."'
    if bracket == "<":
        return f'<{target}> is ours: write "{target}"' if ours else fault_of_third_party(path, target)
    if not ours and any(begins_with_any(target, beginnings) for _, beginnings, _ in THIRD_PARTY):
        return f'"{target}" is not ours: write <{target}>'
    if not ours or not (root / target).is_file():
        return f'"{target}": no such file; includes in quotes are ours and written from the root'
    room = room_of(path)
    if allowed(room, target):
        return None
    return f'"{target}": {room} may include {", ".join(ROOMS[room]) or "nothing but itself"}'


def rooms_below(top):
    """The rooms that a room may include, without their folders."""
    return {entry.split("/")[0] for room, entries in ROOMS.items() if room.split("/")[0] == top for entry in entries} - {top}


def fault_of_namespace(path, room):
    """None when the file at `path` may open the namespace of `room`, else the broken rule."""
    top = path.split("/")[0]
    if room == top or room in rooms_below(top):
        return None
    return f"namespace pipewright{'::' + room if room else ''}: a file of {top} is in pipewright::{top}"


def names_used(text):
    """Room -> the rooms whose names it uses by the text of core/rooms.hpp, through others too."""
    direct = {}
    for room, body in re.findall(r"^namespace (\w+) \{([^}]*)\}", text, re.M):
        direct.setdefault(room, []).extend(re.findall(r"using namespace (\w+);", body))

    def below(room):
        return set(direct[room]).union(*(below(other) for other in direct[room]))

    return {room: below(room) for room in direct}


def faults_of_names(root):
    """The namespaces of core/rooms.hpp against ROOMS."""
    if not (root / SPACES).is_file():
        return [f"{SPACES}:1: no such file"]
    used = names_used((root / SPACES).read_text(encoding="utf-8").replace("namespace pipewright {", ""))
    found = []
    for top in dict.fromkeys(room.split("/")[0] for room in ROOMS):
        if used.get(top) != rooms_below(top) and top != "tests":
            found.append(f"{SPACES}:1: {top} uses the names of {sorted(used.get(top, set()))} and may include {sorted(rooms_below(top))}")
    return found


def violations(root):
    root = pathlib.Path(root)
    found = faults_of_names(root)
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root).as_posix()
        top = path.split("/")[0]
        if file.suffix not in SOURCES or top.startswith((".", "build")) or top in NO_ROOMS:
            continue
        if room_of(path) is None:
            found.append(f"{path}:1: not in a known room; a new one needs a record in docs/decisions and a line here")
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if match := INCLUDE.match(line):
                if rule := fault(root, path, *match.groups()):
                    found.append(f"{path}:{number}: {rule}")
            if match := NAMESPACE.match(line):
                if path != SPACES and (rule := fault_of_namespace(path, match[1] or "")):
                    found.append(f"{path}:{number}: {rule}")
    return found


if __name__ == "__main__":
    sys.exit(report.main(__doc__, violations, "every include and namespace is in order"))
