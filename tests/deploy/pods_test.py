"""Plays the kubelet: pods of the rendered manifests, with their commands, users, volumes, probes, signals and grace
periods, in network namespaces with addresses of their own; a job survives that they are deleted one after another. Their
files are the image's where it was built (SHERD_IMAGE), else this machine's with the programs of SHERD_BIN."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "scripts"), str(ROOT / "tests/deploy")]

import check_manifests as manifests  # noqa: E402
import container  # noqa: E402
from container import ip  # noqa: E402
from harness import BIN, HEALTH, LIMIT, EndToEnd, children_of, wait_for  # noqa: E402

LONG = 1000000  # steps that no test waits for
NETWORK = "10.79.0"


class Pod:
    """One pod of a StatefulSet. Its address and its volumes stay when it is deleted and made again."""

    def __init__(self, test, name, number, spec, volumes):
        self.test, self.name, self.spec = test, name, spec
        self.address = f"{NETWORK}.{10 + number}"
        self.namespace = f"sherd-pods-{os.getpid()}-{number}"
        self.container = spec["containers"][0]
        self.volumes = volumes  # name → directory
        self.process = None

    def join(self, switch):
        """A namespace with a cable to the switch."""
        cable = f"pod{self.address.rpartition('.')[2]}"
        made = ip("netns", "add", self.namespace)
        made = made and ip("link", "add", cable, "netns", switch, "type", "veth",
                           "peer", "name", "eth0", "netns", self.namespace)
        made = made and ip("-n", switch, "link", "set", cable, "master", "bridge", "up")
        made = made and ip("-n", self.namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        return made and all(ip("-n", self.namespace, "link", "set", link, "up") for link in ("eth0", "lo"))

    def start(self):
        volumes = [(self.volumes[mount["name"]], mount["mountPath"], "ro" if mount.get("readOnly") else "rw")
                   for mount in self.container["volumeMounts"]]
        context = self.spec["securityContext"]
        command = container.command(
            self.test.files, self.test.scratch / f"root-{self.name}", self.namespace, self.name, self.test.hosts_file,
            f"{context['runAsUser']}:{context['runAsGroup']}", volumes,
            {each["name"]: each["value"] for each in self.container.get("env", [])},
            self.container["command"] + self.container["args"])
        log = open(self.test.scratch / f"{self.name}.log", "ab")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        self.test.stack.callback(self.kill)
        self.wait_for_probe("startupProbe")
        self.wait_for_probe("readinessProbe")
        self.assert_confined()

    def first_process(self):
        [first] = children_of(self.process.pid)
        return first

    def assert_confined(self):
        """It runs as the manifest has it, so that what passes here passes there."""
        process = pathlib.Path(f"/proc/{self.first_process()}")
        status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
        self.test.assertEqual(set(status["Uid"].split()), {str(self.spec["securityContext"]["runAsUser"])})
        self.test.assertEqual((int(status["CapEff"], 16), int(status["CapBnd"], 16), status["NoNewPrivs"]), (0, 0, "1"))
        self.test.assertEqual(status["NSpid"].split()[-1], "1")
        root = (process / "mounts").read_text().splitlines()[0].split()
        self.test.assertEqual((root[1], root[3].split(",")[0]), ("/", "ro"))

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def said(self):
        return (self.test.scratch / f"{self.name}.log").read_text()

    def passes(self, probe):
        inside = ["ip", "netns", "exec", self.namespace]
        if "grpc" in probe:
            command = [*inside, "/usr/bin/python3", "-c", HEALTH, f"{self.address}:{probe['grpc']['port']}",
                       probe["grpc"].get("service", "")]
        else:
            ports = {port["name"]: port["containerPort"] for port in self.container["ports"]}
            port = ports[probe["httpGet"]["port"]]
            command = [*inside, "curl", "-fsS", "-m", "5", f"http://{self.address}:{port}{probe['httpGet']['path']}"]
        return subprocess.run(command, capture_output=True).returncode == 0

    def wait_for_probe(self, name):
        probe = self.container[name]
        limit = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
        wait_for(lambda: self.process.poll() is not None or self.passes(probe), f"{self.name}: {name}", limit)
        self.test.assertIsNone(self.process.poll(), self.said())

    def delete(self):
        """SIGTERM to process 1, and its exit code, which must come within the grace period."""
        os.kill(self.first_process(), signal.SIGTERM)
        grace = self.spec["terminationGracePeriodSeconds"]
        try:
            return self.process.wait(grace)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} was there after {grace} s: {self.said()}") from None


class Pods(EndToEnd):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("NOT TESTED: pods run as a user of their own, which only root can start")
        if manifests.kubectl() is None:
            self.skipTest("NOT TESTED: no kubectl 1.27 or later to render the manifests")
        self.files = container.image(self) or container.Machine(BIN.resolve())
        rendered = manifests.render(manifests.kubectl(), manifests.KUBERNETES / "overlays/dev-cpu")
        sets = {document["metadata"]["name"]: document for document in rendered if document["kind"] == "StatefulSet"}
        self.hosts_file = self.scratch / "hosts"
        self.hosts_file.write_text(f"127.0.0.1 localhost\n{NETWORK}.10 sherd-coordinator\n")
        self.hosts_file.chmod(0o644)
        self.coordinator = self.make_pod(sets["sherd-coordinator"], 0, 0)
        self.pods = [self.coordinator] + [self.make_pod(sets["sherd-worker"], i, 1 + i) for i in range(2)]
        self.join()
        self.inside, self.address = self.coordinator.namespace, f"{self.coordinator.address}:7700"
        text = "a pod is a node, and what it holds is held elsewhere too.\n" * 200
        (self.volume("sherd-data") / "text.txt").write_text(text)
        for pod in self.pods:
            pod.start()

    def volume(self, name):
        directory = self.scratch / "volumes" / name
        if not directory.exists():
            directory.mkdir(parents=True)
            os.chown(directory, manifests.USER, manifests.USER)
        return directory

    def make_pod(self, document, ordinal, number):
        spec, name = document["spec"]["template"]["spec"], f"{document['metadata']['name']}-{ordinal}"
        volumes = {volume["name"]: self.volume(volume["persistentVolumeClaim"]["claimName"])
                   for volume in spec.get("volumes", [])}
        for claim in document["spec"].get("volumeClaimTemplates", []):
            volumes[claim["metadata"]["name"]] = self.volume(f"{claim['metadata']['name']}-{name}")
        return Pod(self, name, number, spec, volumes)

    def join(self):
        switch = f"sherd-pods-{os.getpid()}-switch"
        for name in [switch] + [pod.namespace for pod in self.pods]:
            self.stack.callback(ip, "netns", "del", name)
        made = ip("netns", "add", switch) and ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        made = made and ip("-n", switch, "link", "set", "bridge", "up") and all(pod.join(switch) for pod in self.pods)
        if not made:
            self.skipTest("NOT TESTED: this user may not make network namespaces (root, iproute2)")

    def steps_on(self, job):
        """It commits further steps, and has lost none."""
        self.wait_for_step(job, int(self.get(job)["step"]) + 20)

    def test_a_job_survives_that_its_pods_are_deleted_one_after_another(self):  # F31, F60
        self.wait_for_workers(4)
        self.assertEqual(sorted(worker["id"] for worker in self.workers()),
                         [f"sherd-worker-{pod}/cpu:{slot}" for pod in range(2) for slot in range(2)])
        path = self.job(steps=LONG, workers=4, strategy="ddp", text="text.txt", out="weights")
        job = self.submit(path, "--set", "elastic.min_workers=2")
        self.wait_for_step(job, 20)
        self.assertEqual(len(self.get(job)["ranks"]), 4)

        with self.subTest("a worker pod"):
            self.assertEqual(self.pods[1].delete(), 0, self.pods[1].said())
            wait_for(lambda: len(self.get(job)["ranks"]) == 2 and self.state(job) == "RUNNING", "the others go on")
            self.steps_on(job)
            self.pods[1].start()
            wait_for(lambda: len(self.get(job)["ranks"]) == 4 and self.state(job) == "RUNNING", "the world grows again")
            self.steps_on(job)

        with self.subTest("the coordinator's pod"):
            epoch = self.get(job)["epoch"]
            self.assertEqual(self.coordinator.delete(), 0, self.coordinator.said())
            self.coordinator.start()
            self.steps_on(job)
            self.assertEqual(self.get(job)["epoch"], epoch, "ranks did not notice")
            self.assertTrue(self.coordinator.passes(self.coordinator.container["livenessProbe"]))

        self.sherd("cancel", job, check=0)
        self.wait_for_state(job, "CANCELLED")
        text = self.sherd("watch", job, "-o", "json", check=103).stdout
        self.assertNotIn('"event":"rollback"', text)
        self.wait_for_workers(4)
        for pod in reversed(self.pods):
            self.assertEqual(pod.delete(), 0, pod.said())


class JobSet(EndToEnd):
    """The client's pod, whose exit code is the JobSet's end."""

    def setUp(self):
        super().setUp()
        [documents] = [documents for path, documents in manifests.unrendered() if path.name == "jobset.yaml"]
        jobs = {job["name"]: job["template"]["spec"] for job in documents[0]["spec"]["replicatedJobs"]}
        self.client = jobs["client"]["template"]["spec"]["containers"][0]
        self.final = jobs["client"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"]

    def follow(self, path, name):
        words = self.client["command"] + self.client["args"]
        command = [word.replace("/etc/sherd/job.yaml", str(path)) for word in words]
        environment = {"PATH": f"{BIN}:/usr/bin:/bin", "SHERD_COORDINATOR": self.address, "JOBSET": name}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT).returncode

    def test_the_client_ends_as_the_job_does_and_finds_it_again(self):  # F51, F53
        self.start_coordinator()
        self.start_workers(2)
        good = self.job("good", steps=5)
        self.assertEqual([self.follow(good, "good"), self.follow(good, "good")], [0, 0])
        self.assertEqual(len(json.loads(self.sherd("list", "-o", "json", check=0).stdout)), 1)
        mistakes = {"failed": ("train: [", "train: [nowhere.txt, "), "not-valid": ("steps: 5", "steps: five")}
        for name, mistake in mistakes.items():
            path = self.job(name, steps=5)
            path.write_text(path.read_text().replace(*mistake))
            self.assertIn(self.follow(path, name), self.final, name)

    def test_the_job_that_it_brings_is_valid(self):
        slots = 2 * 4
        self.sherd("plan", manifests.KUBERNETES / "jobset/job.yaml", "--workers", slots, check=0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
