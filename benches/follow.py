#!/usr/bin/env python3
"""What somebody who follows the events of a workspace, and rules, cost those who change it.

    benches/follow.py [-n FILES] [-r ROUNDS] [-f FOLLOWERS] [-p RULES] [-d DIR] PROGRAM

PROGRAM: an `agentvfs`, such as target/release/agentvfs. In four workspaces of one daemon FILES small files are created,
written and removed, round after round: `plain` and `again`, which have neither, say how much figures differ by
themselves, `followed` has FOLLOWERS times `agentvfs watch`, and `ruled` has RULES rules that fit nothing of this: a third each
by two paths, by operation and command, and by path with a rate. Printed is the processor time of daemon and writer for one file,
least and median of the rounds, and what the followers take themselves. What else the machine does counts less than
with times of a clock, but counts.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time


def cpu_of(pid):
    """Processor time of a process and all its threads, in seconds: its CPU-time clock (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


class Bench:
    def __init__(self, program, work):
        self.program = os.path.abspath(program)
        self.environment = dict(os.environ, AGENTVFS_HOME=os.path.join(work, "home"))
        self.work = work

    def run(self, *args):
        done = subprocess.run([self.program, *args], env=self.environment, capture_output=True, text=True, cwd=self.work)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(args)}: {done.stderr}")
        return done.stdout

    def start(self, name):
        project = os.path.join(self.work, name)
        os.mkdir(project)
        with open(os.path.join(project, "file"), "w") as file:
            file.write("of the base\n")
        facts = dict(line.split("=", 1) for line in self.run("start", name, "--from", project).splitlines())
        return facts["mount"]

    def follow(self, name, null):
        args = [self.program, "watch", "-w", name]
        return subprocess.Popen(args, env=self.environment, stdout=null, cwd=self.work)

    def rule(self, name, count):
        kinds = [
            'path = ["secrets-{0}/**", "**/*.key{0}"]\n',
            'op = ["unlink", "write", "create"]\ncommand = "tool-{0}"\n',
            'op = "unlink"\npath = "src/{0}/**"\nrate = "200/10s"\n',
        ]
        rules = (f"[[rule]]\n{kinds[n % 3].format(n)}verdict = \"deny\"\n" for n in range(count))
        path = os.path.join(self.work, "policy.toml")
        with open(path, "w") as file:
            file.write("".join(rules))
        self.run("policy", "set", path, "-w", name)

    def pid(self):
        return json.loads(self.run("status", "plain", "--json"))["pid"]


def change(mount, count):
    for n in range(count):
        path = f"{mount}/d/f{n}"
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644)
        os.write(fd, b"some bytes\n")
        os.close(fd)
        os.unlink(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=5000, metavar="FILES")
    parser.add_argument("-r", type=int, default=9, metavar="ROUNDS")
    parser.add_argument("-f", type=int, default=1, metavar="FOLLOWERS")
    parser.add_argument("-p", type=int, default=50, metavar="RULES")
    parser.add_argument("-d", metavar="DIR")
    parser.add_argument("program")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.d) as work, open(os.devnull, "w") as null:
        bench = Bench(args.program, work)
        names = ["plain", "again", "followed", "ruled"]
        mounts = {name: bench.start(name) for name in names}
        try:
            measure(bench, mounts, args, null)
        finally:
            for name in names:
                bench.run("stop", name, "--force")


def measure(bench, mounts, args, null):
    for mount in mounts.values():
        os.mkdir(f"{mount}/d")
        change(mount, args.n)
    daemon = bench.pid()
    bench.rule("ruled", args.p)
    followers = [bench.follow("followed", null) for _ in range(args.f)]
    time.sleep(1)
    figures = {name: [] for name in mounts}
    theirs = []
    for turn in range(args.r):
        order = list(mounts)
        for name in order[turn % 4 :] + order[: turn % 4]:
            before = cpu_of(daemon), time.process_time(), sum(cpu_of(f.pid) for f in followers)
            change(mounts[name], args.n)
            time.sleep(0.1)  # The last events are sent.
            after = cpu_of(daemon), time.process_time(), sum(cpu_of(f.pid) for f in followers)
            took = [(b - a) / args.n * 1e6 for a, b in zip(before, after)]
            figures[name].append(took[0] + took[1])
            if name == "followed":
                theirs.append(took[2])
    for follower in followers:
        follower.terminate()
        follower.wait()
    least = min(figures["plain"])
    middle = statistics.median(figures["plain"])
    print(f"{'':10} {'least':>8} {'median':>8}  µs of processor time for a file, daemon and writer")
    for name, all_of in figures.items():
        low, mid = min(all_of), statistics.median(all_of)
        share = f"{100 * (low / least - 1):+5.1f} % {100 * (mid / middle - 1):+5.1f} %"
        print(f"{name:10} {low:8.2f} {mid:8.2f}  {share}")
    print(f"{'followers':10} {min(theirs):8.2f} {statistics.median(theirs):8.2f}")


if __name__ == "__main__":
    main()
