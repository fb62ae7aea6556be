"""What jobs train on, by `sherd run`: tokenizers, mixtures, prompts; `sherd eval`; the files with a job's figures."""

import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import threading
import unittest

import event_file
from harness import BIN, EndToEnd

TOKENIZER = pathlib.Path(__file__).resolve().parent.parent / "golden/tokenizer/gpt2.json"
VOCAB = 2000


class Data(EndToEnd):
    def setUp(self):
        super().setUp()
        self.tokenizer = self.scratch / "tokenizer.json"
        shutil.copy(TOKENIZER, self.tokenizer)

    def run_command(self, *settings, workers=2, out="out", steps=6):
        job = self.job(steps=steps, workers=workers, out="weights")
        sets = [part for setting in settings for part in ("--set", setting)]
        return [str(BIN / "sherd"), "run", str(job), "--workers", str(workers), "--out", str(self.scratch / out), "-o",
                "json", *sets]

    def run_job(self, *settings, code=0, **options):
        result = subprocess.run(self.run_command(*settings, **options), capture_output=True, text=True, timeout=120,
                                stdin=subprocess.DEVNULL)
        self.assertEqual(result.returncode, code, result.stderr + result.stdout)
        return [json.loads(line) for line in result.stdout.splitlines()], result.stderr

    def curve(self, events):
        return [(event["loss"], event["grad_norm"], event["tokens"]) for event in events if event["event"] == "step"]

    def of(self, events, name):
        return [event for event in events if event["event"] == name]

    def weights(self, out="out"):
        return self.scratch / out / "weights"

    def test_a_tokenizer_goes_from_text_to_samples(self):
        settings = [f"data.tokenizer={self.tokenizer}", f"model.vocab={VOCAB}", f"data.eval=[{self.text}]"]
        one, _ = self.run_job(*settings, workers=1, out="one")
        three, _ = self.run_job(*settings, workers=3, out="three")
        self.assertEqual(self.curve(one), self.curve(three))
        self.assertEqual(len(self.curve(one)), 6)
        # The weights know what their tokens mean.
        text = self.sherd("sample", self.weights("one"), "--prompt", "the shard", "--tokens", 5, "--temperature", 0,
                          check=0).stdout
        self.assertTrue(text.startswith("the shard"))
        self.tokenizer.rename(self.scratch / "moved.json")
        missing = self.sherd("sample", self.weights("one"), check=2)
        self.assertIn("tokenizer.json", missing.stderr)
        self.assertIn("--tokenizer", missing.stderr)
        again = self.sherd("sample", self.weights("one"), "--prompt", "the shard", "--tokens", 5, "--temperature", 0,
                           "--tokenizer", self.scratch / "moved.json", check=0)
        self.assertEqual(again.stdout, text)

    def test_a_tokenizer_that_does_not_fit_is_refused_at_its_line(self):
        _, err = self.run_job(f"data.tokenizer={self.tokenizer}", code=2)
        self.assertIn("data.tokenizer: ", err)
        self.assertIn("model.vocab is 256", err)
        _, err = self.run_job(f"data.tokenizer={self.scratch}/none.json", code=2)
        self.assertIn("none.json", err)
        self.assertFalse((self.scratch / "out").exists())

    def test_mixtures_and_what_is_held_out_depend_on_no_world(self):
        other = self.scratch / "other.txt"
        other.write_text("then the model was gathered, and a rank kept it.\n" * 50)
        settings = [f"data.train=[{{path: {self.text}, weight: 2.5}}, {{path: {other}, weight: 1}}]",
                    "data.validation_split=0.1"]
        one, _ = self.run_job(*settings, workers=1, out="one")
        three, _ = self.run_job(*settings, workers=3, out="three")
        self.assertEqual(self.curve(one), self.curve(three))
        held_out = self.of(one, "eval")
        self.assertEqual(len(held_out), 1)
        self.assertGreater(held_out[0]["tokens"], 32 * 30)
        self.assertEqual(held_out[0]["loss"], self.of(three, "eval")[0]["loss"])
        _, err = self.run_job(f"data.train=[{{path: {self.text}, weight: 0}}]", code=2)
        self.assertIn("a weight above 0", err)

    def test_only_completions_count(self):
        prompts = self.scratch / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": "p" * (i % 31), "completion": "c" * (i % 5)}) + "\n"
                                   for i in range(100)))
        settings = [f"data.train=[{prompts}]", "data.format=prompt_completion", f"data.eval=[{prompts}]"]
        one, _ = self.run_job(*settings, workers=1, out="one")
        three, _ = self.run_job(*settings, workers=3, out="three")
        self.assertEqual(self.curve(one), self.curve(three))
        for step in self.of(one, "step"):
            self.assertLess(step["tokens"], 4 * 6)
        # Line i, of i % 31 and i % 5 letters and an end, in 32 places.
        counted = sum(max(0, min(i % 31 + i % 5, 32) - max(i % 31 - 1, 0)) for i in range(100))
        self.assertEqual(self.of(one, "eval")[0]["tokens"], counted)
        answer = self.sherd("eval", self.weights("one"), prompts, "--format", "prompt_completion", "-o", "json", check=0)
        self.assertEqual(json.loads(answer.stdout)["tokens"], counted)

    def test_eval_gives_the_same_bits_with_any_workers(self):
        events, _ = self.run_job(f"data.eval=[{self.text}]")
        answers = {self.sherd("eval", self.weights(), self.text, "--workers", workers, "-o", "json", check=0).stdout
                   for workers in (1, 2, 3)}
        self.assertEqual(len(answers), 1)
        answer = json.loads(answers.pop())
        in_training = self.of(events, "eval")[0]
        self.assertEqual(answer["tokens"], in_training["tokens"])
        self.assertEqual(answer["step"], 6)
        # The job's parameters were in bf16.
        self.assertAlmostEqual(answer["loss"], in_training["loss"], delta=0.02)
        self.assertEqual(answer["bytes"], answer["tokens"])
        table = self.sherd("eval", self.weights(), self.text, check=0).stdout
        self.assertIn(f"{answer['loss']:.4f} nats a token", table)
        self.assertIn("bits a byte", table)
        wrong = self.sherd("eval", self.weights(), self.scratch / "none.txt")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("none.txt", wrong.stderr)

    def written(self, out="out"):
        """The lines of metrics.jsonl, and what the event file holds, by step and tag."""
        lines = [json.loads(line) for line in (self.weights(out) / "metrics.jsonl").read_text().splitlines()]
        return lines, list(event_file.scalars(self.weights(out) / "events.out.tfevents.sherd"))

    def expect_written(self, events, out="out"):
        lines, points = self.written(out)
        steps, evals = self.of(events, "step"), self.of(events, "eval")
        told = [line for line in lines if line["event"] == "step"]
        self.assertEqual([(line["step"], line["loss"], line["grad_norm"], line["lr"], line["tokens"]) for line in told],
                         [(step["step"], step["loss"], step["grad_norm"], step["lr"], step["tokens"]) for step in steps])
        self.assertEqual([(line["step"], line["loss"]) for line in lines if line["event"] == "eval"],
                         [(event["step"], event["loss"]) for event in evals])

        def single(value):
            return struct.unpack("<f", struct.pack("<f", value))[0]

        for tag, expected in (("train/loss", steps), ("eval/loss", evals)):
            self.assertEqual([(step, value) for step, name, value in points if name == tag],
                             [(event["step"], single(event["loss"])) for event in expected])
        self.assertEqual({name for _, name, _ in points},
                         {"train/loss", "train/grad_norm", "train/lr", "train/tokens_per_second", "train/step_ms"} |
                         ({"eval/loss"} if evals else set()))

    def test_figures_are_written_beside_the_weights(self):
        events, _ = self.run_job(f"data.eval=[{self.text}]", "train.eval_every=2", "checkpoint.every=4")
        self.expect_written(events)
        # A job that goes on goes on in the same files.
        more, _ = self.run_job(f"data.eval=[{self.text}]", "train.eval_every=2", "checkpoint.every=4",
                               "checkpoint.resume=latest", steps=10)
        first = [event for event in events if event["event"] in ("step", "eval") and event["step"] <= 4]
        # Its feed begins with an evaluation of where it goes on, which the files have already.
        self.assertEqual(self.of(more, "eval")[0]["loss"], self.of(first, "eval")[-1]["loss"])
        self.expect_written(first + [event for event in more if event.get("step", 0) > 4])

    def test_figures_are_written_once_whoever_dies(self):  # F24, F48
        steps = 1200
        process = subprocess.Popen(self.run_command(f"data.eval=[{self.text}]", "train.eval_every=100",
                                                    "elastic.min_workers=2", "elastic.max_workers=2", workers=3,
                                                    steps=steps),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.stack.callback(self.stop, process, signal.SIGKILL)
        self.stack.callback(process.stdout.close)
        watchdog = threading.Timer(120, process.kill)
        watchdog.start()
        self.stack.callback(watchdog.cancel)
        # All workers of the start, one after the other, each when training has gone on for long: one of them leads.
        events, first, kills = [], [], 0
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1]["event"] != "step" or events[-1]["step"] < 50 + 300 * kills or kills == 3:
                continue
            first = first or [pid for pid, command in self.ours() if "--device " in command]
            self.assertEqual(len(first), 3)
            os.kill(first[kills], signal.SIGKILL)
            kills += 1
        self.assertEqual(kills, 3)
        self.assertEqual(process.wait(60), 0, events[-3:])
        self.assertTrue(any("rank 0" in event["reason"] for event in self.of(events, "epoch")[1:]))
        self.assertEqual([step["step"] for step in self.of(events, "step")], list(range(1, steps + 1)))
        self.expect_written(events)


if __name__ == "__main__":
    unittest.main()
