"""plan, step and bench as a user sees them: keys, exit codes, one sentence for each mistake, and the
engine's peak to the byte.

Usage: engine_cli_test.py PROGRAM
"""

import json
import math
import os
import struct
import tempfile
import unittest

from program import sanitized, triaccel, weighs_the_process


class Sentences(unittest.TestCase):
    def assert_sentence(self, arguments, *fragments):
        done = triaccel(*arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\Atriaccel: [^\n]+\n\Z")
        for fragment in fragments:
            self.assertIn(fragment, done.stderr)


class Plan(unittest.TestCase):
    def plan(self, *arguments, code=0):
        done = triaccel("plan", "--json", "--method", "fp32", *arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout)

    def test_keys(self):
        plan = self.plan("--model", "resnet18", "--pixels", "32", "--classes", "10", "--memory", "2GiB")
        self.assertEqual(list(plan)[:8], ["fits", "ceiling_bytes", "engine_peak_bytes",
                                      "process_peak_bytes", "max_batch", "params", "by_kind",
                                      "layers"])
        self.assertEqual(plan["params"], 11181642)  # torchvision's
        self.assertEqual(list(plan["by_kind"]), ["weights", "state", "activations", "gradients",
                                                 "scratch", "data"])
        self.assertEqual(sum(layer["params"] for layer in plan["layers"]), plan["params"])
        self.assertGreater(plan["process_peak_bytes"], plan["engine_peak_bytes"])

    def test_sizes_of_known_data_need_no_files(self):
        def head(*arguments):
            return self.plan("--model", "mlp", *arguments)["layers"]

        for data, inputs, classes in [("cifar10:/none", 3072, 10), ("cifar100:/none", 3072, 100),
                                      ("mnist:/none", 784, 10), ("synthetic:7,16", 768, 7)]:
            layers = head("--data", data)
            self.assertEqual(layers[0]["params"], inputs * 512 + 512, data)
            self.assertEqual(layers[-1]["params"], 512 * classes + classes, data)
        self.assertEqual(head("--data", "folder:/none", "--pixels", "8", "--classes", "3")[0]["params"],
                         192 * 512 + 512)

    @weighs_the_process
    def test_largest_batch_is_the_largest(self):
        for recompute in ["off", "auto"]:
            self.check_largest_batch("--recompute", recompute)

    def check_largest_batch(self, *more):
        arguments = ["--model", "convnet", "--memory", "64MiB", "--ghost-batch", "4", *more, "--batch"]
        most = self.plan(*arguments, "8")["max_batch"]
        self.assertGreater(most, 8)
        self.assertEqual(most % 4, 0)
        # The process's own share differs by some pages from run to run.
        self.assertTrue(self.plan(*arguments, str(most - max(4, most // 40 * 4)))["fits"])
        self.assertFalse(self.plan(*arguments, str(most + max(4, most // 40 * 4)), code=3)["fits"])

    def test_what_is_multiplied(self):
        """bf16 where weights work in it and the target can; depthwise layers never."""
        arguments = ["--model", "mobilenet-v2-cifar", "--batch", "4"]
        products = lambda *more: {one["products"] for one in self.plan(*arguments, *more)["layers"]}
        best = json.loads(triaccel("info", "--json").stdout)["simd"]["target"] in ("AVX3_BF16", "AVX3_AMX")
        self.assertEqual(products("--method", "fp32"), {"fp32"})
        self.assertEqual(products("--method", "fp32", "--precision", "fp16"), {"fp32"})
        self.assertEqual(products("--method", "amp"), {"fp32", "bf16"} if best else {"fp32"})

    @weighs_the_process
    def test_what_does_not_fit_says_what_would(self):
        done = triaccel("plan", "--method", "fp32", "--model", "resnet18", "--memory", "100MiB")
        self.assertEqual(done.returncode, 3)
        self.assertIn("does not fit", done.stdout)
        self.assertRegex(done.stderr, r"\Atriaccel: [^\n]+needs[^\n]+--step fused[^\n]+\n\Z")
        done = triaccel("plan", "--method", "fp32", "--memory", "1MiB")
        self.assertEqual(done.returncode, 3)
        self.assertIn("--memory", done.stderr)


class BadInput(Sentences):
    def test_of_plan_and_bench(self):
        for command in [["plan"], ["bench", "step"]]:
            for arguments, fragments in [
                    (["--model", "resnet19"], ["resnet19", "resnet18"]),
                    (["--batch", "0"], ["--batch", "0"]),
                    (["--batch", "-3"], ["--batch", "-3"]),
                    (["--pixels", "0"], ["--pixels", "0"]),
                    (["--classes", "-1"], ["--classes", "-1"]),
                    (["--width", "0"], ["--width", "0"]),
                    (["--batch", "10", "--ghost-batch", "4"], ["10", "4", "divisor"]),
                    (["--model", "squeezenet", "--pixels", "4"], ["features.2", "1x1x64"]),
                    (["--data", "synthetic:1"], ["synthetic:1"]),
                    (["--data", "folder:/none"], ["folder:/none", "--pixels", "--classes"]),
                    (["--memory", "much"], ["--memory", "much"]),
                    (["--stochastic-depth", "0.1"], ["stochastic depth"])]:
                self.assert_sentence([*command, "--method", "fp32", *arguments], *fragments)

    def test_of_bench(self):
        self.assert_sentence(["bench"], "bench step", "bench kernels")
        self.assert_sentence(["bench", "flights"], "flights")
        self.assert_sentence(["bench", "kernels", "--only", "flights"], "flights", "--only")
        self.assert_sentence(["bench", "step", "--method", "fp32", "--steps", "0"], "--steps")


class BenchStep(unittest.TestCase):
    """The engine's peak as counted is the planned one, to the byte."""

    def test_keys_and_peak(self):
        cases = [
            ["--model", "mlp", "--batch", "7", "--pixels", "9", "--classes", "5"],
            ["--model", "mlp", "--batch", "1", "--data", "mnist:/none", "--optimizer", "adamw"],
            ["--model", "convnet", "--batch", "8", "--method", "amp"],
            ["--model", "convnet", "--batch", "12", "--ghost-batch", "4", "--step", "fused",
             "--weights", "bf16+8", "--state", "int8"],
            ["--model", "resnet18", "--width", "0.25", "--batch", "6", "--pixels", "32"],
            ["--model", "resnet18", "--width", "0.25", "--batch", "6", "--pixels", "32",
             "--recompute", "off", "--optimizer", "lamb", "--step", "fused"],
            ["--model", "efficientnet-b0", "--width", "0.5", "--batch", "3", "--pixels", "33",
             "--precision", "bf16", "--step", "fused"],
            ["--model", "mobilenet-v2-cifar", "--width", "0.25", "--batch", "2", "--pixels", "16"],
            ["--model", "shufflenet-v2", "--width", "0.5", "--batch", "2", "--pixels", "40"],
            ["--model", "squeezenet", "--batch", "2", "--pixels", "37", "--momentum", "0"],
        ]
        for case in cases:
            arguments = ["--method", "fp32", *case, "--threads", "2", "--json"]
            if "--method" in case:
                arguments = arguments[2:]
            done = triaccel("bench", "step", *arguments, "--steps", "1")
            self.assertEqual(done.returncode, 0, done.stderr)
            bench = json.loads(done.stdout)
            # A small ceiling: the search for the largest batch is not what is tested here.
            plan = json.loads(triaccel("plan", *arguments, "--memory", "256MiB").stdout)
            self.assertEqual(bench["engine_peak_bytes"], plan["engine_peak_bytes"], case)
            self.assertEqual(list(bench), ["ms_per_step", "images_per_second", "engine_peak_bytes",
                                           "process_peak_bytes", "useful_gflop", "gflops",
                                           "peak_gflops", "fraction_of_peak", "phases",
                                           "handover_ns"])
            self.assertGreater(bench["handover_ns"], 0)
            self.assertEqual(list(bench["phases"]), ["data", "forward", "backward", "update",
                                                     "control"])
            self.assertGreater(bench["useful_gflop"], 0)
            self.assertGreater(bench["phases"]["control"], 0)
            if not sanitized():
                self.assertGreater(bench["process_peak_bytes"], bench["engine_peak_bytes"])

    def test_tune_says_what_it_measured(self):
        arguments = ["--method", "fp32", "--model", "resnet18", "--width", "0.25", "--batch", "4",
                     "--pixels", "32", "--threads", "2", "--memory", "400MiB", "--json"]
        done = triaccel("bench", "step", *arguments, "--steps", "1", "--tune")
        self.assertEqual(done.returncode, 0, done.stderr)
        kernels = json.loads(done.stdout)["kernels"]
        layers = {one["name"]: one for one in json.loads(triaccel("plan", *arguments).stdout)["layers"]}
        for one in kernels:
            planned = layers[one["layer"]][one["pass"] + "_kernel"]
            self.assertIn(planned, [one["kernel"], one["other"]])
            if one["kernel"] != planned:
                self.assertLess(one["ms"], one["other_ms"])
        self.assertIn({"winograd", "direct"}, [{one["kernel"], one["other"]} for one in kernels])
        self.assertIn({"joined", "direct"}, [{one["kernel"], one["other"]} for one in kernels])

    def test_what_does_not_fit_is_not_started(self):
        done = triaccel("bench", "step", "--method", "fp32", "--memory", "100MiB")
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stderr, r"\Atriaccel: a batch of 96 needs 1\d\d\.\d MiB, but the ceiling is 100.0 MiB; [^\n]+\n\Z")
        self.assertRegex(done.stderr, r"\Atriaccel: [^\n]+needs[^\n]+\n\Z")
        self.assertEqual(done.stdout, "")


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, shape, bytes)"""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.write(b"".join(data for _, _, data in tensors.values()))


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    return {name: (entry["shape"], data[8 + length:][slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__"}


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def labels(*values):
    return struct.pack(f"<{len(values)}q", *values)


class Step(Sentences):
    """An mlp of width 1/512 has one hidden unit a layer, so its step can be done by hand."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.weights, self.batch, self.out = (f"{folder.name}/{name}.safetensors" for name in "wbo")
        self.tensors = {"fc1.weight": ("F32", [1, 2], floats(1, 2)),
                        "fc1.bias": ("F32", [1], floats(0.5)),
                        "fc2.weight": ("F32", [1, 1], floats(2)),
                        "fc2.bias": ("F32", [1], floats(-1)),
                        "fc3.weight": ("F32", [2, 1], floats(1, -1)),
                        "fc3.bias": ("F32", [2], floats(0, 0))}
        self.images = {"x": ("F32", [1, 1, 1, 2], floats(1, -0.5)), "y": ("I64", [1], labels(1))}

    def arguments(self, *more):
        write_safetensors(self.weights, self.tensors)
        write_safetensors(self.batch, self.images)
        return ["step", "--model", "mlp", "--width", str(1 / 512), "--init", self.weights,
                "--input", self.batch, "--out", self.out, *more]

    def test_by_hand(self):
        done = triaccel(*self.arguments("--json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        out = read_safetensors(self.out)
        self.assertEqual(set(out), {"loss", "logits"} | {f"grad.{name}" for name in self.tensors})
        # h1 = 1 - 1 + 0.5, h2 = 2 * h1 - 1 = 0: its ReLU is closed.
        self.assertEqual(out["logits"], ([1, 2], floats(0, 0)))
        self.assertEqual(out["loss"][0], [])
        self.assertAlmostEqual(struct.unpack("<f", out["loss"][1])[0], math.log(2), places=6)
        self.assertEqual(out["grad.fc3.bias"], ([2], floats(0.5, -0.5)))
        self.assertEqual(out["grad.fc1.weight"], ([1, 2], floats(0, 0)))
        self.tensors["fc2.bias"] = ("F32", [1], floats(1))
        self.assertEqual(triaccel(*self.arguments()).returncode, 0)
        out = read_safetensors(self.out)
        self.assertEqual(out["logits"], ([1, 2], floats(2, -2)))
        wrong = 1 / (1 + math.exp(-4))  # the probability of class 0
        for name, truth in [("fc3.weight", [2 * wrong, -2 * wrong]), ("fc2.weight", [wrong]),
                            ("fc1.weight", [4 * wrong, -2 * wrong])]:
            shape, data = out[f"grad.{name}"]
            self.assertEqual(shape, self.tensors[name][1])
            for value, expected in zip(struct.unpack(f"<{len(truth)}f", data), truth):
                self.assertAlmostEqual(value, expected, places=5)

    def test_bad_files(self):
        good = dict(self.images)
        for change, fragment in [({"x": ("F32", [1, 2], floats(1, 2))}, "(N, C, H, W)"),
                                 ({"x": ("I64", [1, 1, 1, 2], labels(1, 2))}, "I64"),
                                 ({"y": ("I64", [2], labels(0, 1))}, "2 labels"),
                                 ({"y": ("I64", [1], labels(2))}, "2 classes"),
                                 ({"y": ("I64", [1], labels(-1))}, "-1"),
                                 ({"x": ("F32", [1, 1, 2, 2], floats(1, 2, 3, 4))}, "fc1.weight"),
                                 ({"z": ("I64", [1], labels(0))}, "'z'")]:
            self.images = {**good, **change}
            self.assert_sentence(self.arguments(), fragment)
        self.images = {"x": good["x"]}
        self.assert_sentence(self.arguments(), "'y'")
        self.images = good
        self.tensors["more"] = ("F32", [1], floats(1))
        self.assert_sentence(self.arguments(), "no place")
        del self.tensors["more"], self.tensors["fc2.bias"]
        self.assert_sentence(self.arguments(), "fc2.bias")
        self.assertFalse(os.path.exists(self.out))

    def test_bad_use(self):
        self.assert_sentence(["step", "--model", "mlp"], "--input")
        self.assert_sentence(self.arguments("--ghost-batch", "2"), "--ghost-batch")
        for other in [self.weights, self.batch]:
            self.assert_sentence(self.arguments("--out", other), "would be lost")
        shown = triaccel(*self.arguments("--method", "triaccel", "--print-config")).stdout
        self.assertIn("ghost-batch = 0", shown)
        self.assert_sentence(self.arguments("--batch", "5"), "--batch")
        self.assert_sentence(self.arguments("--init="), "--init")
        done = triaccel(*self.arguments("--out", "/nowhere/o.safetensors"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere", done.stderr)


if __name__ == "__main__":
    unittest.main()
