"""What the peers in Python share: the drivers' command line (support/command.hpp), the stage that
holds their ranks, the objects of objects.hpp as Python values, and the measuring itself.

A peer is a class with `rank`, `ranks`, `sleeping` (as in support/stage.hpp), `floats(count)`,
`address(array)`, `abort()`, and the calls that are measured: `broadcast`, `scatter`, `gather`, `all_gather`,
`all_reduce` and `broadcast_object`.
"""
import argparse
import ctypes
import sys
import time

import numpy


def command():
    parser = argparse.ArgumentParser()
    for name in ("--library", "--stage", "--store", "--points"):
        parser.add_argument(name)
    for name in ("--ranks", "--rank", "--budget-ms"):
        parser.add_argument(name, type=int)
    return parser.parse_args()


class Stage:
    def __init__(self, given, peer):
        self.library = ctypes.CDLL(given.library)
        self.budget = ctypes.c_double(given.budget_ms / 1000)
        self.more = ctypes.c_int()
        self.do("enter", given.stage.encode(), peer.rank, peer.ranks, int(peer.sleeping))

    def do(self, name, *arguments):
        if getattr(self.library, "bench_" + name)(*arguments) != 0:
            raise RuntimeError(f"bench_{name} failed")

    def measure(self, operation, size, prepare, call, check, calls=1):
        """As `measure` of support/measure.hpp; call() makes so many calls."""
        record, clock = self.library.bench_record, time.monotonic_ns
        self.do("open", self.budget)
        sample = 0
        while True:
            prepare(sample)
            self.do("start", sample, ctypes.byref(self.more))
            if not self.more.value:
                break
            begin = clock()
            call()
            record(sample, ctypes.c_longlong((clock() - begin) // calls))
            check(sample)
            sample += 1
        self.do("report", operation.encode(), ctypes.c_size_t(size))


def tensor_case(stage, peer, operation, size):
    """prepare, call and check of one collective, as support/tensors.hpp has them; and how many
    calls that are where it is not one."""
    rank, ranks = peer.rank, peer.ranks
    count = size // 4

    def at(array):
        return ctypes.c_void_p(peer.address(array))

    def fill(array, who, sample):
        stage.library.bench_fill(at(array), ctypes.c_size_t(array.shape[0]), who, sample)

    def spoil(array):
        stage.library.bench_spoil(at(array), ctypes.c_size_t(array.shape[0]))

    def expect(array, who, sample, how_many=1):
        stage.do("expect", at(array), ctypes.c_size_t(array.shape[0]), who, sample, how_many)

    whole = peer.floats(count)
    if operation == "broadcast":
        return (lambda i: fill(whole, 0, i) if rank == 0 else spoil(whole),
                lambda: peer.broadcast(whole),
                lambda i: expect(whole, 0, i))
    if operation == "rotating_broadcast":
        parts = [peer.floats(count) for _ in range(64)]

        def prepare_parts(i):
            for c, part in enumerate(parts):
                fill(part, c, i) if rank == c % ranks else spoil(part)

        def call_all():
            for c, part in enumerate(parts):
                peer.broadcast(part, c % ranks)

        def check_parts(i):
            for c, part in enumerate(parts):
                expect(part, c, i)
        return prepare_parts, call_all, check_parts, len(parts)
    if operation == "all_reduce":
        return (lambda i: fill(whole, rank, i),
                lambda: peer.all_reduce(whole),
                lambda i: expect(whole, 0, i, ranks))
    if operation == "scatter":
        everything = peer.floats(count * ranks if rank == 0 else 0)
        shares = [everything[r * count:(r + 1) * count] for r in range(ranks if rank == 0 else 0)]

        def prepare(i):
            spoil(whole)
            for r, share in enumerate(shares):
                fill(share, r, i)
        return (prepare,
                lambda: peer.scatter(everything, shares, whole),
                lambda i: expect(whole, rank, i))
    if operation in ("gather", "all_gather"):
        collects = operation == "all_gather" or rank == 0
        call = peer.all_gather if operation == "all_gather" else peer.gather
        mine = peer.floats(count // ranks)
        shares = [whole[r * len(mine):(r + 1) * len(mine)] for r in range(ranks)]

        def prepare(i):
            spoil(whole)
            fill(mine, rank, i)

        def check(i):
            for r, share in enumerate(shares if collects else ()):
                expect(share, r, i)
        return prepare, lambda: call(mine, whole, shares), check
    return None


def tokens(count, first):
    return [(i * 7919 + first) % 49152 for i in range(count)]


def floats_of(rank, sample):
    return ((numpy.arange(2 << 20) + 17 * rank + 31 * sample) & 1023).astype(numpy.float32)


OBJECTS = {
    "object_small": lambda sample: {
        "fields": {f"field {i}": chr(97 + (i + sample) % 26) * 128 for i in range(8)},
        "tokens": tokens(128, sample)},
    "object_batch": lambda sample: {
        "prompts": [{"labels": {"id": f"request {i} of step {sample}", "model": "a model"},
                     "tokens": tokens(1024, i * 1024 + sample)} for i in range(32)],
        "temperature": 0.5 + 0.001 * sample, "stop": ["</s>", "STOP"], "bias": {13: -1.0, 42: 0.5}},
    "object_tensors": lambda sample: {f"layer {i}": floats_of(i, sample) for i in range(8)},
    "object_records": lambda sample: [
        (i + sample, f"the record {100000000 + i + sample}", 0.5 * i + sample)
        for i in range(100000)],
}


def same(a, b):
    if isinstance(a, dict) and any(isinstance(v, numpy.ndarray) for v in a.values()):
        return a.keys() == b.keys() and all(numpy.array_equal(a[k], b[k]) for k in a)
    return a == b


def object_case(peer, operation):
    """prepare, call and check of one object broadcast, as support/object_cases.hpp has them."""
    if operation not in OBJECTS:
        return None
    state = {}
    arrays = operation == "object_tensors"  # whether the object is mostly arrays

    def prepare(sample):
        state["wanted"] = OBJECTS[operation](sample)
        state["sent"] = state["wanted"] if peer.rank == 0 else None

    def call():
        state["received"] = peer.broadcast_object(state["sent"], arrays)

    def check(sample):
        if not same(state["wanted"], state["received"]):
            raise RuntimeError(f"WRONG: {operation}, sample {sample}")
    return prepare, call, check


def run(given, peer):
    """All points of the command line; a rank that fails releases the others and ends with 1."""
    stage = Stage(given, peer)
    try:
        for point in given.points.split(","):
            operation, size = point.split(":")
            case = tensor_case(stage, peer, operation, int(size)) or object_case(peer, operation)
            if case:
                stage.measure(operation, int(size), *case)
    except Exception as error:  # whatever it is
        print(error, file=sys.stderr, flush=True)
        stage.library.bench_abandon()
        peer.abort()
