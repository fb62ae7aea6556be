"""The image, the compose file and the units are what they should be, and each mistake that people make is found."""

import os
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import check_images as house  # noqa: E402
import check_manifests  # noqa: E402
import yaml  # noqa: E402

BIN = pathlib.Path(os.environ["SHERD_BIN"])
PROMETHEUS = pathlib.Path(os.environ.get("SHERD_PROMETHEUS", ROOT / "build/tools/prometheus/usr/bin/prometheus"))
PROMTOOL = PROMETHEUS.parent / "promtool"
HELP = check_manifests.helper(BIN)
VERSION = house.project_version()

# What a mistake is → what is put for what, and a piece of what is said about it.
DOCKERFILE = {
    "the image of the day": ("debian:12-slim", "debian", "no version"),
    "root": ("USER 65532:65532\n", "", "the user is not"),
    "a stage that is not there": ("--from=build", "--from=builder", "no stage"),
    "a file that is not there": ("COPY scripts/packages-runtime", "COPY scripts/runtime", "scripts/runtime.txt"),
    "lists left behind": (" && rm -rf /var/lib/apt/lists/* /tmp", " && rm -rf /tmp", "leaves its lists"),
    "a shell as the first process": ('CMD ["sherd", "--help"]', "CMD sherd --help", "through a shell"),
    "no revision": ("org.opencontainers.image.revision", "revision", "no label revision"),
    "a target that is not there": ("--target sherd ", "--target sherd-cli ", "no target sherd-cli"),
    "another version": (f"VERSION={VERSION}", "VERSION=9.9.9", "the version is not"),
}
CUDA_DOCKERFILE = {
    "a toolkit that is too old": ("cuda:13.0.1-devel", "cuda:12.6.3-devel", "CUDA 12.6 is older than 12.8"),
    "the directory of another toolkit": ("/usr/local/cuda-13.0 ", "/usr/local/cuda-13.1 ", "not that of CUDA 13.0"),
    "no toolkit": ("FROM nvidia/cuda:13.0.1-devel-ubuntu24.04 AS toolkit", "FROM debian:12 AS toolkit", "no stage with CUDA"),
    "a back end that nobody finds": ("-t /out/lib/sherd ", "-t /out/lib ", "not where a worker looks"),
    "the library of another toolkit": ("lib64/libcublasLt.so.13)\" /out/lib/libcublasLt.so.13",
                                       "lib64/libcublasLt.so.12)\" /out/lib/libcublasLt.so.12", "cuBLASLt of CUDA 13.0"),
    "no driver": ("ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility\n", "", "driver's libraries"),
    "another port": ("EXPOSE 7700 9400 9401", "EXPOSE 7700 9400", "not as in the other image: EXPOSE"),
    "a library less": (" /tmp/packages-runtime.txt | xargs", " /tmp/packages-runtime.txt | head -n 3 | xargs",
                       "only in the other image: RUN"),
}
COMPOSE = {
    "a misspelt key": ("stop_grace_period: 40s", "stop_grace: 40s", "stop_grace"),
    "killed before all is handed over": ("stop_grace_period: 40s", "stop_grace_period: 10s", "killed before"),
    "root": ('  user: "65532:65532"\n', "", "it is root"),
    "rights": ("cap_drop: [ALL]", "cap_drop: [MKNOD]", "more rights"),
    "a port open to all": ('["127.0.0.1:7700:7700"]', '["7700:7700"]', "open to others"),
    "a flag that is not there": ("--threads=1", "--cores=1", "no flag --cores"),
    "a slot that is not scraped": ("--devices=cpu:4", "--devices=cpu:5", "scraped at"),
    "a volume that is not there": ('"output:/output"', '"outputs:/output"', "no volume outputs"),
    "a file that is not there": ("./prometheus.yml", "./prom.yml", "./prom.yml is not there"),
    "an image without a version": ("prom/prometheus:v2.55.1", "prom/prometheus", "has no version"),
}
WORKER_UNIT = {
    "SIGTERM to all processes": ("KillMode=mixed\n", "", "KillMode"),
    "killed before all is handed over": ("TimeoutStopSec=40", "TimeoutStopSec=20", "killed before"),
    "one for all": ("OOMPolicy=continue\n", "", "OOMPolicy"),
    "a flag that is not there": ("--data-root=", "--data=", "no flag --data"),
    "a setting without a default": ("Environment=SHERD_DEVICES=all\n", "", "SHERD_DEVICES has no default"),
    "a setting that nothing reads": (" $SHERD_WORKER_FLAGS", "", "SHERD_WORKER_FLAGS, which nothing reads"),
}


class Deployment(unittest.TestCase):
    def assert_found(self, text, mistakes, check):
        self.assertEqual(list(check(text)), [])
        for name, (old, new, said) in mistakes.items():
            with self.subTest(name):
                self.assertIn(old, text)
                problems = list(check(text.replace(old, new)))
                self.assertTrue(any(said in problem for problem in problems), problems)

    def test_all_is_sound(self):
        self.assertTrue(PROMTOOL.exists(), f"{PROMTOOL} is missing: scripts/setup.sh --checks brings it")
        self.assertEqual(list(house.check_all(BIN, PROMTOOL)), [])

    def test_every_mistake_in_a_dockerfile_is_found(self):
        self.assert_found(house.read("deploy/docker/Dockerfile"), DOCKERFILE,
                          lambda text: house.check_dockerfile(text, VERSION))

    def test_every_mistake_in_a_dockerfile_with_cuda_is_found(self):
        text, other = house.read("deploy/docker/Dockerfile.cuda"), house.read("deploy/docker/Dockerfile")
        self.assertEqual(list(house.check_dockerfile(text, VERSION)), [])
        self.assert_found(text, CUDA_DOCKERFILE, lambda text: house.check_cuda_dockerfile(text, other))
        # What the build makes the back end by.
        mistaken = text.replace(" sherd_cuda ", " sherd_cudas ")
        self.assertIn("no target sherd_cudas", house.check_dockerfile(mistaken, VERSION))

    def test_every_mistake_in_a_compose_file_is_found(self):
        scraping = yaml.safe_load(house.read("deploy/compose/prometheus.yml"))
        self.assert_found(house.read("deploy/compose/compose.yaml"), COMPOSE,
                          lambda text: house.check_compose(yaml.safe_load(text), scraping, HELP, VERSION))

    def test_every_mistake_in_a_unit_is_found(self):
        example = house.read("deploy/systemd/worker.env")
        self.assert_found(house.read("deploy/systemd/sherd-worker.service"), WORKER_UNIT,
                          lambda text: house.check_unit(text, example, HELP))

    def test_a_library_without_its_package_and_a_package_without_use_are_found(self):
        self.assertEqual(list(house.check_packages({"liba1", "libold1"}, {"liba1", "libb2"})),
                         ["libb2 is needed and not in packages-runtime.txt",
                          "libold1 is in packages-runtime.txt and not needed"])

    def test_what_the_documentation_names_is_there(self):
        for page in ("docs/operations.md", "docs/kubernetes.md"):
            for name in set(re.findall(r"\b(?:deploy|dashboards|scripts|examples)/[\w./-]*\w", house.read(page))):
                self.assertTrue((ROOT / name).exists(), f"{page}: {name}")

    def test_grafana_finds_the_dashboards_where_compose_puts_them(self):
        compose = yaml.safe_load(house.read("deploy/compose/compose.yaml"))
        mounts = dict(volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"])
        provider = yaml.safe_load(house.read("deploy/compose/grafana/dashboards.yaml"))["providers"][0]
        source = next(source for source, target in mounts.items() if target == provider["options"]["path"])
        self.assertEqual((ROOT / "deploy/compose" / source).resolve(), ROOT / "dashboards")
        for datasource in yaml.safe_load(house.read("deploy/compose/grafana/datasources.yaml"))["datasources"]:
            self.assertEqual(datasource["type"], "prometheus")
            self.assertEqual(datasource["url"], "http://prometheus:9090")


if __name__ == "__main__":
    unittest.main(verbosity=2)
