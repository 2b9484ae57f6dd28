"""python -m cpuslab run [OPTIONS] PROGRAM [ARGUMENT...], python -m cpuslab library."""
import os
import sys

from . import library

USAGE = """usage: python -m cpuslab run [--all] [KEY:VALUE[,...]] APP.py [ARGUMENT...]
       python -m cpuslab run [--all] [KEY:VALUE[,...]] -m MODULE [ARGUMENT...]
       python -m cpuslab run [--all] [KEY:VALUE[,...]] -- PROGRAM [ARGUMENT...]
       python -m cpuslab library        the path of the library, for LD_PRELOAD

run replaces itself by the program, with cpuslab as its malloc and that of its children.  Python allocates objects of up to
512 bytes by itself, from pieces that it takes from the system; --all sends them to malloc, too (PYTHONMALLOC=malloc)."""


def run(arguments):
    environment = dict(os.environ)
    if arguments[:1] == ["--all"]:
        environment["PYTHONMALLOC"] = "malloc"
        del arguments[0]
    if arguments and not arguments[0].startswith("-") and ":" in arguments[0] and not os.path.exists(arguments[0]):
        environment["CPUSLAB_OPTIONS"] = arguments.pop(0)
    if not arguments:
        sys.exit(USAGE)
    if arguments[0] == "--":
        command = arguments[1:] or sys.exit(USAGE)
    else:
        command = [sys.executable, *arguments]
    others = environment.get("LD_PRELOAD")
    environment["LD_PRELOAD"] = library() + (":" + others if others else "")
    os.execvpe(command[0], command, environment)


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"]:
        run(arguments[1:])
    elif arguments == ["library"]:
        print(library())
    else:
        sys.exit(USAGE)


if __name__ == "__main__":
    main()
