"""Builds the C library beside the package, and names the wheel after the C library that it needs."""
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

# The tree that this folder lies in, or the sources that an sdist carries.
SOURCES = Path(os.environ.get("CPUSLAB_SOURCES", Path(__file__).resolve().parent.parent.parent))
LIBRARY = "libcpuslab.so.0"


class Build(build_py):
    def run(self):
        super().run()
        folder = Path(self.build_lib, "cpuslab").resolve()
        build = Path(self.get_finalized_command("build").build_temp).resolve()
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DCPUSLAB_BUILD_TOOLS=OFF"]
        subprocess.run(["cmake", "-S", str(SOURCES), "-B", str(build), *options], check=True)
        subprocess.run(["cmake", "--build", str(build), "--target", "cpuslab", "-j", str(os.cpu_count() or 1)], check=True)
        target = folder / LIBRARY
        shutil.copyfile(build / LIBRARY, target)
        subprocess.run([os.environ.get("STRIP", "strip"), "--strip-debug", str(target)], check=True)


class Wheel(bdist_wheel):
    def get_tag(self):
        (library,) = Path(self.bdist_dir).rglob(LIBRARY)
        return "py3", "none", f"{c_library(library)}_{platform.machine()}"


def c_library(library):
    """manylinux_2_N for the newest symbol of glibc that it wants, musllinux_1_2 where it wants none."""
    text = subprocess.run(["objdump", "-T", str(library)], check=True, capture_output=True, text=True).stdout
    versions = [(int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", text)]
    if not versions:
        return "musllinux_1_2"
    major, minor = max(versions)
    return f"manylinux_{major}_{minor}"


class Binary(Distribution):
    def has_ext_modules(self):
        return True


setup(distclass=Binary, cmdclass={"build_py": Build, "bdist_wheel": Wheel})
