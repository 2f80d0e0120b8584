// The points of a sweep: latency across, energy or time of an input upwards, the front filled.

import { axis } from "./chart.js";
import { draw } from "./dom.js";
import { joules, seconds } from "./words.js";

const WIDTH = 960;
const HEIGHT = 430;
const LEFT = 64;
const RIGHT = 168;
const TOP = 28;
const FLOOR = 388;
const LEGEND_STEP = 18;

/** Return the drawing of a sweep; `unit` is that of the upward axis: J or s. */
export function drawFront({ name, unit, marks }) {
  const print = unit === "J" ? joules : seconds;
  const devices = [...new Set(marks.map((mark) => mark.device))];
  const across = axis(marks.map((mark) => mark.x.value), { fromZero: true });
  const up = axis(marks.map((mark) => mark.y.value), { fromZero: true });
  // The end of an interval may lie beyond the axis, which is made for the values.
  const share = (value, { top }) => Math.min(Math.max(value / top, 0), 1);
  const x = (value) => LEFT + share(value, across) * (WIDTH - RIGHT - LEFT);
  const y = (value) => FLOOR - share(value, up) * (FLOOR - TOP);
  const front = marks.filter((mark) => mark.front);
  const title = `${name} against latency; on the front: ${front.map((mark) => mark.title).join(", ") || "none"}`;
  const drawn = [
    draw("text", { class: "title", x: LEFT, y: TOP - 10 }, name),
    draw("text", { class: "tick", x: WIDTH - RIGHT, y: FLOOR + 34 }, "latency p50"),
  ];
  for (const { at } of across.ticks) {
    drawn.push(draw("text", { class: "middle", x: x(at), y: FLOOR + 16 }, seconds(at)));
  }
  for (const { at } of up.ticks) {
    drawn.push(draw("path", { class: "grid", d: `M${LEFT} ${y(at)}H${WIDTH - RIGHT}` }));
    drawn.push(draw("text", { class: "tick", x: LEFT - 6, y: y(at) + 4 }, print(at)));
  }
  for (const mark of front) drawn.push(...intervals(mark, devices.indexOf(mark.device), x, y));
  for (const mark of [...marks].sort((a, b) => a.front - b.front)) {
    const point = shape(devices.indexOf(mark.device), x(mark.x.value), y(mark.y.value), mark.front);
    point.append(draw("title", {}, `${mark.title}: ${seconds(mark.x.value)}, ${print(mark.y.value)}`));
    drawn.push(point);
  }
  devices.forEach((device, kind) => {
    const at = TOP + LEGEND_STEP * kind;
    drawn.push(shape(kind, WIDTH - RIGHT + 16, at, true));
    drawn.push(draw("text", { class: "run", x: WIDTH - RIGHT + 28, y: at + 4 }, device));
  });
  return draw("svg", { class: "figure", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title }, ...drawn);
}

/** Return the 95 % intervals of a point that are known. */
function intervals(mark, kind, x, y) {
  const lines = [];
  if (mark.x.low !== undefined) lines.push(`M${x(mark.x.low)} ${y(mark.y.value)}H${x(mark.x.high)}`);
  if (mark.y.low !== undefined) lines.push(`M${x(mark.x.value)} ${y(mark.y.low)}V${y(mark.y.high)}`);
  return lines.map((d) => draw("path", { class: `curve line${kind + 1}`, d }));
}

/** Accelerators differ in shape too, for those who do not see colours. */
function shape(kind, x, y, isFilled) {
  const look = `curve line${kind + 1} ${isFilled ? `shade${kind}` : ""}`;
  if (kind % 2 === 0) return draw("circle", { class: look, cx: x, cy: y, r: 5 });
  return draw("rect", { class: look, x: x - 4.5, y: y - 4.5, width: 9, height: 9 });
}
