# The article's experiment by hugemr itself: 896 GiB on a few huge pages mapped again and again (an odd number, so that
# pages contiguous in pairs don't make larger ones). The default plan must stay below what this kernel's driver cuts.

check_article() {
    case $(uname -r) in
    6.1.*) mrs=448 ;;
    *) mrs=14 ;;
    esac
    hugemr register ${size:-896GiB} --device $DEVICE --alias-pages 31 --json >/tmp/register 2>/tmp/err ||
        bad "exit status $?: $(tail -n 3 /tmp/err)"
    same "MRs" "$(grep -c '"lkey"' /tmp/register)" $mrs
    ok "$mrs MRs, $(sed -n 's/.*"register": \([0-9.]*\).*/\1/p' /tmp/register) s to register"
}
sabotage_article() {
    size=448GiB
}
