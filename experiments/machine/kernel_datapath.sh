#!/bin/sh
# The first process inside user-mode-linux: makes a small Debian of its own out of the host's root file system, which it
# can only read, starts Open vSwitch, and runs a command.
#
# EXCHANGE, a folder of the host, holds what it is to do (order.sh: COVERED, NEEDED, FOLDER and a function order) and
# takes the exit status. FOLDER is the command's to write. Consoles 1 and 2 are the command's output and its errors.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
fail() { echo "user-mode-linux: $*" >/dev/tty2; halt -f; }

mount -t proc proc /proc && mount -t sysfs sys /sys || fail "no proc or sys"
mountpoint -q /dev || mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmp /dev/shm
stty -F /dev/tty1 -opost
stty -F /dev/tty2 -opost
# shellcheck source=/dev/null
. "$EXCHANGE/order.sh"
for folder in $COVERED; do
    mount -t tmpfs -o mode=1777 tmp "$folder" || fail "cannot cover $folder"
done
show() { # MODE FOLDER: what lies under a covered folder and is needed all the same
    mkdir -p "$2" && mount -t hostfs -o "$1,$2" none "$2" || fail "cannot show $2"
}
echo "$NEEDED" | while read -r folder; do
    [ -z "$folder" ] || show ro "$folder"
done
show rw "$EXCHANGE"
show rw "$FOLDER"
mkdir -p /run/openvswitch /run/netns /run/lock /run/modules/lib
ln -s /usr/lib/uml/modules /run/modules/lib/modules
for module in openvswitch veth sch_htb sch_netem sch_red sch_fq sch_ingress cls_bpf 8021q tcp_bbr bonding; do
    modprobe -d /run/modules "$module" || fail "no module $module"
done
ip link set lo up
# Open vSwitch counts processors at most every 10 s since the boot: before that it finds none, and handles no packet.
while read -r uptime_s _ </proc/uptime && [ "${uptime_s%.*}" -lt 11 ]; do sleep 0.2; done
echo "33554432" >/proc/sys/net/core/wmem_default 2>/dev/null
{
    ovsdb-tool create /etc/openvswitch/conf.db /usr/share/openvswitch/vswitch.ovsschema \
        && /usr/share/openvswitch/scripts/ovs-ctl start --system-id=random --no-record-hostname
} >/run/openvswitch/start.log 2>&1 || fail "Open vSwitch does not start: $(cat /run/openvswitch/start.log)"
(sleep 3600 && halt -f) & # should nobody be left to end it
order </dev/null >/dev/tty1 2>/dev/tty2
echo $? >"$EXCHANGE/status"
cp /var/log/openvswitch/ovs-vswitchd.log "$FOLDER/" 2>/dev/null
sync
halt -f
