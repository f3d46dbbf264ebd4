#!/usr/bin/env python3
"""The CPU's arithmetic is compiled for another processor than the rest: no function of it may have a name that the rest
of the program could define, too, or the linker keeps either.

usage: check_symbols.py LIBRARY | check_symbols.py --self-test

Prints every weak symbol of the library that is neither ours nor Eigen under its own name there, and exits 1 when there
is any.
"""
import re
import subprocess
import sys

WEAK = re.compile(r"^[0-9a-f]* +[WVu] (?P<name>.+)$")
OWN = re.compile(r"pipewright::runtime::cpu_kernels::|pipewright_cpu_eigen|^DW\.ref\.")  # the last: a pointer, no code


def shared(listing):
    names = {match["name"] for line in listing.splitlines() if (match := WEAK.match(line))}
    return sorted(name for name in names if not OWN.search(name))


def self_test():
    listing = ("0000000000000000 W void pipewright::runtime::cpu_kernels::linear<float>(long)\n"
               "0000000000000000 W pipewright_cpu_eigen::internal::gebp_kernel::operator()\n"
               "0000000000000000 W float const& std::max<float>(float const&, float const&)\n"
               "0000000000000000 T main\n"
               "                 U std::exp(double)\n")
    found = shared(listing)
    assert found == ["float const& std::max<float>(float const&, float const&)"], found
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    listing = subprocess.run(["nm", "-C", sys.argv[1]], capture_output=True, text=True, check=True,
                             timeout=300).stdout
    if "linear" not in listing:
        print(f"{sys.argv[1]}: no symbols found")
        return 1
    found = shared(listing)
    print("\n".join(found) if found else "symbols: all weak names are the library's own")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
