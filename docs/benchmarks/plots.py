#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""A run of `cpuslab bench`, summed up and drawn for these pages:

    docs/benchmarks/plots.py results.json FOLDER   writes FOLDER/DATE/GROUP.csv, and the plots from them
    docs/benchmarks/plots.py FOLDER/DATE FOLDER    the plots from those tables alone

Groups that the run does not have are left out. A table has a line for each row and statistic (median, minimum,
spread), and a column for each allocator. Plots are SVG and PNG. Needs matplotlib (Debian package python3-matplotlib)."""
import csv
import json
import math
import os
import statistics
import sys

import matplotlib
matplotlib.use('svg')
import matplotlib.pyplot as plot

OURS, SYSTEM = 'cpuslab', 'glibc'
COLOURS = {OURS: '#e8590c', SYSTEM: '#868e96'}
OTHERS = ['#1c7ed6', '#0ca678', '#ae3ec9', '#e0a100', '#4263eb', '#74b816', '#e64980', '#15aabf']


HEAD = ['test', 'parameter', 'metric', 'unit', 'statistic']


def spread(samples):
    """As `cpuslab bench` has it: half the range between the quartiles, over the median."""
    ordered = sorted(samples)

    def quantile(q):
        at = q * (len(ordered) - 1)
        below = int(at)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (at - below) * (ordered[above] - ordered[below])

    return (quantile(.75) - quantile(.25)) / 2 / quantile(.5) if len(ordered) > 1 and quantile(.5) > 0 else 0


def sum_up(results, folder):
    """Writes the tables of a results.json; returns their folder."""
    run = json.load(open(results))
    folder = os.path.join(folder, run['machine']['date'][:10])
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, 'machine.csv'), 'w', newline='') as file:
        writer = csv.writer(file, lineterminator='\n')
        writer.writerows(run['machine'].items())
        writer.writerows((f'allocator {name}', text) for name, text in run['allocators'].items())
    for group in dict.fromkeys(s['group'] for s in run['series']):
        rows, columns = {}, {}
        for s in run['series']:
            if s['group'] != group:
                continue
            columns[s['allocator']] = None
            row = tuple(s[name] for name in HEAD[:4])
            for statistic, of in (('median', statistics.median), ('minimum', min), ('spread', spread)):
                value = of(s['samples'])
                rows.setdefault(row + (statistic,), {})[s['allocator']] = f'{value:.4g}'
        with open(os.path.join(folder, group + '.csv'), 'w', newline='') as file:
            writer = csv.writer(file, lineterminator='\n')
            writer.writerow(HEAD + list(columns))
            writer.writerows(list(row) + [values.get(name, '') for name in columns] for row, values in rows.items())
    return folder


class Run:
    def __init__(self, folder):
        self.folder = folder
        facts = dict(csv.reader(open(os.path.join(folder, 'machine.csv'))))
        self.machine = {name: text for name, text in facts.items() if not name.startswith('allocator ')}
        names = [name[len('allocator '):] for name in facts if name.startswith('allocator ')]
        self.allocators = [name for name in names if not name.startswith('cpuslab ')]
        others = [name for name in self.allocators if name not in COLOURS]
        self.colour = dict(COLOURS, **dict(zip(others, OTHERS)))

    def table(self, group, test, metric):
        """{row: {column: median}}, in the order of measuring."""
        rows = {}
        for row in csv.DictReader(open(os.path.join(self.folder, group + '.csv'))):
            if (row['test'], row['metric'], row['statistic']) == (test, metric, 'median'):
                rows[row['parameter']] = {name: float(text) for name, text in row.items() if name not in HEAD and text}
        return rows

    def note(self):
        return '{cpu}, {cores} cores, {kernel}, {libc}, {date}'.format(**self.machine)


def finish(figure, run, folder, name):
    figure.text(0.995, 0.005, run.note(), ha='right', va='bottom', fontsize=7, color='#868e96')
    figure.tight_layout(rect=(0, 0.02, 1, 0.97 if figure.legends else 1))
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
        names = [name for name in run.allocators if any(name in row for row in rows.values())]
        width = 0.86 / max(len(names), 1)
        for place, name in enumerate(names):
            at = [i - 0.43 + (place + 0.5) * width for i in range(len(rows))]
            axes.bar(at, [row.get(name, math.nan) for row in rows.values()], width * 0.92,
                     color=run.colour[name], label=name)
        for i, row in enumerate(rows.values()):
            if 'floor' in row:
                axes.plot([i - 0.46, i + 0.46], [row['floor']] * 2, 'k--', linewidth=1)
        axes.set_yscale('log')
        axes.set_xlim(-0.6, len(rows) - 0.4)
        axes.set_xticks(range(len(rows)), list(rows))
        axes.set_title(f'{test}: {metric}, cycles (dashed: an empty function)', loc='left', fontsize=10)
        clean(axes)
    handles, labels = parts[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncol=len(labels), fontsize=8, frameon=False, loc='upper center')
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
                      fontweight='bold' if name == OURS else 'normal',
                      bbox={'facecolor': 'white', 'edgecolor': 'none', 'pad': 0.5}, zorder=2.5)


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
    handles, labels = parts[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncol=len(labels), fontsize=8, frameon=False, loc='upper center')
    finish(figure, run, folder, 'scale')


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source = sys.argv[1]
    run = Run(sum_up(source, sys.argv[2]) if source.endswith('.json') else source)
    for figure in (kmalloc, programs, scale):
        if os.path.exists(os.path.join(run.folder, figure.__name__ + '.csv')):
            figure(run, sys.argv[2])


main()
