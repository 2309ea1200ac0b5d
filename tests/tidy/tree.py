# SPDX-License-Identifier: BSD-3-Clause
"""The files of the tree, for the checks beside this one."""
import pathlib
import subprocess
import sys

# Usage of every check: check_x.py SOURCE_ROOT [more arguments, see there].
ROOT = pathlib.Path(sys.argv[1]).resolve()
SKIP = 77  # the exit code that tells meson a test was skipped


def files(*suffixes):
    """Paths below ROOT, relative, sorted: those git knows or would add, else all outside build*."""
    try:
        listing = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        listing = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")
                   if not path.relative_to(ROOT).parts[0].startswith(("build", "."))]
    return sorted({path for path in listing if path.endswith(suffixes) and (ROOT / path).is_file()})


def read(path):
    """The text of a file below ROOT."""
    return (ROOT / path).read_text(encoding="utf-8")


class Report:
    """Prints complaints as path:line: text and remembers that there were any."""

    def __init__(self):
        self.failed = False

    def complain(self, path, line, text):
        print(f"{path}:{line}: {text}")
        self.failed = True

    def exit(self):
        sys.exit(1 if self.failed else 0)
