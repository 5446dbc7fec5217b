"""Fisher against Hessian, one dot per layer, one colour per checkpoint, both axes logarithmic.

Usage: curvature_plot.py OUT.svg NAME=FILE.json...   (files as curvature_compare writes them)
"""

import json
import math
import sys

SIZE, EDGE = 420, 60
COLOURS = ["#0072b2", "#d55e00", "#009e73"]


def main():
    out, series = sys.argv[1], [argument.split("=", 1) for argument in sys.argv[2:]]
    points = []
    for number, (name, path) in enumerate(series):
        with open(path, encoding="utf-8") as file:
            told = json.load(file)
        dots = [(layer["fisher"], layer["hessian"]) for layer in told["layers"]
                if layer["fisher"] > 0 and layer["hessian"] > 0]
        points.append((f"{name}: rank correlation {told['rank_correlation']:.2f}", COLOURS[number], dots))
    values = [math.log10(v) for _, _, dots in points for dot in dots for v in dot]
    low, high = math.floor(min(values)), math.ceil(max(values))

    def at(value):
        return EDGE + (math.log10(value) - low) / (high - low) * (SIZE - EDGE - 10)

    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{SIZE}" height="{SIZE + 70}" '
             'font-family="sans-serif" font-size="12">',
             f'<rect width="{SIZE}" height="{SIZE + 70}" fill="white"/>',
             f'<line x1="{at(10 ** low)}" y1="{SIZE - at(10 ** low)}" x2="{at(10 ** high)}" y2="{SIZE - at(10 ** high)}" '
             'stroke="#bbb" stroke-dasharray="4"/>']
    for power in range(low, high + 1):
        place = at(10.0 ** power)
        lines += [f'<line x1="{place}" y1="10" x2="{place}" y2="{SIZE - EDGE}" stroke="#eee"/>',
                  f'<line x1="{EDGE}" y1="{SIZE - place}" x2="{SIZE - 10}" y2="{SIZE - place}" stroke="#eee"/>',
                  f'<text x="{place}" y="{SIZE - EDGE + 16}" text-anchor="middle">1e{power}</text>',
                  f'<text x="{EDGE - 6}" y="{SIZE - place + 4}" text-anchor="end">1e{power}</text>']
    lines += [f'<text x="{SIZE / 2}" y="{SIZE - 22}" text-anchor="middle">hessian, largest eigenvalue of a layer</text>',
              f'<text x="14" y="{SIZE / 2}" transform="rotate(-90 14 {SIZE / 2})" text-anchor="middle">fisher</text>']
    for number, (name, colour, dots) in enumerate(points):
        lines += [f'<circle cx="{at(h):.1f}" cy="{SIZE - at(f):.1f}" r="4" fill="{colour}" fill-opacity="0.7"/>'
                  for f, h in dots]
        y = SIZE + 10 + 18 * number
        lines += [f'<circle cx="{EDGE}" cy="{y - 4}" r="4" fill="{colour}"/>', f'<text x="{EDGE + 10}" y="{y}">{name}</text>']
    lines.append("</svg>\n")
    with open(out, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


if __name__ == "__main__":
    main()
