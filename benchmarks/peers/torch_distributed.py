"""torch.distributed with its gloo backend, one process per rank; --store is a folder."""
import os

import torch
import torch.distributed as dist

import peer


class Torch:
    sleeping = True  # gloo's event thread needs processor time beside the ranks

    def __init__(self, given):
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{given.store}/torch",
                                rank=given.rank, world_size=given.ranks)
        self.rank, self.ranks = given.rank, given.ranks

    def floats(self, count):
        return torch.zeros(count)

    def address(self, array):
        return array.data_ptr()

    def broadcast(self, values, root=0):
        dist.broadcast(values, root)

    def scatter(self, _, shares, mine):
        dist.scatter(mine, shares if self.rank == 0 else None, 0)

    def gather(self, mine, _, shares):
        dist.gather(mine, shares if self.rank == 0 else None, 0)

    def all_gather(self, mine, _, shares):
        dist.all_gather(shares, mine)

    def all_reduce(self, values):
        dist.all_reduce(values)

    def broadcast_object(self, value, _):
        values = [value]
        dist.broadcast_object_list(values, 0)
        return values[0]

    def abort(self):
        os._exit(1)


given = peer.command()
peer.run(given, Torch(given))
dist.barrier()
