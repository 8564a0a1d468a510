"""One plot for each collective, latency against bytes, both logarithmic; and bars for what has few
sizes: the objects, and the two ways from sharded logits to scores."""
import math
import os

from drivers import PEERS
from plan import LOGITS, OBJECTS, TENSORS, bytes_text
from svg import GRID, INK, Svg

# Colours that differ for the colour-blind, too (Okabe and Ito).
COLORS = {"openmpi": "#0072B2", "mpich": "#56B4E9", "boost_mpi": "#009E73", "gloo": "#CC79A7",
          "torch": "#E69F00", "mpi4py": "#5D3A9B", "memcpy": "#999999"}
OURS = "#D55E00"
DASHES = {"memcpy": "6 4", "boost_mpi": "4 4", "rankcast, mpi": "2 3"}  # where lines may coincide


def color_of(name):
    return COLORS.get(name, OURS)


def series_of(rows):
    """{name: {(operation, bytes): us}} in the order of the legend."""
    series = {}
    for row in rows:
        if row["completion"] != "local":
            continue
        point = row["operation"], row["bytes"]
        series.setdefault(f"rankcast, {row['transport']}", {})[point] = row["median_us"]
        for name, us in [*row["peers"].items(), ("memcpy", row["floor_us"])]:
            if us:
                series.setdefault(name, {})[point] = us
    rank = [*(name for name in series if name.startswith("rankcast")), *PEERS, "memcpy"]
    return {name: series[name] for name in rank if name in series}


def decades(values):
    return math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))


def time_text(exponent):
    us = 10.0 ** exponent
    return f"{us:g} us" if us < 1000 else f"{us / 1e3:g} ms" if us < 1e6 else f"{us / 1e6:g} s"


def latency_plot(operation, series, title):
    curves = {name: sorted((size, us) for (op, size), us in points.items() if op == operation)
              for name, points in series.items()}
    curves = {name: curve for name, curve in curves.items() if curve}
    sizes = sorted({size for curve in curves.values() for size, _ in curve})
    if len(sizes) < 2:
        return None
    low, high = decades([us for curve in curves.values() for _, us in curve])
    left, right, top, bottom = 80, 580, 50, 400
    picture = Svg(760, 460)

    def x(size):
        return left + (right - left) * math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0])

    def y(us):
        return bottom - (bottom - top) * (math.log10(us) - low) / (high - low)

    picture.text(left, 28, title, size=15, bold=True)
    for exponent in range(low, high + 1):
        picture.line(left, y(10.0 ** exponent), right, y(10.0 ** exponent))
        picture.text(left - 8, y(10.0 ** exponent) + 4, time_text(exponent), "end")
    last = -100.0
    for size in sizes:
        picture.line(x(size), top, x(size), bottom)
        if x(size) - last > 55:
            picture.text(x(size), bottom + 18, bytes_text(size), "middle")
            last = x(size)
    picture.line(left, bottom, right, bottom, INK)
    picture.line(left, top, left, bottom, INK)
    picture.text((left + right) / 2, bottom + 42, "bytes that one rank ends up with", "middle")
    picture.text(18, (top + bottom) / 2, "median time", "middle", turned=True)
    places = {name: top + 22 * number for number, name in enumerate(curves)}
    for name, curve in sorted(curves.items(), key=lambda c: c[0].startswith("rankcast")):  # on top
        place, dash = places[name], DASHES.get(name, "")
        color, ours = color_of(name), name.startswith("rankcast")
        picture.path([(x(size), y(us)) for size, us in curve], color, 3 if ours else 1.5, dash)
        for size, us in curve:
            picture.dot(x(size), y(us), color, 4 if ours else 2.5)
        picture.path([(right + 20, place), (right + 46, place)], color, 3 if ours else 1.5, dash)
        picture.text(right + 54, place + 4, name, bold=ours)
    return picture


def bars_plot(points, series, title):
    """A group of bars for each point, as long as the logarithm of the time."""
    groups = [(point, [(name, s[point]) for name, s in series.items() if point in s])
              for point in points]
    groups = [(point, bars) for point, bars in groups if bars]
    if not groups:
        return None
    low, high = decades([us for _, bars in groups for _, us in bars])
    height = 90 + sum(20 * len(bars) + 34 for _, bars in groups)
    left, right, top = 150, 660, 46
    picture = Svg(760, height)

    def x(us):
        return left + (right - left) * (math.log10(us) - low) / (high - low)

    picture.text(20, 28, title, size=15, bold=True)
    for exponent in range(low, high + 1):
        picture.line(x(10.0 ** exponent), top, x(10.0 ** exponent), height - 44, GRID)
        picture.text(x(10.0 ** exponent), height - 28, time_text(exponent), "middle")
    picture.text((left + right) / 2, height - 8, "median time (logarithmic)", "middle")
    y = top + 4
    for (operation, size), bars in groups:
        picture.text(20, y + 14, f"{operation}, {bytes_text(size)}", bold=True)
        y += 22
        for name, us in bars:
            picture.text(left - 8, y + 12, name, "end", bold=name.startswith("rankcast"))
            picture.bar(left, y, max(1.0, x(us) - left), 15, color_of(name))
            picture.text(x(us) + 6, y + 12, f"{us:.3g} us" if us < 1000 else f"{us / 1000:.3g} ms",
                         size=11)
            y += 20
        y += 12
    return picture


def draw(rows, folder):
    os.makedirs(folder, exist_ok=True)
    series = series_of(rows)
    points = sorted({(row["operation"], row["bytes"]) for row in rows}, key=lambda p: p[1])
    where = f"{rows[0]['placement']}" if rows else ""
    pictures = {operation: latency_plot(operation, series, f"{operation}, {where}")
                for operation in TENSORS}
    pictures["objects"] = bars_plot([p for p in points if p[0] in OBJECTS], series,
                                    f"broadcast of an object, {where}")
    pictures["logits"] = bars_plot([p for p in points if p[0] in LOGITS], series,
                                   f"scores from sharded logits, {where}")
    for name, picture in pictures.items():
        if picture:
            picture.save(os.path.join(folder, name + ".svg"))
