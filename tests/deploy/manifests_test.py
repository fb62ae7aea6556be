"""The manifests are what clusters and our daemons take, and each mistake that people make is found."""

import copy
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import check_manifests as house  # noqa: E402

BIN = pathlib.Path(os.environ["SHERD_BIN"])
HELP = house.helper(BIN)
FILES = [document for _, documents in house.unrendered() for document in documents]


def find(documents, kind, name):
    return next(document for document in documents
                if document["kind"] == kind and document["metadata"]["name"] == name)


def worker_pod(documents):
    return find(documents, "StatefulSet", "sherd-worker")["spec"]["template"]["spec"]


def worker(documents):
    return worker_pod(documents)["containers"][0]


def jobs(documents):
    return [job["template"]["spec"] for job in find(documents, "JobSet", "train")["spec"]["replicatedJobs"]]


def client(documents):
    return jobs(documents)[2]["template"]["spec"]["containers"][0]


def change_argument(documents, old, new):
    arguments = worker(documents)["args"]
    arguments[arguments.index(old)] = new


# What a mistake is → what is done, and a piece of what is said about it.
MISTAKES = {
    "a misspelt key": (lambda d: worker_pod(d).update(terminationGracePeriod=3), "terminationGracePeriod"),
    "a value of another type": (
        lambda d: worker(d)["ports"][0].update(containerPort="9401"),
        "is not of type 'integer'"),
    "a misspelt key in a PodMonitor": (
        lambda d: find(d, "PodMonitor", "sherd-workers")["spec"].update(podTargetLabel=[]),
        "podTargetLabel"),
    "a misspelt key in a JobSet": (
        lambda d: find(d, "JobSet", "train")["spec"]["failurePolicy"].update(maxRestart=3),
        "maxRestart"),
    "a misspelt key in a job of a JobSet": (
        lambda d: jobs(d)[0].update(backoff=3),
        "backoff"),
    "a kind that no schema knows": (
        lambda d: d.append({"apiVersion": "v1", "kind": "Node2", "metadata": {"name": "a"}}),
        "kind Node2"),
    "a pod that may be root": (lambda d: worker_pod(d)["securityContext"].pop("runAsNonRoot"), "runAsNonRoot"),
    "another user": (lambda d: worker_pod(d)["securityContext"].update(runAsUser=1000), "runAsUser is not 65532"),
    "no seccomp profile": (lambda d: worker_pod(d)["securityContext"].pop("seccompProfile"), "no seccomp"),
    "capabilities": (
        lambda d: worker(d)["securityContext"].update(capabilities={"add": ["IPC_LOCK"], "drop": ["ALL"]}),
        "capabilities"),
    "a root file system that can be written": (
        lambda d: worker(d)["securityContext"].pop("readOnlyRootFilesystem"),
        "can be written"),
    "privilege escalation": (lambda d: worker(d)["securityContext"].pop("allowPrivilegeEscalation"), "escalation"),
    "the node's network": (lambda d: worker_pod(d).update(hostNetwork=True), "hostNetwork"),
    "a path of the node": (
        lambda d: worker_pod(d)["volumes"].append({"name": "n", "hostPath": {"path": "/"}}),
        "path of the node"),
    "a token of the service account": (lambda d: worker_pod(d).pop("automountServiceAccountToken"), "token"),
    "no limit of memory": (lambda d: worker(d).pop("resources"), "no limit of memory"),
    "the image of the day": (lambda d: worker(d).update(image="sherd:latest"), "has no version"),
    "a flag that is not there": (lambda d: change_argument(d, "--threads=1", "--cores=1"), "no flag --cores"),
    "a program that is not there": (lambda d: worker(d).update(command=["sherd-node"]), "no program of the image"),
    "a required flag left out": (lambda d: worker(d)["args"].pop(0), "needs --coordinator"),
    "all cores of the node": (lambda d: change_argument(d, "--devices=cpu:4", "--devices=all"), "cores of the node"),
    "more slots than metrics ports": (
        lambda d: change_argument(d, "--devices=cpu:4", "--devices=cpu:5"),
        "metrics are served at"),
    "a probe of a port that is not there": (
        lambda d: worker(d)["readinessProbe"]["grpc"].update(port=9599),
        "asks port 9599"),
    "a variable that nothing reads": (
        lambda d: worker(d)["env"].append({"name": "SHERD_TLS", "value": "1"}),
        "nothing reads SHERD_TLS"),
    "a mount of nothing": (lambda d: worker_pod(d)["volumes"].pop(), "no volume output"),
    "killed before all is handed over": (
        lambda d: worker_pod(d).update(terminationGracePeriodSeconds=20),
        "killed before"),
    "a service that leads nowhere": (
        lambda d: find(d, "Service", "sherd-coordinator")["spec"]["selector"].update(app="x"),
        "selects no pod"),
    "a service to a port that is not there": (
        lambda d: find(d, "Service", "sherd-coordinator")["spec"]["ports"][0].update(targetPort="http"),
        "['http']"),
    "a budget of nothing": (
        lambda d: find(d, "PodDisruptionBudget", "sherd")["spec"]["selector"].update(matchLabels={"a": "b"}),
        "selects no pod"),
    "a port that is not scraped": (
        lambda d: find(d, "PodMonitor", "sherd-workers")["spec"]["podMetricsEndpoints"].pop(),
        "does not scrape metrics-3"),
    "a port hidden from monitoring": (
        lambda d: find(d, "NetworkPolicy", "sherd-workers")["spec"]["ingress"][1]["ports"][0].pop("endPort"),
        "hides port 9402"),
    "a coordinator that is not there": (
        lambda d: change_argument(d, "--coordinator=sherd-coordinator:7700", "--coordinator=coordinator:7700"),
        "nobody serves at coordinator:7700"),
    "a job of a JobSet without a name in the network": (
        lambda d: jobs(d)[0].pop("completionMode"),
        "nobody serves at train"),
    "a ConfigMap that is not there": (
        lambda d: d.remove(find(d, "ConfigMap", "train-job")),
        "no ConfigMap train-job"),
    "a command that is not there": (lambda d: client(d).update(args=["sherd follow train"]), "no command follow"),
}

# The same of pods with GPUs.
GPU_MISTAKES = {
    "fewer GPUs than workers": (
        lambda d: worker(d)["resources"]["limits"].update({"nvidia.com/gpu": "2"}), "on GPUs ['4'] and asks for 2"),
    "GPUs without workers": (lambda d: change_argument(d, "--devices=cuda:4", "--devices=cpu:4"), "on GPUs [] and asks for 4"),
    "the image without CUDA": (lambda d: worker(d).update(image="sherd:0.1.0"), "go with the image sherd-cuda"),
    "nodes that it does not tolerate": (lambda d: worker_pod(d).pop("tolerations"), "does not tolerate"),
    "the runtime's shared memory": (
        lambda d: worker(d)["volumeMounts"].remove(next(m for m in worker(d)["volumeMounts"] if m["name"] == "shm")),
        "no /dev/shm"),
    "shared memory on a disk": (lambda d: shared_memory(d).pop("medium"), "no /dev/shm in memory"),
    "shared memory without an end": (lambda d: shared_memory(d).pop("sizeLimit"), "may take all"),
    "more shared memory than memory": (lambda d: shared_memory(d).update(sizeLimit="64Gi"), "may take all"),
}


def shared_memory(documents):
    return next(volume for volume in worker_pod(documents)["volumes"] if volume["name"] == "shm")["emptyDir"]


def objects():
    """All whole objects, and the ConfigMap that kustomize would add to them."""
    return copy.deepcopy(FILES) + [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "train-job"}}]


def problems_of(documents):
    return list(house.check_documents(documents, HELP)) or list(house.check_together(documents))


class Manifests(unittest.TestCase):
    def test_everything_that_people_apply_is_sound(self):
        problems, count = house.check_all(BIN)
        self.assertEqual(problems, [])
        self.assertGreater(count, 10)

    def test_every_mistake_is_found(self):
        self.assertEqual(problems_of(objects()), [])
        for name, (make, said) in MISTAKES.items():
            with self.subTest(name):
                documents = objects()
                make(documents)
                problems = problems_of(documents)
                self.assertTrue(any(said in problem for problem in problems), problems)

    @unittest.skipUnless(house.kubectl(), "no kubectl 1.27 or later")
    def test_every_mistake_in_a_pod_with_gpus_is_found(self):
        rendered = house.render(house.kubectl(), house.KUBERNETES / "overlays/gpu")
        for name, (make, said) in GPU_MISTAKES.items():
            with self.subTest(name):
                documents = copy.deepcopy(rendered)
                make(documents)
                problems = problems_of(documents)
                self.assertTrue(any(said in problem for problem in problems), problems)

    @unittest.skipUnless(house.kubectl(), "no kubectl 1.27 or later")
    def test_overlays_say_what_they_promise(self):
        rendered = {path.name: house.render(house.kubectl(), path) for path in house.kustomizations()}
        self.assertEqual(set(rendered), {"base", "cpu", "spot", "secure", "dev-cpu", "gpu", "gpu-rdma", "jobset"})
        spot = find(rendered["spot"], "StatefulSet", "sherd-worker")["spec"]
        self.assertEqual(spot["replicas"], 3)
        self.assertTrue(spot["template"]["spec"]["tolerations"])
        coordinator = find(rendered["spot"], "StatefulSet", "sherd-coordinator")["spec"]["template"]["spec"]
        self.assertNotIn("tolerations", coordinator, "the coordinator stays where nodes stay")
        for claim in ("sherd-data", "sherd-output"):
            volume = find(rendered["dev-cpu"], "PersistentVolumeClaim", claim)
            self.assertEqual(volume["spec"]["accessModes"], ["ReadWriteOnce"])
        self.assertEqual(len(worker(rendered["dev-cpu"])["ports"]), 3)
        for name, file in (("sherd-coordinator", "SHERD_TOKENS"), ("sherd-worker", "SHERD_TOKEN_FILE")):
            container = find(rendered["secure"], "StatefulSet", name)["spec"]["template"]["spec"]["containers"][0]
            given = {each["name"]: each["value"] for each in container["env"]}
            self.assertEqual(set(given), {"SHERD_TLS_CA", "SHERD_TLS_CERTIFICATE", "SHERD_TLS_KEY", file})
            mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
            for path in given.values():
                self.assertIn(path.rsplit("/", 1)[0], mounts)
        for name, devices in (("gpu", {"nvidia.com/gpu"}), ("gpu-rdma", {"nvidia.com/gpu", "rdma/hca_shared_devices_a"})):
            pod = worker_pod(rendered[name])
            self.assertEqual(set(pod["containers"][0]["resources"]["limits"]) - {"memory"}, devices)
            self.assertIn("/dev/shm", [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]])
            self.assertEqual([each["key"] for each in pod["tolerations"]], ["nvidia.com/gpu"])
            self.assertEqual(pod["containers"][0]["image"], worker(rendered["cpu"])["image"].replace("sherd:", "sherd-cuda:"))
            # But for slots and their threads it starts as others do.
            self.assertEqual([word for word in pod["containers"][0]["args"] if word not in ("--devices=cuda:4", "--threads=4")],
                             [word for word in worker(rendered["cpu"])["args"] if word not in ("--devices=cpu:4", "--threads=1")])
        template = find(rendered["gpu-rdma"], "StatefulSet", "sherd-worker")["spec"]["template"]
        self.assertEqual(template["metadata"]["annotations"], {"k8s.v1.cni.cncf.io/networks": "sherd-rdma"})
        dashboards = [document for document in rendered["cpu"] if document["kind"] == "ConfigMap"]
        self.assertEqual(len(dashboards), len(list((ROOT / "dashboards").glob("*.json"))))
        for dashboard in dashboards:
            self.assertEqual(dashboard["metadata"]["labels"]["grafana_dashboard"], "1")

    @unittest.skipUnless(house.kubectl(), "no kubectl 1.27 or later")
    def test_the_overlay_of_the_documentation_names_the_image_everywhere(self):
        page = (ROOT / "docs/kubernetes.md").read_text()
        text = re.search(r"```yaml\n(apiVersion: kustomize.+?)```", page, re.DOTALL).group(1)
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "sherd").symlink_to(ROOT)
            overlay = pathlib.Path(folder) / "my-overlay"
            overlay.mkdir()
            (overlay / "kustomization.yaml").write_text(text)
            answer = subprocess.run([house.kubectl(), "kustomize", str(overlay)], capture_output=True, text=True)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(set(re.findall(r"image: (.+)", answer.stdout)), {"registry.example/sherd:0.1.0"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
