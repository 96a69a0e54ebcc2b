#!/bin/sh
# Compiles runs.bpf.c to runs.bpf.o, or to the file that is named. Needs clang (Debian package clang); 14.0.6 made the
# one in the repository.
set -eu
cd "$(dirname "$0")"
out=${1:-runs.bpf.o}
# -g for the descriptions of types, by which maps and places in the kernel's structures are found; no line of code or
# path of this directory is of use to a kernel.
"${CLANG:-clang}" -target bpfel -mcpu=v2 -O2 -g -Wall -Wextra -Werror -fno-ident \
    -fdebug-compilation-dir=. -c runs.bpf.c -o "$out"
"${STRIP:-llvm-strip}" -g "$out"
