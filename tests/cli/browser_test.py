"""A report in a real browser: nothing on its console, every chart drawn, no label on another, values
under the pointer, in both colour schemes. Needs chromium.

Usage: browser_test.py PROGRAM [SCREENSHOT_FOLDER]
"""

import json
import math
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from program import PROGRAM

SCREENSHOTS = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else None
BROWSER = shutil.which("chromium")
CHARTS = ["loss", "accuracy", "rate", "score", "seconds", "throughput", "peak", "batch", "memory",
          "noise"]
BANDS = ["precision", "curvature", "step-size"]

# Runs in the page and leaves what it saw in an element of its own.
PROBE = """
<script>
addEventListener("load", () => {
  const seen = {overlaps: [], outside: [], tips: {}, drawn: {}};
  for (const svg of document.querySelectorAll("svg.chart, svg.bands")) {
    const id = svg.closest("figure").id;
    const boxes = [...svg.querySelectorAll("text")].map(t => [t.textContent,
                                                              t.getBoundingClientRect()]);
    const card = svg.closest("figure").getBoundingClientRect();
    boxes.forEach(([a, p], i) => {
      if (p.left < card.left || p.right > card.right) seen.outside.push(id + ": " + a);
      boxes.slice(i + 1).forEach(([b, q]) => {
        const x = Math.min(p.right, q.right) - Math.max(p.left, q.left);
        const y = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
        if (x > 1 && y > 3) seen.overlaps.push(id + ": " + a + " / " + b);
      });
    });
    seen.drawn[id] = svg.querySelectorAll("polyline, rect").length;
  }
  for (const svg of document.querySelectorAll("svg.chart")) {
    const box = svg.getBoundingClientRect();
    svg.dispatchEvent(new PointerEvent("pointermove",
        {clientX: box.left + box.width / 2, clientY: box.top + box.height / 2, bubbles: true}));
    seen.tips[svg.closest("figure").id] = document.getElementById("tip").innerText;
    svg.dispatchEvent(new PointerEvent("pointerleave"));
  }
  seen.width = document.documentElement.scrollWidth;
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = JSON.stringify(seen);
  document.body.appendChild(out);
});
</script></body>"""


def events(seed):
    """A made-up run of 15 epochs in which everything changes."""
    chance = random.Random(seed)
    layers = ["conv1"] + [f"layer{s}.{b}.conv{c}" for s in range(1, 5) for b in (0, 1)
                          for c in (1, 2)] + ["fc"]
    formats = dict.fromkeys(layers, "bf16")
    curvature = {layer: chance.uniform(0.5, 50) for layer in layers}
    epoch_samples, batch, samples, seconds, epoch = 50000, 96, 0, 0.0, 0
    yield {"event": "start", "step": 0, "samples": 0, "seconds": 0, "batch": batch,
           "epoch_samples": epoch_samples, "engine_peak_bytes": 120 << 20,
           "ceiling_bytes": 190 << 20, "precision": dict(formats)}
    for step in range(50, 7800, 50):
        samples += 50 * batch
        seconds += 50 * batch / 2400
        at = {"step": step, "samples": samples, "seconds": seconds}
        peak = (60 << 20) + batch * (512 << 10)
        yield {"event": "step", **at, "loss": 2.3 * math.exp(-step / 3000) + chance.random() / 5,
               "lr": 0.05 * min(1, step / 2600), "batch": batch, "engine_peak_bytes": peak,
               "rss_bytes": peak + (18 << 20), "ceiling_bytes": (190 if step < 4000 else 150) << 20}
        changes = []
        for layer in layers:
            if chance.random() < 0.02:
                to = chance.choice(["fp32", "bf16", "fp16"])
                changes.append({"what": f"precision {layer}", "from": formats[layer], "to": to,
                                "reason": "gradient variance is 0.04 of the median layer's"})
                formats[layer] = to
        if step % 1000 == 0:
            changes.append({"what": "batch", "from": batch, "to": batch + (32 if step < 4000 else -32),
                            "reason": "memory in use is 140.0 MiB, below 70 % of 190.0 MiB"})
            batch += 32 if step < 4000 else -32
        if changes:
            yield {"event": "control", **at, "changes": changes}
        if step % 200 == 0:
            for layer in layers:
                curvature[layer] *= math.exp(chance.gauss(0.02, 0.2))
            yield {"event": "curvature", **at, "noise_scale": 20 + step / 20,
                   "layers": [{"name": layer, "lambda": [curvature[layer]],
                               "step_size": 1 / (1 + 0.02 * curvature[layer])} for layer in layers]}
        if samples // epoch_samples > epoch:
            epoch = samples // epoch_samples
            accuracy = 0.78 - 0.5 * math.exp(-epoch / 4)
            yield {"event": "epoch", **at, "epoch": epoch, "train_accuracy": accuracy + 0.02,
                   "test_accuracy": accuracy, "test_loss": 2 * math.exp(-epoch / 7),
                   "train_loss": 2 * math.exp(-epoch / 6), "epoch_seconds": 20 + chance.random()}


@unittest.skipUnless(BROWSER, "chromium is not installed; tools/setup slow")
class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="tri-browser-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        trained = cls.folder / "trained"
        cls.triaccel("train", "--method", "fp32", "--model", "convnet", "--width", "0.1", "--data",
                     "synthetic:3,9,300", "--batch", "32", "--epochs", "3", "--control-every", "2",
                     "--out", str(trained), "--quiet")
        for seed in (0, 1):
            run = cls.folder / f"made-{seed}"
            run.mkdir()
            shutil.copy(trained / "config.toml", run)
            shutil.copy(trained / "summary.json", run)
            (run / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n"
                                                       for event in events(seed)))

    @staticmethod
    def triaccel(*arguments):
        subprocess.run([PROGRAM, *arguments], check=True, stdout=subprocess.DEVNULL)

    def browse(self, page, *more):
        done = subprocess.run(
            [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--enable-logging=stderr", f"--user-data-dir={self.folder}/profile",
             *more, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
        self.console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
        return done.stdout

    def probe(self, *runs, width=1280):
        page = self.folder / "page.html"
        self.triaccel("report", *(str(self.folder / run) for run in runs), "--out", str(page))
        probed = self.folder / "probed.html"
        probed.write_text(page.read_text().replace("</body>", PROBE))
        dom = self.browse(probed, "--dump-dom", f"--window-size={width},2000")
        self.assertEqual(self.console, [])
        text = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.S).group(1)
        seen = json.loads(text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
        self.assertEqual(seen["overlaps"], [])
        self.assertEqual(seen["outside"], [])
        return page, seen

    def screenshot(self, page, name, *more):
        picture = (SCREENSHOTS or self.folder) / f"{name}.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        self.browse(page, f"--screenshot={picture}", "--window-size=1280,3600", *more)
        data = picture.read_bytes()
        self.assertEqual(struct.unpack(">II", data[16:24]), (1280, 3600))
        self.assertGreater(len(data), 50_000)  # an empty page is a few kilobytes
        return data

    def test_the_browser_tells_of_errors(self):
        page = self.folder / "wrong.html"
        page.write_text("<script>nothing()</script>")
        self.browse(page, "--dump-dom")
        self.assertIn("nothing is not defined", "".join(self.console))

    def test_one_run(self):
        page, seen = self.probe("made-0")
        for chart in CHARTS:
            self.assertGreater(seen["drawn"][chart], 0, chart)
            self.assertTrue(seen["tips"][chart], chart)
        for band in BANDS:
            self.assertGreaterEqual(seen["drawn"][band], 18, band)
        self.assertIn("test", seen["tips"]["accuracy"])
        light = self.screenshot(page, "report-light")
        dark = self.screenshot(page, "report-dark", "--blink-settings=preferredColorScheme=0")
        self.assertNotEqual(light, dark)

    def test_several_runs(self):
        page, seen = self.probe("made-0", "made-1", "trained")
        for chart in ["memory", "memory-2", "memory-3", "precision-2"]:
            self.assertGreater(seen["drawn"][chart], 0, chart)
        self.assertIn("made-1", seen["tips"]["batch"])
        self.screenshot(page, "report-several")

    def test_a_real_run_and_a_small_screen(self):
        _, seen = self.probe("trained", width=500)
        for chart in ["loss", "accuracy", "score", "seconds", "throughput", "peak", "batch"]:
            self.assertGreater(seen["drawn"][chart], 0, chart)
        self.assertLessEqual(seen["width"], 500)


if __name__ == "__main__":
    unittest.main()
