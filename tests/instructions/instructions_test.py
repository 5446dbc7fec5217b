"""Instructions of a small training step, by phase, against instructions.json: a regression shows on
any machine, however busy. Counted by callgrind on the AVX2 target in the dev preset.

Usage: instructions_test.py PROGRAM [--update]      (--update writes new figures)
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

FIGURES = pathlib.Path(__file__).with_name("instructions.json")
UPDATE = "--update" in sys.argv
PROGRAM = sys.argv[1]
BOUND = 1.15  # other compilers and libraries shall pass, a lost vectorisation shall not
TARGET = "AVX2"  # valgrind knows nothing beyond it
METHODS = {"fp32": ["--method", "fp32", "--step", "fused"], "triaccel": ["--method", "triaccel"]}
# A single step: valgrind needs a microsecond for every multiply-add.
NETWORK = ["--model", "convnet", "--data", "synthetic:2,16,4", "--batch", "4", "--threads", "1",
           "--max-steps", "1", "--curvature", "off"]
TICK = re.compile(r"_Function_handler<void \(tri::exec::StepRun&\), tri::exec::StepBuilder::(\w+)")


def phase_of(method):
    """Of the ticks that a method of StepBuilder makes."""
    if method in ("step_bias", "step_norm", "update_after"):
        return "update"
    if method.startswith(("forward", "norm_forward", "scale_factors", "loss")):
        return "forward"
    if "backward" in method:
        return "backward"
    raise ValueError(f"StepBuilder::{method} makes ticks of an unknown phase")


def count(text):
    """{phase: instructions} from callgrind's file: the inclusive cost of every call of a tick."""
    names, phases, called = {}, {}, None
    cost_follows = False
    for line in text.splitlines():
        if cost_follows:
            cost_follows = False
            if match := TICK.search(called):
                phase = phase_of(match.group(1))
                phases[phase] = phases.get(phase, 0) + int(line.split()[-1])
        elif line.startswith("calls="):
            cost_follows = True
        elif match := re.match(r"c?fn=(\(\d+\))(?: (.*))?", line):
            if match.group(2):
                names[match.group(1)] = match.group(2)
            if line.startswith("cfn="):
                called = names[match.group(1)]
    return phases


def measured(method):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "callgrind.out"
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}",
             "--toggle-collect=tri::exec::Engine::train*", PROGRAM, "train", *NETWORK, *METHODS[method],
             "--out", f"{folder}/run"],
            env={**os.environ, "TRIACCEL_SIMD": TARGET}, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return count(out.read_text())


def reason_to_skip():
    if shutil.which("valgrind") is None:
        return "valgrind is missing; tools/setup test installs it"
    done = subprocess.run([PROGRAM, "info", "--json"], env={**os.environ, "TRIACCEL_SIMD": TARGET},
                          capture_output=True, text=True)
    if done.returncode != 0 or json.loads(done.stdout)["simd"]["target"] != TARGET:
        return f"this machine has no {TARGET}"
    return None


@unittest.skipIf(reason_to_skip(), reason_to_skip())
class Instructions(unittest.TestCase):
    def test_of_each_phase(self):
        known = {} if UPDATE else json.loads(FIGURES.read_text())
        for method in METHODS:
            now = measured(method)
            if UPDATE:
                known[method] = dict(sorted(now.items()))
                continue
            self.assertEqual(set(now), set(known[method]))
            for phase, before in known[method].items():
                self.assertLess(now[phase], BOUND * before,
                                f"{method} {phase}: {now[phase]} instructions, {before} are "
                                "known; find out why, or --update with the reason in the commit")
        if UPDATE:
            FIGURES.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
