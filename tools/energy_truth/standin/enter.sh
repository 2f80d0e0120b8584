#!/bin/sh
# enter.sh STAGE COMMAND …: run a command that sees the sensors of a world as those of its machine.
# Runs in a user and mount namespace of its own: unshare -Urm sh enter.sh STAGE COMMAND …
set -e
stage=$1
shift
# The machine's own devices stay: programs count its processors there.
mount --rbind /sys/devices "$stage/sys/devices"
mount --rbind "$stage/sys" /sys
mount --bind "$stage/etc" /etc
exec "$@"
