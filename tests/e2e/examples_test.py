"""What is shown is what runs: every job file that is given as an example, and the commands of README.md and of
scripts/quickstart.sh, word for word but for the number of steps."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

from harness import BIN, LIMIT, EndToEnd

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text()
STEPS = 6
# What scripts/test.sh does by itself.
SCRIPTS = "scripts/quickstart.sh"


def fences(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def shortened(text):
    """Fewer steps, wherever they are said."""
    for pattern, value in ((r"\bsteps: \d+", f"steps: {STEPS}"), (r"\bwarmup: \d+", "warmup: 2"),
                           (r"\btrain\.steps=\d+", f"train.steps={STEPS}")):
        text = re.sub(pattern, value, text)
    return text


class Examples(EndToEnd):
    def setUp(self):
        super().setUp()
        # The repository as it is after a build, with examples that take seconds.
        self.tree = self.scratch / "tree"
        (self.tree / "build/release").mkdir(parents=True)
        (self.tree / "build/release/bin").symlink_to(BIN)
        (self.tree / "proto").symlink_to(ROOT / "proto")
        shutil.copytree(ROOT / "examples", self.tree / "examples")
        for path in (self.tree / "examples").glob("*.yaml"):
            path.write_text(shortened(path.read_text()))

    def shell(self, script, check=True):
        """What bash says, in a network of its own, whose ports are all free, and with job control."""
        script = "ip link set lo up\nset -m\n" + shortened(script)
        done = subprocess.run(
            ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
             "bash", "-e", "-c", script], cwd=self.tree, capture_output=True, text=True, stdin=subprocess.DEVNULL,
            errors="replace",  # a model that has seen little says any byte
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}, timeout=3 * LIMIT)
        if check:
            self.assertEqual(done.returncode, 0, f"{script}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_every_job_file_can_be_planned(self):
        files = [*sorted((ROOT / "examples").glob("*.yaml")), ROOT / "deploy/kubernetes/jobset/job.yaml"]
        for path in files:
            with self.subTest(path.name):
                self.assertIn("peak", self.shell(f"sherd plan {path} --workers 4"))
        [job] = fences("yaml")
        (self.tree / "tiny.yaml").write_text(job)
        self.assertIn("peak", self.shell("sherd plan tiny.yaml --workers 4"))

    def test_the_table_of_strategies_is_what_the_command_prints(self):
        command = re.search(r"`(sherd plan --compare --params [^`]+)`:\n\n```\n(.*?)```", README, re.DOTALL)
        self.assertEqual(self.shell(command.group(1)), command.group(2))

    def test_commands_within_sentences_run(self):
        commands = re.findall(r"`(sherd (?:plan|run) [^`]*--workers[^`]*)`", README)
        self.assertGreaterEqual(len(commands), 3)
        for command in commands:
            with self.subTest(command):
                given = re.sub(r"\bJOB\.yaml", "examples/fortunes.yaml", re.sub(r"--workers N\b", "--workers 4", command))
                said = self.shell(given)
                if given.startswith("sherd run examples"):
                    self.assertIn("predicted = measured to the byte on all 4 ranks", said)

    def test_every_block_of_commands_runs(self):
        blocks = [block for block in fences("sh") if SCRIPTS not in block]
        self.assertEqual(len(blocks), 2)
        said = [self.shell(block + "\nwait") for block in blocks]
        self.assertIn("predicted = measured to the byte on all 4 ranks", said[0])
        self.assertIn("fortunes-1", said[1])
        self.assertRegex(said[1], rf"step {STEPS}/{STEPS}\b")
        # The two that were started in the background were told to end, and did.
        self.assertEqual(len(re.findall(r"\bidle\b", said[1])), 4)

    def test_the_quickstart_trains_and_samples(self):
        script = (ROOT / SCRIPTS).read_text()
        commands = re.findall(r"^build/release/bin/sherd .+$", script, re.MULTILINE)
        self.assertEqual(len(commands), 2)
        said = self.shell("\n".join(commands))
        self.assertIn("predicted = measured to the byte on all 4 ranks", said)
        self.assertRegex(said, r"(?s)\nThe .{100}")
        # And what it says to do next.
        run, plan = re.findall(r"^ +build/release/bin/sherd run .+$", script, re.MULTILINE), "parallel.strategy=ddp"
        self.assertTrue(len(run) == 1 and plan in run[0], run)
        self.assertIn("predicted = measured to the byte on all 2 ranks", self.shell(run[0].strip()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
