# All that `hugemr devices` and `ibv_devinfo -v` both tell, attribute by attribute.

# plain NAME: a number, text or truth of `hugemr devices --json` on standard input
plain() {
    sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},*$/\1/p" | head -n 1
}

# told NAME: the words of `ibv_devinfo -v` behind a name
told() {
    awk -v name="$1:" '$1 == name { $1 = ""; sub(/^ /, ""); print; exit }' /tmp/info
}

check_devices_as_devinfo() {
    need_hugemr
    ibv_devinfo -v -d "$DEVICE" >/tmp/info
    hugemr devices --json >/tmp/devices || bad "exit status $?"
    cat /tmp/devices
    n=0
    for key in max_mr_size max_mr; do
        same $key "$(limit $key </tmp/devices)" "$(field $key </tmp/info)"
        n=$((n + 1))
    done
    for key in vendor_id vendor_part_id hw_ver; do
        same $key "$(plain $key </tmp/devices)" "$(field $key </tmp/info)"
        n=$((n + 1))
    done
    for key in page_size_cap fw_ver node_guid; do
        same $key "$(plain $key </tmp/devices)" "$(told $key)"
        n=$((n + 1))
    done
    same transport "$(plain transport </tmp/devices)" "$(told transport | sed 's/ (.*//')"
    same "number of ports" "$(grep -c '"ethernet":' /tmp/devices)" "$(told phys_port_cnt)"
    case $(told state) in PORT_ACTIVE*) active=true ;; *) active=false ;; esac
    same "port state" "$(plain active </tmp/devices)" $active
    case $(told link_layer) in Ethernet) ethernet=true ;; *) ethernet=false ;; esac
    same "link layer" "$(plain ethernet </tmp/devices)" $ethernet
    ok "$((n + 4)) attributes as in ibv_devinfo -v"
}
sabotage_devices_as_devinfo() {
    ibv_devinfo() { command ibv_devinfo "$@" | sed 's/\(vendor_part_id:[^0-9]*\).*/\1 4224/'; }
}
