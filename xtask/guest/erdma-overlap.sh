# Registrations and releases side by side. Every answer of the device is late, so that the time in which a call is under way
# is long: how many are under way at once is seen by the device (`waiting`, judged outside of the guest), by probes in
# ib_uverbs, and by the clock.

tracing=/sys/kernel/tracing
mount -t tracefs t $tracing
# what registers and what releases, for the ioctl and for the write of libibverbs alike
for probe in "p:overlap/reg_begins ib_uverbs:ib_uverbs_reg_mr" "r:overlap/reg_ends ib_uverbs:ib_uverbs_reg_mr" \
    "p:overlap/free_begins ib_uverbs:uverbs_free_mr" "r:overlap/free_ends ib_uverbs:uverbs_free_mr"; do
    echo "$probe" >>$tracing/kprobe_events || echo "GUEST no probe $probe"
done
# MADV_POPULATE_WRITE; without a length it only asks whether the kernel has it
echo 'behavior == 23 && len_in > 0' >$tracing/events/syscalls/sys_enter_madvise/filter

# 16 MRs on 2 MiB pages, and how late each answer is
SIXTEEN="256MiB --pages 2MiB"
LATE=300ms

# begin: late answers and the probes are on
begin() {
    free=$(pool 2048 free_hugepages)
    emu fault "late=$LATE@*" && emu fault "late=$LATE@*/dereg_mr" || bad "the device takes no fault"
    echo >$tracing/trace
    echo 1 >$tracing/events/overlap/enable
    echo 1 >$tracing/events/syscalls/sys_enter_madvise/enable
    begun=$(uptime_now)
}

# end: they are off, and nothing is left of what was registered
end() {
    took=$(awk "BEGIN{printf \"%.1f\", $(uptime_now) - $begun}")
    echo 0 >$tracing/events/syscalls/sys_enter_madvise/enable
    echo 0 >$tracing/events/overlap/enable
    emu clear-faults
    grep -v '^#' $tracing/trace >/tmp/trace
    grep -E ' (reg|free)_(begins|ends): ' /tmp/trace | sed 's/ (.*//' | head -n 16
    nothing_held "$free"
    same "MRs at the device" "$(total live)" 0
    same "entries lent" "$(total used)" 0
}

# calls reg|free: how many calls ($calls), by how many threads ($by) with which names and ids ($who), and how many at once
# at most ($most)
calls() {
    read -r calls by most who <<EOF
$(awk -v kind="$1" '
    index($0, " " kind "_begins: ") {
        calls++
        if (++now > most) most = now
        if (!($1 in seen)) { seen[$1]; by++; who = who (by > 1 ? ", " : "") $1 }
    }
    index($0, " " kind "_ends: ") { now-- }
    END { print calls + 0, by + 0, most + 0, who }' /tmp/trace)
EOF
}

# side_by_side THREADS: registers and releases; the kernel's view is judged here, the device's outside
side_by_side() {
    begin
    hugemr register $SIXTEEN --chunk 16MiB --device $DEVICE --threads ${threads:-$1} --json >/tmp/out 2>/tmp/err
    status=$?
    cat /tmp/err
    end
    echo "OVERLAP $1 $(tr -d '\n' </tmp/out)"
    same "exit status" $status 0
    same "as planned" "$(sed -n 's/^  "as_planned": \(.*\),/\1/p' /tmp/out)" true
    register=$(sed -n 's/^    "register": \([0-9.]*\),*/\1/p' /tmp/out)
    release=$(sed -n '/"released"/,$ s/^    "seconds": \([0-9.]*\),*/\1/p' /tmp/out)
    times=$(printf 'register %.2f s, release %.2f s, all %s s' "$register" "$release" "$took")
    calls reg
    same "registrations" $calls 16
    same "registrations at once" $most $1
    same "threads that register" $by $1
    registering=$who
    calls free
    same "releases" $calls 16
    same "releases at once" $most $1
    same "threads that release" $by $1
}

check_overlap_one() {
    side_by_side 1
    echo "$register $release" >/tmp/one
    ok "16 MRs one after the other, by $registering: $times"
}
sabotage_overlap_one() {
    threads=4
}

# The times are told, not judged.
check_overlap_four() {
    side_by_side 4
    # without the check before there is nothing to compare with
    [ -s /tmp/one ] && times="$times; of one thread's time $(awk -v reg=$register -v rel=$release '
        { printf "1/%.2f and 1/%.2f", $1 / reg, $2 / rel }' /tmp/one)"
    ok "16 MRs, 4 at once, by $registering; released 4 at once, by $who: $times"
}
sabotage_overlap_four() {
    threads=1
}

# Memory is populated while MRs are registered, and each table leads to the memory that the program sees.
check_overlap_populate() {
    begin
    hugemr register $SIXTEEN --chunk ${chunk:-16MiB} --device $DEVICE --threads 4 --hold --json >/tmp/hold.out 2>&1 &
    holder=$!
    stamped_mrs $holder 2097152
    end_hugemr
    end
    echo "OVERLAP 4 $(grep '"mrs":\[' /tmp/hold.out | head -n 1)"
    during=$(awk '
        / reg_begins: / { now++ }
        / reg_ends: / { now-- }
        / sys_madvise/ { all++; during += now > 0 }
        END { print during + 0 " of " all + 0 }' /tmp/trace)
    [ "${during%% *}" -gt 0 ] || bad "nothing was populated while an MR was registered: $during calls"
    same "MRs" $seen 16
    same "blocks with their own address" $stamped 128
    same "wrong stamps" $wrong 0
    ok "$during calls that populate began while MRs were under way; 128 blocks of 16 MRs, each found by the device where the program sees it"
}
sabotage_overlap_populate() {
    # one MR begins when all is populated
    chunk=256MiB
}
