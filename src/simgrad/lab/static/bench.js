// The objective bench: sliders from the declarations, weights from the server, drawn here.
"use strict";

const $ = (id) => document.getElementById(id);
const declared = JSON.parse($("bench").dataset.declared);
const countLabels = JSON.parse($("bench").dataset.counts);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let result = null;
let pending = null;
let running = false;
let pair = null; // [image, caption] that is shown in detail

for (const entry of declared) {
  const option = document.createElement("option");
  option.value = option.textContent = entry.name;
  $("objective").append(option);
}
function control(parameter) {
  const label = document.createElement("label");
  label.className = "parameter";
  const name = document.createElement("span");
  name.className = "name";
  name.textContent = parameter.name;
  let input;
  if (parameter.kind === "choice") {
    input = document.createElement("select");
    for (const choice of parameter.choices) input.append(new Option(choice, choice));
    input.value = parameter.default;
  } else if (parameter.kind === "yes-no") {
    input = document.createElement("input");
    input.type = "checkbox";
    input.checked = parameter.default;
    label.classList.add("flag");
  } else if (parameter.kind === "number") {
    input = document.createElement("input");
    input.type = "range";
    [input.min, input.max, input.step] = [parameter.low, parameter.high, parameter.step];
    input.value = parameter.default;
    const shown = document.createElement("output");
    shown.textContent = input.value;
    input.addEventListener("input", () => { shown.textContent = input.value; });
    name.append(shown);
  } else {
    input = document.createElement("input");
    input.type = "text";
    input.value = parameter.default ?? "none";
  }
  input.id = `p-${parameter.name}`;
  input.dataset.parameter = parameter.name;
  input.dataset.kind = parameter.kind;
  input.addEventListener("input", ask);
  label.title = parameter.description;
  const told = document.createElement("small");
  told.textContent = parameter.description;
  label.append(...(parameter.kind === "yes-no" ? [input, name] : [name, input, told]));
  return label;
}

function choose() {
  const entry = declared.find((one) => one.name === $("objective").value);
  $("about").textContent = `${entry.description} (${entry.paper})`;
  $("parameters").replaceChildren(...entry.parameters.map(control));
  ask();
}

function request() {
  const parameters = {};
  for (const input of document.querySelectorAll("[data-parameter]")) {
    const { parameter, kind } = input.dataset;
    parameters[parameter] = kind === "yes-no" ? input.checked : kind === "number" ? Number(input.value) : input.value;
  }
  return {
    objective: $("objective").value,
    parameters,
    run: $("run").value || null,
    size: Math.min(64, Math.max(2, Number($("size").value) || 16)),
    seed: Math.max(0, Math.floor(Number($("seed").value) || 0)),
  };
}

// One request at a time; the latest position of the sliders is what is asked next.
async function ask() {
  pending = request();
  if (running) return;
  running = true;
  while (pending) {
    const body = JSON.stringify(pending);
    pending = null;
    try {
      const answer = await fetch("/api/bench", { method: "POST", body, headers: { "content-type": "application/json" } });
      const found = await answer.json();
      $("problem").hidden = answer.ok;
      if (answer.ok) { result = found; draw(); } else { $("problem").textContent = found.detail; }
    } catch {
      $("problem").hidden = false;
      $("problem").textContent = "The server does not answer.";
    }
  }
  running = false;
}

function shown() {
  const way = $("way").value;
  if (way !== "both") return result[way];
  return result.i2t.map((row, i) => row.map((value, k) => value + result.t2i[i][k]));
}

// Blue pulls, orange pushes, the ground is zero.
function diverging(share) {
  const ground = dark.matches ? [34, 40, 45] : [246, 246, 243];
  const end = share < 0 ? (dark.matches ? [93, 180, 240] : [0, 104, 168]) : (dark.matches ? [255, 147, 81] : [184, 71, 0]);
  const by = Math.sqrt(Math.min(1, Math.abs(share))); // small weights stay visible
  return ground.map((c, i) => Math.round(c + (end[i] - c) * by));
}

function draw() {
  $("spec").textContent = result.objective;
  const grid = shown();
  const n = grid.length;
  const most = Math.max(1e-12, ...grid.flat().map(Math.abs));
  const canvas = $("weights");
  const cell = Math.max(6, Math.floor(640 / n));
  canvas.width = canvas.height = cell * n;
  const context = canvas.getContext("2d");
  grid.forEach((row, i) => row.forEach((value, k) => {
    context.fillStyle = `rgb(${diverging(value / most).join(",")})`;
    context.fillRect(k * cell, i * cell, cell - 1, cell - 1);
  }));
  if (!pair || Math.max(...pair) >= n) pair = strongest(grid);
  context.strokeStyle = style("--ink");
  context.lineWidth = Math.max(2, cell / 14);
  context.strokeRect(pair[1] * cell, pair[0] * cell, cell - 1, cell - 1);
  drawScale();
  showPair();
  drawTriplet();
  counts();
}

// Drawn by the server, whose texts are escaped; the values are for the pointer.
function drawTriplet() {
  $("triplet").innerHTML = result.drawn[$("kind").value];
  const svg = $("triplet").querySelector("svg");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `triplet diagram of ${result.objective}`);
  const { field } = result;
  hoverTriplets(svg, async () => field);
}

function drawScale() {
  const canvas = $("scale");
  canvas.width = 200;
  canvas.height = 1;
  const context = canvas.getContext("2d");
  for (let x = 0; x < 200; x++) {
    context.fillStyle = `rgb(${diverging(x / 99.5 - 1).join(",")})`;
    context.fillRect(x, 0, 1, 1);
  }
}

function counts() {
  const rows = [["loss", result.value === null ? "–" : Number(result.value.toPrecision(4)), ""]];
  for (const [key, { label, meaning, share }] of Object.entries(countLabels)) {
    const [i, t] = ["i2t", "t2i"].map((way) => result.attention[way]?.[key]);
    const figure = (v) => (v === null || v === undefined ? "–" : share ? `${(100 * v).toFixed(0)}%` : v.toFixed(1));
    rows.push([label, `images ${figure(i)}, captions ${figure(t)}`, meaning]);
  }
  $("counts").replaceChildren(...rows.map(([name, value, meaning]) => {
    const row = document.createElement("div");
    row.title = meaning;
    const term = document.createElement("dt");
    const told = document.createElement("dd");
    term.textContent = name;
    told.textContent = value;
    row.append(term, told);
    return row;
  }));
}

// The negative that is pushed hardest, to begin with.
function strongest(grid) {
  let found = [0, grid.length > 1 ? 1 : 0];
  grid.forEach((row, i) => row.forEach((value, k) => {
    if (i !== k && value > grid[found[0]][found[1]]) found = [i, k];
  }));
  return found;
}

function point(event) {
  if (!result) return;
  const box = $("weights").getBoundingClientRect();
  const n = result.images.length;
  const place = (share) => Math.min(n - 1, Math.max(0, Math.floor(share * n)));
  pair = [place((event.clientY - box.top) / box.height), place((event.clientX - box.left) / box.width)];
  draw();
}

function showPair() {
  const [i, k] = pair;
  const parts = [];
  if (result.images[i].picture) {
    const picture = document.createElement("img");
    picture.src = `${result.images[i].picture}?side=96`;
    picture.alt = result.images[i].name;
    parts.push(picture);
  }
  const words = document.createElement("div");
  const lines = [
    ["", result.captions[k]],
    ["meta", i === k ? "its own caption" : `caption of ${result.images[k].name}`],
    ["meta", `similarity ${result.similarities[i][k].toFixed(3)}; weight ${result.i2t[i][k].toFixed(4)} as image query, ${result.t2i[i][k].toFixed(4)} as caption query`],
  ];
  for (const [kind, line] of lines) {
    const paragraph = document.createElement("p");
    paragraph.className = kind;
    paragraph.textContent = line;
    words.append(paragraph);
  }
  $("pair").replaceChildren(...parts, words);
}

// The pair with the keyboard.
function step(event) {
  const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!by || !result) return;
  event.preventDefault();
  const most = result.images.length - 1;
  pair = pair.map((value, i) => Math.min(most, Math.max(0, value + by[i])));
  draw();
}

$("objective").addEventListener("change", choose);
for (const id of ["run", "size", "seed"]) $(id).addEventListener("change", ask);
for (const id of ["way", "kind"]) $(id).addEventListener("change", () => result && draw());
$("controls").addEventListener("submit", (event) => event.preventDefault());
$("weights").addEventListener("pointermove", point);
$("weights").addEventListener("pointerdown", point);
$("weights").addEventListener("keydown", step);
window.addEventListener("resize", () => result && draw());
dark.addEventListener("change", () => result && draw());
choose();
