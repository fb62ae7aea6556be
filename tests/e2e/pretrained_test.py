"""Jobs that start from a folder of the common Python stack, and folders that come out: `sherd run`, plan, import, export."""

import json
import pathlib
import shutil
import struct
import unittest

from harness import EndToEnd

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "pretrained"

JOB = """\
name: tuned
model:
  from: {folder}
data: {{train: [{tokens}], format: tokens_u16}}
train: {{steps: 3, global_batch: 4, micro_batch: 1, seq_len: 8, optimizer: {{lr: 1e-3}}}}
parallel: {{strategy: zero3, tensor: 2}}
precision: {{compute: fp32}}
"""


def read_safetensors(path):
    """The bytes of each tensor, by name."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    return {name: content[8 + length + entry["data_offsets"][0]:8 + length + entry["data_offsets"][1]]
            for name, entry in header.items() if name != "__metadata__"}


class Pretrained(EndToEnd):
    def setUp(self):
        super().setUp()
        self.folder = self.scratch / "gpt2"
        shutil.copytree(GOLDEN / "gpt2_fp32", self.folder, ignore=shutil.ignore_patterns("expected*"))
        self.tokens = self.scratch / "tokens.bin"
        self.tokens.write_bytes(struct.pack("<900H", *((i * 7 + i // 11) % 21 for i in range(900))))
        self.path = self.scratch / "tuned.yaml"
        self.path.write_text(JOB.format(folder=self.folder, tokens=self.tokens))

    def test_a_folder_is_trained_on_and_comes_out_as_one(self):  # F50
        out = self.scratch / "out"
        told = self.sherd("run", self.path, "--workers", 4, "--out", out, "-o", "json", check=0)
        events = [json.loads(line) for line in told.stdout.splitlines()]
        steps = [event for event in events if event["event"] == "step"]
        self.assertEqual([step["step"] for step in steps], [1, 2, 3])
        self.assertLess(steps[2]["loss"], steps[0]["loss"])
        self.assertTrue(any("starts from the weights in" in event.get("text", "") for event in events))

        exported = self.scratch / "exported"
        told = json.loads(self.sherd("export", out / "weights", exported, "-o", "json", check=0).stdout)
        self.assertEqual((told["arch"], told["files"]), ("gpt2", 1))
        config = json.loads((exported / "config.json").read_text())
        source = json.loads((self.folder / "config.json").read_text())
        for key in ("n_embd", "n_head", "n_layer", "n_positions", "vocab_size", "model_type", "architectures"):
            self.assertEqual(config[key], source[key], key)
        before = read_safetensors(self.folder / "model.safetensors")
        after = read_safetensors(exported / "model.safetensors")
        self.assertEqual(before.keys(), after.keys())
        for name in before:
            self.assertEqual(len(before[name]), len(after[name]), name)
            self.assertNotEqual(before[name], after[name], name)
            largest = max(abs(a - b) for a, b in zip(struct.unpack(f"<{len(before[name]) // 4}f", before[name]),
                                                     struct.unpack(f"<{len(after[name]) // 4}f", after[name])))
            self.assertLess(largest, 0.01, name)  # three steps of at most 1e-3

        # What came out is what another job starts from, and refuses to be overwritten.
        self.assertEqual(self.sherd("export", out / "weights", exported).returncode, 2)
        plan = json.loads(self.sherd("plan", self.path, "--workers", 4, "--set", f"model.from={exported}",
                                     "-o", "json", check=0).stdout)
        self.assertGreater(plan["peak_bytes"], 0)

    def test_what_does_not_agree_is_told_with_its_line(self):  # F55
        with open(self.path, "a") as job:
            job.write("checkpoint: {dir: weights}\n")
        text = self.path.read_text().replace("data:", "  heads: 3\ndata:")
        self.path.write_text(text)
        for command in (("run", self.path, "--workers", 2, "--out", self.scratch / "out"),
                        ("plan", self.path, "--workers", 2)):
            refused = self.sherd(*command)
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn("tuned.yaml:4: model.heads: 3 is not what config.json of model.from says, which is 2",
                          refused.stderr)
        (self.folder / "model.safetensors").unlink()
        self.path.write_text(text.replace("  heads: 3\n", ""))
        refused = self.sherd("run", self.path, "--workers", 2, "--out", self.scratch / "out")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("tuned.yaml:3: model.from: ", refused.stderr)
        self.assertIn("holds neither model.safetensors nor", refused.stderr)

    def test_a_cluster_reads_folders_below_its_data_root_alone(self):
        self.start_coordinator()
        text = self.path.read_text().replace(str(self.folder), "gpt2").replace(str(self.tokens), "tokens.bin")
        self.path.write_text(text)
        early = self.sherd("submit", self.path)
        self.assertEqual(early.returncode, 1)
        self.assertIn("none is connected", early.stderr)
        self.start_workers(2)
        self.wait_for_workers(2)
        job = self.submit(self.path, "--set", "elastic.min_workers=2")
        self.wait_for_state(job, "SUCCEEDED")
        # The specification that is shown is a job file again.
        spec = self.get(job)["spec"]
        self.assertEqual((spec["model"]["from"], spec["model"]["layers"], spec["model"]["vocab"]), ("gpt2", 2, 23))
        outside = self.sherd("submit", self.path, "--set", "model.from=../gpt2")
        self.assertEqual(outside.returncode, 2)
        self.assertIn("model.from", outside.stderr)

    def test_import_and_export_round_trip(self):
        imported = self.scratch / "imported"
        told = self.sherd("import", self.folder, imported, check=0).stdout
        self.assertIn("gpt2", told)
        self.sherd("checkpoints", "verify", imported, check=0)
        exported = self.scratch / "exported"
        self.sherd("export", imported, exported, "--shard-size", "4kB", check=0)
        index = json.loads((exported / "model.safetensors.index.json").read_text())
        merged = {}
        for file in set(index["weight_map"].values()):
            merged |= read_safetensors(exported / file)
        self.assertEqual(merged, read_safetensors(self.folder / "model.safetensors"))
        self.sherd("export", imported, self.scratch / "half", "--dtype", "bf16", check=0)
        self.assertEqual(json.loads((self.scratch / "half/config.json").read_text())["torch_dtype"], "bfloat16")
        for wrong in (("export", imported, self.scratch / "x", "--dtype", "int8"), ("import", self.folder),
                      ("import", self.scratch / "none", self.scratch / "y")):
            self.assertEqual(self.sherd(*wrong).returncode, 2, wrong)


if __name__ == "__main__":
    unittest.main()
