# hugemr probe on an emulated device of 777,777 entries: found to the entry, and all of it given back.

entries=777777
export HUGEMR_LIMITS=/tmp/limits.toml

# value KEY: of the last document of hugemr probe
value() {
    sed -n "s/^  \"$1\": \([^,]*\),*\$/\1/p" /tmp/probe.json
}

# probe ARGUMENT...: runs it, shows it, and leaves its exit status
probe() {
    hugemr probe --device "$DEVICE" --json "$@" >/tmp/probe.json
    status=$?
    cat /tmp/probe.json
}

check_probe_exact() {
    need_hugemr
    probe
    same "exit status" $status 0
    same "entries" "$(value exact)" $entries
    same "MRs that could not be deregistered" "$(value left)" 0
    same "MRs left" "$(mrs)" 0
    grep -q '"used": true' /tmp/probe.json || bad "large pages were not seen to be used"
    ok "$entries entries to the entry, $(value registrations) registrations, $(value seconds) s, large pages used"
}
sabotage_probe_exact() {
    mr-probe dev="$DEVICE" total=4 pages=4k hold=1 >/dev/null &
    holds 20 $! 1
}

check_probe_plan() {
    need_hugemr
    probe
    hugemr plan 8GiB --pages 4KiB --device "$DEVICE" $elsewhere >/tmp/out
    status=$?
    cat /tmp/out
    same "exit status" $status 1
    grep -q 'needs 2,097,152 .*777,777' /tmp/out || bad "the plan does not use it: $(head -n 1 /tmp/out)"
    ok "$(head -n 1 /tmp/out)"
}
sabotage_probe_plan() {
    elsewhere="--limits /tmp/nothing.toml"
}

check_probe_others() {
    need_hugemr
    mr-probe dev="$DEVICE" total=${held:-4} pages=4k hold=1 >/dev/null &
    other=$!
    holds 20 $other 1
    hugemr probe --device "$DEVICE" >/tmp/out
    status=$?
    cat /tmp/out
    same "exit status beside another process" $status 1
    grep -q "pid $other mr-probe" /tmp/out || bad "it does not say who holds MRs"
    probe --beside-others
    killed $other
    low=$(sed -n '/"entries": {/,/}/s/.*"min": \([0-9]*\).*/\1/p' /tmp/probe.json | head -n 1)
    high=$(sed -n '/"entries": {/,/}/s/.*"max": \([0-9]*\).*/\1/p' /tmp/probe.json | head -n 1)
    [ "$low" -le $entries ] && [ "$high" -ge $entries ] || bad "$entries are not between $low and $high"
    [ "$low" -lt "$high" ] || bad "exact beside others: $low"
    ok "refused with the name of the holder; with --beside-others between $low and $high"
}
sabotage_probe_others() {
    # nothing is held
    held=0
}

check_probe_kill() {
    need_hugemr
    probe
    before=$(cat $HUGEMR_LIMITS)
    hugemr probe --device "$DEVICE" >/tmp/out 2>&1 &
    prober=$!
    some_held() { [ "$(mrs $prober)" -gt 0 ]; }
    wait_for 20 some_held || bad "it has not begun: $(cat /tmp/out)"
    kill -${signal:-9} $prober
    wait $prober 2>/dev/null
    nothing_left() { [ "$(mrs)" = 0 ]; }
    wait_for 10 nothing_left || bad "$(mrs) MRs left"
    same "the limits file after kill -9" "$(cat $HUGEMR_LIMITS)" "$before"
    same "exit status of the killed one" "$(grep -c table /tmp/out)" 0
    ok "killed in the middle: no MR left, the file untouched"
}
sabotage_probe_kill() {
    # a signal that changes nothing: it runs to its end
    signal=CONT
}
