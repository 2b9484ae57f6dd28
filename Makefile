# A thin front for CMake and Ninja: everything real is in CMakeLists.txt and scripts/.
#
#   make          build/libcpuslab.so, build/libcpuslab.a, build/cpuslab.o and build/cpuslab
#   make bench    build, then real programs and the seeds' micro tests beside the system's malloc
#   make test     build every variant from nothing and run every test (what CI runs)
#   make soak     the long runs: stress, fork storms, models at larger bounds
#   make install  PREFIX=/usr/local DESTDIR=

BUILD  ?= build
PREFIX ?= /usr/local

# A folder that somebody configured with another generator keeps it.
all: tools-build
	@cmake -S . -B "$(BUILD)" $(if $(wildcard $(BUILD)/CMakeCache.txt),,-G Ninja) -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$(PREFIX)" >/dev/null
	@cmake --build "$(BUILD)"

tools-build:
	@scripts/packages build

bench: all
	@scripts/packages bench
	@"$(BUILD)/cpuslab" bench quick

test:
	@scripts/packages build test
	@scripts/test

soak:
	@scripts/packages build test
	@scripts/soak

install: all
	@umask 022 && DESTDIR="$(DESTDIR)" cmake --install "$(BUILD)" --prefix "$(PREFIX)"
# The loader looks into a list that was made before.  Only root can make it anew, and a package does so itself.
	@[ -n "$(DESTDIR)" ] || PATH="$$PATH:/usr/sbin:/sbin" ldconfig 2>/dev/null || true

clean:
	rm -rf "$(BUILD)" build-*

.PHONY: all tools-build bench test soak install clean
