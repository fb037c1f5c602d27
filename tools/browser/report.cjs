// Opens HTML reports in the system's browser, and says what is wrong with them.
//
//     node report.cjs CHROMIUM PICTURES REPORT.html…
//
// Each report is opened at three widths, in both themes and as printed. It must not scroll sideways, axe-core must find
// nothing, the console must stay empty, nothing else may be loaded, and the first view of a wide window must have the answer.
// Pictures go to the folder PICTURES; `-` makes none. Playwright and axe-core come from NODE_PATH.
"use strict";

const path = require("node:path");
const { pathToFileURL } = require("node:url");
const { chromium } = require("playwright-core");
const axeSource = require("axe-core").source;

// A phone, a tablet, a laptop.
const VIEWS = [
  { width: 390, height: 844 },
  { width: 820, height: 1180 },
  { width: 1440, height: 900 },
];
const THEMES = ["light", "dark"];
const AXE = { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] };
// What the first view of the widest window shows: cause, culprit, cost, first action.
const ANSWER = ["h1.verdict", "dl.card", "dl.card .do"];

const [executablePath, pictures, ...reports] = process.argv.slice(2);
let failures = 0;

function fail(where, what) {
  failures += 1;
  console.log(`${where}: ${what}`);
}

// Runs in the page.
function layout() {
  const width = document.documentElement.clientWidth;
  const isInsideScroller = (e) => {
    for (let p = e.parentElement; p; p = p.parentElement) {
      if (/auto|scroll|hidden/.test(getComputedStyle(p).overflowX)) return true;
    }
    return false;
  };
  const wide = [...document.querySelectorAll("body *")].filter((e) => {
    const box = e.getBoundingClientRect();
    return box.width > 0 && box.right > width + 1 && !isInsideScroller(e);
  });
  return { scroll: document.documentElement.scrollWidth - width, wide: wide.map((e) => e.outerHTML.slice(0, 120)) };
}

// Runs in the page: texts of drawings that overlap others, or leave their box or their drawing.
function collisions() {
  const found = [];
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    if (frame.width === 0) continue;
    const texts = [...svg.querySelectorAll("text")].map((e) => ({
      text: e.textContent,
      box: e.getBoundingClientRect(),
      frame: e.parentElement.querySelector(":scope > rect.box")?.getBoundingClientRect() ?? frame,
    }));
    for (const [i, a] of texts.entries()) {
      if (a.box.left < a.frame.left - 1 || a.box.right > a.frame.right + 1) found.push(`"${a.text}" leaves its box`);
      for (const b of texts.slice(i + 1)) {
        const x = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
        const y = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
        // Boxes of lines are higher than their letters.
        if (x > 1 && y > 4) found.push(`"${a.text}" overlaps "${b.text}"`);
      }
    }
  }
  return found;
}

// Runs in the page: which of the selectors has no element that is wholly in the first view.
function unseen(selectors) {
  return selectors.filter((selector) => {
    const box = document.querySelector(selector)?.getBoundingClientRect();
    return !box || box.top < 0 || box.bottom > window.innerHeight;
  });
}

async function look(page, name, view, theme) {
  const where = `${name} ${view.width} ${theme}`;
  const { scroll, wide } = await page.evaluate(layout);
  if (scroll > 0) fail(where, `scrolls ${scroll} pixels sideways`);
  for (const element of wide) fail(where, `is cut on the right: ${element}`);
  for (const collision of await page.evaluate(collisions)) fail(where, collision);
  if (view.width === 1440) {
    for (const selector of await page.evaluate(unseen, ANSWER)) fail(where, `the first view lacks ${selector}`);
  }
  const { violations } = await page.evaluate((options) => window.axe.run(document, options), AXE);
  for (const violation of violations) {
    for (const node of violation.nodes) fail(where, `${violation.id}: ${violation.help}: ${node.html.slice(0, 160)}`);
  }
}

async function check(browser, report) {
  const name = path.basename(report, ".html");
  // axe-core is put into the page from outside, which the page's own policy refuses.
  const context = await browser.newContext({ bypassCSP: true, colorScheme: "light" });
  const page = await context.newPage();
  const url = pathToFileURL(path.resolve(report)).href;
  page.on("request", (request) => request.url() !== url && fail(name, `loads ${request.url().slice(0, 120)}`));
  page.on("console", (message) => fail(name, `console: ${message.text()}`));
  page.on("pageerror", (error) => fail(name, `error: ${error}`));
  const shoot = (what) =>
    pictures === "-" ? null : page.screenshot({ fullPage: true, path: path.join(pictures, `${name}-${what}.png`) });
  await page.goto(url);
  const active = await page.evaluate(() => document.querySelectorAll("script, [onload], [onclick], [onerror]").length);
  if (active > 0) fail(name, `${active} elements run something`);
  await page.evaluate(axeSource);
  for (const view of VIEWS) {
    await page.setViewportSize(view);
    for (const theme of THEMES) {
      await page.emulateMedia({ colorScheme: theme });
      await shoot(`${view.width}-${theme}`);
      await look(page, name, view, theme);
    }
  }
  // As wide as A4 is, in the dark theme, which paper must not have.
  await page.emulateMedia({ media: "print", colorScheme: "dark" });
  await page.setViewportSize({ width: 720, height: 1018 });
  await shoot("print");
  await look(page, name, { width: 720 }, "print");
  await context.close();
}

// Without JavaScript the page has to show the same.
async function withoutScripts(browser, report) {
  const context = await browser.newContext({ javaScriptEnabled: false, viewport: VIEWS.at(-1) });
  const page = await context.newPage();
  await page.goto(pathToFileURL(path.resolve(report)).href);
  for (const selector of ANSWER) {
    if (!(await page.locator(selector).first().isVisible())) fail(path.basename(report), `without scripts lacks ${selector}`);
  }
  await context.close();
}

async function main() {
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
  try {
    for (const report of reports) await check(browser, report);
    await withoutScripts(browser, reports[0]);
  } finally {
    await browser.close();
  }
  console.log(`${reports.length} reports, ${failures} failures`);
  process.exitCode = failures ? 1 : 0;
}

main();
