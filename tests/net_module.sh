#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Modules of the shared library: found beside it or where WRING_MODULES says; missing, foreign and
# outdated ones are refused with a message that names the file; and opening ucx leaves the program's
# signal handlers and environment alone.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset UCX_HANDLE_ERRORS UCX_MEM_EVENTS # set for static programs only
if [ ! -e "$WRING_LIB/libwring_ucx.so" ]; then
    echo "skipped: the module ucx is not built here"
    exit 77
fi
if nm -D "$WRING_LIB/libwring.so" | grep -qE '__(asan|tsan|ubsan)'; then
    echo "skipped: a program without the sanitizer cannot load a library with it"
    exit 77
fi

cat > "$work/program.c" <<'END'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <wring/wring.h>

static void mine(int number)
{
    (void)number;
}

int main(void)
{
    wring_context *context = NULL;
    struct sigaction after;
    signal(SIGSEGV, mine);
    wring_status status = wring_context_create(NULL, &context);
    if (status != WRING_OK) {
        puts(wring_error_message());
        return status;
    }
    sigaction(SIGSEGV, NULL, &after);
    if (after.sa_handler != mine || getenv("UCX_HANDLE_ERRORS") || getenv("UCX_MEM_EVENTS")) {
        puts("the program's state was changed");
        return 99;
    }
    wring_context_destroy(context);
    return 0;
}
END
"$CC" -o "$work/program" "$work/program.c" -I "$WRING_SOURCE/include" -L "$WRING_LIB" -lwring \
    -Wl,-rpath,"$WRING_LIB"

# expect STATUS TEXT [NAME=value...]: how the program ends, and what it says.
expect() {
    local status=$1 text=$2 rc=0
    shift 2
    env "$@" "$work/program" > "$work/output" 2>&1 || rc=$?
    if [ $rc -ne "$status" ] || { [ -n "$text" ] && ! grep -qF -- "$text" "$work/output"; }; then
        echo "FAILED: $* ended with $rc instead of $status, or did not say '$text':"
        cat "$work/output"
        exit 1
    fi
}

# module BUILD ABI NAME: a module in $work/modules that is none of ours.
module() {
    cat > "$work/module.c" <<END
#include <wring/plugin.h>
static const struct wring_transport_ops ops = {.size = sizeof ops, .name = "$3"};
const struct wring_module wring_module = {sizeof wring_module, $2, "$1", &ops};
END
    "$CC" -shared -fPIC -o "$work/modules/libwring_ucx.so" "$work/module.c" -I "$WRING_SOURCE/include"
}

mkdir "$work/modules" "$work/copy"
cp "$WRING_LIB/libwring_ucx.so" "$work/copy"
build=$(strings -n 40 "$WRING_LIB/libwring_ucx.so" | grep -xE '[0-9a-f]{40}' | head -1)

expect 0 ""
expect 0 "" WRING_MODULES="$work/copy"
expect 10 "no module at $work/modules/libwring_ucx.so" WRING_MODULES="$work/modules"
expect 10 "no transport 'carrier-pigeon'; there are: self, ucx, nccl" WRING_TRANSPORT=carrier-pigeon
echo "not an object" > "$work/modules/libwring_ucx.so"
expect 10 "cannot be loaded" WRING_MODULES="$work/modules"
module 0123456789abcdef0123456789abcdef01234567 1 ucx
expect 10 "is of another build (0123456789ab" WRING_MODULES="$work/modules"
module "$build" 999 ucx
expect 10 "has plugin interface 999" WRING_MODULES="$work/modules"
module "$build" 1 pigeon
expect 10 "holds another transport, 'pigeon'" WRING_MODULES="$work/modules"
echo 'int unrelated;' > "$work/module.c"
"$CC" -shared -fPIC -o "$work/modules/libwring_ucx.so" "$work/module.c"
expect 10 "is not a module of wring" WRING_MODULES="$work/modules"
echo "modules: all cases as expected"
