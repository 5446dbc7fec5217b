"""Random networks, batches, methods and ceilings: no run ever holds more than it was given.

Usage: ceilings_test.py PROGRAM [--runs N] [--seed S] [--first N]

Each case is planned and, if the plan fits, trained for a few steps. The plan's engine peak must be the run's to the
byte, the run's resident peak must be below the ceiling, and the planned peak of the process within 3 % (or 2 MiB) of it.
A refusal must come from both, with exit code 3 and nothing written; where the plan is nearer to the ceiling than its
own error, train may refuse what plan accepts, or the other way round.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

MODELS = ["resnet18", "resnet18-cifar", "efficientnet-b0", "mobilenet-v2-cifar", "shufflenet-v2-cifar",
          "squeezenet-cifar", "mlp", "convnet"]
MIB = 1 << 20


def draw(random_source):
    case = ["--model", random_source.choice(MODELS), "--width", random_source.choice(["0.1", "0.25", "0.5"]),
            "--data", f"synthetic:{random_source.choice([2, 10])},{random_source.choice([16, 32])},64",
            "--batch", str(random_source.choice([4, 6, 8, 12, 16, 24, 32, 48, 64])),
            "--method", random_source.choice(["fp32", "amp", "triaccel"]),
            "--optimizer", random_source.choice(["sgd", "adamw"]),
            "--threads", str(random_source.choice([1, 2, 3]))]
    if random_source.random() < 0.3:
        case += ["--precision", random_source.choice(["fp16", "fp8", "assign:0.5", "hfp8", "bf16"])]
    if random_source.random() < 0.3:
        case += ["--batch-mode", random_source.choice(["elastic", "micro", "fixed"])]
    if random_source.random() < 0.2:
        case += ["--step", random_source.choice(["fused", "after"])]
    return case


def run(program, *arguments):
    return subprocess.run([program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def near(bytes_a, bytes_b):
    return abs(bytes_a - bytes_b) <= max(0.03 * bytes_b, 2 * MIB)


def check(program, case, share, folder):
    """The case's line for the log, and what is wrong with it."""
    roomy = run(program, "plan", *case, "--memory", "1G", "--json")
    if roomy.returncode != 0:
        return "", f"a plan without a limit failed: {roomy.stderr}"
    # A share of the engine's need; the rest of the process is what it is.
    plan = json.loads(roomy.stdout)
    ceiling = plan["process_peak_bytes"] - int((1 - share) * plan["engine_peak_bytes"])
    options = [*case, "--memory", str(ceiling)]
    planned = run(program, "plan", *options, "--json")
    out = folder / "run"
    trained = run(program, "train", *options, "--max-steps", "4", "--control-every", "2", "--out", str(out), "--json")
    if trained.returncode == 3:
        if out.exists():
            return "", "refused, but wrote files"
        if planned.returncode != 3 and not near(json.loads(planned.stdout)["process_peak_bytes"], ceiling):
            return "", f"planned for {ceiling}, then refused: {trained.stderr}"
        return f"{share:.2f} refused", ""
    if trained.returncode != 0:
        return "", f"exit code {trained.returncode}: {trained.stderr}"
    if planned.returncode != 0:
        peak = json.loads(trained.stdout)["process_peak_bytes"]
        if near(json.loads(planned.stdout)["process_peak_bytes"], ceiling) and peak <= ceiling:
            return f"{share:.2f} {peak / MIB:8.1f} of {ceiling / MIB:8.1f} MiB", ""
        return "", f"refused by plan, but trained: {planned.stderr}"
    summary, expected = json.loads(trained.stdout), json.loads(planned.stdout)
    peak = summary["process_peak_bytes"]
    line = f"{share:.2f} {peak / MIB:8.1f} of {ceiling / MIB:8.1f} MiB"
    if peak > ceiling:
        return line, f"held {peak} bytes under a ceiling of {ceiling}"
    # Next to the ceiling the two may have chosen differently, see above.
    changed = near(expected["process_peak_bytes"], ceiling) or summary["batch"]["min"] != summary["batch"]["max"] or summary["decisions"] > len(expected["changes"])
    if not changed and summary["engine_peak_bytes"] != expected["engine_peak_bytes"]:
        return line, f"engine peak {summary['engine_peak_bytes']}, planned {expected['engine_peak_bytes']}"
    if not changed and not near(expected["process_peak_bytes"], peak):
        return line, f"process peak {peak}, planned {expected['process_peak_bytes']}"
    return line, ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to go on where a part ended")
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.program)
    random_source = random.Random(arguments.seed)
    failures = 0
    for number in range(arguments.first + arguments.runs):
        case = draw(random_source)
        share = random_source.choice([1.02, 1.0, 0.9, 0.7, 0.5, 0.35, 0.2])
        if number < arguments.first:
            continue
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tri-ceilings-"))
        try:
            line, wrong = check(program, case, share, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if wrong:
            failures += 1
        print(f"{number:4} {line} {' '.join(case)}{': WRONG: ' + wrong if wrong else ''}", flush=True)
    print(f"{arguments.runs} cases, {failures} wrong")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
