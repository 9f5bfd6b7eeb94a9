// The triplet diagram: how hard an objective pulls or pushes over (s+, s-), and real triplets on it.
"use strict";

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// From the card's colour to a deep blue, by way of teal.
function heat(share) {
  const stops = dark.matches
    ? [[28, 33, 37], [32, 84, 104], [70, 168, 160], [222, 240, 190]]
    : [[252, 252, 250], [178, 219, 208], [74, 150, 168], [32, 64, 110]];
  const place = Math.min(1, Math.max(0, share)) * (stops.length - 1);
  const k = Math.min(stops.length - 2, Math.floor(place));
  return stops[k].map((c, i) => Math.round(c + (stops[k + 1][i] - c) * (place - k)));
}

function drawTriplets(holder, field, phases, kind) {
  const canvas = holder.querySelector("canvas");
  const ratio = window.devicePixelRatio || 1;
  const side = Math.max(200, holder.clientWidth);
  const [left, bottom, top, right] = [58, 40, 8, 10];
  canvas.width = side * ratio;
  canvas.height = (side - 20) * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const [width, height] = [side - left - right, side - 20 - top - bottom];
  const grid = field[kind];
  const most = Math.max(1e-12, ...grid.flat().map(Math.abs));
  const n = grid.length;
  const picture = new ImageData(n, n);
  grid.forEach((row, y) => row.forEach((value, x) => {
    picture.data.set([...heat(Math.abs(value) / most), 255], 4 * ((n - 1 - y) * n + x));
  }));
  const small = document.createElement("canvas");
  small.width = small.height = n;
  small.getContext("2d").putImageData(picture, 0, 0);
  context.imageSmoothingEnabled = true;
  context.drawImage(small, left, top, width, height);

  const across = (s) => left + ((s - field.low) / (field.high - field.low)) * width;
  const down = (s) => top + height - ((s - field.low) / (field.high - field.low)) * height;
  context.strokeStyle = style("--soft");
  context.globalAlpha = 0.5;
  context.setLineDash([4, 4]);
  context.beginPath();
  context.moveTo(across(field.low), down(field.low));
  context.lineTo(across(field.high), down(field.high));
  context.stroke();
  context.setLineDash([]);
  context.globalAlpha = 1;

  const colours = { batch: "--c1", early: "--c7", middle: "--c4", late: "--c1" };
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  for (const [phase, points] of Object.entries(phases)) {
    context.fillStyle = style(colours[phase] || "--c3");
    context.strokeStyle = style("--card");
    context.globalAlpha = phase === "batch" ? 1 : 0.65;
    const radius = phase === "batch" ? 3.6 : 2;
    for (const [a, b] of points) {
      context.beginPath();
      context.arc(across(a), down(b), radius, 0, 7);
      context.fill();
      if (phase === "batch") context.stroke();
    }
  }
  context.restore();
  context.fillStyle = style("--soft");
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "center";
  const step = field.high - field.low > 1.05 ? 0.4 : 0.2;
  for (let s = Math.ceil(field.low / step - 1e-9) * step; s <= field.high + 1e-9; s += step) {
    const label = String(Number(s.toFixed(2)));
    context.fillText(label, Math.min(across(s), side - 14), top + height + 16);
    context.textAlign = "right";
    context.fillText(label, left - 7, Math.max(top + 10, down(s) + 4));
    context.textAlign = "center";
  }
  context.fillText("similarity of the positive, s+", left + width / 2, top + height + 33);
  context.save();
  context.translate(13, top + height / 2);
  context.rotate(-Math.PI / 2);
  context.fillText("similarity of the negative, s−", 0, 0);
  context.restore();
  holder.view = { field, left, top, width, height };
  hoverTriplets(holder);
}

function hoverTriplets(holder) {
  if (holder.tip) return;
  holder.tip = document.createElement("div");
  holder.tip.className = "tip";
  holder.tip.hidden = true;
  holder.append(holder.tip);
  const canvas = holder.querySelector("canvas");
  canvas.addEventListener("pointermove", (event) => {
    const { field, left, top, width, height } = holder.view;
    const box = canvas.getBoundingClientRect();
    const x = (event.clientX - box.left - left) / width;
    const y = 1 - (event.clientY - box.top - top) / height;
    holder.tip.hidden = x < 0 || x > 1 || y < 0 || y > 1;
    if (holder.tip.hidden) return;
    const n = field.push.length;
    const [i, k] = [Math.round(y * (n - 1)), Math.round(x * (n - 1))];
    const s = (share) => (field.low + share * (field.high - field.low)).toFixed(2);
    holder.tip.textContent = `s+ ${s(x)}, s− ${s(y)}: pull ${Number(field.pull[i][k].toPrecision(3))}, push ${Number(field.push[i][k].toPrecision(3))}`;
    holder.tip.style.left = x < 0.5 ? `${event.clientX - box.left + 14}px` : "";
    holder.tip.style.right = x < 0.5 ? "" : `${box.right - event.clientX + 14}px`;
    holder.tip.style.top = `${event.clientY - box.top + 12}px`;
  });
  canvas.addEventListener("pointerleave", () => { holder.tip.hidden = true; });
}

for (const holder of document.querySelectorAll(".diagram[data-source]")) {
  fetch(holder.dataset.source)
    .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(String(answer.status)))))
    .then((found) => {
      const draw = () => drawTriplets(holder, found.field, found.phases, "push");
      draw();
      window.addEventListener("resize", draw);
      dark.addEventListener("change", draw);
      const names = Object.keys(found.phases);
      if (names.length) {
        const keys = { early: "c7", middle: "c4", late: "c1" };
        const legend = document.createElement("ul");
        legend.className = "legend";
        for (const name of names) {
          const item = document.createElement("li");
          item.className = keys[name] || "c3";
          item.textContent = name;
          legend.append(item);
        }
        const told = document.createElement("li");
        told.className = "axis";
        told.textContent = "in training";
        legend.append(told);
        holder.after(legend);
      }
    })
    .catch(() => { holder.textContent = "The diagram could not be drawn."; });
}
