// Line charts, bars, silhouettes and the heat map.
function ticks(low, high, count) {
  const span = high - low || Math.abs(high) || 1;
  const raw = span / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((s) => s * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-6; t += step) found.push(Math.abs(t) < step * 1e-6 ? 0 : t);
  return found;
}
const scale = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

// One line over whole numbers; arrow keys walk along it.
function lineChart(width, xs, ys, options) {
  const height = 190, left = 52, right = width - 12, top = 12, bottom = height - 28;
  const known = ys.filter((y) => y !== null);
  let low = options.zero ? 0 : Math.min(...known), high = Math.max(...known);
  if (low === high) { high += Math.abs(high) * 0.05 || 1; if (!options.zero) low -= Math.abs(low) * 0.05 || 1; }
  const marks = ticks(low, high, 4);
  const x = scale(xs[0], xs[xs.length - 1], xs.length > 1 ? left + 6 : (left + right) / 2, right - 6);
  const y = scale(low, high, bottom, top);
  const format = options.format || tick;
  const points = xs.map((t, i) => [x(t), ys[i] === null ? null : y(ys[i])]).filter((p) => p[1] !== null);
  const path = points.map((p, i) => (i ? "L" : "M") + p[0].toFixed(1) + "," + p[1].toFixed(1)).join("");
  const cross = svg("line", { class: "cross", y1: top, y2: bottom, visibility: "hidden" });
  const ring = svg("circle", { class: "dot", r: 5, visibility: "hidden" });
  const few = points.length <= 40;
  const image = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": options.label },
    marks.map((t) => [svg("line", { class: "grid", x1: left, x2: right, y1: y(t), y2: y(t) }),
      svg("text", { x: left - 8, y: y(t) + 4, "text-anchor": "end" }, format(t))]),
    wholeTicks(xs, width).map((t) => svg("text", { x: x(t), y: bottom + 19, "text-anchor": "middle" }, String(t))),
    options.best !== undefined ? svg("line", { class: "best", x1: x(options.best), x2: x(options.best), y1: top, y2: bottom }) : null,
    points.length > 1 ? svg("path", { class: "area", d: `${path}L${points[points.length - 1][0]},${bottom}L${points[0][0]},${bottom}Z` }) : null,
    svg("path", { class: "series", d: path }),
    few ? points.map((p) => svg("circle", { class: "dot", cx: p[0], cy: p[1], r: 3.5 })) : null,
    cross, ring);
  let at = -1;
  function show(i) {
    at = Math.max(0, Math.min(xs.length - 1, i));
    if (ys[at] === null) return;
    const box = image.getBoundingClientRect(), ratio = box.width / width;
    for (const [name, value] of [["x1", x(xs[at])], ["x2", x(xs[at])], ["visibility", "visible"]]) cross.setAttribute(name, value);
    for (const [name, value] of [["cx", x(xs[at])], ["cy", y(ys[at])], ["visibility", "visible"]]) ring.setAttribute(name, value);
    showTip(box.left + x(xs[at]) * ratio, box.top + y(ys[at]) * ratio, ...options.tip(at));
  }
  function hide() { cross.setAttribute("visibility", "hidden"); ring.setAttribute("visibility", "hidden"); hideTip(); }
  image.addEventListener("pointermove", (event) => {
    const box = image.getBoundingClientRect(), px = ((event.clientX - box.left) * width) / box.width;
    let best = 0;
    xs.forEach((t, i) => { if (Math.abs(x(t) - px) < Math.abs(x(xs[best]) - px)) best = i; });
    show(best);
  });
  image.addEventListener("pointerleave", hide);
  image.addEventListener("blur", hide);
  image.addEventListener("focus", () => { if (image.matches(":focus-visible")) show(at < 0 ? 0 : at); });
  image.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -xs.length, End: xs.length }[event.key];
    if (step) { event.preventDefault(); show(at + step); }
    if (event.key === "Escape") hide();
  });
  return image;
}
function wholeTicks(xs, width) {
  const most = Math.max(2, Math.floor(width / 48)), step = Math.ceil(xs.length / most);
  return xs.filter((_, i) => i % step === 0);
}

function multiple(parent, title, note, xs, ys, options) {
  const holder = el("div", { class: "plot" });
  parent.append(el("figure", null, el("figcaption", null, title, " ", note ? el("small", null, note) : null), holder));
  responsive(holder, (width) => lineChart(width, xs, ys, { ...options, label: title }));
}

function convergence() {
  const H = D.history, parent = $("fig-convergence");
  if (!H.iteration.length) return;
  const say = (i) => [el("b", null, `Iteration ${H.iteration[i]}`),
    `inertia ${number(H.inertia[i])}`, el("br"), `${whole.format(H.changed[i])} rows changed cluster`, el("br"),
    `${percent(H.share[i])} of the distances computed`, el("br"), el("i", null, `${H.algorithm[i]}, ${number(H.seconds[i])} s`)];
  multiple(parent, "Inertia", "by iteration", H.iteration, H.inertia, { tip: say });
  multiple(parent, "Rows that changed cluster", "share of all rows", H.iteration, H.moved, { tip: say, zero: true, format: percent });
  multiple(parent, "Distances computed", "share of plain Lloyd's", H.iteration, H.share, { tip: say, zero: true, format: percent });
}

function selection() {
  const S = D.selection, parent = $("fig-selection");
  if (!S) { $("selection").remove(); return; }
  for (const [title, note, values] of S.criteria) {
    const say = (i) => [el("b", null, `${S.k[i]} clusters`), ...S.criteria.map(([name, , own]) => [name + " " + number(own[i]), el("br")]).flat()];
    multiple(parent, title, note, S.k, values, { tip: say, best: S.best });
  }
}

// Sizes: bars by name for a few clusters, else the sizes in descending order.
function sizes(width) {
  const order = C.size.map((_, j) => j).sort((a, b) => C.size[b] - C.size[a] || a - b);
  const most = C.size[order[0]] || 1;
  if (order.length > 30) return ranked(width, order, C.size, "Rows by cluster, largest first", (j) => `${whole.format(C.size[j])} rows`);
  const line = 22, left = 74, right = width - 54;
  return svg("svg", { viewBox: `0 0 ${width} ${order.length * line + 4}`, role: "img", "aria-label": "Cluster sizes" },
    order.map((j, i) => {
      const size = Math.max(2, ((right - left) * C.size[j]) / most);
      return hoverable(svg("g", { class: "bar" }, svg("rect", { x: 0, y: i * line, width, height: line, fill: "transparent" }),
        svg("text", { class: "name", x: left - 8, y: i * line + 15, "text-anchor": "end" }, `Cluster ${j}`),
        svg("rect", { x: left, y: i * line + 3, width: size, height: line - 7, rx: 3, style: `fill:${colour(j)}` }),
        svg("text", { x: left + size + 6, y: i * line + 15 }, whole.format(C.size[j]))), j);
    }));
}
function hoverable(node, j) {
  node.style.cursor = "pointer";
  node.addEventListener("pointermove", (event) => showTip(event.clientX, event.clientY, ...clusterTip(j)));
  node.addEventListener("pointerleave", hideTip);
  node.addEventListener("click", () => openCluster(j));
  return node;
}
function clusterTip(j) {
  return [el("b", null, swatch(j), clusterName(j)), clip(C.name[j], 120), el("br"),
    el("i", null, `${whole.format(C.size[j])} rows` + (C.silhouette ? `, silhouette ${number(C.silhouette[j])}` : ""))];
}

// Many clusters: one thin column each, in descending order; arrow keys walk along.
function ranked(width, order, values, label, say) {
  const height = 260, left = 46, right = width - 6, top = 8, bottom = height - 24;
  const high = Math.max(...order.map((j) => values[j])), low = Math.min(0, ...order.map((j) => values[j]));
  const x = scale(0, order.length, left, right), y = scale(low, high || 1, bottom, top);
  const wide = Math.max(0.6, (right - left) / order.length - (order.length < 150 ? 1 : 0));
  let at = -1;
  const image = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": label },
    ticks(low, high, 4).map((t) => [svg("line", { class: "grid", x1: left, x2: right, y1: y(t), y2: y(t) }),
      svg("text", { x: left - 6, y: y(t) + 4, "text-anchor": "end" }, tick(t))]),
    order.map((j, i) => svg("rect", { class: "bar", x: x(i).toFixed(2), y: Math.min(y(values[j]), y(0)).toFixed(2), width: wide.toFixed(2),
      height: Math.max(0.5, Math.abs(y(values[j]) - y(0))).toFixed(2), style: `fill:${colour(j)}` })),
    svg("text", { x: left, y: height - 6 }, "1"), svg("text", { x: right, y: height - 6, "text-anchor": "end" }, `${order.length} clusters`));
  const show = (i) => {
    at = Math.max(0, Math.min(order.length - 1, i));
    const box = image.getBoundingClientRect();
    showTip(box.left + (x(at) * box.width) / width, box.top + (y(values[order[at]]) * box.height) / height, ...clusterTip(order[at]));
  };
  image.addEventListener("pointermove", (event) => {
    const box = image.getBoundingClientRect();
    show(Math.floor((((event.clientX - box.left) * width) / box.width - left) / ((right - left) / order.length)));
  });
  image.addEventListener("pointerleave", hideTip);
  image.addEventListener("blur", hideTip);
  image.addEventListener("click", () => at >= 0 && openCluster(order[at]));
  image.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -order.length, End: order.length }[event.key];
    if (step) { event.preventDefault(); show(at + step); }
    if (event.key === "Enter" && at >= 0) { event.preventDefault(); openCluster(order[at]); }
  });
  return image;
}

// Silhouettes: the rows of each cluster in ascending order (quantiles of them), or means of many clusters.
function silhouettes(width) {
  if (!D.silhouettes) {
    const order = C.size.map((_, j) => j).sort((a, b) => C.silhouette[b] - C.silhouette[a] || a - b);
    return ranked(width, order, C.silhouette, "Mean silhouette by cluster", (j) => number(C.silhouette[j]));
  }
  const order = C.size.map((_, j) => j).filter((j) => C.size[j]).sort((a, b) => C.silhouette[b] - C.silhouette[a] || a - b);
  const left = 74, right = width - 14, top = 6, gap = 5, total = order.reduce((sum, j) => sum + C.size[j], 0);
  const room = Math.max(180, 22 * order.length - gap), heights = order.map((j) => Math.max(8, (room * C.size[j]) / total));
  const bottom = top + heights.reduce((a, b) => a + b + gap, 0), low = Math.min(0, ...order.map((j) => D.silhouettes[j][0]));
  const x = scale(low, 1, left, right);
  let y = top;
  return svg("svg", { viewBox: `0 0 ${width} ${bottom + 24}`, role: "img", "aria-label": "Silhouettes by cluster" },
    ticks(low, 1, 5).map((t) => [svg("line", { class: t === 0 ? "axis" : "grid", x1: x(t), x2: x(t), y1: top, y2: bottom }),
      svg("text", { x: x(t), y: bottom + 16, "text-anchor": "middle" }, tick(t))]),
    order.map((j, i) => {
      const own = D.silhouettes[j], begin = y, height = heights[i];
      y += height + gap;
      const steps = own.map((s, q) => `${x(s).toFixed(1)},${(begin + height - (height * q) / (own.length - 1)).toFixed(1)}`);
      const shape = `M${x(0).toFixed(1)},${begin + height}L${steps.join("L")}L${x(0).toFixed(1)},${begin}Z`;
      return hoverable(svg("g", { class: "bar" }, svg("text", { class: "name", x: left - 8 + Math.min(0, x(0) - left), y: begin + height / 2 + 4, "text-anchor": "end" }, `Cluster ${j}`),
        svg("path", { d: shape, style: `fill:${colour(j)}` })), j);
    }),
    svg("line", { class: "best", x1: x(D.mean_silhouette), x2: x(D.mean_silhouette), y1: top, y2: bottom }));
}

// Centres in standard deviations from the mean of all rows, clusters by features.
function profile(width) {
  const P = D.profile, cell = 26, left = 82;
  const longest = Math.max(...P.features.map((f) => clip(D.features[f], 22).length));
  const top = Math.round(18 + longest * 3.8), over = Math.max(0, longest * 6 - 36);
  const wide = Math.max(34, Math.min(110, Math.floor((width - left - over) / P.features.length)));
  const full = left + wide * P.features.length + over;
  const strongest = Math.max(1, ...P.z.flat().map(Math.abs));
  const shade = (z) => `rgba(var(--${z < 0 ? "low" : "high"}), ${Math.min(1, (Math.abs(z) / Math.min(strongest, 3)) * 0.85).toFixed(3)})`;
  const image = svg("svg", { viewBox: `0 0 ${full} ${top + cell * P.clusters.length + 6}`, role: "img", "aria-label": "Profile of the clusters" },
    P.features.map((f, c) => svg("text", { transform: `translate(${left + wide * (c + 0.5)},${top - 8}) rotate(-32)` }, clip(D.features[f], 22))),
    P.clusters.map((j, r) => [
      hoverable(svg("text", { class: "name", x: left - 10, y: top + cell * r + 17, "text-anchor": "end" }, `Cluster ${j}`), j),
      P.features.map((f, c) => {
        const z = P.z[r][c];
        const box = svg("g", { class: "cell" },
          svg("rect", { x: left + wide * c + 1, y: top + cell * r + 1, width: wide - 2, height: cell - 2, rx: 4, style: `fill:${shade(z)};stroke:var(--grid)` }),
          wide >= 44 ? svg("text", { class: "name", x: left + wide * (c + 0.5), y: top + cell * r + 17, "text-anchor": "middle" }, number(P.value[r][c])) : null);
        box.addEventListener("pointermove", (event) => showTip(event.clientX, event.clientY,
          el("b", null, swatch(j), `Cluster ${j}`), `${D.features[f]}: ${number(P.value[r][c])}`, el("br"),
          el("i", null, `mean of all rows ${number(P.mean[c])}; ${z < 0 ? "−" : "+"}${Math.abs(z).toFixed(2)} standard deviations`)));
        box.addEventListener("pointerleave", hideTip);
        return box;
      })]));
  image.style.minWidth = Math.min(full, 900) + "px";
  image.style.maxWidth = full + "px";
  return image;
}
