#!/bin/bash
# A machine of its own for systemd: boot.sh ROOT CGROUP PROGRAM, as the first process of new namespaces (mount, pid, ipc, uts).
# Its root is this machine's, with everything that is written kept in memory. Exits with 77 where that cannot be made.
set -eu
if [ "$1" != inside ]; then
	echo 0 > "$2/cgroup.procs"
	exec unshare --cgroup "$BASH" "$0" inside "$@"
fi
shift
root=$1 program=$3
trap 'exit 77' ERR
mount --make-rprivate /
mount -t tmpfs -o size=512m none "$root"
mkdir "$root"/{up,work,all}
mount -t overlay -o "lowerdir=/,upperdir=$root/up,workdir=$root/work" overlay "$root/all"
root=$root/all
install -D -m 755 "$program" "$root/opt/x402-wallet"
mount -t tmpfs -o mode=755 none "$root/run"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro none "$root/sys"
mount -t cgroup2 none "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 none "$root/dev"
for device in null zero full random urandom tty; do
	touch "$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
ln -s pts/ptmx "$root/dev/ptmx"
mkdir "$root"/dev/{pts,shm}
mount -t devpts -o newinstance,ptmxmode=666 none "$root/dev/pts"
mount -t tmpfs none "$root/dev/shm"
# nothing of the machine's own services is started; it ends by itself, whatever becomes of the test
cat > "$root/etc/systemd/system/test.target" <<-END
	[Unit]
	Wants=end.service systemd-journald.service
END
cat > "$root/etc/systemd/system/end.service" <<-END
	[Unit]
	SuccessAction=exit-force
	DefaultDependencies=no
	[Service]
	ExecStart=/bin/sleep 300
END
cd "$root"
mkdir -p old
pivot_root . old
umount -l /old
mount --make-rshared /
trap - ERR
for systemd in /usr/lib/systemd/systemd /lib/systemd/systemd; do
	[ ! -x $systemd ] || exec env -i container=test PATH="$PATH" setpriv --bounding-set -sys_module,-sys_time,-sys_rawio,-sys_boot \
		$systemd --system --unit=test.target --log-target=journal --log-level=info --show-status=no
done
exit 77
