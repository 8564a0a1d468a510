"""The tables: ours in microseconds, everybody else as a ratio to it. Markdown that also reads well
in a terminal."""
from drivers import PEERS
from plan import KIB, LOGITS, OBJECTS, TENSORS, WAITS, bytes_text


def layout(head, lines, left=1):
    """The first columns to the left, figures to the right."""
    widths = [max(len(row[i]) for row in [head, *lines]) for i in range(len(head))]

    def text(row):
        cells = [cell.ljust(w) if i < left else cell.rjust(w)
                 for i, (cell, w) in enumerate(zip(row, widths))]
        return "| " + " | ".join(cells) + " |"

    rule = ["-" * w if i < left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join([text(head), "| " + " | ".join(rule) + " |", *map(text, lines)])


def figure(us):
    return "-" if us is None else f"{us:.2f}" if us < 100 else f"{us:.0f}"


def ratio(value):
    return "-" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def percent(value):
    return "-" if value is None else f"{100 * value:.3g}%"


def place(row):
    return row["ranks"], row["operation"], row["bytes"], row["distance"]


def collectives(rows, ranks):
    """One line for each point, distance and transport."""
    rows = [r for r in rows if r["ranks"] == ranks and r["operation"] not in WAITS]
    order = [*TENSORS, "rotating_broadcast", *OBJECTS, *LOGITS]
    rows.sort(key=lambda r: (order.index(r["operation"]), r["bytes"]))  # else as they are
    peers = [peer for peer in PEERS if any(peer in r["peers"] for r in rows)]
    waiting = {(*place(r), r["transport"]): r["median_us"]
               for r in rows if r["completion"] == "everyone"}
    lines = [[r["operation"], r["transport"], r["distance"], bytes_text(r["bytes"]),
              figure(r["median_us"]), figure(r["p99_us"]),
              *([figure(waiting.get((*place(r), r["transport"])))] if waiting else []),
              f"{r['gbps']:.2f}", percent(r["x_floor"] if r["bytes"] >= 64 * KIB else None),
              ratio(r["x_mpi"]),
              *(ratio(r["x_peers"].get(peer)) for peer in peers)]
             for r in rows if r["completion"] == "local"]
    head = ["operation", "transport", "distance", "bytes", "us", "p99",
            *(["everyone"] if waiting else []), "GB/s", "of floor", "x MPI",
            *(f"x {peer}" for peer in peers)]
    return [f"## {ranks} ranks\n\n" + layout(head, lines, 3)] if lines else []


def jitter(rows, ranks):
    """How much longer than the median one call in a hundred takes."""
    transports = ["threads", "processes"]
    us = {(*place(r), r["transport"]): r["p99_us"] - r["median_us"] for r in rows
          if r["ranks"] == ranks and r["operation"] in TENSORS and r["completion"] == "local"
          and r["bytes"] <= 64 * KIB * (ranks if "gather" in r["operation"] else 1)}
    lines = [[operation, distance, bytes_text(size),
              *(figure(us.get((ranks, operation, size, distance, t))) for t in transports)]
             for _, operation, size, distance in dict.fromkeys(key[:4] for key in us)]
    head = ["operation", "distance", "bytes", *transports]
    title = f"p99 less the median, {ranks} ranks, us:\n\n"
    return [title + layout(head, lines, 2)] if lines else []


def waits(rows):
    """Who waits for a late root, what that costs, and how fast it is back."""
    points = list(dict.fromkeys((r["operation"], r["bytes"]) for r in rows
                                if r["operation"] in WAITS))
    us = {}  # {(who, distance): {point: us}}
    for r in rows:
        if r["operation"] in WAITS and r["completion"] == "local":
            point = r["operation"], r["bytes"]
            for who, taken in [(f"rankcast, {r['transport']}", r["median_us"]),
                               *r["peers"].items(), ("a bare futex", r["floor_us"])]:
                if taken is not None:
                    us.setdefault((who, r["distance"]), {})[point] = taken
    head, lines = ["who waits", "distance"], [[*key] for key in us]
    for operation, ms in points:
        late = f"{ms / 1000:g} s" if ms >= 1000 else f"{ms} ms"
        head += [f"processor, {late}"] if operation == "idle" else [f"back after {late}, us",
                                                                     "x futex"]
        for line, ((_, distance), taken) in zip(lines, us.items()):
            mine = taken.get((operation, ms))
            if operation == "idle":
                line.append(percent(None if mine is None else mine / (1000 * ms)))
                continue
            futex = us.get(("a bare futex", distance), {}).get((operation, ms))
            line += [figure(mine), ratio(mine / futex if mine and futex else None)]
    lines.sort(key=lambda line: (not line[0].startswith("rankcast"), line[0] == "a bare futex"))
    return ["## Waiting for a late root, and waking up\n\n" + layout(head, lines, 2)] if us else []
