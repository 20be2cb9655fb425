#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Branch coverage of what reads strangers' bytes: builds preset `coverage`, runs the tests in it, prints
# what gcov counted and which promise is not kept. coverage.sh [--missing]; --missing names the lines.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset coverage >/dev/null
cmake --build --preset coverage -j "$(nproc)" >/dev/null
find build/coverage -name '*.gcda' -delete
run_tests() { # the faults at every n, though they are labelled long: they take the ways of failure
    ctest --preset coverage -L '^(unit|conform)$' -j "$(nproc)" && ctest --preset coverage -R faults_nth_long
}
run_tests >build/coverage/test.log || { tail -n 40 build/coverage/test.log; exit 1; }
python3 scripts/lib/coverage.py build/coverage . "$@"
