# Makes what was packed (pack.sh) usable in this shell, on the machine that it was carried to:  . .gpu1/enter.sh
# From any folder and as often as you like; a second call takes no time. PYTHON names the interpreter (default: python3).
# Where a part has not arrived it says so; everything else is set up.
# shellcheck shell=bash
if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    echo "error: source this file instead of running it: . ${BASH_SOURCE[0]}" >&2
    exit 2
fi
_pipetune_enter() {
    local exports
    exports=$("${PYTHON:-python3}" "$(dirname "${BASH_SOURCE[0]}")/enter.py") || return
    eval "$exports"
}
_pipetune_enter
