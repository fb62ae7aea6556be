"""What a container runtime does, by namespaces alone: files of a root that cannot be written, volumes, a name, names of
services, another user, no rights, and the command as process 1. And the image that scripts/build_image.sh has built."""

import json
import os
import pathlib
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

START = """\
set -e
mount --make-rprivate /
{files}
mkdir -p {root}/proc {root}/dev {directories}
mount --rbind /dev {root}/dev
mount --bind {hosts} {root}/etc/hosts
mount -t proc proc {root}/proc
{volumes}
mount -o remount,bind,ro {root}
hostname {name}
exec chroot {root} /usr/bin/env -i {environment} /usr/bin/setpriv --reuid={user} --regid={group} \\
  --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs {command}
"""


def ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True).returncode == 0


class Machine:
    """In place of an image: this machine's libraries, and the programs of a build."""

    def __init__(self, programs):
        self.programs = programs
        self.environment = {"PATH": "/opt/sherd:/usr/bin:/bin"}

    def mounts(self, root):
        return f"""\
mount -t tmpfs root {root}
mkdir -p {root}/usr {root}/etc {root}/opt/sherd
for link in bin sbin lib lib64; do ln -s usr/$link {root}/$link; done
for each in usr etc; do mount --rbind /$each {root}/$each; done
mount --bind {self.programs} {root}/opt/sherd"""


class Image:
    """A container of the image, with files of its own, until it is closed."""

    def __init__(self, name, storage=ROOT / "build/image"):
        self.storage = storage
        self.container = self.buildah("from", "--pull-never", name)
        self.root = pathlib.Path(self.buildah("mount", self.container))
        self.config = json.loads(self.buildah("inspect", self.container))["OCIv1"]["config"]
        self.environment = dict(each.split("=", 1) for each in self.config["Env"])

    def buildah(self, *words):
        answer = subprocess.run(
            ["buildah", "--storage-driver", "vfs", "--root", str(self.storage / "storage"),
             "--runroot", str(self.storage / "run"), *map(str, words)], capture_output=True, text=True)
        if answer.returncode != 0:
            raise AssertionError(f"buildah {words}: {answer.stdout}{answer.stderr}")
        return answer.stdout.strip()

    def run(self, *words):
        """What a command says, started by buildah as the image has it."""
        return self.buildah("run", "--isolation", "chroot", self.container, "--", *words)

    def close(self):
        self.buildah("rm", self.container)

    def mounts(self, root):
        return f"mount --bind {self.root} {root}\ntouch {root}/etc/hosts"


def image(test):
    """The image under test, or none where none was built."""
    name = os.environ.get("SHERD_IMAGE")
    if not name:
        return None
    found = Image(name)
    test.stack.callback(found.close)
    return found


def command(files, root, namespace, name, hosts, user, volumes, environment, words):
    """The command line that starts a container in a network namespace. `user`: UID:GID; `volumes`: (directory of this
    machine, path in the container, ro or rw)."""
    root.mkdir(exist_ok=True)
    mounts = [(source, root / target.lstrip("/"), mode) for source, target, mode in volumes]
    uid, gid = str(user).split(":")
    script = START.format(
        files=files.mounts(root), root=root, directories=" ".join(str(target) for _, target, _ in mounts), hosts=hosts,
        volumes="\n".join(f"mount --bind {source} {target} && mount -o remount,bind,{mode} {target}"
                          for source, target, mode in mounts),
        name=name, user=uid, group=gid, command=shlex.join(words),
        environment=shlex.join(f"{key}={value}" for key, value in {**files.environment, **environment}.items()))
    return ["ip", "netns", "exec", namespace, "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child",
            "sh", "-c", script]
