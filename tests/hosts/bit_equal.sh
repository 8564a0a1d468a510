#!/bin/bash
# That results are the same bit for bit on threads, on processes of one host and on processes of
# several: runs bit_equal in each shape and compares what it wrote.
#
#   MPIEXEC=... tests/hosts/bit_equal.sh PROGRAM 2x2 [HOSTSxPER_HOST...]
#
# All shapes have the same number of ranks.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")

program=$1
shapes=("${@:2}")
ranks=$((${shapes[0]/x/*}))
most=0
for shape in "${shapes[@]}"; do
  [ $((${shape/x/*})) -eq $ranks ] || { echo "$shape is not of $ranks ranks" >&2; exit 2; }
  [ "${shape%x*}" -le "$most" ] || most=${shape%x*}
done
if [ -z "${RANKCAST_LAB-}" ]; then
  exec bash "$here/hosts.sh" "$most" bash "${BASH_SOURCE[0]}" "$@"
fi

wanted=$RANKCAST_LAB/threads
"$program" threads $ranks "$wanted"
calls=$(wc -l <"$wanted")
[ "$calls" -gt 0 ] || { echo "the program wrote nothing" >&2; exit 1; }

status=0
for shape in 1x$ranks "${shapes[@]}"; do
  bash "$here/mpi.sh" "${shape%x*}" "${shape#*x}" "$program" processes "$RANKCAST_LAB/$shape"
  if diff "$wanted" "$RANKCAST_LAB/$shape"; then
    echo "$shape: the bits of $calls calls are those of $ranks threads"
  else
    echo "$shape: other bits than on $ranks threads (<), see above" >&2
    status=1
  fi
done
exit $status
