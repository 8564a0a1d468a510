"""Rounds: every driver takes a short turn at the same points, again and again, so that a machine
that drifts drifts for all. A figure is the median of the samples of all rounds."""
import math
import statistics
import sys
from collections import defaultdict

from drivers import Failed


def known_to_us(group, ours, ranks):
    """The points that rankcast was built with; the others are not asked of the peers either."""
    known = ours[0].measure(group, ranks, 0)
    unknown = sorted({operation for operation, size in group if (operation, size) not in known})
    return list(known), ["rankcast was built without " + ", ".join(unknown)] if unknown else []


def progress(words):
    if sys.stderr.isatty():
        print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)


def measure(plan, ours, others, ranks):
    """{driver name: {(operation, bytes): [us]}}, and what went wrong, in sentences. Raises Failed
    when rankcast does."""
    samples = defaultdict(lambda: defaultdict(list))
    troubles = []
    for number, group in enumerate(plan.groups, 1):
        points, missing = known_to_us(group, ours, ranks)
        troubles += missing
        drivers = ours + others
        for turn in range(plan.rounds if points else 0):
            first = turn % len(drivers)  # nobody follows the same one in all rounds
            for driver in drivers[first:] + drivers[:first]:
                progress(f"group {number}/{len(plan.groups)}, round {turn + 1}/{plan.rounds}: "
                         f"{driver.name}")
                try:
                    taken = driver.measure(points, ranks, plan.budget_ms)
                except Failed as failure:
                    if driver in ours:
                        raise
                    troubles.append(str(failure))
                    taken = {}
                if not taken:
                    drivers.remove(driver)  # has none of these, or failed
                for point, us in taken.items():
                    samples[driver.name][point] += us
    progress("")
    return samples, troubles


def percentile99(us):
    return sorted(us)[max(0, math.ceil(0.99 * len(us)) - 1)]


def rows(plan, samples, ours, others, ranks, cpus):
    """The rows of --json: one for each point, transport and completion of ours."""
    fits = ranks <= cpus
    placement = f"{ranks} ranks on {cpus} cpus, " + ("pinned" if fits else "not pinned")
    result = []
    for point in (point for group in plan.groups for point in group):
        operation, size = point
        medians = {driver.name: statistics.median(samples[driver.name][point])
                   for driver in ours + others if samples[driver.name][point]}
        floor = medians.get("floor")
        for driver in ours:
            if driver.name not in medians:
                continue
            transport, completion = driver.name.split()
            median = medians[driver.name]
            result.append({
                "operation": operation, "transport": transport, "ranks": ranks, "bytes": size,
                "median_us": round(median, 3),
                "p99_us": round(percentile99(samples[driver.name][point]), 3),
                "gbps": round(size / max(median, 1e-3) * 1e-3, 3),
                "floor_us": None if floor is None else round(floor, 3),
                "placement": placement, "completion": completion,
                "peers": {peer.name: round(medians[peer.name], 3) for peer in others
                          if peer.name in medians and peer.name != "floor"}})
    return result
