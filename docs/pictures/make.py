#!/usr/bin/env python3
"""Records what commands show on a terminal as SVG files beside this script.

    pip install rich==14.2.0
    docs/pictures/make.py PROGRAM

PROGRAM is agentvfs. Needs script(1) and a mount; uses a home and a project of its own and removes them.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from rich.console import Console
from rich.text import Text

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = 96
# What a terminal obeys besides colours.
OTHER_CODES = re.compile(r"\x1b\[[0-9;?]*[A-LN-Za-ln-z]|\x1b[=>]")
# Columns of one letter in rich's pictures, and a text in these that begins with space and has more.
LETTER = 12.2
LEADING_SPACE = re.compile(
    r'(<text [^>]*)x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)"([^>]*>)((?:&#160;)+)(?=[^<&]|&(?!#160;))'
)
# Files that take long enough to be written for a bar to be seen.
MANY = 10_000


class Place:
    def __init__(self, program, root):
        self.program, self.root = program, pathlib.Path(root)
        self.project = self.root / "project"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root),
            "AGENTVFS_HOME": str(self.root / "home"),
            "TERM": "xterm",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "PAGER": "cat",
        }

    def run(self, *args, cwd=None, ok=True):
        done = subprocess.run(
            [self.program, *args], cwd=cwd or self.project, env=self.env, capture_output=True, text=True
        )
        if ok and done.returncode:
            sys.exit(f"agentvfs {' '.join(args)}: {done.stderr}")
        return done.stdout.strip()

    def shown(self, line):
        """What a command shows on a terminal."""
        command = f"stty cols {COLUMNS}; {self.program} {line}"
        done = subprocess.run(
            ["script", "-qec", command, "/dev/null"], cwd=self.project, env=self.env, capture_output=True
        )
        return done.stdout.decode().replace("\r\n", "\n")


def without_leading_space(text):
    """The same text begun where its first letter is: some viewers leave out the space that a text begins with."""
    before, x, y, length, after, spaces = text.groups()
    skipped = len(spaces) // len("&#160;") * LETTER
    return f'{before}x="{float(x) + skipped:g}" y="{y}" textLength="{float(length) - skipped:g}"{after}'


def picture(name, shown):
    """Writes SHOWN, pairs of a command and what it shows, as an SVG file."""
    console = Console(
        record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True, color_system="standard"
    )
    for line, text in shown:
        console.print(Text(f"$ agentvfs {line}", style="bold"))
        console.print(Text.from_ansi(OTHER_CODES.sub("", text).rstrip("\n")))
    # The lowest parts of the last line's letters would be cut off.
    console.print()
    svg = LEADING_SPACE.sub(without_leading_space, console.export_svg(title="agentvfs", unique_id=name))
    (HERE / f"{name}.svg").write_text(svg)
    print(HERE / f"{name}.svg")


def history(place):
    """A workspace with three branches, merges and calls."""
    (place.project / "src").mkdir(parents=True)
    (place.project / "src/main.rs").write_text('fn main() {\n    println!("hello");\n}\n')
    (place.project / "README.md").write_text("# A project\n")
    (place.project / "numbers").write_text("".join(f"{n}\n" for n in range(100)))
    place.run("start", "--from", ".")
    place.run("config", "auto-idle=off", "auto-busy=off")
    mount = pathlib.Path(re.search(r"^mount=(.*)$", place.run("status"), re.M)[1])
    place.run("checkpoint", "imported")
    fix, docs = (mount / ".agentvfs/branches" / name for name in ("fix", "docs"))
    place.run("branch", "create", "fix")
    place.run("branch", "create", "docs")
    main = fix / "src/main.rs"
    main.write_text(main.read_text().replace("hello", "hello, world"))
    place.run("checkpoint", "greeting", "-m", "greet the world", cwd=fix)
    (docs / "README.md").write_text("# A project\n\nIt greets.\n")
    place.run("checkpoint", "-m", "say what it does", cwd=docs)
    numbers = mount / "numbers"
    numbers.write_text("".join(f"{n}\n" for n in range(130)))
    place.run("checkpoint", "before-refactor")
    place.run("merge", "fix")
    numbers.write_text("".join(f"{n}\n" for n in range(150)))
    place.run("checkpoint", "-m", "more numbers")
    place.run("merge", "docs")
    place.run("branch", "create", "docs-de", cwd=docs)
    docs_de = mount / ".agentvfs/branches/docs-de"
    (docs_de / "README.md").write_text("# A project\n\nIt greets everybody.\n")
    place.run("checkpoint", "-m", "everybody", cwd=docs_de)
    calls(place, mount)
    numbers.write_text("".join(f"{n}\n" for n in range(120)))
    (mount / "src/lib.rs").write_text("pub fn greet() {}\n" * 9)
    main = mount / "src/main.rs"
    main.write_text(main.read_text().replace("world", "all"))
    return mount


def calls(place, mount):
    """Calls of which some overlap."""
    place.run("tool", "exec", "edit_file", "--", "sh", "-c", "sleep 0.2; echo x >> numbers", cwd=mount)
    begun = [
        subprocess.Popen(
            [place.program, "tool", "exec", name, "--", "sh", "-c", line],
            cwd=mount, env=place.env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for name, line in (("test", "sleep 1.2"), ("lint", "sleep 0.5; exit 1"))
    ]
    time.sleep(0.3)
    place.run("tool", "exec", "format", "--", "sleep", "0.4", cwd=mount)
    for call in begun:
        call.wait()
    place.run("tool", "exec", "edit_file", "--", "sleep", "0.1", cwd=mount)


def bar(place):
    """What a bar shows while many files are written."""
    many = place.project / "many"
    many.mkdir()
    for n in range(MANY):
        (many / f"f{n}").write_text("x")
    place.run("update")
    place.run("checkpoint", "many")
    shown = place.shown(f"restore many --ref many --to {place.root}/out")
    frames = [frame for frame in re.split(r"[\r\n]", OTHER_CODES.sub("", shown)) if " left" in frame]
    if not frames:
        sys.exit(f"no bar was seen: {shown!r}")
    return frames[len(frames) // 2]


def main():
    # A short name, as it is in the pictures.
    root = pathlib.Path(tempfile.gettempdir()) / "demo"
    root.mkdir()
    place = Place(str(pathlib.Path(sys.argv[1]).resolve()), root)
    try:
        history(place)
        for name, lines in {
            "status": ["status"],
            "log": ["log"],
            "timeline": ["timeline"],
            "branches": ["branch list"],
            "diff": ["diff --stat", "diff --patch src/main.rs"],
            "error": ["rolback", "rollback nothing"],
        }.items():
            picture(name, [(line, place.shown(line)) for line in lines])
        picture("progress", [("restore many --ref many --to /tmp/demo/out", bar(place))])
    finally:
        place.run("stop", "--force", "--no-checkpoint", ok=False)
        time.sleep(3)
        shutil.rmtree(place.root, ignore_errors=True)


main()
