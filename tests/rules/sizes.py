# SPDX-License-Identifier: Apache-2.0
"""Files have at most 800 lines, functions 60, wring.h 560. Our layout puts the braces of a function,
and of nothing else, alone into the first column."""
from lib import tree

FILE_MAX, FUNCTION_MAX, USER_HEADER_MAX = 800, 60, 560


def check_functions(path, text):
    start = None
    for number, line in enumerate(text, 1):
        if line == "{":
            start = number
        elif line == "}" and start:
            if number - start + 1 > FUNCTION_MAX and not tree.excepted("function-size", path):
                tree.offence(path, start, f"function of {number - start + 1} lines")
            start = None


code = tree.files(".c", ".h", ".inc", ".cc", ".cpp", ".cu", ".cuh")
for path in code + tree.files(".py", ".sh"):
    text = tree.lines(path)
    if len(text) - 1 > FILE_MAX and not tree.excepted("file-size", path):
        tree.offence(path, FILE_MAX, f"file of {len(text) - 1} lines")
    if path in code:
        check_functions(path, text)
if len(tree.lines("include/wring/wring.h")) - 1 > USER_HEADER_MAX:
    tree.offence("include/wring/wring.h", USER_HEADER_MAX, f"more than {USER_HEADER_MAX} lines")
tree.finish(len(code))
