"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
// Colours that people with any kind of colour vision tell apart (Okabe, Ito); the last one is what nobody took.
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"];
const GREY = "#8a94a3";
const last = data.targets[data.targets.length - 1];
const colour = {};
data.targets.forEach((name, i) => { colour[name] = i === data.targets.length - 1 ? GREY : PALETTE[i % PALETTE.length]; });
const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
const shown = (target) => target || "nobody";
const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const state = { level: data.first, zoom: 1, picked: null, boxOf: [] };

function totals() {
  const { titles, rows } = data.totals;
  const cell = (tag, text) => `<${tag}>${text}</${tag}>`;
  const head = titles.map((t) => cell("th", escaped(t))).join("");
  const body = rows.map((row, i) => {
    const dot = `<span class="dot" style="background:${colour[data.targets[i]]}"></span>`;
    return `<tr>${titles.map((_, k) => cell("td", (k ? "" : dot) + escaped(row[k] ?? ""))).join("")}</tr>`;
  }).join("");
  $("totals").innerHTML = `<tr>${head}</tr>${body}`;
  const whole = data.shares.reduce((sum, n) => sum + (n || 0), 0) || 1;
  $("bar").innerHTML = data.targets.map((name, i) =>
    `<span title="${escaped(shown(name))}" style="width:${(100 * (data.shares[i] || 0)) / whole}%;background:${colour[name]}"></span>`).join("");
}

function path(level, edge) {
  const from = level.boxes[edge[0]], to = level.boxes[edge[1]];
  const points = [[from[0] + from[2] / 2, from[1] + from[3]]];
  for (let i = 2; i < edge.length; i += 2) points.push([edge[i], edge[i + 1]]);
  points.push([to[0] + to[2] / 2, to[1]]);
  let text = `M${points[0]}`;
  for (let i = 1; i < points.length; i++) {
    const [x, y] = points[i - 1], [u, v] = points[i], half = (y + v) / 2;
    text += `C${x},${half} ${u},${half} ${u},${v}`;
  }
  return text;
}

function drawGraph() {
  const level = data.levels[state.level];
  state.boxOf = [];
  level.boxes.forEach((box, i) => box[7].forEach((node) => { state.boxOf[node] = i; }));
  const edges = level.edges.map((edge, i) => `<path class="edge" data-edge="${i}" marker-end="url(#arrow)" d="${path(level, edge)}"/>`);
  const boxes = level.boxes.map(([x, y, w, h, target, title, line], i) => {
    const paint = colour[target];
    return `<g class="box" data-box="${i}"><rect x="${x}" y="${y}" width="${w}" height="${h}" fill="${paint}" fill-opacity=".2" stroke="${paint}"/>` +
      `<text x="${x + w / 2}" y="${y + 16}">${escaped(title)}</text><text x="${x + w / 2}" y="${y + 30}">${escaped(line)}</text></g>`;
  });
  $("graph").innerHTML = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${level.width} ${level.height}">` +
    `<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="var(--edge)"/></marker></defs>` +
    `${edges.join("")}${boxes.join("")}</svg>`;
  for (const button of $("levels").children) button.setAttribute("aria-pressed", button.dataset.level === state.level);
  fit();
}

function zoom(factor) {
  const level = data.levels[state.level], graph = $("graph"), svg = graph.firstChild;
  const x = (graph.scrollLeft + graph.clientWidth / 2) / (graph.scrollWidth || 1), y = (graph.scrollTop + graph.clientHeight / 2) / (graph.scrollHeight || 1);
  state.zoom = Math.min(3, Math.max(0.05, factor));
  svg.setAttribute("width", level.width * state.zoom);
  svg.setAttribute("height", level.height * state.zoom);
  graph.scrollLeft = x * graph.scrollWidth - graph.clientWidth / 2;
  graph.scrollTop = y * graph.scrollHeight - graph.clientHeight / 2;
}

function fit() {
  // By the width: graphs of models are long. Text stays large enough to be read.
  zoom(Math.min(1, Math.max(0.55, ($("graph").clientWidth - 20) / data.levels[state.level].width)));
}

function pick(box, scroll) {
  const level = data.levels[state.level], graph = $("graph");
  graph.querySelectorAll(".picked,.in,.out").forEach((e) => e.classList.remove("picked", "in", "out"));
  state.picked = box;
  const element = graph.querySelector(`[data-box="${box}"]`);
  element.classList.add("picked");
  level.edges.forEach((edge, i) => {
    const side = edge[0] === box ? "out" : edge[1] === box ? "in" : "";
    if (side) graph.querySelector(`[data-edge="${i}"]`).classList.add(side);
  });
  if (scroll) element.scrollIntoView({ block: "center", inline: "center" });
  detail(level.boxes[box][7]);
}

function link(node) {
  const found = data.nodes[node];
  return `<a data-node="${node}">${escaped(found.name)}</a>`;
}

function attempt(tried) {
  const facts = [`${tried.depth} deep`];
  if (tried.from) facts.push(`from ${escaped(tried.from)}`);
  if (tried.at) facts.push(`at ${escaped(tried.at)}`);
  if (tried.predicate) facts.push(`predicate <code>${escaped(tried.predicate)}</code>`);
  const why = tried.matched ? "" : `<br>${escaped(tried.reason)}`;
  return `<li class="${tried.matched ? "yes" : ""}"><code>${escaped(tried.pattern)}</code> <span class="depth">${facts.join(" · ")}</span>${why}</li>`;
}

function card(node, open) {
  const target = node.target === "nobody" ? "" : node.target, by = node.pattern ? `${target}.${node.pattern}` : shown(target);
  const readers = data.nodes.filter((other) => other.reads.includes(node.id)).map((other) => other.id);
  const why = Object.entries(node.why_not).filter(([, text]) => !text.startsWith("taken by "));
  const list = (title, nodes) => nodes.length ? `<p><span class="soft">${title}</span> ${nodes.map(link).join(", ")}</p>` : "";
  return `<details class="node" style="border-left-color:${colour[target]}" ${open ? "open" : ""}>` +
    `<summary><b>${escaped(node.operator)}</b> ${escaped(node.name)}</summary>` +
    `<p><span class="soft">taken by</span> <code>${escaped(by)}</code>${node.region ? ` <span class="soft">in</span> <code>${escaped(node.region)}</code>` : ""}</p>` +
    why.map(([name, text]) => `<div class="why"><b>not on ${escaped(name)}</b>: ${escaped(text)}</div>`).join("") +
    `<p class="types">${node.operands.map(escaped).join(", ")} → ${node.results.map(escaped).join(", ")}</p>` +
    `<p class="soft">${node.flops} FLOPs · ${node.bytes === null ? "?" : node.bytes.toLocaleString("en")} bytes</p>` +
    list("reads", node.reads) + list("read by", readers) +
    (node.tried.length ? `<h2>patterns tried</h2><ul class="tried">${node.tried.map(attempt).join("")}</ul>` : "") + `</details>`;
}

function regionFacts(row) {
  // A list: six columns do not fit beside the graph.
  const facts = data.described.titles.slice(1).map((title, i) => `<dt>${escaped(title)}</dt><dd>${escaped(row[i + 1])}</dd>`).join("");
  return `<div class="region"><code>${escaped(row[0])}</code><dl>${facts}</dl></div>`;
}

function detail(nodes) {
  const aside = $("detail"), first = data.nodes[nodes[0]];
  const title = nodes.length > 1 ? `<h2>${nodes.length} operators on ${escaped(first.target)}</h2>` : `<h2>operator</h2>`;
  const region = data.regions.find((r) => r.name === first.region);
  const about = region ? `<p class="soft">${escaped(region.name)}: ${counted(region.operators, "operator")}, ${counted(region.composites, "composite")}</p>` : "";
  const described = data.described.rows.find((row) => row[0] === (first.region || "main"));
  aside.innerHTML = title + about + (described ? regionFacts(described) : "") + nodes.slice(0, 200).map((i) => card(data.nodes[i], nodes.length <= 6)).join("") +
    (nodes.length > 200 ? `<p class="soft">and ${nodes.length - 200} more: choose composites or operators above</p>` : "");
  aside.scrollTop = 0;
}

function overview() {
  const described = data.described.rows.map(regionFacts).join("");
  const returned = data.regions.filter((r) => !r.kept).map((r) => `<p><code>${escaped(r.name)}</code>, ${counted(r.operators, "operator")}: ${escaped(r.reason)}</p>`).join("");
  const apart = data.not_merged.map((m) => `<p><code>${escaped(m.producer)}</code> and <code>${escaped(m.consumer)}</code> are not one region: ${escaped(m.reason)}</p>`).join("");
  const costs = data.costs ? `<h2>${escaped(data.costs.title)}</h2><table><tr>${data.costs.titles.map((t) => `<th>${escaped(t)}</th>`).join("")}</tr>${data.costs.rows.map((row) => `<tr>${row.map((c) => `<td>${escaped(c)}</td>`).join("")}</tr>`).join("")}</table>` : "";
  $("detail").innerHTML = `<p class="soft">Click a box to see what was tried on it, and why it went where it did.</p>${costs}` +
    `<h2>regions</h2>${described}` + (returned ? `<h2>regions that were not kept</h2>${returned}` : "") + (apart ? `<h2>neighbours that are not one region</h2>${apart}` : "");
}

function search() {
  const text = $("search").value.trim().toLowerCase(), boxes = $("graph").querySelectorAll(".box");
  const hits = new Set();
  if (text) data.nodes.forEach((n) => { if (n.name.toLowerCase().includes(text) || n.operator.includes(text)) hits.add(state.boxOf[n.id]); });
  boxes.forEach((box, i) => { box.classList.toggle("hit", hits.has(i)); box.classList.toggle("dim", Boolean(text) && !hits.has(i)); });
  $("hits").textContent = text ? `${hits.size} found` : "";
  return [...hits].sort((a, b) => a - b);
}

function next(boxes) {
  if (boxes.length) pick(boxes.find((box) => state.picked === null || box > state.picked) ?? boxes[0], true);
}

for (const level of Object.keys(data.levels)) {
  const button = document.createElement("button");
  button.textContent = `${level} (${data.levels[level].boxes.length})`;
  button.dataset.level = level;
  button.onclick = () => {
    const node = state.picked === null ? null : data.levels[state.level].boxes[state.picked][7][0];
    state.level = level; state.picked = null;
    drawGraph(); search();
    if (node !== null) pick(state.boxOf[node], true);
  };
  $("levels").append(button);
}
document.addEventListener("click", (event) => {
  const node = event.target.closest("[data-node]"), box = event.target.closest("[data-box]");
  if (node) pick(state.boxOf[Number(node.dataset.node)], true);
  else if (box) pick(Number(box.dataset.box), false);
});
$("larger").onclick = () => zoom(state.zoom * 1.25);
$("smaller").onclick = () => zoom(state.zoom / 1.25);
$("fit").onclick = fit;
$("left").onclick = () => next(data.levels[state.level].boxes.flatMap((box, i) => (box[4] === last ? [i] : [])));
$("search").oninput = search;
$("search").onkeydown = (event) => { if (event.key === "Enter") next(search()); };
$("graph").addEventListener("wheel", (event) => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  zoom(state.zoom * (event.deltaY < 0 ? 1.1 : 1 / 1.1));
}, { passive: false });
totals();
drawGraph();
overview();
if (location.hash.startsWith("#node=")) {
  const name = decodeURIComponent(location.hash.slice(6)), found = data.nodes.find((n) => n.name === name);
  if (found) pick(state.boxOf[found.id], true);
}
