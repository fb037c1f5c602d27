"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const graph = document.getElementById("graph");
  const detail = document.getElementById("detail");
  const search = document.getElementById("search");
  const found = document.getElementById("found");
  const ROW = 19, NARROWEST = 0.6, TEXT = 24;
  // Nodes as objects, with their depth and what is above them.
  const all = [];
  function build(raw, parent, depth) {
    const node = { name: parent ? data.names[raw[0]] || "?" : "all", weight: raw[1], parent, depth, children: [] };
    all.push(node);
    for (const child of raw[2]) node.children.push(build(child, node, depth + 1));
    return node;
  }
  const root = build(data.root, null, 0);
  let top = root, pattern = "";

  function bytes(weight) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let unit = 0;
    while (weight >= 1000 && unit + 1 < units.length) { weight /= 1000; unit += 1; }
    return weight.toFixed(unit === 0 || weight >= 100 ? 0 : 1) + " " + units[unit];
  }
  function amount(weight) {
    if (data.unit === "B") return bytes(weight);
    if (data.unit !== "s") return Math.round(weight).toLocaleString("en");
    if (weight >= 1) return weight.toFixed(2) + " s";
    if (weight >= 1e-3) return (weight * 1e3).toFixed(2) + " ms";
    return (weight * 1e6).toFixed(0) + " µs";
  }
  function share(weight, of) { return of > 0 ? (100 * weight / of).toFixed(2) + " %" : "-"; }
  function color(node) {
    let hash = 0;
    for (let i = 0; i < node.name.length; i++) hash = (hash * 31 + node.name.charCodeAt(i)) >>> 0;
    const part = (hash % 997) / 997;
    if (!node.parent) return "hsl(210 10% 75%)";
    if (node.depth === 1) return "hsl(210 35% " + (70 + 10 * part) + "%)";
    if (node.name.endsWith("_[k]")) return "hsl(" + (12 + 14 * part) + " 75% " + (64 + 8 * part) + "%)";
    if (node.name.startsWith("[")) return "hsl(0 0% " + (70 + 12 * part) + "%)";
    return "hsl(" + (42 + 16 * part) + " 80% " + (60 + 10 * part) + "%)";
  }
  function hits(node) { return pattern !== "" && node.name.toLowerCase().includes(pattern); }
  function say(node) {
    detail.textContent = node.name + ": " + amount(node.weight) + ", " + share(node.weight, root.weight) + " of all" +
      (top === root ? "" : ", " + share(node.weight, top.weight) + " of what is shown");
  }
  function place(node, left, width, above) {
    if (width < NARROWEST) return;
    const box = document.createElement("button");
    box.type = "button";
    box.style.left = left + "px";
    box.style.top = node.depth * ROW + "px";
    box.style.width = Math.max(width - 0.5, 0.5) + "px";
    box.style.background = color(node);
    if (above) box.classList.add("above");
    if (hits(node)) box.classList.add("hit");
    if (width > TEXT) box.textContent = node.name;
    box.title = node.name + " — " + amount(node.weight) + ", " + share(node.weight, root.weight);
    box.setAttribute("aria-label", box.title);
    box.addEventListener("click", function () { top = node; draw(); say(node); });
    box.addEventListener("mouseenter", function () { say(node); });
    box.addEventListener("focus", function () { say(node); });
    graph.appendChild(box);
  }
  function draw() {
    graph.textContent = "";
    const width = graph.clientWidth;
    for (let node = top.parent; node; node = node.parent) place(node, 0, width, true);
    let deepest = top.depth;
    (function below(node, left, room) {
      place(node, left, room, false);
      if (room < NARROWEST) return;
      deepest = Math.max(deepest, node.depth);
      let at = left;
      for (const child of node.children) {
        const part = node.weight > 0 ? room * child.weight / node.weight : 0;
        below(child, at, part);
        at += part;
      }
    })(top, 0, width);
    graph.style.height = (deepest + 1) * ROW + "px";
  }
  function look() {
    pattern = search.value.trim().toLowerCase();
    let sum = 0;
    // A frame inside of one that is found already counts once.
    (function walk(node) {
      if (hits(node)) { sum += node.weight; return; }
      node.children.forEach(walk);
    })(root);
    found.textContent = pattern === "" ? "" : amount(sum) + ", " + share(sum, root.weight) + " of all";
    draw();
  }
  search.addEventListener("input", look);
  document.getElementById("reset").addEventListener("click", function () { top = root; draw(); });
  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape") { top = root; search.value = ""; look(); }
  });
  window.addEventListener("resize", draw);
  draw();
})();
