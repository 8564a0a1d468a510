"""Runs the benchmarks that tools/bench has built. See docs/benchmarks.md."""
import argparse
import json
import os
import sys
import time

import drivers
import micro
import plots
import rounds
import table
from plan import plan

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(SOURCE)


def stolen_seconds():
    """Time that the hypervisor gave to others."""
    with open("/proc/stat") as stat:
        return int(stat.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def options():
    cpus = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(prog="tools/bench", description="rankcast against its peers, "
                                     "measured in turns in one run.")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds: two minutes")
    parser.add_argument("--json", metavar="FILE", help="write the rows there, too")
    parser.add_argument("--ranks", type=int, default=max(2, min(4, cpus)),
                        help="default: a rank for each processor, 2 to 4")
    parser.add_argument("--plots", action="store_true",
                        help="draw into docs/benchmarks/, the table beside the plots")
    parser.add_argument("--build", default=os.path.join(ROOT, "build/bench/benchmarks"),
                        help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.ranks < 2:
        parser.error("--ranks: at least 2")
    return given, cpus


def main():
    given, cpus = options()
    begun, load, stolen = time.monotonic(), os.getloadavg()[0], stolen_seconds()
    todo = plan(given.quick, given.ranks)
    ours, others, absent = drivers.find(given.build, SOURCE, given.ranks)
    samples, troubles = rounds.measure(todo, ours, others, given.ranks)
    rows = rounds.rows(todo, samples, ours, others, given.ranks, cpus)
    serialization = micro.serialization(given.build)

    lines = [f"Machine: {table.machine()}.",
             f"{given.ranks} ranks; {todo.rounds} rounds in {time.monotonic() - begun:.0f} s. Load "
             f"average before: {load:.2f}; stolen meanwhile: {stolen_seconds() - stolen:.1f} s.",
             "x peer: the peer's median over ours, above 1 where rankcast is faster. x floor: one "
             "memcpy of these bytes over ours."]
    if absent:
        lines.append(f"Not here: {', '.join(absent)}.")
    lines += [f"Trouble: {trouble}." for trouble in troubles]
    report = "\n\n".join(["  \n".join(lines), table.table(rows, absent), *serialization])
    print(report)

    if given.json:
        with open(given.json, "w") as out:
            json.dump(rows, out, indent=1)
            out.write("\n")
    if given.plots:
        plots.draw(rows, os.path.join(ROOT, "docs/benchmarks"))
        with open(os.path.join(ROOT, "docs/benchmarks/table.md"), "w") as out:
            out.write("# The last run\n\nMade by `./tools/bench --plots`.\n\n" + report + "\n")


if __name__ == "__main__":
    try:
        main()
    except drivers.Failed as failure:
        sys.exit(f"tools/bench: {failure}")
