// Progress of runs and studies, asked for again and again while the page is in view.
"use strict";

const text = (root, field, value) => {
  const element = root.querySelector(`[data-field="${field}"]`);
  if (element && element.textContent !== value) element.textContent = value;
};

const duration = (seconds) => {
  if (seconds === null) return "–";
  if (seconds < 90) return `${seconds.toFixed(0)} s`;
  return seconds < 5400 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
};

function showRun(row, run) {
  const status = row.querySelector('[data-field="status"] .status');
  const ended = run.outcome ?? run.status;
  if (status) { status.className = `status ${ended}`; status.textContent = ended === "plateau" ? "on the plateau" : ended; }
  const bar = row.querySelector("progress");
  if (bar) bar.value = run.progress;
  text(row, "epoch", `${Number(run.epoch.toPrecision(4))} / ${run.epochs}`);
  text(row, "loss", run.loss === null ? "–" : String(Number(run.loss.toPrecision(4))));
  text(row, "rsum", run.rsum === null ? "–" : run.rsum.toFixed(1) + (run.on === "val" && row.tagName === "TR" ? " val" : ""));
  text(row, "seconds", duration(run.seconds));
}

async function refresh() {
  let busy = false;
  if (!document.hidden) {
    try {
      const answer = await fetch("/api/overview");
      if (answer.ok) {
        const found = await answer.json();
        const runs = new Map(found.runs.map((run) => [run.id, run]));
        for (const row of document.querySelectorAll("[data-run]")) {
          const run = runs.get(row.dataset.run);
          if (run) showRun(row, run);
        }
        for (const study of found.studies) {
          const card = document.querySelector(`[data-study="${CSS.escape(study.id)}"]`);
          if (!card) continue;
          card.querySelector("progress").value = study.finished;
          text(card, "finished", `${study.finished} of ${study.runs} runs finished`);
          text(card, "failed", study.failed);
        }
        busy = found.runs.some((run) => run.status === "running" || run.status === "waiting");
      }
    } catch { /* the server is gone for a moment: ask again */ }
  }
  setTimeout(refresh, busy ? 2000 : 10000);
}

setTimeout(refresh, 2000);
