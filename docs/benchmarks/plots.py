#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Plots of a run of `cpuslab bench`, for these pages: docs/benchmarks/plots.py results.json FOLDER

Writes SVG and PNG. Needs matplotlib (Debian package python3-matplotlib). The CSV beside the plots is the
`results.csv` of the same run."""
import json
import math
import statistics
import sys

import matplotlib
matplotlib.use('svg')
import matplotlib.pyplot as plot

OURS, SYSTEM = 'cpuslab', 'glibc'
COLOURS = {OURS: '#e8590c', SYSTEM: '#868e96'}
OTHERS = ['#1c7ed6', '#0ca678', '#ae3ec9', '#e0a100', '#4263eb', '#74b816', '#e64980', '#15aabf']


class Run:
    def __init__(self, path):
        self.all = json.load(open(path))
        self.machine = self.all['machine']
        self.allocators = [name for name in self.all['allocators'] if not name.startswith('cpuslab ')]
        others = [name for name in self.allocators if name not in COLOURS]
        self.colour = dict(COLOURS, **dict(zip(others, OTHERS)))

    def table(self, group, test, metric, role='measured'):
        """{row: {column: median}}, in the order of measuring."""
        rows = {}
        for s in self.all['series']:
            if (s['group'], s['test'], s['metric'], s['role']) == (group, test, metric, role):
                rows.setdefault(s['parameter'], {})[s['allocator']] = statistics.median(s['samples'])
        return rows

    def note(self):
        return '{cpu}, {cores} cores, {kernel}, {libc}, {date}'.format(**self.machine)


def finish(figure, run, folder, name):
    figure.text(0.995, 0.005, run.note(), ha='right', va='bottom', fontsize=7, color='#868e96')
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    for kind in ('svg', 'png'):
        figure.savefig(f'{folder}/{name}.{kind}', dpi=144, metadata={'Date': None} if kind == 'svg' else None)
    plot.close(figure)


def clean(axes):
    axes.spines[['top', 'right']].set_visible(False)
    axes.grid(axis='y', color='#e7eaee')
    axes.set_axisbelow(True)


def kmalloc(run, folder):
    """Tests 1 and 2 of the seeds: a line of bars for each size, and the floor."""
    figure, parts = plot.subplots(3, 1, figsize=(11, 10))
    for axes, (test, metric) in zip(parts, (('1 alloc, then free', 'alloc'), ('1 alloc, then free', 'free'),
                                            ('2 pair', 'pair'))):
        rows = run.table('kmalloc', test, metric)
        floor = run.table('kmalloc', test, metric, 'floor')
        names = [name for name in run.allocators if any(name in row for row in rows.values())]
        width = 0.86 / max(len(names), 1)
        for place, name in enumerate(names):
            at = [i - 0.43 + (place + 0.5) * width for i in range(len(rows))]
            axes.bar(at, [row.get(name, math.nan) for row in rows.values()], width * 0.92,
                     color=run.colour[name], label=name)
        for i, size in enumerate(rows):
            if size in floor:
                axes.plot([i - 0.46, i + 0.46], [floor[size]['floor']] * 2, 'k--', linewidth=1)
        axes.set_yscale('log')
        axes.set_xticks(range(len(rows)), list(rows))
        axes.set_title(f'{test}: {metric}, cycles (dashed: an empty function)', loc='left', fontsize=10)
        clean(axes)
    parts[0].legend(ncol=5, fontsize=8, frameon=False, loc='upper left')
    parts[-1].set_xlabel('bytes')
    finish(figure, run, folder, 'kmalloc')


def mean_over_system(rows, name):
    logs = [math.log(row[name] / row[SYSTEM]) for row in rows.values() if name in row and SYSTEM in row]
    return math.exp(statistics.mean(logs)) if logs else math.nan


def name_points(axes, points):
    """Names beside their points, on whichever side no other name or point is."""
    axes.figure.canvas.draw()
    taken = []
    for x, y, *_ in points:
        px, py = axes.transData.transform((x, y))
        taken.append((px - 7, py - 7, px + 7, py + 7))
    for x, y, name, colour in points:
        px, py = axes.transData.transform((x, y))
        width, height = 7 * len(name), 13
        sides = [(10, -5, 'left'), (-10, -5, 'right'), (0, 10, 'center'), (0, -18, 'center'),
                 (12, 12, 'left'), (-12, 12, 'right'), (12, -20, 'left'), (-12, -20, 'right')]
        for dx, dy, side in sides:
            left = px + dx - {'left': 0, 'right': width, 'center': width / 2}[side]
            box = (left, py + dy, left + width, py + dy + height)
            if not any(box[0] < t[2] and t[0] < box[2] and box[1] < t[3] and t[1] < box[3] for t in taken):
                break
        taken.append(box)
        axes.annotate(name, (x, y), xytext=(dx, dy), textcoords='offset pixels', ha=side, fontsize=8, color=colour,
                      fontweight='bold' if name == OURS else 'normal')


def programs(run, folder):
    """Time against peak memory, over the system's malloc."""
    figure, parts = plot.subplots(1, 2, figsize=(11, 5))
    for axes, test in zip(parts, ('real programs', 'workloads')):
        time, memory = run.table('programs', test, 'cpu'), run.table('programs', test, 'peak resident')
        points = []
        for name in run.allocators:
            x, y = mean_over_system(time, name), mean_over_system(memory, name)
            if math.isnan(x) or math.isnan(y):
                continue
            axes.scatter(x, y, 90 if name == OURS else 45, color=run.colour[name], zorder=3)
            points.append((x, y, name, run.colour[name]))
        axes.axhline(1, color='#868e96', linewidth=0.8)
        axes.axvline(1, color='#868e96', linewidth=0.8)
        axes.margins(0.2)
        axes.set_title(f'{test}: geometric means over {SYSTEM}; lower left is better', loc='left', fontsize=10)
        axes.set_xlabel('CPU time')
        axes.set_ylabel('peak resident memory')
        clean(axes)
        name_points(axes, points)
    finish(figure, run, folder, 'programs')


def scale(run, folder):
    """Cost and memory as threads grow."""
    figure, parts = plot.subplots(1, 2, figsize=(11, 4.6))
    for axes, (metric, unit, factor) in zip(parts, (('CPU time of a call', 'ns', 1), ('resident', 'MiB', 2 ** -20))):
        rows = run.table('scale', 'threads', metric)
        for name in run.allocators:
            values = [row.get(name, math.nan) * factor for row in rows.values()]
            axes.plot(list(rows), values, marker='o', markersize=4, color=run.colour[name],
                      linewidth=3 if name == OURS else 1.5, zorder=3 if name == OURS else 2, label=name)
        axes.set_title(f'{metric}, {unit}', loc='left', fontsize=10)
        axes.set_xlabel('threads')
        axes.set_ylim(bottom=0)
        clean(axes)
    parts[1].legend(fontsize=8, frameon=False)
    finish(figure, run, folder, 'scale')


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    run = Run(sys.argv[1])
    for figure in (kmalloc, programs, scale):
        figure(run, sys.argv[2])


main()
