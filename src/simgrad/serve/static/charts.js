// What shows when a chart is pointed at: the nearest evaluation of every line.
"use strict";

for (const chart of document.querySelectorAll(".chart")) {
  const lines = JSON.parse(chart.dataset.hover);
  const svg = chart.querySelector("svg");
  const cursor = svg.querySelector(".cursor");
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  chart.append(tip);

  const nearest = (points, x) => points.reduce((best, p) => (Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best));

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const at = nearest(lines.flatMap((line) => line.points), x);
    cursor.setAttribute("x1", at[0]);
    cursor.setAttribute("x2", at[0]);
    cursor.setAttribute("visibility", "visible");
    const head = document.createElement("div");
    head.textContent = `${chart.dataset.x} ${Number(at[2].toPrecision(4))}`;
    const list = document.createElement("ul");
    const rows = lines
      .map((line) => [line, nearest(line.points, at[0])])
      .filter(([, point]) => Math.abs(point[0] - at[0]) < 1)
      .sort((a, b) => b[1][3] - a[1][3]);
    for (const [line, point] of rows) {
      const row = document.createElement("li");
      row.className = `c${line.colour}`;
      row.textContent = `${line.label}: ${Number(point[3].toPrecision(5))}`;
      list.append(row);
    }
    tip.replaceChildren(head, list);
    tip.hidden = false;
    const left = (at[0] / svg.viewBox.baseVal.width) * box.width;
    tip.style.left = left > box.width / 2 ? "" : `${left + 12}px`;
    tip.style.right = left > box.width / 2 ? `${box.width - left + 12}px` : "";
    tip.style.top = "8px";
  });
  svg.addEventListener("pointerleave", () => {
    tip.hidden = true;
    cursor.setAttribute("visibility", "hidden");
  });
}
