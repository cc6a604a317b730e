# hugemr usage, with two processes that hold memory regions.

# of_pid PID KEY: a number of that process in the last document of hugemr usage
of_pid() {
    awk -v pid="$1," -v key="\"$2\":" '
        $1 == "\"pid\":" { mine = ($2 == pid) }
        mine && $1 == key { gsub(/,/, "", $2); print $2; exit }' /tmp/usage.json
}

# total KEY: a number of the device in it
total() {
    awk -v key="\"$1\":" '$1 == key { gsub(/,/, "", $2); print $2; exit }' /tmp/usage.json
}

check_hugemr_usage() {
    need_hugemr
    mr-probe dev="$DEVICE" total=${megabytes:-24} chunk=8 pages=4k hold=1 >/dev/null &
    other=$!
    holds 20 $other 3
    start_hugemr 2 128MiB --pages 2MiB --max-mr-size 64MiB
    hugemr usage --device "$DEVICE" --json >/tmp/usage.json
    status=$?
    hugemr usage --device "$DEVICE"
    cat /tmp/usage.json
    kernel=$(mrs)
    killed $other
    end_hugemr
    same "exit status" $status 0
    same "MRs of hugemr" "$(of_pid $holder mrs)" 2
    same "bytes of hugemr" "$(of_pid $holder bytes)" 134217728
    same "pinned by hugemr" "$(of_pid $holder pinned)" 134217728
    same "MRs of the other" "$(of_pid $other mrs)" 3
    same "bytes of the other" "$(of_pid $other bytes)" 25165824
    same "MRs of the device" "$(total mrs)" "$kernel"
    same "bytes of the device" "$(total bytes)" 159383552
    # exact for its own, as the layout says it, an interval for the other: 3 MRs of 8 MiB
    own=$(awk -v pid="$holder," '$1 == "\"pid\":" { mine = ($2 == pid) }
        mine && ($1 == "\"min\":" || $1 == "\"max\":") { gsub(/,/, "", $2); print $2 }' /tmp/usage.json)
    same "ends of hugemr's own entries" "$(echo "$own" | sort -u | wc -l)" 1
    [ "$own" ] && [ "$(echo "$own" | head -n 1)" -le 64 ] || bad "own entries: $own"
    ok "2 MRs, 128 MiB, $(echo "$own" | head -n 1) entries and 3 MRs, 24 MiB: as they are"
}
sabotage_hugemr_usage() {
    megabytes=16
}
