#!/usr/bin/python3
"""How far storage in few bits moves the gradients of one step, ours and PyTorch's autocast.

    bench/gradient_error.py --program build/release/apps/cli/triaccel --init MODEL.safetensors
                            --data DIR_OF_CIFAR_10 [--batch 96] [--model resnet18]

All start from the same weights (of a trained network, such as checkpoints/last of a run) and see the
same images. Per weight of a convolution or linear layer, against PyTorch's fp32: the norm of the
difference over the norm, and the projection on the true gradient, which is 1 where rounding is without
bias. Prints the median and the worst over layers. Needs python3-torch and python3-torchvision.
"""
import argparse
import json
import pathlib
import statistics
import struct
import subprocess
import tempfile

import numpy as np
import torch
import torchvision

MEAN, DEVIATION = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]
TYPES = {"F32": np.float32, "I64": np.int64}


def read_safetensors(path):
    content = pathlib.Path(path).read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    tensors = {}
    for name, info in json.loads(content[8:start]).items():
        if name != "__metadata__":
            begin, end = info["data_offsets"]
            flat = np.frombuffer(content[start + begin:start + end], TYPES[info["dtype"]])
            tensors[name] = flat.reshape(info["shape"]).copy()
    return tensors


def write_safetensors(path, tensors):
    names = {np.dtype(kind): name for name, kind in TYPES.items()}
    header, at = {}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": names[value.dtype], "shape": list(value.shape),
                        "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(v.tobytes() for v in tensors.values()))


def images(folder, count):
    """The first of CIFAR-10's first file, normalised."""
    records = np.fromfile(f"{folder}/data_batch_1.bin", np.uint8).reshape(-1, 3073)[:count]
    x = records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255
    mean, deviation = (np.array(three, np.float32)[:, None, None] for three in (MEAN, DEVIATION))
    return {"x": ((x - mean) / deviation).astype(np.float32), "y": records[:, 0].astype(np.int64)}


def torch_gradients(name, weights, batch, dtype):
    model = getattr(torchvision.models, name)(num_classes=10)
    state = {key: torch.tensor(weights[key]) if key in weights else value
             for key, value in model.state_dict().items()}
    model.load_state_dict(state)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype != "fp32"):
        logits = model(torch.tensor(batch["x"]))
    torch.nn.functional.cross_entropy(logits.float(), torch.tensor(batch["y"])).backward()
    return {key: value.grad.double().numpy() for key, value in model.named_parameters()
            if value.dim() > 1}


def our_gradients(args, precision, folder):
    out = folder / precision
    subprocess.run([args.program, "step", "--quiet", "--method", "fp32", "--precision", precision,
                    "--model", args.model, "--init", args.init, "--input", str(folder / "batch"),
                    "--ghost-batch", "0", "--out", str(out)], check=True)
    return {key.removeprefix("grad."): value.astype(float) for key, value in read_safetensors(out).items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--init", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--model", default="resnet18")
    args = parser.parse_args()
    weights, batch = read_safetensors(args.init), images(args.data, args.batch)
    true = torch_gradients(args.model, weights, batch, "fp32")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_safetensors(folder / "batch", batch)
        made = {"PyTorch, autocast bf16": torch_gradients(args.model, weights, batch, "bf16")}
        for precision in ["fp32", "bf16", "fp16", "fp8"]:
            made[f"ours, {precision}"] = our_gradients(args, precision, folder)
    print("| | median error | worst error | median projection |\n|---|---|---|---|")
    for label, gradients in made.items():
        errors = [np.linalg.norm(gradients[key] - value) / np.linalg.norm(value)
                  for key, value in true.items()]
        along = [np.vdot(gradients[key], value) / np.vdot(value, value) for key, value in true.items()]
        print(f"| {label} | {100 * statistics.median(errors):.2g} % | {100 * max(errors):.2g} % | "
              f"{statistics.median(along):.4f} |")


if __name__ == "__main__":
    main()
