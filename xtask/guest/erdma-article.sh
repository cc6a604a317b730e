# The article's experiment at full scale, by a program as one would write it by hand and by hugemr, in one guest: 896 GiB on
# a few huge pages mapped again and again (an odd number, so that pages contiguous in pairs don't make larger ones).

# mr-demo knows nothing of lengths: on 6.1 each of its MRs arrives with length 0, though every call succeeds.
check_demo() {
    case $(uname -r) in
    6.1.*) cut=14 ;;
    *) cut=0 ;;
    esac
    before=$(total truncated_lengths)
    mr-demo $DEVICE ${mrs:-14} 65536 62 | tee /tmp/demo
    case $(tail -n 1 /tmp/demo) in
    "demo: 14 MRs of 65536 MiB: "*) ;;
    *) bad "$(tail -n 1 /tmp/demo)" ;;
    esac
    same "MRs that arrive with their length cut" $(($(total truncated_lengths) - before)) $cut
    ok "$(tail -n 1 /tmp/demo | sed 's/^demo: //'); $cut of them arrive with their length cut"
}
sabotage_demo() {
    mrs=13
}

# The default plan stays below what this kernel's driver cuts.
check_article() {
    case $(uname -r) in
    6.1.*) mrs=448 ;;
    *) mrs=14 ;;
    esac
    before=$(total truncated_lengths)
    hugemr register ${size:-896GiB} --device $DEVICE --alias-pages 31 --json >/tmp/register 2>/tmp/err ||
        bad "exit status $?: $(tail -n 3 /tmp/err)"
    same "MRs" "$(grep -c '"lkey"' /tmp/register)" $mrs
    same "MRs that arrive with their length cut" $(($(total truncated_lengths) - before)) 0
    seconds=$(awk '
        /"(populate|register|seconds|total)":/ { gsub(/[",:]/, ""); if ($2 != "{") t[$1] = $2 }
        END { printf "populate %.2f s, register %.2f s (overlapped, together %.2f s), release %.2f s", t["populate"], t["register"], t["total"], t["seconds"] }' /tmp/register)
    ok "$mrs MRs: $seconds; none arrives with its length cut"
}
sabotage_article() {
    size=448GiB
}
