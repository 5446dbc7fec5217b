#include "report/style.h"

namespace tri::report {

// Curves and formats: Okabe and Ito's palette, which people without full colour vision tell apart;
// a little lighter in the dark, a little darker where it would be pale on white.
const std::string_view kStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #f4f5f7; --card: #ffffff; --text: #1d232b; --muted: #5d6875; --line: #e3e7ec;
  --mark: #8a95a1; --accent: #0072b2;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b5538f; --c4: #c98a00; --c5: #3c9bd6;
  --c6: #6b5bb5; --c7: #50565e;
  --f0: #d55e00; --f1: #0072b2; --f2: #56b4e9; --f3: #009e73; --f4: #f0e442; --f5: #e69f00;
  --f6: #999999;
  --good: #00744f; --bad: #b34700;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181d; --card: #1c2229; --text: #e6eaef; --muted: #98a4b1; --line: #2c343e;
    --mark: #64707d; --accent: #56b4e9;
    --c0: #56b4e9; --c1: #f0803c; --c2: #2fc79a; --c3: #dd8fbd; --c4: #e8b339; --c5: #8fd0f5;
    --c6: #a99bf0; --c7: #b8c0c9;
    --f0: #e8702a; --f1: #2b8fd0; --f2: #7cc8f4; --f3: #22b389; --f4: #f0e442; --f5: #e69f00;
    --good: #3fd0a0; --bad: #ff9a5c;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
main { max-width: 1240px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 34px 0 12px; }
h3 { font-size: 15px; margin: 0; }
p { margin: 0; }
.sub, .note, .unit, footer { color: var(--muted); }
.sub { margin-bottom: 18px; }
.note { font-size: 13px; flex-basis: 100%; }
footer { font-size: 13px; margin-top: 34px; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr));
  gap: 16px; }
.grid + .grid { margin-top: 16px; }
.grid > .wide { grid-column: 1 / -1; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; margin: 0;
  padding: 14px 16px; min-width: 0; }
figcaption { display: flex; flex-wrap: wrap; gap: 0 8px; align-items: baseline;
  margin-bottom: 6px; }
.unit { font-size: 13px; }
.unit::before { content: "in "; }
.empty { color: var(--muted); font-size: 14px; padding: 22px 0 26px; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 0 0 6px;
  padding: 0; font-size: 13px; }
.legend li { display: flex; align-items: center; gap: 6px; overflow-wrap: anywhere; }
.legend svg { width: 26px; height: 8px; flex: none; }
.legend i { width: 14px; height: 12px; border-radius: 3px; }
.scale { display: flex; align-items: center; gap: 8px; font-size: 13px; margin-bottom: 6px; }
.scale i { width: 180px; height: 10px; border-radius: 3px; background: linear-gradient(90deg,
  #440154, #472c7a, #3b518b, #2c718e, #21908d, #27ad81, #5cc863, #aadc32, #fde725); }
svg.chart, svg.bands { display: block; width: 100%; height: auto; overflow: visible; }
svg.bands rect { shape-rendering: crispEdges; }
svg text { fill: var(--muted); font-size: 11px; font-variant-numeric: tabular-nums; }
svg.bands text { font-size: 10px; }
svg .title { font-size: 11.5px; }
.line { stroke: var(--line); fill: none; }
.mark { stroke: var(--mark); fill: none; }
.cursor { stroke: var(--mark); stroke-dasharray: 2 3; fill: none; }
polyline, .legend path { fill: none; stroke-width: 2; stroke-linejoin: round; }
polyline.dashed, .legend .dashed { stroke-dasharray: 7 4; }
polyline.dotted, .legend .dotted { stroke-dasharray: 2 3.5; }
polyline.faint, .legend .faint { stroke-width: 1.2; opacity: .55; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); }
.c3 { stroke: var(--c3); } .c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); }
.c6 { stroke: var(--c6); } .c7 { stroke: var(--c7); } .plain { stroke: var(--text); }
circle { fill: var(--card); stroke-width: 2; }
.f0 { fill: var(--f0); background: var(--f0); } .f1 { fill: var(--f1); background: var(--f1); }
.f2 { fill: var(--f2); background: var(--f2); } .f3 { fill: var(--f3); background: var(--f3); }
.f4 { fill: var(--f4); background: var(--f4); } .f5 { fill: var(--f5); background: var(--f5); }
.f6 { fill: var(--f6); background: var(--f6); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--muted); font-size: 13px; }
th, td { padding: 5px 14px 5px 0; vertical-align: top; }
tbody tr + tr { border-top: 1px solid var(--line); }
.scroll { overflow: auto; max-height: 440px; }
.scroll thead th { position: sticky; top: 0; background: var(--card); }
#headline { overflow-x: auto; }
#headline th { white-space: nowrap; }
#headline td { white-space: nowrap; }
#headline .one td { font-size: 22px; font-weight: 650; padding-top: 0; }
#headline small { display: block; font-size: 12.5px; font-weight: 400; color: var(--muted); }
#headline .many .best { color: var(--good); font-weight: 650; }
.chip { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 7px; }
.done { color: var(--good); } .diverged, .interrupted { color: var(--bad); }
.running { color: var(--accent); }
#decisions table, .config table { font-size: 14px; }
.number { text-align: right; white-space: nowrap; }
.warning td { color: var(--bad); }
.arrow { color: var(--muted); }
.config { columns: 3 300px; column-gap: 28px; }
.config table { break-inside: avoid; margin-bottom: 14px; }
.config caption { text-align: left; font-weight: 600; padding-bottom: 3px; }
.config td:first-child { color: var(--muted); width: 48%; }
.config td { padding: 2px 8px 2px 0; overflow-wrap: anywhere; }
.config .set { font-weight: 650; }
.compare td:first-child { color: var(--muted); }
.compare td { overflow-wrap: anywhere; }
details { margin-top: 12px; } summary { cursor: pointer; color: var(--accent); }
#tip { position: fixed; pointer-events: none; display: none; background: var(--card); z-index: 9;
  border: 1px solid var(--mark); border-radius: 6px; padding: 6px 9px; font-size: 13px;
  font-variant-numeric: tabular-nums; max-width: 320px; }
#tip div { display: flex; justify-content: space-between; gap: 14px; }
@media print { .card { break-inside: avoid; } .scroll { max-height: none; } }
)css";

const std::string_view kScript = R"js(
"use strict";
const tip = document.getElementById("tip");
const shown = (v, unit) => (Math.abs(v) >= 1e5 ? Math.round(v) : +v.toPrecision(4)) +
    (unit ? " " + unit : "");
const near = (list, x) => {
  let low = 0, high = list.numberOfItems - 1;
  while (high - low > 1) {
    const mid = (low + high) >> 1;
    if (list.getItem(mid).x <= x) low = mid; else high = mid;
  }
  const a = list.getItem(low), b = list.getItem(high);
  return x - a.x < b.x - x ? a : b;
};
for (const svg of document.querySelectorAll("svg.chart")) {
  const [x0, x1, left, right] = svg.dataset.x.split(" ").map(Number);
  const [y0, y1, bottom, top, log] = svg.dataset.y.split(" ").map(Number);
  const [name, xUnit, yUnit] = svg.dataset.units.split("|");
  const lines = [...svg.querySelectorAll("polyline")].filter(l => l.points.numberOfItems > 0);
  const cursor = svg.querySelector(".cursor");
  const xValue = p => x0 + (p - left) / (right - left) * (x1 - x0);
  const yValue = p => {
    const share = (bottom - p) / (bottom - top);
    return log ? y0 * Math.pow(y1 / y0, share) : y0 + share * (y1 - y0);
  };
  const hide = () => { tip.style.display = "none"; cursor.setAttribute("d", ""); };
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", event => {
    const matrix = svg.getScreenCTM();
    if (!matrix || !lines.length) return;
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
    if (at.x < left - 8 || at.x > right + 8) return hide();
    const found = lines.map(line => [line, near(line.points, at.x)]);
    const x = found.map(f => f[1].x).reduce((a, b) =>
        Math.abs(a - at.x) <= Math.abs(b - at.x) ? a : b);
    cursor.setAttribute("d", `M${x} ${top}V${bottom}`);
    tip.replaceChildren();
    const add = (a, b) => {
      const row = tip.appendChild(document.createElement("div"));
      row.appendChild(document.createElement("span")).textContent = a;
      row.appendChild(document.createElement("b")).textContent = b;
    };
    add(name, shown(xValue(x), xUnit));
    for (const [line, point] of found) add(line.dataset.label, shown(yValue(point.y), yUnit));
    tip.style.display = "block";
    const width = tip.offsetWidth, over = event.clientX + 18 + width > innerWidth;
    tip.style.left = (over ? event.clientX - 14 - width : event.clientX + 18) + "px";
    tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 6) + "px";
  });
}
)js";

}  // namespace tri::report
