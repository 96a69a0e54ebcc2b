#!/usr/bin/env python3
"""What the bytes of the program are.

    benches/size.py PROGRAM [LINES]

PROGRAM: an `agentvfs` with its debug information (target/release/agentvfs). Printed are the sections that are there once it is
stripped, then the code of each crate, largest first (LINES of them, 30): as megabytes, and how many functions. A generic
function counts where its own name belongs: what `core`, `alloc` and `serde_json` have is made for types of other crates. Needs
size and nm (binutils).
"""

import collections
import re
import subprocess
import sys

# Sections with bytes in the file that a stripped program keeps.
KEPT = {".text", ".rodata", ".eh_frame", ".eh_frame_hdr", ".gcc_except_table", ".rela.dyn", ".data.rel.ro", ".data", ".got"}
# Functions of C by how their names begin; the rest is the C library, and what of SQLite and others has plain names.
C_NAMES = {
    "SQLite (C)": r"sqlite|yy_|pager|btree|vdbe|fts",
    "jemalloc (C)": r"_?_?rjem|je_",
    "zstd (C)": r"ZSTD|HUF|FSE|COVER|ZDICT|HIST|XXH",
    "blake3 (C)": r"_?blake3",
}


def output(*args):
    return subprocess.run(args, capture_output=True, text=True, check=True).stdout


def crate(name):
    """The crate of a demangled name."""
    if "::" in name:
        first = re.match(r"\w+", re.sub(r"^[<&*( ]*((dyn|mut|const) )*", "", name))
        # An implementation for every type of a kind has that kind's letter for a name.
        return first[0] if first and len(first[0]) > 1 else "for any type"
    for which, begins in C_NAMES.items():
        if re.match(begins, name):
            return which
    return "the C library and other C"


def main():
    program, lines = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 30
    print("section\tMB")
    for line in output("size", "-A", program).splitlines():
        words = line.split()
        if words and words[0] in KEPT:
            print(f"{words[0]}\t{int(words[1]) / 1e6:.2f}")
    sizes, counts = collections.Counter(), collections.Counter()
    for line in output("nm", "-S", "-C", program).splitlines():
        found = re.match(r"\w+ (\w+) [tTwW] (.*)", line)
        if found:
            sizes[crate(found[2])] += int(found[1], 16)
            counts[crate(found[2])] += 1
    print("\ncode of\tMB\tfunctions")
    for name, size in sizes.most_common(lines):
        print(f"{name}\t{size / 1e6:.2f}\t{counts[name]}")


main()
