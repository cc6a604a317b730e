# How checks run in a guest. A check is one function check_NAME with its sabotage_NAME; it ends
# with ok, bad or skip. The harness reads the list of checks from the functions of the script.

# one line, whatever the detail contains
verdict() {
    echo "$1 $CHECK $(echo "$2" | tr '\n' ' ')" >&3
    exit 0
}

ok() {
    verdict PASS "$*"
}

bad() {
    verdict FAIL "$*"
}

skip() {
    verdict SKIP "$*"
}

# same WHAT SEEN EXPECTED: ends the check as failed where they differ
same() {
    [ "$2" = "$3" ] || bad "$1: seen '$2', expected '$3'"
}

uptime_now() {
    cut -d' ' -f1 /proc/uptime
}

# Each check runs in a shell of its own; its talk is indented, so that no program's output can
# pass for a verdict.
run_check() {
    CHECK=$1
    function=$(echo "$1" | tr - _)
    begun=$(uptime_now)
    (
        [ "$SABOTAGE" = "$CHECK" ] && "sabotage_$function"
        "check_$function"
    ) >/tmp/check.out 2>&1 3>/tmp/check.verdict
    [ -s /tmp/check.out ] && sed 's/^/| /' /tmp/check.out
    cat /tmp/check.verdict
    echo "TOOK $CHECK $(awk "BEGIN{printf \"%.2f\", $(uptime_now) - $begun}")"
}

# seconds since the guest started, without a fraction
seconds() {
    cut -d. -f1 /proc/uptime
}

# wait_for SECONDS COMMAND...: until the command succeeds
wait_for() {
    deadline=$(($(seconds) + $1))
    shift
    until "$@"; do
        [ "$(seconds)" -lt $deadline ] || return 1
        sleep 0.2
    done
}

# pool KIB FILE: a number of a huge-page pool
pool() {
    cat "/sys/kernel/mm/hugepages/hugepages-$1kB/$2"
}

# mrs [PID]: how many memory regions of processes the kernel knows, or those of one process
mrs() {
    rdma resource show mr | grep -c "pid ${1:-[0-9]}"
}

# field NAME: a decimal or hexadecimal number of `ibv_devinfo -v` on standard input, in decimal
field() {
    printf '%u\n' "$(awk -v name="$1:" '$1 == name { print $2; exit }')"
}

# limit NAME: a limit of `hugemr devices --json` on standard input, in decimal
limit() {
    awk -v name="\"$1\":" '
        $1 == name && $2 != "{" { gsub(/[",]/, "", $2); print $2; exit }
        $1 == name { inside = 1; next }
        inside && $1 == "\"unlimited\":" { print "18446744073709551615"; exit }
        inside && $1 == "\"min\":" { min = $2 }
        inside && $1 == "\"max\":" { print min == $2 ? $2 + 0 : min " to " $2; exit }
        inside && /}/ { exit }' | sed 's/,$//'
}

# Which checks to run: all of the harness's list, or one.
run_checks() {
    SABOTAGE=$(cat /t/sabotage)
    while read -r name; do
        run_check "$name" </dev/null
    done </t/checks
}

# need_hugemr: ends the check as skipped where the run was asked for without the command
need_hugemr() {
    [ -x /usr/local/bin/hugemr ] || skip "run with --hugemr none"
}

# holds SECONDS PID COUNT: until process PID holds COUNT memory regions, or has ended
holds() {
    holds_or_gone() { [ "$(mrs $1)" = $2 ] || ! kill -0 $1 2>/dev/null; }
    wait_for "$1" holds_or_gone "$2" "$3" && kill -0 "$2" 2>/dev/null
}

# killed PID: ends a child of ours by force, and returns when its memory regions are gone
killed() {
    kill -9 $1
    wait $1 2>/dev/null
    none_of() { [ "$(mrs $1)" = 0 ]; }
    wait_for 20 none_of $1 || bad "$(mrs $1) MRs left of a killed process: $(rdma resource show mr | head -n 3)"
}

# as_nobody MEMLOCK_BYTES COMMAND...
as_nobody() {
    limit=$1
    shift
    prlimit --memlock="$limit" setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}

# start_hugemr COUNT ARGUMENT...: registers in the background and waits for COUNT regions
start_hugemr() {
    count=$1
    shift
    hugemr register "$@" --device "$DEVICE" --hold >/tmp/hold.out 2>&1 &
    holder=$!
    holds 30 $holder "$count" || {
        seen=$(mrs $holder)
        kill -9 $holder 2>/dev/null
        cat /tmp/hold.out
        bad "hugemr register $*: $seen MRs, expected $count: $(tail -n 1 /tmp/hold.out)"
    }
}

# end_hugemr: a polite end leaves status 0 and nothing behind
end_hugemr() {
    kill -TERM $holder
    wait $holder
    same "exit status after SIGTERM" $? 0
    same "MRs left" "$(mrs)" 0
}
