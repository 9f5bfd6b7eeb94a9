// What shows when a drawing is pointed at: the nearest values of every line, or a triplet's weights.
"use strict";

function tipOf(svg) {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  svg.parentElement.classList.add("pointed");
  svg.parentElement.append(tip);
  svg.addEventListener("pointerleave", () => { tip.hidden = true; });
  return tip;
}

// Beside the pointer, on the side where there is room.
function place(tip, svg, x, y) {
  const box = svg.getBoundingClientRect();
  const outer = svg.parentElement.getBoundingClientRect();
  const left = box.left - outer.left + x * box.width;
  tip.style.left = x > 0.5 ? "" : `${left + 14}px`;
  tip.style.right = x > 0.5 ? `${outer.width - left + 14}px` : "";
  tip.style.top = `${box.top - outer.top + y * box.height + 10}px`;
}

function share(svg, event) {
  const box = svg.getBoundingClientRect();
  return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
}

function hoverLines(svg) {
  const lines = JSON.parse(svg.dataset.lines);
  const tip = tipOf(svg);
  const width = svg.viewBox.baseVal.width;
  const nearest = (points, x) => points.reduce((best, p) => (Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best));
  svg.addEventListener("pointermove", (event) => {
    const [x] = share(svg, event);
    const all = lines.flatMap(([, , points]) => points);
    if (!all.length) return;
    const at = nearest(all, x * width);
    const rows = lines
      .filter(([, , points]) => points.length)
      .map(([label, colour, points]) => [label, colour, nearest(points, at[0])])
      .filter(([, , point]) => Math.abs(point[0] - at[0]) < 1)
      .sort((a, b) => b[2][3] - a[2][3]);
    const head = document.createElement("div");
    head.textContent = `${svg.dataset.x} ${Number(at[2].toPrecision(4))}`;
    const list = document.createElement("ul");
    for (const [label, colour, point] of rows) {
      const row = document.createElement("li");
      const dot = document.createElement("span");
      dot.className = `dot k${colour}`;
      row.append(dot, `${label}: ${Number(point[3].toPrecision(5))}`);
      list.append(row);
    }
    tip.replaceChildren(head, list);
    tip.hidden = false;
    place(tip, svg, at[0] / width, 0.1);
  });
}

// `values` gives {low, high, pull, push}; for a run it is fetched when first needed.
function hoverTriplets(svg, values) {
  const [left, top, side] = svg.dataset.square.split(" ").map(Number);
  const { width, height } = svg.viewBox.baseVal;
  const tip = tipOf(svg);
  let field = null;
  svg.addEventListener("pointerenter", async () => { field = field || await values(); });
  svg.addEventListener("pointermove", (event) => {
    const [across, down] = share(svg, event);
    const x = (across * width - left) / side;
    const y = 1 - (down * height - top) / side;
    tip.hidden = !field || x < 0 || x > 1 || y < 0 || y > 1;
    if (tip.hidden) return;
    const last = field.push.length - 1;
    const [i, k] = [Math.round(y * last), Math.round(x * last)];
    const s = (part) => (field.low + part * (field.high - field.low)).toFixed(2);
    const figure = (value) => Number(value.toPrecision(3));
    tip.textContent = `positive ${s(x)}, negative ${s(y)}: pull ${figure(field.pull[i][k])}, push ${figure(field.push[i][k])}`;
    place(tip, svg, across, down);
  });
}

for (const svg of document.querySelectorAll("svg[data-lines]")) hoverLines(svg);
for (const svg of document.querySelectorAll("svg[data-source]")) {
  hoverTriplets(svg, async () => {
    const answer = await fetch(svg.dataset.source);
    return answer.ok ? (await answer.json()).field : null;
  });
}
