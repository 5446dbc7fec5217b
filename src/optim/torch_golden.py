#!/usr/bin/env python3
"""Writes torch_golden.h: ten steps of PyTorch's optimizers on twelve weights (made with 1.13)."""
import torch

COUNT, STEPS = 12, 10
CASES = [  # name, optimizer, arguments, the same in our terms
    ("sgd", torch.optim.SGD, dict(lr=0.1), "Rule::kSgd, {.lr = 0.1, .momentum = 0}"),
    ("sgd momentum, decay", torch.optim.SGD, dict(lr=0.05, momentum=0.9, weight_decay=0.01),
     "Rule::kSgd, {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01}"),
    ("sgd nesterov, decay", torch.optim.SGD,
     dict(lr=0.05, momentum=0.8, weight_decay=0.01, nesterov=True),
     "Rule::kSgd, {.lr = 0.05, .momentum = 0.8, .weight_decay = 0.01, .nesterov = true}"),
    ("adam", torch.optim.Adam, dict(lr=0.01), "Rule::kAdam, {.lr = 0.01}"),
    ("adam, decay, betas", torch.optim.Adam,
     dict(lr=0.02, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.05),
     "Rule::kAdam, {.lr = 0.02, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.05}"),
    ("adamw", torch.optim.AdamW, dict(lr=0.02, weight_decay=0.1),
     "Rule::kAdamW, {.lr = 0.02, .weight_decay = 0.1}"),
]


def row(values):
    return "{" + ", ".join(f"{v:.9g}f" if any(c in f"{v:.9g}" for c in ".e") else f"{v:.9g}.0f"
                           for v in values.tolist()) + "}"


torch.manual_seed(1)
start = torch.randn(COUNT)
grads = torch.randn(STEPS, COUNT) * torch.logspace(-6, 2, COUNT)
print(f"""#pragma once
// Written by torch_golden.py with PyTorch {torch.__version__}: do not edit.
#include <cstddef>

#include "optim/update.h"

namespace tri::optim::golden {{

inline constexpr size_t kCount = {COUNT};
inline constexpr size_t kSteps = {STEPS};
inline constexpr float kStart[kCount] = {row(start)};
inline constexpr float kGrads[kSteps][kCount] = {{""")
for g in grads:
    print(f"    {row(g)},")
print("""};

struct Case {
  const char* name;
  Rule rule;
  Hyper hyper;
  float after_one[kCount];
  float after_all[kCount];
};
inline constexpr Case kCases[] = {""")
for name, optimizer, arguments, ours in CASES:
    w = start.clone().requires_grad_()
    opt = optimizer([w], **arguments)
    rows = []
    for g in grads:
        w.grad = g.clone()
        opt.step()
        rows.append(row(w.detach()))
    print(f'    {{"{name}", {ours}, {rows[0]}, {rows[-1]}}},')
print("""};

}  // namespace tri::optim::golden""")
