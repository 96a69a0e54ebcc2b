#!/usr/bin/env python3
"""Whether files are slower in `agentvfs run` than in the mount.

    benches/inside.py [-r ROUNDS] -d DIR PROGRAM

PROGRAM: an `agentvfs` (such as target/release/agentvfs). DIR is one that a sandbox shows: not below /tmp, /var/tmp or /run.
The same calls are made in one branch of a workspace, in turns from inside a sandbox and through the mount outside, both by
paths relative to a directory in it, ROUNDS times (20) after one that does not count. Printed are the least and the median
of each, in microseconds of one call.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

FILES = 200
PIECE = b"x" * 4096
WRITES = 2000


def work(place):
    """Makes the calls in a directory of their own in `place`; gives microseconds of one of each."""
    took = {}

    def timed(what, calls, do):
        since = time.monotonic()
        do()
        took[what] = 1e6 * (time.monotonic() - since) / calls

    os.chdir(place)
    os.mkdir("work")
    os.chdir("work")
    names = [f"file-{n}" for n in range(FILES)]

    def create():
        for name in names:
            with open(name, "wb", buffering=0) as f:
                f.write(PIECE)

    def read():
        for name in names:
            with open(name, "rb", buffering=0) as f:
                f.read()

    def write():
        with open("long", "wb", buffering=0) as f:
            for _ in range(WRITES):
                f.write(PIECE)

    timed("create and write", FILES, create)
    timed("open and read", FILES, read)
    timed("stat", FILES, lambda: [os.stat(name) for name in names])
    timed("list", FILES, lambda: os.listdir("."))
    timed("write 4 KiB", WRITES, write)
    timed("rename", FILES, lambda: [os.rename(name, name + "-new") for name in names])
    timed("unlink", FILES, lambda: [os.unlink(name + "-new") for name in names])
    os.chdir("..")
    shutil.rmtree("work")
    return took


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-r", type=int, default=20)
    parser.add_argument("-d", required=True)
    parser.add_argument("program")
    args = parser.parse_args()
    program, top = os.path.abspath(args.program), tempfile.mkdtemp(dir=args.d)
    environment = dict(os.environ, AGENTVFS_HOME=os.path.join(top, "home"))
    project, script = os.path.join(top, "project"), os.path.join(top, "inside.py")
    os.mkdir(project)
    shutil.copy(os.path.abspath(__file__), script)

    def run(command):
        done = subprocess.run(command, env=environment, cwd=top, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{command}: {done.stderr}")
        return done.stdout

    python = [sys.executable, script, "--work"]
    try:
        run([program, "start", "bench", "--from", project])
        run([program, "branch", "create", "s", "-w", "bench"])
        outside = python + [os.path.join(top, "home/mnt/bench/.agentvfs/branches/s")]
        inside = [program, "run", "--quiet", "-w", "bench", "--session", "s", "--"] + python + [project]
        told = {"mount": [], "run": []}
        for _ in range(args.r + 1):
            told["mount"].append(json.loads(run(outside)))
            told["run"].append(json.loads(run(inside)))
        print(f"{args.r} rounds on {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
        for what in told["mount"][0]:
            row = [what]
            for where, rounds in told.items():
                took = [one[what] for one in rounds[1:]]
                row.append(f"{where}: {min(took):.1f}, {statistics.median(took):.1f}")
            print("\t".join(row))
    finally:
        run([program, "stop", "bench"])
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        print(json.dumps(work(sys.argv[2])))
    else:
        main()
