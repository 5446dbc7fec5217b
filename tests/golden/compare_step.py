#!/usr/bin/env python3
"""Compares `triaccel step` with PyTorch: loss, logits, every gradient and every norm statistic of
one training step, on torchvision's initial weights. For developers; needs what make_golden.py does.

    tests/golden/compare_step.py PROGRAM [MODEL...] [--batch N] [--pixels N] [--options "..."]

The truth is PyTorch in float64. Errors are norms of differences over norms of the truth; beside
ours stand those of PyTorch in float32. Exits with 1 where ours is above --most and above ten times
PyTorch's.
"""
import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch

from make_golden import MODELS, build

NUMPY = {"F32": np.float32, "I64": np.int64}
NAMES = {np.dtype(v): k for k, v in NUMPY.items()}


def save(path, tensors):
    header, blobs, at = {}, [], 0
    for name, tensor in tensors.items():
        array = np.ascontiguousarray(tensor.detach().numpy())
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        blobs.append(array.tobytes())
        at += array.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def load(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + o for o in entry["data_offsets"])
            array = np.frombuffer(data[begin:end], NUMPY[entry["dtype"]])
            tensors[name] = torch.from_numpy(array.reshape(entry["shape"]).copy())
    return tensors


def torch_step(model, state, x, y, dtype):
    model.load_state_dict(state)
    model = model.to(dtype).train()
    model.zero_grad()
    logits = model(x.to(dtype))
    loss = torch.nn.functional.cross_entropy(logits, y)
    loss.backward()
    result = {"loss": loss.detach(), "logits": logits.detach()}
    result.update({f"grad.{n}": p.grad.clone() for n, p in model.named_parameters()})
    result.update({f"running.{n}": b.clone() for n, b in model.named_buffers()
                   if not n.endswith("num_batches_tracked")})
    return result


def worst(values, truth, kind):
    """The largest relative error among the tensors whose names begin so, and its tensor. A bias
    before a norm has no gradient but rounding errors: they count against a thousandth of the
    largest norm."""
    norms = {n: float(t.double().norm()) for n, t in truth.items() if n.startswith(kind)}
    least = 1e-3 * max(norms.values(), default=1.0)
    errors = {n: float((values[n].double() - truth[n].double()).norm()) / max(norm, least)
              for n, norm in norms.items()}
    name = max(errors, key=errors.get, default="")
    return errors.get(name, 0.0), name


def compare(program, name, args, folder):
    torch.manual_seed(1)
    model = build(name, 3, args.pixels, args.pixels, args.classes, 1.0)
    state = {n: t.clone() for n, t in model.state_dict().items()}
    x, y = torch.randn(args.batch, 3, args.pixels, args.pixels), torch.randint(
        0, args.classes, (args.batch,))
    save(folder / "w.safetensors", state)
    save(folder / "b.safetensors", {"x": x, "y": y})
    off = ["--dropout", "0", "--stochastic-depth", "0"] if name == "efficientnet-b0" else []
    off = ["--dropout", "0"] if name.startswith(("mobilenet", "squeezenet")) else off
    subprocess.run([program, "step", "--quiet", "--model", name, *off, *args.options.split(),
                    "--init", folder / "w.safetensors", "--input", folder / "b.safetensors",
                    "--out", folder / "o.safetensors"], check=True)
    ours = load(folder / "o.safetensors")
    single = torch_step(model, state, x, y, torch.float32)
    truth = torch_step(model, state, x, y, torch.float64)
    if set(ours) != set(truth):
        raise SystemExit(f"{name}: other tensors: {sorted(set(ours) ^ set(truth))[:5]}")
    good = True
    cells = []
    for kind in ["loss", "logits", "grad.", "running."]:
        error, at = worst(ours, truth, kind)
        peer, _ = worst(single, truth, kind)
        good = good and (error <= args.most or error <= 10 * peer)
        cells.append(f"{error:.1e} ({peer:.1e})")
        if kind == "grad.":
            cells.append(at.removeprefix("grad."))
    print(f"| {name} | {' | '.join(cells)} |{'' if good else ' TOO FAR'}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--pixels", type=int, default=32)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--most", type=float, default=1e-4)
    parser.add_argument("--options", default="")
    args = parser.parse_args()
    print("| model | loss (PyTorch fp32) | logits | worst gradient | of | statistics |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        good = [compare(args.program.resolve(), m, args, pathlib.Path(folder)) for m in args.models]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
