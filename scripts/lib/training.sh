# SPDX-License-Identifier: Apache-2.0
# What demo.sh and accuracy.sh share: the codecs they compare, and how one of them is trained. Sourced
# from the root of the project.
train=build/release/bin/wring-train

# Packages, configuration, build; the whole output in build/set-up.log.
set_up() {
    mkdir -p build
    echo "setting up (packages, build; output in build/set-up.log) ..."
    { scripts/deps.sh && cmake --preset release && cmake --build --preset release; } \
        >build/set-up.log 2>&1 || { tail -n 30 build/set-up.log >&2; exit 1; }
}

# options_of CODEC: what a codec needs beside the defaults. One bit per value is the coarsest of all; its
# feedback wants smaller steps than the dense gradient allows.
options_of() {
    case $1 in
    ef+sign) echo "--lr 0.015" ;;
    esac
}

# table FORMAT FILE...: a line of Python's FORMAT for each summary, its fields as names.
table() {
    python3 - "$@" <<'END'
import json, sys
for path in sys.argv[2:]:
    print(sys.argv[1].format(**json.loads(open(path).read().splitlines()[-1])))
END
}
