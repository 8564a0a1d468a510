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
    done = subprocess.run([program, "--benchmark_format=json", "--benchmark_repetitions=5",
                           "--benchmark_enable_random_interleaving=true",
                           "--benchmark_min_time=0.02", "--benchmark_report_aggregates_only=true"],
                          stdout=subprocess.PIPE, check=True)
    us = {}
    for run in json.loads(done.stdout)["benchmarks"]:
        if run["aggregate_name"] == "median":
            library, action, thing = run["run_name"].split("/")[:3]
            us[library, action, thing] = run["real_time"]
    lines = [[f"{action} {thing}", table.figure(ours),
              table.ratio(us.get(("boost", action, thing)), ours)]
             for (library, action, thing), ours in us.items() if library == "rankcast"]
    return ["Serialization alone, one thread:\n\n"
            + table.layout(["action", "us", "x boost archive"], lines)]
