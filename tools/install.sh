#!/usr/bin/env bash
# Installs what was built: `tools/install.sh BINARY DESTDIR PREFIX UNITDIR`. `make install` calls it.
#
# Man pages and completions come from the binary itself, so they always fit; where it does not run here, from the same one
# for this machine: PAGES_FROM=BINARY. OBJCOPY= and ZSH_FUNCTIONS= (below PREFIX/share) stand in for what is usual.
set -euo pipefail
cd "$(dirname "$0")/.."

[[ $# -eq 4 ]] || {
    echo "usage: tools/install.sh BINARY DESTDIR PREFIX UNITDIR" >&2
    exit 2
}
binary=$1 destdir=$2 prefix=$3 unitdir=$4
objcopy=${OBJCOPY:-objcopy} runs=${PAGES_FROM:-$binary}

pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT

# Names and lines for backtraces go into a file beside it, where gdb and the program itself look for them.
install -D -m 755 "$binary" "$destdir$prefix/bin/mitra"
install -d "$destdir$prefix/bin/.debug"
"$objcopy" --only-keep-debug "$binary" "$destdir$prefix/bin/.debug/mitra.debug"
chmod 644 "$destdir$prefix/bin/.debug/mitra.debug"
"$objcopy" --strip-all --add-gnu-debuglink="$destdir$prefix/bin/.debug/mitra.debug" "$destdir$prefix/bin/mitra"
"$runs" man --out "$pages"
install -d "$destdir$prefix/share/man/man1"
install -m 644 "$pages"/*.1 "$destdir$prefix/share/man/man1/"

# completion SHELL PATH
completion() {
    "$runs" completions "$1" >"$pages/completion"
    install -D -m 644 "$pages/completion" "$destdir$prefix/share/$2"
}
completion bash bash-completion/completions/mitra
completion zsh "${ZSH_FUNCTIONS:-zsh/site-functions}/_mitra"
completion fish fish/vendor_completions.d/mitra.fish

for unit in mitra.service mitra-index.service mitra-notify.service mitra-send.service mitra-upload.service mitra-dbus.service; do
    sed "s|@PREFIX@|$prefix|g" "packaging/$unit" >"$pages/$unit"
    install -D -m 644 "$pages/$unit" "$destdir$unitdir/$unit"
done
# The service of the system bus: who may be it, who may ask it, and that it is started when it is asked.
dbus=$destdir$prefix/share/dbus-1
install -D -m 644 packaging/dbus/org.mitra.Mitra1.conf "$dbus/system.d/org.mitra.Mitra1.conf"
install -D -m 644 packaging/dbus/org.mitra.Mitra1.service "$dbus/system-services/org.mitra.Mitra1.service"
install -D -m 644 packaging/dbus/org.mitra.Mitra1.xml "$dbus/interfaces/org.mitra.Mitra1.xml"
install -D -m 644 packaging/dbus/org.mitra.Mitra1.policy "$destdir$prefix/share/polkit-1/actions/org.mitra.Mitra1.policy"
install -D -m 644 packaging/mitra.sysusers "$destdir$prefix/lib/sysusers.d/mitra.conf"
# Examples: what stands in /etc belongs to whoever runs the machine.
install -D -m 644 packaging/mitra.toml "$destdir$prefix/share/doc/mitra/mitra.toml"
install -m 644 LICENSE NOTICE CHANGELOG.md docs/*.md "$destdir$prefix/share/doc/mitra/"

echo "installed mitra in $destdir$prefix"
if [[ -z $destdir && -d /run/systemd/system ]]; then
    # The services run as this user.
    systemd-sysusers "$prefix/lib/sysusers.d/mitra.conf"
    systemctl daemon-reload
    echo "to record from now on: systemctl enable --now mitra"
fi
