"""scripts/build_image.sh where images cannot be built, and where no repository is around; its tools are stand-ins."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOOLS = {
    "id": "echo 0",
    # The archive that it is to make.
    "mmdebstrap": 'for last; do :; done; : > "$last"',
    # No image is there; the one that others are made from, `bud -q`, fails as it is told to.
    "buildah": """echo "$*" >> "$CALLS"
case "$*" in
  *" inspect "*) exit 1 ;;
  *" bud -q "*) [ -z "$FAILURE" ] || { echo "$FAILURE" >&2; exit 125; } ;;
  *" images "*) echo 1 MB ;;
esac""",
}


class BuildImage(unittest.TestCase):
    def setUp(self):
        self.tree = pathlib.Path(tempfile.mkdtemp(prefix="sherd-image-"))
        self.addCleanup(shutil.rmtree, self.tree)
        for name in ("scripts/build_image.sh", "CMakeLists.txt", "deploy/docker/Dockerfile"):
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.tree / name)
        for name, lines in TOOLS.items():
            tool = self.tree / "bin" / name
            tool.parent.mkdir(exist_ok=True)
            tool.write_text(f"#!/bin/sh\n{lines}\n")
            tool.chmod(0o755)

    def build(self, failure=""):
        environment = {**os.environ, "PATH": f"{self.tree / 'bin'}:{os.environ['PATH']}", "FAILURE": failure,
                       "CALLS": str(self.tree / "calls"), "GIT_CEILING_DIRECTORIES": str(self.tree.parent)}
        for name in ("SOURCE_DATE_EPOCH", "GIT_DIR"):
            environment.pop(name, None)
        return subprocess.run([self.tree / "scripts/build_image.sh"], env=environment, capture_output=True, text=True,
                              timeout=50)

    def test_a_tree_without_a_repository_has_an_image_of_unknown_revision(self):
        os.utime(self.tree / "deploy/docker/Dockerfile", (1_700_000_000, 1_700_000_000))
        done = self.build()
        self.assertEqual(done.returncode, 0, done.stderr)
        image = (self.tree / "calls").read_text().splitlines()
        image = [call for call in image if " bud " in call][-1]
        self.assertIn("--build-arg REVISION=unknown ", image)
        self.assertIn("--timestamp 1700000000 ", image)

    def test_what_this_machine_may_not_do_is_no_fault_of_the_image(self):
        # Go's spelling, and the C library's.
        for failure in ("Error: mounting new container: mount /proc: operation not permitted",
                        "mount: /mnt: Operation not permitted."):
            done = self.build(failure)
            self.assertEqual(done.returncode, 77, done.stderr)
            self.assertIn(failure, done.stderr)

    def test_a_broken_step_is_a_fault_of_the_image(self):
        for failure in ("Error: no such file: debian.tar",
                        "chown: changing ownership of '/var/lib/sherd': Operation not permitted"):
            done = self.build(failure)
            self.assertEqual(done.returncode, 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
