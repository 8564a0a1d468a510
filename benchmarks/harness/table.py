"""The table: ours in microseconds, everybody else as a ratio to it. Markdown that also reads well
in a terminal."""
import os
import platform

from drivers import PEERS
from plan import bytes_text


def machine():
    """One line: which machine."""
    model = platform.machine()
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, {os.cpu_count()} processors, {platform.system()} {platform.release().split("-")[0]}"


def layout(head, lines):
    """The first column to the left, figures to the right."""
    widths = [max(len(row[i]) for row in [head, *lines]) for i in range(len(head))]

    def text(row):
        cells = [cell.ljust(w) if i == 0 else cell.rjust(w)
                 for i, (cell, w) in enumerate(zip(row, widths))]
        return "| " + " | ".join(cells) + " |"

    rule = ["-" * w if i == 0 else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join([text(head), "| " + " | ".join(rule) + " |", *map(text, lines)])


def figure(us):
    return f"{us:.2f}" if us < 100 else f"{us:.0f}"


def ratio(theirs, ours):
    if theirs is None or not ours:
        return "-"
    value = theirs / ours
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def table(rows, absent):
    peers = [peer for peer in PEERS if peer not in absent]
    head = ["operation", "transport", "bytes", "us", "p99", "everyone", "GB/s", "x floor",
            *(f"x {peer}" for peer in peers)]
    waits_for_all = {(r["operation"], r["transport"], r["bytes"]): r["median_us"]
                     for r in rows if r["completion"] == "everyone"}
    lines = []
    for row in rows:
        if row["completion"] != "local":
            continue
        ours = row["median_us"]
        everyone = waits_for_all.get((row["operation"], row["transport"], row["bytes"]))
        lines.append([row["operation"], row["transport"], bytes_text(row["bytes"]), figure(ours),
                      figure(row["p99_us"]), "-" if everyone is None else figure(everyone),
                      f"{row['gbps']:.2f}", ratio(row["floor_us"], ours),
                      *(ratio(row["peers"].get(peer), ours) for peer in peers)])
    return layout(head, lines)
