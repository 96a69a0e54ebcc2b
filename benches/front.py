#!/usr/bin/env python3
"""The way to the kernel of several builds, beside each other: round trip, create, read, write, memory.

    benches/front.py [-r ROUNDS] [-d DIR] PROGRAM...

PROGRAM: an `agentvfs` of each build to compare (such as target/release/agentvfs), each in a home of its own in DIR
(default: a temporary directory), on a project of 10,000 files. Programs take turns, ROUNDS times (9), in another order
each round. Printed is each row's best and median, and the memory of the daemon (and of its keeper, where it has one)
after all files were walked and read. On a machine that does something else the figures say nothing.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time

FILES = 10_000


class Bench:
    def __init__(self, program, work, project):
        self.program, self.work = os.path.abspath(program), work
        self.home = os.path.join(work, "home")
        os.makedirs(work)
        self.run("workspace", "start", "bench", "--from", project)
        self.mount = os.path.join(self.home, "mnt/bench")
        while '"done"' not in self.run("workspace", "status", "bench", "--json"):
            time.sleep(0.2)

    def run(self, *args):
        environment = dict(os.environ, AGENTVFS_HOME=self.home)
        command = [self.program, *args]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=self.work)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(args)}: {done.stderr}")
        return done.stdout

    def memory(self):
        """Resident memory, in MB, of all processes that this home has."""
        for directory, _, names in os.walk(self.mount):
            for name in names:
                with open(os.path.join(directory, name), "rb") as f:
                    f.read()
        pids = subprocess.run(["pgrep", "-f", self.home], capture_output=True, text=True).stdout.split()
        total = 0
        for pid in pids:
            with open(f"/proc/{pid}/status") as f:
                total += sum(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))
        return total / 1000

    def stop(self):
        self.run("workspace", "stop", "bench", "--no-checkpoint")


def microseconds(count, act):
    begin = time.perf_counter()
    for n in range(count):
        act(n)
    return (time.perf_counter() - begin) / count * 1e6


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3\n")


def rows(mount, turn):
    """Each row's name and its time in microseconds for one call."""
    inside = os.path.join(mount, f"turn{turn}")
    os.mkdir(inside)
    top = os.open(inside, os.O_RDONLY)
    probe = os.path.join(inside, "probe")
    with open(probe, "w") as f:
        f.write("x")
    yield "round trip (chmod)", microseconds(3000, lambda n: os.chmod(probe, 0o600 + n % 2 * 0o40))

    def create(n):
        with open(f"c{n}", "wb", buffering=0, opener=lambda name, flags: os.open(name, flags, dir_fd=top)) as f:
            f.write(b"a" * 200)

    yield "create, write 200 B, close", microseconds(2000, create)
    big = os.open(os.path.join(inside, "big"), os.O_RDWR | os.O_CREAT)
    block = os.urandom(1 << 20)
    yield "write 1 MiB", microseconds(64, lambda n: os.write(big, block))
    os.fsync(big)
    yield "overwrite 4 KiB", microseconds(4000, lambda n: os.pwrite(big, block[:4096], n * 16384 % (1 << 26)))
    end = os.open(os.path.join(inside, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    yield "append 100 B", microseconds(4000, lambda n: os.write(end, b"x" * 100))
    os.fsync(big)
    drop_caches()
    yield "read 1 MiB, not cached", microseconds(64, lambda n: os.pread(big, 1 << 20, n << 20))
    drop_caches()
    directory = os.path.join(mount, f"d{turn % 10}")
    names = os.listdir(directory)

    def read(n):
        with open(os.path.join(directory, names[n]), "rb", buffering=0) as f:
            f.read()

    yield "open, read, close a small file, not cached", microseconds(len(names), read)
    yield "open, read, close a small file, cached", microseconds(len(names), read)
    os.close(top)
    os.close(big)
    os.close(end)
    shutil.rmtree(inside)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("-r", dest="rounds", type=int, default=9)
    arguments.add_argument("-d", dest="directory")
    arguments.add_argument("programs", nargs="+", metavar="PROGRAM")
    arguments = arguments.parse_args()
    work = tempfile.mkdtemp(prefix="agentvfs-front.", dir=arguments.directory)
    project = os.path.join(work, "project")
    for n in range(FILES):
        if n % 1000 == 0:
            os.makedirs(os.path.join(project, f"d{n // 1000}"))
        with open(os.path.join(project, f"d{n // 1000}/f{n}"), "w") as f:
            f.write(f"file {n}\n" * 100)
    benches = [Bench(p, os.path.join(work, f"of{i}"), project) for i, p in enumerate(arguments.programs)]
    times = {}
    try:
        for turn in range(arguments.rounds):
            order = list(range(len(benches)))
            for i in order[turn % len(order):] + order[:turn % len(order)]:
                for row, figure in rows(benches[i].mount, turn):
                    times.setdefault(row, [[] for _ in benches])[i].append(figure)
        print("| row | " + " | ".join(f"{p}: best, median" for p in arguments.programs) + " |")
        print("|---" * (len(benches) + 1) + "|")
        for row, figures in times.items():
            print(f"| {row} | " + " | ".join(f"{min(f):.1f}, {statistics.median(f):.1f} µs" for f in figures) + " |")
        print("| memory, all walked and read | " + " | ".join(f"{b.memory():.1f} MB" for b in benches) + " |")
    finally:
        for bench in benches:
            bench.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
