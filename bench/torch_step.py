#!/usr/bin/env python3
"""Times training steps of PyTorch + torchvision on made-up data, as `triaccel bench step` times ours.

    bench/torch_step.py MODEL BATCH PIXELS STEPS THREADS [--channels-last] [--bf16]

Prints one JSON line. Debian 12: python3-torch, python3-torchvision.
"""
import argparse
import json
import statistics
import time

import torch
import torchvision


def status(field):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))


def make(name):
    if name != "resnet18-cifar":
        return getattr(torchvision.models, name.replace("-", "_"))(num_classes=10)
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    model.maxpool = torch.nn.Identity()
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    for number in ["batch", "pixels", "steps", "threads"]:
        parser.add_argument(number, type=int)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--bf16", action="store_true", help="autocast")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    before = status("VmRSS")
    model = make(args.model)
    x = torch.randn(args.batch, 3, args.pixels, args.pixels)
    y = torch.randint(0, 10, (args.batch,))
    if args.channels_last:
        model, x = (t.to(memory_format=torch.channels_last) for t in (model, x))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    times = []
    for index in range(3 + args.steps):
        start = time.perf_counter()
        step()
        if index >= 3:
            times.append(time.perf_counter() - start)
    seconds = statistics.median(times)
    print(json.dumps({"torch": torch.__version__, "ms_per_step": 1e3 * seconds,
                      "images_per_second": args.batch / seconds,
                      "process_peak_bytes": status("VmHWM"), "before_model_bytes": before}))


if __name__ == "__main__":
    main()
