// One chart: lines over time with a legend that names, tells and hides them, and the same as a table.

import { draw, make, row, say, set, table } from "./dom.js";
import { axis, timeTicks } from "./scale.js";
import { figure } from "./signals.js";
import { MODULE } from "./series.js";
import { clock } from "./words.js";

/** Room for the longest name of a lane, which is a device, and for figures. */
export const LEFT = 56;
const RIGHT = 8;
const TOP = 6;
const BOTTOM = 20;
const HEIGHT = 150;
const COLOURS = 7;
const HEADS = ["signal", "latest", "mean", "lowest", "highest"];

export class Chart {
  /** @param {object} kind One of CHARTS. */
  constructor(kind) {
    this.kind = kind;
    this.keys = new Map();
    this.plot = draw("svg", { class: "plot", "aria-hidden": "true", height: HEIGHT });
    this.stage = make(
      "div",
      {
        class: "stage",
        tabindex: "0",
        role: "group",
        "aria-label": `${kind.title}: arrow keys move through time, Escape goes back to now`,
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
      make("figcaption", { id: `${kind.id}-title` }, `${kind.title}, ${kind.unit}`),
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
    this.#plot(lines, view);
    this.#tell(names, series, view.told);
    if (this.details.open) this.#tabulate(names, series, view.isStale);
  }

  /** Give each new signal a colour and a button; of many only the highest are shown at first. */
  #learn(names, series) {
    const fresh = names.filter((name) => !this.keys.has(name));
    if (this.kind.shown) {
      const highest = new Map(fresh.map((name) => [name, series.summary(name).highest]));
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
      const key = { colour, gate, label, value, button, shown: number < (this.kind.shown ?? Infinity) };
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

  #plot(lines, { begin, end, bands, cursor, now }) {
    const width = Math.max(this.stage.clientWidth, 200);
    const x = (time) => LEFT + ((time - begin) / (end - begin)) * (width - LEFT - RIGHT);
    const values = lines.flatMap(({ pieces }) => pieces.flat().map(([, value]) => value));
    const scale = axis(values.length ? values.map((value) => value * this.kind.factor) : [0], this.kind);
    const floor = HEIGHT - BOTTOM;
    const y = (value) =>
      floor - ((value - scale.bottom) / (scale.top - scale.bottom)) * (floor - TOP);
    set(this.plot, { width, viewBox: `0 0 ${width} ${HEIGHT}` });
    const inside = (time) => Math.min(Math.max(x(time), LEFT), width - RIGHT);
    const drawn = bands.map((band) => shade(band, inside, TOP, floor));
    for (const { at, text } of scale.ticks) {
      drawn.push(draw("path", { class: "grid", d: `M${LEFT} ${y(at)}H${width - RIGHT}` }));
      drawn.push(draw("text", { class: "tick", x: LEFT - 6, y: y(at) + 4 }, text));
    }
    const { step, ticks } = timeTicks(begin, end, width - LEFT - RIGHT);
    for (const time of ticks) {
      const edge = x(time) > width - 28 ? "end" : x(time) < LEFT + 24 ? "start" : "middle";
      const at = { class: `time ${edge}`, x: x(time), y: HEIGHT - 5 };
      drawn.push(draw("text", at, clock(time, step < 60)));
    }
    const gateOf = ({ name }) => this.keys.get(name).gate;
    for (const { name, pieces } of [...lines].sort((a, b) => gateOf(b) - gateOf(a))) {
      const points = pieces.map((piece) =>
        piece.map(([time, value]) => [inside(Math.min(time, now)), y(value * this.kind.factor)]),
      );
      // A gate is not a load: it is drawn as an area behind the lines.
      const { colour, gate } = this.keys.get(name);
      const d = gate ? areaOf(points, floor) : pathOf(points);
      const kind = gate ? "area" : "curve";
      drawn.push(draw("path", { class: `${kind} ${colour}`, d, "data-signal": name }));
    }
    if (cursor !== null) {
      drawn.push(draw("path", { class: "cursor", d: `M${inside(cursor)} ${TOP}V${floor}` }));
    }
    this.plot.replaceChildren(...drawn);
    this.timeAt = (pixel) => begin + ((pixel - LEFT) / (width - LEFT - RIGHT)) * (end - begin);
  }

  #tell(names, series, time) {
    const told = time === null ? null : series.at(time);
    for (const [name, key] of this.keys) {
      key.button.hidden = !names.includes(name);
      set(key.button, { "aria-pressed": String(key.shown) });
      say(key.value, figure(this.kind, told?.values.get(name)?.mean));
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

/** A run behind the lines: light where its model is idle, darker in its steady phase. */
function shade(band, x, top, floor) {
  const group = draw("g", { class: `band shade${band.shade}` });
  for (const [kind, begin, end] of [
    ["whole", band.begin, band.end],
    ["steady", band.steadyBegin, band.steadyEnd],
  ]) {
    const wide = begin === null ? 0 : x(end) - x(begin);
    if (wide > 0) {
      group.append(draw("rect", { class: kind, x: x(begin), y: top, width: wide, height: floor - top }));
    }
  }
  return group;
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
