"""The machine: what it is, what it does meanwhile, how far its processors are from each other."""
import os
import platform
import subprocess

NEAR_US = 0.08  # a cache line that takes longer comes from another part of the chip


def machine():
    """One line: which machine."""
    model = platform.machine()
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    return f"{model}, {os.cpu_count()} processors, {system}"


def stolen_seconds():
    """Time that the hypervisor gave to others."""
    with open("/proc/stat") as stat:
        return int(stat.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


class Distance:
    """Looks at the way between two processors, which changes when a virtual machine is moved."""

    def __init__(self, build):
        self.program = os.path.join(build, "hop")
        self.seen = []  # us

    def __call__(self):
        """"near", "far", or "one" where there is one processor."""
        said = subprocess.run([self.program], stdout=subprocess.PIPE, check=True, text=True).stdout
        if not said:
            return "one"
        self.seen.append(float(said))
        return "near" if self.seen[-1] < NEAR_US else "far"

    def words(self):
        if not self.seen:
            return "One processor may be used"
        near = sum(us < NEAR_US for us in self.seen)
        return (f"A cache line crosses between two processors in {min(self.seen):.3f} to "
                f"{max(self.seen):.3f} us, below {NEAR_US} us (near) {near} of "
                f"{len(self.seen)} times")
