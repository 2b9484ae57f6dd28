"""cpuslab's malloc under Python: whether it serves this process, its statistics, and heap profiles.

    python -m cpuslab run app.py        # a process with it

    import cpuslab
    cpuslab.active()                    # True there
    cpuslab.counters()["purged_bytes"]
    cpuslab.statistics()["caches"]      # every cache and size class
    with cpuslab.profile("heap.pb"):    # go tool pprof heap.pb
        work()
"""
import contextlib
import ctypes
import json
import os
import tempfile

__all__ = ["Inactive", "active", "counters", "library", "profile", "slabinfo", "statistics", "version"]
__version__ = "0.1.0"

_COUNTERS = (
    "alloc_misses",
    "free_misses",
    "refills",
    "drains",
    "slabs_created",
    "slabs_freed",
    "section_aborts",
    "fences",
    "purged_bytes",
    "lock_acquires",
)
_FORMATS = {"proto": 0, "text": 1}


class Inactive(RuntimeError):
    """This process has another malloc: start it by `python -m cpuslab run`."""


def library():
    """The path of the library that comes with the package, for LD_PRELOAD."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "libcpuslab.so.0")


def active():
    """Whether cpuslab serves malloc in this process."""
    return _process() is not None


def _process():
    # By its own name in the process: opening the file would bring a second heap that nobody uses.
    process = ctypes.CDLL(None, use_errno=True)
    return process if hasattr(process, "cpuslab_version") else None


def _active():
    process = _process()
    if process is None:
        raise Inactive("this process runs on another malloc; start it by: python -m cpuslab run PROGRAM")
    return process


def version():
    """The library's version, "major.minor.patch"."""
    function = _active().cpuslab_version
    function.restype = ctypes.c_char_p
    return function().decode()


def counters():
    """What has happened in this process so far, by name; see cpuslab.h."""
    values = (ctypes.c_uint64 * len(_COUNTERS))()
    _active().cpuslab_read_counters(ctypes.byref(values))
    return dict(zip(_COUNTERS, values))


def _written(function, *arguments):
    with tempfile.TemporaryFile() as file:
        if function(file.fileno(), *arguments) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        file.seek(0)
        return file.read()


def statistics():
    """The statistics of every cache and size class, as `cpuslab info --json` has them."""
    return json.loads(_written(_active().cpuslab_stats_json))


def slabinfo():
    """This process's /proc/slabinfo, as text."""
    return _written(_active().cpuslab_slabinfo).decode()


@contextlib.contextmanager
def profile(path, interval=0, format="proto"):
    """Profiles the heap meanwhile: which stacks allocated what is in use at the end.

    `interval` is the mean of bytes between samples (0: 512 KiB); `format` is "proto" for go tool pprof and
    speedscope, or "text" for jeprof.  Stacks are those of C functions.
    """
    process = _active()
    if format not in _FORMATS:
        raise ValueError(f"no format is called {format!r}")
    process.cpuslab_profile_start.argtypes = [ctypes.c_size_t]
    with open(path, "wb") as file:
        if process.cpuslab_profile_start(interval) != 0:
            raise MemoryError("no memory for a profile")
        try:
            yield
        finally:
            process.cpuslab_profile_stop()
            if process.cpuslab_profile_write(file.fileno(), _FORMATS[format]) != 0:
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error), path)
