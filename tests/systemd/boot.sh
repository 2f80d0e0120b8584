#!/bin/bash
# Becomes a real systemd, PID 1 of its own namespaces, on top of a root that it can't change.
# Run by unshare(1) with new mount, PID, cgroup, network, UTS and IPC namespaces:
#
#   boot.sh DIR LOWER [FROM:TO]...
#
# DIR is scratch space, LOWER the root that is seen below a layer of memory; each FROM of this
# machine appears read-only as TO. Whatever is written goes when the last process does.
set -euo pipefail
dir=$1 lower=$2
shift 2

mount -t tmpfs -o size=2g tmpfs "$dir"
mkdir "$dir"/{changes,work,root}
mount -t overlay -o "lowerdir=$lower,upperdir=$dir/changes,workdir=$dir/work" overlay "$dir/root"
cd "$dir/root"

for pair in "$@"; do
  mkdir -p ".${pair#*:}"
  mount --bind "${pair%%:*}" ".${pair#*:}"
  mount -o remount,bind,ro ".${pair#*:}"
done

mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
while read -r name major minor; do
  mknod -m 666 "dev/$name" c "$major" "$minor"
done <<'NODES'
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
NODES
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=1777 tmpfs dev/shm

# The same hierarchies of control groups as outside, each with our own group as its root.
if [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ]; then
  mount -t cgroup2 cgroup2 sys/fs/cgroup
else
  mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
  while IFS=: read -r _ controllers _; do
    place=sys/fs/cgroup/${controllers#name=}
    if [ -z "$controllers" ]; then
      mkdir sys/fs/cgroup/unified
      mount -t cgroup2 cgroup2 sys/fs/cgroup/unified
    else
      mkdir "$place"
      case $controllers in name=*) options=none,$controllers ;; *) options=$controllers ;; esac
      mount -t cgroup -o "$options" cgroup "$place"
    fi
  done </proc/self/cgroup
fi

# Boot to what a service needs and no further: what this machine does for itself stays out.
mkdir -p etc/systemd/system
cat >etc/systemd/system/tests.target <<'TARGET'
[Unit]
Description=Enough of a system for a service
Requires=basic.target
Wants=dbus.service
After=basic.target dbus.service
AllowIsolate=yes
TARGET
for unit in systemd-udevd.service systemd-udev-trigger.service systemd-modules-load.service \
  systemd-sysctl.service systemd-remount-fs.service systemd-timesyncd.service networking.service \
  apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
  logrotate.timer man-db.timer; do
  ln -sf /dev/null "etc/systemd/system/$unit"
done
: >etc/fstab
rm -f etc/machine-id
printf '%032d\n' 7 >etc/machine-id

mkdir -p before
pivot_root . before
umount -l /before
rmdir /before
mount --make-rshared /
exec env -i container=tests PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
  /lib/systemd/systemd --system --unit=tests.target --log-target=journal-or-kmsg \
  --show-status=no </dev/null
