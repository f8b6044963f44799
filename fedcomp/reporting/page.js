"use strict";
const data = JSON.parse(document.getElementById("data").textContent);

/* Numbers as the tables write them. */
const significant = (value) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 999.5) return size < 1e7 ? Math.round(value).toLocaleString("en") : value.toExponential(2);
  return size < 1e-4 ? value.toExponential(2) : value.toPrecision(3);
};
const withDeviation = (mean, deviation) => {
  const decimals = deviation > 0 ? 1 - Number(deviation.toExponential(1).split("e")[1]) : 0;
  if (deviation <= 0 || decimals > 7) return significant(mean) + " ± " + significant(deviation);
  return mean.toFixed(Math.max(0, decimals)) + " ± " + deviation.toFixed(Math.max(0, decimals));
};
const bits = (count) => {
  const names = ["bit", "kbit", "Mbit", "Gbit", "Tbit", "Pbit", "Ebit"];
  let power = 0;
  while (Math.abs(count) >= 999.5 && power < names.length - 1) { count /= 1000; power += 1; }
  return (power === 0 ? Math.round(count) : count.toPrecision(3)) + " " + names[power];
};
const show = (value, unit) =>
  unit === "bits" ? bits(value) : unit === "percent" ? value.toFixed(2) + " %" : significant(value);
const array = (place, length) => (place < 0 ? new Array(length).fill(null) : data.arrays[place]);
const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const faded = (colour) => {
  const part = (from) => parseInt(colour.slice(from, from + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},0.14)`;
};

/* What stands under the pointer: method, place, value ± deviation, seeds. */
const hover = (panel, series, x, y, deviation) => x.map((place, i) => {
  if (y[i] === null) return "";
  const unit = panel.y.unit, beside = series.mark === "beside" ? " (dashed)" : "";
  const value = deviation[i] === null ? show(y[i], unit)
    : unit === "bits" || unit === "percent" ? show(y[i], unit) + " ± " + show(deviation[i], unit)
    : withDeviation(y[i], deviation[i]);
  return `<b>${escaped(series.label)}</b>${beside}<br>${escaped(panel.y.title)}: ${value}` +
    `<br>${escaped(panel.x.title)}: ${show(place, panel.x.unit)}<br>${series.seeds} seed${series.seeds === 1 ? "" : "s"}`;
});

/* On a logarithmic axis a band ends where there is something to show: at half the smallest mean of the panel. */
const floorOf = (panel) => {
  if (!panel.y.log) return -Infinity;
  let least = Infinity;
  for (const series of panel.series) for (const value of array(series.y, 0)) if (value > 0 && value < least) least = value;
  return least / 2;
};

const centre = (...axes) => axes.map((values) => values.reduce((sum, value) => sum + value, 0) / values.length);

const traces = (panel) => {
  const floor = floorOf(panel);
  const out = [];
  for (const series of panel.series) {
    const colour = data.colours[series.style % data.colours.length];
    const turn = Math.floor(series.style / data.colours.length);
    const x = array(series.x, 0);
    const y = array(series.y, x.length).map((value) => (panel.y.log && value <= 0 ? null : value));
    const deviation = array(series.deviation, x.length);
    const shared = { legendgroup: series.label, name: escaped(series.label) };
    if (series.mark === "line" && series.deviation >= 0) {
      const known = x.map((_, i) => i).filter((i) => y[i] !== null && deviation[i] !== null);
      out.push({
        ...shared, showlegend: false, hoverinfo: "skip", type: "scatter", mode: "lines", line: { width: 0 },
        x: [...known.map((i) => x[i]), ...known.slice().reverse().map((i) => x[i])],
        y: [...known.map((i) => y[i] + deviation[i]),
            ...known.slice().reverse().map((i) => Math.max(floor, y[i] - deviation[i]))],
        fill: "toself", fillcolor: faded(colour),
      });
    }
    for (const place of series.each) {
      out.push({ ...shared, showlegend: false, hoverinfo: "skip", type: "scatter", mode: "lines", x,
                 y: array(place, x.length), line: { color: colour, width: 0.6 }, opacity: 0.35 });
    }
    const beside = series.mark === "beside";
    const cloud = series.mark === "cloud";
    const points = series.mark === "points" || cloud;
    if (cloud) {
      const [cx, cy] = centre(x, y);
      const angles = Array.from({ length: 73 }, (_, i) => (i * Math.PI) / 36);
      out.push({ ...shared, showlegend: false, hoverinfo: "skip", type: "scatter", mode: "lines",
                 x: angles.map((angle) => cx + series.radius * Math.cos(angle)),
                 y: angles.map((angle) => cy + series.radius * Math.sin(angle)), line: { color: colour, width: 2 } });
      out.push({ ...shared, showlegend: false, type: "scatter", mode: "markers", x: [cx], y: [cy],
                 marker: { color: colour, size: 12, symbol: "cross-thin", line: { color: colour, width: 2 } },
                 hovertemplate: `<b>${escaped(series.label).replace(/%/g, "&#37;")}</b><br>mean; half end within ${significant(series.radius)}` +
                   "<extra></extra>" });
    }
    out.push({
      ...shared, x, y, type: "scatter", showlegend: !beside,
      mode: points ? "markers" : series.mark === "both" || x.length === 1 ? "lines+markers" : "lines",
      line: { color: colour, width: beside ? 1.5 : series.each.length ? 3 : 2, dash: beside ? "6px,4px" : data.dashes[turn % data.dashes.length] },
      marker: { color: colour, size: cloud ? 5 : points ? 10 : 7,
                symbol: data.markers[series.style % data.markers.length] + (turn % 2 ? "-open" : "") },
      error_y: !beside && series.mark !== "line" && series.deviation >= 0
        ? { type: "data", array: deviation, color: colour, thickness: 1, width: 3 } : undefined,
      text: hover(panel, series, x, y, deviation), hovertemplate: "%{text}<extra></extra>",
    });
  }
  for (const [label, x, y] of panel.stars)
    out.push({ x: [x], y: [y], type: "scatter", mode: "markers", name: escaped(label), showlegend: true,
               marker: { color: "#000", size: 12, symbol: "star" } });
  return out;
};

/* Ticks of a logarithmic axis in words: decades and, where there are few, their halves and fifths. */
const ticks = (panel, which) => {
  let low = Infinity, high = 0;
  for (const series of panel.series) for (const value of array(series[which], 0)) if (value > 0) {
    low = Math.min(low, value); high = Math.max(high, value);
  }
  if (high === 0) return {};
  const per = high < 6 * low ? [1, 2, 3, 4, 5, 6, 7, 8, 9] : high < 100 * low ? [1, 2, 5] : [1];
  const say = panel[which].unit === "bits" ? (tick) => bits(tick).replace(/\.0+ /, " ") : (tick) => String(+tick.toPrecision(3));
  const places = [];
  for (let decade = Math.floor(Math.log10(low)) - 1; decade <= Math.ceil(Math.log10(high)) + 1; decade += 1)
    for (const digit of per) places.push(digit * 10 ** decade);
  return { tickmode: "array", tickvals: places, ticktext: places.map(say) };
};

const axis = (panel, which) => ({
  title: { text: escaped(panel[which].title), font: { size: 13 } }, type: panel[which].log ? "log" : "linear",
  gridcolor: "#e4e4e4", zeroline: false, linecolor: "#333", ticks: "outside", automargin: true,
  ...(panel[which].log ? ticks(panel, which) : {}),
});

const layout = (panel) => ({
  margin: { l: 60, r: 20, t: panel.title ? 58 : 32, b: 50 }, hovermode: "closest", height: 458,  // below the toolbar
  title: panel.title
    ? { text: escaped(panel.title), font: { size: 14 }, x: 0.02, yref: "container", y: 1, yanchor: "top", pad: { t: 32 } }
    : undefined,
  font: { family: "system-ui, sans-serif", size: 12, color: "#333" },
  xaxis: axis(panel, "x"),
  yaxis: { ...axis(panel, "y"), ...(panel.series.some((one) => one.mark === "cloud") ? { scaleanchor: "x" } : {}) },
  legend: { orientation: "h", y: -0.2, yanchor: "top", font: { size: 11 } },
  shapes: [
    ...panel.lines.map(([, value]) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: value, y1: value,
                                         line: { color: "#888", width: 1, dash: "dash" } })),
    ...panel.marks.map((place) => ({ type: "line", yref: "paper", y0: 0, y1: 1, x0: place, x1: place,
                                     line: { color: "#888", width: 1, dash: "dot" } })),
  ],
  annotations: panel.lines.map(([label, value], i) => ({
    xref: "paper", x: 1 - 0.09 * i, xanchor: "right", y: panel.y.log ? Math.log10(value) : value, yanchor: "bottom",
    text: escaped(label), showarrow: false, font: { size: 11, color: "#666" },
  })),
});

const chart = (place, panel) => {
  const rows = Math.ceil(new Set(panel.series.map((series) => series.label)).size / 4);
  const shape = layout(panel);
  shape.height += 20 * Math.min(rows, 12);
  return Plotly.react(place, traces(panel), shape, {
    responsive: true, displaylogo: false, scrollZoom: true, modeBarButtonsToRemove: ["select2d", "lasso2d"],
  });
};

const element = (name, parent, options = {}) => parent.appendChild(Object.assign(document.createElement(name), options));

/* A section whose panels differ in setting and axes: one chart and a menu for each. */
const chosen = (section, parent) => {
  const menus = element("div", parent, { className: "menus" });
  const place = element("div", parent, { className: "chart" });
  const kinds = [
    ["on", (panel) => panel.title], ["show", (panel) => panel.y.title], ["over", (panel) => panel.x.title],
  ];
  const selects = [];
  const draw = () => {
    const fits = (panel, until) => selects.slice(0, until).every(([select, read]) => read(panel) === select.value);
    const panel = section.panels.find((one) => fits(one, selects.length)) || section.panels.find((one) => fits(one, 1));
    if (panel) chart(place, panel);
  };
  for (const [word, read] of kinds) {
    const options = [...new Set(section.panels.map(read))];
    if (options.length < 2) continue;
    const select = element("select", element("label", menus, { textContent: word + " " }));
    for (const option of options) element("option", select, { textContent: option, value: option });
    selects.push([select, read]);
    select.addEventListener("change", draw);
  }
  const over = selects.find(([, read]) => read(section.panels[0]) === section.panels[0].x.title);
  if (over && [...over[0].options].some((option) => option.value.startsWith("total bits")))
    over[0].value = [...over[0].options].find((option) => option.value.startsWith("total bits")).value;
  draw();
};

for (const section of data.sections) {
  const parent = element("section", document.getElementById("pictures"));
  element("h2", parent, { textContent: section.title });
  if (section.panels.length > 4) {
    chosen(section, parent);
  } else {
    const grid = element("div", parent, { className: "charts" });
    const places = section.panels.map(() => element("div", grid, { className: "chart" }));  // all, then each has its width
    section.panels.forEach((panel, i) => chart(places[i], panel));
  }
}

for (const table of document.querySelectorAll("table")) {
  const names = Number(table.dataset.names);
  for (const row of table.rows) [...row.cells].slice(0, names).forEach((cell) => cell.classList.add("name"));
  const heads = [...table.tHead.rows[0].cells];
  const sort = (column) => {
    const head = heads[column];
    const up = head.dataset.order !== "up";
    heads.forEach((other) => delete other.dataset.order);
    head.dataset.order = up ? "up" : "down";
    const key = (row) => row.cells[column].dataset.number ?? row.cells[column].textContent;
    const rows = [...table.tBodies[0].rows].sort((one, other) => {
      const [a, b] = [key(one), key(other)];
      if (a === "" || b === "") return (a === "") - (b === "");  // what is no number stands last either way
      const order = isNaN(a) || isNaN(b) ? a.localeCompare(b, "en", { numeric: true }) : a - b;
      return up ? order : -order;
    });
    table.tBodies[0].append(...rows);
  };
  heads.forEach((head, column) => {
    head.addEventListener("click", () => sort(column));
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(column); });
  });
}

/* Columns for which the window has no room are hidden, the least important first; the hint names them. */
const fit = (table) => {
  const box = table.parentElement, hint = box.previousElementSibling;
  const heads = [...table.tHead.rows[0].cells];
  const ranked = heads.map((head, column) => [head.dataset.rank, column]).filter(([rank]) => rank !== undefined)
    .sort(([one], [other]) => other - one).map(([, column]) => column);
  const show = (column, shown) => { for (const row of table.rows) row.cells[column].hidden = !shown; };
  const tooWide = () => box.scrollWidth > box.clientWidth + 1;
  let all = false;
  const lay = () => {
    ranked.forEach((column) => show(column, true));
    const gone = [];
    for (const column of all ? [] : ranked) {
      if (!tooWide()) break;
      show(column, false);
      gone.push(column);
    }
    const left = heads.filter((_, column) => gone.includes(column)).map((head) => head.textContent).join(", ");
    const said = [];
    if (gone.length) said.push(`Hidden, since the window is too narrow: ${left}.`);
    if (tooWide()) said.push("The table is wider than the page: scroll it sideways.");
    hint.textContent = said.join(" ");
    hint.hidden = !said.length && !all;
    if (gone.length || all) {
      const button = element("button", hint, { textContent: all ? "Show what fits" : "Show all columns" });
      button.addEventListener("click", () => { all = !all; lay(); });
    }
  };
  window.addEventListener("resize", lay);
  lay();
};
document.querySelectorAll(".hint + .wide > table").forEach(fit);
