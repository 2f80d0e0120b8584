// Runs over time, a lane for each device; each run is a link to what is known of it.

import { draw, make, set } from "./dom.js";
import { LEFT } from "./chart.js";
import { urlOf } from "./api.js";
import { clock } from "./words.js";

const RIGHT = 8;
const LANE = 26;
const LETTER = 7.2;
const SHADES = 4;
// More names than these tell nobody which is which, and push the charts away.
const NAMED = 12;

/** Return where a run lies in time; one in flight ends now. */
export function bandOf(run, isInFlight, now) {
  const wall = (ns) => run.started_seconds + (ns - run.started_ns) / 1e9;
  return {
    id: run.run_id,
    workload: run.workload,
    device: run.device,
    outcome: isInFlight ? "running" : run.outcome,
    begin: run.started_seconds,
    end: isInFlight ? now : wall(run.ended_ns),
    steadyBegin: run.steady ? wall(run.steady.begin_ns) : null,
    steadyEnd: run.steady ? wall(run.steady.end_ns) : null,
  };
}

export class Lanes {
  constructor() {
    this.links = new Map();
    this.workloads = [];
    this.names = draw("g");
    this.bands = draw("g");
    this.plot = draw("svg", { class: "lanes", role: "group", "aria-label": "Runs over time" }, this.names, this.bands);
    this.legend = make("ul", { class: "legend" });
    this.empty = make("p", { class: "empty" }, "No run in this time.");
    this.element = make(
      "figure",
      { id: "lanes", class: "chart", "aria-labelledby": "lanes-title" },
      make("figcaption", { id: "lanes-title" }, "Runs by device"),
      this.plot,
      this.empty,
      this.legend,
    );
  }

  /** Return bands with the colour of their workload, which it keeps. */
  coloured(bands) {
    for (const { workload } of bands) {
      if (!this.workloads.includes(workload)) this.workloads.push(workload);
    }
    return bands.map((band) => ({ ...band, shade: this.workloads.indexOf(band.workload) % SHADES }));
  }

  render(bands, { begin, end }) {
    const devices = [...new Set(bands.map((band) => band.device))].sort();
    const width = Math.max(this.element.clientWidth, 200);
    const height = devices.length * LANE;
    const room = width - LEFT - RIGHT;
    const x = (time) => LEFT + Math.min(Math.max((time - begin) / (end - begin), 0), 1) * room;
    set(this.plot, { width, height, viewBox: `0 0 ${width} ${Math.max(height, 1)}` });
    this.plot.toggleAttribute("hidden", bands.length === 0);
    this.empty.hidden = bands.length > 0;
    this.names.replaceChildren(
      ...devices.map((device, lane) =>
        draw("text", { class: "tick", x: LEFT - 6, y: lane * LANE + 17 }, device),
      ),
    );
    const seen = new Set(bands.map((band) => band.id));
    for (const [id, link] of this.links) {
      if (!seen.has(id)) {
        link.remove();
        this.links.delete(id);
      }
    }
    // A link that is there stays the same element, so that it keeps the focus.
    for (const band of bands) {
      if (!this.links.has(band.id)) {
        const link = draw("a", { href: urlOf(`runs/${band.id}`) }, draw("title"), draw("rect"), draw("rect"), draw("text"));
        this.links.set(band.id, link);
        this.bands.append(link);
      }
      place(this.links.get(band.id), band, devices.indexOf(band.device) * LANE, x);
    }
    this.#name(bands);
  }

  #name(bands) {
    const words = new Map(bands.map((band) => [`${band.workload} · ${band.device}`, band.shade]));
    const told = [...words].map(([text]) => text).join("\n");
    if (this.told === told) return;
    this.told = told;
    const more = words.size - NAMED;
    this.legend.replaceChildren(
      ...[...words].slice(0, NAMED).map(([text, shade]) => {
        const patch = draw("rect", { class: `solid shade${shade}`, width: 16, height: 8 });
        const swatch = draw("svg", { class: "swatch", viewBox: "0 0 16 8", "aria-hidden": "true" }, patch);
        return make("li", {}, swatch, ` ${text}`);
      }),
      ...(more > 0 ? [make("li", {}, `and ${more} more: each band tells its own`)] : []),
    );
  }
}

function place(link, band, top, x) {
  const [title, whole, steady, text] = link.childNodes;
  const words = `${band.workload} on ${band.device}, ${clock(band.begin)}, ${band.outcome}`;
  set(link, { class: `band shade${band.shade}`, "aria-label": words });
  title.textContent = words;
  const [from, wide] = [x(band.begin), Math.max(x(band.end) - x(band.begin), 2)];
  set(whole, { class: "whole", x: from, y: top + 2, width: wide, height: LANE - 4, rx: 2 });
  const steadyWide = band.steadyBegin === null ? 0 : x(band.steadyEnd) - x(band.steadyBegin);
  set(steady, {
    class: "steady", x: steadyWide > 0 ? x(band.steadyBegin) : from, y: top + 2,
    width: Math.max(steadyWide, 0), height: LANE - 4,
  });
  const letters = Math.floor((wide - 6) / LETTER);
  const name = band.workload;
  set(text, { class: "run", x: from + 4, y: top + 17 });
  text.textContent = letters >= name.length ? name : letters > 3 ? `${name.slice(0, letters - 1)}…` : "";
}
