# The two known defects on the real driver, with hugemr in the loop: predicted by its plan, avoided by its default plan, and
# seen at the device when forced. Five 1 GiB pages, next to each other.

insmod /modules/hugemr_old_rule.ko override=0 || echo "GUEST hugemr_old_rule has not loaded"
parameter=/sys/module/hugemr_old_rule/parameters/override
FIVE="5GiB --pages 1GiB"

# The kernels here have the fix of the scatter defect: the test module takes it out, and hugemr is told so.
case $(uname -r) in
6.1.*) OLD="--kernel 6.1.140" ;;
*) OLD="--kernel 6.12.30" ;;
esac

# plan ARGUMENT...: what hugemr plan says, in /tmp/out
plan() {
    hugemr plan "$@" --device $DEVICE >/tmp/out 2>&1
    status=$?
    echo "+ hugemr plan $* (status $status)"
    cat /tmp/out
}

check_scatter_predicted() {
    plan $FIVE --one-mr ${old-$OLD}
    same "exit status for one MR" $status 1
    says "scatter at 4 GiB" "262,144 entries a GiB"
    plan $FIVE $OLD
    same "exit status" $status 0
    says "2 MRs x 2 GiB" "scatter at 4 GiB"
    ok "one MR of 5 GiB: refused for it; the default: MRs of 2 GiB"
}
sabotage_scatter_predicted() {
    # its own kernel is fixed
    old=
}

# The pool hands pages out in the reverse order of their return: of two runs in a row one has them ascending.
check_scatter_avoided() {
    echo Y >$parameter
    before=$(total entries_lent)
    for run in 1 2; do
        register $FIVE $OLD $more
        same "exit status" $status 0
    done
    same "entries of both runs" $(($(total entries_lent) - before)) 10
    ok "default plan under the old rule, twice: 5 entries each"
}
sabotage_scatter_avoided() {
    more="--one-mr --force"
}

check_scatter_forced() {
    echo ${override:-Y} >$parameter
    for try in 1 2 3 4; do
        before=$(total entries_lent)
        register $FIVE $OLD --one-mr --force
        lent=$(($(total entries_lent) - before))
        [ $lent = 5 ] || break
    done
    case $(uname -r) in
    # one block of memory for the table is more than it can ask for
    6.1.*)
        same "exit status" $status 3
        says ENOMEM small_pages
        same "entries at the device" $lent 0
        ok "one MR of 5 GiB under the old rule: ENOMEM, a table of 1,310,720 entries is more than this driver makes"
        ;;
    *)
        same "exit status" $status 0
        says "1,310,720 entries"
        same "entries at the device" $lent 1310720
        ok "one MR of 5 GiB under the old rule: 1,310,720 entries predicted and seen at the device, not 5"
        ;;
    esac
}
sabotage_scatter_forced() {
    override=N
}

check_length_predicted() {
    plan $FIVE --one-mr ${driver-}
    same "exit status for one MR" $status 1
    says "32-bit length" "modulo 4 GiB"
    plan $FIVE
    same "exit status" $status 0
    says "2 MRs x 2 GiB" "32-bit length"
    ok "one MR of 5 GiB: refused for it; the default: MRs of 2 GiB"
}
sabotage_length_predicted() {
    driver="--driver 1.5.7"
}

check_length_avoided() {
    echo N >$parameter
    before=$(total truncated_lengths)
    register $FIVE $more
    same "exit status" $status 0
    same "lengths cut" $(($(total truncated_lengths) - before)) 0
    ok "default plan: three MRs, every length whole"
}
sabotage_length_avoided() {
    more="--one-mr --force"
}

# 5 GiB arrive as 1 GiB, 4 GiB and 64 GiB as nothing.
check_length_forced() {
    echo N >$parameter
    before=$(total truncated_lengths)
    for size in 5GiB 4GiB 64GiB; do
        more=
        [ $size = 64GiB ] && more="--alias-pages 3"
        register $size --pages 1GiB --one-mr ${force---force} $more
        same "exit status at $size" $status 1
        says "WRONG LENGTH"
    done
    same "lengths cut" $(($(total truncated_lengths) - before)) 3
    ok "one MR of 5, 4 and 64 GiB: the calls succeed, the device counts three lengths that are cut, and hugemr says so"
}
sabotage_length_forced() {
    force="--chunk 2GiB"
}

# The default plan's MRs, stamped from outside every 2 MiB, as the device reads them.
check_length_stamps() {
    echo N >$parameter
    hugemr register $FIVE --device $DEVICE --hold --json >/tmp/hold.out 2>&1 &
    holder=$!
    stamped_mrs $holder 2097152
    end_hugemr
    same "MRs" $seen 3
    same "blocks with their own address" $stamped 2560
    same "wrong stamps" $wrong 0
    ok "2,560 blocks of 5 GiB on 1 GiB pages, each found by the device where the program sees it"
}
sabotage_length_stamps() {
    off=4096
}
