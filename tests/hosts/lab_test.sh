#!/bin/bash
# What hosts.sh promises whoever runs it: the command's status, hosts with names, and that nothing
# is left, however it ends.
set -euo pipefail
hosts() { bash "$(dirname "${BASH_SOURCE[0]}")/hosts.sh" "$@"; }
fail() {
  echo "tests/hosts/lab_test.sh: $*" >&2
  exit 1
}

# Under `set -e`, this is also what skips where there can be no hosts.
hosts 1 true

status=0
hosts 2 sh -c 'exit 5' || status=$?
[ $status -eq 5 ] || fail "the command's status 5 became $status"
[ "$(echo in | hosts 1 cat)" = in ] || fail "the command does not read standard input"
names=$(hosts 3 sh -c 'hostname; for h in h0 h1 h2; do "$RANKCAST_LAB/agent" -x $h hostname; done')
[ "$names" = $'lab\nh0\nh1\nh2' ] || fail "the hosts' names are: $names"

# Processes of the lab carry a word of this run; `running` counts them.
word=rankcast_lab_test_$$
running() {
  local file count=0
  for file in /proc/[0-9]*/cmdline; do
    if grep -q "$1" "$file" 2>/dev/null; then count=$((count + 1)); fi
  done
  echo $count
}
wait_for_count() {  # <at least|at most> <n> <word>
  local tries n
  for ((tries = 0; tries < 100; ++tries)); do
    n=$(running "$3")
    case $1 in
      least) [ "$n" -lt "$2" ] || return 0 ;;
      most) [ "$n" -gt "$2" ] || return 0 ;;
    esac
    sleep 0.1
  done
  fail "$n processes of $3 run, wanted at $1 $2"
}

trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
for signal in TERM:143 HUP:129 INT:130 KILL:137; do
  name=${signal%:*}
  # One process beside the hosts and one on h1. What bash starts behind itself is deaf to INT, what
  # nohup starts, to HUP.
  env --default-signal=HUP,INT,TERM bash "$(dirname "${BASH_SOURCE[0]}")/hosts.sh" 2 sh -c \
    "\$RANKCAST_LAB/agent h1 'sleep 1000; : ${word}_$name' & sleep 1000; : ${word}_$name" &
  script=$!
  # hosts.sh outside and inside, unshare, the two commands, the agent
  wait_for_count least 6 "${word}_$name"
  kill -"$name" $script
  status=0
  wait $script || status=$?
  [ $status -eq "${signal#*:}" ] || fail "after $name the status is $status"
  wait_for_count most 0 "${word}_$name"
done
