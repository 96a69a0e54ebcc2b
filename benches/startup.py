#!/usr/bin/env python3
"""How long a command takes from its start to its end, and how much of that is processor time.

    benches/startup.py [-n ROUNDS] [-d DIR] PROGRAM...

PROGRAM: an `agentvfs` (such as target/release/agentvfs); with several, they take turns, each with a workspace of its own in DIR
(default: a temporary directory). Each command runs ROUNDS times (50), in turn with `true`. Printed are the least and the
median, in milliseconds, of the time that passed and of the command's processor time. The daemon runs already.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
import time

COMMANDS = [["--version"], ["status"], ["log", "-n", "1"], ["nothing-like-this"]]


def run(command, cwd, environment):
    """Seconds that passed, and those of the processor."""
    since = time.monotonic()
    child = subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False
    )
    _, _, used = os.wait4(child.pid, 0)
    child.returncode = 0
    return time.monotonic() - since, used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=50)
    parser.add_argument("-d")
    parser.add_argument("programs", nargs="+")
    args = parser.parse_args()
    work = tempfile.mkdtemp(dir=args.d)
    places, rows = [], {("true",): []}
    try:
        for number, program in enumerate(map(os.path.abspath, args.programs)):
            home, project = os.path.join(work, f"home{number}"), os.path.join(work, f"project{number}")
            os.mkdir(project)
            environment = dict(os.environ, AGENTVFS_HOME=home)
            subprocess.run([program, "start", "--from", project], env=environment, check=True, stdout=subprocess.DEVNULL)
            places.append((program, project, environment))
        for _ in range(args.n):
            rows[("true",)].append(run(["true"], work, dict(os.environ)))
            for program, project, environment in places:
                for command in COMMANDS:
                    rows.setdefault((program, *command), []).append(run([program, *command], project, environment))
        for command, times in rows.items():
            passed, used = (sorted(1000 * pair[at] for pair in times) for at in (0, 1))
            least, median = (lambda of: of[0]), (lambda of: of[len(of) // 2])
            print(
                f"{' '.join(command)}\tpassed: least {least(passed):.2f}, median {median(passed):.2f} ms"
                f"\tprocessor: least {least(used):.2f}, median {median(used):.2f} ms"
            )
    finally:
        for program, project, environment in places:
            command = [program, "stop", "--force", "--no-checkpoint"]
            subprocess.run(command, cwd=project, env=environment, capture_output=True)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
