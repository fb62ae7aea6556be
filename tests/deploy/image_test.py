"""The image that scripts/build_image.sh has built (SHERD_IMAGE): what is in it, what it says of itself, and that the
services of the compose file run in it as the compose file has them, and train a job."""

import os
import pathlib
import signal
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "scripts"), str(ROOT / "tests/deploy")]

import check_images as house  # noqa: E402
import container  # noqa: E402
import yaml  # noqa: E402
from check_manifests import OURS, USER  # noqa: E402
from harness import LIMIT, EndToEnd, children_of, wait_for  # noqa: E402

VERSION = house.project_version()
LARGEST = 200 << 20  # bytes of all its files
DIRECTORIES = {"var/lib/sherd", "data", "output"}


class Contents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.image = container.Image(os.environ["SHERD_IMAGE"])
        cls.addClassCleanup(cls.image.close)

    def test_it_says_what_it_is(self):
        config = self.image.config
        self.assertEqual((config["User"], config["Cmd"]), (house.USER, ["sherd", "--help"]))
        labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}
        self.assertLessEqual(set(house.LABELS), set(labels))
        self.assertEqual(labels["version"], VERSION)
        revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        self.assertEqual(labels["revision"], revision)
        compose = yaml.safe_load(house.read("deploy/compose/compose.yaml"))["services"]
        # Calls, the coordinator's metrics, those of the first worker.
        self.assertEqual(set(config["ExposedPorts"]), {"7700/tcp", "9400/tcp", "9401/tcp"})
        self.assertEqual({compose[name]["image"] for name in ("coordinator", "worker")}, {os.environ["SHERD_IMAGE"]})

    def test_its_programs_run_as_its_user(self):
        for program in OURS:
            self.assertEqual(self.image.run(program, "--version"), f"{program} {VERSION}")
        self.assertEqual(self.image.run("id", "-u"), str(USER))
        self.assertIn("Usage", self.image.run(*self.image.config["Cmd"]))

    def test_its_user_owns_the_three_directories_and_nothing_else(self):
        found = subprocess.run(["find", self.image.root, "-uid", str(USER), "-printf", "%P\\n"],
                               capture_output=True, text=True, check=True).stdout
        self.assertEqual(set(found.split()), DIRECTORIES)

    def test_it_is_small_and_nothing_is_left_from_its_making(self):
        root, size = self.image.root, 0
        for directory, _, names in os.walk(root):
            size += sum((pathlib.Path(directory) / name).lstat().st_size for name in names)
        self.assertLess(size, LARGEST)
        self.assertFalse([name for name in ("cc", "gcc", "cmake", "usrmerge") if (root / "usr/bin" / name).exists()])
        for directory in ("tmp", "var/tmp", "var/log/apt", "src", "out"):
            self.assertFalse((root / directory).exists() and list((root / directory).iterdir()), directory)
        self.assertFalse(list((root / "var/lib/apt/lists").glob("*Packages*")))
        self.assertFalse((root / "var/log/dpkg.log").exists())


class Composed(EndToEnd):
    """The services of the compose file, in one network namespace with the ports of all."""

    def setUp(self):
        super().setUp()
        self.services = yaml.safe_load(house.read("deploy/compose/compose.yaml"))["services"]
        self.image = container.Image(os.environ["SHERD_IMAGE"])
        self.stack.callback(self.image.close)
        self.hosts = self.scratch / "hosts"
        self.hosts.write_text("127.0.0.1 localhost coordinator worker\n")
        self.hosts.chmod(0o644)
        (self.scratch / "volumes").mkdir()
        (self.scratch / "roots").mkdir()
        self.namespace = f"sherd-compose-{os.getpid()}"
        self.stack.callback(container.ip, "netns", "del", self.namespace)
        self.assertTrue(container.ip("netns", "add", self.namespace))
        self.assertTrue(container.ip("-n", self.namespace, "link", "set", "lo", "up"))
        self.address = "127.0.0.1:7700"

    def volume(self, name, target):
        """A new volume takes the owner of the image's directory that it covers."""
        directory = self.scratch / "volumes" / name
        if not directory.exists():
            directory.mkdir()
            covered = (self.image.root / target.lstrip("/")).stat()
            os.chown(directory, covered.st_uid, covered.st_gid)
        return directory

    def inside(self, name, words, **environment):
        """The command line of a service's container, with other words for its command."""
        service = self.services[name]
        self.assertTrue(service["read_only"])
        volumes = []
        for volume in service["volumes"]:
            source, target, *mode = volume.replace("${SHERD_DATA:-../../examples}", "data").split(":")
            volumes.append((self.volume(source, target), target, mode[0] if mode else "rw"))
        return container.command(self.image, self.scratch / "roots" / name, self.namespace, name, self.hosts,
                                 service["user"], volumes, {**service["environment"], **environment}, words)

    def command(self, program, arguments):
        """The client and what it starts, as `docker compose run worker` has it."""
        return self.inside("worker", [program, *map(str, arguments)], SHERD_COORDINATOR=self.address)

    def start_service(self, name):
        log = open(self.scratch / f"{name}.log", "ab")
        process = subprocess.Popen(self.inside(name, self.services[name]["command"]),
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        self.stack.callback(self.kill, process)
        return process

    def kill(self, process):
        if process.poll() is None:
            process.kill()
            process.wait()

    def healthy(self, name):
        words = self.services[name]["healthcheck"]["test"][1:]
        return subprocess.run(self.inside(name, words), capture_output=True, timeout=LIMIT).returncode == 0

    def stop_service(self, name, process):
        """SIGTERM to process 1: it ends by itself within the grace period."""
        [first] = children_of(process.pid)
        os.kill(first, signal.SIGTERM)
        grace = house.seconds(self.services[name].get("stop_grace_period", "10s"))
        self.assertEqual(process.wait(grace), 0, (self.scratch / f"{name}.log").read_text())

    def test_a_job_is_trained_and_its_weights_are_sampled(self):
        coordinator = self.start_service("coordinator")
        wait_for(lambda: coordinator.poll() is not None or self.healthy("coordinator"), "the coordinator is healthy")
        worker = self.start_service("worker")
        self.wait_for_workers(4)
        data = self.volume("data", "/data")
        (data / "text.txt").write_text("a rank keeps its shard, whatever it runs in.\n" * 200)
        path = self.job(steps=20, workers=2, text="text.txt", out="weights")
        (data / "job.yaml").write_bytes(path.read_bytes())
        job = self.submit("/data/job.yaml")
        ended = ("SUCCEEDED", "FAILED", "CANCELLED")
        self.assertEqual(wait_for(lambda: self.state(job) in ended and self.state(job), "the job ends"), "SUCCEEDED")
        self.assertEqual({path.stat().st_uid for path in self.volume("output", "/output").rglob("*")}, {USER})
        text = self.sherd("sample", "/output/weights", "--prompt", "a", "--tokens", "4", "--seed", "1", check=0).stdout
        self.assertTrue(text.startswith("a"), text)
        scraped = yaml.safe_load(house.read("deploy/compose/prometheus.yml"))["scrape_configs"]
        for target in (target for each in scraped for group in each["static_configs"] for target in group["targets"]):
            port = target.rpartition(":")[2]
            page = subprocess.run(["ip", "netns", "exec", self.namespace, "curl", "-fsS", f"http://127.0.0.1:{port}/metrics"],
                                  capture_output=True, text=True, timeout=LIMIT).stdout
            self.assertIn("sherd_", page, target)
        self.stop_service("worker", worker)
        self.stop_service("coordinator", coordinator)


if __name__ == "__main__":
    unittest.main(verbosity=2)
