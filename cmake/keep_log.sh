#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# keep_log.sh COMPILER ARGUMENT...: compiles, and keeps what the compiler says in OBJECT.log, where
# OBJECT follows -o. A later build that need not compile it again says nothing of it.
set -o pipefail
object=$(printf '%s\n' "$@" | grep -x -A 1 -e -o | tail -n 1)
"$@" 2>&1 | tee "$object.log"
