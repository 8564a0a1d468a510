"""Rounds: every driver takes a short turn at the same points, again and again, so that a machine
that drifts drifts for all. A time is the median of the samples of all rounds, a ratio the median of
the ratios of the rounds."""
import math
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass

from drivers import Failed
from plan import CORE


@dataclass
class Round:
    ranks: int
    points: list
    distance: str  # of the processors, at its beginning and at its end
    us: dict       # {driver name: {point: [us]}}


def progress(words):
    if sys.stderr.isatty():
        print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)


def take_turns(group, drivers, first, gone, troubles):
    """One round; who fails, or has none of the points, has gone for the next ones of the group."""
    drivers = [driver for driver in drivers if driver.name not in gone]
    us = {}
    first %= len(drivers)  # nobody follows the same one in all rounds
    for driver in drivers[first:] + drivers[:first]:
        try:
            us[driver.name] = driver.measure(group.points, group.ranks, group.budget_ms)
        except Failed as failure:
            if driver.ours:
                raise
            troubles.append(str(failure))
        if not us.get(driver.name):
            gone.add(driver.name)
    return us


def measure(groups, drivers_of, distance):
    """The rounds, and what went wrong, in sentences. Raises Failed when rankcast does. A round in
    which the processors were moved is dropped, and repeated as long as there are few of them."""
    rounds, troubles, dropped = [], [], 0
    before = distance()
    for number, group in enumerate(groups, 1):
        everybody = drivers_of(group.ranks)
        core = [driver for driver in everybody if driver.name in CORE]
        gone, kept = set(), 0
        for turn in range(group.rounds + (group.rounds + 1) // 2):
            if kept == group.rounds:
                break
            progress(f"group {number}/{len(groups)}, {group.ranks} ranks, "
                     f"round {kept + 1}/{group.rounds}")
            all_take_part = kept % 3 == 0 and not group.core_only
            us = take_turns(group, everybody if all_take_part else core, turn, gone, troubles)
            after = distance()
            if after == before:
                rounds.append(Round(group.ranks, group.points, after, us))
                kept += 1
            else:
                dropped += 1
            before = after
    progress("")
    if dropped:
        troubles.append(f"rounds dropped, for the processors were moved meanwhile: {dropped}")
    return rounds, troubles


def percentile99(us):
    return sorted(us)[max(0, math.ceil(0.99 * len(us)) - 1)]


def ratio(cells, name, *others):
    """The median over the rounds of the fastest other's time over that of `name`."""
    ratios = [min(cell[other] for other in others if other in cell) / max(cell[name], 1e-3)
              for cell in cells if name in cell and any(other in cell for other in others)]
    return round(statistics.median(ratios), 4) if ratios else None


def rows(rounds, drivers_of, cpus):
    """The rows of --json: one for each point, distance of the processors, transport and completion
    of ours."""
    places = defaultdict(list)  # (ranks, point, distance): rounds
    for taken in rounds:
        for point in taken.points:
            places[taken.ranks, point, taken.distance].append(taken.us)
    result = []
    for (ranks, point, distance), here in places.items():
        samples = defaultdict(list)
        cells = [{} for _ in here]  # medians by driver
        for cell, us in zip(cells, here):
            for name, points in us.items():
                if points.get(point):
                    samples[name] += points[point]
                    cell[name] = statistics.median(points[point])
        median = {name: round(statistics.median(us), 3) for name, us in samples.items()}
        operation, size = point
        peers = [d.name for d in drivers_of(ranks) if not d.ours and d.name != "floor"
                 and d.name in median]
        for name in (d.name for d in drivers_of(ranks) if d.ours and d.name in median):
            transport, completion = name.split()
            result.append({
                "operation": operation, "transport": transport, "ranks": ranks, "bytes": size,
                "median_us": median[name], "p99_us": round(percentile99(samples[name]), 3),
                "gbps": round(size / max(median[name], 1e-3) * 1e-3, 3),
                "floor_us": median.get("floor"), "x_floor": ratio(cells, name, "floor"),
                "placement": f"{ranks} ranks on {cpus} cpus, "
                             + ("pinned" if ranks <= cpus else "not pinned"),
                "distance": distance, "rounds": len(here), "completion": completion,
                "peers": {peer: median[peer] for peer in peers},
                "x_peers": {peer: ratio(cells, name, peer) for peer in peers},
                "x_mpi": ratio(cells, name, "openmpi", "mpich")})
    return result
