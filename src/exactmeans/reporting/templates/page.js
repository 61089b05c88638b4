// Theme, navigation, keys, print; then everything is drawn.
const root = document.documentElement, theme = $("theme");
function setTheme(name) {
  root.dataset.theme = name;
  theme.textContent = name === "dark" ? "☀" : "☾";
}
function switchTheme() { setTheme(root.dataset.theme === "dark" ? "light" : "dark"); }
setTheme(root.dataset.theme);
theme.addEventListener("click", switchTheme);

convergence();
selection();
if (D.profile) responsive($("fig-profile"), profile); else $("profile").remove();
responsive($("fig-map"), map);
legend();
responsive($("fig-sizes"), sizes);
if (C.silhouette) responsive($("fig-silhouette"), silhouettes); else $("quality").remove();
table();
oddRows();

const parts = [...document.querySelectorAll("[data-nav]")];
const links = parts.map((part) => el("a", { href: `#${part.id}` }, part.dataset.nav));
$("nav").append(...links.map((link) => el("li", null, link)));
function mark() {
  const at = parts.reduce((last, part, i) => (part.getBoundingClientRect().top < innerHeight * 0.4 ? i : last), 0);
  links.forEach((link, i) => (i === at ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
}
addEventListener("scroll", mark, { passive: true });
mark();

addEventListener("keydown", (event) => {
  const typing = event.target.closest && event.target.closest("input");
  if (event.key === "Escape") { hideTip(); if (typing) { typing.value = ""; filter(); typing.blur(); } }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { event.preventDefault(); $("search").focus(); }
  if (event.key === "t") switchTheme();
});

// On paper: light, and the details of a few clusters open.
let before = "";
addEventListener("beforeprint", () => {
  before = root.dataset.theme;
  setTheme("light");
  if (C.size.length <= 40) C.size.forEach((_, j) => toggle(j, true));
});
addEventListener("afterprint", () => setTheme(before));
addEventListener("hashchange", () => { const found = /^#cluster-(\d+)$/.exec(location.hash); if (found && +found[1] < C.size.length) openCluster(+found[1]); });
root.dataset.ready = "true";
