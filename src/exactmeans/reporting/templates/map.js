// Rows and centres in two dimensions; hover tells of rows, arrow keys walk from centre to centre.
let emphasise = () => {};

function map(width) {
  const M = D.map, pad = 18;
  const xs = M.x.concat(M.cx), ys = M.y.concat(M.cy);
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const fitting = ((width - 2 * pad) * (y1 - y0)) / (x1 - x0 || 1) + 2 * pad;
  const height = Math.round(Math.min(width * 0.9, 560, Math.max(240, fitting)));
  // One scale for both axes: distances on the map are distances along the axes.
  const ratio = Math.min((width - 2 * pad) / (x1 - x0 || 1), (height - 2 * pad) / (y1 - y0 || 1));
  const x = (v) => width / 2 + (v - (x0 + x1) / 2) * ratio, y = (v) => height / 2 - (v - (y0 + y1) / 2) * ratio;
  const many = C.size.length > 60, radius = M.x.length > 1500 ? 2.4 : M.x.length > 400 ? 3 : 4;
  const points = M.x.map((_, i) => svg("circle", { class: "point", cx: x(M.x[i]).toFixed(1), cy: y(M.y[i]).toFixed(1), r: radius, style: `fill:${colour(M.label[i])}` }));
  const centres = C.size.map((size, j) => size ? svg("g", { class: "centre", transform: `translate(${x(M.cx[j]).toFixed(1)},${y(M.cy[j]).toFixed(1)})` },
    svg("circle", { r: many ? 4.5 : 10, style: `fill:${colour(j)}` }), many ? null : svg("text", null, String(j))) : svg("g", { class: "centre" }));
  const layer = svg("g", null, points, centres);
  const image = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": "Map of rows and centres; arrow keys go from centre to centre, Enter opens the cluster" }, layer);
  const order = C.size.map((_, j) => j).filter((j) => C.size[j]).sort((a, b) => C.size[b] - C.size[a] || a - b);
  let at = -1, kept = -1;

  emphasise = (j) => {
    layer.classList.toggle("dimmed", j >= 0);
    points.forEach((point, i) => point.classList.toggle("on", M.label[i] === j));
    centres.forEach((centre, i) => centre.classList.toggle("on", i === j));
  };
  const back = () => { emphasise(kept); hideTip(); };
  function nearest(event) {
    const box = image.getBoundingClientRect();
    const px = ((event.clientX - box.left) * width) / box.width, py = ((event.clientY - box.top) * height) / box.height;
    let best = null, least = 18 ** 2;
    M.cx.forEach((_, j) => { const d = (x(M.cx[j]) - px) ** 2 + (y(M.cy[j]) - py) ** 2; if (C.size[j] && d < least && d < (many ? 36 : 121)) { least = d; best = { cluster: j }; } });
    if (best) return best;
    M.x.forEach((_, i) => { const d = (x(M.x[i]) - px) ** 2 + (y(M.y[i]) - py) ** 2; if (d < least) { least = d; best = { point: i }; } });
    return best;
  }
  image.addEventListener("pointermove", (event) => {
    const found = nearest(event);
    image.style.cursor = found ? "pointer" : "";
    if (!found) return back();
    if (found.cluster !== undefined) { emphasise(found.cluster); return showTip(event.clientX, event.clientY, ...clusterTip(found.cluster)); }
    const r = M.row[found.point], j = M.label[found.point];
    emphasise(j);
    showTip(event.clientX, event.clientY, el("b", null, swatch(j), rowTitle(r)), rowBody(r),
      el("i", null, `${clusterName(j)}` + (j < 0 ? "" : `, distance ${number(D.rows[r][3])}`)));
  });
  image.addEventListener("pointerleave", back);
  image.addEventListener("click", (event) => {
    const found = nearest(event);
    if (found) openCluster(found.cluster !== undefined ? found.cluster : M.label[found.point]);
  });
  image.addEventListener("blur", back);
  image.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      at = (at + step + order.length) % order.length;
      const j = order[at], box = image.getBoundingClientRect(), zoom = box.width / width;
      emphasise(j);
      showTip(box.left + x(M.cx[j]) * zoom, box.top + y(M.cy[j]) * zoom, ...clusterTip(j));
    }
    if (event.key === "Enter" && at >= 0) { event.preventDefault(); openCluster(order[at]); }
    if (event.key === "Escape") { at = -1; back(); }
  });
  image.keep = (j) => { kept = j; emphasise(j); };
  return image;
}

function legend() {
  if (C.size.length > 24) return;
  const order = C.size.map((_, j) => j).sort((a, b) => C.size[b] - C.size[a] || a - b);
  const chips = order.map((j) => el("button", { class: "chip", type: "button", "aria-pressed": "false",
    onclick: () => {
      const on = chips[order.indexOf(j)].getAttribute("aria-pressed") !== "true";
      chips.forEach((chip) => chip.setAttribute("aria-pressed", "false"));
      chips[order.indexOf(j)].setAttribute("aria-pressed", String(on));
      $("fig-map").querySelector("svg").keep(on ? j : -1);
    } }, swatch(j), el("span", null, `${j}: ${clip(C.name[j], 42)}`)));
  $("legend").append(...chips);
}
