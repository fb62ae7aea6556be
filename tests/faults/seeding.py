"""Reads the lists of deliberate faults and of kill points and puts them into sources: faults behind a question asked at
run time, kill points as places where a process ends when it is asked to."""

import collections
import dataclasses
import re
import tomllib

HEADER = '#include "tests/faults/seeded_fault.h"\n'
KILL_POINT_HEADER = '#include "tests/faults/kill_point.h"\n'
FORMS = ("expression", "statement")


class ListError(Exception):
    """A list does not fit the sources, or is not well formed."""


def find_once(text: str, snippet: str, within: str | None, whose: str, file: str) -> tuple[int, int]:
    """Where a snippet is in a source. It must be there exactly once, so that the list stays true."""
    context = snippet if within is None else within
    for searched, wanted, place in ((text, context, file), (context, snippet, "`within`")):
        if searched.count(wanted) != 1:
            raise ListError(f"{whose}: {place} has {searched.count(wanted)} times, not once:\n{wanted}")
    begin = text.index(context) + context.index(snippet)
    end = begin + len(snippet)
    if re.search(r"(\w|\.|->|::)$", text[:begin]) and re.match(r"\w", snippet) or (
            re.search(r"\w$", snippet) and re.match(r"\w", text[end:])):
        raise ListError(f"{whose}: begins or ends inside a name:\n{snippet}")
    return begin, end


@dataclasses.dataclass
class Fault:
    number: int
    kind: str
    what: str
    file: str
    right: str
    wrong: str
    tests: list[list[str]]  # each [binary, filter]
    form: str = "expression"
    within: str | None = None
    says: str | None = None

    header = HEADER

    @property
    def title(self) -> str:
        return f"fault {self.number}"

    def span(self, text: str) -> tuple[int, int]:
        return find_once(text, self.right, self.within, self.title, self.file)

    def seeded(self, right: str) -> str:
        question = f"::sherd::SeededFault({self.number})"
        if self.form == "expression":
            return f"({question} ? ({self.wrong}) : ({right}))"
        return f"{{ if ({question}) {{\n{self.wrong}\n}} else {{\n{right}\n}} }}"


@dataclasses.dataclass
class KillPoint:
    name: str
    what: str
    file: str
    before: str | None = None
    after: str | None = None
    within: str | None = None
    when: str = "true"
    header = KILL_POINT_HEADER

    @property
    def title(self) -> str:
        return f"kill point {self.name}"

    def span(self, text: str) -> tuple[int, int]:
        return find_once(text, self.before or self.after, self.within, self.title, self.file)

    def seeded(self, code: str) -> str:
        point = f'{{ static ::sherd::KillPoint kill_point("{self.name}"); if ({self.when}) kill_point.Pass(); }}'
        return f"{point}\n{code}" if self.before else f"{code}\n{point}"


def stripped(entry: dict) -> dict:
    return {key: value.strip("\n") if isinstance(value, str) else value for key, value in entry.items()}


def parse_kill_points(text: str) -> list[KillPoint]:
    points = []
    for entry in tomllib.loads(text)["point"]:
        try:
            point = KillPoint(**stripped(entry))
        except TypeError as error:
            raise ListError(f"an entry of the list is not well formed: {error}: {entry}") from error
        if (point.before is None) == (point.after is None):
            raise ListError(f"{point.title}: it lies either before code or after it")
        points.append(point)
    if len({point.name for point in points}) != len(points):
        raise ListError("two kill points have one name")
    return points


def parse(text: str) -> list[Fault]:
    faults = []
    for entry in tomllib.loads(text)["fault"]:
        tests = entry.pop("test")
        entry["tests"] = [test.split(" ", 1) for test in ([tests] if isinstance(tests, str) else tests)]
        try:
            fault = Fault(**stripped(entry))
        except TypeError as error:
            raise ListError(f"an entry of the list is not well formed: {error}: {entry}") from error
        if fault.form not in FORMS or not re.fullmatch(r"F\d+|numbers", fault.kind):
            raise ListError(f"fault {fault.number}: unknown form {fault.form!r} or kind {fault.kind!r}")
        if any(len(test) != 2 for test in fault.tests):
            raise ListError(f"fault {fault.number}: a test is a binary and a filter")
        faults.append(fault)
    if [fault.number for fault in faults] != list(range(1, len(faults) + 1)):
        raise ListError("the faults must be numbered 1, 2, 3, … in order")
    return faults


def by_file(seeds: list[Fault | KillPoint]) -> dict[str, list[Fault | KillPoint]]:
    files = collections.defaultdict(list)
    for seed_ in seeds:
        files[seed_.file].append(seed_)
    return files


def seed(text: str, seeds: list[Fault | KillPoint]) -> str:
    """The source with its seeds. One seed's code may lie inside another's, or be the same: either can be chosen."""
    headers = sorted({seed_.header for seed_ in seeds}, reverse=True)
    # The inner ones first, and what is further back first, so that places found before stay right.
    spans = sorted(((*seed_.span(text), seed_) for seed_ in seeds), key=lambda span: (span[1] - span[0], -span[0]))
    for at, (begin, end, seed_) in enumerate(spans):
        replacement = seed_.seeded(text[begin:end])
        text = text[:begin] + replacement + text[end:]
        grown = len(replacement) - (end - begin)
        for later in range(at + 1, len(spans)):
            other_begin, other_end, other = spans[later]
            if other_begin >= end:
                spans[later] = (other_begin + grown, other_end + grown, other)
            elif other_begin <= begin and other_end >= end:
                spans[later] = (other_begin, other_end + grown, other)
            elif other_end > begin:
                raise ListError(f"{seed_.title} and {other.title} overlap")
    return "".join(headers) + text
