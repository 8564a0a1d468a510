#!/bin/bash
# Runs an MPI program on several hosts, P processes on each, numbered host by host.
#
#   MPIEXEC=mpiexec.mpich tests/hosts/mpi.sh HOSTS P PROGRAM [ARGUMENT...]
#
# MPIEXEC is the launcher of Open MPI 4 or of MPICH, `mpiexec` unless given. The hosts are made by
# hosts.sh, or taken from it when this runs inside. The program finds their numbers in
# RANKCAST_HOSTS and RANKCAST_PER_HOST. PRELOAD: a library that the program loads before its own;
# MPICH 4.0 needs that of finalize.cpp.
set -euo pipefail

if [ $# -lt 3 ]; then
  echo "usage: tests/hosts/mpi.sh HOSTS PROCESSES_PER_HOST PROGRAM [ARGUMENT...]" >&2
  exit 2
fi
if [ -z "${RANKCAST_LAB-}" ]; then
  exec bash "$(dirname "${BASH_SOURCE[0]}")/hosts.sh" "$1" bash "${BASH_SOURCE[0]}" "$@"
fi

export RANKCAST_HOSTS=$1 RANKCAST_PER_HOST=$2
shift 2
mpiexec=${MPIEXEC:-mpiexec}
program=("$@")
if [ -n "${PRELOAD-}" ]; then program=(env "LD_PRELOAD=$PRELOAD" "$@"); fi
list=
for ((i = 0; i < RANKCAST_HOSTS; ++i)); do list+=,h$i:$RANKCAST_PER_HOST; done
list=${list#,}

version=$("$mpiexec" --version 2>&1)
case $version in
  *"Open MPI"* | *OpenRTE*)
    # More processes than cores, and root, if only in a user namespace.
    exec "$mpiexec" --allow-run-as-root --bind-to none --mca mpi_yield_when_idle 1 \
      --mca plm_rsh_agent "$RANKCAST_LAB/agent" --host "$list" \
      -np $((RANKCAST_HOSTS * RANKCAST_PER_HOST)) "${program[@]}"
    ;;
  *HYDRA*)
    exec "$mpiexec" -launcher ssh -launcher-exec "$RANKCAST_LAB/agent" -hosts "$list" \
      -n $((RANKCAST_HOSTS * RANKCAST_PER_HOST)) "${program[@]}"
    ;;
esac
echo "skipped: $mpiexec is neither Open MPI's nor MPICH's: $version" >&2
exit 77
