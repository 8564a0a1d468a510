"""How each driver is started: ours, the peers that are here, and the floor."""
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

PEERS = ["openmpi", "mpich", "boost_mpi", "gloo", "torch", "mpi4py", "ring", "ring_read"]
SLICE_LIMIT = 120  # seconds; a driver that takes longer hangs


class Failed(Exception):
    pass


@dataclass
class Driver:
    name: str                # "threads local" if ours, else a peer, or "floor"
    command: list
    ours: bool = False
    processes: bool = False  # one per rank, started here; else the command makes its ranks
    launcher: list = field(default_factory=list)

    def measure(self, points, ranks, budget_ms):
        """{(operation, bytes): [us]} of the points that the driver knows; raises Failed."""
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        with tempfile.TemporaryDirectory(prefix="rankcast-bench-", dir=memory) as folder:
            store = os.path.join(folder, "store")
            os.mkdir(store)
            line = [*self.launcher, *self.command, "--stage", os.path.join(folder, "stage"),
                    "--ranks", str(ranks), "--budget-ms", str(budget_ms), "--store", store,
                    "--points", ",".join(f"{operation}:{size}" for operation, size in points)]
            if not self.processes:
                return self._collect([line], folder)
            return self._collect([[*line, "--rank", str(r)] for r in range(ranks)], folder)

    def _collect(self, lines, folder):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
                       "PYTHONDONTWRITEBYTECODE": "1"}
        output = os.path.join(folder, "output")
        with open(output, "w") as out, open(output + ".errors", "w") as errors:
            running = [subprocess.Popen(line, stdout=out, stderr=errors, stdin=subprocess.DEVNULL,
                                        env=environment, start_new_session=True) for line in lines]
            try:
                for process in running:
                    process.wait(SLICE_LIMIT)
                codes = [process.returncode for process in running if process.returncode]
                problem = f"ended with {codes[0]}" if codes else None
            except subprocess.TimeoutExpired:
                problem = f"hung for {SLICE_LIMIT} s"
            finally:
                for process in running:
                    _end(process)
        if problem:
            with open(output + ".errors") as errors:
                said = errors.read().strip().splitlines()
            raise Failed(f"{self.name} {problem}: {' / '.join(said[:3])}")
        with open(output) as out:
            rows = [json.loads(text) for text in out if text.startswith("{")]
        return {(row["operation"], row["bytes"]): row["us"] for row in rows}


def _end(process):
    """Asked first, so that an mpirun takes its ranks with it."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, how)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            pass


@functools.lru_cache
def _python_with(module):
    """The first Python here that has the module, for the system's own may not be the first."""
    for python in (sys.executable, "python3", "/usr/bin/python3"):
        path = shutil.which(python)
        if path and subprocess.run([path, "-c", f"import {module}, numpy"],
                                   capture_output=True).returncode == 0:
            return path
    return None


def _mpirun(kind, ranks):
    """Ranks pin themselves (stage.hpp), in the same way under every launcher."""
    if kind == "mpich":
        return ["mpirun.mpich", "-n", str(ranks)]
    words = ["mpirun.openmpi", "-n", str(ranks), "--bind-to", "none", "--use-hwthread-cpus"]
    if os.geteuid() == 0:
        words.append("--allow-run-as-root")
    if ranks > len(os.sched_getaffinity(0)):
        words += ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
    return words


def find(build, source, ranks):
    """A driver for each transport and completion of ours, the peers that are here, the floor."""
    def program(name):
        path = os.path.join(build, name)
        return path if os.access(path, os.X_OK) else None

    found = []
    for transport, name, launcher in (("threads", "driver_local", []),
                                      ("processes", "driver_local", []),
                                      ("mpi", "driver_mpi", _mpirun("openmpi", ranks))):
        for completion in ("local", "everyone") if program(name) else ():
            how = ["--transport", transport, "--completion", completion]
            found.append(Driver(f"{transport} {completion}", [program(name), *how], ours=True,
                                launcher=launcher))
    for name, kind in (("openmpi", "openmpi"), ("mpich", "mpich"), ("boost_mpi", "openmpi")):
        if program(f"peer_{name}"):
            found.append(Driver(name, [program(f"peer_{name}")], launcher=_mpirun(kind, ranks)))
    if program("peer_bare_ring") and ranks == 2:
        for name, way in (("ring", "taken"), ("ring_read", "read")):
            found.append(Driver(name, [program("peer_bare_ring"), "--transport", way]))
    if program("peer_gloo"):
        found.append(Driver("gloo", [program("peer_gloo")], processes=True))
    library = ["--library", os.path.join(build, "libstage.so")]
    torch, mpi4py = _python_with("torch"), _python_with("mpi4py")
    if torch:
        found.append(Driver("torch", [torch, f"{source}/peers/torch_distributed.py", *library],
                            processes=True))
    if mpi4py and shutil.which("mpirun.openmpi"):
        found.append(Driver("mpi4py", [mpi4py, f"{source}/peers/mpi4py_peer.py", *library],
                            launcher=_mpirun("openmpi", ranks)))
    return [*found, Driver("floor", [program("floor")])]


def absent(found):
    present = {driver.name for driver in found}
    return [name for name in PEERS if name not in present]
