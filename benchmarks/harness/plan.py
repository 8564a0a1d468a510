"""What is measured, for how long, and the words of it."""
from dataclasses import dataclass

KIB, MIB = 1024, 1024 * 1024
TENSORS = ["broadcast", "scatter", "gather", "all_gather", "all_reduce"]
ROTATING = ("rotating_broadcast", 8)

# Payload bytes: see objects.hpp.
OBJECTS = {
    "object_small": 2 * KIB,
    "object_batch": 256 * KIB,
    "object_tensors": 64 * MIB,
    "object_records": 36 * 100000,
}

# Rows of float32 logits over 49152 ids.
LOGITS = ["gather_logits", "token_log_probabilities"]
ROW = 4 * 49152

WAITS = ["idle", "wake_up"]  # their "bytes" are milliseconds: support/idle.hpp

# Who takes part in every round; the others do in every third.
CORE = ["threads local", "processes local", "mpi local", "openmpi", "mpich", "floor"]


@dataclass
class Group:
    """Points that a driver measures in one go."""
    ranks: int
    points: list           # (operation, bytes)
    rounds: int
    budget_ms: int         # of a point in a round, preparation and check included
    core_only: bool = False


def tensor_points(sizes, ranks):
    # Of what is gathered, bytes are all the shares together.
    return [(operation, size * ranks if "gather" in operation else size)
            for operation in TENSORS for size in sizes]


def plan(quick, all_ranks):
    """The first number of ranks gets everything, the others the tensors."""
    first, *more = all_ranks
    objects = list(OBJECTS.items())
    logits = [(operation, n * ROW) for operation in LOGITS for n in ([64] if quick else [1, 8, 64])]
    small = [8, 4 * KIB, 64 * KIB] if quick else [8, 256, 4 * KIB, 64 * KIB]
    large = [MIB, 16 * MIB]
    if quick:
        groups = [Group(first, [ROTATING, *tensor_points(small + large, first)], 3, 10),
                  Group(first, objects, 1, 20),
                  Group(first, logits, 1, 20, True),
                  Group(first, [("idle", 2000), ("wake_up", 5), ("wake_up", 1000)], 1, 100, True)]
        return groups + [Group(n, [ROTATING, *tensor_points([*small, MIB], n)], 1, 20, True)
                         for n in more]
    groups = [Group(first, [ROTATING, *tensor_points(small, first)], 7, 30),
              Group(first, tensor_points(large, first), 5, 40),
              Group(first, objects, 4, 60),
              Group(first, logits, 3, 60, True),
              Group(first, [("idle", 5000), ("wake_up", 5), ("wake_up", 1000)], 2, 150, True)]
    if first == 2:  # more ranks would need more memory than many machines have
        groups.append(Group(first, tensor_points([256 * MIB], first), 2, 0, True))
    for n in more:
        groups += [Group(n, [ROTATING, *tensor_points(small, n)], 5, 40, True),
                   Group(n, tensor_points(large, n), 2, 40, True)]
    return groups


def only(groups, words):
    """Without the points whose operation is not among the words, if there are any."""
    for group in groups:
        group.points = [p for p in group.points if not words or p[0] in words]
    return [group for group in groups if group.points]


def bytes_text(count):
    for unit, size in (("MiB", MIB), ("KiB", KIB)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
