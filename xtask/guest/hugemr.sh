# Checks of the command hugemr on $DEVICE, a software or an emulated one.

check_hugemr_devices() {
    need_hugemr
    ibv_devinfo -v -d "$DEVICE" >/tmp/info
    hugemr devices --json >/tmp/devices || bad "exit status $?"
    cat /tmp/devices
    for key in max_mr_size max_mr; do
        same $key "$(limit $key </tmp/devices)" "$(field $key </tmp/info)"
    done
    for key in page_size_cap fw_ver node_guid; do
        same $key "$(limit $key </tmp/devices)" "$(awk -v k=$key: '$1 == k { print $2 }' /tmp/info)"
    done
    ok "five attributes as in ibv_devinfo -v, among them max_mr $(field max_mr </tmp/info)"
}
sabotage_hugemr_devices() {
    ibv_devinfo() { command ibv_devinfo "$@" | sed 's/\(max_mr:[^0-9]*\).*/\1 12345/'; }
}

check_hugemr_2m() {
    need_hugemr
    start_hugemr 4 512MiB --pages 2MiB --max-mr-size 128MiB
    used=$(($(pool 2048 nr_hugepages) - $(pool 2048 free_hugepages)))
    end_hugemr
    same "2 MiB pages in use" $used 256
    ok "512 MiB in 4 MRs on 256 pages, released"
}
sabotage_hugemr_2m() {
    echo 0 >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
}

check_hugemr_1g() {
    need_hugemr
    start_hugemr 1 1GiB --pages 1GiB
    free=$(pool 1048576 free_hugepages)
    end_hugemr
    same "free 1 GiB pages" "$free" 0
    same "free 1 GiB pages after it" "$(pool 1048576 free_hugepages)" 1
    ok "1 MR on a 1 GiB page, released"
}
sabotage_hugemr_1g() {
    echo 0 >/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages
}

# The plan refuses (1); past it the kernel does (3).
check_hugemr_memlock() {
    need_hugemr
    for way in "" --force; do
        as_nobody ${memlock:-1048576} hugemr register 64MiB --device "$DEVICE" --pages 2MiB $way \
            >/tmp/out 2>&1
        status=$?
        cat /tmp/out
        case $way in --force) expected=3 ;; *) expected=1 ;; esac
        same "exit status with '$way'" $status $expected
        grep -qi memlock /tmp/out || bad "memlock is not named with '$way'"
    done
    grep -q ENOMEM /tmp/out || bad "ENOMEM is not named"
    ok "nobody with memlock 1 MiB: refused by the plan, with --force by the kernel (ENOMEM)"
}
sabotage_hugemr_memlock() {
    memlock=unlimited
}

check_hugemr_split() {
    need_hugemr
    start_hugemr 8 512MiB --pages 2MiB --max-mr-size ${limit:-64MiB}
    end_hugemr
    ok "512 MiB with --max-mr-size 64MiB: 8 MRs"
}
sabotage_hugemr_split() {
    limit=128MiB
}

check_hugemr_kill() {
    need_hugemr
    before=$(pool 2048 free_hugepages)
    start_hugemr 4 256MiB --pages 2MiB --max-mr-size 64MiB
    kill -9 $holder
    wait $holder 2>/dev/null
    nothing_left() { [ "$(mrs)" = 0 ]; }
    wait_for 10 nothing_left || bad "$(mrs) MRs left: $(rdma resource show mr | head -n 3)"
    same "free 2 MiB pages" "$(pool 2048 free_hugepages)" "$before"
    ok "no MR and no page left after kill -9"
}
sabotage_hugemr_kill() {
    mr-probe dev="$DEVICE" total=2 hold=1 >/dev/null &
    holds 10 $! 1
}

check_hugemr_two() {
    need_hugemr
    start_hugemr 4 256MiB --pages 2MiB --max-mr-size 64MiB
    first=$holder
    start_hugemr 4 256MiB --pages 2MiB --max-mr-size 64MiB
    both="$(mrs $first) and $(mrs $holder)"
    kill -TERM $first
    wait $first
    same "MRs of both" "$both" "4 and 4"
    same "MRs of the second after the end of the first" "$(mrs $holder)" 4
    end_hugemr
    ok "two processes with 4 MRs each, the first ended first"
}
sabotage_hugemr_two() {
    # pages for one of them
    echo 130 >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
}

# As in a container that was given no device files: its own mounts, nothing in /dev/infiniband.
check_hugemr_container() {
    need_hugemr
    script='[ "$HIDE" ] && mount -t tmpfs none /dev/infiniband
        hugemr register 64MiB --device "$DEVICE" --pages 2MiB; echo "status $?"'
    DEVICE=$DEVICE HIDE=${hide-yes} unshare --mount sh -c "$script" >/tmp/out 2>&1
    cat /tmp/out
    same "exit status" "$(sed -n 's/^status //p' /tmp/out)" 3
    grep -q /dev/infiniband /tmp/out || bad "/dev/infiniband is not named"
    ok "exit status 3, /dev/infiniband named"
}
sabotage_hugemr_container() {
    hide=
}

# The answer with its evidence, and no blocker that is not there.
check_hugemr_doctor() {
    need_hugemr
    hugemr doctor --all --for 128MiB --pages 2MiB --device "$DEVICE"
    status=$?
    hugemr doctor --json --for 128MiB --pages 2MiB --device "$DEVICE" >/tmp/doctor
    grep -q '"schema": "hugemr/doctor/1"' /tmp/doctor || bad "no document"
    same "exit status" $status 0
    same "blockers" "$(sed -n 's/^ *"block": \([0-9]*\),*/\1/p' /tmp/doctor)" 0
    grep -q '"code": "device"' /tmp/doctor || bad "the device is not said to be usable"
    ok "128 MiB: $(sed -n 's/^ *"answer": "\(.*\)",*/\1/p' /tmp/doctor), no blocker"
}
sabotage_hugemr_doctor() {
    echo 0 >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
}

# The mapping of a registered range: 2 MiB pages, as many entries as pages, and its bytes pinned.
check_hugemr_inspect() {
    need_hugemr
    start_hugemr 1 64MiB --pages 2MiB --max-mr-size 64MiB
    hugemr inspect --pid ${pid:-$holder} --json >/tmp/inspect
    status=$?
    hugemr inspect --pid $holder
    end_hugemr
    same "exit status" $status 0
    same "pinned" "$(sed -n 's/^  "pinned": \([0-9]*\),*/\1/p' /tmp/inspect)" 67108864
    seen=$(grep -A 20 '"hugetlb": true' /tmp/inspect | sed -n 's/^ *"entries": \([0-9]*\),*/\1/p' | head -n 1)
    [ "${seen:-0}" -gt 0 ] && [ "$seen" -le 32 ] || bad "entries: seen '$seen', expected at most 32"
    ok "64 MiB of 2 MiB pages: $seen entries, all pinned"
}
sabotage_hugemr_inspect() {
    pid=$$
}
