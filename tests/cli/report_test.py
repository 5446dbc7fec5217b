"""report and set as a user sees them: the page of a run in any state, requests to a running one.

Usage: report_test.py PROGRAM
"""

import fcntl
import html
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from program import PROGRAM, triaccel, weighs_the_process

TINY = ["--method", "fp32", "--model", "convnet", "--width", "0.1", "--data", "synthetic:3,9,90",
        "--batch", "32", "--epochs", "3", "--lr", "0.05", "--control-every", "2"]
CHARTS = ["headline", "loss", "accuracy", "rate", "score", "seconds", "throughput", "peak", "batch",
          "memory", "noise", "precision", "curvature", "step-size", "decisions", "configuration"]


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tri-report-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def train(self, name, *more):
        path = self.folder / name
        done = triaccel("train", *TINY, "--out", str(path), *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def assert_page(self, path):
        page = path.read_text(encoding="utf-8")
        self.assertTrue(page.startswith("<!DOCTYPE html>") and page.endswith("</html>\n"))
        for chart in CHARTS:
            self.assertIn(f'id="{chart}"', page)
        self.assertNotRegex(page, r'(src|href)="(?!data:)|url\(|@import|http')  # no network
        return page

    def assert_refused(self, code, arguments, *fragments):
        done = triaccel(*arguments, cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\Atriaccel: [^\n]+\n\Z")
        for fragment in fragments:
            self.assertIn(fragment, done.stderr)


class Report(Folder):
    def test_train_ends_with_a_page(self):
        page = self.assert_page(self.train("a") / "report.html")
        self.assertIn("convnet on synthetic:3,9,90, method fp32, seed 0", page)
        self.assertIn(">done</span>", page)
        for curve in ["training, mean of an epoch", "test"]:
            self.assertRegex(page, f'data-label="{curve}" points="[0-9]')

    def test_what_the_governor_did_is_on_the_page(self):
        path = self.train("a", "--method", "triaccel", "--control-every", "2", "--curvature-every",
                          "4", "--curvature-batch", "8", "--tau-low", "0.9", "--tau-high", "1.1",
                          "--batch", "16", "--ghost-batch", "8", "--batch-max", "32")
        page = self.assert_page(path / "report.html")
        events = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        changes = [change for event in events if event["event"] == "control"
                   for change in event["changes"]]
        self.assertTrue({change["what"].split()[0] for change in changes} >= {"precision", "batch"})
        for change in changes:
            reason = html.escape(change["reason"], quote=False).replace('"', "&quot;")
            self.assertTrue(reason in page, reason)
        start = next(event for event in events if event["event"] == "start")
        for layer in start["precision"]:
            self.assertIn(layer, page)
        self.assertTrue(any(event["event"] == "curvature" for event in events))
        for chart in ["precision", "curvature", "step-size"]:
            section = page[page.index(f'id="{chart}"'):]
            self.assertRegex(section[:section.index("</svg>")], "<(rect|polyline|path)")

    def test_several_runs_side_by_side(self):
        runs = [str(self.train(name, "--seed", seed)) for name, seed in [("a", "0"), ("b", "1")]]
        out = self.folder / "both.html"
        done = triaccel("report", *runs, "--out", str(out), "--json")
        self.assertEqual(json.loads(done.stdout), {"report": str(out), "runs": runs})
        page = self.assert_page(out)
        for name in ["Memory of a", "Memory of b", "Precision of b", "Decisions of a"]:
            self.assertIn(name, page)
        different = page[page.index('id="configuration"'):page.index("options that all share")]
        self.assertIn("<td>seed</td><td>0</td><td>1</td>", different)
        self.assertNotIn("<td>model</td>", different)
        self.assertEqual(triaccel("report", *runs, cwd=self.folder).returncode, 0)
        self.assertEqual((self.folder / "report.html").read_text(), page)

    def test_a_run_in_any_state(self):
        path = self.train("a")
        events = (path / "metrics.jsonl").read_text()
        os.remove(path / "report.html")
        for name, text in [("torn", events[:-40]), ("first", events.split("\n")[0] + "\n"),
                           ("empty", ""), ("noise", "\0\xff{]\n" * 50 + events)]:
            (path / "metrics.jsonl").write_text(text, encoding="latin-1")
            done = triaccel("report", str(path))
            self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
            self.assertEqual(done.stdout, f"{path}/report.html\n")
            self.assert_page(path / "report.html")
        for lost in ["config.toml", "summary.json"]:
            os.remove(path / lost)
            self.assertEqual(triaccel("report", str(path)).returncode, 0)
            self.assert_page(path / "report.html")

    def test_words_of_a_run_are_shown_as_they_are(self):
        path = self.train("a")
        change = {"what": "precision <fc>", "from": "bf16", "to": "fp32", "reason": "5 & 6 < \"7\""}
        with open(path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"event": "control", "step": 9, "samples": 1, "seconds": 1,
                                   "changes": [change, {"what": "batch", "to": 64}, 3]}) + "\n")
        self.assertEqual(triaccel("report", str(path)).returncode, 0)
        page = self.assert_page(path / "report.html")
        self.assertIn("precision &lt;fc&gt;", page)
        self.assertIn("5 &amp; 6 &lt; &quot;7&quot;", page)

    @weighs_the_process
    def test_a_long_run_needs_little_memory_and_makes_a_small_page(self):
        path = self.folder / "long"
        path.mkdir()
        layers = [{"name": f"layer{i}", "lambda": [1 + i, 1]} for i in range(60)]
        with open(path / "metrics.jsonl", "w", encoding="utf-8") as file:
            file.write('{"event":"start","step":0,"samples":0,"seconds":0,"epoch_samples":1000}\n')
            for step in range(1, 20001):
                file.write(f'{{"event":"step","step":{step},"samples":{step * 10},"seconds":{step},'
                           f'"loss":{1 / step},"batch":{10 + step % 7},"rss_bytes":{step}}}\n')
                if step % 100 == 0:
                    file.write(json.dumps({"event": "curvature", "step": step, "layers": layers,
                                           "samples": step * 10, "seconds": step}) + "\n")
        few = self.folder / "few"
        few.mkdir()
        with open(path / "metrics.jsonl", encoding="utf-8") as file:
            (few / "metrics.jsonl").write_text("".join(next(file) for _ in range(100)))
        little, enough = 0, 64 << 20
        while enough - little > 64 << 10:
            size = (enough + little) // 2
            enough, little = (size, little) if self.reports_within(few, size) else (enough, size)
        self.assertTrue(self.reports_within(path, enough + (2 << 20)))
        self.assertLess((path / "report.html").stat().st_size, 2 << 20)

    def reports_within(self, path, size):
        """Whether that many bytes of data are enough; what a child held at most includes its parent."""
        done = triaccel("report", str(path), "--quiet", "--out", str(path / "report.html"),
                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (size, size)))
        return done.returncode == 0

    def test_wrong_use(self):
        self.assert_refused(2, ["report"], "DIR")
        self.assert_refused(2, ["report", "nowhere"], "nowhere", "not the directory of a run")
        self.assert_refused(2, ["report", str(self.folder)], "metrics.jsonl")
        path = self.train("a", "--max-steps", "1")
        self.assert_refused(1, ["report", str(path), "--out", "none/report.html"], "none/report.html")
        page = (path / "report.html").read_bytes()

        def limited():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        done = triaccel("report", str(path), preexec_fn=limited)
        self.assertEqual(done.returncode, 1)
        self.assertIn("report.html", done.stderr)
        self.assertEqual((path / "report.html").read_bytes(), page)
        self.assertEqual([file.name for file in path.iterdir() if "tmp" in file.name], [])


class Set(Folder):
    def test_request_to_a_running_run(self):
        path = self.folder / "a"
        program = subprocess.Popen([PROGRAM, "train", *TINY, "--epochs", "100000", "--out",
                                    str(path), "--quiet"])
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        deadline = time.monotonic() + 60
        while not (path / "summary.json").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        done = triaccel("set", str(path), "memory=196MiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("196MiB", done.stdout)
        self.assertEqual(json.loads((path / "control.json").read_text()),
                         {"memory": "196MiB", "serial": 1})
        done = triaccel("set", str(path), "memory=60%", "--json")
        self.assertEqual(json.loads(done.stdout)["serial"], 2)
        self.assertIsNone(program.poll())
        # The page of a run in progress.
        self.assertEqual(triaccel("report", str(path)).returncode, 0)
        self.assertIn(">running</span>", self.assert_page(path / "report.html"))

    def test_wrong_use(self):
        path = self.train("a", "--max-steps", "1")
        self.assert_refused(2, ["set"], "DIR")
        self.assert_refused(2, ["set", str(path)], "CHANGE")
        self.assert_refused(2, ["set", "nowhere", "memory=1G"], "nowhere")
        self.assert_refused(2, ["set", str(path), "memory=1G"], "done", "--resume")
        self.assert_refused(2, ["set", str(path), "speed=9"], "speed=9", "memory=")
        self.assert_refused(2, ["set", str(path), "memory"], "memory=")
        summary = re.sub('"done"', '"running"', (path / "summary.json").read_text())
        (path / "summary.json").write_text(summary)
        for bad in ["much", "", "-1G", "0", "110%"]:
            self.assert_refused(2, ["set", str(path), f"memory={bad}"], bad)
        self.assertFalse((path / "control.json").exists())
        self.assert_refused(2, ["set", str(path), "memory=1G"], "its process is gone")
        held = os.open(path, os.O_RDONLY)  # as a process at work holds it
        self.addCleanup(os.close, held)
        fcntl.flock(held, fcntl.LOCK_EX)
        (path / "control.json").mkdir()
        self.assert_refused(1, ["set", str(path), "memory=1G"], "control.json")
        (path / "summary.json").write_text("{")
        self.assert_refused(1, ["set", str(path), "memory=1G"], "summary.json")


if __name__ == "__main__":
    unittest.main()
