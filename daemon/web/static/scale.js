// Axes: round steps, and where a value stands.

/** Return a round distance between about so many ticks. */
export function niceStep(span, ticks = 4) {
  if (!(span > 0)) return 1;
  const rough = span / ticks;
  const size = 10 ** Math.floor(Math.log10(rough));
  return size * [1, 2, 5, 10].find((factor) => factor * size >= 0.75 * rough);
}

/** Return the lower end, the upper end and the ticks of an axis that holds all values. */
export function axis(values, { fromZero = false, top = -Infinity }) {
  const low = fromZero ? 0 : Math.min(...values);
  const high = Math.max(...values, top);
  const step = niceStep(high - low);
  const bottom = step * Math.floor(low / step);
  const count = Math.max(1, Math.ceil((high - bottom) / step - 1e-9));
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const ticks = Array.from({ length: count + 1 }, (_, index) => bottom + index * step);
  return { bottom, top: ticks.at(-1), ticks: ticks.map((at) => ({ at, text: at.toFixed(decimals) })) };
}

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];

/** Return the times at which an axis of so many pixels has a label, and the step between them. */
export function timeTicks(begin, end, width) {
  const room = Math.max(1, Math.floor(width / 75));
  const step = TIME_STEPS.find((one) => (end - begin) / one <= room) ?? TIME_STEPS.at(-1);
  const ticks = [];
  for (let at = Math.ceil(begin / step) * step; at <= end; at += step) ticks.push(at);
  return { step, ticks };
}
