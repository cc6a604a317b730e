# A user without rights on $DEVICE, with huge pages ready and memlock unlimited.

check_nobody_registers() {
    need_hugemr
    as_nobody ${memlock:-unlimited} hugemr plan 64MiB --device "$DEVICE" --pages 2MiB >/tmp/out 2>&1 ||
        bad "plan: $(head -n 2 /tmp/out)"
    as_nobody ${memlock:-unlimited} hugemr register 64MiB --device "$DEVICE" --pages 2MiB --chunk 16MiB \
        >/tmp/out 2>&1
    status=$?
    cat /tmp/out
    same "exit status" $status 0
    grep -q '^registered 64 MiB .* 4 MRs' /tmp/out || bad "$(head -n 1 /tmp/out)"
    # what takes root is said in one line, and is no failure
    same "lines about root" "$(grep -c 'page size not proved: .*root' /tmp/out)" 1
    ok "plans, maps, populates, registers 4 MRs;$(grep 'not proved' /tmp/out)"
}
sabotage_nobody_registers() {
    memlock=65536
}

check_nobody_reserves() {
    need_hugemr
    all=$(pool 2048 nr_hugepages)
    for line in "reserve ${size:-1GiB}" "register ${size:-1GiB} --device $DEVICE --pages 2MiB --reserve"; do
        as_nobody unlimited hugemr $line >/tmp/out 2>&1
        status=$?
        cat /tmp/out
        same "exit status of $line" $status 3
        grep -q root /tmp/out && grep -q 'sudo' /tmp/out || bad "no word of root and the command: $(head -n 1 /tmp/out)"
    done
    same "pages of the pool" "$(pool 2048 nr_hugepages)" "$all"
    ok "reserve, and register --reserve: need root, the command is printed, nothing changed"
}
sabotage_nobody_reserves() {
    # enough is there already
    size=2MiB
}
