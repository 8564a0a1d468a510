"""What including rankcast costs a compiler, beside what it is measured against: an otherwise empty
translation unit each, in turns, processor time.

    benchmarks/compile_time [--rounds 5]

The compiler is $CXX or c++; where there is a clang++, also what it reads longest."""
import argparse
import json
import os
import resource
import shlex
import shutil
import statistics
import subprocess
import tempfile
from collections import Counter

import table

INCLUDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../include")
UMBRELLA = "rankcast/rankcast.hpp"
UNITS = ["", f"<{UMBRELLA}>", "<rankcast/processes.hpp>", "<rankcast/object.hpp>",
         "<rankcast/mpi.hpp>", "<mpi.h>", "<boost/mpi.hpp>"]


def mpi_words():
    """The -I of an MPI's compiler wrapper."""
    for wrapper in ("mpicxx.openmpi", "mpicxx"):
        if shutil.which(wrapper):
            shown = subprocess.run([wrapper, "-show"], stdout=subprocess.PIPE, text=True).stdout
            return [word for word in shlex.split(shown) if word.startswith("-I")]
    return []


def command(compiler, *more):
    return [*shlex.split(compiler), "-std=c++20", "-O2", f"-I{INCLUDE}", *mpi_words(), *more]


def compile_one(line, header):
    """Processor seconds; None when it does not compile, for a library is missing."""
    def used():
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime
    before = used()
    done = subprocess.run(line, input=f"#include {header}\n" if header else "", text=True,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return used() - before if done.returncode == 0 else None


def measure(rounds):
    """{header: median seconds} of those that are here."""
    line = command(os.environ.get("CXX", "c++"), "-x", "c++", "-c", "-", "-o", os.devnull)
    seconds = {}
    for header in UNITS:  # not counted: reads the files from the disk
        if compile_one(line, header) is not None:
            seconds[header] = []
    for _ in range(rounds):
        for header, taken in seconds.items():
            taken.append(compile_one(line, header))
    return {header: statistics.median(taken) for header, taken in seconds.items()}


def longest_headers(count):
    """[(header, ms)]: what clang itself spends in each file that the umbrella includes, not in what
    that includes in turn."""
    if not shutil.which("clang++"):
        return []
    with tempfile.TemporaryDirectory() as folder:
        unit = os.path.join(folder, "unit.cpp")
        with open(unit, "w") as out:
            out.write(f"#include <{UMBRELLA}>\n")
        subprocess.run(command("clang++", "-ftime-trace", "-ftime-trace-granularity=0", "-c", unit,
                               "-o", os.path.join(folder, "unit.o")), check=True)
        with open(os.path.join(folder, "unit.json")) as trace:
            events = json.load(trace)["traceEvents"]
    sources = sorted((event for event in events if event["name"] == "Source"),
                     key=lambda event: (event["ts"], -event["dur"]))
    own, open_files = Counter(), []  # open_files: (end, name)
    for event in sources:
        while open_files and open_files[-1][0] <= event["ts"]:
            open_files.pop()
        if open_files:
            own[open_files[-1][1]] -= event["dur"]
        name = event["args"]["detail"]
        own[name] += event["dur"]
        open_files.append((event["ts"] + event["dur"], name))
    return [(os.path.normpath(name).split("/include/")[-1], us / 1000)
            for name, us in own.most_common(count)]


def report(seconds):
    empty = seconds[""]
    lines = [[header or "nothing", f"{taken:.2f}",
              table.ratio((taken - empty) / (seconds[f"<{UMBRELLA}>"] - empty))]
             for header, taken in seconds.items()]
    texts = ["## What an include costs\n\n" + table.layout(["header", "s", "x umbrella"], lines)]
    longest = longest_headers(12)
    if longest:
        lines = [[name, f"{ms:.0f}"] for name, ms in longest]
        texts.append(f"Own time of the longest files below `{UMBRELLA}`, clang++:\n\n"
                     + table.layout(["file", "ms"], lines))
    return texts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks/compile_time", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    print("\n\n".join(report(measure(parser.parse_args().rounds))))
