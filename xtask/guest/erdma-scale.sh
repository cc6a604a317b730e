# 896 GiB in a guest of half a GiB: 62 MiB of real memory (an odd number of huge pages, so that
# pages contiguous in pairs don't make larger ones) mapped again and again.

check_scale_64g() {
    mr-probe dev=$DEVICE total=917504 chunk=65536 pages=2m real=${real:-62} | tee /tmp/probe
    case $(tail -n 1 /tmp/probe) in
    "registered 14 MRs of 917504 MiB in "*) ok "$(tail -n 1 /tmp/probe)" ;;
    *) bad "$(tail -n 1 /tmp/probe)" ;;
    esac
}
sabotage_scale_64g() {
    # more real memory than there is
    real=620
}

# Below the length that the driver of 6.1 cuts: there the whole, later a quarter for the time.
check_scale_below_4g() {
    case $(uname -r) in
    6.1.*) total=917504 expected=225 ;;
    *) total=229376 expected=57 ;;
    esac
    mr-probe dev=$DEVICE total=$total chunk=${chunk:-4094} pages=2m real=62 | tee /tmp/probe
    case $(tail -n 1 /tmp/probe) in
    "registered $expected MRs of $total MiB in "*) ok "$(tail -n 1 /tmp/probe)" ;;
    *) bad "$(tail -n 1 /tmp/probe)" ;;
    esac
}
sabotage_scale_below_4g() {
    chunk=65536
}
