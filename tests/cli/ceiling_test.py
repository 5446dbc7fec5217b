"""Runs below a ceiling that somebody moves: what they hold, what they say, how they end.

Usage: ceiling_test.py PROGRAM
"""

import json
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

from program import PROGRAM, triaccel

MIB = 1 << 20
RUN = ["--model", "convnet", "--data", "synthetic:4,32,2000", "--batch", "128", "--ghost-batch", "16",
       "--epochs", "100000", "--lr", "0.02", "--curvature", "off", "--control-every", "5", "--threads", "2"]


def status(pid, field):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


class MovedCeiling(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tri-ceiling-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.run_folder = self.folder / "run"

    def start(self, *more):
        process = subprocess.Popen([PROGRAM, "train", *RUN, "--out", str(self.run_folder), *more],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def events(self, kind):
        file = self.run_folder / "metrics.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines(True) if file.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in found if event["event"] == kind]

    def wait_for(self, process, what, condition):
        for _ in range(1800):
            found = condition()
            if found:
                return found
            if process.poll() is not None:
                self.fail(f"{what}: ended with {process.returncode}: {process.stderr.read()}")
            time.sleep(0.1)
        self.fail(f"{what}: not within three minutes")

    def set_memory(self, text):
        done = triaccel("set", str(self.run_folder), f"memory={text}")
        self.assertEqual(done.returncode, 0, done.stderr)

    def ceiling_moves(self):
        return [change for event in self.events("control") for change in event["changes"]
                if change["what"] == "ceiling"]

    def step_at(self, batch_test):
        return [event for event in self.events("step") if batch_test(event["batch"])]

    def stop(self, process):
        process.terminate()
        self.assertEqual(process.wait(60), 143, process.stderr.read())
        return json.loads((self.run_folder / "summary.json").read_text(encoding="utf-8"))

    def test_a_lowered_ceiling_is_obeyed_and_a_raised_one_used(self):
        plan = json.loads(triaccel("plan", *RUN, "--memory", "2G", "--json").stdout)
        first = plan["process_peak_bytes"] + 16 * MIB
        process = self.start("--batch-max", "128", "--memory", str(first))
        self.wait_for(process, "first steps", lambda: self.events("step"))
        # Half of the engine, and all of the rest of the process.
        lower = plan["process_peak_bytes"] - plan["engine_peak_bytes"] // 2
        self.set_memory(str(lower))
        self.wait_for(process, "the move", self.ceiling_moves)
        steps = len(self.events("step"))
        self.wait_for(process, "more steps", lambda: len(self.events("step")) > steps + 1)
        self.assertLessEqual(status(process.pid, "VmHWM"), lower)
        self.assertTrue(self.step_at(lambda batch: batch < 128))
        self.set_memory("2G")
        self.wait_for(process, "growth", lambda: self.events("step")[-1]["batch"] == 128)
        summary = self.stop(process)
        self.assertLess(summary["batch"]["min"], 128)
        self.assertEqual(summary["batch"]["last"], 128)
        # The lifetime's maximum, and never above the ceiling of its time.
        self.assertLessEqual(summary["process_peak_bytes"], 2 << 30)
        losses = [event["loss"] for event in self.events("step")]
        self.assertLess(losses[-1], losses[0])

    def test_a_resumed_run_keeps_to_what_was_asked_last(self):
        process = self.start("--memory", "2G", "--max-steps", "1000000")
        self.wait_for(process, "first steps", lambda: self.events("step"))
        self.set_memory("1G")
        self.wait_for(process, "the move", self.ceiling_moves)
        self.assertEqual(self.stop(process)["ceiling_bytes"], 1 << 30)

        def resumed(*more):
            done = triaccel("train", "--resume", str(self.run_folder), "--json", *more)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)
        step = self.events("end")[-1]["step"]
        self.assertEqual(resumed("--max-steps", str(step + 10))["ceiling_bytes"], 1 << 30)
        self.assertEqual(resumed("--memory", "1500MiB", "--max-steps", str(step + 20))["ceiling_bytes"],
                         1500 << 20)
        self.assertEqual(resumed("--max-steps", str(step + 30))["ceiling_bytes"], 1500 << 20)

    def test_a_fixed_batch_recomputes_and_keeps_its_bits(self):
        def weights_after(name, *more):
            out = self.folder / name
            done = triaccel("train", *RUN, "--batch-mode", "fixed", "--model", "resnet18-cifar", "--width", "0.1",
                            "--max-steps", "3", "--out", str(out), *more)
            self.assertEqual(done.returncode, 0, done.stderr)
            return ((out / "checkpoints/last/model.safetensors").read_bytes(),
                    json.loads((out / "summary.json").read_text(encoding="utf-8")))
        roomy, before = weights_after("roomy", "--memory", "2G")
        ceiling = before["process_peak_bytes"] - before["engine_peak_bytes"] // 10
        tight, after = weights_after("tight", "--memory", str(ceiling))
        self.assertEqual(roomy, tight)
        self.assertLess(after["engine_peak_bytes"], before["engine_peak_bytes"])
        self.assertLessEqual(after["process_peak_bytes"], ceiling)

    def test_a_run_that_others_pressed_is_repeated_bit_for_bit(self):
        plan = json.loads(triaccel("plan", *RUN, "--memory", "2G", "--json").stdout)
        process = self.start("--memory", str(plan["process_peak_bytes"] + 16 * MIB), "--max-steps", "150")
        self.wait_for(process, "first steps", lambda: self.events("step"))
        self.set_memory(str(plan["process_peak_bytes"] - 2 * plan["engine_peak_bytes"] // 3))
        self.wait_for(process, "the move", self.ceiling_moves)
        self.wait_for(process, "a smaller batch", lambda: self.step_at(lambda batch: batch < 128))
        self.set_memory("2G")
        self.wait_for(process, "the second move", lambda: len(self.ceiling_moves()) > 1)
        self.assertEqual(process.wait(300), 0)
        again = self.folder / "again"
        # As many threads: each has scratch of its own, so their number has a say in what fits.
        done = triaccel("train", "--repeat", str(self.run_folder), "--out", str(again))
        self.assertEqual(done.returncode, 0, done.stderr)

        def batches(folder):
            lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            events = [json.loads(line) for line in lines]
            return [(event["step"], event["samples"], event["batch"], event.get("loss")) for event in events
                    if event["event"] in ("step", "control")]
        self.assertEqual(batches(self.run_folder), batches(again))
        self.assertGreater(len({batch for _, _, batch, _ in batches(again)}), 1)
        for file in ["model.safetensors", "optimizer.safetensors"]:
            self.assertEqual((self.run_folder / "checkpoints/last" / file).read_bytes(),
                             (again / "checkpoints/last" / file).read_bytes(), file)

    def test_a_job_of_5_gb_has_a_plan_for_500_mb(self):
        job = ["--model", "resnet18", "--pixels", "224", "--classes", "1000", "--batch", "416"]
        roomy = json.loads(triaccel("plan", *job, "--method", "fp32", "--memory", "16G", "--json").stdout)
        self.assertGreater(roomy["process_peak_bytes"], 5_000_000_000)
        for more in [["--method", "triaccel"], ["--method", "triaccel", "--batch-mode", "micro"],
                     ["--method", "fp32", "--batch-mode", "micro", "--step", "fused"]]:
            done = triaccel("plan", *job, *more, "--memory", "500000000", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            plan = json.loads(done.stdout)
            self.assertLessEqual(plan["process_peak_bytes"], 500_000_000)
            self.assertTrue(plan["changes"])
        # As it is, a fixed fp32 batch cannot, and is told what can.
        refused = triaccel("plan", *job, "--method", "fp32", "--memory", "500000000")
        self.assertEqual(refused.returncode, 3)
        self.assertIn("--batch-mode micro", refused.stderr)

    def test_the_smallest_ghost_batch_comes_last_and_with_a_warning(self):
        job = ["--model", "convnet", "--data", "synthetic:4,32,200", "--batch", "64", "--ghost-batch", "32",
               "--curvature", "off", "--max-steps", "4", "--threads", "1"]
        one = json.loads(triaccel("plan", *job, "--batch", "32", "--memory", "2G", "--json").stdout)
        small = json.loads(triaccel("plan", *job, "--batch", "8", "--ghost-batch", "8", "--memory", "2G", "--json").stdout)
        ceiling = small["process_peak_bytes"] + 256 * 1024
        self.assertLess(ceiling, one["process_peak_bytes"])
        plan = json.loads(triaccel("plan", *job, "--memory", str(ceiling), "--json").stdout)
        self.assertEqual(plan["changes"][-1]["what"] if plan["changes"][-1]["what"] != "recomputed blocks" else
                         plan["changes"][-2]["what"], "ghost batch", plan["changes"])
        done = triaccel("train", *job, "--memory", str(ceiling), "--out", str(self.run_folder))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue([w for w in self.events("warning") if "batch norm sees" in w["message"]])

    def test_a_ceiling_below_everything_is_said_and_survived(self):
        process = self.start("--memory", "1G")
        self.wait_for(process, "first steps", lambda: self.events("step"))
        self.set_memory("1MiB")
        self.wait_for(process, "the warning",
                      lambda: [w for w in self.events("warning") if "smallest step" in w["message"]])
        self.stop(process)


if __name__ == "__main__":
    unittest.main()
