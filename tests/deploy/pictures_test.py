"""Pictures are whole, and show what they are given."""

import pathlib
import re
import sys
import unittest
import xml.dom.minidom

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import draw_pictures as pictures  # noqa: E402


class Pictures(unittest.TestCase):
    def test_ticks_are_round_and_reach_the_largest_value(self):
        for most, expected in ((5.5, [0, 2, 4, 6]), (400, [0, 100, 200, 300, 400, 500]),
                               (0.03, [0, 0.01, 0.02, 0.03, 0.04])):
            made = pictures.ticks(most)
            self.assertEqual([round(tick, 6) for tick in made], expected)
            self.assertGreaterEqual(made[-1], most)

    def test_every_step_and_every_kill_is_drawn(self):
        drawn = pictures.draw_loss([(1, 5.5), (400, 2.0)], [(2, 5.4), (3, 5.3), (399, 2.1)], [100, 200])
        document = xml.dom.minidom.parseString(drawn)
        self.assertEqual(len(document.getElementsByTagName("circle")), 3)
        kills = [each for each in document.getElementsByTagName("line") if each.getAttribute("stroke-dasharray")]
        self.assertEqual(len(kills), 2)
        for each in document.getElementsByTagName("circle"):
            self.assertTrue(pictures.LEFT <= float(each.getAttribute("cx")) <= pictures.WIDTH - pictures.RIGHT)
            self.assertTrue(pictures.TOP <= float(each.getAttribute("cy")) <= pictures.HEIGHT - pictures.BOTTOM)

    def test_bars_are_as_high_as_their_parts_together(self):
        drawn = pictures.draw_bars("a & b", "MiB", {"ddp": {"params": 4.0, "grads": 2.0}, "zero3": {"params": 1.0}},
                                   ("params", "grads"))
        document = xml.dom.minidom.parseString(drawn)
        heights = [float(each.getAttribute("height")) for each in document.getElementsByTagName("rect")
                   if each.getAttribute("fill") in pictures.COLORS and each.getAttribute("width") != "10"]
        unit = (pictures.HEIGHT - pictures.TOP - pictures.BOTTOM) / pictures.ticks(6.0)[-1]
        self.assertEqual([round(height / unit, 1) for height in heights if height], [4.0, 2.0, 1.0])

    def test_the_pictures_of_the_readme_are_there_and_whole(self):
        shown = re.findall(r"!\[.+?\]\((.+?)\)", (ROOT / "README.md").read_text())
        self.assertTrue(shown)
        for name in shown:
            xml.dom.minidom.parse(str(ROOT / name))


if __name__ == "__main__":
    unittest.main(verbosity=2)
