// Elements, numbers, colours and the tooltip. Text always enters as text nodes, never as markup.
const D = JSON.parse(document.getElementById("data").textContent);
const C = D.clusters;
const $ = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}
const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e9 || (size > 0 && size < 1e-4)) return value.toExponential(2);
  return size >= 1e4 || Number.isInteger(value) ? whole.format(value) : plain.format(value);
}
const percent = (share) => (share === null ? "–" : (100 * share).toFixed(share < 0.0995 ? 1 : 0) + " %");
const tick = (value) =>
  Math.abs(value) >= 1e4 ? short.format(value) : Math.abs(value) > 0 && Math.abs(value) < 1e-3 ? value.toExponential(0) : plain.format(value);

// Up to ten clusters have colours chosen by hand; more go round the circle by the golden angle.
function colour(j) {
  if (j < 0) return "var(--faint)";
  if (C.size.length <= 10) return `var(--c${j})`;
  const hue = (j * 137.508) % 360, shade = [0, 9, -8][j % 3];
  return `hsl(${hue.toFixed(1)} 58% calc(var(--lightness) + ${shade}%))`;
}
const swatch = (j) => el("span", { class: "swatch", style: `background:${colour(j)}` });
const clusterName = (j) => (j < 0 ? "no cluster" : `Cluster ${j}`);

function clip(text, most) {
  return text.length <= most ? text : text.slice(0, most - 1).trimEnd() + "…";
}

// A row of the data by its place in D.rows: [number, id, cluster, distance, text, features, values].
function rowTitle(r) {
  const row = D.rows[r];
  return row[1] === null ? `Row ${row[0]}` : String(row[1]);
}
function rowBody(r) {
  const row = D.rows[r];
  if (row[4] !== null) return el("p", null, row[4]);
  return el("p", { class: "values" },
    row[5].map((f, i) => [el("span", null, D.features[f] + " ", el("em", null, number(row[6][i]))), " "]));
}

const tip = $("tip");
function showTip(x, y, ...content) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect(), room = document.documentElement;
  const left = x + 14 + box.width > room.clientWidth ? x - 14 - box.width : x + 14;
  const top = y + 14 + box.height > room.clientHeight ? y - 14 - box.height : y + 14;
  tip.style.left = Math.max(8, left) + "px";
  tip.style.top = Math.max(8, top) + "px";
}
function hideTip() { tip.hidden = true; }

// Draws at the width that the figure has, and again when that changes.
function responsive(figure, draw) {
  if (!figure) return;
  let last = 0;
  const redraw = () => {
    const width = Math.floor(figure.clientWidth);
    if (width < 40 || width === last) return;
    last = width;
    figure.replaceChildren(...[draw(width)].flat(Infinity));
  };
  redraw();
  new ResizeObserver(redraw).observe(figure);
}
