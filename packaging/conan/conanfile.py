"""cpuslab for Conan 2: `conan create packaging/conan` builds the sources that it lies in."""
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rm, rmdir

SOURCES = os.path.join("..", "..")


class Cpuslab(ConanFile):
    name = "cpuslab"
    license = "MIT"
    description = "The Linux kernel's slab allocators as a C library: a drop-in malloc, caches and locks"
    topics = ("malloc", "allocator", "slab", "rseq")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False]}
    default_options = {"shared": False}

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, SOURCES, "CMakeLists.txt"))
        self.version = re.search(r"project\(cpuslab VERSION ([0-9.]+)", text).group(1)

    def export_sources(self):
        root = os.path.join(self.recipe_folder, SOURCES)
        for pattern in ("CMakeLists.txt", "LICENSE", "README.md", "src/*", "include/*", "cmake/*", "docs/*", "bindings/*.md"):
            copy(self, pattern, root, self.export_sources_folder)

    def configure(self):
        # C; of C++ it has mangled names alone.
        self.settings.rm_safe("compiler.cppstd")
        self.settings.rm_safe("compiler.libcxx")

    def validate(self):
        if self.settings.os != "Linux" or self.settings.arch not in ("x86_64", "armv8", "riscv64"):
            raise ConanInvalidConfiguration("cpuslab runs on 64-bit Linux alone")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["CPUSLAB_BUILD_TOOLS"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        # The linker would take the shared library where both are; and Conan writes its own files for CMake and pkg-config.
        rm(self, "libcpuslab.a" if self.options.shared else "libcpuslab.so*", os.path.join(self.package_folder, "lib"))
        for folder in ("cmake", "pkgconfig"):
            rmdir(self, os.path.join(self.package_folder, "lib", folder))
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "cpuslab")
        malloc = self.cpp_info.components["malloc"]
        malloc.set_property("cmake_target_name", "cpuslab::cpuslab" if self.options.shared else "cpuslab::static")
        malloc.set_property("pkg_config_name", "cpuslab")
        malloc.libs = ["cpuslab"]
        malloc.system_libs = ["pthread"]
        for part in ("caches", "locks"):
            component = self.cpp_info.components[part]
            component.set_property("cmake_target_name", f"cpuslab::{part}")
            component.set_property("pkg_config_name", f"cpuslab-{part}")
            component.libs = [f"cpuslab-{part}"]
            component.system_libs = ["pthread"]
