#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do the tests see a bug in a GPU kernel? Puts one bug after another into the kernels' sources, and runs what tests them.

    mutate.py [--build FOLDER] [--only TEXT] [--sample N [--seed S]] [FILE ...]

FILE: of trainer/device/cuda/kernel, all by default. FOLDER: a configured build, build/release by default, whose
test_kernels and kernels_tsan are built, without sanitizers. --only: mutations whose line contains TEXT. --sample: N of all,
drawn at random; all of all files take a core for half a day.

A mutation drops a sync() or another statement, or changes an operator, a bound, an index, a condition or a rounding. The
changed kernels and the emulator are compiled for the address sanitizer and linked with what is built; of test_kernels
(forward, reversed, random order of threads) run the parts that fail when the file's kernels are not launched at all. For a
dropped sync() kernels_tsan runs too. One line a mutation: how it was caught, or SURVIVED; then totals. Of a sample
also the 95 % interval of the share of all (Wilson). Survivors are to be examined: either a test is missing or the change changes nothing, as that of a tuning constant.
"""

import argparse
import math
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
KERNELS = Path("trainer/device/cuda/kernel")
EMULATOR = ("/emulator.cpp",)
RACE_FOUND = 66
# By program. The build has done it for the thread sanitizer.
SANITIZED = {
    "test_kernels": ["-fsanitize=address,bounds", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"],
    "kernels_tsan": [],
}


def masked(text):
    """The same length, without what is no code to mutate: comments, strings, preprocessor lines, template heads."""
    blank = lambda m: re.sub(r"[^\n]", "_", m.group(0))
    text = re.sub(r"//[^\n]*|\"[^\"\n]*\"", blank, text)
    text = re.sub(r"(?m)^\s*#.*$|^\s*(template|using|namespace|constexpr bool|static_assert)\b.*$", blank, text)
    return re.sub(r"SIMT_UNROLL|SIMT_KERNEL\([^\n]*\)", blank, text)


# (what, pattern on masked code, replacement of the match)
OPERATORS = [
    ("drop sync", r"\bsync\(\);", ";"),
    ("bound", r" < ", " <= "),
    ("bound", r" <= ", " < "),
    ("bound", r" > ", " >= "),
    ("bound", r" >= ", " > "),
    ("condition", r" == ", " != "),
    ("condition", r" != ", " == "),
    ("condition", r" && ", " || "),
    ("condition", r" \|\| ", " && "),
    ("condition", r"!(?=[\w(*])", ""),
    ("condition", r"(?<![<\w])true\b", "false"),
    ("condition", r"(?<![<\w])false\b", "true"),
    ("branches", r"\? ([^?:;]+) : ([^?:;,)]+)", r"? \2 : \1"),
    ("operator", r" \+ ", " - "),
    ("operator", r" - ", " + "),
    ("operator", r" \* ", " + "),
    ("operator", r" / ", " * "),
    ("operator", r" % ", " / "),
    ("operator", r"(?<=[ (])-(?=[\w(])", ""),
    ("assignment", r" \+= ", " -= "),
    ("assignment", r" \+= ", " = "),
    ("assignment", r" -= ", " += "),
    ("assignment", r" \*= ", " = "),
    ("assignment", r" \^= ", " |= "),
    ("number", r"(?<![\w.])0(?![\w.])", "1"),
    ("number", r"(?<![\w.])1(?![\w.])", "0"),
    ("number", r"(?<![\w.])([2-9]|[1-9]\d+)(?![\w.])", lambda m: str(int(m.group(1)) + 1)),
    ("number", r"(?<![\w.])(\d+\.\d+)F", lambda m: str(float(m.group(1)) * 1.01) + "F"),
    ("rounding", r"\bround_to<\w+>\([^;]*\);", ";"),
    ("statement", r"(?m)^\s*if \([^;{]*\) (continue|return);$", ""),
    ("statement", r"\b(store\w*|group_reduce|add_vector|gradient)(<[^;>]*>)?\([^;]*\);", ";"),
    ("limits", r"\bstd::min\b", "std::max"),
    ("limits", r"\bstd::max\b", "std::min"),
]


def mutations(text):
    code = masked(text)
    for what, pattern, replacement in OPERATORS:
        for m in re.finditer(pattern, code):
            original = text[m.start() : m.end()]
            changed = re.sub(pattern, replacement, original, count=1)
            if changed == original:  # the pattern looks around itself
                changed = replacement(m) if callable(replacement) else m.expand(replacement)
            if changed != original:
                yield m.start(), what, original, changed


class Build:
    """Compiles changed sources as the build does, and links them into its programs."""

    def __init__(self, folder):
        self.folder = folder.resolve()
        self.compile, self.link, self.objects = {}, {}, {}
        self.emulator = None  # its objects, once they are made
        for program in SANITIZED:
            self.read_commands(program)

    def read_commands(self, program):
        listed = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", program], capture_output=True, text=True)
        if listed.returncode:
            sys.exit(f"mutate.py: {self.folder} is no build of {program}: {listed.stdout}{listed.stderr}")
        lines = listed.stdout.splitlines()
        for line in lines:
            words = shlex.split(line)
            if words and words[-1].endswith((".cu", *EMULATOR)):
                name = Path(words[-1]).name
                self.compile[program, name] = words
                self.objects[program, name] = words[words.index("-o") + 1]
        self.link[program] = shlex.split(lines[-1].split("&&")[1])

    def object(self, program, source, into, flags):
        """Path of the object of a source; None if it does not compile. `flags` come after the build's own."""
        words = list(self.compile[program, source.name])
        if Path(words[0]).name == "ccache":
            words.pop(0)
        out = into / (program + "." + source.name + ".o")
        words[words.index("-o") + 1] = str(out)
        words[-1] = str(source)
        for flag, count in (("-MD", 1), ("-MT", 2), ("-MF", 2)):
            if flag in words:
                at = words.index(flag)
                del words[at : at + count]
        done = subprocess.run([*words[:1], *flags, *words[1:], "-O1", "-g1", "-w"], cwd=self.folder, capture_output=True)
        return None if done.returncode else str(out)

    def program(self, program, names, tree, into):
        """Path of the program with these kernels from `tree`; None if they do not compile."""
        made = {}
        sanitizers = SANITIZED[program]
        for name in names:
            made[name] = self.object(program, tree / KERNELS / name, into, ["-I", str(tree), *sanitizers])
            if made[name] is None:
                return None
        if sanitizers:  # the emulator tells the sanitizer of its stacks
            if self.emulator is None:
                folder = ROOT / "trainer/device/cuda/emulator"
                self.emulator = {n[1:]: self.object(program, folder / n[1:], into, sanitizers) for n in EMULATOR}
            made.update(self.emulator)
        made = {self.objects[program, name]: out for name, out in made.items()}
        words = [made.pop(word, word) for word in self.link[program]]
        archive = next(i for i, word in enumerate(words) if word.endswith(".a"))
        words[archive:archive] = made.values()  # before the library that has the unchanged ones
        out = into / program
        words[words.index("-o") + 1] = str(out)
        linked = subprocess.run(words + sanitizers, cwd=self.folder, capture_output=True, text=True)
        if linked.returncode:
            sys.exit("mutate.py: does not link: " + linked.stderr)
        return out


def run(words, seconds, **environment):
    """Exit code (None: still running after so many seconds) and output."""
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", **environment}
    try:
        done = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, errors="replace", timeout=seconds)
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout + done.stderr


class Tests:
    """The test cases, and the cases of their table, that need the kernels of some sources."""

    def __init__(self, build, original, names, work):
        tests, cases = set(), set()
        for name in names:
            tree = work / "probe"
            copy_kernels(original, tree)
            source = tree / KERNELS / name
            text = source.read_text()
            at = text.rindex("#include")
            at = text.index("\n", at) + 1
            source.write_text(text[:at] + "#define launch(...) static_cast<void>(0)\n" + text[at:])
            _, output = run([build.program("test_kernels", [name], tree, work)], None)
            tests.update(re.findall(r"(?m)^TEST CASE:  (.*)$", output))
            cases.update(re.findall(r"c\.name := (.*)", output))
        if not tests:
            sys.exit(f"mutate.py: no test needs the kernels of {', '.join(names)}")
        filters = ",".join("*" + test.replace(",", "?") + "*" for test in sorted(tests))
        self.arguments = ["--abort-after=1", "-tc=" + filters]
        self.environment = {"TESSERA_CASES": "".join(c + "\n" for c in sorted(cases))}
        self.bare = lambda program: build.program(program, names, original, work)
        self.limits = {}

    def seconds(self, program):
        """What runs far longer than it did without a bug will not end. The thread sanitizer's is wanted by few."""
        if program not in self.limits:
            path = self.bare(program)
            began = time.monotonic()
            code, output = self.run(program, path, None)
            if code:
                sys.exit(f"mutate.py: {program} fails without a bug: {output}")
            self.limits[program] = 10 + 4 * (time.monotonic() - began)
        return self.limits[program]

    def run(self, program, path, seconds):
        if program == "test_kernels":
            return run([path, *self.arguments], seconds, **self.environment)
        options = f"halt_on_error=1 exitcode={RACE_FOUND}"
        return run(["setarch", "-R", path, "cases"], seconds, TSAN_OPTIONS=options, **self.environment)


def copy_kernels(original, tree):
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(original / KERNELS, tree / KERNELS)


def dependents(original, name):
    """Sources that a file is part of: itself, or those that include a header, through others too."""
    if name.endswith(".cu"):
        return [name]
    files = {f.name: f.read_text() for f in (original / KERNELS).iterdir()}
    reached = {name}
    while True:
        more = {f for f, text in files.items() if any(f'kernel/{header}"' in text for header in reached)} - reached
        if not more:
            return sorted(f for f in reached if f.endswith(".cu"))
        reached |= more


def verdict(build, sources, tree, work, tests, what):
    wanted = list(SANITIZED) if what == "drop sync" else ["test_kernels"]
    seconds = {program: tests.seconds(program) for program in wanted}  # before this program's file is there
    program = build.program("test_kernels", sources, tree, work)
    if program is None:
        return "not compiled"
    code, output = tests.run("test_kernels", program, seconds["test_kernels"])
    found = []
    if code is None:
        found.append("time")
    elif "emulator: " in output:
        found.append("emulator")
    elif "Sanitizer" in output or "runtime error" in output:
        found.append("sanitizer")
    elif code:
        found.append("tests")
    if what == "drop sync":
        program = build.program("kernels_tsan", sources, tree, work)
        code, _ = tests.run("kernels_tsan", program, seconds["kernels_tsan"])
        if code == RACE_FOUND:
            found.append("tsan")
        elif code:
            found.append("tsan's run")
    return ", ".join(found) or "SURVIVED"


def wilson(caught, made):
    """95 % interval of a share of which `caught` of `made` were seen."""
    z = 1.96
    middle = (caught + z * z / 2) / (made + z * z)
    half = z / (made + z * z) * math.sqrt(caught * (made - caught) / made + z * z / 4)
    return middle - half, middle + half


def drawn(original, names, only, sample, seed):
    """The mutations to try, and how many there are of all. A sample is in random order: a part of it is one too."""
    everything = []
    for name in names:
        text = (original / KERNELS / name).read_text()
        for mutation in mutations(text):
            line = text.count("\n", 0, mutation[0]) + 1
            shown = text.splitlines()[line - 1].strip()
            if only in shown:
                everything.append((name, line, shown, mutation))
    if sample:
        return random.Random(seed).sample(everything, min(sample, len(everything))), len(everything)
    return everything, len(everything)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--only", default="")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("files", nargs="*", type=Path)
    given = parser.parse_args()
    names = [f.name for f in given.files] or sorted(f.name for f in (ROOT / KERNELS).iterdir())
    build = Build(given.build)
    totals = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        original = work / "original"  # whoever edits meanwhile
        copy_kernels(ROOT, original)
        chosen, of_all = drawn(original, names, given.only, given.sample, given.seed)
        print(f"{len(chosen)} of {of_all} mutations", flush=True)
        tests = {}
        for name, line, shown, (at, what, was, changed) in chosen:
            sources = dependents(original, name)
            if name not in tests:
                tests[name] = Tests(build, original, sources, work)
            text = (original / KERNELS / name).read_text()
            tree = work / "tree"
            copy_kernels(original, tree)
            (tree / KERNELS / name).write_text(text[:at] + changed + text[at + len(was) :])
            how = verdict(build, sources, tree, work, tests[name], what)
            totals.setdefault(name, {}).setdefault(how, 0)
            totals[name][how] += 1
            print(f"{how:12} {name}:{line}: {what}: {was.strip()!r} -> {changed.strip()!r}: {shown}", flush=True)
    all_caught, all_made = 0, 0
    for name, counts in totals.items():
        made = sum(n for how, n in counts.items() if how != "not compiled")
        caught = made - counts.get("SURVIVED", 0)
        all_caught, all_made = all_caught + caught, all_made + made
        print(f"{name}: {caught} of {made} caught ({', '.join(f'{how} {n}' for how, n in sorted(counts.items()))})")
    if all_made:
        low, high = wilson(all_caught, all_made)
        print(f"all: {all_caught} of {all_made} caught, {all_caught / all_made:.1%} (95 %: {low:.1%} to {high:.1%})")


if __name__ == "__main__":
    main()
