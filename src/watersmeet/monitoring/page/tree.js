// The operator tree: rows flow from the sources to the sink, on a wide screen to the right, on a narrow one upwards.

import { h, s, count, rate, rows, lagText } from "./dom.js";

const WIDTH = 204, HEIGHT = 74, ACROSS = 62, BETWEEN = 16, INDENT = 22;

function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

// What a node shows: its name and up to two lines. The rate is that of the rows that leave it.
function lines(node, above, query) {
  if (node.kind === "sink") {
    return { title: query.targets.map((target) => `into ${target}`).join(", ") || "results", rate: null,
      texts: [`${rows(query.rows_out)} in this run`] };
  }
  if (node.is_source) {
    const side = query.operators[above.name]?.sides[node.name] ?? {};
    const lost = ["late", "quarantined"].filter((name) => side[name]).map((name) => `${count(side[name])} ${name}`);
    return { title: node.text, rate: null, texts: [`${rows(side.rows_in ?? 0)} in`, lost.join(", ")], warns: true };
  }
  const own = query.operators[node.name];
  return { title: node.name, rate: own.results_per_second,
    texts: [`${rate(own.rows_in_per_second)} in, ${rate(own.results_per_second)} out`,
      own.lag === null ? `${rows(own.state_rows)} of state` : `lag ${lagText(own.lag, own.unit)}, state ${count(own.state_rows)}`] };
}

function box(node, above, query, x, y, width) {
  const shown = lines(node, above, query);
  const kind = node.kind === "sink" ? "sink" : node.is_source ? "source" : "operator";
  const most = Math.floor((width - 20) / 7.2);
  return s("g", {}, s("title", {}, [shown.title, ...shown.texts].filter(Boolean).join("\n")),
    s("rect", { class: `box ${kind}`, x, y, width, height: HEIGHT, rx: kind === "source" ? 18 : 6 }),
    s("text", { class: "strong", x: x + 14, y: y + 24 }, cut(shown.title, most)),
    s("text", { class: "dim", x: x + 14, y: y + 43 }, cut(shown.texts[0] ?? "", most)),
    s("text", { class: shown.warns ? "warn" : "dim", x: x + 14, y: y + 61 }, cut(shown.texts[1] ?? "", most)));
}

// Thicker for more rows a second: 1.5 pixels for none, 6 for a million.
function thickness(node, query) {
  const perSecond = node.is_source ? 0 : query.operators[node.name]?.results_per_second ?? 0;
  return 1.5 + Math.min(4.5, Math.log10(1 + perSecond) * 0.75);
}

function depth(node) {
  return 1 + Math.max(0, ...node.below.map(depth));
}

function toTheRight(root, query) {
  const levels = depth(root), parts = [], edges = [];
  let next = 0;
  function place(node, above, level) {
    const x = (levels - 1 - level) * (WIDTH + ACROSS) + 2;
    const placed = node.below.map((each) => [each, place(each, node, level + 1)]);
    const y = placed.length ? (placed[0][1].y + placed.at(-1)[1].y) / 2 : next;
    if (!placed.length) next += HEIGHT + BETWEEN;
    parts.push(box(node, above, query, x, y, WIDTH));
    for (const [each, at] of placed) {
      const from = at.x + WIDTH, to = x, middle = (from + to) / 2, high = at.y + HEIGHT / 2, low = y + HEIGHT / 2;
      edges.push(s("path", { class: "edge", "stroke-width": thickness(each, query), d: `M${from} ${high}C${middle} ${high} ${middle} ${low} ${to} ${low}` }));
    }
    return { x, y };
  }
  place(root, null, 0);
  return { width: levels * (WIDTH + ACROSS) - ACROSS + 4, height: next - BETWEEN + 4, drawn: [...edges, ...parts] };
}

function upwards(root, query, width) {
  const parts = [], edges = [];
  let next = 2;
  function place(node, above, level) {
    const x = level * INDENT + 2, y = next;
    next += HEIGHT + 10;
    parts.push(box(node, above, query, x, y, Math.max(width - x - 2, 120)));
    for (const each of node.below) {
      const at = place(each, node, level + 1), bend = x + INDENT / 2;
      edges.push(s("path", { class: "edge", "stroke-width": thickness(each, query), d: `M${at.x} ${at.y + HEIGHT / 2}H${bend}V${y + HEIGHT}` }));
    }
    return { x, y };
  }
  place(root, null, 0);
  return { width, height: next - 8, drawn: [...edges, ...parts] };
}

function described(node, query, above) {
  const shown = lines(node, above, query);
  return h("li", {}, `${shown.title}: ${shown.texts.filter(Boolean).join(", ")}`,
    node.below.length ? h("ul", {}, ...node.below.map((each) => described(each, query, node))) : null);
}

// The drawing, and the same as a list for those who do not see it.
export function tree(query, width) {
  const root = { kind: "sink", name: "", below: [query.tree] };
  const wide = toTheRight(root, query);
  const found = wide.width <= width ? wide : upwards(root, query, width);
  return [
    s("svg", { width: found.width, height: found.height, viewBox: `0 0 ${found.width} ${found.height}`, "aria-hidden": "true" }, ...found.drawn),
    h("ul", { class: "hidden" }, described(root, query, null)),
  ];
}
