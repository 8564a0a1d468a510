"""The serialization benchmark as a small table of ratios."""
import json
import os
import subprocess

import table


def serialization(build):
    """A list of no or one text: micro_archive is built where rankcast has its archives."""
    program = os.path.join(build, "micro_archive")
    if not os.access(program, os.X_OK):
        return []
    done = subprocess.run([program, "--benchmark_format=json", "--benchmark_repetitions=3",
                           "--benchmark_enable_random_interleaving=true",
                           "--benchmark_min_time=0.05", "--benchmark_report_aggregates_only=true"],
                          stdout=subprocess.PIPE, check=True)
    us = {}
    for run in json.loads(done.stdout)["benchmarks"]:
        if run["aggregate_name"] == "median":
            library, action, thing = run["run_name"].split("/")[:3]
            us[library, action, thing] = run["real_time"]
    lines = []
    for thing in ("small", "batch", "tensors", "records"):
        for action in ("save", "load fresh", "load over", "save and load"):
            ours = us["rankcast", action, thing]
            lines.append([f"{thing}: {action}", table.figure(ours),
                          table.ratio(us["boost", action, thing] / ours)])
    return ["## Serialization alone, one thread\n\n"
            + table.layout(["object and action", "us", "x boost archive"], lines)]
