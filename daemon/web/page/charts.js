// All charts of a page: one axis of time, one cursor, the same runs behind each.

import { make, say } from "./dom.js";
import { Chart, CHARTS, figure } from "./chart.js";
import { Lanes } from "./lanes.js";
import { clock, duration } from "./words.js";

export class Charts {
  /**
   * @param {Element} place Where they stand.
   * @param {Element} output Where the time is told that figures are of.
   */
  constructor(place, output) {
    this.output = output;
    this.lanes = new Lanes();
    this.charts = CHARTS.map((kind) => new Chart(kind));
    // What arrow keys lead to is read out; what a pointer passes is not.
    this.reading = make("p", { class: "unseen", "aria-live": "polite" });
    this.cursor = null;
    this.lit = null;
    this.view = null;
    // Called with begin and end where a reader moves or widens the time shown, and whether that is done; or with null.
    this.onRange = null;
    this.drag = null;
    for (const chart of this.charts) this.#follow(chart);
    place.replaceChildren(this.lanes.element, ...this.charts.map((one) => one.element), this.reading);
    place.addEventListener("change", () => this.#again());
    const light = (event) => {
      const id = event.target.closest?.("a")?.dataset.run ?? null;
      if (id === this.lit || this.view === null) return;
      this.lit = id;
      this.#again();
    };
    for (const kind of ["pointerover", "focusin"]) this.lanes.bands.addEventListener(kind, light);
    for (const kind of ["pointerleave", "focusout"]) this.lanes.bands.addEventListener(kind, () => light({ target: place }));
    new ResizeObserver(() => this.#again()).observe(place);
  }

  /**
   * Draw a stretch of time.
   * @param {Series} series What is known.
   * @param {object} view begin, end and now in seconds, bands of runs, and whether figures are of
   *   now where nobody points at another time. May have marks (limits by chart), levels (whether
   *   a value is bad), since (from when on all runs are known) lit (the run of the page), means
   *   (begin and end of what legends tell while nobody points at a time) and without
   *   (a chart that is left out while it is empty).
   */
  render(series, view) {
    this.series = series;
    const bands = this.lanes
      .coloured(view.bands)
      .filter((band) => band.end >= view.begin && band.begin <= view.end);
    this.view = { ...view, bands };
    this.#again();
  }

  #again() {
    if (this.view === null) return;
    const { begin, end } = this.view;
    if (this.cursor !== null && (this.cursor < begin || this.cursor > end)) this.cursor = null;
    const { newest, isStale } = this.#newest();
    const told = this.cursor ?? (isStale ? null : newest);
    const lit = this.lit ?? this.view.lit;
    const means = this.cursor === null ? this.view.means : null;
    const view = { ...this.view, cursor: this.cursor, told, isStale, lit, means };
    this.lanes.render(view.bands, view);
    for (const chart of this.charts) chart.render(this.series, view);
    if (means) say(this.output, "figures: means of the steady phase of this run");
    else if (view.told !== null) say(this.output, `figures of ${clock(view.told)}, means of ${duration(this.series.step)}`);
    else say(this.output, newest === null ? "no sample in this time" : `no sample since ${clock(newest)}`);
  }

  /** Return the time of the newest figures; on a live page they soon are of the past. */
  #newest() {
    const newest = this.series.end;
    const isStale = this.view.isLive && newest !== null && this.view.now - newest > this.series.gap;
    return { newest, isStale };
  }

  #move(time) {
    this.cursor = time;
    this.#again();
  }

  #follow(chart) {
    const { stage } = chart;
    const timeOf = (event) => chart.timeAt(event.clientX - stage.getBoundingClientRect().left);
    const at = (event) => {
      if (this.drag === null) this.#move(timeOf(event));
      else this.#dragTo(event, false);
    };
    stage.addEventListener("pointermove", at);
    stage.addEventListener("pointerdown", (event) => {
      at(event);
      if (this.onRange === null || event.pointerType !== "mouse" || event.button !== 0) return;
      const { begin, end } = this.view;
      this.drag = { from: event.clientX, begin, end, perPixel: (timeOf(event) - chart.timeAt(0)) / (event.clientX - stage.getBoundingClientRect().left || 1) };
      stage.setPointerCapture(event.pointerId);
    });
    stage.addEventListener("pointerup", (event) => {
      if (this.drag === null) return;
      // A click is no drag.
      if (Math.abs(event.clientX - this.drag.from) > 3) this.#dragTo(event, true);
      this.drag = null;
    });
    stage.addEventListener("wheel", (event) => {
      // The wheel alone scrolls the page.
      const isZoom = event.ctrlKey;
      if (this.onRange === null || this.view === null || !(isZoom || event.shiftKey || event.deltaX !== 0)) return;
      event.preventDefault();
      const turned = (event.deltaY || event.deltaX) / 500;
      if (isZoom) this.#zoom(2 ** turned, timeOf(event));
      else this.#pan(turned);
    }, { passive: false });
    stage.addEventListener("pointerleave", () => this.#move(null));
    stage.addEventListener("keydown", (event) => {
      if (this.view === null) return;
      const { begin, end } = this.view;
      const step = Math.max(this.series.step, (end - begin) / 90);
      const from = this.cursor ?? this.series.end ?? end;
      const to = {
        ArrowLeft: Math.max(begin, from - step),
        ArrowRight: Math.min(end, from + step),
        Home: begin,
        End: this.series.end ?? end,
        Escape: null,
      }[event.key];
      if (to === undefined) {
        const isTaken = this.onRange !== null && this.#rangeKey(event.key);
        if (isTaken) event.preventDefault();
        return;
      }
      event.preventDefault();
      if (to === null && this.cursor === null) this.onRange?.(null);
      this.#move(to);
      say(this.reading, to === null ? "now" : this.#words(chart, to));
    });
  }

  #dragTo(event, isDone) {
    const { from, begin, end, perPixel } = this.drag;
    const back = (event.clientX - from) * perPixel;
    this.onRange(begin - back, end - back, isDone);
  }

  /** Move by a share of the time shown; into the past if it is negative. */
  #pan(share) {
    const { begin, end } = this.view;
    const by = share * (end - begin);
    this.onRange(begin + by, end + by, true);
  }

  /** Show so many times the time; a moment stays where it is. */
  #zoom(factor, around) {
    const { begin, end } = this.view;
    this.onRange(around - factor * (around - begin), around + factor * (end - around), true);
  }

  /** Do what a key means for the time shown; return whether it means something. */
  #rangeKey(key) {
    const { begin, end } = this.view;
    const around = this.cursor ?? (begin + end) / 2;
    const actions = {
      PageUp: () => this.#pan(-0.5), PageDown: () => this.#pan(0.5), "+": () => this.#zoom(0.5, around), "-": () => this.#zoom(2, around),
    };
    actions[key]?.();
    return key in actions;
  }

  #words(chart, time) {
    const row = this.series.at(time);
    const told = [...(row?.values ?? [])]
      .filter(([name]) => chart.keys.get(name)?.shown)
      .map(([name, value]) => `${this.series.lines.get(name).label} ${figure(chart.kind, value.mean)}`);
    return `${clock(time)}: ${told.join(", ") || "nothing known"}`;
  }
}
