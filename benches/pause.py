#!/usr/bin/env python3
"""How long programs in a workspace wait when the daemon is killed, or replaced by another build.

    benches/pause.py [-n FILES] [-r ROUNDS] [-d DIR] PROGRAM

PROGRAM: an `agentvfs` (such as target/release/agentvfs). A project of FILES small files (100,000) is made in DIR
(default: a temporary directory), started and imported, and every tenth file changed. Then, ROUNDS times (20), the
daemon is killed while one program appends to a file and another reads a file that is cached. Printed is the longest
wait of each for one call, in milliseconds: median and maximum of the rounds; then the same for a hand-over to a copy
of PROGRAM. Every append must have succeeded, once.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time


class Bench:
    def __init__(self, program, work, files):
        self.program, self.work = os.path.abspath(program), work
        self.home, self.project = os.path.join(work, "home"), os.path.join(work, "project")
        for n in range(files):
            directory = os.path.join(self.project, f"d{n // 1000}")
            if n % 1000 == 0:
                os.makedirs(directory)
            with open(os.path.join(directory, f"f{n}"), "w") as f:
                f.write(f"file {n}\n")
        self.run("start", "bench", "--from", self.project)
        self.mount = os.path.join(self.home, "mnt/bench")
        while '"done"' not in self.run("status", "bench", "--json"):
            time.sleep(0.2)
        for n in range(0, files, 10):
            with open(os.path.join(self.mount, f"d{n // 1000}/f{n}"), "a") as f:
                f.write("changed\n")
        self.run("checkpoint", "bench", "ready")
        self.log = os.path.join(self.mount, "log")
        open(self.log, "w").close()
        self.lines = 0

    def run(self, *args, program=None):
        environment = dict(os.environ, AGENTVFS_HOME=self.home, AGENTVFS_KEEPER="1000000")
        command = [program or self.program, *args]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=self.work)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(args)}: {done.stderr}")
        return done.stdout

    def daemon(self):
        pids = subprocess.run(["pgrep", "-f", f"daemon --root {self.home}"], capture_output=True, text=True)
        return [int(pid) for pid in pids.stdout.split()]

    def during(self, act):
        """The longest call of an appending and of a reading program around `act`, in milliseconds."""
        over = threading.Event()
        worst = {"append": 0.0, "read": 0.0}

        def append():
            with open(self.log, "ab", buffering=0) as f:
                while not over.is_set():
                    since = time.monotonic()
                    f.write(f"{self.lines:08}\n".encode())
                    worst["append"] = max(worst["append"], time.monotonic() - since)
                    self.lines += 1
                    time.sleep(0.0005)

        def read():
            with open(os.path.join(self.mount, "d0/f1"), "rb", buffering=0) as f:
                while not over.is_set():
                    since = time.monotonic()
                    f.seek(0)
                    f.read()
                    worst["read"] = max(worst["read"], time.monotonic() - since)
                    time.sleep(0.0005)

        threads = [threading.Thread(target=work) for work in (append, read)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        act()
        time.sleep(1.0)
        over.set()
        for thread in threads:
            thread.join()
        return {what: 1000 * seconds for what, seconds in worst.items()}

    def kill(self):
        for pid in self.daemon():
            os.kill(pid, 9)

    def check(self):
        with open(self.log) as f:
            expected = "".join(f"{n:08}\n" for n in range(self.lines))
            if f.read() != expected:
                raise SystemExit("an append was lost or made twice")


def show(what, rounds):
    for of in ("append", "read"):
        times = [one[of] for one in rounds]
        print(f"{what}\t{of}\tmedian {statistics.median(times):.0f} ms\tmaximum {max(times):.0f} ms")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=100_000)
    parser.add_argument("-r", type=int, default=20)
    parser.add_argument("-d")
    parser.add_argument("program")
    args = parser.parse_args()
    work = tempfile.mkdtemp(dir=args.d)
    bench = Bench(args.program, work, args.n)
    try:
        show("killed", [bench.during(bench.kill) for _ in range(args.r)])
        bench.check()
        copy = os.path.join(work, "agentvfs")
        shutil.copy(bench.program, copy)
        programs = [copy, bench.program] * (args.r // 2)
        show("replaced", [bench.during(lambda: bench.run("start", "bench", program=p)) for p in programs])
        bench.check()
        rss = subprocess.run(["ps", "-C", "agentvfs", "-o", "rss=,args="], capture_output=True, text=True)
        print("".join(line + "\n" for line in rss.stdout.splitlines() if bench.home in line), end="")
    finally:
        bench.run("stop", "bench")
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
