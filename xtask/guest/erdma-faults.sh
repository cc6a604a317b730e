# What goes wrong at the device, and what hugemr makes of it. After each check no huge page stays taken.

# end_on_term PID: SIGTERM; the seconds until its end in $ending, its status in $ended
end_on_term() {
    begun=$(uptime_now)
    kill -TERM "$1"
    gone() { ! kill -0 "$1" 2>/dev/null; }
    wait_for 60 gone "$1" || bad "hugemr does not end on SIGTERM"
    wait "$1"
    ended=$?
    ending=$(awk "BEGIN{printf \"%.1f\", $(uptime_now) - $begun}")
}

check_fault_refused() {
    free=$(pool 2048 free_hugepages)
    fault ${action:-refuse} 3
    register $FOUR
    same "exit status" $status 3
    says EIO "2 of 4" "rolled back"
    nothing_held "$free"
    same "MRs at the device" "$(total live)" 0
    emu clear-faults
    works
    ok "the third of four: EIO, exit status 3, $(sed -n 's/.*\(2 of 4[^;]*\).*/\1/p' /tmp/out | head -n 1)rolled back; nothing held, and the next one works"
}
sabotage_fault_refused() {
    action=late=10ms
}

# The pages that --reserve adds for it are given back too.
check_fault_reserved() {
    before=$(pool 2048 nr_hugepages)
    free=$(pool 2048 free_hugepages)
    fault ${action:-refuse} 3
    register 240MiB --pages 2MiB --chunk 16MiB --threads 1 --reserve
    same "exit status" $status 3
    says EIO
    emu clear-faults
    nothing_held "$free"
    same "pages in the pool" "$(pool 2048 nr_hugepages)" "$before"
    ok "added pages are given back after EIO: pool of $before as before"
}
sabotage_fault_reserved() {
    action=late=10ms
}

check_fault_late() {
    free=$(pool 2048 free_hugepages)
    fault ${action:-late=3s} 2
    register $FOUR
    same "exit status" $status 0
    [ "${took%.*}" -ge 3 ] || bad "$took s, and the answer came after 3 s"
    nothing_held "$free"
    emu clear-faults
    ok "an answer after 3 s is waited for ($took s)"
}
sabotage_fault_late() {
    action=late=10ms
}

check_fault_unanswered() {
    free=$(pool 2048 free_hugepages)
    fault ${action:-drop} 3
    register $FOUR
    same "exit status" $status 3
    says ETIME "did not answer" "reload the .*driver"
    [ "${took%.*}" -ge 15 ] || bad "$took s, and the driver waits 15 s"
    first=$took
    nothing_held "$free"
    # the queue is dead from here on
    register $FOUR
    same "exit status on a dead queue" $status 3
    says ENODEV "reload the .*driver"
    nothing_held "$free"
    reload
    works
    ok "ETIME after $first s, then ENODEV after $took s; both name the reload, and after it the device works"
}
sabotage_fault_unanswered() {
    action=late=10ms
}

# Whether unbind waits for the process: the driver of 6.1 cannot take an open device from it (no disassociation), later
# ones can.
check_unbind() {
    free=$(pool 2048 free_hugepages)
    start_hugemr 4 $FOUR
    bound=$(basename "$(ls -d /sys/bus/pci/drivers/erdma/0000:* | head -n 1)")
    [ "$bound" ] || bad "no PCI device bound to erdma"
    rm -f /tmp/unbound
    (
        echo "${other:-$bound}" >/sys/bus/pci/drivers/erdma/unbind
        uptime_now >/tmp/unbound
    ) &
    sleep 3
    [ -e /tmp/unbound ] && waits="does not wait" || waits="waits for the process"
    dmesg | tail -n 3
    kill -0 $holder 2>/dev/null || bad "hugemr has ended by itself: $(tail -n 1 /tmp/hold.out)"
    taken=$((free - $(pool 2048 free_hugepages)))
    end_on_term $holder
    cat /tmp/hold.out
    wait_for 60 [ -s /tmp/unbound ] || bad "unbind does not end after the process has"
    [ ! -e /sys/class/infiniband/$DEVICE ] || bad "$DEVICE is still there after unbind"
    nothing_held "$free"
    same "MRs at the device" "$(total live)" 0
    case $(uname -r) in
    6.1.*) expected="waits for the process" ;;
    *) expected="does not wait" ;;
    esac
    same "unbind" "$waits" "$expected"
    echo "$bound" >/sys/bus/pci/drivers/erdma/bind
    wait_for 10 [ -e /sys/class/infiniband/$DEVICE ] || bad "no $DEVICE after bind"
    works
    ok "unbind $waits ($taken pages held meanwhile); hugemr ends on SIGTERM in $ending s with status $ended; no page stays taken"
}
sabotage_unbind() {
    other=0000:ff:1f.7
}

# The device's process dies while two hugemr hold MRs: one is told to end, the other is killed. The driver of these
# kernels takes an MR back in its own books whatever the device says, and tells only the kernel's log.
check_device_dies() {
    free=$(pool 2048 free_hugepages)
    start_hugemr 4 $FOUR
    first=$holder
    start_hugemr 4 $FOUR
    [ "$alive" ] || echo abort >&5
    sleep 1
    end_on_term $first
    kill -9 $holder
    wait $holder 2>/dev/null
    nothing_held "$free"
    dmesg | grep 'failed to deregister MR' | tail -n 3
    warned=$(dmesg | grep -c 'failed to deregister MR')
    register $FOUR
    same "exit status without a device" $status 3
    says ENODEV "reload the .*driver"
    nothing_held "$free"
    ok "SIGTERM: status $ended after $ending s, all pages back; kill -9: all pages back; $warned warnings in the kernel's log; the next one: ENODEV"
}
sabotage_device_dies() {
    alive=yes
}
