#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each source of the repository, but for tests/data, begins with its license line (CONTRIBUTING.md, "Rules"):

    // SPDX-License-Identifier: Apache-2.0       C++ and CUDA
    # SPDX-License-Identifier: Apache-2.0        Python, shell and CMake, after a #! line

Prints the files without it and ends with 1. --add writes the missing lines.
"""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LICENSE = "SPDX-License-Identifier: Apache-2.0"
COMMENT = {".h": "//", ".cuh": "//", ".cpp": "//", ".cu": "//", ".py": "#", ".sh": "#", ".cmake": "#"}


def comment_of(path):
    return "#" if path.name == "CMakeLists.txt" else COMMENT.get(path.suffix)


def with_license(text, comment):
    """The text with its license line; the same text if it has one."""
    line = f"{comment} {LICENSE}\n"
    first, _, rest = text.partition("\n")
    if text.startswith("#!"):
        return text if rest.startswith(line) else f"{first}\n{line}{rest}"
    return text if text.startswith(line) else line + text


def main():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.splitlines()
    sources = [ROOT / path for path in listed
               if not path.startswith("tests/data/") and comment_of(ROOT / path) and (ROOT / path).is_file()]
    missing = 0
    for path in sources:
        text = path.read_text()
        licensed = with_license(text, comment_of(path))
        if licensed == text:
            continue
        missing += 1
        if "--add" in sys.argv:
            path.write_text(licensed)
        else:
            print(f"{path.relative_to(ROOT)}: no license line; run scripts/license-headers.py --add", file=sys.stderr)
    print(f"{len(sources)} sources, {missing} {'written' if '--add' in sys.argv else 'without their license line'}")
    return 1 if missing and "--add" not in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
