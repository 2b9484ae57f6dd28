#!/bin/sh
# SPDX-License-Identifier: MIT
# The kernel's headers (include/kernel) live beside the system's own, whichever comes first, in C and C++ and with both
# compilers, without a warning:
#
#   future     a system whose headers define every macro that is one of ours
#   system     this system's headers that name one of our macros, with CPUSLAB_SOAK=1 all: those of the kernel, of the C library
#              and of the C++ library; for others than the installed ones, KERNEL_HEADERS=DIR (an unpacked linux-libc-dev)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clang=$("$here/../scripts/clang" clang) && clangxx=$("$here/../scripts/clang" clang++) || clang='' clangxx=''
export PYTHONDONTWRITEBYTECODE=1

python3 - "$(cd "$here/.." && pwd)" "$work" gcc g++ $clang $clangxx <<'PYTHON'
import concurrent.futures, os, re, subprocess, sys

source, work, *compilers = sys.argv[1:]
kernel = f'{source}/include/kernel'
ours = sorted(os.path.relpath(os.path.join(folder, name), kernel)
              for folder, _, names in os.walk(kernel) for name in names
              if '#error "cpuslab has no' not in open(os.path.join(folder, name)).read())
if subprocess.run(['gcc', '-E', '-'], input='#include <urcu.h>\n', text=True, capture_output=True).returncode:
    ours.remove('linux/rcupdate.h')
    liburcu = []
else:
    liburcu = ['-DCPUSLAB_KMEM_RCU']
unpacked = os.environ.get('KERNEL_HEADERS')
machine = subprocess.run(['gcc', '-print-multiarch'], text=True, capture_output=True).stdout.strip()
headers = [f'{unpacked}/usr/include', f'{unpacked}/usr/include/{machine}'] if unpacked else []
everything = os.environ.get('CPUSLAB_SOAK', '0') != '0'
failures = 0


def fail(*words):
    global failures
    failures += 1
    print('FAIL kmem_system_headers:', *words, file=sys.stderr)


def included(names):
    return ''.join(f'#include <{name}>\n' for name in names)


def cxx(compiler):
    return '++' in compiler


def compile(compiler, text, *words, with_ours=True):
    """What the compiler has to say of a text."""
    language = ['-x', 'c++', '-std=gnu++17'] if cxx(compiler) else ['-x', 'c', '-std=gnu11']
    folders = ['-DCPUSLAB_UAPI', f'-I{source}/include', f'-I{kernel}'] if with_ours else []
    run = subprocess.run([compiler, *language, '-D_GNU_SOURCE', *liburcu, *folders, *words,
                          *(word for folder in headers for word in ('-isystem', folder)),
                          '-Wall', '-Wextra', '-Wundef', '-Werror', '-fsyntax-only', '-'],
                         input=text, capture_output=True, text=True)
    return run.stderr if run.returncode else ''


def in_parallel(function, cases):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda case: function(*case), cases))


def macros_of_ours():
    """Each macro that a header of the folder defines, with its parameters."""
    text = ''.join(open(f'{kernel}/{name}').read() for name in ours)
    return {name: parameters for name, parameters in re.findall(r'^#define (\w+)(\([^)]*\))?', text, re.MULTILINE)
            if not name.startswith('CPUSLAB_')}


# As Linux has them for itself; whatever else a system may define is of no use to kernel sources.
ATTRIBUTES = """
__rcu
__user
__force
__iomem
__percpu
__acquires(x)
__releases(x)
__must_hold(x)
__counted_by(m)
noinline __attribute__((__noinline__))
noinline_for_stack noinline
__cold __attribute__((__cold__))
__weak __attribute__((__weak__))
__packed __attribute__((__packed__))
__aligned(x) __attribute__((__aligned__(x)))
__must_check __attribute__((__warn_unused_result__))
__maybe_unused __attribute__((__unused__))
__always_unused __attribute__((__unused__))
__printf(a, b) __attribute__((__format__(printf, a, b)))
fallthrough __attribute__((__fallthrough__))
likely(x) __builtin_expect(!!(x), 1)
unlikely(x) __builtin_expect(!!(x), 0)
__read_mostly
__exit
""".strip().splitlines()

macros = macros_of_ours()
assert len(macros) > 200 and {'__counted_by', 'container_of', 'SZ_4K', 'LIST_HEAD'} < set(macros), macros
attributes = {re.match(r'\w+', line)[0]: f'#define {line}\n' for line in ATTRIBUTES}
assert set(attributes) <= set(macros), set(attributes) - set(macros)
# Ours are for C alone as well: a system that has these in C++ breaks the C++ library.
C_ALONE = {'static_assert', 'min', 'max', 'min3', 'max3', 'clamp', 'swap', 'min_not_zero', '__init', '__weak', 'barrier'}
others = {name: f'#define {name}{parameters} what_a_system_may_mean\n' for name, parameters in macros.items()
          if name not in attributes}
for name in C_ALONE & set(others):
    others[name] = f'#ifndef __cplusplus\n{others[name]}#endif\n'


def future(name, file, text):
    os.makedirs(os.path.dirname(f'{work}/{name}/{file}'), exist_ok=True)
    with open(f'{work}/{name}/{file}', 'w') as out:
        out.write(text)
    return f'{work}/{name}'


# In a header that comes with ours, or in another one that a program includes first or last.  Another definition of an attribute
# must be the same to the last token: to see that, it is in no folder of the system's.
first = future('first', 'linux/stddef.h', '#pragma once\n#include_next <linux/stddef.h>\n' +
               ''.join(f'#undef {name}\n{line}' for name, line in {**attributes, **others}.items() if name not in C_ALONE))
plain = future('plain', 'linux/attributes.h', ''.join(attributes.values()))
rest = future('rest', 'linux/others.h', ''.join(others.values()))
uses = """
struct header { u8 kind; u32 length; } __packed __aligned(8);
struct entry { struct list_head list; u32 flags; };
static LIST_HEAD(entries);
static __always_inline __must_check int first(int a, u32 b) { return likely(a) ? min_t(int, a, (int)ALIGN(b, SZ_4K)) : 0; }
int g(struct list_head *node); int g(struct list_head *node) {
	struct entry *of = list_entry(node, struct entry, list);
	WRITE_ONCE(of->flags, (u32)BIT(3));
	return first((int)READ_ONCE(of->flags), 1) && !list_empty(&entries);
}
"""


def try_future(compiler):
    said = {}
    said['<linux/stddef.h> has all of these'] = compile(compiler, included(ours) + uses, '-isystem', first)
    for header in ours if everything else []:
        said[f'<linux/stddef.h> has all of these, {header} alone'] = compile(compiler, included([header]), '-isystem', first)
    said['attributes first'] = compile(compiler, included(['linux/attributes.h'] + ours) + uses, f'-I{plain}')
    said['attributes last'] = compile(compiler, included(ours + ['linux/attributes.h']) + uses, f'-I{plain}')
    said['the others first'] = compile(compiler, included(['linux/others.h'] + ours) + uses, f'-I{rest}')
    said['the others last'] = compile(compiler, included(ours + ['linux/others.h']), '-isystem', rest)
    for what, text in said.items():
        if text:
            fail(f'{compiler}, {what}:\n{text[:1500]}')


def of_the_system():
    """Its headers, as programs name them, and where they are."""
    folders = headers + ['/usr/include', f'/usr/include/{machine}']
    found = {}
    for folder in folders:
        for below in ['linux', 'asm', 'asm-generic', 'sys', 'net', 'netinet', 'sound', 'drm', 'mtd', 'rdma', 'scsi',
                      'video', 'xen', 'misc']:
            for at, _, names in os.walk(f'{folder}/{below}'):
                for name in names:
                    if name.endswith('.h'):
                        file = os.path.join(at, name)
                        found.setdefault(os.path.relpath(file, folder), file)
    for line in subprocess.run(['g++', '-E', '-x', 'c++', '-std=gnu++17', '-'], text=True, capture_output=True,
                               input='#include <string>\n').stdout.splitlines():
        place = re.match(r'# \d+ "(.*)/string" ', line)
        if place:
            for name in os.listdir(place[1]):
                if '.' not in name and os.path.isfile(f'{place[1]}/{name}'):
                    found[name] = f'{place[1]}/{name}'
            break
    return found


def trouble(compiler, names, order):
    """What the compiler has to say of these names beside ours, unless it says that of the system alone."""
    # Those that ours include themselves.
    theirs = included(['linux/stddef.h', 'linux/types.h', 'linux/kernel.h', 'linux/sched.h', 'stdlib.h', 'sched.h'])
    some = included(names)
    said = compile(compiler, some + included(ours) if order == 'first' else included(ours) + some)
    return said and not compile(compiler, some + theirs if order == 'first' else theirs + some, with_ours=False) and said


def try_system(compiler, names, order):
    """Several at once, since most of the time goes into ours; some of the system's do not go together."""
    if len(names) == 1 or compile(compiler, included(names) + included(ours) if order == 'first' else
                                  included(ours) + included(names)):
        for name in names:
            said = trouble(compiler, [name], order)
            if said:
                fail(f'{compiler}, <{name}> {order}:\n{said[:1500]}')


def uses_a_name_of_ours(file):
    text = re.sub(r'/\*.*?\*/|//[^\n]*', '', open(file, errors='replace').read(), flags=re.DOTALL)
    return words.search(text) is not None


for compiler in compilers:
    try_future(compiler)
files = of_the_system()
words = re.compile(r'\b(' + '|'.join(macros) + r')\b')
named = sorted(name for name, file in files.items() if everything or name in ('memory', 'numeric') or uses_a_name_of_ours(file))
assert {'sys/param.h', 'sys/queue.h', 'linux/stddef.h'} <= set(named), named
cases = []
for compiler in compilers if everything else [compilers[0], compilers[-1]]:
    mine = [name for name in named if '.' in name or cxx(compiler)]
    cases += [(compiler, mine[i::8], order) for order in ('first', 'last') for i in range(8)]
in_parallel(try_system, cases)
print(f'{len(macros)} macros, {len(named)} of {len(files)} headers of the system, {" ".join(compilers)}')
sys.exit(failures > 0)
PYTHON
