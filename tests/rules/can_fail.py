# SPDX-License-Identifier: Apache-2.0
"""The rules themselves: each break of a copy of the tree must be seen by the rule that forbids it."""
import os
import shutil
import subprocess
import sys
import tempfile

from lib import tree

LONG_FUNCTION = "void f(void)\n{\n" + "    f();\n" * 70 + "}\n"

# rule, file, how its text changes
BREAKS = [
    ("layers", "src/base/clock.c", lambda text: text + '#include "simd/array.h"\n'),
    ("layers", "src/codec/codec.h", lambda text: text + '#include "transport/transport.h"\n'),
    ("layers", "src/transport/self.c", lambda text: text + '#include "codec/codec.h"\n'),
    ("layers", "src/planner/new.c",
     lambda text: '#include "codec/codec.h"\n#include "transport/transport.h"\n'),
    ("layers", "src/planner/new.c", lambda text: '#include "scheduler/scheduler.h"\n'),
    ("layers", "src/base/new.c", lambda text: '#include "base/nowhere.h"\n'),
    ("layers", "src/drawer/new.c", lambda text: ""),
    ("layers", "integrations/new/new.c", lambda text: '#include "base/log.h"\n'),
    ("registry", "src/codec/orphan.c", lambda text: "const struct wring_codec_ops wri_codec_orphan = {\n"),
    ("registry", "src/transport/self.c", lambda text: text.replace("wri_transport_self =", "wri_other =")),
    ("registry", "src/codec/codecs.def", lambda text: text + "WRING_CODEC(ghost, HOST)\n"),
    ("registry", "src/codec/ef.c", lambda text: text.replace(".wire_id = ", ".wire_id = 9999")),
    ("sizes", "src/base/new.c", lambda text: LONG_FUNCTION),
    ("sizes", "src/base/new.c", lambda text: "\n" * 801),
    ("sizes", "include/wring/wring.h", lambda text: text + "\n" * 561),
    ("documented", "include/wring/wring.h", lambda text: text + "\nWRING_API int wring_new(void);\n"),
    ("headers", "src/base/new.h", lambda text: "size_t nothing_included(void);\n"),
    ("style", "src/base/new.c", lambda text: "/* What it decides. */\n"),
    ("style", "src/base/new.c", lambda text: "// SPDX-License-Identifier: Apache-2.0\n"),
    ("style", "src/base/clock.c", lambda text: text + f"/* {'x' * 100} */\n"),
    ("style", "src/base/clock.c", lambda text: text + "int x; \n"),
    ("style", "src/base/clock.c", lambda text: text + "/* TO" + "DO */\n"),
]


def sees_offence(rule, copy):
    done = subprocess.run([sys.executable, copy / "tests/rules" / f"{rule}.py"], capture_output=True,
                          env={**os.environ, "WRING_SOURCE": str(copy)})
    return done.returncode == 1


def sees_break(rule, copy, path, change):
    """True if RULE sees what CHANGE does to PATH. Restores the copy."""
    file = copy / path
    before = file.read_text() if file.exists() else None
    file.parent.mkdir(exist_ok=True)
    file.write_text(change(before or ""))
    seen = sees_offence(rule, copy)
    if before is None:
        file.unlink()
        if not any(file.parent.iterdir()):
            file.parent.rmdir()
    else:
        file.write_text(before)
    return seen


with tempfile.TemporaryDirectory() as folder:
    copy = type(tree.ROOT)(folder, "copy")
    shutil.copytree(tree.ROOT, copy, ignore=shutil.ignore_patterns(*tree.OUTSIDE))
    for index, (rule, path, change) in enumerate(BREAKS):
        if not sees_break(rule, copy, path, change):
            tree.offence(rule, 0, f"does not see break {index}, of {path}")
tree.finish(len(BREAKS))
