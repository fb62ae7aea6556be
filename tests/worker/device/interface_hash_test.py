#!/usr/bin/env python3
"""The hash of the interface of back ends (cmake/InterfaceHash.cmake) is that of every header that says what crosses.

    interface_hash_test.py CMAKE
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
CMAKE = sys.argv.pop(1)
HEADERS = ["kernels/device.h", "kernels/memory.h", "kernels/ops.h", "kernels/dtype.h", "kernels/cuda/plugin.h"]


class InterfaceHash(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="sherd-interface-"))
        self.addCleanup(shutil.rmtree, self.root)
        shutil.copytree(ROOT / "kernels", self.root / "kernels")

    def hash_of(self):
        header, depfile = self.root / "device_interface.h", self.root / "device_interface.d"
        subprocess.run([CMAKE, "-D", f"ROOT={self.root}", "-D", "HEADERS=kernels/device.h,kernels/cuda/plugin.h", "-D",
                        f"OUTPUT={header}", "-D", f"DEPFILE={depfile}", "-P", ROOT / "cmake/InterfaceHash.cmake"], check=True)
        self.listed = depfile.read_text()
        return re.search(r'SHERD_DEVICE_INTERFACE "([0-9a-f]{16})"', header.read_text()).group(1)

    def test_it_is_that_of_all_headers_of_the_interface_and_of_no_other(self):
        first = self.hash_of()
        for header in HEADERS:
            self.assertIn(f"{self.root}/{header}", self.listed)
            path = self.root / header
            text = path.read_text()
            path.write_text(text.replace("int64_t", "int32_t", 1) + "\n")
            self.assertNotEqual(self.hash_of(), first, header)
            path.write_text(text)
            self.assertEqual(self.hash_of(), first, header)
        (self.root / "kernels/cuda/cuda_device.h").write_text("")
        self.assertEqual(self.hash_of(), first)


if __name__ == "__main__":
    unittest.main()
