#!/usr/bin/env python3
"""The batch of a run, its speed and its memory over time, from metrics.jsonl.

    bench/batch_over_time.py RUN

One line for every batch that the run had: steps, images per second (median of its windows), planned and measured bytes.
"""
import json
import pathlib
import statistics
import sys

MIB = 1 << 20


def windows(run):
    last = None
    for line in (pathlib.Path(run) / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["event"] == "step":
            if last:
                images = event["samples"] - last["samples"]
                yield event, images / (event["seconds"] - last["seconds"])
            last = event
        elif event["event"] in ("start", "epoch", "checkpoint", "curvature"):
            last = None if event["event"] != "start" else event  # a window with a pause in it tells no speed


def main():
    groups = []
    for event, speed in windows(sys.argv[1]):
        if not groups or groups[-1][0]["batch"] != event["batch"]:
            groups.append((event, []))
        groups[-1][1].append(speed)
        groups[-1] = (event, groups[-1][1])
    print(f"{'to step':>8}{'batch':>7}{'images/s':>10}{'windows':>9}{'planned MiB':>13}{'held MiB':>10}{'ceiling MiB':>13}")
    for event, speeds in groups:
        print(f"{event['step']:8}{event['batch']:7}{statistics.median(speeds):10.0f}{len(speeds):9}"
              f"{event['process_plan_bytes'] / MIB:13.0f}{event['rss_bytes'] / MIB:10.0f}{event['ceiling_bytes'] / MIB:13.0f}")


if __name__ == "__main__":
    main()
