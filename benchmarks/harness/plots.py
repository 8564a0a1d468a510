"""Plots: for each collective, time against bytes; for each number of ranks, how many times faster
than MPI; bars for what has few sizes, and for waits and includes."""
import math
import os
from collections import Counter

from drivers import PEERS
from plan import LOGITS, OBJECTS, TENSORS, WAITS, bytes_text
from svg import GRID, INK, Svg

# Colours that differ for the colour-blind, too (Okabe and Ito).
COLORS = {"openmpi": "#0072B2", "mpich": "#56B4E9", "boost_mpi": "#009E73", "gloo": "#CC79A7",
          "torch": "#E69F00", "mpi4py": "#5D3A9B", "floor": "#999999",
          "broadcast": "#D55E00", "scatter": "#0072B2", "gather": "#009E73",
          "all_gather": "#CC79A7", "all_reduce": "#222222",
          "<mpi.h>": "#0072B2", "<boost/mpi.hpp>": "#009E73", "nothing": "#999999"}
OURS = "#D55E00"
# Where lines may coincide, and for those of ours.
DASHES = {"floor": "6 4", "boost_mpi": "4 4", "processes": "7 4", "mpi": "2 3"}


def look(name):
    """Colour, width and dash of a line; ours are called by their transport at the end."""
    transport = name.split(", ")[-1]
    known = name.removeprefix("rankcast, ").split(",")[0]
    ours = ", " in name
    return COLORS.get(known, OURS), 3 if ours else 1.5, DASHES.get(transport, "")


def series_of(rows):
    """{name: {(operation, bytes): us}} in the order of the legend."""
    series = {}
    for row in rows:
        point = row["operation"], row["bytes"]
        series.setdefault(f"rankcast, {row['transport']}", {})[point] = row["median_us"]
        for name, us in [*row["peers"].items(), ("floor", row["floor_us"])]:
            if us:
                series.setdefault(name, {})[point] = us
    rank = [*(name for name in series if name.startswith("rankcast")), *PEERS, "floor"]
    return {name: series[name] for name in rank if name in series}


def decades(values):
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def time_text(exponent):
    us = 10.0 ** exponent
    return f"{us:g} us" if us < 1000 else f"{us / 1e3:g} ms" if us < 1e6 else f"{us / 1e6:g} s"


def curves_plot(curves, title, across, up, value_text):
    """{name: {bytes: value}}, both logarithmic."""
    curves = {name: sorted(curve.items()) for name, curve in curves.items() if curve}
    sizes = sorted({size for curve in curves.values() for size, _ in curve})
    if len(sizes) < 2:
        return None
    low, high = decades([value for curve in curves.values() for _, value in curve])
    left, right, top, bottom = 80, 560, 50, 400
    picture = Svg(780, 460)

    def x(size):
        return left + (right - left) * math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0])

    def y(value):
        return bottom - (bottom - top) * (math.log10(value) - low) / (high - low)

    picture.text(left, 28, title, size=15, bold=True)
    for exponent in range(low, high + 1):
        picture.line(left, y(10.0 ** exponent), right, y(10.0 ** exponent))
        picture.text(left - 8, y(10.0 ** exponent) + 4, value_text(exponent), "end")
    last = -100.0
    for size in sizes:
        picture.line(x(size), top, x(size), bottom)
        if x(size) - last > 55:
            picture.text(x(size), bottom + 18, bytes_text(size), "middle")
            last = x(size)
    picture.line(left, bottom, right, bottom, INK)
    picture.line(left, top, left, bottom, INK)
    picture.text((left + right) / 2, bottom + 42, across, "middle")
    picture.text(18, (top + bottom) / 2, up, "middle", turned=True)
    places = {name: top + 22 * number for number, name in enumerate(curves)}
    for name, curve in sorted(curves.items(), key=lambda c: ", " in c[0]):  # ours on top
        place, (color, width, dash) = places[name], look(name)
        picture.path([(x(size), y(value)) for size, value in curve], color, width, dash)
        for size, value in curve:
            picture.dot(x(size), y(value), color, width + 1)
        picture.path([(right + 20, place), (right + 46, place)], color, width, dash)
        picture.text(right + 54, place + 4, name, bold=name.startswith("rankcast"))
    return picture


def latency_plot(operation, series, where):
    curves = {name: {size: us for (op, size), us in points.items() if op == operation}
              for name, points in series.items()}
    return curves_plot(curves, f"{operation}, {where}", "bytes that one rank ends up with",
                       "median time", time_text)


def ratio_plot(rows, where):
    """Bytes of a gather are those of a share here, so that the collectives lie side by side."""
    curves = {}
    for row in rows:
        if row["operation"] in TENSORS and row["transport"] != "mpi" and row["x_mpi"]:
            size = row["bytes"] // (row["ranks"] if "gather" in row["operation"] else 1)
            curves.setdefault(f"{row['operation']}, {row['transport']}", {})[size] = row["x_mpi"]
    return curves_plot(curves, f"times as fast as the faster MPI, {where}",
                       "bytes of the message, or of each share", "MPI's time over rankcast's",
                       lambda exponent: f"{10.0 ** exponent:g}")


def us_text(us):
    return f"{us:.3g} us" if us < 1e3 else f"{us / 1e3:.3g} ms" if us < 1e6 else f"{us / 1e6:.3g} s"


def bars_plot(groups, title):
    """[(heading, [(name, us)])]: bars as long as the logarithm of the time."""
    groups = [(heading, bars) for heading, bars in groups if bars]
    if not groups:
        return None
    low, high = decades([us for _, bars in groups for _, us in bars])
    height = 90 + sum(20 * len(bars) + 34 for _, bars in groups)
    left, right, top = 210, 660, 46
    picture = Svg(760, height)

    def x(us):
        return left + (right - left) * (math.log10(us) - low) / (high - low)

    picture.text(20, 28, title, size=15, bold=True)
    for exponent in range(low, high + 1):
        picture.line(x(10.0 ** exponent), top, x(10.0 ** exponent), height - 44, GRID)
        picture.text(x(10.0 ** exponent), height - 28, time_text(exponent), "middle")
    picture.text((left + right) / 2, height - 8, "median time (logarithmic)", "middle")
    y = top + 4
    for heading, bars in groups:
        picture.text(20, y + 14, heading, bold=True)
        y += 22
        for name, us in bars:
            picture.text(left - 8, y + 12, name, "end", bold="rankcast" in name)
            picture.bar(left, y, max(1.0, x(us) - left), 15, look(name)[0])
            picture.text(x(us) + 6, y + 12, us_text(us), size=11)
            y += 20
        y += 12
    return picture


def bars_of(series, operations, heading):
    """A group of bars for each point of these operations."""
    points = dict.fromkeys(point for taken in series.values() for point in taken
                           if point[0] in operations)
    return [(heading(*point), [(name, taken[point]) for name, taken in series.items()
                               if taken.get(point)]) for point in points]


def size_heading(operation, size):
    return f"{operation}, {bytes_text(size)}"


def wait_heading(operation, ms):
    if operation == "idle":
        return f"processor time of a rank that waits {ms / 1000:g} s"
    return f"wake-up after {ms} ms"


def draw(rows, compiled, folder):
    """Of the distance of processors at which most rounds were taken."""
    os.makedirs(folder, exist_ok=True)
    rows = [row for row in rows if row["completion"] == "local"]
    pictures = {}
    for number, ranks in enumerate(sorted({row["ranks"] for row in rows})):
        at = Counter()
        for row in rows:
            at[row["distance"]] += row["rounds"] * (row["ranks"] == ranks)
        distance = at.most_common(1)[0][0]
        these = [row for row in rows if row["ranks"] == ranks and row["distance"] == distance]
        where = f"{these[0]['placement']}, {distance}"
        pictures[f"ratio-{ranks}"] = ratio_plot(these, where)
        if number > 0:
            continue
        series = series_of(these)
        for operation in TENSORS:
            pictures[operation] = latency_plot(operation, series, where)
        for name, operations, title, heading in (
                ("objects", OBJECTS, "broadcast of an object", size_heading),
                ("logits", LOGITS, "scores from sharded logits", size_heading),
                ("waits", WAITS, "a broadcast whose root is late", wait_heading)):
            pictures[name] = bars_plot(bars_of(series, operations, heading), f"{title}, {where}")
    pictures["compile_time"] = bars_plot(
        [("an otherwise empty translation unit that includes",
          [(header or "nothing", seconds * 1e6) for header, seconds in compiled.items()])
         ] if compiled else [], "processor time of the compiler")
    for name, picture in pictures.items():
        if picture:
            picture.save(os.path.join(folder, name + ".svg"))
