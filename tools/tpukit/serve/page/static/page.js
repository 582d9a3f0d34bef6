// Listens for changes and draws curves. No data of the page is ever run as code.
"use strict";
(() => {
  const changed = () => {
    if (!document.hidden && !document.activeElement?.closest("#live .actions")) {
      document.body.dispatchEvent(new CustomEvent("changed"));
    }
  };
  const events = new EventSource("/events");
  events.addEventListener("changed", changed);
  setInterval(changed, 15000);

  const colours = () => ["--new", "--repeated", "--compiling", "--saving", "--making", "--hung"].map((name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim());

  const draw = (home, title, data, values) => {
    if (!values.some((one) => one.some((value) => value !== null))) return;
    const ink = getComputedStyle(document.documentElement).getPropertyValue("--soft").trim();
    const grid = getComputedStyle(document.documentElement).getPropertyValue("--edge").trim();
    const axis = { stroke: ink, grid: { stroke: grid }, ticks: { stroke: grid } };
    const palette = colours();
    const series = data.attempts.map((number, index) => ({
      label: `${title}, attempt ${number}`, stroke: palette[index % palette.length], width: 1.5, spanGaps: true,
    }));
    const box = document.createElement("div");
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", `${title} over steps, ${data.attempts.length} attempts`);
    home.append(box);
    new uPlot({
      width: Math.max(260, home.clientWidth - 8), height: 220, scales: { x: { time: false } },
      axes: [{ ...axis, label: "step", labelSize: 18 }, axis], series: [{ label: "step" }, ...series],
    }, [data.steps, ...values], box);
  };

  // The log stays at its end, where new lines come, unless it was scrolled up.
  let atEnd = true;
  document.body.addEventListener("htmx:beforeSwap", ({ target }) => {
    if (target.id === "log") atEnd = target.scrollTop + target.clientHeight >= target.scrollHeight - 4;
  });
  document.body.addEventListener("htmx:afterSwap", ({ target }) => {
    if (target.id === "log" && atEnd) target.scrollTop = target.scrollHeight;
  });

  const home = document.getElementById("curve");
  let last = "";
  const curve = async () => {
    const answer = await fetch(home.dataset.curve);
    if (!answer.ok) return;
    const text = await answer.text();
    if (text === last) return;
    last = text;
    const data = JSON.parse(text);
    if (!data.steps.length || !window.uPlot) return;
    home.replaceChildren();
    draw(home, "loss", data, data.loss);
    draw(home, "steps/s", data, data.rate);
  };
  if (home) {
    curve();
    setInterval(curve, 5000);
  }
})();
