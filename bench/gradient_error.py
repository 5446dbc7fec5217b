#!/usr/bin/python3
"""How far storage in few bits moves the gradients of one step, ours and PyTorch's autocast.

    bench/gradient_error.py --program build/release/apps/cli/triaccel --init MODEL.safetensors
                            --data DIR_OF_CIFAR_10 [--batch 96] [--model resnet18] [--batches 1]

All start from the same weights (of a trained network, such as checkpoints/last of a run) and see the
same images. Per weight of a convolution or linear layer, against PyTorch's fp32: the norm of the
difference over the norm, and the projection on the true gradient, which is 1 where rounding is without
bias. Prints the median and the worst over layers. With several batches also, for our formats against
our fp32: the error of the mean gradient beside what independent errors of the batches would leave of
it, and the loss. Needs python3-torch and python3-torchvision.
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


def images(folder, count, number=0):
    """A batch of CIFAR-10's first file, normalised."""
    records = np.fromfile(f"{folder}/data_batch_1.bin", np.uint8).reshape(-1, 3073)
    records = records[number * count:(number + 1) * count]
    x = records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255
    mean, deviation = (np.array(three, np.float32)[:, None, None] for three in (MEAN, DEVIATION))
    return {"x": ((x - mean) / deviation).astype(np.float32), "y": records[:, 0].astype(np.int64)}


def torch_model(name):
    model = getattr(torchvision.models, name.removesuffix("-cifar"))(num_classes=10)
    if name == "resnet18-cifar":
        model.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        model.maxpool = torch.nn.Identity()
    return model


def torch_gradients(name, weights, batch, dtype):
    model = torch_model(name)
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


def compare_means(args, folder):
    losses, means, squares = {}, {}, {}
    for number in range(args.batches):
        write_safetensors(folder / "batch", images(args.data, args.batch, number))
        true = None
        for precision in ["fp32", "bf16", "fp16"]:
            made = our_gradients(args, precision, folder)
            true = true or made
            losses.setdefault(precision, []).append(float(made["loss"]))
            for key, value in made.items():
                if value.ndim > 1 and key != "logits":
                    at = (precision, key)
                    means[at] = means.get(at, 0) + value / args.batches
                    squares[at] = squares.get(at, 0) + np.linalg.norm(value - true[key]) ** 2 / args.batches
    print(f"\nOver {args.batches} batches, against our fp32 (loss {np.mean(losses['fp32']):.5f}):\n\n"
          "| | error of the mean | from independent errors | projection | loss |\n|---|---|---|---|---|")
    for precision in ["bf16", "fp16"]:
        error, noise, along = [], [], []
        for (other, key), mean in means.items():
            if other == precision:
                true = means["fp32", key]
                length = np.linalg.norm(true)
                error.append(np.linalg.norm(mean - true) / length)
                noise.append((squares[precision, key] / args.batches) ** 0.5 / length)
                along.append(np.vdot(mean, true) / length ** 2)
        moved = np.array(losses[precision]) - np.array(losses["fp32"])
        print(f"| {precision} | {100 * statistics.median(error):.2g} % | "
              f"{100 * statistics.median(noise):.2g} % | {min(along):.4f} to {max(along):.4f} | "
              f"{moved.mean():+.5f} +- {moved.std(ddof=1) / len(moved) ** 0.5:.5f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--init", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batches", type=int, default=1)
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
    if args.batches > 1:
        with tempfile.TemporaryDirectory() as name:
            compare_means(args, pathlib.Path(name))


if __name__ == "__main__":
    main()
