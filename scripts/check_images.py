#!/usr/bin/env python3
"""Fails when an image, the compose file or the systemd units are not what their programs and our daemons take.

  scripts/check_images.py --bin build/release/bin

Builds and starts nothing: Dockerfiles are read; the compose file is held against the schema of the Compose
specification (of PyPI's docker-compose), the units against systemd-analyze where it is there, Prometheus' configuration
against promtool, command lines against the binaries' own --help, the image's packages against the libraries that the
binaries ask for.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import jsonschema
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_manifests  # noqa: E402

ROOT = check_manifests.ROOT
USER = "65532:65532"
LABELS = ("title", "description", "version", "revision", "base.name")
# Every Debian system has these.
ESSENTIAL = {"libc6", "libgcc-s1"}
# systemd's own scale: 0 is closed, 10 is open.
MOST_EXPOSED = 3.0


def read(name):
    return (ROOT / name).read_text()


def project_version():
    return re.search(r"project\(sherd VERSION ([0-9.]+)", read("CMakeLists.txt")).group(1)


# The image.

def instructions(text):
    """Instruction and argument, lines joined and comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def stages(text):
    """Name (or number) and instructions of each stage."""
    found = []
    for word, argument in instructions(text):
        if word == "FROM":
            name = re.search(r" AS (\w+)$", argument)
            found.append((name.group(1) if name else str(len(found)), []))
        found[-1][1].append((word, argument))
    return found


def check_dockerfile(text, version):
    names = [name for name, _ in stages(text)]
    for _, stage in stages(text):
        for word, argument in stage:
            if word == "FROM" and not re.search(r":\d", argument):
                yield f"FROM {argument}: no version"
            if word == "ADD":
                yield "ADD, where COPY does"
            if word == "RUN" and "apt-get install" in argument:
                if "--no-install-recommends" not in argument or "rm -rf /var/lib/apt/lists/*" not in argument:
                    yield "apt-get install brings recommended packages or leaves its lists"
            if word == "COPY":
                *sources, _ = [part for part in argument.split() if not part.startswith("--")]
                stage_name = re.search(r"--from=(\w+)", argument)
                if stage_name and stage_name.group(1) not in names:
                    yield f"COPY from {stage_name.group(1)}, which is no stage"
                for source in sources if not stage_name else []:
                    if not (ROOT / source).exists():
                        yield f"COPY of {source}, which is not there"
    last = dict(reversed(stages(text)[-1][1]))
    if last.get("USER") != USER:
        yield f"the user is not {USER}"
    if not last.get("CMD", last.get("ENTRYPOINT", "")).startswith("["):
        yield "the command goes through a shell"
    labels = " ".join(argument for word, argument in stages(text)[-1][1] if word == "LABEL")
    for label in LABELS:
        if f"org.opencontainers.image.{label}=" not in labels:
            yield f"no label {label}"
    if f"VERSION={version}" not in text:
        yield f"the version is not {version}"
    lists = "".join(path.read_text() for folder in ("client", "coordinator", "kernels", "worker")
                    for path in (ROOT / folder).rglob("CMakeLists.txt"))
    for target in re.search(r"--target ([\w -]+)", text).group(1).split():
        if not re.search(rf"(sherd_binary|add_executable|add_library)\(\s*{target}[\s)]", lists):
            yield f"no target {target}"


def common_instructions(text):
    """Of the last stage, what images with CUDA and without have in common."""
    own = re.compile(r"LABEL|ENV|COPY --from=")
    return [f"{word} {argument}" for word, argument in stages(text)[-1][1] if not own.match(f"{word} {argument}")]


def check_cuda_dockerfile(text, other):
    """What the image with the back end for GPUs has beside what `other`, without it, has."""
    toolkit = re.search(r"FROM nvidia/cuda:(\d+\.\d+)\S* AS toolkit", text)
    needed = re.search(r"VERSION_LESS (\d+\.\d+)", read("kernels/cuda/CMakeLists.txt")).group(1)
    if toolkit is None:
        yield "no stage with CUDA's toolkit"
        return
    if [int(part) for part in toolkit.group(1).split(".")] < [int(part) for part in needed.split(".")]:
        yield f"CUDA {toolkit.group(1)} is older than {needed}, with which no back end is built"
    if f"--from=toolkit /usr/local/cuda-{toolkit.group(1)} /usr/local/cuda" not in text:
        yield f"the toolkit is not that of CUDA {toolkit.group(1)}"
    # worker/device/open_device.cc looks in ../lib/sherd of the program's directory.
    if not re.search(r"/out/lib/sherd \S*/libsherd_cuda\.so", text) or "COPY --from=build /out/ /usr/" not in text:
        yield "the back end is not where a worker looks for it"
    if f"libcublasLt.so.{toolkit.group(1).split('.')[0]} " not in text.replace(")", " "):
        yield f"not the cuBLASLt of CUDA {toolkit.group(1)}"
    given = dict(argument.split("=", 1) for word, argument in stages(text)[-1][1] if word == "ENV")
    if not {"compute", "utility"} <= set(given.get("NVIDIA_DRIVER_CAPABILITIES", "").split(",")):
        yield "the driver's libraries are not asked for"
    ours, theirs = common_instructions(text), common_instructions(other)
    yield from (f"not as in the other image: {line}" for line in ours if line not in theirs)
    yield from (f"only in the other image: {line}" for line in theirs if line not in ours)


def packages_needed(binaries):
    """The Debian packages whose libraries the binaries ask for themselves."""
    libraries = set()
    for program in check_manifests.OURS:
        answer = subprocess.run(["readelf", "-d", str(binaries / program)], capture_output=True, text=True, check=True)
        libraries.update(re.findall(r"\(NEEDED\).*\[(.+)\]", answer.stdout))
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = set()
    for library in libraries:
        path = os.path.realpath(re.search(rf"\b{re.escape(library)} .*=> (\S+)", cache).group(1))
        for name in (path, path.removeprefix("/usr")):
            owner = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True)
            if owner.returncode == 0:
                found.add(owner.stdout.split(":")[0])
                break
    return found - ESSENTIAL


def check_packages(listed, needed):
    yield from (f"{name} is needed and not in packages-runtime.txt" for name in sorted(needed - listed))
    yield from (f"{name} is in packages-runtime.txt and not needed" for name in sorted(listed - needed))


def listed_packages():
    return {line for line in read("scripts/packages-runtime.txt").splitlines() if not line.startswith("#")}


# Compose.

def compose_schema():
    folder = importlib.util.find_spec("compose").submodule_search_locations[0]
    return json.loads((pathlib.Path(folder) / "config/compose_spec.json").read_text())


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text).group(1))


def check_service(name, service, declared, help_of, version):
    image = service["image"]
    ours = image.startswith("sherd:")
    if not re.search(r":v?\d", image) or (ours and image != f"sherd:{version}"):
        yield f"{name}: image {image} has no version, or another"
    if service.get("cap_drop") != ["ALL"] or "no-new-privileges:true" not in service.get("security_opt", []):
        yield f"{name}: it has more rights than it needs"
    if ours and (service.get("user") != USER or not service.get("read_only")):
        yield f"{name}: it is root, or its root file system can be written"
    for port in service.get("ports", []):
        if not port.startswith("127.0.0.1:"):
            yield f"{name}: port {port} is open to others"
    for volume in service.get("volumes", []):
        source = re.sub(r"\$\{\w+:-(.+?)\}", r"\1", volume).split(":")[0]
        if source.startswith(".") and not (ROOT / "deploy/compose" / source).exists():
            yield f"{name}: {source} is not there"
        elif not source.startswith(".") and source not in declared:
            yield f"{name}: there is no volume {source}"
    if ours:
        yield from (f"{name}: {problem}" for problem in check_manifests.check_words(service["command"], help_of))
        if "healthcheck" in service:
            test = service["healthcheck"]["test"][1:]
            yield from (f"{name}: {problem}" for problem in check_manifests.check_words(test, help_of))
        patience = check_manifests.supervisor_patience()
        if service["command"][0] == "sherd-worker" and seconds(service.get("stop_grace_period", "10s")) <= patience:
            yield f"{name}: killed before the supervisor has waited {patience} s for its workers"


def check_compose(compose, scraping, help_of, version):
    try:
        jsonschema.Draft201909Validator(compose_schema()).validate(compose)
    except jsonschema.ValidationError as error:
        yield f"{'.'.join(map(str, error.path))}: {error.message}"
        return
    for name, service in compose["services"].items():
        yield from check_service(name, service, compose["volumes"], help_of, version)
    served = {f"{name}:{port}" for name, service in compose["services"].items() if "command" in service
              for port in check_manifests.metrics_ports(service["command"])}
    scraped = {target for job in scraping["scrape_configs"] for group in job["static_configs"]
               for target in group["targets"]}
    if served != scraped:
        yield f"metrics are served at {sorted(served)} and scraped at {sorted(scraped)}"
    if not all(job.get("honor_labels") for job in scraping["scrape_configs"]):
        yield "Prometheus would rename the label job"


def check_scraping(promtool):
    """Prometheus' own word on its configuration, with the alerts beside it as in the container."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "deploy/compose/prometheus.yml", folder)
        shutil.copy(ROOT / "dashboards/alerts.yaml", folder)
        command = [promtool, "check", "config", f"{folder}/prometheus.yml"]
        answer = subprocess.run(command, capture_output=True, text=True)
        if answer.returncode != 0:
            yield answer.stdout + answer.stderr


# systemd.

def settings(text):
    """Section.key → values, in their order."""
    found, section = {}, ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            found.setdefault(f"{section}.{key}", []).append(value)
    return found


def check_unit(text, example, help_of):
    unit = settings(text)
    command = unit["Service.ExecStart"][0]
    defaults = dict(value.split("=", 1) for value in unit.get("Service.Environment", []))
    for name in re.findall(r"\$\{(\w+)\}", command):
        if name not in defaults:
            yield f"{name} has no default"
    for name in re.findall(r"^#?([A-Z_]+)=", example, re.MULTILINE):
        program = command.split()[0].removeprefix("/usr/bin/")
        if name not in check_manifests.variables(program, help_of) and f"${name}" not in command.replace("{", "").replace("}", ""):
            yield f"the example sets {name}, which nothing reads"
    words = [re.sub(r"\$\{(\w+)\}", lambda match: defaults.get(match.group(1), ""), word) for word in command.split()
             if not re.fullmatch(r"\$\w+", word)]
    words[0] = words[0].removeprefix("/usr/bin/")
    yield from check_manifests.check_words(words, help_of)
    extra = re.search(r"^#SHERD_WORKER_FLAGS=(.+)$", example, re.MULTILINE)
    if extra:
        yield from check_manifests.check_words(words + extra.group(1).split(), help_of)
    if words[0] == "sherd-worker":
        if unit.get("Service.KillMode") != ["mixed"]:
            yield "its workers get SIGTERM twice and end at once: KillMode is not mixed"
        patience = check_manifests.supervisor_patience()
        if int(unit.get("Service.TimeoutStopSec", ["90"])[0]) <= patience:
            yield f"killed before the supervisor has waited {patience} s for its workers"
        if unit.get("Service.OOMPolicy") != ["continue"]:
            yield "one worker without memory ends all: OOMPolicy is not continue"


def check_systemd():
    """systemd's own word on the units, in a root directory with programs of these names."""
    if shutil.which("systemd-analyze") is None:
        print("check_images: SKIPPED: no systemd-analyze, so units were only read", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "etc/systemd/system").mkdir(parents=True)
        (root / "usr/bin").mkdir(parents=True)
        for program in check_manifests.OURS:
            (root / "usr/bin" / program).touch(mode=0o755)
        # Targets that every system has.
        for system in ("/lib/systemd/system", "/usr/lib/systemd/system"):
            if pathlib.Path(system).is_dir():
                shutil.copytree(system, root / system.lstrip("/"), symlinks=True, dirs_exist_ok=True)
        for path in sorted((ROOT / "deploy/systemd").glob("*.service")):
            shutil.copy(path, root / "etc/systemd/system")
            verify = subprocess.run(["systemd-analyze", "verify", "--man=no", f"--root={root}", path.name],
                                    capture_output=True, text=True)
            about = [line for line in (verify.stdout + verify.stderr).splitlines() if path.stem in line]
            if about:
                yield f"{path.name}: {'; '.join(about)}"
            security = subprocess.run(["systemd-analyze", "security", "--no-pager", "--offline=yes", str(path)],
                                      capture_output=True, text=True)
            level = re.search(r"exposure level for .*: ([0-9.]+)", security.stdout)
            if level is None or float(level.group(1)) > MOST_EXPOSED:
                yield f"{path.name}: exposed more than {MOST_EXPOSED}: {level and level.group(1)} {security.stderr}"


def check_all(binaries, promtool):
    help_of, version = check_manifests.helper(binaries), project_version()
    plain, cuda = (read(f"deploy/docker/{name}") for name in ("Dockerfile", "Dockerfile.cuda"))
    yield from (f"Dockerfile: {problem}" for problem in check_dockerfile(plain, version))
    yield from (f"Dockerfile.cuda: {problem}" for problem in check_dockerfile(cuda, version))
    yield from (f"Dockerfile.cuda: {problem}" for problem in check_cuda_dockerfile(cuda, plain))
    yield from check_packages(listed_packages(), packages_needed(binaries))
    compose, scraping = (yaml.safe_load(read(f"deploy/compose/{name}")) for name in ("compose.yaml", "prometheus.yml"))
    yield from (f"compose.yaml: {problem}" for problem in check_compose(compose, scraping, help_of, version))
    yield from check_scraping(promtool)
    for name in ("coordinator", "worker"):
        problems = check_unit(read(f"deploy/systemd/sherd-{name}.service"), read(f"deploy/systemd/{name}.env"), help_of)
        yield from (f"sherd-{name}.service: {problem}" for problem in problems)
    yield from check_systemd()
    for folder in ("base", "jobset"):
        tag = yaml.safe_load(read(f"deploy/kubernetes/{folder}/kustomization.yaml"))["images"][0]["newTag"]
        if tag != version:
            yield f"deploy/kubernetes/{folder}: the image's version is {tag}, the project's {version}"
    if f"image: sherd-cuda:{version}\n" not in read("deploy/kubernetes/components/gpu/workers.yaml"):
        yield f"deploy/kubernetes/components/gpu: the image's version is not {version}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--promtool", type=pathlib.Path, default=ROOT / "build/tools/prometheus/usr/bin/promtool")
    arguments = parser.parse_args()
    problems = list(check_all(arguments.bin, arguments.promtool))
    for problem in problems:
        print(problem)
    print(f"check_images: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
