"""`sherd run`: one command, its output, its exit codes, and nothing left behind."""

import json
import os
import pty
import re
import signal
import struct
import subprocess
import unittest

from harness import BIN, EndToEnd
from token_files import llmc, megatron_index

LONG = 1000000


class Run(EndToEnd):
    def job(self, name="job", out="weights", **options):
        # `sherd run` lets workers write below --out alone.
        return super().job(name, out=out, **options)

    def run_command(self, *arguments):
        return [str(BIN / "sherd"), "run", *map(str, arguments)]

    def launch(self, *arguments, out=None, **options):
        environment = {**os.environ, "TMPDIR": str(self.scratch)}
        command = self.run_command(*arguments, "--out", out or self.scratch / "out")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, **options)
        self.stack.callback(self.stop, process, signal.SIGKILL)
        return process

    def run_job(self, *arguments, **options):
        process = self.launch(*arguments, **options)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def test_json_lines_tell_the_whole_story(self):
        code, out, err = self.run_job(self.job(steps=30), "--workers", 2, "-o", "json",
                                      "--set", f"data.eval=[{self.text}]")
        self.assertEqual(code, 0, err)
        events = [json.loads(line) for line in out.splitlines()]
        steps = [event for event in events if event["event"] == "step"]
        self.assertEqual([step["step"] for step in steps], list(range(1, 31)))
        self.assertLess(steps[-1]["loss"], steps[0]["loss"])
        self.assertEqual(steps[0]["tokens"], 4 * 32)
        self.assertEqual(len([event for event in events if event["event"] == "eval"]), 1)
        for rank in (0, 1):
            ledger = [event for event in events if event["event"] == "ledger" and event["rank"] == rank][-1]
            for pool in ("params", "grads", "optimizer", "gathered", "activations", "peak"):
                line = ledger["memory"][pool]
                self.assertEqual(line["predicted"], line["measured"], pool)
                self.assertGreater(line["measured"], 0, pool)
            for op in ("all_gather", "reduce_scatter", "total"):
                line = ledger["wire"][op]
                self.assertEqual(line["predicted"], line["measured"], op)
        self.assertEqual(events[-1]["event"], "done")
        self.assertEqual(events[-1]["state"], "SUCCEEDED")
        self.assertEqual(events[-1]["steps"], 30)

    def test_loss_curves_of_strategies_and_worlds_are_the_same_text(self):  # F1
        curves = set()
        for workers, strategy in ((1, "ddp"), (2, "zero3"), (2, "zero1"), (4, "zero2"), (4, "ddp"), (4, "zero3")):
            code, out, err = self.run_job(self.job(steps=10, workers=workers, strategy=strategy),
                                          "--workers", workers, "-o", "json")
            self.assertEqual(code, 0, err)
            self.assertNotRegex(out + err, r"\b1 (rank|round|thread|worker)s\b")
            steps = [json.loads(line) for line in out.splitlines() if '"event":"step"' in line]
            curves.add(json.dumps([(step["loss"], step["grad_norm"]) for step in steps]))
        self.assertEqual(len(curves), 1)

    def write_in_every_format(self):
        """The text in parts, as files of each format; their patterns by format."""
        text = self.text.read_bytes()
        parts = {"1": text[:3333], "2": text[3333:]}
        for name, part in parts.items():
            stem = self.scratch / f"part{name}"
            count = len(part)
            stem.with_suffix(".txt").write_bytes(part)
            stem.with_suffix(".jsonl").write_text("".join(json.dumps({"n": i, "text": part[i:i + 100].decode()}) + "\n"
                                                          for i in range(0, count, 100)))
            stem.with_suffix(".u16").write_bytes(struct.pack(f"<{count}H", *part))
            stem.with_suffix(".llmc").write_bytes(llmc(part))
            stem.with_suffix(".llmc32").write_bytes(llmc(part, 20240801, 7, "I"))
            stem.with_suffix(".bin").write_bytes(struct.pack(f"<{count}i", *part))
            stem.with_suffix(".idx").write_bytes(megatron_index([1000, 0, 2, count - 1002], 4, 4))
        return {"text": "part*.txt", "jsonl": "part*.jsonl", "tokens_u16": "part*.u16", "llmc": "part?.llmc*",
                "megatron": "part*"}

    def test_the_same_tokens_in_every_format_give_the_same_text(self):
        patterns = self.write_in_every_format()
        # One part of each width, which one pattern matches.
        (self.scratch / "part1.llmc").unlink()
        (self.scratch / "part2.llmc32").unlink()
        curves = set()
        for name, pattern in [("text", self.text.name), *patterns.items()]:
            code, out, err = self.run_job(self.job(steps=8, text=f"'{pattern}'"), "--workers", 2, "-o", "json",
                                          "--data-root", self.scratch, "--set", f"data.format={name}",
                                          "--set", f"data.eval=['{pattern}']", out=self.scratch / "out" / name)
            self.assertEqual(code, 0, err)
            events = [json.loads(line) for line in out.splitlines()]
            steps = [(event["loss"], event["grad_norm"]) for event in events if event["event"] == "step"]
            evals = [event["loss"] for event in events if event["event"] == "eval"]
            self.assertEqual((len(steps), len(evals)), (8, 1))
            curves.add(json.dumps([steps, evals]))
        self.assertEqual(len(curves), 1)

    def test_data_info_and_head_show_what_files_hold(self):
        patterns = self.write_in_every_format()
        checksums = set()
        for name, pattern in patterns.items():
            first = self.scratch / pattern.replace("*", "", 1).replace("?", "1").replace("part", "part1")
            first = {"llmc": self.scratch / "part1.llmc", "megatron": self.scratch / "part1"}.get(name, first)
            told = json.loads(self.sherd("data", "info", first, "--format", name, "--checksum", "-o", "json",
                                         check=0).stdout)[0]
            self.assertEqual((told["format"], told["tokens"]), (name, 3333), told)
            self.assertEqual((told["min"], told["max"]), (ord("\n"), ord("y")))
            checksums.add(told["checksum"])
            head = self.sherd("data", "head", first, "--format", name, "--tokens", 3, check=0).stdout
            self.assertEqual(head.splitlines()[0], "116 104 101")
        self.assertEqual(len(checksums), 1)
        self.assertEqual(told["documents"], 4)
        self.assertIn("FORMAT", self.sherd("data", "info", self.text, check=0).stdout)
        self.assertEqual(self.sherd("data", "info", self.scratch / "none").returncode, 1)

    def test_tensor_parallel_ranks_train_one_model_and_leave_it_whole(self):  # F2, F41, F59
        # A vocabulary that the degree does not divide; all strategies have the same bits at equal degrees.
        settings = ("--workers", 4, "-o", "json", "--set", "parallel.tensor=2", "--set", "model.vocab=259")
        curves, weights = set(), None
        for strategy in ("zero3", "ddp"):
            code, out, err = self.run_job(self.job(steps=10, workers=4, strategy=strategy), *settings,
                                          "--set", "parallel.sequence_parallel=true", out=self.scratch / strategy)
            self.assertEqual(code, 0, err)
            events = [json.loads(line) for line in out.splitlines()]
            curves.add(json.dumps([(step["loss"], step["grad_norm"]) for step in events if step["event"] == "step"]))
            ledgers = [event for event in events if event["event"] == "ledger"]
            self.assertEqual({ledger["rank"] for ledger in ledgers}, {0, 1, 2, 3})
            for ledger in ledgers:
                for lines in (ledger["memory"], ledger["wire"], ledger["wire_by_group"]):
                    for name, line in lines.items():
                        self.assertEqual(line["predicted"], line["measured"], f"{strategy} {name}")
                self.assertGreater(ledger["wire_by_group"]["tensor"]["measured"], 0)
            weights = self.scratch / strategy / "weights"
        self.assertEqual(len(curves), 1)
        sample = self.sherd("sample", weights, "--prompt", "the ", "--tokens", 20, "--seed", 3, check=0).stdout
        self.assertGreaterEqual(len(sample.encode()), 20)

    def test_degrees_that_do_not_fit_are_refused_with_those_that_do(self):
        for settings, workers, said in (
                (("parallel.tensor=3",), 3, "the nearest that does is 2"),
                (("parallel.tensor=2",), 3, "2 and 4"),
                (("parallel.sequence_parallel=true",), 2, "parallel.sequence_parallel")):
            words = [word for setting in settings for word in ("--set", setting)]
            code, out, err = self.run_job(self.job(workers=workers), "--workers", workers, *words)
            self.assertEqual(code, 2, err)
            self.assertIn(said, err)

    def test_memory_falls_from_stage_to_stage_as_the_operating_system_counts_it(self):  # F16, F17
        # States dominate: 38M parameters, a handful of tokens. What no ledger has, 6 to 9 MB a process of kernels
        # compiled at run time and their scratch, stacks, libraries' own, is below the 5 %.
        settings = ("--workers", 4, "-o", "json", "--set", "model.hidden=1024", "--set", "model.layers=3",
                    "--set", "model.heads=8")
        heaviest = {}
        for strategy in ("ddp", "zero1", "zero2", "zero3"):
            code, out, err = self.run_job(self.job(steps=2, workers=4, strategy=strategy), *settings,
                                          out=self.scratch / strategy)
            self.assertEqual(code, 0, err)
            ledgers = [json.loads(line) for line in out.splitlines() if '"event":"ledger"' in line]
            self.assertEqual({ledger["rank"] for ledger in ledgers}, {0, 1, 2, 3})
            for ledger in ledgers:
                peak = ledger["memory"]["peak"]["predicted"]
                process = ledger["process_bytes"]
                self.assertLess(abs(process - peak), 0.05 * peak, f"{strategy} rank {ledger['rank']}")
            heaviest[strategy] = max(ledger["process_bytes"] for ledger in ledgers)
        ordered = list(heaviest.values())
        self.assertEqual(ordered, sorted(ordered, reverse=True), heaviest)
        parameters, saved = 38_000_000, heaviest["ddp"] - heaviest["zero3"]
        # 16N against 4N, less the units that are gathered and reduced.
        self.assertGreater(saved, 8 * parameters, heaviest)

    def test_memory_of_tensor_parallel_ranks_is_as_predicted(self):  # F16
        code, out, err = self.run_job(self.job(steps=2, workers=4, strategy="zero2"), "--workers", 4, "-o", "json",
                                      "--set", "model.hidden=1024", "--set", "model.layers=3", "--set", "model.heads=8",
                                      "--set", "parallel.tensor=2", "--set", "parallel.sequence_parallel=true")
        self.assertEqual(code, 0, err)
        ledgers = [json.loads(line) for line in out.splitlines() if '"event":"ledger"' in line]
        self.assertEqual({ledger["rank"] for ledger in ledgers}, {0, 1, 2, 3})
        for ledger in ledgers:
            peak = ledger["memory"]["peak"]["predicted"]
            self.assertLess(abs(ledger["process_bytes"] - peak), 0.05 * peak, ledger)

    def test_kernels_of_every_thread_are_in_the_ledger(self):  # F16
        # Where kernels have most to do: each of the threads widens weights and rounds gradients in scratch of its own.
        # Not in the ledger: the compiler's workspace and the code that it makes, below 5 MB a process.
        self.start_coordinator()
        self.start_workers(2, "--threads", 2)
        self.wait_for_workers(2)
        shape = ("model.hidden=768", "model.layers=2", "model.heads=12", "model.context=256", "train.seq_len=256",
                 "train.micro_batch=4", "train.global_batch=8")
        overrides = [word for setting in shape for word in ("--set", setting)]
        job = self.submit(self.job(steps=2, out=self.scratch / "weights"), *overrides)
        out = self.sherd("watch", job, "-o", "json", check=0).stdout
        ledgers = [json.loads(line) for line in out.splitlines() if '"event":"ledger"' in line]
        self.assertEqual({ledger["rank"] for ledger in ledgers}, {0, 1})
        for ledger in ledgers:
            scratch = ledger["memory"]["scratch"]
            self.assertEqual(scratch["predicted"], scratch["measured"])
            # Twice 384 × 2048 floats of weights, 528 × 768 of gradients.
            self.assertGreater(scratch["measured"], 2 * 4 * (384 * 2048 + 528 * 768))
            peak = ledger["memory"]["peak"]["predicted"]
            self.assertLess(abs(ledger["process_bytes"] - peak), 0.05 * peak, ledger)

    def test_plain_output_ends_with_tables_and_the_way_to_a_sample(self):
        code, out, err = self.run_job(self.job(steps=5), "--workers", 2)
        self.assertEqual(code, 0, err)
        for word in ("params", "optimizer", "all_gather", "reduce_scatter", "sherd sample"):
            self.assertIn(word, out)
        weights = re.search(r"sample (\S+)", out).group(1)
        sample = self.sherd("sample", weights, "--prompt", "the ", "--tokens", 20, "--seed", 3, check=0).stdout
        self.assertGreaterEqual(len(sample.encode()), 20)
        again = self.sherd("sample", weights, "--prompt", "the ", "--tokens", 20, "--seed", 3, check=0).stdout
        self.assertEqual(sample, again)

    def test_a_terminal_gets_a_progress_bar(self):
        primary, secondary = pty.openpty()
        process = subprocess.Popen(self.run_command(self.job(steps=20), "--workers", 2, "--out", self.scratch / "out"),
                                   stdin=secondary,
                                   stdout=secondary, stderr=secondary,
                                   env={**os.environ, "TMPDIR": str(self.scratch), "TERM": "xterm"})
        os.close(secondary)
        shown = b""
        while True:
            try:
                chunk = os.read(primary, 65536)
            except OSError:
                break
            if not chunk:
                break
            shown += chunk
        os.close(primary)
        self.assertEqual(process.wait(30), 0)
        self.assertIn(b"\r", shown)
        for word in (b"loss", b"tok", b"ETA"):
            self.assertIn(word, shown)

    def test_an_interrupt_cancels_and_a_second_one_quits(self):
        process = self.launch(self.job(steps=LONG), "--workers", 2, "-o", "json")
        for line in process.stdout:
            if '"event":"step"' in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 103, err)
        self.assertIn("CANCELLED", out)
        self.assert_no_processes()

        process = self.launch(self.job(steps=LONG), "--workers", 2, "-o", "json")
        for line in process.stdout:
            if '"event":"step"' in line:
                break
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
        self.assertNotEqual(process.returncode, 0)
        self.assert_no_processes()

    def test_a_second_run_in_the_same_directory_is_refused(self):
        first = self.launch(self.job(steps=LONG, workers=1), "--workers", 1, "-o", "json")
        for line in first.stdout:
            if '"event":"step"' in line:
                break
        code, out, err = self.run_job(self.job(name="second", steps=3, workers=1), "--workers", 1)
        self.assertEqual(code, 1, err)
        self.assertEqual(out, "")
        self.assertEqual(len(err.strip().splitlines()), 1, err)
        self.assertIn("--out", err)
        self.assertIsNone(first.poll())
        # The lock goes with its holder, however that ends.
        first.kill()
        first.communicate(timeout=10)
        self.assert_no_processes()
        code, _, err = self.run_job(self.job(name="third", steps=3, workers=1), "--workers", 1)
        self.assertEqual(code, 0, err)

    def test_nothing_outlives_a_killed_run(self):  # F36
        before = set(os.listdir("/dev/shm"))
        process = self.launch(self.job(steps=LONG), "--workers", 2, "-o", "json")
        for line in process.stdout:
            if '"event":"step"' in line:
                break
        process.kill()
        process.communicate(timeout=10)
        self.assert_no_processes()
        self.assertEqual(set(os.listdir("/dev/shm")) - before, set())

    def test_a_run_goes_on_from_the_checkpoint_of_another_one(self):  # docs/job-file.md
        def steps(name, steps, out, *settings):
            words = [word for setting in settings for word in ("--set", setting)]
            code, told, err = self.run_job(self.job(name, steps=steps), "--workers", 2, "-o", "json", *words, out=out)
            self.assertEqual(code, 0, err)
            return [event["step"] for event in map(json.loads, told.splitlines()) if event["event"] == "step"]

        out = self.scratch / "out"
        # Both below one --out; one save each, which its job waits for.
        self.assertEqual(steps("first", 5, out, "checkpoint.dir=first", "checkpoint.every=3"), [1, 2, 3, 4, 5])
        self.assertEqual(steps("second", 8, out, "checkpoint.dir=second", "checkpoint.resume=first"), [4, 5, 6, 7, 8])
        self.assertTrue((out / "second/final/manifest.json").exists())
        # Of a run with an --out of its own, that is there already.
        given = self.scratch / "given"
        self.assertEqual(steps("given", 5, given, "checkpoint.every=3"), [1, 2, 3, 4, 5])
        self.assertEqual(steps("third", 6, given, "checkpoint.dir=second", "checkpoint.resume=weights"), [4, 5, 6])

    def test_only_what_was_asked_for_is_left(self):
        before = set(os.listdir("/dev/shm"))
        code, _, err = self.run_job(self.job(steps=3), "--workers", 2)
        self.assertEqual(code, 0, err)
        left = {entry.name for entry in self.scratch.iterdir()}
        self.assertEqual(left, {"text.txt", "job.yaml", "out"})
        self.assertEqual({entry.name for entry in (self.scratch / "out").iterdir()}, {"logs", "weights"})
        self.assertEqual(set(os.listdir("/dev/shm")) - before, set())

    def test_a_killed_worker_is_a_line_in_the_runs_story(self):
        process = self.launch(self.job(steps=600), "--workers", 2, "-o", "json")
        for line in process.stdout:
            if '"event":"step"' in line:
                break
        worker = next(pid for pid, command in self.ours() if "--device cpu:1" in command)
        os.kill(worker, signal.SIGKILL)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        events = [json.loads(line) for line in out.splitlines()]
        reasons = [event["reason"] for event in events if event["event"] == "epoch"]
        self.assertIn("SIGKILL", reasons[-1])
        steps = [event["step"] for event in events if event["event"] == "step"]
        self.assertEqual(steps, list(range(2, 601)))

    def test_a_disk_that_is_full_at_the_end_is_said_and_waited_for(self):  # F45
        if os.geteuid() != 0:
            self.skipTest("mounting a small file system needs root")
        small = self.scratch / "small"
        small.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)],
                                 capture_output=True, text=True)
        if mounted.returncode != 0:
            self.skipTest(f"cannot mount a small file system here: {mounted.stderr.strip()}")
        self.stack.callback(subprocess.run, ["umount", "-l", str(small)])
        process = self.launch(self.job(steps=3), "--workers", 2, "-o", "json", out=small)
        warning = next(event for event in map(json.loads, process.stdout) if event["event"] == "warning")
        self.assertEqual(warning["kind"], "disk")
        self.assertRegex(warning["text"], r"(?i)no space left.* need \d+ bytes there and \d+ bytes are free")
        subprocess.run(["mount", "-o", "remount,size=16m", str(small)], check=True)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        self.assertFalse([line for line in out.splitlines() if json.loads(line)["event"] == "epoch"])
        self.assertTrue((small / "weights" / "final" / "manifest.json").exists())
        self.assertEqual(list(small.rglob("*.partial")), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
