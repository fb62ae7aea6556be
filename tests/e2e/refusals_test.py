"""Bad input, and what there is not: said in a sentence, before anything starts."""

import pathlib
import time
import unittest

from harness import EndToEnd
from token_files import llmc


class Refusals(EndToEnd):
    """Bad input is refused before anything starts, with a sentence that names it."""

    CASES = [
        ("strategy: zero3", "stratgy: zero3", r"job\.yaml:\d+: .*stratgy.*strategy"),  # F55
        ("strategy: zero3", "strategy: zero9", r"job\.yaml:\d+: .*zero9.*zero"),
        ("strategy: zero3", "strategy: hybrid", r"shard_group"),
        ("heads: 2", "heads: 3", r"job\.yaml:\d+: .*heads.*(1|2|4)"),
        ("micro_batch: 1", "micro_batch: 3", r"(global_batch|micro_batch)"),
        ("steps: 20", "steps: many", r"job\.yaml:\d+: .*steps"),
        ("steps: 20", "steps: -1", r"steps"),
        ("lr: 1e-3", "lr: .nan", r"lr"),
        ("hidden: 32", "hidden: 9000000000000000000", r"hidden"),
        ("seq_len: 32", "seq_len: 33", r"seq_len.*32"),
        ("min_workers: 2", "min_workers: 0", r"min_workers"),
        ("grad_clip: 1.0", "grad_clip: -1.0", r"grad_clip"),
        ("grad_clip: 1.0", "freeze: [wte.wieght]", r"job\.yaml:\d+: .*freeze.*wte\.weight"),
        ("name: job", "name: ''", r"name"),
    ]

    def job(self, out="weights", **options):
        return super().job(out=out, **options)

    def run_refused(self, path, *arguments):
        result = self.sherd("run", path, "--workers", 2, "--out", self.scratch / "out", *arguments, limit=60)
        self.assertIn(result.returncode, (1, 2), result.stdout + result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertFalse((self.scratch / "out" / "weights").exists())
        self.assert_no_processes()
        return result.stderr

    def test_values_and_keys(self):
        for right, wrong, pattern in self.CASES:
            with self.subTest(wrong):
                path = self.job()
                self.assertIn(right, path.read_text())
                path.write_text(path.read_text().replace(right, wrong))
                self.assertRegex(self.run_refused(path), pattern)

    def test_data_files(self):
        (self.scratch / "empty.txt").write_text("")
        (self.scratch / "binary.txt").write_bytes(b"text\0" * 1000)
        (self.scratch / "short.txt").write_text("short")
        for name, word in (("empty.txt", "empty"), ("binary.txt", "binary|NUL|text"), ("short.txt", "33|sequence"),
                           ("missing.txt", "missing.txt")):
            with self.subTest(name):
                error = self.run_refused(self.job(text=self.scratch / name))
                self.assertIn(name, error)
                self.assertRegex(error, word)

    def test_data_files_of_tokens(self):
        ids = list(range(64))
        good = llmc(ids)
        (self.scratch / "good.bin").write_bytes(good)
        (self.scratch / "cut.bin").write_bytes(good[:-1])
        (self.scratch / "magic.bin").write_bytes(llmc(ids, magic=1))
        (self.scratch / "large.bin").write_bytes(llmc([*ids, 256]))
        for name, word in (("cut.bin", r"byte 8: 64 tokens .* 1152 bytes, but it has 1151"),
                           ("magic.bin", r"byte 0: the magic number is 1"),
                           ("large.bin", r"token 64 has the id 256, but model\.vocab is 256"),
                           ("'none*.bin'", r"none\*\.bin matches no file")):
            with self.subTest(name):
                error = self.run_refused(self.job(text=self.scratch / name if name[0] != "'" else name),
                                         "--set", "data.format=llmc")
                self.assertRegex(error, word)
        path = self.job(text=self.scratch / "good.bin")
        self.assertRegex(self.run_refused(path, "--set", "data.format=llm.c"), r"did you mean 'llmc'")
        self.assertRegex(self.run_refused(path, "--set", "data.format=tokens_u16"), r"data\.format llmc reads")

    def test_a_path_outside_the_data_root(self):
        root = self.scratch / "root"
        root.mkdir()
        (root / "link.txt").symlink_to(self.text)
        for path in (self.text, root / "link.txt"):
            with self.subTest(path):
                self.assertIn(path.name, self.run_refused(self.job(text=path), "--data-root", root))

    def test_no_workers(self):
        result = self.sherd("run", self.job(), "--workers", 0)
        self.assertEqual(result.returncode, 2)
        self.assertIn("workers", result.stderr)

    def test_an_unreachable_coordinator_is_one_sentence(self):
        for command in (["list"], ["submit", self.job()], ["get", "j"], ["workers"]):
            with self.subTest(command):
                start = time.monotonic()
                result = self.sherd(*command, "--coordinator", "127.0.0.1:1")
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn("127.0.0.1:1", result.stderr)
                self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
                self.assertLess(time.monotonic() - start, 20)

    def test_an_unknown_job_is_not_found(self):
        self.start_coordinator()
        for command in ("get", "watch", "cancel", "logs"):
            self.assertEqual(self.sherd(command, "nobody").returncode, 102, command)

    def test_a_worker_without_coordinator_gives_up_when_told(self):
        worker = self.start("sherd-worker", "--coordinator", "127.0.0.1:1", "--device", "cpu:0",
                            "--connect-timeout", "1s", "--data-root", self.scratch)
        self.assertEqual(worker.wait(20), 1)
        self.assertIn("127.0.0.1:1", pathlib.Path(worker.log_path).read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
