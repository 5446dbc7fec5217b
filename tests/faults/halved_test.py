"""Runs whose ceiling is halved in mid-training, by every hand that can do it: they finish, and go on learning.

Usage: halved_test.py PROGRAM [--runs N] [--first N] [--data DATA] [--steps N]

Three hands take turns:
  set   `triaccel set DIR memory=...`;
  high  a cgroup's memory.high (v2) falls;
  hog   another process takes the machine's memory, MemAvailable falls.
For `high` and `hog` a run gets a machine of its own: a private mount namespace (root, unshare) in which /proc/meminfo and
the cgroup's folder are files of this script. The hog is a real process; what the machine has left is its size less what
the hog and the run really hold. Nothing of the real machine is pressed. Where namespaces are not to be had only `set` runs.

A run is wrong if it ends otherwise than with 0, if behind the move it ever holds more than the new ceiling (VmHWM, which
the run resets when it moves), or if its loss at the end is not below that before the move.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
CONTROL_EVERY = 2
PYTHON_BYTES = 9 * MIB  # what the hog holds of itself
JOBS = [  # activations are most of what they hold, so that half of it can be lived in
    ["--model", "resnet18-cifar", "--width", "0.1", "--batch", "256"],
    ["--model", "mobilenet-v2-cifar", "--width", "0.1", "--batch", "128"],
    ["--model", "convnet", "--batch", "512", "--ghost-batch", "32"],
    ["--model", "resnet18-cifar", "--width", "0.1", "--batch", "256", "--batch-mode", "micro"],
    ["--model", "resnet18-cifar", "--width", "0.1", "--batch", "128", "--method", "fp32", "--batch-mode", "micro"],
    ["--model", "squeezenet-cifar", "--width", "0.25", "--batch", "192"],
    ["--model", "convnet", "--batch", "512", "--method", "amp", "--batch-mode", "elastic", "--ghost-batch", "32"],
]
HANDS = ["set", "high", "hog"]


def status(pid, field):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def has_namespaces():
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return done.returncode == 0 and cgroup2() is not None


def cgroup2():
    """Where cgroups v2 are mounted, and the group of this process below it."""
    for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        head, tail = line.split(" - ")
        if tail.startswith("cgroup2 "):
            group = next((g[3:] for g in pathlib.Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
                          if g.startswith("0::")), "/")
            return head.split()[4], group.lstrip("/")
    return None


class Machine:
    """A machine of `size` bytes, as a process inside the namespace sees it."""

    def __init__(self, folder, size):
        self.size, self.meminfo = size, folder / "meminfo"
        self.mount, group = cgroup2()
        self.groups = folder / "cgroup"
        self.group = self.groups / group
        self.group.mkdir(parents=True)
        self.high = self.group / "memory.high"
        self.set_high("max")
        self.set_available(size)

    def set_high(self, text):
        temporary = self.group / "new"
        temporary.write_text(f"{text}\n", encoding="ascii")
        temporary.rename(self.high)

    def set_available(self, available):
        text = f"MemTotal: {self.size // 1024:12} kB\nMemAvailable: {max(0, available) // 1024:12} kB\n"
        with open(self.meminfo, "r+b" if self.meminfo.exists() else "wb", buffering=0) as file:
            file.write(text.encode())  # in place and at once: the file itself is mounted

    def command(self, command):
        inside = 'mount --bind "$1" /proc/meminfo && mount --bind "$2" "$3" && shift 3 && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", inside, "sh", str(self.meminfo), str(self.groups), self.mount, *command]


class Hog:
    """A process that holds `size` bytes."""

    def __init__(self, size):
        code = f"import sys; held = bytearray(b'x') * {size}; print(flush=True); sys.stdin.read()"
        self.process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.process.stdout.readline()

    def bytes(self):
        return status(self.process.pid, "VmRSS")

    def end(self):
        self.process.kill()
        self.process.communicate()


class Run:
    def __init__(self, program, folder, options, ceiling, machine):
        self.folder, self.program = folder / "run", program
        command = [program, "train", *options, "--memory", str(ceiling), "--out", str(self.folder), "--quiet"]
        self.process = subprocess.Popen(machine.command(command) if machine else command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def events(self):
        file = self.folder / "metrics.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines(True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def windows(self):
        return [event for event in self.events() if event["event"] == "step"]

    def moved(self):
        """The first event whose ceiling is not that of the start."""
        first = None
        for event in self.events():
            now = event["ceiling_bytes"] if event["event"] == "start" else event.get("signals", {}).get("ceiling_bytes")
            first = first or now
            if now and now != first:
                return event
        return None

    def wait_for(self, what, condition, meanwhile=lambda: None):
        until = time.monotonic() + 300
        while time.monotonic() < until:
            meanwhile()
            if found := condition():
                return found
            if self.process.poll() is not None:
                raise RuntimeError(f"{what}: ended with {self.process.returncode}: {self.process.stderr.read()}")
            time.sleep(0.05)
        raise RuntimeError(f"{what}: not within five minutes")


def halve(hand, run, ceiling, machine):
    """Moves it; returns what keeps the machine's numbers true, and what is to be ended."""
    half = ceiling // 2
    if hand == "set":
        subprocess.run([run.program, "set", str(run.folder), f"memory={half}"], check=True, capture_output=True)
    elif hand == "high":
        machine.set_high(int(half / 0.9))
    else:
        hog = Hog(int(machine.size - half / 0.9) - PYTHON_BYTES)
        return (lambda: machine.set_available(machine.size - hog.bytes() - status(run.process.pid, "VmRSS"))), hog.end
    return (lambda: None), (lambda: None)


def mean_loss(windows):
    return sum(event["loss"] for event in windows) / len(windows)


def check(program, hand, job, arguments, folder):
    options = [*job, "--data", arguments.data, "--control-every", str(CONTROL_EVERY), "--max-steps", str(arguments.steps),
               "--epochs", "100", "--warmup", "0", "--lr", "0.02", "--threads", "2", "--curvature-every", "20"]
    plan = json.loads(subprocess.run([program, "plan", *options, "--memory", "1G", "--json"], check=True,
                                     capture_output=True, text=True).stdout)
    ceiling = int(1.05 * plan["process_peak_bytes"])
    machine = None if hand == "set" else Machine(folder, 2 * ceiling)
    run = Run(program, folder, options, ceiling, machine)
    stop = meanwhile = lambda: None
    try:
        run.wait_for("first steps", lambda: len(run.windows()) >= 4)
        meanwhile, stop = halve(hand, run, ceiling, machine)
        move = run.wait_for("the move", run.moved, meanwhile)
        peak = 0
        while run.process.poll() is None:
            meanwhile()
            try:
                peak = status(run.process.pid, "VmHWM") or peak  # of the time since the last move
            except OSError:
                break
            time.sleep(0.02)
        if run.process.wait() != 0:
            raise RuntimeError(f"ended with {run.process.returncode}: {run.process.stderr.read()}")
    finally:
        stop()
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait()
        run.process.stderr.close()
    windows = run.windows()
    limit = windows[-1]["ceiling_bytes"]
    before = [event for event in windows if event["step"] <= move["step"]]
    first, last = mean_loss(before[-4:]), mean_loss(windows[-4:])
    rungs = sorted({" ".join(change["what"].split()[:1]) + (" Y" if change["what"].endswith(" Y") else "")
                    for event in run.events() if event["event"] == "control" and event["step"] >= move["step"]
                    for change in event["changes"] if change["what"] != "ceiling"})
    batch = before[-1]["batch"], windows[-1]["batch"]
    wrong = ""
    if peak > limit:
        wrong = f"held {peak} bytes under {limit}"
    elif not last < first:
        wrong = "the loss did not fall"
    return (f"{hand:4} {' '.join(job):75} {ceiling / MIB:6.0f} -> {limit / MIB:5.0f} MiB, held {peak / MIB:5.0f}; batch "
            f"{batch[0]:3} -> {batch[1]:3}; loss {first:.3f} -> {last:.3f}; {', '.join(rungs)}"), wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first run, to go on where a part ended")
    parser.add_argument("--data", default="synthetic:10,32,4000")
    parser.add_argument("--steps", type=int, default=50)
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.program)
    hands = HANDS if has_namespaces() else HANDS[:1]
    failures = 0
    for number in range(arguments.first, arguments.first + arguments.runs):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tri-halved-"))
        hand, job = hands[number % len(hands)], JOBS[number % len(JOBS)]
        try:
            line, wrong = check(program, hand, job, arguments, folder)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            line, wrong = f"{hand:4} {' '.join(job)}", str(error)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        failures += bool(wrong)
        print(f"{number + 1:3} {line}{': WRONG: ' + wrong if wrong else ''}", flush=True)
    print(f"{arguments.runs - failures} of {arguments.runs} runs finished below half their ceiling, with a falling loss")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
