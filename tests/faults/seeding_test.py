#!/usr/bin/env python3
"""How faults and kill points are put into sources, and that the lists fit them."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests/faults"))
import seeding  # noqa: E402


def entry(number: int, right: str, wrong: str, more: str = "") -> str:
    return (f'[[fault]]\nnumber = {number}\nkind = "F1"\nwhat = "w"\nfile = "a.cc"\n'
            f"right = '{right}'\nwrong = '{wrong}'\ntest = \"a_test A.*\"\n{more}\n")


def seeded(text: str, *entries: str) -> str:
    return seeding.seed(text, seeding.parse("".join(entries))).removeprefix(seeding.HEADER)


class Seeding(unittest.TestCase):
    def test_an_expression_is_chosen_at_run_time(self):
        self.assertEqual(seeded("return a + b;", entry(1, "a + b", "a")),
                         "return (::sherd::SeededFault(1) ? (a) : (a + b));")

    def test_a_statement_is_chosen_at_run_time(self):
        self.assertEqual(seeded("f(); g();", entry(1, "g();", "", 'form = "statement"')),
                         "f(); { if (::sherd::SeededFault(1)) {\n\n} else {\ng();\n} }")

    def test_two_faults_may_be_of_the_same_code(self):
        self.assertEqual(seeded("x = a;", entry(1, "a", "b"), entry(2, "a", "c")),
                         "x = (::sherd::SeededFault(2) ? (c) : ((::sherd::SeededFault(1) ? (b) : (a))));")

    def test_a_fault_may_lie_inside_another(self):
        for order in ((0, 1), (1, 0)):
            whole = [("min(1, a + b)", "2"), ("a + b", "c")]
            entries = [entry(number + 1, *whole[at]) for number, at in enumerate(order)]
            outer, inner = order.index(0) + 1, order.index(1) + 1
            self.assertEqual(
                seeded("y; x = min(1, a + b); z;", *entries),
                f"y; x = (::sherd::SeededFault({outer}) ? (2) : "
                f"(min(1, (::sherd::SeededFault({inner}) ? (c) : (a + b))))); z;")

    def test_code_is_found_in_its_context(self):
        self.assertEqual(seeded("f(a); g(a);", entry(1, "a", "b", "within = 'g(a)'")),
                         "f(a); g((::sherd::SeededFault(1) ? (b) : (a)));")

    def test_faults_that_cross_are_refused(self):
        with self.assertRaisesRegex(seeding.ListError, "overlap"):
            seeded("a + b + c", entry(1, "a + b", "a"), entry(2, "b + c", "c"))

    def test_code_that_is_not_there_exactly_once_is_refused(self):
        for text in ("b", "a a"):
            with self.assertRaisesRegex(seeding.ListError, "fault 1: a.cc has"):
                seeded(text, entry(1, "a", "c"))

    def test_code_that_begins_or_ends_inside_a_name_is_refused(self):
        for text in ("x.a + b", "p->a + b", "n::a + b", "ba + b", "a + b2"):
            with self.assertRaisesRegex(seeding.ListError, "inside a name"):
                seeded(text, entry(1, "a + b", "c"))

    def test_numbers_follow_one_another(self):
        with self.assertRaisesRegex(seeding.ListError, "numbered"):
            seeding.parse(entry(1, "a", "b") + entry(3, "b", "c"))

    def test_a_kill_point_lies_before_or_after_its_code(self):
        def seeded_point(*lines):
            [point] = seeding.parse_kill_points("\n".join(["[[point]]", 'name = "p"', 'what = "w"', 'file = "a.cc"', *lines]))
            return seeding.seed("f(); g();", [point]).removeprefix(seeding.KILL_POINT_HEADER)

        point = '{ static ::sherd::KillPoint kill_point("p"); if (true) kill_point.Pass(); }'
        self.assertEqual(seeded_point("before = 'g();'"), f"f(); {point}\ng();")
        self.assertEqual(seeded_point("after = 'f();'"), f"f();\n{point} g();")
        self.assertEqual(seeded_point("after = 'f();'", "when = 'a > 1'"), f"f();\n{point.replace('true', 'a > 1')} g();")
        for lines in ((), ("after = 'f();'", "before = 'g();'")):
            with self.assertRaisesRegex(seeding.ListError, "either"):
                seeded_point(*lines)

    def test_the_lists_fit_the_sources(self):
        seeds = seeding.parse((ROOT / "tests/faults/faults.toml").read_text())
        seeds += seeding.parse_kill_points((ROOT / "tests/faults/kill_points.toml").read_text())
        for name, of_file in seeding.by_file(seeds).items():
            seeding.seed((ROOT / name).read_text(), of_file)

    def test_unknown_and_missing_keys_are_refused(self):
        for text in (entry(1, "a", "b", 'color = "red"'), entry(1, "a", "b").replace('what = "w"\n', "")):
            with self.assertRaisesRegex(seeding.ListError, "well formed"):
                seeding.parse(text)


if __name__ == "__main__":
    unittest.main()
