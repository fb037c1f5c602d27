#!/bin/busybox sh
# Process 1 until the disks are there. Disks in their order: the root, what is brought along, the results, room for work.
/bin/busybox mkdir -p /proc /sys /dev /root
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
/bin/busybox mount -t devtmpfs none /dev
while read -r module; do
    /bin/busybox insmod "$module"
done </early

kind=vd init=/matrix/guest/init
for word in $(/bin/busybox cat /proc/cmdline); do
    case $word in
    matrix.disks=*) kind=${word#*=} ;;
    matrix.init=*) init=${word#*=} ;;
    esac
done
tries=0
while [ ! -b "/dev/${kind}d" ] && [ "$tries" -lt 60 ]; do
    /bin/busybox sleep 1
    tries=$((tries + 1))
done
/bin/busybox mount -t ext4 "/dev/${kind}a" /root
/bin/busybox mount -t ext4 -o ro "/dev/${kind}b" /root/matrix
/bin/busybox mount -t ext4 "/dev/${kind}d" /root/work
/bin/busybox mkdir -p /root/usr/lib/modules
/bin/busybox cp -a /lib/modules/. /root/usr/lib/modules/
/bin/busybox umount /sys
/bin/busybox umount /proc
/bin/busybox mount --move /dev /root/dev
exec /bin/busybox switch_root /root "$init"
