#!/usr/bin/env python3
"""Fails when a Kubernetes manifest is not what clusters, the pod security standards and our daemons take.

  scripts/check_manifests.py --bin build/release/bin

Renders every kustomization below deploy/kubernetes with kubectl 1.27 or later; without it says so loudly and looks at
the files one by one, without their patches. Each object is held strictly against the published schemas of the oldest
and the newest Kubernetes that we name, or a schema of ours where the kind is not Kubernetes' own; each pod against the
restricted standard; command lines against the binaries' own --help; ports, probes, volumes and selectors against each
other.
"""

import argparse
import functools
import json
import pathlib
import re
import shutil
import subprocess
import sys

import jsonschema
import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
KUBERNETES = ROOT / "deploy/kubernetes"
SCHEMAS = ROOT / "tests/deploy/schemas"
VERSIONS = ("1.29", "1.37")
OLDEST_KUBECTL = (1, 27)
USER = 65532
OURS = ("sherd", "sherd-coordinator", "sherd-worker")


# What a kustomization becomes.

def kubectl():
    """The program, or None where there is none, or one that is too old."""
    program = shutil.which("kubectl")
    if program is None:
        return None
    answer = subprocess.run([program, "version", "--client", "-o", "json"], capture_output=True, text=True)
    found = re.search(r'"gitVersion": "v(\d+)\.(\d+)', answer.stdout)
    return program if found and tuple(map(int, found.groups())) >= OLDEST_KUBECTL else None


def kustomizations():
    """The directories that people apply: no components, which are part of others."""
    return [path.parent for path in sorted(KUBERNETES.rglob("kustomization.yaml"))
            if yaml.safe_load(path.read_text())["kind"] == "Kustomization"]


def render(program, directory):
    answer = subprocess.run([program, "kustomize", str(directory)], capture_output=True, text=True)
    if answer.returncode != 0:
        raise SystemExit(f"{directory.relative_to(ROOT)}: {answer.stderr}")
    return [document for document in yaml.safe_load_all(answer.stdout) if document]


def unrendered():
    """Whole objects, file by file, with the version of the image; no kustomizations and no patches."""
    version = yaml.safe_load((KUBERNETES / "base/kustomization.yaml").read_text())["images"][0]["newTag"]
    for path in sorted(KUBERNETES.rglob("*.yaml")):
        if "overlays" in path.parts or path.name in ("kustomization.yaml", "job.yaml"):
            continue
        documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
        if any(document["kind"] == "StatefulSet" and "selector" not in document["spec"] for document in documents):
            continue  # a patch
        for container in (container for pod in pods(documents) for container in pod[2]["containers"]):
            container["image"] += f":{version}"
        yield path, documents


# Schemas.

@functools.cache
def schema_problems(text, version):
    """What is wrong with an object, as JSON, by the schema of its kind: Kubernetes' own, or ours."""
    document, problems = json.loads(text), []
    own = SCHEMAS / f"{document['kind'].lower()}.json"
    try:
        if own.exists():
            jsonschema.validate(document, json.loads(own.read_text()))
        else:
            kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.SchemaNotFoundError as error:
        problems.append(error.message)
    except jsonschema.ValidationError as error:
        problems.append(f"{'.'.join(map(str, error.path))}: {error.message}")
    return problems


def check_schema(document, version):
    """An object, and the Jobs within a JobSet, against their schemas."""
    yield from schema_problems(json.dumps(document, sort_keys=True), version)
    if document["kind"] == "JobSet":
        for job in document["spec"]["replicatedJobs"]:
            yield from (f"{job['name']}: {problem}" for problem in check_schema(
                {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, **job["template"]}, version))


# Pods.

def pods(documents):
    """Name, labels and spec of every pod that the objects make."""
    for document in documents:
        name = document["metadata"]["name"]
        if document["kind"] == "StatefulSet":
            template = document["spec"]["template"]
            claims = [claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", [])]
            yield name, template["metadata"]["labels"], template["spec"], claims
        elif document["kind"] == "JobSet":
            for job in document["spec"]["replicatedJobs"]:
                template = job["template"]["spec"]["template"]
                yield f"{name}/{job['name']}", template["metadata"]["labels"], template["spec"], []


def check_restricted(spec):
    """The restricted pod security standard, and what we promise beyond it."""
    whole = spec.get("securityContext", {})
    wanted = {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER}
    for key, value in wanted.items():
        if whole.get(key) != value:
            yield f"securityContext.{key} is not {value}"
    if whole.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "no seccomp profile"
    if spec.get("automountServiceAccountToken") is not False:
        yield "a token of the service account is mounted"
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(key):
            yield f"{key} is set"
    if any("hostPath" in volume for volume in spec.get("volumes", [])):
        yield "a path of the node is mounted"
    for container in spec["containers"] + spec.get("initContainers", []):
        own = container.get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False:
            yield f"{container['name']}: privilege escalation is allowed"
        if own.get("readOnlyRootFilesystem") is not True:
            yield f"{container['name']}: its root file system can be written"
        if own.get("capabilities") != {"drop": ["ALL"]}:
            yield f"{container['name']}: capabilities are not all dropped"
        if own.get("privileged") or any(key in own for key in ("runAsUser", "runAsNonRoot", "seccompProfile")):
            yield f"{container['name']}: it has other rights than its pod"
        if "memory" not in container.get("resources", {}).get("limits", {}):
            yield f"{container['name']}: no limit of memory"
        if not re.search(r":(?!latest$).+", container["image"].rsplit("/", 1)[-1]):
            yield f"{container['name']}: image {container['image']} has no version"


def check_words(words, help_of):
    """A command line against the --help of the program that it starts."""
    program = words[0]
    if program not in OURS:
        yield f"{program} is no program of the image"
        return
    if program == "sherd":
        if words[1] not in re.findall(r"^  (\w+)", help_of("sherd --help"), re.MULTILINE):
            yield f"sherd has no command {words[1]}"
        known = set(re.findall(r"--[a-z-]+", help_of(f"sherd {words[1]} --help")))
    else:
        known = set(re.findall(r"--[a-z-]+", help_of(f"{program} --help")))
    for word in words[1:]:
        if word.startswith("--") and word.split("=")[0] not in known:
            yield f"{program} has no flag {word.split('=')[0]}"
    required = re.findall(r"^\s+(--[a-z-]+).*REQUIRED", help_of(f"{program} --help"), re.MULTILINE)
    for flag in required:
        if not any(word.split("=")[0] == flag for word in words[1:]):
            yield f"{program} needs {flag}"


def variables(program, help_of):
    """The environment variables that a program reads, as its manual page says."""
    return set(re.findall(r"\\fB(SHERD_\w+)\\fR", help_of(f"{program} --man")))


def helper(binaries):
    """Reads a program's --help once: "sherd submit --help" → text."""
    texts = {}

    def read(command):
        if command not in texts:
            program, *rest = command.split()
            texts[command] = subprocess.run([str(binaries / program), *rest], capture_output=True, text=True).stdout
        return texts[command]

    return read


def command_lines(container):
    """The command lines of a container; those within a shell's script too."""
    words = container["command"] + container.get("args", [])
    if words[0] != "sh":
        return [words]
    return [match.split() for match in re.findall(r"\bsherd(?:-\w+)? [^;)|&]+", words[-1])]


def metrics_ports(words):
    """The ports at which a daemon with this command line serves its metrics."""
    values = dict(word.split("=", 1) for word in words if "=" in word)
    if "--metrics" not in values:
        return []
    first = int(values["--metrics"].rsplit(":", 1)[1])
    slots = values.get("--devices", "cpu:1").rpartition(":")[2]
    return list(range(first, first + int(slots))) if slots.isdigit() else []


BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def size(quantity):
    """Bytes of a quantity such as 8Gi."""
    return int(quantity[:-2]) * BINARY[quantity[-2:]] if quantity[-2:] in BINARY else int(quantity)


def check_devices(spec):
    """Who asks for GPUs has a worker on each and the image for them, may be where they are, and has shared memory of a
    size that its own limit holds."""
    for container in spec["containers"]:
        limits = container.get("resources", {}).get("limits", {})
        slots = [word.removeprefix("--devices=cuda:") for word in container.get("args", [])
                 if word.startswith("--devices=cuda:")]
        if slots != [limits[key] for key in ("nvidia.com/gpu",) if key in limits]:
            yield f"{container['name']}: it has workers on GPUs {slots} and asks for {limits.get('nvidia.com/gpu')}"
        if bool(slots) != container["image"].rsplit("/", 1)[-1].startswith("sherd-cuda:"):
            yield f"{container['name']}: workers on GPUs go with the image sherd-cuda, and that with them"
        if "nvidia.com/gpu" not in limits:
            continue
        if not any(each.get("key") == "nvidia.com/gpu" for each in spec.get("tolerations", [])):
            yield f"{container['name']}: it asks for GPUs and does not tolerate the taint of their nodes"
        mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", [])}
        [shared] = [volume.get("emptyDir", {}) for volume in spec.get("volumes", [])
                    if volume["name"] == mounts.get("/dev/shm")] or [{}]
        if shared.get("medium") != "Memory":
            yield f"{container['name']}: it asks for GPUs and has no /dev/shm in memory"
        elif size(shared.get("sizeLimit", limits["memory"])) >= size(limits["memory"]):
            yield f"{container['name']}: its /dev/shm may take all of its memory"


def check_pod(labels, spec, claims, help_of, grace):
    yield from check_restricted(spec)
    yield from check_devices(spec)
    for container in spec["containers"]:
        lines = command_lines(container)
        for words in lines:
            yield from check_words(words, help_of)
            if "--devices=all" in words:
                yield f"{container['name']}: --devices=all counts the cores of the node"
        for each in container.get("env", []):
            read = {name for words in lines if words[0] in OURS for name in variables(words[0], help_of)}
            if each["name"].startswith("SHERD_") and each["name"] not in read:
                yield f"{container['name']}: nothing reads {each['name']}"
        ports = {port.get("name"): port["containerPort"] for port in container.get("ports", [])}
        served = metrics_ports(lines[0])
        if sorted(port for name, port in ports.items() if name.startswith("metrics")) != served:
            yield f"{container['name']}: metrics are served at {served}, its ports are {ports}"
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            for kind in ("grpc", "httpGet"):
                port = container.get(probe, {}).get(kind, {}).get("port")
                if port is not None and port not in ports and port not in ports.values():
                    yield f"{container['name']}: {probe} asks port {port}, which is not there"
        volumes = [volume["name"] for volume in spec.get("volumes", [])] + claims
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield f"{container['name']}: there is no volume {mount['name']}"
        if lines[0][0] == "sherd-worker" and spec.get("terminationGracePeriodSeconds", 30) <= grace:
            yield f"{container['name']}: killed before the supervisor has waited {grace} s for its workers"


def supervisor_patience():
    """Seconds that a supervisor waits for its workers to leave, from the sources."""
    header = (ROOT / "worker/agent/supervisor.h").read_text()
    return int(re.search(r"stop_limit = absl::Seconds\((\d+)\)", header).group(1))


# Objects beside each other.

# Kind → how its objects say which pods they are about.
SELECTORS = {
    "Service": lambda spec: {"matchLabels": spec["selector"]},
    "NetworkPolicy": lambda spec: spec["podSelector"],
    "PodDisruptionBudget": lambda spec: spec["selector"],
    "PodMonitor": lambda spec: spec["selector"],
}


def selects(selector, labels):
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    return all(labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", []))


def addresses(documents):
    """HOST:PORT at which pods of the objects serve: services, and indexed jobs of a JobSet."""
    for document in documents:
        name, spec = document["metadata"]["name"], document.get("spec", {})
        if document["kind"] == "Service":
            yield from (f"{name}:{port['port']}" for port in spec["ports"])
        for job in spec.get("replicatedJobs", []) if document["kind"] == "JobSet" else []:
            if job["template"]["spec"].get("completionMode") == "Indexed":
                for port in job["template"]["spec"]["template"]["spec"]["containers"][0].get("ports", []):
                    yield f"{name}-{job['name']}-0-0.{name}:{port['containerPort']}"


def check_coordinator(name, container, known):
    """What a pod calls the coordinator is the address of one."""
    given = [word.split("=", 1)[1] for word in container.get("args", []) if word.startswith("--coordinator=")]
    given += [each["value"] for each in container.get("env", []) if each["name"] == "SHERD_COORDINATOR"]
    yield from (f"{name}: nobody serves at {address}" for address in given if address not in known)


def check_together(documents):
    """Services, policies, budgets and monitors lead to pods of ours; what is mounted or called exists."""
    made = list(pods(documents))
    known = set(addresses(documents))
    names = {(document["kind"], document["metadata"]["name"]) for document in documents}
    for document in documents:
        kind, name, spec = document["kind"], document["metadata"]["name"], document.get("spec", {})
        if kind not in SELECTORS:
            continue
        found = [pod for pod in made if selects(SELECTORS[kind](spec), pod[1])]
        if not found:
            yield f"{kind} {name} selects no pod"
        ports = {port["name"] for pod in found for container in pod[2]["containers"] for port in container["ports"]}
        wanted = {port["targetPort"] for port in spec.get("ports", [])} if kind == "Service" else set()
        if wanted - ports:
            yield f"{kind} {name} leads to ports {sorted(wanted - ports)}, which no pod has"
        if kind == "NetworkPolicy":
            yield from check_policy(document, found)
        if kind == "PodMonitor":
            scraped = {endpoint["port"] for endpoint in spec["podMetricsEndpoints"]}
            for port in sorted(port for port in ports if port.startswith("metrics") and port not in scraped):
                yield f"{kind} {name} does not scrape {port}"
    for name, _, spec, _ in made:
        for container in spec["containers"]:
            yield from check_coordinator(name, container, known)
        for volume in spec.get("volumes", []):
            config = volume.get("configMap", {}).get("name")
            if config is not None and ("ConfigMap", config) not in names:
                yield f"{name}: there is no ConfigMap {config}"


def check_policy(policy, found):
    """Whoever scrapes reaches every metrics port of the pods that a network policy closes."""
    opened = set()
    for rule in policy["spec"].get("ingress", []):
        if any("namespaceSelector" in peer for peer in rule.get("from", [])):
            for port in rule["ports"]:
                opened.update(range(port["port"], port.get("endPort", port["port"]) + 1))
    for _, _, spec, _ in found:
        for port in (port for container in spec["containers"] for port in container["ports"]):
            if port["name"].startswith("metrics") and port["containerPort"] not in opened:
                yield f"NetworkPolicy {policy['metadata']['name']} hides port {port['containerPort']} from monitoring"


def check_documents(documents, help_of):
    malformed = [f"{document['kind']} {document['metadata']['name']}: Kubernetes {version}: {problem}"
                 for document in documents for version in VERSIONS for problem in check_schema(document, version)]
    yield from malformed
    if malformed:
        return
    for name, labels, spec, claims in pods(documents):
        yield from (f"{name}: {problem}"
                    for problem in check_pod(labels, spec, claims, help_of, supervisor_patience()))


def check_all(binaries):
    """Problems, and how many objects were looked at, of all that is in deploy/kubernetes."""
    help_of, program, problems, count = helper(binaries), kubectl(), [], 0
    if program is None:
        print("check_manifests: SKIPPED: no kubectl 1.27 or later, so no overlay and no patch was rendered",
              file=sys.stderr)
        for path, documents in unrendered():
            count += len(documents)
            problems += [f"{path.relative_to(ROOT)}: {problem}" for problem in check_documents(documents, help_of)]
        return problems, count
    for directory in kustomizations():
        documents = render(program, directory)
        count += len(documents)
        found = list(check_documents(documents, help_of)) or list(check_together(documents))
        problems += [f"{directory.relative_to(ROOT)}: {problem}" for problem in found]
    return problems, count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    problems, count = check_all(parser.parse_args().bin)
    for problem in problems:
        print(problem)
    print(f"check_manifests: {count} objects, {len(problems)} problems")
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
