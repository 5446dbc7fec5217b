"""A training as a user sees it: the screen, the files, the exit codes, eval and predict.

Usage: train_test.py PROGRAM
"""

import fcntl
import json
import math
import os
import pathlib
import pty
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest
import zlib

from program import PROGRAM, not_sanitized, triaccel, weighs_the_process

TINY = ["--method", "fp32", "--model", "convnet", "--width", "0.1", "--data", "synthetic:3,9,90",
        "--batch", "32", "--epochs", "3", "--lr", "0.05"]
LONG = [*TINY, "--epochs", "100000"]


def png(path, width, height, grey):
    """A PNG of one grey level."""
    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))
    rows = (b"\0" + bytes([grey]) * width) * height
    path.write_bytes(b"\x89PNG\r\n\x1a\n"
                     + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
                     + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def tensors_of(path):
    """name -> bytes of a safetensors file."""
    raw = path.read_bytes()
    size, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    return {name: raw[8 + size + at["data_offsets"][0]:8 + size + at["data_offsets"][1]]
            for name, at in header.items()}


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tri-cli-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_of(self, name, *more):
        path = self.folder / name
        done = triaccel("train", *TINY, "--out", str(path), *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path, done

    def assert_refused(self, code, arguments, *fragments):
        done = triaccel(*arguments, cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, r"\Atriaccel: [^\n]+\n\Z")
        for fragment in fragments:
            self.assertIn(fragment, done.stderr)


class Train(Folder):
    def test_screen_is_a_line_per_epoch_and_a_table(self):
        path, done = self.run_of("a")
        self.assertEqual(done.stdout.count("\nepoch "), 3)
        self.assertNotIn("\x1b", done.stdout)
        self.assertIn("test accuracy", done.stdout)
        self.assertIn(str(path / "summary.json"), done.stdout)
        self.assertEqual(done.stderr, "")

    def test_json_alone_on_standard_output(self):
        path, done = self.run_of("a", "--json")
        summary = json.loads(done.stdout)
        self.assertEqual(summary, json.loads((path / "summary.json").read_text()))
        self.assertIn("epoch 1/3", done.stderr)
        for key in ["model", "data", "method", "seed", "status", "epochs", "steps", "samples",
                    "params", "test_accuracy", "best_test_accuracy", "train_loss", "epoch_seconds",
                    "images_per_second", "engine_peak_bytes", "process_peak_bytes",
                    "ceiling_bytes", "score", "batch", "precision", "control_seconds", "decisions"]:
            self.assertIn(key, summary)

    def test_quiet(self):
        _, done = self.run_of("a", "--quiet")
        self.assertEqual(done.stdout + done.stderr, "")

    def test_default_directory_is_named_and_numbered(self):
        for name in ["convnet-synthetic-fp32-0", "convnet-synthetic-fp32-0-2"]:
            done = triaccel("train", *TINY, "--max-steps", "1", cwd=self.folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue((self.folder / "runs" / name / "summary.json").exists())

    def test_configuration_file_and_environment(self):
        (self.folder / "c.toml").write_text('lr = 0.5\nbatch = 48\n')
        environment = {**os.environ, "TRIACCEL_BATCH": "24", "TRIACCEL_SEED": "9"}
        done = triaccel("train", "--config", str(self.folder / "c.toml"), "--set", "seed=4",
                        "--print-config", env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in ["lr = 0.5 ", "batch = 24 ", "seed = 4 "]:
            self.assertIn(line, done.stdout)

    def test_the_saved_configuration_repeats_the_run(self):
        first, _ = self.run_of("a")
        done = triaccel("train", "--config", str(first / "config.toml"), "--out",
                        str(self.folder / "b"))
        self.assertEqual(done.returncode, 0, done.stderr)
        model = "checkpoints/last/model.safetensors"
        self.assertEqual((first / model).read_bytes(), (self.folder / "b" / model).read_bytes())

    def test_a_tuned_run_is_repeated_with_its_kernels(self):
        first, _ = self.run_of("a", "--tune")
        done = triaccel("train", "--repeat", str(first), "--out", str(self.folder / "b"))
        self.assertEqual(done.returncode, 0, done.stderr)
        model, state = "checkpoints/last/model.safetensors", "checkpoints/last/state.json"
        self.assertEqual((first / model).read_bytes(), (self.folder / "b" / model).read_bytes())
        self.assertFalse((self.folder / "b/kernels.json").exists(), "nothing was measured")
        kernels = [json.loads((folder / state).read_text())["card"]["kernels"]
                   for folder in (first, self.folder / "b")]
        self.assertEqual(*kernels)

    def test_a_trace_that_cannot_be_written_is_said_before_the_first_step(self):
        self.assert_refused(1, ["train", *TINY, "--profile", "none/trace.json", "--out", "b"],
                            "none/trace.json")
        self.assertFalse((self.folder / "b").exists())
        for steps in ["1", "3"]:
            self.run_of(steps, "--max-steps", steps, "--profile", str(self.folder / "trace.json"))
            trace = json.loads((self.folder / "trace.json").read_text())
            self.assertTrue(trace["traceEvents"], steps)

    def test_any_number_of_threads_gives_the_same_weights(self):
        model = "checkpoints/last/model.safetensors"
        bytes_of = [(self.run_of(f"t{n}", "--threads", str(n))[0] / model).read_bytes()
                    for n in [1, 3]]
        self.assertEqual(*bytes_of)

    def screen(self, *args, columns=80):
        """What a training writes on a terminal so wide."""
        try:
            master, slave = pty.openpty()
        except OSError as error:  # a root directory without /dev/pts
            self.skipTest(f"no terminal to be had here: {error}")
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        with subprocess.Popen([PROGRAM, "train", *TINY, *args], stdin=slave, stdout=slave, stderr=slave,
                              env={**os.environ, "TERM": "xterm", "LC_ALL": "C"}) as program:
            os.close(slave)
            written = b""
            try:
                while select.select([master], [], [], 60)[0]:
                    written += os.read(master, 65536)
            except OSError:  # the other end is closed
                pass
            os.close(master)
            self.assertEqual(program.wait(), 0)
        return written.decode()

    def test_panel_on_a_terminal(self):
        screen = self.screen("--epochs", "60", "--out", str(self.folder / "a"))
        self.assertIn("images/s", screen)
        self.assertIn("test accuracy", screen)

    def test_no_line_is_wider_than_the_terminal(self):
        for columns in [40, 80, 110]:
            screen = self.screen("--out", f"{self.folder}/{columns}", columns=columns)
            text = re.sub(r"\x1b\[[0-9]*[A-Z]", "", screen).replace("\r", "\n")
            lines = [line for line in text.split("\n") if line.startswith("epoch ")]
            self.assertGreaterEqual(len(lines), 3)
            for line in lines:
                self.assertLess(len(line), columns)

    @not_sanitized("such builds have one SIMD target")
    def test_simd_target_change_is_said(self):
        path, _ = self.run_of("a", "--max-steps", "2")
        target = json.loads((path / "checkpoints/last/state.json").read_text())["simd_target"]
        if target == "SSE4":
            self.skipTest("the machine has nothing better than SSE4")
        done = triaccel("train", "--resume", str(path), "--max-steps", "off",
                        env={**os.environ, "TRIACCEL_SIMD": "SSE4"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"saved on SIMD target {target} and continued on SSE4", done.stdout)


class Signals(Folder):
    def stop_with(self, number, code):
        path = self.folder / "a"
        program = subprocess.Popen([PROGRAM, "train", *LONG, "--out", str(path), "--json"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not (path / "checkpoints/best").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        program.send_signal(number)
        out, err = program.communicate(timeout=60)
        self.assertEqual(program.returncode, code, err)
        summary = json.loads(out)
        self.assertEqual(summary["status"], "interrupted")
        self.assertIn("--resume", err)
        state = json.loads((path / "checkpoints/last/state.json").read_text())
        self.assertEqual(state["step"], summary["steps"])
        more = triaccel("train", "--resume", str(path), "--max-steps", str(state["step"] + 3))
        self.assertEqual(more.returncode, 0, more.stderr)
        state = json.loads((path / "checkpoints/last/state.json").read_text())
        self.assertEqual(state["step"], summary["steps"] + 3)

    def test_interrupt(self):
        self.stop_with(signal.SIGINT, 130)

    def test_terminate(self):
        self.stop_with(signal.SIGTERM, 143)


    def test_a_closed_pipe_does_not_stop_a_training(self):
        path = self.folder / "a"
        program = subprocess.Popen([PROGRAM, "train", *TINY, "--out", str(path)],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        program.stdout.close()
        program.wait(timeout=60)
        self.assertEqual(json.loads((path / "summary.json").read_text())["status"], "done")


class WrongUse(Folder):
    def test_ceiling(self):
        self.assert_refused(3, ["train", *TINY, "--model", "resnet18", "--memory", "10MiB"],
                            "10.0 MiB", "the engine")
        self.assertEqual(list(self.folder.iterdir()), [])

    @weighs_the_process
    def test_a_batch_that_would_fit_is_named(self):
        self.assert_refused(3, ["train", *TINY, "--batch", "16384", "--memory", "40MiB"],
                            "give --batch ")
        self.assert_refused(2, ["train", *TINY, "--batch", "128"], "128", "90 images")

    def test_divergence(self):
        """Only after several steps were lost with every layer in fp32, or a loss scale of 1."""
        for number, precision in enumerate(["fp32", "bf16", "adaptive", "fp16"]):
            path = self.folder / str(number)
            self.assert_refused(4, ["train", *TINY, "--precision", precision, "--lr", "1e30",
                                    "--warmup", "0", "--epochs", "50", "--quiet", "--out",
                                    str(path)], "not finite", "--lr")
            summary = json.loads((path / "summary.json").read_text())
            self.assertEqual(summary["status"], "diverged")
            self.assertGreaterEqual(summary["skipped_steps"], 5)
            if precision != "fp16":
                self.assertEqual(summary["precision"]["fp32"], 1)
            self.assertTrue((path / "checkpoints/last/manifest.json").exists())

    def test_a_run_is_not_overwritten(self):
        path, _ = self.run_of("a", "--max-steps", "1")
        self.assert_refused(2, ["train", *TINY, "--out", str(path)], "--resume")

    def test_two_processes_do_not_share_a_run(self):
        path, _ = self.run_of("a", "--max-steps", "1")
        held = os.open(path, os.O_RDONLY)  # as the first of them holds it
        self.addCleanup(os.close, held)
        fcntl.flock(held, fcntl.LOCK_EX)
        self.assert_refused(2, ["train", "--resume", str(path)], "another process", str(path))

    def test_a_forgotten_directory_starts_no_other_run(self):
        for option in ["--resume", "--repeat"]:
            self.assert_refused(2, ["train", option, ""], option)
        self.assertFalse((self.folder / "runs").exists())

    def test_a_resumed_run_keeps_what_was_changed(self):
        path, _ = self.run_of("a", "--max-steps", "2")
        done = triaccel("train", "--resume", str(path), "--max-steps", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("max-steps = 4", (path / "config.toml").read_text())
        again = triaccel("train", "--resume", str(path), "--max-steps", "off")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(json.loads((path / "summary.json").read_text())["epochs"], 3)
        self.assert_refused(2, ["train", "--resume", str(path), "--out", "b"], "--out b")

    def test_a_resumed_run_has_its_configuration(self):
        path, _ = self.run_of("a", "--max-steps", "1")
        self.assert_refused(2, ["train", "--resume", str(path), "--print-config"], "--print-config")
        self.assert_refused(2, ["train", "--resume", str(path), "--config", "c.toml"], "c.toml")
        done = triaccel("train", "--resume", str(path), "--json", env={**os.environ, "TRIACCEL_MAX_STEPS": "2"})
        self.assertEqual(json.loads(done.stdout)["steps"], 2, done.stderr)

    def test_closed_files_get_nothing_of_the_panel(self):
        for closed in [">&-", "2>&-", "<&- >&- 2>&-"]:
            path = self.folder / f"run{len(closed)}"
            subprocess.run(f"'{PROGRAM}' train {' '.join(TINY)} --max-steps 2 --out '{path}' {closed}",
                           shell=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for line in (path / "metrics.jsonl").read_text().splitlines():
                json.loads(line)

    def test_nothing_to_resume(self):
        self.assert_refused(2, ["train", "--resume", "nowhere"], "nowhere", "no checkpoint")
        self.assert_refused(2, ["train", "--repeat", "nowhere"], "--repeat nowhere", "no checkpoint")

    def test_data(self):
        self.assert_refused(1, ["train", *TINY, "--data", "cifar10:/nowhere"], "/nowhere")
        self.assert_refused(2, ["train", *TINY, "--classes", "7"], "--classes 7")
        self.assert_refused(2, ["train", *TINY, "--augment", "spin"], "spin")

    def test_eval_and_predict(self):
        self.assert_refused(2, ["eval", "nowhere"], "nowhere")
        self.assert_refused(2, ["eval", str(self.folder)], "no checkpoint")
        self.assert_refused(2, ["eval"], "checkpoint")
        self.assert_refused(2, ["predict", "nowhere"], "images")


def torchvision_file(path, listing, classes):
    """Safetensors as torchvision's state_dict would be saved: its names and shapes, I64 counters."""
    header, data = {}, b""
    chance = random.Random(1)
    for line in listing.read_text().splitlines():
        name, shape = line.split()
        shape = [classes if n == "1000" else int(n) for n in shape.split("x")]
        noise = struct.pack("<256f", *(chance.uniform(-0.1, 0.1) for _ in range(256)))
        values = noise * (math.prod(shape) // 256 + 1)
        if name.endswith("running_var"):
            values = struct.pack("<f", 1.0) * math.prod(shape)
        values = values[:4 * math.prod(shape)]
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
        if name.endswith("running_var"):
            header[name.replace("running_var", "num_batches_tracked")] = {
                "dtype": "I64", "shape": [], "data_offsets": [len(data), len(data) + 8]}
            data += struct.pack("<q", 5)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class SharedOptions(Folder):
    def test_other_commands_refuse_what_they_would_ignore(self):
        path, _ = self.run_of("a")
        self.assert_refused(2, ["eval", str(path), "--set", "data=synthetic:5,9,90"], "data=")
        self.assert_refused(2, ["eval", str(path), "--width", "3"], "--width")
        self.assert_refused(2, ["eval", str(path), "--pixels", "8"], "--pixels")
        done = triaccel("eval", str(path), "--set", "threads=1", "--pixels", "9", "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_environment_holds_everywhere(self):
        path, _ = self.run_of("a")
        for command in [["info"], ["eval", str(path)]]:
            done = triaccel(*command, env={**os.environ, "TRIACCEL_THREADS": "abc"})
            self.assertEqual(done.returncode, 2, done.stderr)
        info = triaccel("info", "--json", env={**os.environ, "TRIACCEL_THREADS": "3"})
        self.assertEqual(json.loads(info.stdout)["machine"]["threads"], 3)
        shown = triaccel("info", "--print-config", env={**os.environ, "TRIACCEL_THREADS": "3"})
        self.assertRegex(shown.stdout, r"threads = 3 +# environment")


class Init(Folder):
    LISTINGS = pathlib.Path(__file__).resolve().parent.parent / "golden/parameters"

    def test_weights_of_torchvision(self):
        """With its number of classes they load unchanged; with another the head is drawn anew, and
        that is said."""
        for model, head in [("shufflenet-v2", "fc.weight"), ("squeezenet", "classifier.1.weight"),
                            ("mobilenet-v2", "classifier.1.weight")]:
            width = "0.1" if model == "squeezenet" else "0.5"
            listing = self.LISTINGS / f"{model}_w{width}.txt"
            for classes in [3, 1000]:
                with self.subTest(model=model, classes=classes):
                    weights = self.folder / "w.safetensors"
                    torchvision_file(weights, listing, classes)
                    path = self.folder / f"{model}-{classes}"
                    done = triaccel("train", "--method", "fp32", "--model", model, "--width", width,
                                    "--data", "synthetic:3,32,40", "--batch", "4", "--max-steps",
                                    "1", "--lr", "1e-12", "--init", str(weights), "--out",
                                    str(path))
                    self.assertEqual(done.returncode, 0, done.stderr)
                    if classes == 3:
                        self.assertNotIn("warning", done.stdout)
                    else:
                        self.assertRegex(done.stdout, f"warning: .*another number of classes: .*{head}")
                    saved = tensors_of(path / "checkpoints/last/model.safetensors")
                    given = tensors_of(weights)
                    self.assertEqual(sorted(saved), sorted(given))
                    for name in [n for n in given if n.endswith(".weight")]:
                        if name != head or classes == 3:
                            self.assertEqual(saved[name], given[name], name)


class Checkpoints(Folder):
    def test_eval(self):
        path, _ = self.run_of("a")
        summary = json.loads((path / "summary.json").read_text())
        result = json.loads(triaccel("eval", str(path), "--json").stdout)
        self.assertEqual(result["accuracy"], summary["test_accuracy"])
        self.assertEqual(result["count"], 18)
        self.assertEqual(sum(map(sum, result["confusion"])), 18)
        self.assertEqual(sum(result["confusion"][i][i] for i in range(3)),
                         round(18 * result["accuracy"]))
        for key in ["top5", "loss"]:
            self.assertIn(key, result)
        text = triaccel("eval", str(path / "checkpoints/best")).stdout
        self.assertIn("accuracy", text)

    def test_predict(self):
        path, _ = self.run_of("a")
        images = [self.folder / f"{grey}.png" for grey in [0, 200]]
        for image in images:
            png(image, 40, 30, int(image.stem))
        done = triaccel("predict", str(path), *map(str, images), "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        seen = json.loads(done.stdout)
        self.assertEqual([one["image"] for one in seen], [str(image) for image in images])
        for one in seen:
            self.assertIn("grating", one["class"])
            self.assertTrue(1 / 3 <= one["probability"] <= 1)
        text = triaccel("predict", str(path), str(images[0]))
        self.assertRegex(text.stdout, r"0\.png: grating \d \(\d+\.\d %\)")
        (self.folder / "no.png").write_bytes(b"no image")
        self.assert_refused(1, ["predict", str(path), "no.png"], "no.png")
        self.assert_refused(1, ["predict", str(path), "missing.png"], "missing.png")
        several = triaccel("predict", str(path), str(images[0]), "no.png", str(images[1]),
                           cwd=self.folder)
        self.assertEqual(several.returncode, 1)
        self.assertEqual(len(several.stdout.splitlines()), 2)
        self.assertIn("no.png", several.stderr)


if __name__ == "__main__":
    unittest.main()
