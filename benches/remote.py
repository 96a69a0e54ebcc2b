#!/usr/bin/env python3
"""What handing a project over by a directory costs, beside git and restic.

    benches/remote.py [-n FILES] [-b BYTES] [-r ROUNDS] [-d DIR] PROGRAM

PROGRAM: an `agentvfs`, such as target/release/agentvfs. git and restic must be in PATH. A project has FILES files (100,000)
of BYTES random bytes (1,000), a thousand in a directory. Each tool keeps it, sends it to a directory of its own, sends 10 changed
files, and brings all back elsewhere, ROUNDS times (3) from the beginning. Printed is for each step the least time, and how many
files and bytes it added to the directory.

What the tools call a step differs. agentvfs: `checkpoint`, `push`, `clone`. git: `add` and `commit`, `push` to a bare
repository, `clone --no-local`. restic: `backup` does both at once, `restore`.
"""

import argparse
import os
import random
import shutil
import subprocess
import tempfile
import time

CHANGED = 10


def files_and_bytes(directory):
    found = [os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(directory) for name in names]
    return len(found), sum(found)


class Tool:
    """One tool, with a project and a store of its own."""

    def __init__(self, work):
        self.work, self.store, self.project = work, os.path.join(work, "store"), os.path.join(work, "project")
        self.environment = dict(os.environ, LC_ALL="C", GIT_CONFIG_NOSYSTEM="1", HOME=work)

    def run(self, *command, cwd=None):
        done = subprocess.run(command, env=self.environment, capture_output=True, cwd=cwd or self.work)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr.decode()}")
        # What restic prints of a file is any bytes.
        return done.stdout.decode(errors="replace")

    def end(self):
        pass


class Agentvfs(Tool):
    def __init__(self, work, program):
        super().__init__(work)
        self.program = os.path.abspath(program)
        self.homes = [os.path.join(work, f"home{n}") for n in range(3)]

    def at(self, home, *args):
        self.environment["AGENTVFS_HOME"] = self.homes[home]
        return self.run(self.program, *args)

    def prepare(self):
        facts = self.at(0, "start", "project", "--from", self.project)
        mount = next(line.split("=", 1)[1] for line in facts.splitlines() if line.startswith("mount="))
        os.mkdir(self.store)
        self.at(0, "remote", "add", "origin", self.store, "-w", "project")
        return mount

    def keep(self, label):
        self.at(0, "checkpoint", "-w", "project", label)
        # The identifier is there once all is stored.
        self.at(0, "log", "-w", "project", "-n", "1")

    def send(self):
        self.at(0, "push", "-w", "project")

    def bring_first(self):
        """The content of one file, as soon as it can be had."""
        facts = self.at(1, "clone", self.store, "project", "-w", "again")
        mount = next(line.split("=", 1)[1] for line in facts.splitlines() if line.startswith("mount="))
        with open(os.path.join(mount, "d0/f1"), "rb") as file:
            file.read()

    def bring_all(self):
        self.at(2, "clone", self.store, "project", "-w", "whole", *FULL)

    def end(self):
        for home, name in (0, "project"), (1, "again"), (2, "whole"):
            self.environment["AGENTVFS_HOME"] = self.homes[home]
            subprocess.run([self.program, "stop", name, "--force"], env=self.environment, capture_output=True)


class Git(Tool):
    def prepare(self):
        self.run("git", "init", "-q", "-b", "main", cwd=self.project)
        for key, value in ("user.name", "bench"), ("user.email", "bench@localhost"), ("gc.auto", "0"):
            self.run("git", "config", key, value, cwd=self.project)
        self.run("git", "init", "-q", "--bare", self.store)
        return self.project

    def keep(self, label):
        self.run("git", "add", "-A", cwd=self.project)
        self.run("git", "commit", "-q", "-m", label, cwd=self.project)

    def send(self):
        self.run("git", "push", "-q", self.store, "main", cwd=self.project)

    def bring_first(self):
        again = os.path.join(self.work, "again")
        self.run("git", "clone", "-q", "--no-local", "-b", "main", self.store, again)
        with open(os.path.join(again, "d0/f1"), "rb") as file:
            file.read()

    def bring_all(self):
        self.run("git", "clone", "-q", "--no-local", "-b", "main", self.store, os.path.join(self.work, "whole"))


class Restic(Tool):
    def __init__(self, work):
        super().__init__(work)
        cache = os.path.join(work, "cache")
        self.environment.update(RESTIC_REPOSITORY=self.store, RESTIC_PASSWORD="bench", RESTIC_CACHE_DIR=cache)

    def prepare(self):
        self.run("restic", "init", "-q")
        return self.project

    def keep(self, label):
        pass

    def send(self):
        self.run("restic", "backup", "-q", self.project)

    def bring_first(self):
        self.environment["RESTIC_CACHE_DIR"] = os.path.join(self.work, "cache of another machine")
        self.run("restic", "dump", "-q", "latest", os.path.join(self.project, "d0/f1"))

    def bring_all(self):
        self.run("restic", "restore", "-q", "latest", "--target", os.path.join(self.work, "whole"))


def make_project(directory, files, size):
    for n in range(files):
        at = os.path.join(directory, f"d{n // 1000}")
        if n % 1000 == 0:
            os.makedirs(at)
        with open(os.path.join(at, f"f{n}"), "wb") as file:
            file.write(os.urandom(size))


def one_round(tool, files):
    """Time of each step, and files and bytes that it added to the store."""
    figures = {}

    def step(name, act):
        before = files_and_bytes(tool.store)
        since = time.monotonic()
        act()
        took = time.monotonic() - since
        added = [b - a for a, b in zip(before, files_and_bytes(tool.store))]
        figures[name] = (took, *added)

    mount = tool.prepare()
    step("kept at first", lambda: tool.keep("first"))
    step("first push", tool.send)
    for n in random.sample(range(files), CHANGED):
        with open(os.path.join(mount, f"d{n // 1000}/f{n}"), "ab") as file:
            file.write(b"changed\n")
    step("10 changed kept", lambda: tool.keep("changed"))
    step("10 changed pushed", tool.send)
    step("clone to first read", tool.bring_first)
    step("full clone", tool.bring_all)
    return figures


FULL = []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=100_000, metavar="FILES")
    parser.add_argument("-b", type=int, default=1000, metavar="BYTES")
    parser.add_argument("-r", type=int, default=3, metavar="ROUNDS")
    parser.add_argument("-d", metavar="DIR")
    parser.add_argument("program")
    args = parser.parse_args()
    said = subprocess.run([args.program, "clone", "--help"], capture_output=True, text=True).stdout
    FULL.extend(["--full"] if "--full" in said else [])
    makers = {"agentvfs": lambda work: Agentvfs(work, args.program), "git": Git, "restic": Restic}
    rounds = {name: [] for name in makers}
    for _ in range(args.r):
        for name, make in makers.items():
            with tempfile.TemporaryDirectory(dir=args.d) as work:
                make_project(os.path.join(work, "project"), args.n, args.b)
                tool = make(work)
                try:
                    rounds[name].append(one_round(tool, args.n))
                finally:
                    tool.end()
    print(f"{'':22} " + " ".join(f"{name:>30}" for name in makers))
    for step in rounds["git"][0]:
        cells = []
        for name in makers:
            took = min(figures[step][0] for figures in rounds[name])
            _, files, size = rounds[name][0][step]
            cells.append(f"{took:8.2f} s {files:6} {size:13,}")
        print(f"{step:22} " + " ".join(f"{cell:>30}" for cell in cells))


if __name__ == "__main__":
    main()
