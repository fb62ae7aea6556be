"""Reads the list of deliberate faults and puts them into sources, each behind a question asked at run time."""

import collections
import dataclasses
import re
import tomllib

HEADER = '#include "tests/faults/seeded_fault.h"\n'
FORMS = ("expression", "statement")


class ListError(Exception):
    """The list of faults does not fit the sources, or is not well formed."""


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

    def span(self, text: str) -> tuple[int, int]:
        """Where the right code is in the source. It must be there exactly once, so that the list stays true."""
        context = self.right if self.within is None else self.within
        for searched, snippet, place in ((text, context, self.file), (context, self.right, "`within`")):
            if searched.count(snippet) != 1:
                raise ListError(
                    f"fault {self.number}: {place} has {searched.count(snippet)} times, not once:\n{snippet}")
        begin = text.index(context) + context.index(self.right)
        end = begin + len(self.right)
        if re.search(r"(\w|\.|->|::)$", text[:begin]) and re.match(r"\w", self.right) or (
                re.search(r"\w$", self.right) and re.match(r"\w", text[end:])):
            raise ListError(f"fault {self.number}: begins or ends inside a name:\n{self.right}")
        return begin, end

    def seeded(self, right: str) -> str:
        question = f"::sherd::SeededFault({self.number})"
        if self.form == "expression":
            return f"({question} ? ({self.wrong}) : ({right}))"
        return f"{{ if ({question}) {{\n{self.wrong}\n}} else {{\n{right}\n}} }}"


def parse(text: str) -> list[Fault]:
    faults = []
    for entry in tomllib.loads(text)["fault"]:
        tests = entry.pop("test")
        entry["tests"] = [test.split(" ", 1) for test in ([tests] if isinstance(tests, str) else tests)]
        try:
            fault = Fault(**{key: value.strip("\n") if isinstance(value, str) else value
                             for key, value in entry.items()})
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


def by_file(faults: list[Fault]) -> dict[str, list[Fault]]:
    files = collections.defaultdict(list)
    for fault in faults:
        files[fault.file].append(fault)
    return files


def seed(text: str, faults: list[Fault]) -> str:
    """The source with its faults. One fault's code may lie inside another's, or be the same: either can be chosen."""
    # The inner ones first, and what is further back first, so that places found before stay right.
    spans = sorted(((*fault.span(text), fault) for fault in faults), key=lambda span: (span[1] - span[0], -span[0]))
    for at, (begin, end, fault) in enumerate(spans):
        replacement = fault.seeded(text[begin:end])
        text = text[:begin] + replacement + text[end:]
        grown = len(replacement) - (end - begin)
        for later in range(at + 1, len(spans)):
            other_begin, other_end, other = spans[later]
            if other_begin >= end:
                spans[later] = (other_begin + grown, other_end + grown, other)
            elif other_begin <= begin and other_end >= end:
                spans[later] = (other_begin, other_end + grown, other)
            elif other_end > begin:
                raise ListError(f"faults {fault.number} and {other.number} overlap")
    return HEADER + text
