"""A cluster with certificates and tokens: members get their work done, outsiders one sentence, and secrets stay secret."""

import hashlib
import json
import os
import pathlib
import secrets
import signal
import subprocess
import unittest

from harness import BIN, EndToEnd, devices, wait_for

# Who has a token → its role.
HOLDERS = {"view": "view", "submit": "submit", "admin": "admin", "worker": "worker", "guest": "worker"}


class Secured(EndToEnd):
    def setUp(self):
        super().setUp()
        self.authority("ours")
        self.authority("foreign")
        self.sign("coordinator", "IP:127.0.0.1")
        self.sign("worker", "DNS:worker")
        self.sign("client", "DNS:client")
        self.sign("stranger", "DNS:stranger", by="foreign")
        self.tokens = {holder: secrets.token_hex(16) for holder in HOLDERS}
        self.allow(HOLDERS)
        for holder, token in self.tokens.items():
            (self.scratch / f"{holder}.token").write_text(token + "\n")

    def allow(self, holders):
        """These have tokens from now on."""
        lines = [f"{HOLDERS[holder]} {holder}-name {hashlib.sha256(self.tokens[holder].encode()).hexdigest()}"
                 for holder in holders]
        (self.scratch / "tokens.new").write_text("\n".join(lines) + "\n")
        (self.scratch / "tokens.new").rename(self.scratch / "tokens")

    def openssl(self, *arguments):
        done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, cwd=self.scratch)
        self.assertEqual(done.returncode, 0, done.stderr)

    def authority(self, name):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 1, "-subj",
                     f"/CN={name}", "-keyout", f"{name}.ca.key", "-out", f"{name}.ca.pem")

    def sign(self, name, names, by="ours"):
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                     "-keyout", f"{name}.key", "-out", f"{name}.csr")
        (self.scratch / f"{name}.ext").write_text(f"subjectAltName={names}\n")
        self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{by}.ca.pem", "-CAkey", f"{by}.ca.key",
                     "-CAcreateserial", "-days", 1, "-extfile", f"{name}.ext", "-out", f"{name}.pem")

    def flags(self, name, holder=None, ca="ours"):
        token = ["--token-file", self.scratch / f"{holder}.token"] if holder else []
        return ["--tls-ca", self.scratch / f"{ca}.ca.pem", "--tls-certificate", self.scratch / f"{name}.pem",
                "--tls-key", self.scratch / f"{name}.key", *token]

    def start_secured(self):
        self.coordinator = self.start_coordinator("--tokens", self.scratch / "tokens", "--health", "127.0.0.1:0",
                                                  "--metrics", "127.0.0.1:0", *self.flags("coordinator"))

    def environment(self):
        """The client's: a submitter's, unless a test says otherwise by flags."""
        names = ["SHERD_TLS_CA", "SHERD_TLS_CERTIFICATE", "SHERD_TLS_KEY", "SHERD_TOKEN_FILE"]
        values = self.flags("client", "submit")[1::2]
        return {**super().environment(), **{name: str(value) for name, value in zip(names, values)}}

    def bare(self):
        return {**os.environ, "SHERD_COORDINATOR": self.address}

    def start(self, *arguments, **options):
        # Daemons say all by flags.
        return super().start(*arguments, **{"env": dict(os.environ), **options})

    def said(self):
        return "".join(path.read_text(errors="replace") for path in self.scratch.glob("*.log"))

    def test_members_train_and_no_secret_is_told(self):
        self.start_secured()
        workers = self.start_workers(2, "--metrics", "127.0.0.1:0", "--health", "127.0.0.1:0", *self.flags("worker", "worker"))
        self.wait_for_workers(2)
        job = self.submit(self.job(steps=600))
        follower = self.follow(job)
        self.wait_for_step(job, 5)
        os.kill(devices(workers)["cpu:0"], signal.SIGKILL)
        self.wait_for_state(job, "SUCCEEDED")
        self.assertEqual([event["step"] for event in follower.events() if event["event"] == "step"], list(range(1, 601)))
        described = json.loads(self.sherd("describe", job, "-o", "json", check=0).stdout)
        self.assertEqual(described["epochs"][0]["epoch"], 1)
        self.assertGreater(len(described["epochs"]), 1)
        self.assertEqual(described["events"][-1]["event"], "done")
        refused = self.sherd("describe", job, *self.flags("client"), env=self.bare(), check=1)
        self.assertIn("--token-file", refused.stderr)

        told = self.said() + self.scrape(self.metrics_address(self.coordinator))
        told += "".join(json.dumps(event) for event in follower.events()) + json.dumps(self.get(job))
        stored = b"".join(path.read_bytes() for path in self.coordinator_data.rglob("*") if path.is_file())
        for holder, token in self.tokens.items():
            self.assertNotIn(token, told, holder)
            self.assertNotIn(token.encode(), stored, holder)
        for file in self.coordinator_data.rglob("*"):
            self.assertEqual(file.stat().st_mode & 0o077, 0, file)

    def test_a_restarted_coordinator_with_renewed_certificates_finds_its_workers(self):
        self.start_secured()
        self.start_workers(2, *self.flags("worker", "worker"))
        self.wait_for_workers(2)
        job = self.submit(self.job(steps=100000))
        self.wait_for_step(job, 5)
        self.stop(self.coordinator, signal.SIGKILL)
        self.sign("coordinator", "IP:127.0.0.1")
        self.sign("worker", "DNS:worker")
        self.start_coordinator("--tokens", self.scratch / "tokens", *self.flags("coordinator"), listen=self.address)
        step = int(self.get(job)["step"])
        self.wait_for_step(job, step + 5)
        self.assertEqual(int(self.get(job)["epoch"]), 1, "nobody restarted")
        self.sherd("cancel", job, check=0)
        self.wait_for_state(job, "CANCELLED")

    def test_outsiders_get_one_sentence(self):
        self.start_secured()
        cases = {
            "plain text": ([], "cannot reach the coordinator"),
            "a stranger's certificate": (self.flags("stranger", "admin"), "cannot reach the coordinator"),
            "a coordinator of strangers": (self.flags("client", "admin", ca="foreign"), "cannot reach the coordinator"),
            "no token": (self.flags("client"), "--token-file"),
            "the token of a worker": (self.flags("client", "worker"), "worker-name has the role worker"),
        }
        for name, (flags, sentence) in cases.items():
            with self.subTest(name):
                result = self.sherd("list", *flags, env=self.bare())
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn(sentence, result.stderr)
                self.assertEqual(result.stderr.strip().count("\n"), 0, result.stderr)
        refused = self.sherd("submit", self.job(), *self.flags("client", "view"), env=self.bare())
        self.assertIn("has the role view, and this needs submit", refused.stderr)
        refused = self.sherd("drain", "host/cpu:0", *self.flags("client", "submit"), env=self.bare())
        self.assertIn("has the role submit, and this needs admin", refused.stderr)
        unknown = self.sherd("drain", "host/cpu:0", *self.flags("client", "admin"), env=self.bare(), check=102)
        self.assertIn("host/cpu:0", unknown.stderr)

    def test_a_worker_with_the_token_of_somebody_else_says_so_and_is_none(self):
        self.start_secured()
        worker = self.start_workers(1, *self.flags("worker", "submit"))
        wait_for(lambda: "this needs worker" in self.said(), "the worker says why")
        self.assertEqual(self.workers(), [])
        self.assertIsNone(worker.poll())

    def test_a_token_that_is_withdrawn_ends_what_was_opened_with_it(self):
        self.start_secured()
        self.start_workers(2, *self.flags("worker", "worker"))
        guest = self.start_workers(1, "--name", "guest", *self.flags("worker", "guest"))
        self.wait_for_workers(3)
        job = self.submit(self.job(steps=100000, workers=3, strategy="ddp"), "--set", "elastic.min_workers=2")
        watcher = self.start("sherd", "watch", job, "--coordinator", self.address, *self.flags("client", "view"))
        self.wait_for_step(job, 5)
        self.assertEqual(len(self.get(job)["ranks"]), 3)

        with self.subTest("a watch"):
            said = lambda: pathlib.Path(watcher.log_path).read_text()  # noqa: E731
            wait_for(lambda: "step" in said(), "the watch shows steps")
            self.assertIsNone(watcher.poll())
            self.allow(set(HOLDERS) - {"view"})
            wait_for(lambda: watcher.poll() is not None, "the watch ends")
            self.assertEqual(watcher.returncode, 1, said())
            self.assertIn("was it withdrawn", said())

        with self.subTest("a session"):
            self.assertEqual(len(self.get(job)["ranks"]), 3, "nobody else's ended")
            self.allow({"submit", "worker"})
            wait_for(lambda: len(self.get(job)["ranks"]) == 2 and self.state(job) == "RUNNING", "the others go on")
            self.wait_for_step(job, int(self.get(job)["step"]) + 5)
            wait_for(lambda: "was it withdrawn" in pathlib.Path(guest.log_path).read_text(), "the worker says why")
            self.assertIsNone(guest.poll())
            self.assertNotIn("guest", {worker["id"].split("/")[0] for worker in self.workers() if worker["status"] != "lost"})

        with self.subTest("given again"):
            self.allow(HOLDERS)
            wait_for(lambda: len(self.get(job)["ranks"]) == 3 and self.state(job) == "RUNNING", "the worker is back")
            self.wait_for_step(job, int(self.get(job)["step"]) + 5)
        self.sherd("cancel", job, check=0)
        self.wait_for_state(job, "CANCELLED")

    def test_settings_that_cannot_be_are_refused_before_anything_starts(self):
        bare = dict(os.environ)
        for program, arguments, sentence in (
                ("sherd-coordinator", ["--listen", "0.0.0.0:0"], "--insecure"),
                ("sherd-coordinator", ["--tls-ca", "x"], "belong together"),
                ("sherd-coordinator", ["--insecure", *self.flags("coordinator")], "contradict"),
                ("sherd-coordinator", ["--tokens", self.scratch / "client.key"], "line 1"),
                ("sherd-coordinator", [*self.flags("coordinator")[:5], "/not/there"], "/not/there cannot be read"),
                ("sherd-worker", ["--coordinator", "10.9.9.9:7700"], "--insecure"),
                ("sherd-worker", ["--coordinator", "127.0.0.1:1", "--token-file", "/not/there"], "--token-file"),
                ("sherd", ["list", "--coordinator", "10.9.9.9:7700"], "--insecure")):
            with self.subTest(sentence, program=program):
                done = subprocess.run([str(BIN / program), *map(str, arguments)], capture_output=True, text=True, timeout=20,
                                      cwd=self.scratch, env=bare)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(sentence, done.stderr)
        # A cluster of one's own does not mind what is set for another one.
        self.sherd("run", self.job(steps=2, out="weights"), "--workers", 2, "--out", self.scratch / "out", limit=120, check=0)


if __name__ == "__main__":
    unittest.main()
