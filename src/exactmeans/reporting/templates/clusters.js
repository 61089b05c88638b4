// The table of clusters: sorted, searched, opened; details are made when they are first shown.
const COLUMNS = [
  ["Cluster", (j) => j, ""],
  ["What sets it apart", (j) => C.name[j].toLowerCase(), ""],
  ["Rows", (j) => C.size[j], "number"],
  ["Share", (j) => C.size[j], "number wide"],
  ["Mean distance", (j) => C.mean[j], "number wide"],
  ["Radius", (j) => C.radius[j], "number wide"],
  ["Silhouette", (j) => (C.silhouette ? C.silhouette[j] : 0), "number"],
];
let rowsOf = [], detailOf = [], haystack = [], body, order = [];

function table() {
  const most = Math.max(1, ...C.size), total = C.total;
  const heads = COLUMNS.map(([name, , kind], c) => el("th", { class: kind, scope: "col", "aria-sort": "none" },
    el("button", { type: "button", onclick: () => sortBy(c) }, name)));
  rowsOf = C.size.map((size, j) => el("tr", { class: "row", id: `cluster-${j}`, onclick: (event) => { if (!event.target.closest("a,button")) toggle(j); } },
    el("td", null, el("button", { class: "opener", type: "button", "aria-expanded": "false", "aria-label": `Cluster ${j}, details`, onclick: () => toggle(j) }, swatch(j), String(j))),
    el("td", { class: "what" }, C.name[j]),
    el("td", { class: "number" }, whole.format(size), el("span", { class: "meter" }, el("i", { style: `width:${((100 * size) / most).toFixed(1)}%;background:${colour(j)}` }))),
    el("td", { class: "number wide" }, percent(size / total)),
    el("td", { class: "number wide" }, number(C.mean[j])),
    el("td", { class: "number wide" }, number(C.radius[j])),
    el("td", { class: "number" }, C.silhouette ? C.silhouette[j].toFixed(2) : "–")));
  detailOf = C.size.map(() => null);
  haystack = C.size.map((_, j) => [j, C.name[j], ...C.top[j].map((t) => D.features[t[0]]),
    ...C.near[j].concat(C.far[j]).map((r) => [rowTitle(r), D.rows[r][4] || ""].join(" "))].join(" ").toLowerCase());
  body = el("tbody");
  $("table").append(el("caption", { class: "quiet" }, "Clusters"), el("thead", null, el("tr", null, heads)), body);
  order = C.size.map((_, j) => j);
  sortBy(2);
  $("search").addEventListener("input", filter);
  $("open-all").addEventListener("click", openAll);
  filter();
}

let sorted = -1, falling = false;
function sortBy(c) {
  falling = sorted === c ? !falling : c >= 2;
  sorted = c;
  const key = COLUMNS[c][1];
  order.sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    return (x < y ? -1 : x > y ? 1 : 0) * (falling ? -1 : 1) || a - b;
  });
  $("table").querySelectorAll("th").forEach((head, i) => head.setAttribute("aria-sort", i !== c ? "none" : falling ? "descending" : "ascending"));
  place();
}
function place() { body.append(...order.flatMap((j) => (detailOf[j] ? [rowsOf[j], detailOf[j]] : [rowsOf[j]]))); }

function filter() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  C.size.forEach((_, j) => {
    const hit = words.every((word) => haystack[j].includes(word));
    found += hit;
    rowsOf[j].hidden = !hit;
    if (detailOf[j]) detailOf[j].hidden = !hit || !isOpen(j);
  });
  $("found").textContent = words.length ? `${whole.format(found)} of ${whole.format(C.size.length)} clusters` : "";
}

const isOpen = (j) => rowsOf[j].querySelector(".opener").getAttribute("aria-expanded") === "true";
function toggle(j, open = !isOpen(j)) {
  rowsOf[j].querySelector(".opener").setAttribute("aria-expanded", String(open));
  if (open && !detailOf[j]) {
    detailOf[j] = el("tr", { class: "detail", id: `detail-${j}` }, el("td", { colspan: COLUMNS.length }, details(j)));
    rowsOf[j].after(detailOf[j]);
  }
  if (detailOf[j]) detailOf[j].hidden = !open;
}
function openAll() {
  const shut = order.some((j) => !rowsOf[j].hidden && !isOpen(j));
  order.forEach((j) => { if (!rowsOf[j].hidden) toggle(j, shut); });
  $("open-all").textContent = shut ? "Close all" : "Open all";
}
function openCluster(j) {
  if (j < 0) return;
  hideTip();
  if (rowsOf[j].hidden) { $("search").value = ""; filter(); }
  toggle(j, true);
  rowsOf[j].scrollIntoView({ block: "center" });
  rowsOf[j].querySelector(".opener").focus({ preventScroll: true });
  rowsOf[j].classList.remove("flash");
  void rowsOf[j].offsetWidth;
  rowsOf[j].classList.add("flash");
}

function details(j) {
  const part = (title, content) => el("div", null, el("h3", null, title), content);
  const examples = (rows) => el("ul", { class: "examples" }, rows.map((r) =>
    el("li", null, el("b", null, rowTitle(r)), " ", el("i", null, `distance ${number(D.rows[r][3])}`), rowBody(r))));
  const parts = [];
  if (C.top[j].length) parts.push(part(D.dense ? "Features that differ most" : "Top terms by contrast", bars(C.top[j])));
  if (C.near[j].length) parts.push(part("Nearest to the centre", examples(C.near[j])));
  if (C.far[j].length) parts.push(part("Farthest from the centre", examples(C.far[j])));
  if (C.neighbours[j].length) parts.push(part("Neighbouring clusters", el("div", { class: "links" }, C.neighbours[j].map(([other, distance]) =>
    el("button", { class: "chip", type: "button", title: C.name[other], onclick: () => openCluster(other) }, swatch(other), el("span", null, `${other}: ${clip(C.name[other], 30)} (${number(distance)})`))))));
  return el("div", { class: "detail-grid" }, parts);
}
function bars(top) {
  const low = Math.min(0, ...top.map((t) => t[2])), high = Math.max(0, ...top.map((t) => t[2])), span = high - low || 1;
  const zero = (-100 * low) / span;
  return el("dl", { class: "bars", style: `--zero:${zero}%` }, top.map(([f, value, z]) => [
    el("dt", null, D.features[f]),
    el("dd", { class: "track" }, el("i", { style: `left:${(z < 0 ? zero + (100 * z) / span : zero).toFixed(1)}%;width:${((100 * Math.abs(z)) / span).toFixed(1)}%;background:rgb(var(--${z < 0 ? "low" : "high"}))` })),
    el("dd", { title: D.dense ? `${z.toFixed(2)} standard deviations from the mean` : `weight ${number(value)}` }, number(D.dense ? value : z))]));
}

function oddRows() {
  if (!D.odd.length) { $("odd-table").remove(); return; }
  $("odd-table").append(
    el("thead", null, el("tr", null, ["Row", "Cluster", "Distance", "Oddness"].map((name, c) => el("th", { class: "plain" + (c > 1 ? " number" : ""), scope: "col" }, name)), el("th", { class: "plain", scope: "col" }, D.has_texts ? "Text" : "Values"))),
    el("tbody", null, D.odd.map(([r, oddness]) => el("tr", null,
      el("td", null, el("b", null, rowTitle(r))),
      el("td", null, el("button", { class: "chip", type: "button", onclick: () => openCluster(D.rows[r][2]) }, swatch(D.rows[r][2]), el("span", null, String(D.rows[r][2])))),
      el("td", { class: "number" }, number(D.rows[r][3])),
      el("td", { class: "number" }, oddness.toFixed(1)),
      el("td", { class: "what" }, rowBody(r))))));
}
