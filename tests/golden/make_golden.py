#!/usr/bin/env python3
"""Writes the golden files of this folder from PyTorch. For developers: the tests do not need torch.

Run from anywhere with torch 1.13 and torchvision 0.14 (Debian 12: python3-torch,
python3-torchvision): tests/golden/make_golden.py [name part...]

Weights, inputs and labels are not stored: both sides make them from the formula of uniform()
below (golden_file.cpp has its twin). The truth is PyTorch in float64; how far PyTorch in float32 is
from it (the worse of two convolution libraries) is stored beside it as the yardstick.
"""
import functools
import json
import math
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

FOLDER = pathlib.Path(__file__).parent
SAMPLES = 4
CURVE_STEPS = 10


# The formula. Twin: golden_file.cpp.

def hashes(name, count):
    """SplitMix64 of (FNV-1a of the name) + i, for i < count."""
    start = 0xCBF29CE484222325
    for byte in name.encode():
        start = ((start ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    with np.errstate(over="ignore"):
        z = np.uint64(start) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(name, count):
    """In [-1, 1), exact in float32."""
    return (hashes(name, count) >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1.0


def filled(name, dims, center=0.0, spread=1.0):
    """Rounded to float32 once, whatever it is used as."""
    values = (center + spread * uniform(name, math.prod(dims))).astype(np.float32)
    return torch.from_numpy(values).reshape(dims)


@functools.lru_cache(maxsize=512)
def filled_parameter(name, dims):
    if len(dims) > 1:
        return filled(name, dims, 0.0, math.sqrt(6.0 / math.prod(dims[1:])))
    norm_weight = name.endswith(".weight")
    return filled(name, dims, 1.0 if norm_weight else 0.0, 0.2 if norm_weight else 0.1)


def labels(batch, classes):
    return torch.from_numpy((hashes("y", batch) % np.uint64(classes)).astype(np.int64))


# The models as torchvision has them, with the stems and widths that src/nn/models adds.

def with_channels(module, channels):
    """Replaces the first convolution if the images do not have three channels."""
    if channels == 3:
        return module
    for name, child in module.named_modules():
        if isinstance(child, nn.Conv2d):
            owner = module.get_submodule(name.rpartition(".")[0])
            setattr(owner, name.rpartition(".")[2],
                    nn.Conv2d(channels, child.out_channels, child.kernel_size, child.stride,
                              child.padding, bias=child.bias is not None))
            break
    return module


def resnet18(classes, width, cifar=False):
    model = torchvision.models.resnet18(num_classes=classes)
    base = max(1, int(64 * width + 0.5))
    block = torchvision.models.resnet.BasicBlock
    model.inplanes = base
    model.conv1 = nn.Conv2d(3, base, 3, 1, 1, bias=False) if cifar else nn.Conv2d(
        3, base, 7, 2, 3, bias=False)
    model.bn1 = nn.BatchNorm2d(base)
    if cifar:
        model.maxpool = nn.Identity()
    for stage in range(4):
        setattr(model, f"layer{stage + 1}",
                model._make_layer(block, base << stage, 2, stride=1 if stage == 0 else 2))
    model.fc = nn.Linear(base * 8, classes)
    return model


def mobilenet_v2(classes, width, cifar=False):
    model = torchvision.models.mobilenet_v2(num_classes=classes, width_mult=width, dropout=0.0)
    if cifar:
        model.features[0][0].stride = (1, 1)
        block = model.features[2]
        block.conv[1][0].stride = (1, 1)
        block.use_res_connect = block.conv[0][0].in_channels == block.out_channels
    return model


def efficientnet_b0(classes, width):
    from torchvision.models.efficientnet import EfficientNet, _efficientnet_conf
    setting, last = _efficientnet_conf("efficientnet_b0", width_mult=width, depth_mult=1.0)
    return EfficientNet(setting, 0.0, stochastic_depth_prob=0.0, num_classes=classes,
                        last_channel=last)


def shufflenet_v2(classes, width, cifar=False):
    published = {0.5: [24, 48, 96, 192, 1024], 1.0: [24, 116, 232, 464, 1024],
                 1.5: [24, 176, 352, 704, 1024], 2.0: [24, 244, 488, 976, 2048]}
    scaled = [24] + [2 * max(1, int(c / 2 * width + 0.5)) for c in (116, 232, 464)] + [1024]
    model = torchvision.models.ShuffleNetV2([4, 8, 4], published.get(width, scaled), classes)
    if cifar:
        model.conv1[0].stride = (1, 1)
        model.maxpool = nn.Identity()
    return model


def squeezenet(classes, width, cifar=False):
    fire = torchvision.models.squeezenet.Fire
    model = torchvision.models.squeezenet1_1(num_classes=classes, dropout=0.0)

    def scaled(channels):
        return max(1, int(channels * width + 0.5))

    channels = scaled(64)
    model.features[0] = nn.Conv2d(3, channels, 3, 1, 1) if cifar else nn.Conv2d(3, channels, 3, 2)
    if cifar:
        model.features[2] = nn.Identity()
    for index, (squeeze, expand) in {3: (16, 64), 4: (16, 64), 6: (32, 128), 7: (32, 128),
                                     9: (48, 192), 10: (48, 192), 11: (64, 256),
                                     12: (64, 256)}.items():
        model.features[index] = fire(channels, scaled(squeeze), scaled(expand), scaled(expand))
        channels = 2 * scaled(expand)
    model.classifier[1] = nn.Conv2d(channels, classes, 1)
    return model


class Mlp(nn.Module):
    def __init__(self, inputs, classes, width):
        super().__init__()
        hidden = max(1, int(512 * width + 0.5))
        self.fc1 = nn.Linear(inputs, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, classes)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(torch.flatten(x, 1))))))


class Convnet(nn.Module):
    def __init__(self, classes, width):
        super().__init__()
        a, b, c = (max(1, int(n * width + 0.5)) for n in (32, 64, 128))
        self.conv1 = nn.Conv2d(3, a, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(a)
        self.conv2 = nn.Conv2d(a, b, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(b)
        self.conv3 = nn.Conv2d(b, c, 3, 1, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(c)
        self.fc = nn.Linear(c, classes)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        x = self.pool(self.relu(self.bn1(self.conv1(x))))
        x = self.pool(self.relu(self.bn2(self.conv2(x))))
        x = self.relu(self.bn3(self.conv3(x)))
        return self.fc(x.mean([2, 3]))


MODELS = {
    "resnet18": lambda c, w, i: resnet18(c, w),
    "resnet18-cifar": lambda c, w, i: resnet18(c, w, cifar=True),
    "efficientnet-b0": lambda c, w, i: efficientnet_b0(c, w),
    "mobilenet-v2": lambda c, w, i: mobilenet_v2(c, w),
    "mobilenet-v2-cifar": lambda c, w, i: mobilenet_v2(c, w, cifar=True),
    "shufflenet-v2": lambda c, w, i: shufflenet_v2(c, w),
    "shufflenet-v2-cifar": lambda c, w, i: shufflenet_v2(c, w, cifar=True),
    "squeezenet": lambda c, w, i: squeezenet(c, w),
    "squeezenet-cifar": lambda c, w, i: squeezenet(c, w, cifar=True),
    "mlp": lambda c, w, i: Mlp(i, c, w),
    "convnet": lambda c, w, i: Convnet(c, w),
}


def build(model, channels, height, width, classes, multiplier):
    return with_channels(MODELS[model](classes, multiplier, channels * height * width), channels)


# One training step, and ten.

def case(model, batch, size, classes=10, multiplier=1.0, smoothing=0.0, curves=False):
    channels, height, width = size
    return {"model": model, "batch": batch, "channels": channels, "height": height,
            "width": width, "classes": classes, "width_multiplier": multiplier,
            "label_smoothing": smoothing, "curves": curves}


CASES = [
    case("mlp", 8, (1, 28, 28), curves=True),
    case("mlp", 5, (3, 9, 7), classes=7, multiplier=0.1, smoothing=0.1),
    case("convnet", 8, (1, 28, 28), curves=True),
    case("convnet", 3, (2, 29, 31), classes=100, multiplier=0.25, smoothing=0.1),
    case("resnet18", 8, (3, 32, 32), multiplier=0.25, curves=True),
    case("resnet18-cifar", 8, (3, 16, 16), multiplier=0.25, curves=True),
    case("squeezenet", 8, (3, 32, 32), multiplier=0.5, curves=True),
    case("squeezenet-cifar", 4, (3, 16, 16), multiplier=0.5, curves=True),
    case("shufflenet-v2", 8, (3, 32, 32), multiplier=0.5, curves=True),
    case("shufflenet-v2-cifar", 4, (3, 16, 16), multiplier=0.5, curves=True),
    case("mobilenet-v2", 8, (3, 32, 32), multiplier=0.5, curves=True),
    case("mobilenet-v2-cifar", 4, (3, 16, 16), multiplier=0.5, curves=True),
    case("efficientnet-b0", 8, (3, 32, 32), multiplier=0.5, curves=True),
    case("resnet18", 5, (3, 47, 33), classes=7, multiplier=0.5),
    case("resnet18-cifar", 3, (1, 29, 29), classes=100, multiplier=0.25),
    case("squeezenet", 3, (3, 71, 53), classes=100),
    case("squeezenet-cifar", 5, (1, 29, 29), classes=7, multiplier=0.25),
    case("shufflenet-v2", 5, (3, 61, 45), classes=7),
    case("shufflenet-v2-cifar", 3, (3, 29, 29), classes=100, multiplier=0.25),
    case("mobilenet-v2", 5, (3, 51, 37), classes=7),
    case("mobilenet-v2-cifar", 3, (3, 29, 29), classes=100, multiplier=0.25),
    case("efficientnet-b0", 5, (3, 45, 37), classes=7, smoothing=0.1),
    case("efficientnet-b0", 3, (1, 64, 64), classes=100, multiplier=0.5),
    case("resnet18", 8, (3, 32, 32)),
    case("resnet18", 4, (3, 64, 64)),
    case("resnet18-cifar", 4, (3, 32, 32)),
]


def file_name(c):
    name = f"{c['model']}_{c['height']}x{c['width']}x{c['channels']}_b{c['batch']}_c{c['classes']}"
    return name + (f"_w{c['width_multiplier']}" if c["width_multiplier"] != 1.0 else "")


class World:
    """The model, batch and loss of a case in one arithmetic."""

    def __init__(self, c, salt, dtype, mkldnn=True):
        self.mkldnn = mkldnn
        self.smoothing = c["label_smoothing"]
        self.model = build(c["model"], c["channels"], c["height"], c["width"], c["classes"],
                           c["width_multiplier"])
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(filled_parameter(name, tuple(parameter.shape)))
        self.model = self.model.to(dtype).train()
        self.size = (c["batch"], c["channels"], c["height"], c["width"])
        self.dtype = dtype
        self.take(salt)
        self.y = labels(c["batch"], c["classes"])

    def take(self, salt):
        self.x = filled(f"x{salt}", self.size, 0.0, math.sqrt(3.0)).to(self.dtype)

    def backward(self):
        with torch.backends.mkldnn.flags(enabled=self.mkldnn):
            self.model.zero_grad()
            logits = self.model(self.x)
            loss = F.cross_entropy(logits, self.y, label_smoothing=self.smoothing)
            loss.backward()
        return loss.item(), logits.detach()

    def kinks(self):
        """The inputs of every layer whose gradient jumps: (layer, tensor)."""
        seen = []
        layers = (nn.ReLU, nn.ReLU6, nn.MaxPool2d)
        hooks = [m.register_forward_pre_hook(lambda m, x: seen.append((m, x[0].double().clone())))
                 for m in self.model.modules() if isinstance(m, layers)]
        with torch.no_grad(), torch.backends.mkldnn.flags(enabled=self.mkldnn):
            self.model(self.x)
        for hook in hooks:
            hook.remove()
        return seen


def worlds(c, salt):
    """The truth, then the two yardsticks."""
    return [World(c, salt, torch.float64), World(c, salt, torch.float32),
            World(c, salt, torch.float32, False)]


def close_to_kink(layer, x, error):
    if isinstance(layer, nn.MaxPool2d):
        pad, stride = layer.padding, layer.stride
        x = F.pad(x, (pad, pad + stride, pad, pad + stride), value=-1e30)
        windows = F.unfold(x.flatten(0, 1).unsqueeze(1), layer.kernel_size, stride=stride)
        first, second = windows.topk(2, dim=1).values.unbind(1)
        return ((first - second < 2 * error) & (first > error)).sum().item()
    count = (x.abs() < error).sum().item()
    return count + ((x - 6).abs() < error).sum().item() if isinstance(layer, nn.ReLU6) else count


def close_calls(candidates, salt):
    """How many inputs are so near to a kink that correct float32 code may take the other side, and
    then differ from the truth by a whole pixel's gradient."""
    for world in candidates:
        world.take(salt)
    truth, *others = [world.kinks() for world in candidates]
    total = 0
    for place, (layer, x) in enumerate(truth):
        error = max((other[place][1] - x).abs().max().item() for other in others)
        total += close_to_kink(layer, x, 2 * error)
    return total


def best_salt(c, tries=12):
    """The batch without close calls, or that with the fewest."""
    candidates = worlds(c, 0)
    calls = {}
    for salt in range(tries):
        calls[salt] = close_calls(candidates, salt)
        if calls[salt] == 0:
            break
    best = min(calls, key=calls.get)
    return best, calls[best]


def number(value):
    return float(f"{value:.9g}")


def small(value):
    return float(f"{value:.3g}")


def fingerprint(name, truth, others):
    """[elements, norm, projection, error norm, largest error, samples...]"""
    flat = truth.detach().double().flatten()
    errors = [(other.detach().double().flatten() - flat) for other in others]
    count = flat.numel()
    along = torch.from_numpy(uniform(name + "/projection", count))
    places = (hashes(name + "/sample", SAMPLES) % np.uint64(count)).astype(np.int64)
    return [count, number(flat.norm().item()), number((flat @ along).item()),
            small(max(e.norm().item() for e in errors)),
            small(max(e.abs().max().item() for e in errors))] + [number(flat[p].item()) for p in places]


OPTIMIZERS = {
    "sgd": ({"momentum": 0.9, "weight_decay": 5e-4}, torch.optim.SGD,
            (2e-3, 4e-4, 8e-5, 1.6e-5, 3.2e-6, 6.4e-7)),
    "adamw": ({"weight_decay": 0.01}, torch.optim.AdamW, (2e-5, 4e-6, 8e-7)),
}


def losses(world, settings, make):
    optimizer = make(world.model.parameters(), **settings)
    values = []
    for _ in range(CURVE_STEPS):
        values.append(world.backward()[0])
        optimizer.step()
    return values


def curve(c, salt, settings, make, rates):
    """At the largest rate at which float32 follows float64 to 1e-3: beyond it small batches of deep
    networks with batch norm are chaotic, and ten losses tell nothing."""
    for rate in rates:
        settings = {**settings, "lr": rate}
        truth, *others = [losses(world, settings, make) for world in worlds(c, salt)]
        errors = [max(abs(o[i] - truth[i]) for o in others) for i in range(CURVE_STEPS)]
        if max(errors) < 1e-3:
            break
    return {**settings, "losses": [number(v) for v in truth], "errors": [small(e) for e in errors]}


def golden_step(c):
    salt, calls = best_salt(c)
    truth, *others = worlds(c, salt)
    loss, logits = truth.backward()
    other_results = [other.backward() for other in others]
    result = {key: value for key, value in c.items() if key != "curves"}
    result["salt"] = salt
    result["close_calls"] = calls
    result["loss"] = number(loss)
    result["loss_error"] = small(max(abs(r[0] - loss) for r in other_results))
    result["logits"] = [number(v) for v in logits.flatten().tolist()]
    result["logits_error"] = small(max((r[1].double() - logits).abs().max().item()
                                       for r in other_results))
    result["fingerprint"] = "elements, norm, projection, error norm, largest error, samples"
    parameters = [dict(world.model.named_parameters()) for world in (truth, *others)]
    result["gradients"] = {
        name: fingerprint(name, parameter.grad, [p[name].grad for p in parameters[1:]])
        for name, parameter in parameters[0].items()}
    buffers = [dict(world.model.named_buffers()) for world in (truth, *others)]
    result["running"] = {
        name: fingerprint(name, value, [b[name] for b in buffers[1:]])
        for name, value in buffers[0].items() if not name.endswith("num_batches_tracked")}
    if c["curves"]:
        result["curves"] = {name: curve(c, salt, *o) for name, o in OPTIMIZERS.items()}
    return result


# Operations on small tensors, stored whole: where PyTorch's meaning is easy to miss.

def operation(name, op, attributes, inputs, parameters, compute, extras=()):
    """inputs, parameters: name -> tensor. compute(dict) returns the output and, per name of
    `extras`, further results without gradients."""
    tensors = {k: v.double().requires_grad_() for k, v in {**inputs, **parameters}.items()}
    output, *rest = compute(tensors)
    upstream = filled(name + "/gy", tuple(output.shape)).double()
    output.backward(upstream)

    def stored(tensor):
        return {"dims": list(tensor.shape), "values": [number(v) for v in tensor.detach().flatten().tolist()]}

    return {"name": name, "op": op, "attributes": attributes,
            "inputs": {k: stored(v) for k, v in inputs.items()},
            "parameters": {k: stored(v) for k, v in parameters.items()},
            "output": stored(output), "upstream": stored(upstream),
            "gradients": {k: stored(v.grad) for k, v in tensors.items()},
            "extras": {k: stored(v) for k, v in zip(extras, rest)}}


def pool_case(name, op, dims, kernel, stride, padding, ceil_mode=False, include_pad=True, ties=False):
    x = filled(name + "/x", dims)
    if ties:
        x = (x * 2).round() / 2
    attributes = {"kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil_mode}
    if op == "avg_pool":
        attributes["count_include_pad"] = include_pad
        return operation(name, op, attributes, {"x": x}, {}, lambda t: [F.avg_pool2d(
            t["x"], kernel, stride, padding, ceil_mode, include_pad)])
    return operation(name, op, attributes, {"x": x}, {}, lambda t: [F.max_pool2d(
        t["x"], kernel, stride, padding, ceil_mode=ceil_mode)])


def conv_case(name, dims, out, kernel, stride, padding, groups, bias):
    parameters = {"weight": filled(name + "/weight", (out, dims[1] // groups, *kernel))}
    if bias:
        parameters["bias"] = filled(name + "/bias", (out,))
    return operation(
        name, "conv2d", {"out_channels": out, "kernel": kernel, "stride": stride,
                         "padding": padding, "groups": groups, "bias": bias},
        {"x": filled(name + "/x", dims)}, parameters,
        lambda t: [F.conv2d(t["x"], t["weight"], t.get("bias"), stride, padding, 1, groups)])


def norm_case(name, dims, eps, momentum):
    channels = dims[1]
    mean = filled(name + "/running_mean", (channels,)).double()
    var = filled(name + "/running_var", (channels,), 1.0, 0.5).double()
    start = [mean.clone(), var.clone()]

    def compute(t):
        y = F.batch_norm(t["x"], mean, var, t["weight"], t["bias"], True, momentum, eps)
        return [y, *start, mean, var]

    return operation(name, "batch_norm", {"eps": eps, "momentum": momentum},
                     {"x": filled(name + "/x", dims, 0.5)},
                     {"weight": filled(name + "/weight", (channels,), 1.0, 0.5),
                      "bias": filled(name + "/bias", (channels,))}, compute,
                     ("running_mean_before", "running_var_before", "running_mean", "running_var"))


def activation_case(activation, function):
    name = f"activation_{activation}"
    x = filled(name + "/x", (2, 3, 3, 5), 0.0, 8.0)
    x.view(-1)[:4] = torch.tensor([0.0, -0.0, 6.0, -6.0])
    return operation(name, "activation", {"activation": activation}, {"x": x}, {},
                     lambda t: [function(t["x"])])


def loss_case(name, batch, classes, smoothing, spread):
    y = labels(batch, classes)
    return operation(name, "softmax_cross_entropy",
                     {"label_smoothing": smoothing, "labels": y.tolist()},
                     {"x": filled(name + "/x", (batch, classes), 0.0, spread)}, {},
                     lambda t: [F.cross_entropy(t["x"], y, label_smoothing=smoothing)])


def golden_operations():
    from torchvision.models.shufflenetv2 import channel_shuffle
    return [
        pool_case("max_pool_3_2_1", "max_pool", (2, 3, 7, 9), [3, 3], [2, 2], [1, 1]),
        pool_case("max_pool_ties", "max_pool", (2, 3, 8, 8), [3, 3], [2, 2], [1, 1], ties=True),
        pool_case("max_pool_ceil", "max_pool", (1, 2, 6, 8), [3, 3], [2, 2], [0, 0], True),
        pool_case("max_pool_ceil_pad", "max_pool", (1, 2, 6, 5), [2, 2], [3, 2], [1, 1], True),
        pool_case("max_pool_wide", "max_pool", (1, 2, 5, 9), [2, 3], [1, 2], [1, 0]),
        pool_case("avg_pool_pad", "avg_pool", (2, 3, 7, 8), [3, 3], [2, 2], [1, 1]),
        pool_case("avg_pool_no_pad", "avg_pool", (2, 3, 7, 8), [3, 3], [2, 2], [1, 1], False, False),
        pool_case("avg_pool_ceil", "avg_pool", (1, 2, 6, 8), [3, 3], [2, 2], [1, 1], True),
        pool_case("avg_pool_ceil_no_pad", "avg_pool", (1, 2, 6, 8), [3, 3], [2, 2], [1, 1], True, False),
        conv_case("conv_grouped", (2, 6, 5, 7), 4, [3, 3], [2, 1], [1, 1], 2, True),
        conv_case("conv_depthwise_5", (1, 3, 9, 8), 3, [5, 5], [2, 2], [2, 2], 3, False),
        conv_case("conv_depthwise_multiplier", (1, 2, 5, 5), 4, [3, 3], [1, 1], [1, 1], 2, False),
        conv_case("conv_1x1_stride", (2, 5, 5, 4), 3, [1, 1], [2, 2], [0, 0], 1, False),
        conv_case("conv_wide_kernel", (1, 3, 6, 7), 2, [1, 7], [1, 2], [0, 3], 1, True),
        conv_case("conv_padding_over_kernel", (1, 2, 3, 3), 2, [2, 2], [1, 1], [2, 2], 1, False),
        norm_case("norm_images", (3, 2, 3, 5), 1e-5, 0.1),
        norm_case("norm_two_values", (2, 3, 1, 1), 1e-3, 0.01),
        activation_case("relu", F.relu),
        activation_case("relu6", F.relu6),
        activation_case("silu", F.silu),
        activation_case("sigmoid", torch.sigmoid),
        loss_case("loss_plain", 5, 7, 0.0, 4.0),
        loss_case("loss_smoothed", 5, 7, 0.1, 4.0),
        loss_case("loss_confident", 4, 3, 0.0, 200.0),
        operation("linear", "linear", {"out_channels": 4, "bias": True},
                  {"x": filled("linear/x", (3, 5))},
                  {"weight": filled("linear/weight", (4, 5)), "bias": filled("linear/bias", (4,))},
                  lambda t: [F.linear(t["x"], t["weight"], t["bias"])]),
        operation("linear_after_flatten", "linear", {"out_channels": 2, "bias": False},
                  {"x": filled("linear_after_flatten/x", (2, 3, 2, 2))},
                  {"weight": filled("linear_after_flatten/weight", (2, 12))},
                  lambda t: [F.linear(torch.flatten(t["x"], 1), t["weight"])]),
        operation("channel_shuffle", "channel_shuffle", {"groups": 3},
                  {"x": filled("channel_shuffle/x", (2, 6, 2, 1))}, {},
                  lambda t: [channel_shuffle(t["x"], 3)]),
        operation("channel_scale", "channel_scale", {},
                  {"x": filled("channel_scale/x", (2, 3, 2, 2)),
                   "factors": filled("channel_scale/factors", (2, 3, 1, 1))}, {},
                  lambda t: [t["x"] * t["factors"]]),
        operation("global_avg_pool", "global_avg_pool", {},
                  {"x": filled("global_avg_pool/x", (2, 3, 3, 5))}, {},
                  lambda t: [F.adaptive_avg_pool2d(t["x"], 1)]),
    ]


# Names and shapes as torchvision's state_dict lists them.

PARAMETER_LISTS = [(model, 1.0) for model in MODELS] + [
    ("resnet18", 0.25), ("efficientnet-b0", 0.5), ("efficientnet-b0", 1.1), ("mobilenet-v2", 0.5),
    ("mobilenet-v2", 1.4), ("shufflenet-v2", 0.5), ("shufflenet-v2", 1.5), ("shufflenet-v2", 2.0),
    ("shufflenet-v2-cifar", 0.1), ("squeezenet", 0.1), ("mlp", 0.5), ("convnet", 0.5)]


def write_parameter_list(model, multiplier):
    module = build(model, 3, 32, 32, 1000, multiplier)
    lines = [f"{name} {'x'.join(map(str, value.shape))}" for name, value in module.state_dict().items()
             if not name.endswith("num_batches_tracked")]
    (FOLDER / "parameters" / f"{model}_w{multiplier}.txt").write_text("\n".join(lines) + "\n")


def write_json(path, value):
    """One line per entry of the inner tables, so that a change shows as a small difference."""
    text = json.dumps(value, separators=(",", ":"))
    text = text.replace('],"', '],\n"').replace('},{"name"', '},\n{"name"').replace(':{"', ':{\n"')
    path.write_text(text + "\n")


def main():
    wanted = sys.argv[1:]

    def selected(name):
        return not wanted or any(part in name for part in wanted)

    torch.set_num_threads(1)  # one order of every sum, on any machine
    if selected("parameters"):
        for entry in PARAMETER_LISTS:
            write_parameter_list(*entry)
    if selected("operations"):
        write_json(FOLDER / "operations.json", golden_operations())
    for c in CASES:
        if selected(file_name(c)):
            result = golden_step(c)
            print(file_name(c), "salt", result["salt"], "close calls", result["close_calls"], flush=True)
            write_json(FOLDER / "steps" / f"{file_name(c)}.json", result)


if __name__ == "__main__":
    main()
