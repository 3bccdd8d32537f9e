#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks which parts of the product include which (docs/architecture.md, "Rooms"):

* A folder includes only the folders that scripts/layers.txt allows it, and every line there is used.
* No module (a header with its source) includes one that includes it, directly or through others.
* Headers of outside libraries stay in the folders that own them.
* No decision hangs on a sentence: nothing looks into a reason, a source or what().
* Words stay in the folders that own them: which kinds of clusters there are, and the variables of launchers.

Prints one line a fault and ends with 1, or a summary and 0. --loops prints the loops alone, --arrows the arrows between
folders as layers.txt has them.
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRODUCT = ("apps", "lib", "trainer", "collect")
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.M)

# Outside headers: what their names begin with, and the folders that may include them.
OWNED = (
    (re.compile(r"^(cuda|cudnn|cublas|nvml|nvrtc)"), ("trainer/device/cuda",)),
    (re.compile(r"^nccl"), ("trainer/comm/nccl",)),
    (re.compile(r"^gloo/"), ("trainer/comm/gloo",)),
    (re.compile(r"^curl/"), ("lib/cluster",)),
    (re.compile(r"^CLI/"), ("apps", "lib/cli", "trainer/main.cpp")),
    (re.compile(r"^yaml-cpp/"), ("lib/base",)),
)

KINDS = "|".join(re.findall(r"\w+", re.search(r"enum class Kind[^{]*\{([^}]*)\}",
                                             (ROOT / "lib/cluster/cluster_file.h").read_text()).group(1)))
# Words of code: what they are, the folders that may have them, and where others ask.
WORDS = (
    (re.compile(rf"\bKind::(?:{KINDS})\b|\bcluster::Kind\b"), ("lib/cluster",), "ask cluster::backend_of, or the scheduler"),
    (re.compile(r"\b(?:SLURM_|TORCHELASTIC_)\w*"), ("lib/cluster/slurm", "trainer/launch"), "ask trainer/launch/place.h"),
)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


# What reads text that was made for people: a search in it, or a comparison with words.
PROSE = re.compile(
    r"""(?:\b\w*(?:reason|source|detail)|\bfix|\b(?:what|problem|fix|without_where)\(\)\)?)
        (?:->|\.)(?:starts_with|ends_with|find|rfind|contains|compare|erase)\(
      | \bwhat\(\)\)?\.substr\(
      | \b\w*(?:reason|source|detail)\s*[=!]=\s*"[^"]*\s[^"]*"
    """, re.X)
# Who may: the reader of what older versions wrote, and of Slurm's words, which are its interface.
PROSE_READERS = ("lib/runlog/before_schema_2.cpp", "lib/cluster/slurm/state.cpp")


def prose_read(path, text):
    """Faults: lines of the file that read prose."""
    if path in PROSE_READERS:
        return []
    return [f"{path}:{number}: reads words that are for people: give it a type ({line.strip()})"
            for number, line in enumerate(text.splitlines(), 1) if PROSE.search(line)]


def read_product():
    """Text by file: {path: text}, paths relative to the root."""
    files = {}
    faults = []
    for top in PRODUCT:
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
                files[str(path.relative_to(ROOT))] = path.read_text()
    return files


def includes(text):
    """([ours], [outside])"""
    found = INCLUDE.findall(text)
    return [a for a, _ in found if a], [b for _, b in found if b]


def is_in(path, rooms):
    return any((path + "/").startswith(room + "/") for room in rooms)


def module_of(path):
    return str(pathlib.PurePosixPath(path).with_suffix(""))


def room_of(path):
    return str(pathlib.PurePosixPath(path).parent)


def loops(graph):
    """Groups of modules that reach each other (Tarjan), largest first."""
    index, low, on_stack, stack, found = {}, {}, set(), [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on_stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = []
            while True:
                other = stack.pop()
                on_stack.discard(other)
                group.append(other)
                if other == node:
                    break
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10000)
    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)


def read_layers():
    """Allowed arrows of layers.txt: {room: (line number, [rooms])}."""
    allowed = {}
    for number, line in enumerate((ROOT / "scripts/layers.txt").read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if line:
            room, _, others = line.partition(":")
            allowed[room.strip()] = (number, others.split())
    return allowed


def main():
    files = read_product()
    modules = collections.defaultdict(set)
    arrows = collections.defaultdict(dict)  # room -> room -> an example
    faults = []
    for path, text in files.items():
        ours, outside = includes(text)
        faults += prose_read(path, text)
        modules[module_of(path)]
        for other in ours:
            if other not in files:
                if (ROOT / other).exists():
                    faults.append(f"{path}: includes {other}, which is no part of the product")
                continue
            if module_of(other) != module_of(path):
                modules[module_of(path)].add(module_of(other))
            if room_of(other) != room_of(path):
                arrows[room_of(path)].setdefault(room_of(other), f"{path} includes {other}")
        for header in outside:
            for pattern, rooms in OWNED:
                if pattern.match(header) and not is_in(path, rooms):
                    faults.append(f"{path}: includes <{header}>, which only {' and '.join(rooms)} may")
        for pattern, rooms, instead in WORDS:
            word = None if is_in(path, rooms) else pattern.search(COMMENT.sub("", text))
            if word:
                faults.append(f"{path}: {word.group()} is for {' and '.join(rooms)} alone: {instead}")

    groups = loops(modules)
    if "--loops" in sys.argv:
        for group in groups:
            print(len(group), *group)
        return 0
    if "--arrows" in sys.argv:
        for room in sorted({room_of(path) for path in files}):
            print(f"{room}: {' '.join(sorted(arrows[room]))}".strip())
        return 0

    for group in groups:
        faults.append(f"modules that need each other: {' '.join(group)}")
    allowed = read_layers()
    for room, others in sorted(arrows.items()):
        number, list_ = allowed.get(room, (0, []))
        for other, example in sorted(others.items()):
            if other not in list_:
                faults.append(f"{room} may not include {other} (scripts/layers.txt): {example}")
    for room, (number, list_) in sorted(allowed.items()):
        if not (ROOT / room).is_dir():
            faults.append(f"scripts/layers.txt:{number}: {room} is no folder")
        for other in list_:
            if other not in arrows[room]:
                faults.append(f"scripts/layers.txt:{number}: {room} no longer includes {other}: take it out")
    # A folder and those within it are one house: its modules put together what lies within, which uses what lies beside
    # them. Modules without loops are enough there.
    def is_within(a, b):
        return a.startswith(b + "/") or b.startswith(a + "/")

    rooms = loops({room: {other for other in arrows[room] if not is_within(room, other)}
                   for room in {room_of(path) for path in files}})
    for group in rooms:
        faults.append(f"folders that need each other: {' '.join(group)}")
    for fault in faults:
        print(fault, file=sys.stderr)
    if not faults:
        print(f"{len(files)} files, {len(modules)} modules, {len(allowed)} folders: no loop, no arrow that is not allowed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
