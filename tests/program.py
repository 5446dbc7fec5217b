"""The program that a test script was given as its first argument."""

import os
import subprocess
import sys
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))


def triaccel(*arguments, **options):
    return subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, text=True, check=False,
                          **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})


def sanitized():
    with open(PROGRAM, "rb") as file:
        return b"__asan_init" in (program := file.read()) or b"__tsan_init" in program


def not_sanitized(reason):
    return unittest.skipIf(sanitized(), reason)


# Of tests with ceilings of some megabytes.
weighs_the_process = not_sanitized("a sanitizer's memory counts as the program's")
