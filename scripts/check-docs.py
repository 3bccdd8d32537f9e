#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the documents (every *.md, but for the tables in tests/data) and what the sources say of them:

* Prose is at most 100 columns wide. Tables, code and lines of one long word are exempt.
* A relative link leads to a file, and its #anchor to a heading there. README.md links every file of docs/.
* A path of the repository in code (`lib/base/error.h`, `lib/cluster/NAME/`, `tests/lib/*`) exists.
* `docs/x.md, "Heading"`, `[x.md](x.md), "Heading"` and `x.md, section 2` name what is there; in sources too.
* A --flag and a verb (`submit status`) occur in the source of a program or a script.

Prints one line a fault (where: what; what to do) and ends with 1, or a summary and 0.
"""
import fnmatch
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 100
# Flags of programs that are not ours, which no source here calls.
FOREIGN_FLAGS = {"--build", "--preset", "--target"}
CODE_ENDINGS = (".h", ".cpp", ".cu", ".py", ".sh", ".cmake", ".txt")

FENCE = re.compile(r"^\s*(```|~~~)")
INLINE_CODE = re.compile(r"(`+)(.+?)\1", re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*$")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9_-]*")
VERB = re.compile(r"(?:^\s*|&& |; )(?:\$ )?(?:[\w./-]+/)?(submit|collect|trainer)\s+([a-z]+(?:-[a-z]+)*)(?=\s|$)")
# docs/x.md or [..](x.md), then "Heading" or a section number; comments may break the line in between.
BREAK = r"[\s/#*]*"
REFERENCE = re.compile(r"([\w./-]+\.md)(?:#([\w-]+))?`?\)?(?:," + BREAK + r'(?:"([^"\n]+)"|section (\d+)))?')


class Document:
    """A document's lines by kind, its headings and their anchors."""

    def __init__(self, path):
        self.path = path
        self.lines = (ROOT / path).read_text().splitlines()
        self.is_code = []
        self.headings = []
        inside = False
        for line in self.lines:
            fence = FENCE.match(line)
            self.is_code.append(inside or bool(fence) or line.startswith("    "))
            if fence:
                inside = not inside
            elif not inside and (heading := HEADING.match(line)):
                self.headings.append(plain(heading.group(2)))
        self.anchors = anchors_of(self.headings)

    def prose(self):
        """The text with code blocks blanked, lines in place."""
        return "\n".join("" if code else line for line, code in zip(self.lines, self.is_code))


def plain(heading):
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return heading.replace("`", "").replace("*", "")


def anchors_of(headings):
    """GitHub's anchors: lower case, spaces are hyphens, other signs fall away, the second of a name has -1."""
    anchors = set()
    for heading in headings:
        anchor = base = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = 0
        while anchor in anchors:
            count += 1
            anchor = f"{base}-{count}"
        anchors.add(anchor)
    return anchors


def line_at(text, offset):
    return text.count("\n", 0, offset) + 1


class Check:
    def __init__(self):
        listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                                check=True, capture_output=True, text=True).stdout.split("\n")
        self.files = sorted(path for path in set(listed) if path and (ROOT / path).is_file())
        self.folders = {str(parent) for path in self.files for parent in pathlib.PurePosixPath(path).parents}
        self.names = {pathlib.PurePosixPath(path).name for path in self.files}
        self.tops = {path.split("/")[0] for path in self.files if "/" in path}
        self.documents = {path: Document(path) for path in self.files
                          if path.endswith(".md") and not path.startswith("tests/data/")}
        self.sources = {path: (ROOT / path).read_text(errors="replace") for path in self.files
                        if path.endswith(CODE_ENDINGS) and path != "scripts/check-docs.py"}
        ours = [text for path, text in self.sources.items() if not path.startswith("tests/")]
        self.flags = set(FLAG.findall("\n".join(ours))) | FOREIGN_FLAGS
        self.programs = {name: "\n".join(text for path, text in self.sources.items() if path.startswith(rooms))
                         for name, rooms in (("submit", ("apps/submit/", "lib/cli/")), ("collect", ("apps/collect/", "lib/cli/")),
                                             ("trainer", ("trainer/", "lib/cli/")))}
        self.faults = []

    def fault(self, path, line, what, fix):
        self.faults.append(f"{path}:{line}: {what}; {fix}")

    def width(self, document):
        for number, (line, code) in enumerate(zip(document.lines, document.is_code), 1):
            if code or line.lstrip().startswith("|") or len(line) <= WIDTH or " " not in line.strip():
                continue
            self.fault(document.path, number, f"{len(line)} columns", f"wrap prose at {WIDTH}")

    def links(self, document):
        text = document.prose()
        blanked = INLINE_CODE.sub(lambda code: re.sub(r"\S", "x", code.group(0)), text)
        for link in LINK.finditer(blanked):
            target = text[link.start(1):link.end(1)]
            if re.match(r"[a-z]+:", target):
                continue
            line = line_at(text, link.start())
            path, _, anchor = target.partition("#")
            full = document.path if not path else self.beside(document.path, path)
            if full not in self.names_of_paths():
                self.fault(document.path, line, f"link to {target}: no such file", "correct the path")
            elif anchor and full in self.documents and anchor not in self.documents[full].anchors:
                self.fault(document.path, line, f"link to {target}: no such heading",
                           f"one of: {', '.join(sorted(self.documents[full].anchors))}")

    def names_of_paths(self):
        return self.folders.union(self.files)

    @staticmethod
    def beside(document, path):
        parts = []
        for part in [*pathlib.PurePosixPath(document).parent.parts, *path.rstrip("/").split("/")]:
            if part == "..":
                parts = parts[:-1]
            elif part not in ("", "."):
                parts.append(part)
        return "/".join(parts)

    def code_texts(self, document):
        """(line, text) of each code block's line and of each inline code."""
        for number, (line, code) in enumerate(zip(document.lines, document.is_code), 1):
            if code and not FENCE.match(line):
                yield number, line
        text = document.prose()
        for code in INLINE_CODE.finditer(text):
            yield line_at(text, code.start()), code.group(2).replace("\n", " ")

    def paths(self, document):
        known = self.names_of_paths()
        for line, code in self.code_texts(document):
            for word in re.split(r"[\s,;()\[\]{}\"'=]+", code):
                path = re.sub(r":\d+$", "", word.removeprefix("./")).rstrip("/.:")
                top, slash, _ = path.partition("/")
                if slash and top in self.tops:
                    pattern = re.sub(r"\b[A-Z]+\b", "*", path) if re.search(r"\b[A-Z]{2,}\b", path) else path
                    pattern = re.sub(r"<[^>]*>", "*", pattern)
                    is_there = path in known or any(fnmatch.fnmatchcase(each, pattern) for each in known)
                elif not slash and re.fullmatch(r"[\w-]+\.(h|cpp|cu|py|cmake)", path):
                    is_there = path in self.names
                else:
                    continue
                if not is_there:
                    self.fault(document.path, line, f"{word} is not in the repository", "name what is there now")

    def words(self, document):
        for line, code in self.code_texts(document):
            for flag in FLAG.findall(code):
                if flag not in self.flags:
                    self.fault(document.path, line, f"no program takes {flag}", "correct it or take it out")
            for program, verb in VERB.findall(code.split("#")[0]):
                if f'"{verb}"' not in self.programs[program]:
                    self.fault(document.path, line, f"{program} has no verb '{verb}'", "correct it or take it out")

    def references(self, path, text):
        for found in REFERENCE.finditer(text):
            name, anchor, heading, section = found.groups()
            target = name if name in self.documents else self.beside(path, name)
            line = line_at(text, found.start())
            if target not in self.documents:
                if name.startswith("docs/"):
                    self.fault(path, line, f"{name}: no such document", "correct the path")
                continue
            document = self.documents[target]
            if anchor and anchor not in document.anchors:
                self.fault(path, line, f"{name}#{anchor}: no such heading", "correct the anchor")
            if heading and heading not in document.headings:
                self.fault(path, line, f'{name} has no heading "{heading}"', "name a heading of it")
            if section and not any(each.startswith(section) for each in document.headings):
                self.fault(path, line, f"{name} has no section {section}", "name a heading of it")

    def run(self):
        for document in self.documents.values():
            self.width(document)
            self.links(document)
            self.paths(document)
            self.words(document)
            self.references(document.path, document.prose())
        for path, text in self.sources.items():
            self.references(path, text)
        readme = self.documents["README.md"].prose()
        for path in self.documents:
            if path.startswith("docs/") and f"({path}" not in readme:
                self.fault(path, 1, "README.md does not link it", "add it to the map of the docs")
        return self.faults


def main():
    check = Check()
    for fault in check.run():
        print(fault, file=sys.stderr)
    if check.faults:
        return 1
    print(f"{len(check.documents)} documents: width, links, paths, flags and references hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
