// Elements and texts. Values only ever become text nodes and attributes, never markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const h = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
export const s = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const precise = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });

export const count = (number) => (Math.abs(number) < 1e6 ? whole.format(number) : compact.format(number));
export const short = (number) => (Math.abs(number) < 1e4 ? precise.format(number) : compact.format(number));
export const rate = (number) => `${number >= 100 ? count(number) : precise.format(number)}/s`;

export const many = (number, thing) => `${count(number)} ${number === 1 ? thing : thing.endsWith("ch") ? `${thing}es` : `${thing}s`}`;
export const rows = (number) => many(number, "row");

export function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (number >= 999.5 && place < units.length - 1) { number /= 1000; place += 1; }
  return `${place ? precise.format(number) : whole.format(number)} ${units[place]}`;
}

export function span(seconds) {
  if (seconds < 1) return `${whole.format(seconds * 1000)} ms`;
  if (seconds < 100) return `${precise.format(seconds)} s`;
  if (seconds < 5400) return `${(seconds < 600 ? precise : whole).format(seconds / 60)} min`;
  if (seconds < 172800) return `${precise.format(seconds / 3600)} h`;
  return `${whole.format(seconds / 86400)} days`;
}

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });

// A lag or an event time of an operator whose event time has this unit.
export const lagText = (lag, unit) => (lag === null ? "not known yet" : unit === "row" ? lag.text : span(lag.value / 1e6));

export function timeText(time, unit) {
  if (time === null) return "not known yet";
  return unit === "row" ? `row ${time.text}` : time.text.replace(/(\.\d{3})\d+/, "$1").replace("+00:00", " UTC");
}
