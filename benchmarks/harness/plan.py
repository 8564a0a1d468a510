"""What is measured, for how long, and the words of it."""
from dataclasses import dataclass

KIB, MIB = 1024, 1024 * 1024
TENSORS = ["broadcast", "scatter", "gather", "all_gather", "all_reduce"]

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


@dataclass
class Plan:
    rounds: int
    budget_ms: int  # of one point in one round, preparation and check included; at least 3 samples
    groups: list    # lists of (operation, bytes) that a driver measures in one go


def plan(quick, ranks):
    sizes = ([64, 4 * KIB, 64 * KIB, MIB, 16 * MIB] if quick else
             [8, 64, 256] + [KIB << shift for shift in range(0, 18, 2)])  # to 64 MiB
    rows = [64] if quick else [1, 8, 64]

    def points(operation):
        # Of what is gathered, bytes are all the shares together.
        gathers = operation in ("gather", "all_gather")
        return [(operation, size * ranks if gathers else size) for size in sizes]

    tensors = [points(operation) for operation in TENSORS]
    objects = list(OBJECTS.items())
    logits = [(operation, n * ROW) for operation in LOGITS for n in rows]
    if quick:
        return Plan(3, 20, [sum(tensors, []), objects, logits])
    return Plan(7, 60, tensors + [[one] for one in objects] + [logits])


def bytes_text(count):
    for unit, size in (("MiB", MIB), ("KiB", KIB)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
