// The live page: reads status.json every two seconds and draws the queries. It changes nothing.

import { h, bytes, clock, count, lagText, many, rate, rows, span, timeText } from "./dom.js";
import { tree } from "./tree.js";
import { charts } from "./charts.js";

const PAUSE = 2000;
const STATES = { running: "▶ running", waiting: "⏸ waiting", ended: "■ ended", stopped: "■ stopped", failed: "✕ failed" };
const main = document.getElementById("main"), link = document.getElementById("link"), jump = document.getElementById("queries");
const sections = new Map();

// A section with places that are filled at every update; what is open, scrolled or focused stays so.
function section(name) {
  const id = `query-${sections.size + 1}`;
  const places = {
    pill: h("span", { class: "pill", role: "status" }), about: h("p", { class: "about" }), banner: h("div"), progress: h("div"),
    tiles: h("dl", { class: "tiles" }), tree: h("div", { class: "card scroll" }), charts: h("div", { class: "charts" }),
    operators: h("div"), errors: h("div"), explain: h("pre"),
  };
  const element = h("section", { class: "query", "aria-labelledby": id },
    h("div", { class: "title" }, h("h2", { id }, name), places.pill), places.about, places.banner, places.progress, places.tiles,
    h("h3", {}, "Operators, and how rows flow"), places.tree, h("h3", {}, "The last hour"), places.charts,
    h("h3", {}, "Each operator"), places.operators, places.errors,
    h("details", { class: "card" }, h("summary", {}, "EXPLAIN"), places.explain));
  jump.append(h("a", { href: `#${id}` }, name));
  jump.hidden = sections.size === 0;
  return { element, places, cards: new Map() };
}

function tile(name, value, more, alarm) {
  return h("div", { class: alarm ? "tile alarm" : "tile" }, h("dt", {}, name), h("dd", {}, value, h("small", {}, more ?? "")));
}

function tiles(query, now) {
  const last = Object.values(query.operators)[0];
  const batch = query.last_batch, unit = query.real_time ? "epoch" : "batch";
  return [
    tile("Rows in", count(query.rows_in), "since the query began"),
    tile("Rows out", count(query.rows_out), last ? `${rate(last.results_per_second)} of late` : ""),
    tile(`Last ${unit}`, batch ? span(batch.seconds) : "none yet", batch ? `number ${batch.number}, ${span(Math.max((query.ended ?? now) - batch.ended, 0))} ${query.ended ? "before the end" : "ago"}` : `the first ${unit} is not done`),
    tile("State", bytes(query.state_bytes), rows(query.state_rows)),
    tile("Late", count(query.late), "rows behind the frontier", query.late > 0),
    tile("Quarantined", count(query.quarantined), "rows that were not readable", query.quarantined > 0),
    tile("Evicted", count(query.evicted), "rows over a limit", query.evicted > 0),
  ];
}

const figure = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

function figures(own) {
  const found = [
    figure("Rows in", `${count(own.rows_in)} (${rate(own.rows_in_per_second)})`),
    figure("Results", `${count(own.results)} (${rate(own.results_per_second)})`),
    figure("Frontier", timeText(own.frontier, own.unit)),
    figure("Lag behind the newest row", lagText(own.lag, own.unit)),
    figure("State", `${rows(own.state_rows)}, ${bytes(own.state_bytes)}${own.disk_bytes ? `, ${bytes(own.disk_bytes)} of it in files` : ""}`),
    figure("Hot keys", own.hot_keys === null ? "none spread" : count(own.hot_keys)),
    figure("Steps", own.step_p50 === null ? "none yet" : `${count(own.steps)}: half within ${span(own.step_p50)}, 95% within ${span(own.step_p95)}`),
    figure("Largest worker", own.worker_bytes ? bytes(own.worker_bytes) : "not known yet"),
  ];
  return found;
}

const COLUMNS = [["rows in", "rows_in"], ["used", "used"], ["filtered", "filtered"], ["late", "late", true], ["reopened", "reopened"],
  ["quarantined", "quarantined", true], ["expired", "expired"], ["evicted", "evicted", true], ["state rows", "state_rows"], ["state", "state_bytes"], ["frontier", "frontier"]];

function cell(side, field, warns, unit) {
  const value = side[field];
  if (field === "evicted") {
    const reasons = Object.entries(value);
    return h("td", { class: reasons.length ? "warn" : null }, reasons.map(([reason, number]) => `${count(number)} by ${reason}`).join(", ") || "0");
  }
  if (field === "frontier") return h("td", {}, value === null ? "–" : timeText(value, unit));
  if (value === null) return h("td", {}, "–");
  return h("td", { class: warns && value > 0 ? "warn" : null }, field === "state_bytes" ? bytes(value) : count(value));
}

function sideTable(name, own) {
  const sides = Object.entries(own.sides);
  const shown = COLUMNS.filter(([, field]) => sides.some(([, side]) => (field === "evicted" ? Object.keys(side.evicted).length : side[field] !== null)));
  return h("table", {}, h("caption", {}, `Inputs and state of ${name}, since the query began`),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "input"), ...shown.map(([title]) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, ...sides.map(([label, side]) => h("tr", {}, h("th", { scope: "row" }, label || "results"), ...shown.map(([, field, warns]) => cell(side, field, warns, own.unit))))));
}

function operators(found, query) {
  for (const [name, own] of Object.entries(query.operators)) {
    let card = found.cards.get(name);
    if (!card) {
      card = { figures: h("dl", { class: "figures" }), table: h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Inputs and state of ${name}` }) };
      found.cards.set(name, card);
      found.places.operators.append(h("div", { class: "card" }, h("h4", {}, name), h("p", {}, own.description), card.figures, card.table));
    }
    card.figures.replaceChildren(...figures(own));
    card.table.replaceChildren(...(Object.keys(own.sides).length ? [sideTable(name, own)] : []));
  }
}

function banner(query) {
  if (query.state === "waiting") return [h("p", { class: "banner waiting", role: "alert" }, `⏸ ${query.waiting}. It goes on by itself when the other system answers.`)];
  const last = query.failures.at(-1);
  if (query.state === "failed") return [h("p", { class: "banner failed", role: "alert" }, `✕ ${last ? last.message : "The query has failed."}`)];
  return [];
}

// A bar of a bounded run, and in words what was read; without a bar where it is not known how much is done.
function progress(query) {
  const found = query.progress;
  if (!found) return [];
  const bar = found.fraction === null ? [] : [h("progress", { max: 1, value: found.fraction, "aria-label": `How much of ${query.name} is done` })];
  return [h("div", { class: "progress" }, ...bar, h("p", {}, found.text))];
}

function errors(query) {
  if (!query.failures.length) return [];
  return [h("h3", {}, "Last errors"), h("ul", { class: "card errors" }, ...query.failures.toReversed().map((each) =>
    h("li", {}, h("p", {}, `${clock(each.time)}, ${each.kind}; ${each.went_on ? "the query went on" : "the query ended"}`), h("pre", {}, each.message))))];
}

function about(query, now) {
  const ran = span((query.ended ?? now) - query.started);
  const mode = query.real_time ? "in real time" : query.mode === "continuous" ? "in micro-batches" : `in micro-batches, ${query.mode}`;
  return `${query.ended ? "ran" : "has run"} for ${ran} ${mode}, ${many(query.batches, query.real_time ? "epoch" : "batch")}; checkpoint ${query.checkpoint}`;
}

function draw(query, now) {
  if (!sections.has(query.name)) {
    if (!sections.size) main.replaceChildren();
    sections.set(query.name, section(query.name));
    main.append(sections.get(query.name).element);
  }
  const found = sections.get(query.name), places = found.places;
  places.pill.className = `pill ${query.state}`;
  if (places.pill.textContent !== STATES[query.state]) {
    places.pill.textContent = STATES[query.state];
    places.banner.replaceChildren(...banner(query));
  } else if (query.state === "waiting") places.banner.firstChild.textContent = banner(query)[0].textContent;
  places.about.textContent = about(query, now);
  places.progress.replaceChildren(...progress(query));
  places.tiles.replaceChildren(...tiles(query, now));
  places.tree.replaceChildren(...tree(query, places.tree.clientWidth - 34));
  places.charts.replaceChildren(...charts(query, now, places.charts.firstChild ? places.charts.firstChild.clientWidth - 30 : 460));
  operators(found, query);
  places.errors.replaceChildren(...errors(query));
  if (places.explain.textContent !== query.explain) places.explain.textContent = query.explain;
}

async function update() {
  try {
    const answer = await fetch("status.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(await answer.text());
    const status = await answer.json();
    for (const query of status.queries) draw(query, query.time);
    const running = status.queries.filter((query) => !query.ended).length;
    document.title = `${running} running – Watersmeet`;
    link.textContent = `live, as of ${clock(status.time)}`;
    link.dataset.time = clock(status.time);
    link.classList.remove("lost");
    main.classList.remove("stale");
  } catch (error) {
    link.textContent = `no answer: the run has ended, or cannot be reached${link.dataset.time ? `; as of ${link.dataset.time}` : ""}`;
    link.classList.add("lost");
    main.classList.add("stale");
  }
  setTimeout(update, PAUSE);
}

update();
