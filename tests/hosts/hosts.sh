#!/bin/bash
# Runs a command on a machine that looks like several: hosts h0, h1, … made of Linux namespaces, each
# with its own network, name, processes, /dev/shm, TMPDIR and System V memory, joined by a bridge.
#
#   tests/hosts/hosts.sh 2 COMMAND [ARGUMENT...]
#
# COMMAND runs beside the hosts, in the lab, where they have these names. $RANKCAST_LAB is a folder
# that all of them see, and `$RANKCAST_LAB/agent h1 COMMAND...` runs something on a host; launchers
# take it in place of ssh. Files are those of the machine. Host i hangs on the bridge by the lab's
# interface v<i>.
#
# Needs root, or user namespaces; where neither is to be had it says so and exits with 77. Otherwise
# the exit status is the command's. Nothing made here has a name outside: when this script ends,
# however it does, the kernel ends every process of the lab and takes the rest back.
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin"  # where ip is, not on everybody's path

namespaces=(--net --uts --ipc --mount --pid --fork --kill-child=KILL)

# The script begins outside: finds out what is allowed, and goes in.
if [ "${1-}" != --inside ]; then
  if ! [[ ${1-} =~ ^[1-9][0-9]?$ ]] || [ $# -lt 2 ]; then
    echo "usage: tests/hosts/hosts.sh HOSTS COMMAND [ARGUMENT...]" >&2
    exit 2
  fi

  # Everything that can be forbidden, once.
  attempt='ip link add br0 type bridge && ip link add v0 type veth peer name v1 &&
    mount -t tmpfs lab /run && unshare --pid --net --mount --fork mount -t proc proc /proc'
  enter=()
  allowed() {
    refusal=$(unshare "${enter[@]}" "${namespaces[@]}" --mount-proc sh -c "$attempt" 2>&1)
  }
  if ! allowed; then
    enter=(--user --map-root-user)
    if ! allowed; then
      echo "skipped: making hosts takes root (in a container, SYS_ADMIN) or user namespaces," \
        "and iproute2: $refusal" >&2
      exit 77
    fi
  fi

  # Killed with this script, also by SIGKILL, and then takes all in its process namespace along.
  lab=
  end() {
    kill -KILL $lab 2>/dev/null || true
    exit "$1"
  }
  trap 'end 129' HUP
  trap 'end 130' INT
  trap 'end 143' TERM
  setpriv --pdeathsig KILL unshare "${enter[@]}" "${namespaces[@]}" --mount-proc \
    bash "${BASH_SOURCE[0]}" --inside "$@" <&0 &
  lab=$!
  status=0
  wait $lab || status=$?
  exit $status
fi

shift
hosts=$1
shift

# --- the lab -------------------------------------------------------------------------------------
mount -t tmpfs lab /run
export RANKCAST_LAB=/run/lab TMPDIR=/run/lab/tmp
mkdir -p $TMPDIR
hostname lab
ip link set lo up
ip link add br0 type bridge
ip link set br0 up
ip addr add 10.77.0.254/24 dev br0
{
  echo "127.0.0.1 localhost"
  echo "10.77.0.254 lab"
  for ((i = 0; i < hosts; ++i)); do echo "10.77.0.$((i + 1)) h$i"; done
} >$RANKCAST_LAB/names
mount --bind $RANKCAST_LAB/names /etc/hosts

# Options are what launchers would tell ssh.
cat >$RANKCAST_LAB/agent <<'END'
#!/bin/bash
while [[ $1 == -* ]]; do shift; done
pid=$(<"$RANKCAST_LAB/$1.pid") || exit 255
shift
exec nsenter --target "$pid" --ipc --net --uts --mount --pid -- sh -c "$*"
END
chmod +x $RANKCAST_LAB/agent

# --- its hosts -----------------------------------------------------------------------------------
# A host's first process only holds its namespaces. It says its number as the lab sees it, which is
# what /proc says as long as it is the lab's.
mkfifo $RANKCAST_LAB/up
exec {up}<>$RANKCAST_LAB/up
for ((i = 0; i < hosts; ++i)); do
  unshare "${namespaces[@]}" bash -c '
    set -e
    read -r pid _ </proc/self/stat
    mount -t proc proc /proc
    mount -t tmpfs shm /dev/shm
    mount -t tmpfs tmp "$TMPDIR"
    hostname "$0"
    ip link set lo up
    echo $pid >"$RANKCAST_LAB/up"
    exec sleep infinity' h$i {up}<&- </dev/null &
  if ! read -r -t 20 -u "$up" pid; then
    echo "tests/hosts/hosts.sh: host h$i did not come up" >&2
    exit 1
  fi
  echo "$pid" >$RANKCAST_LAB/h$i.pid
  ip link add v$i type veth peer name eth0 netns "$pid"
  ip link set v$i master br0 up
  nsenter --target "$pid" --net ip addr add 10.77.0.$((i + 1))/24 dev eth0
  nsenter --target "$pid" --net ip link set eth0 up
done
exec {up}<&-

status=0
"$@" || status=$?
exit $status
