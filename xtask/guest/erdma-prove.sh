# register --prove: predicted and seen for each MR, and the kernel left as found.

tracing=/sys/kernel/tracing
control=/sys/kernel/debug/dynamic_debug/control
mount -t tracefs t $tracing
mount -t debugfs d /sys/kernel/debug
# a probe and a debug line of somebody else, which have to stay
echo 'p:kprobes/theirs do_sys_openat2' >>$tracing/kprobe_events
mkdir $tracing/instances/theirs
echo 'module erdma format "top mtt" +p' >$control

# found: everything that hugemr could have switched on
found() {
    cat $tracing/kprobe_events
    ls $tracing/instances
    grep '\[erdma\]' $control
    cat /run/hugemr/traces 2>/dev/null
}

# as_found WHAT: ends the check as failed where something is otherwise than in /tmp/found
as_found() {
    found | grep -v '^hugemr-traces' >/tmp/now
    grep -v '^hugemr-traces' /tmp/found | diff - /tmp/now || bad "$1: the kernel is not as it was found"
}

# prove HOW SIZE ARGUMENT...: registers, and says what it saw on one line for the host
prove() {
    how=$1
    shift
    hugemr register "$@" --device $DEVICE --prove="$how" --json >/tmp/register 2>/tmp/err
    status=$?
    cat /tmp/err
    echo "PROVED $(tr -d '\n' </tmp/register)"
    same "exit status of $*" $status ${expected:-0}
    mrs=$(grep -c '"lkey"' /tmp/register)
    same "verdicts 'same' of $*" "$(grep -c '"verdict": "same"' /tmp/register)" "$mrs"
    proved=$((${proved:-0} + mrs))
}

# prove_all HOW: MRs of several sizes, pages and threads
prove_all() {
    prove "$1" 64MiB --pages 2MiB --chunk 8MiB --threads 4
    prove "$1" 6MiB --pages 2MiB --chunk 2MiB
    prove "$1" 32MiB --pages 4KiB --chunk 4MiB --threads 4
    prove "$1" 32MiB --pages thp --chunk 16MiB
}

check_prove_kretprobe() {
    need_hugemr
    found >/tmp/found
    prove_all kretprobe
    same "how" "$(sed -n 's/^    "how": "\(kretprobe\)",*/\1/p' /tmp/register)" kretprobe
    as_found "after kretprobes"
    ok "$proved MRs as predicted; another's probe, instance and debug line are as they were"
}
sabotage_prove_kretprobe() {
    umount $tracing
}

check_prove_debug_lines() {
    need_hugemr
    found >/tmp/found
    case $(uname -r) in
    6.1.*)
        hugemr register 8MiB --device $DEVICE --pages 2MiB --prove=debug-lines >/tmp/out 2>&1 ||
            bad "exit status $?"
        grep -q "${word:-Linux 6.1 has none}" /tmp/out || bad "$(cat /tmp/out)"
        as_found "after no debug lines"
        ok "the driver of this kernel has no such lines, and one line says so"
        ;;
    *)
        prove_all debug-lines
        as_found "after debug lines"
        ok "$proved MRs as predicted; another's debug line is as it was"
        ;;
    esac
}
sabotage_prove_debug_lines() {
    word="no such word"
    umount /sys/kernel/debug
}

# A line that was on before is used, and stays on.
check_prove_line_stays() {
    need_hugemr
    case $(uname -r) in 6.1.*) skip "the driver of Linux 6.1 has no such lines" ;; esac
    echo "module erdma format \"create_mtt, size\" ${flag:-+p}" >$control
    found >/tmp/found
    prove debug-lines 16MiB --pages 2MiB --chunk 8MiB
    as_found "after a line that was on"
    grep -q 'create_mtt =p "create_mtt, size' $control || bad "the line is off: $(grep 'create_mtt, size' $control)"
    echo 'module erdma format "create_mtt, size" -p' >$control
    ok "$proved MRs as predicted, and the line is still on"
}
sabotage_prove_line_stays() {
    flag=-p
}

# The kernel's answer is replaced behind hugemr's back: predicted 2 MiB, seen 4 KiB.
check_prove_differs() {
    need_hugemr
    insmod /modules/hugemr_old_rule.ko segment=1044480 override=${override-1} || bad "hugemr_old_rule has not loaded"
    hugemr register 16MiB --device $DEVICE --pages 2MiB --chunk 8MiB --prove=kretprobe --all >/tmp/out 2>&1
    status=$?
    cat /tmp/out
    rmmod hugemr_old_rule
    same "exit status" $status 1
    grep -q '^PAGE SIZE NOT AS PREDICTED: 2 of 2 MRs' /tmp/out || bad "$(grep -i 'page size' /tmp/out)"
    ok "$(grep '^PAGE SIZE' /tmp/out)"
}
sabotage_prove_differs() {
    override=0
}

# Killed while it populates: the probe is on since before. release --stale takes it away.
check_prove_kill() {
    need_hugemr
    found >/tmp/found
    for how in kretprobe debug-lines; do
        case $how-$(uname -r) in debug-lines-6.1.*) continue ;; esac
        hugemr register 256MiB --device $DEVICE --pages 4KiB --prove=$how >/tmp/out 2>&1 &
        victim=$!
        noted() { grep -q "^$victim " /run/hugemr/traces 2>/dev/null; }
        wait_for 20 noted || bad "$how: nothing noted"
        switched() { grep -q hugemr_ $tracing/kprobe_events || grep -q 'create_mtt =p "create_mtt, size' $control; }
        wait_for 10 switched || bad "$how: nothing switched on"
        kill -9 $victim
        wait $victim 2>/dev/null
        grep -q "^$victim " /run/hugemr/traces || bad "$how: it ended before it was killed"
        [ "$keep" ] || hugemr release --stale || bad "release --stale: exit status $?"
        as_found "after kill -9 with $how and release --stale"
    done
    hugemr release --stale | grep -q 'nothing to give back' || bad "a second release finds something"
    ok "killed in the middle: another's things stayed, ours are gone"
}
sabotage_prove_kill() {
    keep=yes
}

# Without the rights the registration stands, and one line says what is not proved.
check_prove_nobody() {
    need_hugemr
    as_nobody ${memlock:-unlimited} hugemr register 8MiB --device $DEVICE --pages 2MiB --prove >/tmp/out 2>&1
    status=$?
    cat /tmp/out
    same "exit status" $status 0
    same "lines about the proof" "$(grep -c '^page size not seen in the kernel: .*root only' /tmp/out)" 1
    ok "$(grep '^page size not seen' /tmp/out)"
}
sabotage_prove_nobody() {
    memlock=65536
}
