// Charts of the last hour. Each says its newest and its greatest value in words too.

import { h, s, bytes, short, span } from "./dom.js";

let WIDTH = 460; // as wide as its place, so that texts keep their size
const HEIGHT = 150, LEFT = 58, RIGHT = 8, TOP = 8, BOTTOM = 20, LEAST = 300, HOUR = 3600;

// A round number that is at least this: 1, 2 or 5 times a power of ten.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((digit) => digit * power).find((each) => each >= value * 0.999);
}

function frame(from, until, most, text) {
  const y = (value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - TOP - BOTTOM);
  const x = (time) => LEFT + ((time - from) / (until - from)) * (WIDTH - LEFT - RIGHT);
  const grid = [0, most / 2, most].flatMap((value) => [
    s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
    s("text", { class: "dim", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, value ? text(value) : "0"),
  ]);
  const ago = until - from;
  const times = [[from, `${span(ago)} ago`, "start"], [until - ago / 2, `${span(ago / 2)} ago`, "middle"], [until, "now", "end"]]
    .map(([time, label, anchor]) => s("text", { class: "dim", x: x(time), y: HEIGHT - 4, "text-anchor": anchor }, label));
  return { x, y, marks: [...grid, ...times] };
}

function swatch(number, bar) {
  return s("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" },
    bar ? s("rect", { class: `bar ${bar}`, x: 7, y: 0, width: 8, height: 8 })
      : s("line", { class: `series s${number}`, x1: 0, x2: 22, y1: 4, y2: 4 }));
}

// series: {name, values (null: none), bar (a class) or undefined}
function chart(title, times, series, text, range) {
  const known = series.map((each) => each.values.filter((value) => value !== null));
  const most = ceiling(Math.max(...known.flat(), 0) || 10);
  const { x, y, marks } = frame(...range, most, text);
  const slot = Math.max(((WIDTH - LEFT - RIGHT) * 5) / (range[1] - range[0]) - 0.5, 1.2);
  const drawn = series.map((each, number) => {
    const points = times.map((time, place) => [x(Math.max(time, range[0])), each.values[place]]).filter((point) => point[1] !== null);
    if (each.bar) return points.map(([at, value]) => s("rect", { class: `bar ${each.bar}`, x: at, y: y(value), width: slot, height: HEIGHT - BOTTOM - y(value) }));
    if (points.length === 1) points.push([points[0][0] + 2, points[0][1]]);
    return [s("polyline", { class: `series s${number}`, points: points.map(([at, value]) => `${at.toFixed(1)},${y(value).toFixed(1)}`).join(" ") })];
  });
  const said = series.map((each, number) => {
    const values = known[number];
    return values.length ? `${each.name} ${text(values.at(-1))}, at most ${text(Math.max(...values))}` : `${each.name} not known yet`;
  });
  return h("figure", { class: "card" }, h("figcaption", {}, title),
    h("div", { class: "legend" }, ...series.map((each, number) =>
      h("span", {}, swatch(number, each.bar), each.name, " ", h("b", {}, known[number].length ? text(known[number].at(-1)) : "–")))),
    s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}, in the last ${span(range[1] - range[0])}: ${said.join("; ")}` },
      ...marks, ...drawn.flat()));
}

// Rows a second between a slot and the one before it.
function rates(rows, times, started) {
  return rows.map((number, place) => number / Math.max(times[place] - (place ? times[place - 1] : Math.max(started, times[place] - 60)), 5));
}

export function charts(query, now, width) {
  WIDTH = Math.min(Math.max(width, 260), 640);
  const past = query.history, until = query.ended ?? now;
  const range = [until - Math.min(Math.max(until - query.started, LEAST), HOUR), until];
  const shown = past.began.map((time, place) => place).filter((place) => past.began[place] + 5 >= range[0]);
  const of = (values) => shown.map((place) => values[place]);
  const times = of(past.began);
  const batch = query.real_time ? "Epoch" : "Batch";
  const seconds = (value) => span(value);
  const lags = Object.entries(past.lag).filter(([name]) => query.operators[name]?.unit !== "row").slice(0, 4)
    .map(([name, values]) => ({ name, values: of(values).map((value) => (value === null ? null : value / 1e6)) }));
  const found = [
    chart(`${batch} time`, times, [{ name: "longest", values: of(past.longest_seconds), bar: "longest" }, { name: "mean", values: of(past.mean_seconds), bar: "mean" }], seconds, range),
    chart("Rows a second", times, [{ name: "in", values: of(rates(past.rows_in, past.began, query.started)) }, { name: "out", values: of(rates(past.rows_out, past.began, query.started)) }], short, range),
    chart("State", times, [{ name: "bytes", values: of(past.state_bytes) }], bytes, range),
  ];
  if (lags.length) found.push(chart("Lag of the frontier", times, lags, seconds, range));
  return found;
}
