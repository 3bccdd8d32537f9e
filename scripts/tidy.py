#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on the sources that this machine can build (cmake --preset debug).

    tidy.py changed     what differs from origin/main, each source alone
    tidy.py all         every source, in batches: most of the time goes into reading headers, which a batch does once

A batch holds sources whose unnamed namespaces define different names. If one does not compile as one file, its halves
are read instead. Seen in `changed` alone: unused using-declarations that another source of the batch uses, and
by-value parameters in sources that include CLI11.
"""
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
BATCHES = BUILD / "tidy"
TIDY = "clang-tidy-19"
BATCH_LINES = 4000  # larger batches save little more and end late
ALONE = ("trainer/device/no_gpu.cpp",)  # in place of other sources, in a build without CUDA
# Macros that change what a source is; all others are given to every source.
OWN_MACROS = re.compile(r"-DTESSERA_(EMULATOR_TSAN|ISA|FAKE_|KERNELS_TSAN)|_EXPORTS")
SHARED_FLAGS = ("-D", "-I", "-isystem", "-fopenmp")
# This check takes 40 % of the time of a source that includes CLI11, nearly all of it in CLI11.
CLI_CHECKS = "-performance-unnecessary-value-param"


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()


def changed_sources():
    base = subprocess.run(["git", "merge-base", "HEAD", "origin/main"], cwd=ROOT, capture_output=True, text=True)
    since = base.stdout.strip() or git("rev-parse", "HEAD")[0]
    changed = set(git("diff", "--name-only", "--diff-filter=d", since))
    return sorted(changed | set(git("ls-files", "--others", "--exclude-standard")))


def compile_flags():
    """{source: (flags of its own, flags that may be given to all)}; a source that is built several times: the first."""
    configured = subprocess.run(["cmake", "--preset", "debug"], cwd=ROOT, capture_output=True, text=True)
    if configured.returncode != 0:
        sys.exit(configured.stdout + configured.stderr)
    flags = {}
    for entry in json.loads((BUILD / "debug/compile_commands.json").read_text()):
        source = os.path.relpath(entry["file"], ROOT)
        words = shlex.split(entry["command"])
        own, shared = [], []
        for word, following in zip(words, words[1:] + [""]):
            if word == "-isystem":
                shared.append(word + following)
            elif word.startswith("-m"):
                own.append(word)
            elif word.startswith(SHARED_FLAGS):
                (own if OWN_MACROS.search(word) else shared).append(word)
        is_tsan = "-DTESSERA_EMULATOR_TSAN" in own
        if source not in flags or (not is_tsan and "-DTESSERA_EMULATOR_TSAN" in flags[source][0]):
            flags[source] = (tuple(own), tuple(shared))
    return flags


def own_names(text):
    """The names that a source's unnamed namespaces and file-level aliases define, as far as its layout tells."""
    names = set()
    for inside in re.findall(r"^namespace \{\n(.*?)^\}  // namespace$", text, re.DOTALL | re.MULTILINE):
        for line in inside.split("\n"):
            if not line or line[0] in " }#/":
                continue
            kind = re.match(r"(?:template <.*> )?(?:struct|class|enum class|enum|using) (\w+)", line)
            value = re.match(r"[^(]*?(\w+)(?:\[.*?\])*(?: =|\{|;)", line)
            function = re.match(r"[^=]*?(\w+)\(", line)
            found = kind or function or value
            if found:
                names.add(found.group(1))
    names.update(re.findall(r"^using (\w+) =", text, re.MULTILINE))
    return names


def batches_of(sources, flags):
    """Lists of sources: of one area and set of flags, and without two definitions of one name."""
    groups = {}
    for source in sources:
        # Tests of two folders often use one name for two things.
        area = os.path.dirname(source) if source.startswith("tests/") else source.split("/")[0]
        text = (ROOT / source).read_text()
        # Kernels repeat each other's names, and a program has one main.
        alone = source if source.endswith(".cu") or source in ALONE or "\nint main(" in text else ""
        key = (area, flags[source][0], "CLI" if includes_cli(source) else "", alone)
        groups.setdefault(key, []).append((source, own_names(text), text.count("\n")))
    batches = []
    for members in groups.values():
        open_batches = []
        for source, names, lines in members:
            for batch in open_batches:
                if batch["lines"] + lines <= BATCH_LINES and not batch["names"] & names:
                    break
            else:
                batch = {"sources": [], "names": set(), "lines": 0}
                open_batches.append(batch)
            batch["sources"].append(source)
            batch["names"] |= names
            batch["lines"] += lines
        batches += [(batch["lines"], batch["sources"]) for batch in open_batches]
    return [sources for _, sources in sorted(batches, reverse=True)]  # the longest first


INCLUDES_CLI = {}


def includes_cli(path):
    """Whether a file includes CLI11, also through other files."""
    if path not in INCLUDES_CLI:
        INCLUDES_CLI[path] = False
        file = ROOT / path
        text = file.read_text() if file.is_file() else ""
        INCLUDES_CLI[path] = "<CLI/" in text or any(
            includes_cli(included) for included in re.findall(r'^#include "(.*)"', text, re.MULTILINE))
    return INCLUDES_CLI[path]


class Tidy:
    """Reads batches; `failed` becomes true with the first finding, which is printed."""

    def __init__(self, flags, is_all):
        self.flags = flags
        self.shared = sorted({flag for _, shared in flags.values() for flag in shared})
        self.is_all = is_all
        self.failed = False
        self.numbers = itertools.count(1)

    def command(self, sources):
        own = list(self.flags[sources[0]][0])
        checks = []
        if len(sources) == 1:
            unit = ROOT / sources[0]
        else:
            unit = BATCHES / f"batch_{next(self.numbers)}.cpp"
            unit.write_text("".join(f'#include "{ROOT / source}"\n' for source in sources))
            checks.append("-bugprone-suspicious-include")
            # tests/.clang-tidy is for tests in batches too, which lie elsewhere.
            if sources[0].startswith(("tests/", "bench/")):
                checks.append("-clang-analyzer-*")
        if self.is_all and any(includes_cli(source) for source in sources):
            checks.append(CLI_CHECKS)
        # Kernels as the emulator's build has them, as C++. Names of one source may be those of another in its batch.
        language = ["-x", "c++", "-std=c++20", "-Wno-unknown-pragmas", "-Wno-shadow"]
        return [TIDY, "--quiet", f"--checks={','.join(checks)}", str(unit), "--", *language, *own, *self.shared]

    def read(self, sources):
        result = subprocess.run(self.command(sources), cwd=ROOT, capture_output=True, text=True)
        if "[clang-diagnostic-error]" in result.stdout and len(sources) > 1:
            print(f"tidy.py: {sources[0]} and {len(sources) - 1} more do not compile as one", flush=True)
            middle = len(sources) // 2
            self.read(sources[:middle])
            self.read(sources[middle:])
        elif result.returncode != 0:
            self.failed = True
            print(result.stdout or result.stderr, flush=True)


def main():
    if sys.argv[1:] not in (["all"], ["changed"]):
        sys.exit(__doc__)
    is_all = sys.argv[1] == "all"
    listed = git("ls-files", "--cached", "--others", "--exclude-standard") if is_all else changed_sources()
    sources = [source for source in listed if source.endswith((".cpp", ".cu")) and (ROOT / source).is_file()]
    if not sources:
        print("no changed sources")
        return
    flags = compile_flags()
    here = [source for source in sources if source in flags]  # without the CUDA toolkit some are not built
    batches = batches_of(here, flags) if is_all else [[source] for source in here]
    BATCHES.mkdir(parents=True, exist_ok=True)
    left_out = f", {len(sources) - len(here)} not built here" if len(here) < len(sources) else ""
    print(f"{len(sources)} sources in {len(batches)} units{left_out}", flush=True)
    tidy = Tidy(flags, is_all)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(tidy.read, batches))
    if tidy.failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
