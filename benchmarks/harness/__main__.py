"""Runs the benchmarks that tools/bench has built. See docs/benchmarks.md."""
import argparse
import functools
import json
import os
import sys
import time

import compile_time
import drivers
import host
import micro
import plan
import plots
import rounds
import table

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(SOURCE)


def numbers(text):
    return [int(number) for number in text.split(",")]


def words(text):
    return text.split(",")


def options():
    parser = argparse.ArgumentParser(prog="tools/bench", description="rankcast against its peers, "
                                     "measured in turns in one run.")
    parser.add_argument("--quick", action="store_true",
                        help="fewer sizes and rounds: two or three minutes")
    parser.add_argument("--json", metavar="FILE", help="write the rows there, too")
    parser.add_argument("--ranks", type=numbers, default="2,4,8", metavar="N,...",
                        help="the first number gets everything, the others the tensors; "
                             "default: %(default)s")
    parser.add_argument("--only", type=words, default=[], metavar="NAME,...",
                        help="these operations; serialization, compile_time")
    parser.add_argument("--plots", action="store_true",
                        help="draw into docs/benchmarks/, the table beside the plots")
    parser.add_argument("--build", default=os.path.join(ROOT, "build/bench/benchmarks"),
                        help=argparse.SUPPRESS)
    given = parser.parse_args()
    if min(given.ranks) < 2:
        parser.error("--ranks: at least 2")
    return given


def main():
    given = options()
    cpus = len(os.sched_getaffinity(0))
    begun, load, stolen = time.monotonic(), os.getloadavg()[0], host.stolen_seconds()
    drivers_of = functools.lru_cache(functools.partial(drivers.find, given.build, SOURCE))
    distance = host.Distance(given.build)
    groups = plan.only(plan.plan(given.quick, given.ranks), given.only)
    taken, troubles = rounds.measure(groups, drivers_of, distance)
    rows = rounds.rows(taken, drivers_of, cpus)

    def wanted(step):
        return not given.only or step in given.only
    serialization = micro.serialization(given.build) if wanted("serialization") else []
    compiled = compile_time.measure(2 if given.quick else 5) if wanted("compile_time") else {}
    texts = [text for ranks in given.ranks
             for text in (table.collectives(rows, ranks)
                          + (table.jitter(rows, ranks) if ranks >= 8 else []))]
    texts += table.waits(rows) + serialization
    texts += compile_time.report(compiled) if compiled else []

    lines = [f"Machine: {host.machine()}. {distance.words()}.",
             f"{len(taken)} rounds, {time.monotonic() - begun:.0f} s. Load average before: "
             f"{load:.2f}; stolen meanwhile: {host.stolen_seconds() - stolen:.1f} s.",
             "x peer: the peer's time over ours, above 1 where rankcast is faster. x MPI: the "
             "faster of Open MPI and MPICH."]
    absent = drivers.absent(drivers_of(given.ranks[0]))
    lines += [f"Not here: {', '.join(absent)}."] if absent else []
    lines += [f"Trouble: {trouble}." for trouble in troubles]
    report = "\n\n".join(["  \n".join(lines), *texts])
    print(report)

    if given.json:
        with open(given.json, "w") as out:
            json.dump(rows, out, indent=1)
            out.write("\n")
    if given.plots:
        plots.draw(rows, compiled, os.path.join(ROOT, "docs/benchmarks"))
        with open(os.path.join(ROOT, "docs/benchmarks/table.md"), "w") as out:
            out.write("# The last run\n\nMade by `./tools/bench --plots`.\n\n" + report + "\n")


if __name__ == "__main__":
    try:
        main()
    except drivers.Failed as failure:
        sys.exit(f"tools/bench: {failure}")
