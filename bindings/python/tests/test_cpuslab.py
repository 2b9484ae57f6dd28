"""Run by unittest in a process that cpuslab serves, and once in one that it does not."""
import multiprocessing
import os
import subprocess
import sys
import tempfile
import unittest

import cpuslab


def child_is_served(_):
    return cpuslab.active() and len(bytes(1 << 20))


@unittest.skipUnless(cpuslab.active(), "another malloc")
class Active(unittest.TestCase):
    def test_version(self):
        self.assertEqual(cpuslab.version(), cpuslab.__version__)

    def test_statistics(self):
        blocks = [bytes(2000) for _ in range(1000)]
        self.assertGreater(cpuslab.counters()["slabs_created"], 0)
        self.assertIn("malloc-2048", str(cpuslab.statistics()))
        self.assertTrue(cpuslab.slabinfo().startswith("slabinfo - version"))
        del blocks

    def test_profile(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "heap")
            with cpuslab.profile(path, interval=1 << 16, format="text"):
                blocks = [bytes(5000) for _ in range(5000)]
            with open(path) as file:
                self.assertRegex(file.readline(), r"^heap profile: *[1-9]")
            del blocks
            with self.assertRaises(ValueError):
                with cpuslab.profile(path, format="no such"):
                    pass

    def test_children(self):
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                self.assertEqual(pool.map(child_is_served, range(4)), [1 << 20] * 4)


@unittest.skipIf(cpuslab.active(), "served")
class Inactive(unittest.TestCase):
    def test_says_so(self):
        for function in (cpuslab.version, cpuslab.counters, cpuslab.statistics, cpuslab.slabinfo):
            self.assertRaises(cpuslab.Inactive, function)

    def test_runs_others(self):
        command = [sys.executable, "-m", "cpuslab", "run", "--all", "vcpu:slot", "-c", "import cpuslab; print(cpuslab.active())"]
        self.assertEqual(subprocess.run(command, capture_output=True, text=True, check=True).stdout, "True\n")


if __name__ == "__main__":
    unittest.main()
