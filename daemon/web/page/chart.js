// One chart: lines over time with a legend that names, tells and hides them, and the same as a table.

import { draw, make, row, say, set, table } from "./dom.js";
import { MODULE } from "./series.js";
import { bytes, clock, digits, hertz, moment, NOTHING, SPACE } from "./words.js";

export const CHARTS = [
  { id: "power", title: "Power", unit: "W", factor: 1, fromZero: true },
  { id: "load", title: "GPU, memory and CPU load", unit: "%", factor: 100, fromZero: true, top: 100 },
  { id: "dla", title: "DLA", unit: "%", factor: 100, fromZero: true, top: 100 },
  // Boards have a dozen zones; the hottest are what matters. Those of an engine without power read nothing.
  { id: "temperature", title: "Temperature", unit: "°C", factor: 1, shown: 4, absent: "sensor off" },
  { id: "memory", title: "Memory", unit: "GiB", factor: 2 ** -30, fromZero: true, print: bytes },
  { id: "owners", title: "Memory by owner", unit: "GiB", factor: 2 ** -30, fromZero: true, print: bytes, onJetsons: true },
  { id: "clock", title: "Clocks", unit: "GHz", factor: 1e-9, fromZero: true, print: hertz },
];

/** Print a value of a chart, with its unit. */
export function figure(chart, value) {
  if (value === null || value === undefined) return NOTHING;
  if (chart.print) return chart.print(value);
  const shown = value * chart.factor;
  const text = chart.unit === "W" ? digits(shown) : shown.toFixed(chart.unit === "%" ? 0 : 1);
  return `${text}${SPACE}${chart.unit}`;
}

/** Room for the longest name of a lane, which is a device, and for figures. */
export const LEFT = 56;
const RIGHT = 8;
const TOP = 6;
const BOTTOM = 20;
const HEIGHT = 150;
const LINE_PIXELS = 2;
const COLOURS = 7;
const HEADS = ["signal", "latest", "mean", "lowest", "highest"];

export class Chart {
  /** @param {object} kind One of CHARTS. */
  constructor(kind) {
    this.kind = kind;
    this.keys = new Map();
    this.caption = make("figcaption", { id: `${kind.id}-title` }, `${kind.title}, ${kind.unit}`);
    this.plot = draw("svg", { class: "plot", "aria-hidden": "true", height: HEIGHT });
    this.stage = make(
      "div",
      {
        class: "stage",
        tabindex: "0",
        role: "group",
        "aria-label": `${kind.title}: arrow keys move through time, Page Up and Page Down move the time shown, plus and minus change how much is shown, Escape goes back to now`,
      },
      this.plot,
    );
    this.legend = make("div", { class: "legend", role: "group", "aria-label": `${kind.title}: lines` });
    this.empty = make("p", { class: "empty" }, "Nothing known in this time.");
    this.body = make("div", { class: "scroll" });
    this.details = make("details", {}, make("summary", {}, `${kind.title} as a table`), this.body);
    this.details.addEventListener("toggle", () => this.#ask());
    this.element = make(
      "figure",
      { id: kind.id, class: "chart", "aria-labelledby": `${kind.id}-title` },
      this.caption,
      this.stage,
      this.empty,
      this.legend,
      this.details,
    );
  }

  /** Draw what is known of a stretch of time. */
  render(series, view) {
    const found = series.names().filter((name) => series.lines.get(name).chart === this.kind.id);
    this.#learn(found, series);
    const names = [...this.keys.keys()].filter((name) => found.includes(name));
    const shown = names.filter((name) => this.keys.get(name).shown);
    const lines = shown.map((name) => ({ name, pieces: series.pieces(name) }));
    this.stage.hidden = names.length === 0;
    this.empty.hidden = names.length > 0;
    this.details.hidden = names.length === 0;
    this.element.hidden = names.length === 0 && (this.kind.onJetsons || view.without === this.kind.id);
    this.marks = view.marks?.[this.kind.id] ?? [];
    const marked = this.marks.map(({ value, label }) => ` · ${label} ${figure(this.kind, value)}`);
    say(this.caption, `${this.kind.title}, ${this.kind.unit}${marked.join("")}`);
    this.#plot(lines, view);
    this.#tell(names, series, view);
    if (this.details.open) this.#tabulate(names, series, view.isStale);
  }

  /** Give each new signal a colour and a button; of many only the highest are shown at first. */
  #learn(names, series) {
    const fresh = names.filter((name) => !this.keys.has(name));
    if (fresh.length === 0) return;
    const highest = new Map(names.map((name) => [name, series.summary(name).highest]));
    // In another time other zones are the hottest ones.
    const rank = (name) => [...highest.values()].filter((one) => one > highest.get(name)).length;
    if (this.kind.shown) {
      fresh.sort((a, b) => highest.get(b) - highest.get(a));
    } else {
      fresh.sort((a, b) => (b === MODULE) - (a === MODULE));
    }
    for (const name of fresh) {
      const number = this.keys.size;
      const colour = `line${number % COLOURS} ${number < COLOURS ? "" : "dashed"}`;
      const value = make("b", {});
      const { label, gate } = series.lines.get(name);
      const swatch = draw(
        "svg",
        { class: "swatch", viewBox: "0 0 16 8", "aria-hidden": "true" },
        gate
          ? draw("rect", { class: `area ${colour}`, width: 16, height: 8 })
          : draw("path", { class: `curve ${colour}`, d: "M0 4H16" }),
      );
      const button = make("button", { type: "button" }, swatch, ` ${label} `, value);
      const key = { colour, gate, label, value, button, shown: rank(name) < (this.kind.shown ?? Infinity) };
      button.addEventListener("click", () => {
        key.shown = !key.shown;
        this.#ask();
      });
      this.keys.set(name, key);
      this.legend.append(button);
    }
  }

  /** Ask to be drawn again. */
  #ask() {
    this.element.dispatchEvent(new Event("change", { bubbles: true }));
  }

  #plot(lines, { begin, end, bands, cursor, now, lit }) {
    const width = Math.max(this.stage.clientWidth, 200);
    const x = (time) => LEFT + ((time - begin) / (end - begin)) * (width - LEFT - RIGHT);
    const values = lines.flatMap(({ pieces }) => pieces.flat().map(([, value]) => value));
    // A limit far above all values would press them flat: the caption tells it.
    const highest = Math.max(...values, 0);
    const marks = this.marks.filter(({ value, near }) => highest >= near * value);
    const shown = [...values, ...marks.map(({ value }) => value)].map((value) => value * this.kind.factor);
    const scale = axis(values.length ? shown : [0], this.kind);
    const floor = HEIGHT - BOTTOM;
    const y = (value) =>
      floor - ((value - scale.bottom) / (scale.top - scale.bottom)) * (floor - TOP);
    set(this.plot, { width, viewBox: `0 0 ${width} ${HEIGHT}` });
    const inside = (time) => Math.min(Math.max(x(time), LEFT), width - RIGHT);
    const drawn = strips(bands, inside, floor, lit);
    for (const { at, text } of scale.ticks) {
      drawn.push(draw("path", { class: "grid", d: `M${LEFT} ${y(at)}H${width - RIGHT}` }));
      drawn.push(draw("text", { class: "tick", x: LEFT - 6, y: y(at) + 4 }, text));
    }
    const { step, ticks } = timeTicks(begin, end, width - LEFT - RIGHT);
    for (const time of ticks) {
      if (x(time) > width - 26) continue; // A label there would be cut, or stand beside its time.
      const at = { class: "time middle", x: x(time), y: HEIGHT - 5 };
      drawn.push(draw("text", at, step < 86_400 ? clock(time, step < 60) : moment(time).slice(0, 10)));
    }
    const run = bands.find(({ id, steadyBegin }) => id === lit && steadyBegin !== null);
    if (run) drawn.push(draw("text", { class: "middle", x: inside((run.steadyBegin + run.steadyEnd) / 2), y: TOP + 11 }, "steady"));
    const heights = [];
    const gateOf = ({ name }) => this.keys.get(name).gate;
    for (const { name, pieces } of [...lines].sort((a, b) => gateOf(b) - gateOf(a))) {
      const points = pieces.map((piece) =>
        piece.map(([time, value]) => [inside(Math.min(time, now)), y(value * this.kind.factor)]),
      );
      // A gate is not a load: it is drawn as an area behind the lines.
      const { colour, gate } = this.keys.get(name);
      const d = gate ? areaOf(points, floor) : pathOf(points);
      // Of two lines in one place the upper is dashed, so that both can be seen.
      const own = points.flat().map(([, height]) => height);
      const apart = (other) => other.reduce((sum, height, index) => sum + Math.abs(height - own[index]), 0) / own.length;
      const isCovered = heights.some((other) => other.length === own.length && apart(other) < LINE_PIXELS);
      const kind = gate ? "area" : isCovered ? "curve dashed" : "curve";
      if (!gate) heights.push(own);
      drawn.push(draw("path", { class: `${kind} ${colour}`, d, "data-signal": name }));
    }
    for (const { value, level } of marks) {
      const at = y(value * this.kind.factor);
      drawn.push(draw("path", { class: `mark ${level}`, d: `M${LEFT} ${at}H${width - RIGHT}` }));
    }
    if (cursor !== null) {
      drawn.push(draw("path", { class: "cursor", d: `M${inside(cursor)} ${TOP}V${floor}` }));
    }
    this.plot.replaceChildren(...drawn);
    this.timeAt = (pixel) => begin + ((pixel - LEFT) / (width - LEFT - RIGHT)) * (end - begin);
  }

  #tell(names, series, { told: time, levels, means }) {
    const told = time === null ? null : series.at(time);
    for (const [name, key] of this.keys) {
      key.button.hidden = !names.includes(name);
      set(key.button, { "aria-pressed": String(key.shown) });
      const mean = means ? series.meanBetween(name, ...means) : told?.values.get(name)?.mean;
      const isOff = mean === undefined && told !== null && this.kind.absent;
      say(key.value, isOff ? this.kind.absent : figure(this.kind, mean));
      set(key.value, { class: (mean !== undefined && levels?.(name, mean)) || null });
    }
  }

  #tabulate(names, series, isStale) {
    const rows = names.map((name) => {
      const told = series.summary(name);
      const figures = [isStale ? null : told.latest, told.mean, told.lowest, told.highest];
      return [this.keys.get(name).label, ...figures.map((value) => figure(this.kind, value))];
    });
    if (this.body.firstChild === null) this.body.append(table(this.kind.title, HEADS, []));
    this.body.querySelector("tbody").replaceChildren(...rows.map((cells) => row(HEADS, cells)));
  }
}

/** Runs as strips at the top, light where their model is idle. The chosen one fills the chart. */
function strips(bands, x, floor, lit) {
  const paths = new Map();
  for (const band of bands) {
    const isLit = band.id === lit;
    const [top, bottom] = isLit ? [TOP, floor] : [0, TOP - 1];
    for (const [kind, begin, end] of [["whole", band.begin, band.end], ["steady", band.steadyBegin, band.steadyEnd]]) {
      if (begin === null || x(end) <= x(begin)) continue;
      const look = `band shade${band.shade} ${kind}${isLit ? " lit" : ""}`;
      paths.set(look, `${paths.get(look) ?? ""}M${x(begin)} ${top}H${x(end)}V${bottom}H${x(begin)}Z`);
    }
  }
  return [...paths].map(([look, d]) => draw("path", { class: look, d }));
}

function pathOf(pieces) {
  return pieces
    .map((points) => {
      const [[x, y], ...rest] = points.map(([a, b]) => [a.toFixed(1), b.toFixed(1)]);
      // A point without neighbours is a dot: a line of no length with round ends.
      return rest.length === 0 ? `M${x} ${y}h0` : `M${x} ${y}L${rest.map((p) => p.join(" ")).join("L")}`;
    })
    .join("");
}

function areaOf(pieces, floor) {
  return pieces
    .map((points) => {
      const [first, last] = [points[0][0], points.at(-1)[0]].map((x) => x.toFixed(1));
      const top = points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
      return `M${first} ${floor}L${top}L${last} ${floor}Z`;
    })
    .join("");
}

// Axes: round steps, and where a value stands.

/** Return a round distance between about so many ticks. */
function niceStep(span, ticks = 4) {
  if (!(span > 0)) return 1;
  const rough = span / ticks;
  const size = 10 ** Math.floor(Math.log10(rough));
  return size * [1, 2, 5, 10].find((factor) => factor * size >= 0.75 * rough);
}

/** Return the lower end, the upper end and the ticks of an axis that holds all values. */
export function axis(values, { fromZero = false, top = -Infinity }) {
  // The reading of a rail may be below zero.
  const low = fromZero ? Math.min(0, ...values) : Math.min(...values);
  const high = Math.max(...values, top);
  const step = niceStep(high - low);
  const bottom = step * Math.floor(low / step);
  // A line at the very edge would be cut, except where the edge is a limit that no value passes.
  const room = high > top ? 0.03 * (high - bottom) : 0;
  const count = Math.max(1, Math.ceil((high + room - bottom) / step - 1e-9));
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const ticks = Array.from({ length: count + 1 }, (_, index) => bottom + index * step);
  return { bottom, top: ticks.at(-1), ticks: ticks.map((at) => ({ at, text: at.toFixed(decimals) })) };
}

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 10_800, 21_600, 43_200, 86_400];

/** Return the times at which an axis of so many pixels has a label, and the step between them. */
function timeTicks(begin, end, width) {
  const room = Math.max(1, Math.floor(width / 75));
  const step = TIME_STEPS.find((one) => (end - begin) / one <= room) ?? TIME_STEPS.at(-1);
  const ticks = [];
  for (let at = Math.ceil(begin / step) * step; at <= end; at += step) ticks.push(at);
  return { step, ticks };
}
