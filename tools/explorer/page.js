"use strict";
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const GRAPH = "graph: ", KERNEL = "kernel: ";
// What is picked: nodes, and the kernel whose stages columns show.
const state = { nodes: new Set(), kernel: null, columns: [] };

function element(tag, text, parent, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name !== undefined) made.className = name;
  if (parent !== undefined) parent.append(made);
  return made;
}

const microseconds = (number) => (number === null ? null : `${number.toFixed(number < 10 ? 2 : 1)} µs`);
const bytes = (number) => {
  if (number === null) return null;
  for (const unit of ["B", "KiB", "MiB"]) {
    if (number < 1024) return `${Number.isInteger(number) ? number : number.toFixed(1)} ${unit}`;
    number /= 1024;
  }
  return `${number.toFixed(1)} GiB`;
};

// The calls that compute a node, and the kernel of the first one.
const callsOf = data.nodes.map(() => []);
data.calls.forEach((call, i) => call.nodes.forEach((node) => callsOf[node].push(i)));
const kernelNumbers = new Map(data.kernels.map((kernel, i) => [kernel.name, i]));
const kernelOf = (node) => {
  if (callsOf[node].length) return data.calls[callsOf[node][0]].kernel;
  const name = data.nodes[node].kernels[0];
  return name === undefined ? null : kernelNumbers.get(name);
};

function stageOf(column) {
  if (column.kind === GRAPH) return data.graph.find((stage) => stage.title === column.title);
  if (state.kernel === null) return undefined;
  // A pass that did not change this kernel left it as the one before did.
  const wanted = kernelTitles.indexOf(column.title);
  const stages = data.kernels[state.kernel].stages;
  return stages.filter((stage) => kernelTitles.indexOf(stage.title) <= wanted).pop() ?? stages[0];
}

// All kernels end in the same forms of code, and each pass changed only some: stages are ordered from their end.
const fromEnd = new Map();
for (const { stages } of data.kernels) {
  stages.forEach(({ title }, i) => fromEnd.set(title, Math.max(fromEnd.get(title) ?? 0, stages.length - i)));
}
const kernelTitles = [...fromEnd.keys()].sort((a, b) => fromEnd.get(b) - fromEnd.get(a));
const titles = (kind) => (kind === GRAPH ? data.graph.map((stage) => stage.title) : kernelTitles);

function addColumn(kind, title) {
  const box = element("div", undefined, $("columns"), "column");
  const select = element("select", undefined, element("div", undefined, box));
  select.setAttribute("aria-label", "stage");
  for (const group of [GRAPH, KERNEL]) {
    const options = element("optgroup", undefined, select);
    options.label = group === GRAPH ? "the graph" : "the kernel";
    for (const each of titles(group)) {
      const option = element("option", group + each, options);
      option.value = group + each;
    }
  }
  const column = { kind, title, box, select, lines: element("div", undefined, box, "lines") };
  select.value = kind + title;
  select.onchange = () => {
    column.kind = select.value.startsWith(GRAPH) ? GRAPH : KERNEL;
    column.title = select.value.slice(column.kind.length);
    fill(column);
    mark();
  };
  state.columns.push(column);
  fill(column);
}

function fill(column) {
  column.lines.replaceChildren();
  const stage = stageOf(column);
  column.shown = stage;
  column.rows = [];
  if (stage === undefined) {
    element("div", "pick a node: its kernel is shown here", column.lines, "soft");
    return;
  }
  stage.text.split("\n").forEach((text, i) => {
    const nodes = stage.nodes[i] ?? [];
    const row = element("div", text, column.lines);
    if (nodes.length) {
      row.className = "linked";
      row.onclick = () => pick(nodes, column);
    }
    column.rows.push([row, nodes]);
  });
}

// Show what some nodes became in every column but the one in which they were picked.
function pick(nodes, from) {
  state.nodes = new Set(nodes);
  const kernels = nodes.map(kernelOf).filter((kernel) => kernel !== null);
  const kernel = kernels.includes(state.kernel) ? state.kernel : kernels[0] ?? null;
  const changed = kernel !== null && kernel !== state.kernel;
  if (changed) state.kernel = kernel;
  for (const column of state.columns) {
    if (changed && column.kind === KERNEL) fill(column);
  }
  mark(from);
  describe();
}

function mark(from) {
  document.querySelectorAll("#nodes button").forEach((button, i) => {
    const on = state.nodes.has(i);
    button.classList.toggle("on", on);
    if (on && from !== "nodes") button.scrollIntoView({ block: "nearest" });
  });
  for (const column of state.columns) {
    let first = null;
    // A kernel may compute more than what was picked; a line of it is marked for what it computes itself.
    for (const [row, nodes] of column.rows) {
      const on = nodes.some((node) => state.nodes.has(node));
      row.classList.toggle("on", on);
      if (on) first ??= row;
    }
    if (first !== null && column !== from) first.scrollIntoView({ block: "nearest" });
  }
}

function describe() {
  const detail = $("detail");
  detail.replaceChildren();
  for (const number of state.nodes) {
    const node = data.nodes[number];
    element("h2", node.name, detail);
    for (const operator of node.operators) {
      const rule = operator.rule === null ? "no rule took it" : `${operator.rule.name} [${operator.rule.target}]`;
      element("p", `${operator.operator}: ${rule}`, detail);
    }
    if (!node.operators.length) {
      element("p", node.kernels.length ? "part of what other nodes compute" : "simplified away, or its result is known", detail, "soft");
    }
    for (const at of callsOf[number]) describeCall(data.calls[at], detail);
  }
  if (state.kernel !== null && state.nodes.size) describeKernel(data.kernels[state.kernel], detail);
}

function describeCall(call, detail) {
  const facts = [
    ["time", microseconds(call.microseconds)],
    ["share", call.share === null ? null : `${(100 * call.share).toFixed(1)} %`],
    ["operations", call.flops === null ? null : call.flops.toLocaleString("en")],
    ["reads and writes at least", bytes(call.bytes)],
    ["intermediate results alive", bytes(call.live)],
  ];
  const line = element("p", undefined, detail, "call");
  element("code", `@${data.kernels[call.kernel].name}`, line);
  for (const [name, value] of facts) {
    if (value === null) continue;
    line.append(` ${name} `);
    element("b", value, line);
  }
}

function describeKernel(kernel, detail) {
  element("h2", `@${kernel.name}`, detail);
  element("p", `computes ${kernel.nodes.map((i) => data.nodes[i].name).join(", ")}`, detail, "soft");
  if (kernel.schedule !== null) {
    const { rule, declined } = kernel.schedule;
    element("p", `schedule: ${rule.name} [${rule.target}] ${rule.summary}`, detail);
    for (const each of declined) element("p", `declined: ${each.rule.name}: ${each.reason}`, detail, "soft");
  }
}

function listNodes() {
  const most = Math.max(...data.calls.map((call) => call.share ?? 0), 1e-9);
  data.nodes.forEach((node, i) => {
    const button = element("button", node.name, $("nodes"));
    const operators = node.operators.map((each) => each.operator).join(", ");
    const time = callsOf[i].reduce((sum, at) => sum + (data.calls[at].microseconds ?? 0), 0);
    const share = callsOf[i].reduce((sum, at) => sum + (data.calls[at].share ?? 0), 0);
    element("br", undefined, button);
    element("small", operators + (time ? ` ${microseconds(time)}` : ""), button);
    button.style.setProperty("--share", `${Math.min(100, (100 * share) / most)}%`);
    button.onclick = () => pick([i], "nodes");
  });
}

function search(text) {
  const wanted = text.trim().toLowerCase();
  const buttons = [...document.querySelectorAll("#nodes button")];
  let hits = 0;
  buttons.forEach((button, i) => {
    const node = data.nodes[i];
    const words = [node.name, ...node.operators.map((each) => each.operator), ...node.kernels].join(" ").toLowerCase();
    const shown = words.includes(wanted);
    button.hidden = !shown;
    button.style.display = shown ? "" : "none";
    hits += shown;
  });
  $("hits").textContent = wanted ? `${hits} of ${buttons.length}` : "";
}

for (const [name, value] of data.summary) element("span", `${name}: ${value}`, $("summary"));
listNodes();
const scheduled = kernelTitles.find((title) => title.startsWith("after schedule")) ?? kernelTitles[0];
addColumn(GRAPH, "import");
const called = data.graph.map((stage) => stage.title).filter((title) => title.startsWith("after fuse-tir"))[0];
addColumn(GRAPH, called ?? data.graph[data.graph.length - 1].title);
if (kernelTitles.length) {
  addColumn(KERNEL, scheduled);
  addColumn(KERNEL, kernelTitles[kernelTitles.length - 1]);
}
$("more").onclick = () => { addColumn(GRAPH, data.graph[0].title); mark(); };
$("fewer").onclick = () => { if (state.columns.length > 1) state.columns.pop().box.remove(); };
$("search").oninput = () => search($("search").value);
const slowest = data.calls.reduce((best, call) => ((call.share ?? 0) > (best?.share ?? -1) ? call : best), null);
if (slowest !== null && slowest.nodes.length) pick(slowest.nodes);
