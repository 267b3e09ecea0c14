"use strict";
// Draws what the page's data holds: a tree of kernels, tables, memory over time, passes and code. All texts are set as text.
const make = (tag, attributes = {}, ...children) => {
  const svg = ["svg", "path", "rect", "text", "line", "title", "polyline"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
};
const bytes = (n) => n >= 1048576 ? `${(n / 1048576).toFixed(2)} MiB` : n >= 1024 ? `${(n / 1024).toFixed(1)} KiB` : `${n} B`;
const milli = (ms) => ms === undefined || ms === null ? "" : ms >= 100 ? ms.toFixed(1) : ms.toFixed(4);
const share = (x) => x === undefined || x === null ? "" : `${(100 * x).toFixed(1)} %`;
const place = (id) => document.getElementById(id);

async function read(id) {
  const text = atob(place(id).textContent);
  const raw = Uint8Array.from(text, (c) => c.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// ---- the tree: groups, kernels, operators ----
const MOST_OPEN = 60, CHUNK = 100, LANE = 7, MOST_LANES = 12;
let data, rows = [], selected = -1, open = new Set();

function groups(nodes) {
  let runs = [];
  nodes.forEach((node, index) => {
    const last = runs[runs.length - 1];
    if (last && node.group && last.key === node.group) last.members.push(index);
    else runs.push({ key: node.group, label: node.group, members: [index] });
  });
  runs = runs.map((run) => run.members.length > 1 ? run : { ...run, label: "" });
  if (runs.length <= 3 * CHUNK) return runs;
  const chunks = [];
  for (let start = 0; start < nodes.length; start += CHUNK) {
    const end = Math.min(start + CHUNK, nodes.length);
    chunks.push({ label: `kernels ${start + 1} to ${end}`, members: Array.from({ length: end - start }, (_, i) => start + i) });
  }
  return chunks;
}

function visibleRows() {
  const result = [];
  data.runs.forEach((run, number) => {
    const key = `g${number}`, folded = run.label && !open.has(key);
    if (run.label) result.push({ key, depth: 0, run, folds: true, covers: folded ? run.members : [] });
    if (folded) return;
    for (const index of run.members) {
      const node = data.nodes[index], own = `n${index}`;
      result.push({ key: own, depth: run.label ? 1 : 0, index, node, folds: node.operators.length > 0, covers: [index] });
      if (open.has(own)) for (const operator of node.operators)
        result.push({ key: `${own}o`, depth: run.label ? 2 : 1, operator, covers: [] });
    }
  });
  return result;
}

// A lane for each edge that passes rows, as far as there are lanes; edges between neighbours need none.
function lanesOf(rows) {
  const rowOf = new Map();
  rows.forEach((row, at) => row.covers.forEach((index) => rowOf.set(index, at)));
  const edges = new Map();
  data.nodes.forEach((node, index) => node.inputs.forEach((input) => {
    const from = rowOf.get(input), to = rowOf.get(index);
    if (from !== undefined && to !== undefined && to - from > 1) edges.set(`${from},${to}`, [from, to]);
  }));
  const free = [], kept = [];
  for (const [from, to] of [...edges.values()].sort((a, b) => a[0] - b[0] || a[1] - b[1])) {
    let lane = free.findIndex((until) => until <= from);
    if (lane < 0) lane = free.length;
    if (lane >= MOST_LANES) continue;
    free[lane] = to;
    kept.push([from, to, lane]);
  }
  return kept;
}

function drawTree() {
  const tree = place("tree");
  rows = visibleRows();
  const height = 22, edges = lanesOf(rows), width = LANE * Math.min(MOST_LANES, 1 + Math.max(-1, ...edges.map((e) => e[2]))) + 4;
  const most = Math.max(1e-12, ...data.nodes.map((node) => node.ms || 0));
  const elements = rows.map((row, at) => rowElement(row, at, width, most));
  const lines = make("svg", { width, height: rows.length * height, style: "position:absolute;left:0;top:0;pointer-events:none" });
  for (const [from, to, lane] of edges) {
    const x = width - 2 - LANE * (lane + 1), y = from * height + height / 2, end = to * height + height / 2;
    lines.append(make("path", { class: "lane", d: `M${width},${y}C${x},${y} ${x},${y} ${x},${y + height / 2}V${end - height / 2}C${x},${end} ${x},${end} ${width},${end}` }));
  }
  tree.replaceChildren(lines, ...elements);
  mark();
}

function rowElement(row, at, width, most) {
  const sign = row.folds ? (open.has(row.key) ? "▾" : "▸") : "";
  const element = make("div", { class: `row${row.operator ? " op" : ""}`, role: "treeitem", "aria-level": row.depth + 1, style: `padding-left:${width + 14 * row.depth}px` });
  if (row.folds) element.setAttribute("aria-expanded", open.has(row.key));
  const part = (kind, text) => make("span", { class: kind }, text);
  element.append(part("fold", sign));
  if (row.operator) element.append(part("what", row.operator[0]), part("shape", row.operator[1]));
  else {
    const nodes = row.run ? row.run.members.map((i) => data.nodes[i]) : [row.node];
    const ms = nodes.some((n) => n.ms !== undefined) ? nodes.reduce((sum, n) => sum + (n.ms || 0), 0) : undefined;
    const name = row.run ? `${row.run.label}  (${nodes.length} kernels)` : row.node.name;
    const where = [...new Set(nodes.map((n) => n.region || n.device))].join(", ");
    element.append(part("what", name), part("shape", row.node ? row.node.shape : ""), part(nodes.some((n) => n.region) ? "where region" : "where", where));
    if (ms !== undefined) element.append(part("ms", `${milli(ms)} ms`), make("span", { class: "meter" }, make("i", { style: `width:${Math.min(80, 80 * ms / most).toFixed(0)}px` })));
    if (row.node) element.title = [...row.node.sources, row.node.implementation].filter(Boolean).join("\n");
  }
  element.addEventListener("click", () => { select(at); if (row.folds) toggle(row); });
  return element;
}

function toggle(row) {
  open.has(row.key) ? open.delete(row.key) : open.add(row.key);
  drawTree();
}

function mark() {
  const row = rows[selected], own = new Set(row ? row.covers : []), from = new Set(), to = new Set();
  for (const index of own) data.nodes[index].inputs.forEach((input) => from.add(input));
  data.nodes.forEach((node, index) => { if (node.inputs.some((input) => own.has(input))) to.add(index); });
  [...place("tree").querySelectorAll(".row")].forEach((element, at) => {
    const covers = rows[at].covers;
    element.classList.toggle("sel", at === selected);
    element.classList.toggle("from", at !== selected && covers.some((i) => from.has(i)));
    element.classList.toggle("to", at !== selected && covers.some((i) => to.has(i)));
  });
}

function select(at) {
  selected = Math.max(0, Math.min(rows.length - 1, at));
  mark();
  const tree = place("tree"), top = 22 * selected;
  if (top < tree.scrollTop) tree.scrollTop = top;
  if (top + 22 > tree.scrollTop + tree.clientHeight) tree.scrollTop = top + 22 - tree.clientHeight;
  const node = rows[selected] && rows[selected].node;
  if (node && data.code && data.code[node.kernel]) showCode(node.kernel);
}

function keys(event) {
  const row = rows[selected], parent = row && rows.slice(0, selected).reverse().find((other) => other.depth < row.depth);
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 };
  if (event.key in steps) select(selected + steps[event.key]);
  else if (event.key === "Enter" || event.key === " ") { if (row && row.folds) toggle(row); }
  else if (event.key === "ArrowRight") { if (row && row.folds && !open.has(row.key)) toggle(row); }
  else if (event.key === "ArrowLeft") { if (row && open.has(row.key)) toggle(row); else if (parent) select(rows.indexOf(parent)); }
  else return;
  event.preventDefault();
}

// ---- tables ----
function table(id, heads, lines) {
  const body = make("tbody"), head = make("tr"), order = { column: -1, down: true };
  const fill = () => body.replaceChildren(...lines.map((line) => {
    const row = make("tr", {}, ...line.map((cell, i) => make("td", heads[i][1] ? { class: "n" } : {}, heads[i][1] ? heads[i][1](cell) : `${cell ?? ""}`)));
    if (line.kernel) { row.dataset.kernel = line.kernel; row.style.cursor = "pointer"; row.addEventListener("click", () => showCode(line.kernel, true)); }
    return row;
  }));
  heads.forEach(([text, form], column) => {
    const cell = make("th", { "data-sort": "", tabindex: 0, ...(form ? { class: "n" } : {}) }, text);
    const sort = () => {
      order.down = order.column === column ? !order.down : Boolean(form);
      order.column = column;
      const sign = order.down ? -1 : 1;
      lines.sort((a, b) => sign * (form ? (a[column] ?? -1) - (b[column] ?? -1) : `${a[column]}`.localeCompare(`${b[column]}`)));
      fill();
    };
    cell.addEventListener("click", sort);
    cell.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
    head.append(cell);
  });
  fill();
  place(id).replaceChildren(make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), body)));
}

function drawKernels() {
  const measured = data.kernels.some((k) => k.ms !== undefined);
  const heads = [["kernel"], ["operators"], ["shapes"], ["calls", String], ...(measured ? [["ms", milli], ["of the run", share], ["of roofline", share]] : []),
    ["multiply-adds (M)", (x) => (x / 2e6).toFixed(2)], ["moved", bytes], ["computed by"], ["schedule"], ["why this schedule"]];
  table("kernel-table", heads, data.kernels.map((k) => Object.assign(
    [k.name, k.operators, k.shape, k.calls, ...(measured ? [k.ms, k.share, k.roofline] : []), k.flops, k.bytes, k.implementation, k.schedule, k.reason],
    data.code && data.code[k.kernel] ? { kernel: k.kernel } : {})));
}

// ---- memory over time ----
function drawMemory() {
  const { steps, tensors, peak } = data.memory, width = 960, height = 260;
  const top = Math.max(1, ...tensors.map((t) => t[3] + t[4])), x = (step) => width * step / (steps + 1);
  const svg = make("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  for (const [name, first, last, offset, size, device] of tensors) {
    const rect = make("rect", { x: x(first).toFixed(1), width: Math.max(.5, x(last + 1) - x(first)).toFixed(1), y: (height * (1 - (offset + size) / top)).toFixed(1),
      height: Math.max(.5, height * size / top).toFixed(1), fill: `hsl(${(first * 47) % 360} 55% 62%)`, "fill-opacity": .75 });
    rect.append(make("title", {}, `${name}\n${bytes(size)} at ${offset}, steps ${first} to ${last}, ${device}`));
    svg.append(rect);
  }
  place("memory-plot").replaceChildren(make("p", {}, `At most ${bytes(peak[0])} in use, at kernel ${peak[1] + 1}; ${bytes(top)} laid out. Across: the kernels in order; up: the address.`), svg);
}

// ---- passes ----
function drawPasses() {
  const shown = [];
  for (const pass of data.passes) {  // those in a row that change nothing are one line
    const last = shown[shown.length - 1], idle = !pass.hunks.length && !pass.unread;
    if (idle && last && last.idle && last.depth === pass.depth) { last.name += `, ${pass.name}`; last.seconds += pass.seconds; }
    else shown.push({ ...pass, idle });
  }
  place("pass-list").replaceChildren(...shown.map((pass) => {
    const count = pass.added + pass.removed;
    const line = `${(1e3 * pass.seconds).toFixed(1)} ms  ${pass.name}${count ? `  +${pass.added} −${pass.removed}` : pass.unread ? "  (changes not recorded: they took too long)" : ""}`;
    if (!pass.hunks.length) return make("div", { class: "note pass", style: `margin-left:${1.4 * pass.depth}em` }, line);
    const details = make("details", { class: "pass", style: `margin-left:${1.4 * pass.depth}em` }, make("summary", {}, line));
    const fill = () => {
      if (details.children.length > 1) return;
      details.append(make("pre", {}, ...pass.hunks.map((hunk) => make("div", { class: "hunk" },
        ...hunk.map((text) => make("span", { class: { "+": "add", "-": "del" }[text[0]] || "same" }, text))))));
      if (pass.dropped) details.append(make("p", { class: "note" }, `and ${pass.dropped} more lines`));
    };
    details.addEventListener("toggle", fill);
    details.fill = fill;
    return details;
  }));
}

// ---- code ----
let shown = "";
function showCode(kernel, scroll = false) {
  if (shown !== kernel) {
    shown = kernel;
    place("code-choice").value = kernel;
    const code = data.code[kernel], sides = { schedule: [], tir: [], asm: [] };
    const column = (name, title) => make("div", {}, make("h3", {}, title), make("pre", { class: name },
      ...(sides[name] = code[name].map((text) => make("span", {}, text)))));
    place("code-sides").replaceChildren(column("schedule", "schedule"), column("tir", "TIR"), column("asm", "assembly"));
    const linesOf = { schedule: (i) => code.scheduleOf[i], tir: (i) => [i], asm: (i) => code.asmOf[i] < 0 ? [] : [code.asmOf[i]] };
    const light = (name, at) => {
      const lines = new Set(linesOf[name](at));
      for (const side of Object.keys(sides)) {
        let first = null;
        sides[side].forEach((element, i) => {
          const hit = (side === name && i === at) || linesOf[side](i).some((line) => lines.has(line));
          element.classList.toggle("hit", hit);
          first = first ?? (hit ? element : null);
        });
        if (first && side !== name) first.parentNode.scrollTop = first.offsetTop - first.parentNode.offsetTop - 100;
      }
    };
    for (const side of Object.keys(sides)) sides[side].forEach((element, i) => {
      if (linesOf[side](i).length) { element.classList.add("linked"); element.addEventListener("click", () => light(side, i)); }
    });
  }
  if (scroll) place("code").scrollIntoView();
}

function drawCode() {
  const names = Object.keys(data.code);
  place("code-choice").replaceChildren(...names.map((name) => make("option", { value: name }, name)));
  place("code-choice").addEventListener("change", (event) => showCode(event.target.value));
  showCode(names[0]);
}

// ---- search: in the tree, opening what is folded, and in every table ----
function search(text) {
  const wanted = text.trim().toLowerCase();
  for (const row of document.querySelectorAll("tbody tr, .pass")) row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted);
  if (!data || !data.nodes || !wanted) return;
  const said = (node) => [node.name, node.kernel, node.region, node.implementation, ...node.sources, ...node.operators.map((o) => o[0])].join(" ").toLowerCase();
  const hit = data.nodes.findIndex((node) => said(node).includes(wanted));
  if (hit < 0) return;
  const group = data.runs.findIndex((run) => run.members.includes(hit));
  if (data.runs[group].label) open.add(`g${group}`);
  drawTree();
  select(rows.findIndex((row) => row.index === hit));
}

async function start() {
  const find = place("find");
  if (find) {
    find.addEventListener("input", () => search(find.value));
    document.addEventListener("keydown", (event) => { if (event.key === "/" && document.activeElement !== find) { event.preventDefault(); find.focus(); } });
  }
  if (!place("data")) return;
  data = await read("data");
  if (data.nodes) {
    data.runs = groups(data.nodes);
    if (data.nodes.length <= MOST_OPEN) data.runs.forEach((_, number) => open.add(`g${number}`));
    drawTree();
    place("tree").addEventListener("keydown", keys);
  }
  if (data.kernels) drawKernels();
  if (data.memory) drawMemory();
  if (data.passes) drawPasses();
  if (data.code) drawCode();
  window.addEventListener("beforeprint", () => document.querySelectorAll("details.pass").forEach((details) => { details.fill(); details.open = true; }));
  document.body.dataset.ready = "yes";
}
start().catch((error) => { document.body.dataset.ready = "failed"; document.body.prepend(make("p", {}, `This page's data cannot be shown: ${error}. It needs a browser of 2023 or later.`)); });
