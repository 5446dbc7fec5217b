"""experiment as a user sees it: a grid runs, stops, continues, and its results are kept.

Usage: experiment_test.py PROGRAM
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from program import PROGRAM, triaccel

GRID = """
title = "Rates of a small network"
seeds = [0, 1]
epochs = 2
[set]
model = "convnet"
width = 0.1
data = "synthetic:3,9,90"
batch = 32
[vary]
lr = [0.02, 0.05]
[[run]]
name = "plain"
method = "fp32"
"""


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tri-experiment-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "rates.toml").write_text(GRID)

    def experiment(self, *arguments, code=0, environment=None):
        done = triaccel("experiment", *arguments, cwd=self.folder,
                        env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def lines(self, name="results/rates.jsonl"):
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]


class Grid(Folder):
    def test_runs_and_is_not_run_again(self):
        done = self.experiment("rates.toml")
        self.assertIn("rates: 4 runs, 0 done, 4 left", done.stderr)
        self.assertRegex(done.stderr, r"3 left, about \d+ s")
        self.assertIn("| plain, lr 0.02 | 2 | ", done.stdout)
        rows = self.lines()
        self.assertEqual([(row["row"], row["seed"]) for row in rows],
                         [("plain, lr 0.02", 0), ("plain, lr 0.05", 0),
                          ("plain, lr 0.02", 1), ("plain, lr 0.05", 1)])
        for row in rows:
            self.assertEqual(row["status"], "done")
            self.assertGreater(row["wall_seconds"], 0)
            self.assertIn("triaccel train --json", row["command"])
        run = self.folder / "runs/rates/runs-plain-lr-0.05-1"
        self.assertEqual(json.loads((run / "summary.json").read_text())["seed"], 1)
        self.assertTrue((run / "report.html").exists())
        table = (self.folder / "results/rates.md").read_text()
        self.assertEqual(table, done.stdout)

        again = self.experiment("rates.toml", "--json")
        self.assertIn("4 done, none left", again.stderr)
        self.assertEqual(json.loads(again.stdout)[0]["row"], "plain, lr 0.02")
        self.assertEqual(self.lines(), rows)
        # Lost results come back from the runs.
        os.remove(self.folder / "results/rates.jsonl")
        self.experiment("rates.toml", "--quiet")
        self.assertEqual([row["test_accuracy"] for row in self.lines()],
                         [row["test_accuracy"] for row in rows])

    def test_stops_and_continues(self):
        arguments = ["experiment", "rates.toml", "--epochs", "150", "--seeds", "0"]
        program = subprocess.Popen([PROGRAM, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        run = self.folder / "runs/rates/runs-plain-lr-0.02-0"
        deadline = time.monotonic() + 60
        while not (run / "checkpoints/best").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 130, errors)
        self.assertIn("the same command continues", errors)
        self.assertEqual(json.loads((run / "summary.json").read_text())["status"], "interrupted")
        commands = triaccel(*arguments, "--dry-run", cwd=self.folder).stdout.splitlines()
        self.assertEqual(len(commands), 2)
        self.assertIn("--resume runs/rates/runs-plain-lr-0.02-0", commands[0])
        self.assertIn("--lr 0.05", commands[1])
        done = triaccel(*arguments, "--only", "0.02", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        summary = json.loads((run / "summary.json").read_text())
        self.assertEqual((summary["status"], summary["epochs"]), ("done", 150))

    def test_options_reach_every_run(self):
        self.experiment("rates.toml", "--seeds", "5", "--epochs", "1", "--subset", "64", "--set",
                        "momentum=0.8", "--runs", "r", "--out", "o", "--threads", "1")
        config = (self.folder / "r/rates/runs-plain-lr-0.02-5/config.toml").read_text()
        for line in ["epochs = 1 ", "train-count = 64 ", "momentum = 0.8 ", "seed = 5 ",
                     "threads = 1 "]:
            self.assertIn(line, config)
        training = self.lines("o/rates.jsonl")[0]["training"]
        self.assertEqual((training["epochs"], training["train_count"]), (1, 64))
        self.assertEqual(training["settings"]["momentum"], "0.8")
        # Another length, ceiling or rate is another table, not a mixture.
        for other, seen in [(["--epochs", "2", "--subset", "64", "--set", "momentum=0.8"],
                             "epochs is 1 there and 2 here"),
                            (["--epochs", "1", "--subset", "64", "--set", "memory=600MiB"],
                             "memory is")]:
            refused = self.experiment("rates.toml", "--seeds", "5", *other, "--runs", "r", "--out",
                                      "o", code=2)
            self.assertIn("other options", refused.stderr)
            self.assertIn(seen, refused.stderr)
        self.experiment("rates.toml", "--seed", "6", "--epochs", "1", "--subset", "64", "--set",
                        "momentum=0.7", "--runs", "s", "--out", "o")
        table = (self.folder / "o/rates.md").read_text()
        self.assertIn("| plain, lr 0.02 | 1 | ", table)
        self.assertEqual([line["seed"] for line in self.lines("o/rates.jsonl")], [5, 5, 6, 6])
        (self.folder / "other.toml").write_text("lr = 0.1\n")
        self.assertIn("--set", self.experiment("rates.toml", "--config", "other.toml", code=2).stderr)

    def test_options_of_the_environment_do_not(self):
        self.experiment("rates.toml", "--seeds", "0", "--epochs", "1", "--runs", "r",
                        environment={"TRIACCEL_MOMENTUM": "0.7", "TRIACCEL_THREADS": "1"})
        config = (self.folder / "r/rates/runs-plain-lr-0.02-0/config.toml").read_text()
        self.assertIn("momentum = 0.9 ", config)
        self.assertIn("threads = 1 ", config)

    def test_rows_that_would_share_a_directory_are_refused(self):
        (self.folder / "rates.toml").write_text(GRID + """
[[run]]
name = "Plain"
""")
        self.assertIn("'plain, lr 0.02' and 'Plain, lr 0.02'",
                      self.experiment("rates.toml", "--dry-run", code=2).stderr)

    def test_what_fails_is_said_and_the_others_run(self):
        (self.folder / "rates.toml").write_text(GRID + """
[[run]]
name = "lost"
method = "fp32"
data = "cifar10:/nowhere"
[[run]]
name = "tight"
method = "fp32"
memory = "1MiB"
""")
        done = self.experiment("rates.toml", "--seeds", "0", "--epochs", "1", code=1)
        self.assertIn("2 of 6 runs failed", done.stderr)
        status = {row["row"]: row["status"] for row in self.lines()}
        self.assertEqual(status["plain, lr 0.05"], "done")
        self.assertEqual(status["tight, lr 0.05"], "does not fit")
        self.assertNotIn("lost, lr 0.05", status)
        self.assertIn("does not fit", (self.folder / "results/rates.md").read_text())


class Published(Folder):
    def commands(self, *arguments):
        done = self.experiment(*arguments, "--dry-run")
        self.assertEqual(list(self.folder.iterdir()), [self.folder / "rates.toml"])
        return done.stdout.splitlines()

    def test_table1(self):
        commands = self.commands("table1", "--data-dir", "/data", "--seeds", "0")
        self.assertEqual(len(commands), 13)
        self.assertEqual(sum("--method triaccel" in line for line in commands), 5)
        for line in commands:
            if line.startswith("triaccel train"):
                self.assertEqual("--method triaccel" in line, "--memory" in line)
                self.assertIn("--batch 96", line)
                self.assertIn("--epochs 15", line)
        self.assertEqual(sum("--pixels 224" in line for line in commands), 1)
        self.assertIn("cifar10:/data", commands[0])

    def test_ceiling_leaves_the_engine_its_share(self):
        line = self.commands("table1", "--only", "cifar-10-resnet-18-tri-accel", "--seeds", "0")[0]
        words = line.split()
        memory = int(words[words.index("--memory") + 1])
        network = ["--model", "resnet18", "--data", "cifar10:/none", "--batch", "96", "--json"]
        fp32 = json.loads(triaccel("plan", "--method", "fp32", *network).stdout)
        beside = fp32["process_peak_bytes"] - fp32["engine_peak_bytes"]
        # What the process holds besides differs a little from process to process.
        self.assertAlmostEqual(memory, 0.45 * fp32["engine_peak_bytes"] + beside, delta=4 << 20)

    def test_table2_optimizers_assignments(self):
        self.assertEqual(len(self.commands("table2")), 2 * 9)
        self.assertEqual(len(self.commands("optimizers", "--seeds", "0")), 2 * 9)
        lines = self.commands("assignments", "--only", "squeezenet")
        self.assertEqual(len(lines), 10)
        for line in lines:
            self.assertIn("--width 0.25", line)
            self.assertIn("cifar100:", line)

    def test_a_row_on_other_data(self):
        done = self.experiment("table2", "--only", "resnet-18-standard", "--data",
                               "synthetic:3,16,64", "--epochs", "1", "--set", "width=0.1", "--set",
                               "batch=16")
        self.assertIn("| standard | 1 | ", done.stdout)
        self.assertIn("| 0.350 | 100.0 % |", done.stdout)


class Ceilings(Folder):
    def test_a_ceiling_does_not_depend_on_the_rows_before(self):
        def ceilings(*only):
            lines = self.experiment("table2", "--dry-run", *only).stdout.splitlines()
            return {line.split("--out ")[1]: int(re.search(r"--memory (\d+)", line)[1])
                    for line in lines if "--memory" in line}

        alone = ceilings("--only", "efficientnet-b0-full-tri")
        together = ceilings()
        for row, bytes_alone in alone.items():
            self.assertLess(abs(together[row] - bytes_alone), 3e6, row)


class Tune(Folder):
    def test_every_method_on_a_held_out_part(self):
        done = self.experiment("tune", "--dry-run")
        lines = done.stdout.splitlines()
        # What a process holds besides its engine differs by some pages.
        same = lambda line: re.sub(r"--memory \d+", "--memory N", line)
        again = json.loads(self.experiment("tune", "--dry-run", "--json").stdout)
        self.assertEqual([same(line) for line in again], [same(line) for line in lines])
        for line in lines:
            self.assertEqual("--memory" in line, "--method triaccel" in line)
        self.assertEqual(len(lines), 3 * 4 * 2)
        for line in lines:
            self.assertIn("--val-split 0.1", line)

    def test_best_of_a_method(self):
        done = self.experiment("tune", "--only", "fp32-lr-0.1-weight", "--data", "synthetic:3,16,120",
                               "--epochs", "1", "--subset", "64", "--set", "width=0.1", "--set",
                               "batch=16")
        self.assertIn('method = "fp32"\nlr = 0.1\nweight-decay = 0.', done.stdout)
        best = (self.folder / "results/tune-fp32.toml").read_text()
        self.assertIn(best, done.stdout)
        shown = triaccel("train", "--config", str(self.folder / "results/tune-fp32.toml"),
                         "--print-config").stdout
        self.assertRegex(shown, r"lr = 0\.1 +# file")


class Replay(Folder):
    def setUp(self):
        super().setUp()
        done = triaccel("train", "--model", "convnet", "--width", "0.2", "--data",
                        "synthetic:3,9,300", "--batch", "32", "--ghost-batch", "16", "--epochs", "4",
                        "--control-every", "2", "--curvature", "off", "--out", "a", "--quiet",
                        cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_same_settings_decide_the_same(self):
        replay = json.loads(self.experiment("replay", "a", "--json").stdout)
        self.assertGreater(len(replay["recorded"]), 0)
        self.assertEqual(replay["recorded"], replay["replayed"])
        self.assertEqual(replay["points"][-1]["batch"],
                         json.loads((self.folder / "a/summary.json").read_text())["batch"]["last"])
        text = self.experiment("replay", "a").stdout
        count = len(replay["recorded"])
        self.assertIn(f"{count} decisions were recorded, {count} would have been made, {count} are",
                      text)

    def test_other_settings_decide_otherwise(self):
        text = self.experiment("replay", "a", "--set", "batch-max=32").stdout
        self.assertRegex(text, r"(?m)^- step \d+ +batch ")
        self.assertNotRegex(text, r"(?m)^\+ step \d+ +batch ")

    def test_wrong_use(self):
        for arguments, fragment in [(["replay"], "DIR"), (["replay", "nowhere"], "nowhere"),
                                    (["replay", "a", "--set", "rho-low=7"], "rho-low"),
                                    (["replay", "a", "--set", "model=mlp"], "model"),
                                    (["replay", "a", "--set", "lr=1"], "'lr'"),
                                    (["table1", "a"], "one word too many")]:
            done = self.experiment(*arguments, code=2)
            self.assertRegex(done.stderr, r"\Atriaccel: [^\n]+\n\Z")
            self.assertIn(fragment, done.stderr)


class WrongUse(Folder):
    def assert_sentence(self, arguments, *fragments):
        done = triaccel("experiment", *arguments, cwd=self.folder)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\Atriaccel: [^\n]+\n\Z")
        for fragment in fragments:
            self.assertIn(fragment, done.stderr)

    def test_sentences(self):
        self.assert_sentence([], "NAME")
        self.assert_sentence(["table3"], "table3", "table1", "tune")
        self.assert_sentence(["none.toml"], "none.toml")
        self.assert_sentence(["table1", "--seeds", "-1"], "--seeds")
        self.assert_sentence(["table1", "--epochs", "0"], "--epochs")
        self.assert_sentence(["table1", "--set", "lr"], "lr")
        self.assert_sentence(["table1", "--set", "lr=-1"], "lr")
        self.assert_sentence(["table1", "--set", "seed=1"], "--seeds")
        self.assert_sentence(["table1", "--only", "zebra"], "zebra")
        (self.folder / "rates.toml").write_text("[set]\nmodle = 1\n")
        self.assert_sentence(["rates.toml"], "rates.toml", "line 2", "model")


if __name__ == "__main__":
    unittest.main()
