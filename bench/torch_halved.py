#!/usr/bin/env python3
"""Halves the memory of a PyTorch training in mid-run, as `triaccel set DIR memory=...` does to one of ours.

    bench/torch_halved.py [MODEL] [--batch N] [--pixels N] [--steps N] [--data DIR]

Trains torchvision's MODEL (resnet18) with SGD for half of the steps, then allows the process only half of the memory that
training has added so far (RLIMIT_AS, the only way to limit a process without a cgroup), and goes on. DIR holds CIFAR-10's
binary batches; without it the images are made up. Prints what happens. Debian 12: python3-torch, python3-torchvision.
"""
import argparse
import pathlib
import resource

import numpy
import torch
import torchvision

MIB = 1 << 20


def status(field):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))


def images(args):
    if not args.data:
        generator = torch.Generator().manual_seed(1)
        y = torch.randint(0, 10, (2000,), generator=generator)
        patterns = torch.randn(10, 3, args.pixels, args.pixels, generator=generator)
        return patterns[y] + torch.randn(2000, 3, args.pixels, args.pixels, generator=generator), y
    records = numpy.fromfile(pathlib.Path(args.data) / "data_batch_1.bin", dtype=numpy.uint8).reshape(-1, 3073)
    x = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).astype(numpy.float32) / 128 - 1)
    return x, torch.from_numpy(records[:, 0].astype(numpy.int64))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default="resnet18")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--pixels", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", default="")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    x, y = images(args)
    base = status("VmSize")
    model = getattr(torchvision.models, args.model.replace("-", "_"))(num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    for step in range(args.steps):
        if step == args.steps // 2:
            added = status("VmSize") - base
            limit = base + added // 2
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            print(f"step {step}: the process holds {status('VmRSS') / MIB:.0f} MiB, peak {status('VmHWM') / MIB:.0f} MiB; "
                  f"training added {added / MIB:.0f} MiB of addresses, from now on it may have {added / 2 / MIB:.0f}",
                  flush=True)
        at = step * args.batch % (len(y) - args.batch)
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x[at:at + args.batch]), y[at:at + args.batch])
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.3f}", flush=True)
    print("finished")


if __name__ == "__main__":
    main()
