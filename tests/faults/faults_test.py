"""What the world does to a training: kills, full disks, damaged and changed files. Each time there
is a clear error or the run goes on as if nothing had happened; no checkpoint is lost.

Usage: faults_test.py PROGRAM [--kills N]: N kills instead of the tests of everything else
"""

import json
import os
import pathlib
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

from program import PROGRAM, sanitized, triaccel

KILLS = 3
if "--kills" in sys.argv:
    at = sys.argv.index("--kills")
    KILLS = int(sys.argv[at + 1])
    del sys.argv[at:at + 2]

# Batches straddle epochs and grow, layers change their precision and step size; every form of storage but
# the plain one; saves all the time.
RUN = ["--method", "triaccel", "--control-every", "4", "--curvature-every", "6", "--curvature-batch", "8",
       "--curvature-top", "2", "--batch-max", "64", "--ghost-batch", "8", "--memory", "512MiB",
       "--model", "convnet", "--width", "0.25", "--data", "synthetic:3,12,200", "--batch", "32",
       "--epochs", "12", "--lr", "0.05", "--save-every", "3", "--quiet"]
WEIGHTS = ["checkpoints/last/model.safetensors", "checkpoints/last/optimizer.safetensors"]


class Folder(unittest.TestCase):
    def setUp(self):
        memory = pathlib.Path("/dev/shm")
        parent = memory if os.access(memory, os.W_OK) else None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tri-faults-", dir=parent))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def start(self, path, *more, **options):
        done = triaccel("train", *RUN, "--out", str(path), *more, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [(path / file).read_bytes() for file in WEIGHTS]

    def assert_failed(self, done, code, *fragments):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"\Atriaccel: [^\n]+\n\Z")
        for fragment in fragments:
            self.assertIn(fragment, done.stderr)


class Kill(Folder):
    def test_a_killed_run_ends_with_the_same_weights(self):
        began = time.monotonic()
        whole = self.start(self.folder / "whole")
        length = time.monotonic() - began
        chance = random.Random(4)  # which moments they are depends on the machine all the same
        for number in range(KILLS):
            path = self.folder / "killed"
            shutil.rmtree(path, ignore_errors=True)
            arguments = ["train", *RUN, "--out", str(path)]
            for _ in range(2):  # kill the run, then kill the resumed run
                program = subprocess.Popen([PROGRAM, *arguments], stdin=subprocess.DEVNULL,
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(chance.uniform(0, length))
                program.kill()
                program.wait()
                if (path / "checkpoints/last/manifest.json").exists():
                    arguments = ["train", "--resume", str(path), "--quiet"]
            done = triaccel(*arguments)
            self.assertEqual(done.returncode, 0, f"kill {number}: {done.stderr}")
            self.assertEqual([(path / file).read_bytes() for file in WEIGHTS], whole,
                             f"kill {number}")
            self.assertEqual(sorted(p.name for p in (path / "checkpoints").iterdir()),
                             ["best", "last"])
            steps = [json.loads(line)["step"] for line in
                     (path / "metrics.jsonl").read_text().splitlines()]
            self.assertEqual(steps, sorted(steps))


class Disk(Folder):
    def test_no_space_for_the_next_checkpoint(self):
        """A limit on the size of files stands for a full disk, which only root can make."""
        path = self.folder / "a"
        self.start(path, "--max-steps", "3")
        before = (path / WEIGHTS[1]).read_bytes()
        size = len(before)

        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))

        done = triaccel("train", "--resume", str(path), "--max-steps", "off", "--quiet",
                        preexec_fn=limited)
        self.assert_failed(done, 1, "cannot write", "free some space")
        self.assertEqual((path / WEIGHTS[1]).read_bytes(), before)
        self.assertEqual(triaccel("train", "--resume", str(path), "--quiet").returncode, 0)

    def mount(self, options):
        place = self.folder / "small"
        place.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)],
                                 capture_output=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("only root can mount a small file system")
        self.addCleanup(subprocess.run, ["umount", str(place)], check=True)
        return place

    def test_full_file_system_at_the_start(self):
        done = triaccel("train", *RUN, "--out", str(self.mount("size=256k") / "a"), "--width", "0.5")
        self.assert_failed(done, 1, "No space left", "free some space")

    def test_file_system_that_fills_up(self):
        place = self.mount("size=4m")
        path = place / "a"
        self.start(path, "--max-steps", "3")
        before = [(path / file).read_bytes() for file in WEIGHTS]
        with open(place / "ballast", "wb", buffering=0) as ballast:
            with self.assertRaises(OSError):
                while True:
                    ballast.write(bytes(4096))
        resume = ["train", "--resume", str(path), "--max-steps", "off", "--quiet"]
        self.assert_failed(triaccel(*resume), 1, "No space left", "free some space")
        self.assertEqual([(path / file).read_bytes() for file in WEIGHTS], before)
        (place / "ballast").unlink()
        self.assertEqual(triaccel(*resume).returncode, 0)
        self.assertEqual(sorted(p.name for p in (path / "checkpoints").iterdir()), ["best", "last"])

    def test_unwritable_directory(self):
        if os.geteuid() == 0:  # who may write everywhere but there
            place, why = self.mount("ro"), "Read-only file system"
        else:
            place, why = self.folder, "Permission denied"
            place.chmod(0o500)
            self.addCleanup(place.chmod, 0o700)
        self.assert_failed(triaccel("train", *RUN, "--out", str(place / "a")), 1, why,
                           "choose another directory")

    def test_a_file_where_a_directory_should_be(self):
        (self.folder / "a").write_text("in the way")
        self.assert_failed(triaccel("train", *RUN, "--out", str(self.folder / "a")), 1, "/a",
                           "choose another path")


class Damage(Folder):
    def test_checkpoint(self):
        path = self.folder / "a"
        self.start(path, "--max-steps", "3")
        last = path / "checkpoints/last"
        saved = {file.name: file.read_bytes() for file in last.iterdir()}
        for name, content in saved.items():
            for damaged in [b"", content[:len(content) // 2],
                            content[:-1] + bytes([content[-1] ^ 1])]:
                (last / name).write_bytes(damaged)
                done = triaccel("train", "--resume", str(path))
                self.assert_failed(done, 1, str(last))
            (last / name).unlink()
            self.assertIn(triaccel("train", "--resume", str(path)).returncode, [1, 2])
            (last / name).write_bytes(content)
        self.assertEqual(triaccel("train", "--resume", str(path), "--quiet").returncode, 0)

    def test_configuration_is_missing(self):
        path = self.folder / "a"
        self.start(path, "--max-steps", "3")
        (path / "config.toml").unlink()
        self.assert_failed(triaccel("train", "--resume", str(path)), 2, "config.toml")

    def test_events_end_in_half_a_line(self):
        path = self.folder / "a"
        self.start(path, "--max-steps", "3")
        with open(path / "metrics.jsonl", "a", encoding="ascii") as file:
            file.write('{"event":"step","st')
        self.assertEqual(triaccel("train", "--resume", str(path), "--quiet").returncode, 0)
        for line in (path / "metrics.jsonl").read_text().splitlines():
            json.loads(line)


class Data(Folder):
    def write_cifar(self, count, label=3):
        data = self.folder / "cifar"
        data.mkdir(exist_ok=True)
        record = bytes([label]) + bytes(range(256)) * 12
        for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
            (data / name).write_bytes(record * count)
        (data / "batches.meta.txt").write_text("\n".join(f"class {i}" for i in range(10)))
        return data

    def arguments(self, data, *more):
        return ["train", *RUN, "--data", f"cifar10:{data}", "--width", "0.1", *more,
                "--out", str(self.folder / "a")]

    def test_truncated(self):
        data = self.write_cifar(20)
        file = data / "data_batch_3.bin"
        file.write_bytes(file.read_bytes()[:-5])
        self.assert_failed(triaccel(*self.arguments(data)), 1, "data_batch_3.bin")
        file.write_bytes(b"")
        self.assert_failed(triaccel(*self.arguments(data)), 1, "data_batch_3.bin")

    def test_label_out_of_range(self):
        data = self.write_cifar(20, label=11)
        self.assert_failed(triaccel(*self.arguments(data)), 1, "11")

    def test_swapped_during_the_run(self):
        data = self.write_cifar(20)
        path = self.folder / "a"
        program = subprocess.Popen([PROGRAM, *self.arguments(data, "--epochs", "100000")],
                                   stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not (path / "checkpoints/best").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        for file in data.glob("data_batch_*.bin"):
            with open(file, "r+b") as open_file:
                open_file.write(b"\x05")
        _, err = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 1, err)
        self.assertIn("data_batch", err)
        self.assertTrue((path / "checkpoints/last/manifest.json").exists())


class Images(Folder):
    """A folder of images in which some are not as the others."""

    def png(self, name, width=12, height=12, colour=2, rows=None):
        depth = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
        if rows is None:
            rows = b"".join(b"\0" + bytes((x * 7 + y) % 256 for x in range(width * depth))
                            for y in range(height))

        def chunk(kind, content):
            body = kind + content
            return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))
        path = self.folder / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x89PNG\r\n\x1a\n"
                         + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0))
                         + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
        return path

    def train(self):
        return triaccel("train", "--method", "fp32", "--model", "convnet", "--width", "0.1", "--data",
                        f"folder:{self.folder}/images", "--pixels", "12", "--batch", "8", "--epochs",
                        "2", "--memory", "512MiB", "--out", str(self.folder / "a"))

    def fill(self):
        for part in ["train", "val"]:
            for kind in ["cat", "dog"]:
                for number in range(12):
                    self.png(f"{part}/{kind}/{number:02}.png")

    def test_other_sizes_and_colour_types_are_converted(self):
        self.fill()
        for number, (colour, side) in enumerate([(0, 5), (2, 40), (4, 12), (6, 300)]):
            self.png(f"train/cat/{number:02}.png", side, side + 3, colour)
        done = self.train()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("warning", done.stdout)

    def test_what_cannot_be_decoded_is_replaced_and_counted(self):
        self.fill()
        self.png("train/dog/03.png", 10000, 10000, rows=b"")  # 100 megapixels in its header
        file = self.png("train/dog/04.png")
        file.write_bytes(file.read_bytes()[:40])
        (self.folder / "images/train/cat/05.png").write_bytes(b"")
        done = self.train()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("warning: 3 images could not be read", done.stdout)
        summary = json.loads((self.folder / "a/summary.json").read_text())
        if not sanitized():
            self.assertLessEqual(summary["process_peak_bytes"], 64 << 20)

    def test_a_test_image_that_cannot_be_read_is_said(self):
        self.fill()
        (self.folder / "images/val/dog/07.png").write_bytes(b"")
        done = self.train()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("warning: 1 images could not be read and were replaced by others of the test set",
                      done.stdout)
        done = triaccel("eval", str(self.folder / "a"), "--json")
        self.assertEqual(json.loads(done.stdout)["skipped"], 1)
        self.assertIn("1 images could not be read", done.stderr)

    def test_an_epoch_that_cannot_be_judged_is_not_lost(self):
        self.fill()
        for file in (self.folder / "images/val").glob("*/*"):
            file.write_bytes(b"")
        done = self.train()
        self.assertEqual(done.returncode, 1, done.stderr)
        summary = json.loads((self.folder / "a/summary.json").read_text())
        self.assertEqual((summary["status"], summary["steps"]), ("interrupted", 3))
        state = json.loads((self.folder / "a/checkpoints/last/state.json").read_text())
        self.assertEqual(state["step"], 3)
        for part in ["cat", "dog"]:  # mended, it goes on
            for number in range(12):
                self.png(f"val/{part}/{number:02}.png")
        done = triaccel("train", "--resume", str(self.folder / "a"), "--json")
        self.assertEqual(json.loads(done.stdout)["status"], "done", done.stderr)

    def test_no_images(self):
        self.fill()
        for file in (self.folder / "images/train/cat").iterdir():
            file.unlink()
        self.assert_failed(self.train(), 1, "train/cat")
        shutil.rmtree(self.folder / "images/train")
        (self.folder / "images/train").mkdir()
        self.assert_failed(self.train(), 1, "images")


if __name__ == "__main__":
    unittest.main()
