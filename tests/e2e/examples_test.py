"""What is shown is what runs: every job file that is given as an example, the commands of README.md and of
scripts/quickstart.sh, and those of docs/ that need nothing but Sherd and openssl; word for word but for the number of
steps."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

from harness import BIN, JOB, LIMIT, EndToEnd
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text()
STEPS = 6
# What scripts/test.sh does by itself.
SCRIPTS = "scripts/quickstart.sh"


def fences(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def documented(page):
    return (ROOT / "docs" / page).read_text()


def merged(whole, part):
    """A job with the keys of a part of one."""
    if not isinstance(whole, dict) or not isinstance(part, dict):
        return part
    return {**whole, **{key: merged(whole.get(key), value) for key, value in part.items()}}


def shortened(text):
    """Fewer steps, wherever they are said."""
    for pattern, value in ((r"\bsteps: \d+", f"steps: {STEPS}"), (r"\bwarmup: \d+", "warmup: 2"),
                           (r"\btrain\.steps=\d+", f"train.steps={STEPS}"),
                           (r"\bcheckpoint\.every=\d+", f"checkpoint.every={STEPS // 2}")):
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
        [job] = fences(README, "yaml")
        (self.tree / "tiny.yaml").write_text(job)
        self.assertIn("peak", self.shell("sherd plan tiny.yaml --workers 4"))
        parts = 0
        for page in (ROOT / "docs").glob("*.md"):
            for part in map(yaml.safe_load, fences(page.read_text(), "yaml")):
                if "kind" in part:  # Kubernetes'
                    continue
                parts += 1
                whole = part if "name" in part else merged(yaml.safe_load(job), part)
                (self.tree / "part.yaml").write_text(yaml.safe_dump(whole))
                with self.subTest(page.name, part=part):
                    self.assertIn("peak", self.shell("sherd plan part.yaml --workers 4"))
        self.assertGreaterEqual(parts, 3)

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
        blocks = [block for block in fences(README, "sh") if SCRIPTS not in block]
        self.assertEqual(len(blocks), 2)
        said = [self.shell(block + "\nwait") for block in blocks]
        self.assertIn("predicted = measured to the byte on all 4 ranks", said[0])
        self.assertIn("fortunes-1", said[1])
        self.assertRegex(said[1], rf"step {STEPS}/{STEPS}\b")
        # The two that were started in the background were told to end, and did.
        self.assertEqual(len(re.findall(r"\bidle\b", said[1])), 4)

    def test_a_job_goes_on_from_the_checkpoint_of_another(self):
        [block] = fences(documented("job-file.md"), "sh")
        (self.tree / "text").write_text("what is shown is what runs\n" * 100)
        for name in "first", "second":
            (self.tree / f"{name}.yaml").write_text(
                JOB.format(name=name, text="text", steps=STEPS, strategy="zero3", workers=4, out=name))
        # The second one is told to take as many steps as the first one has taken: none is left.
        self.assertEqual(re.findall(r"^step \d+", self.shell(block), re.MULTILINE).count(f"step {STEPS}"), 1)

    def test_certificates_and_tokens_let_in_whom_they_name(self):
        page = documented("security.md")
        certificates, tokens = fences(page, "sh")
        *token, call = tokens.splitlines()
        host, port = re.search(r"--coordinator (\S+):(\d+)", call).groups()
        coordinator = (f"sherd-coordinator --listen {host}:{port} --data-dir state --tokens tokens --tls-ca ca.pem "
                       "--tls-certificate coordinator.pem --tls-key coordinator.key &")
        answers = f"until (: < /dev/tcp/{host}/{port}) 2>/dev/null; do sleep 0.02; done"
        script = [f"ip addr add {host}/32 dev lo", certificates, *token, coordinator, answers, call]
        self.assertIn("STATE", self.shell("\n".join([*script, "kill %1", "wait"])))
        # Another token is nobody's.
        others = ["openssl rand -hex 32 > anna.token", f"{call} || echo refused"]
        self.assertEqual(self.shell("\n".join([*script[:-1], *others, "kill %1", "wait"])), "refused\n")

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
