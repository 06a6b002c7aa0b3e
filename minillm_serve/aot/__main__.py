"""`python -m minillm_serve.aot`: compile all kernels, and compare with the committed table."""

import argparse
import sys

from minillm_serve.aot import table
from minillm_serve.aot.child import compile_in_child, load_cases
from minillm_serve.aot.report import find_faults


def main() -> int:
    """Compiles; returns 1 if something breaks a limit, or differs from the table."""
    parser = argparse.ArgumentParser(prog="python -m minillm_serve.aot", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the table anew")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    if arguments.update and arguments.only:
        parser.error("--update writes the whole table: leave --only out")
    modules = table.kernel_modules()
    cases = [case for case in load_cases(modules) if arguments.only in case.id]
    compiled = compile_in_child(modules, [case.id for case in cases])
    faults = [
        fault for case, one in zip(cases, compiled, strict=True) for fault in find_faults(case, one)
    ]
    if arguments.update:
        table.write(compiled)
    changes = table.find_changes(compiled)
    for line in faults + changes:
        print(line)
    print(f"{len(compiled)} compiled, {len(faults)} faults, {len(changes)} differ from the table")
    return 1 if faults or changes else 0


if __name__ == "__main__":
    sys.exit(main())
