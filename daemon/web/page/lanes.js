// Runs over time, a lane for each device; each run is a link to what is known of it.

import { make, set, tell } from "./dom.js";
import { LEFT } from "./chart.js";
import { runUrl } from "./api.js";
import { clock } from "./words.js";

const RIGHT = 8;
const LANE = 26;
// A narrower band has no room for the begin of a name.
const NAME_WIDTH = 30;
const HUES = 12;
const HATCHES = 3;
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

/** Return the name of a workload without its device, which its lane has: else the end that differs is cut off. */
function shortOf({ workload, device }) {
  return workload.endsWith(`-${device}`) ? workload.slice(0, -device.length - 1) : workload;
}

export class Lanes {
  constructor() {
    // Link and look of each run, by its id. A run is one element: a page may show two thousand.
    this.links = new Map();
    this.workloads = [];
    this.names = make("div");
    this.bands = make("div", { class: "bands" });
    this.unknown = make("div", { class: "unknown" });
    this.plot = make(
      "div",
      { class: "lanes", role: "group", "aria-label": "Runs over time: arrow keys move between the runs of a device" },
      this.names, make("div", { class: "window" }, this.unknown, this.bands),
    );
    this.bands.addEventListener("keydown", (event) => this.#step(event));
    this.current = new Map();
    this.legend = make("ul", { class: "legend" });
    this.empty = make("p", { class: "empty" }, "No run in this time.");
    this.more = make("p", { class: "empty", hidden: "" });
    this.element = make(
      "figure",
      { id: "lanes", class: "chart", "aria-labelledby": "lanes-title" },
      make("figcaption", { id: "lanes-title" }, "Runs by device", make("small", {}, " · strong colour: steady phase, pale: idle and warm-up")),
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
      .map((one) => one.link)
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
    for (const { link } of this.links.values()) {
      const { lane, begin } = link.dataset;
      if (!latest.has(lane) || Number(begin) > Number(latest.get(lane).dataset.begin)) latest.set(lane, link);
    }
    for (const { link } of this.links.values()) {
      const { lane, run } = link.dataset;
      const stop = this.links.has(this.current.get(lane)) ? this.current.get(lane) : latest.get(lane).dataset.run;
      set(link, { tabindex: run === stop ? "0" : "-1" });
    }
  }

  render(bands, { begin, end, since = begin }) {
    const devices = [...new Set(bands.map((band) => band.device))].sort();
    const room = Math.max(this.element.clientWidth, 200) - LEFT - RIGHT;
    this.plot.style.height = `${devices.length * LANE}px`;
    this.plot.hidden = bands.length === 0;
    this.empty.hidden = bands.length > 0;
    this.names.replaceChildren(...devices.map((device) => make("div", { class: "tick" }, device)));
    const seen = new Set(bands.map((band) => band.id));
    for (const [id, { link }] of this.links) {
      if (!seen.has(id)) {
        link.remove();
        this.links.delete(id);
      }
    }
    // Bands stay where they are, and time moves all of them at once.
    const scale = room / (end - begin);
    if (scale !== this.scale) Object.assign(this, { scale, zero: begin });
    this.bands.style.transform = `translateX(${((this.zero - begin) * scale).toFixed(1)}px)`;
    for (const band of bands) this.#place(band, devices.indexOf(band.device));
    this.#stops();
    const unknown = Math.min(Math.max(since - begin, 0), end - begin) * scale;
    this.unknown.style.width = `${unknown}px`;
    this.unknown.hidden = unknown <= 1;
    tell(this.more, unknown > 1 && `Too many runs: those before ${clock(since)} are not shown.`);
    this.#name(bands);
  }

  /** Put a run where it belongs; a link that is there stays the same element, so that it keeps the focus. */
  #place(band, lane) {
    const { id, workload, device, outcome, begin, end, steadyBegin, steadyEnd, shade, hatch } = band;
    const look = [this.scale, this.zero, lane, outcome, end, steadyEnd, shade, hatch].join();
    const known = this.links.get(id);
    if (known?.look === look) return;
    const link = known?.link ?? make("a", { href: runUrl(id), "data-run": id, "data-begin": begin }, shortOf(band));
    this.links.set(id, { link, look });
    if (known === undefined) this.bands.append(link);
    const wide = Math.max((end - begin) * this.scale, 2);
    const words = `${workload} on ${device}, ${clock(begin)}, ${outcome}`;
    const narrow = wide < NAME_WIDTH ? " narrow" : "";
    set(link, { class: `band shade${shade} hatch${hatch}${narrow}`, "data-lane": device, "aria-label": words, title: words });
    const share = (time) => (time === null ? "100%" : `${((100 * (time - begin)) / (end - begin || 1)).toFixed(2)}%`);
    const style = { left: `${(begin - this.zero) * this.scale}px`, top: `${lane * LANE + 2}px`, width: `${wide}px`, "--from": share(steadyBegin), "--to": share(steadyEnd) };
    for (const [name, value] of Object.entries(style)) link.style.setProperty(name, value);
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
        return make("li", {}, make("span", { class: `band shade${shade} hatch${hatch}` }), ` ${text}`);
      }),
      ...(more > 0 ? [make("li", {}, `and ${more} more: each band tells its own`)] : []),
    );
  }
}
