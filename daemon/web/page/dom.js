// Elements from text. Text is only ever set as text: names come from configurations and models.

import meanings from "./flags.json" with { type: "json" };

const FOREIGN = "foreign_dla_activity";
const SVG = "http://www.w3.org/2000/svg";

/** Make an element; attributes that are null or false are left out, children may be text. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for what stands in an <svg>. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  set(element, attributes);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set attributes of an element, where they are other than they were. */
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) element.removeAttribute(name);
    else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
  }
}

/** Set the text of an element, where it is another one, so that a reader is not told it again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Show a line that has something to say, and hide one that has not. */
export function tell(element, text) {
  say(element, text ?? "");
  element.hidden = !text;
}

/** Make a table that a phone can show as cards: each cell knows the name of its column. */
export function table(caption, heads, rows) {
  return make(
    "table",
    { role: "table" },
    make("caption", {}, caption),
    make(
      "thead",
      { role: "rowgroup" },
      make("tr", { role: "row" }, ...heads.map((head) => columnHead(head))),
    ),
    make("tbody", { role: "rowgroup" }, ...rows.map((cells) => row(heads, cells))),
  );
}

function columnHead(text) {
  return make("th", { scope: "col", role: "columnheader" }, text);
}

/** Make a row of such a table; its first cell is its head. */
export function row(heads, cells, attributes = {}) {
  const [first, ...rest] = cells;
  return make(
    "tr",
    { role: "row", ...attributes },
    make("th", { scope: "row", role: "rowheader" }, ...[first].flat()),
    ...rest.map((cell, index) =>
      // A card on a phone leaves out what is not known.
      make("td", { role: "cell", class: cell === "–" && "none", "data-label": heads[index + 1] }, ...[cell].flat()),
    ),
  );
}

// Quality flags, and what each means in one sentence.

/** Return flags as marks. */
export function marks(flags) {
  return flags.map((flag) => make("span", { class: "flag" }, flag));
}

/** Return flags with their meaning, as the content of a <dl>; the processes used a DLA meanwhile. */
export function explained(flags, processes = []) {
  const names = processes.length > 0 ? ` It was ${processes.join(", ")}.` : "";
  return flags.flatMap((flag) => [
    make("dt", {}, ...marks([flag])),
    make("dd", {}, (meanings[flag] ?? "Not known to this page.") + (flag === FOREIGN ? names : "")),
  ]);
}
