# Before the checks on an emulated eRDMA device: network, driver, device.
. /t/lib.sh

DEVICE=erdma_0

net=$(ls /sys/bus/virtio/drivers/virtio_net/virtio*/net 2>/dev/null | head -n 1)
ip link set "$net" up
ip addr add 10.77.0.2/24 dev "$net"

# load_erdma: loads the driver and waits for its device
load_erdma() {
    insmod /modules/erdma.ko || return 1
    wait_for 10 [ -e /sys/class/infiniband/$DEVICE ]
}

load_erdma || echo "GUEST erdma has not bound"
