// Runs over time, a lane for each device; each run is a link to what is known of it.

import { draw, make, set, tell } from "./dom.js";
import { LEFT } from "./chart.js";
import { runUrl } from "./api.js";
import { clock } from "./words.js";

const RIGHT = 8;
const LANE = 26;
const LETTER = 7.2;
const HUES = 12;
const HATCHES = 3;
const DEFS = ["M0 6L6 0", "M0 3H6"];
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

/** Return a row of the daemon's bands likewise. */
export function bandOfRow([id, workload, device, outcome, begin, end, steadyBegin, steadyEnd]) {
  return { id, workload, device, outcome, begin, end, steadyBegin, steadyEnd };
}

export class Lanes {
  constructor() {
    this.links = new Map();
    this.workloads = [];
    this.names = draw("g");
    this.bands = draw("g");
    this.unknown = draw("g");
    const patterns = DEFS.map((d, index) =>
      draw("pattern", { id: `hatch${index + 1}`, width: 6, height: 6, patternUnits: "userSpaceOnUse" }, draw("path", { class: "hatch", d })),
    );
    this.plot = draw(
      "svg",
      { class: "lanes", role: "group", "aria-label": "Runs over time: arrow keys move between the runs of a device" },
      draw("defs", {}, ...patterns), this.unknown, this.names, this.bands,
    );
    this.bands.addEventListener("keydown", (event) => this.#step(event));
    this.current = new Map();
    this.legend = make("ul", { class: "legend" });
    this.empty = make("p", { class: "empty" }, "No run in this time.");
    this.more = make("p", { class: "empty", hidden: "" });
    this.element = make(
      "figure",
      { id: "lanes", class: "chart", "aria-labelledby": "lanes-title" },
      make("figcaption", { id: "lanes-title" }, "Runs by device"),
      this.plot,
      this.empty,
      this.more,
      this.legend,
    );
  }

  /** Give workloads their colours, in their order in the configuration. */
  learn(workloads) {
    for (const one of workloads) if (!this.workloads.includes(one)) this.workloads.push(one);
  }

  /** Return bands with the colour and the hatch of their workload, which it keeps. */
  coloured(bands) {
    this.learn(bands.map((band) => band.workload));
    return bands.map((band) => {
      const place = this.workloads.indexOf(band.workload);
      return { ...band, shade: place % HUES, hatch: Math.floor(place / HUES) % HATCHES };
    });
  }

  /** Move between the runs of one lane, which is one stop of the keyboard. */
  #step(event) {
    const link = event.target.closest("a");
    const lane = [...this.links.values()]
      .filter((one) => one.dataset.lane === link?.dataset.lane)
      .sort((a, b) => a.dataset.begin - b.dataset.begin);
    const place = lane.indexOf(link);
    const to = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: lane.length - 1 }[event.key];
    if (to === undefined || place < 0) return;
    event.preventDefault();
    const next = lane[Math.min(Math.max(to, 0), lane.length - 1)];
    this.current.set(next.dataset.lane, next.dataset.run);
    this.#stops();
    next.focus();
  }

  /** Let the keyboard stop once in a lane: at the run that it left, or at the latest. */
  #stops() {
    const latest = new Map();
    for (const link of this.links.values()) {
      const { lane, begin } = link.dataset;
      if (!latest.has(lane) || Number(begin) > Number(latest.get(lane).dataset.begin)) latest.set(lane, link);
    }
    for (const link of this.links.values()) {
      const { lane, run } = link.dataset;
      const stop = this.links.has(this.current.get(lane)) ? this.current.get(lane) : latest.get(lane).dataset.run;
      set(link, { tabindex: run === stop ? "0" : "-1" });
    }
  }

  render(bands, { begin, end, since = begin }) {
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
        const parts = ["title", "rect", "rect", "rect", "text"].map((tag) => draw(tag));
        const link = draw("a", { href: runUrl(band.id), "data-run": band.id, "data-begin": band.begin }, ...parts);
        this.links.set(band.id, link);
        this.bands.append(link);
      }
      set(this.links.get(band.id), { "data-lane": band.device });
      place(this.links.get(band.id), band, devices.indexOf(band.device) * LANE, x);
    }
    this.#stops();
    const unknown = Math.max(x(since) - LEFT, 0);
    this.unknown.replaceChildren(
      ...(unknown > 1 ? [draw("rect", { class: "unknown", x: LEFT, width: unknown, height })] : []),
    );
    tell(this.more, unknown > 1 && `Too many runs: those before ${clock(since)} are not shown.`);
    this.#name(bands);
  }

  #name(bands) {
    const called = ({ workload, device }) => (workload.includes(device) ? workload : `${workload} · ${device}`);
    const words = new Map(bands.map((band) => [called(band), band]));
    const told = [...words].map(([text]) => text).join("\n");
    if (this.told === told) return;
    this.told = told;
    const more = words.size - NAMED;
    this.legend.replaceChildren(
      ...[...words].slice(0, NAMED).map(([text, { shade, hatch }]) => {
        const patch = draw("rect", { class: `solid shade${shade}`, width: 16, height: 8 });
        const over = draw("rect", { fill: hatch ? `url(#hatch${hatch})` : "none", width: 16, height: 8 });
        const swatch = draw("svg", { class: "swatch", viewBox: "0 0 16 8", "aria-hidden": "true" }, patch, over);
        return make("li", {}, swatch, ` ${text}`);
      }),
      ...(more > 0 ? [make("li", {}, `and ${more} more: each band tells its own`)] : []),
    );
  }
}

function place(link, band, top, x) {
  const [title, whole, steady, hatch, text] = link.childNodes;
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
  set(hatch, { fill: band.hatch ? `url(#hatch${band.hatch})` : "none", x: from, y: top + 2, width: wide, height: LANE - 4 });
  const letters = Math.floor((wide - 6) / LETTER);
  const name = band.workload;
  set(text, { class: "run", x: from + 4, y: top + 17 });
  text.textContent = letters >= name.length ? name : letters > 3 ? `${name.slice(0, letters - 1)}…` : "";
}
