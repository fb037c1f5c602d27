// Looks at the page in a real browser, served by the real binary from a recording that comes with it.
// MITRA=target/debug/mitra node test/page.mjs [FOLDER FOR SCREENSHOTS]
// DIST=1 takes the page from dist/ and only the answers from the binary, which then need not be built anew.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { checkGraph } from "./graph.mjs";
import { checkChanges, checkEarlier, checkGoesOn } from "./instead.mjs";
import { checkCgroups, checkThreads } from "./moment.mjs";
import { checkPhone } from "./phone.mjs";

const CHROMIUM = "/usr/bin/chromium";
const MITRA = process.env.MITRA ?? "mitra";
/** The three files of the page, compressed. */
const MAX_BYTES = 100_000;
/** All that comes over the wire until the first view is drawn, numbers included, as the server sends it. */
const MAX_TRANSFERRED = 400_000;
/** What moves while the page is loaded: "good" for Core Web Vitals. */
const MAX_SHIFT = 0.1;
const WIDTHS = [390, 820, 1440];
/** Of axe, for phones: targets of 24 pixels or with room around them (WCAG 2.5.8). A flame graph is a drawing whose frames are as wide as
 *  what they stand for; its table has the same as links. */
const TARGETS = { runOnly: ["target-size"] };
const DRAWN = [".flame .frame"];

function skip(reason) {
  console.log(`skipped: ${reason}`);
  process.exit(0);
}

if (!existsSync(CHROMIUM)) skip(`no ${CHROMIUM}`);
// Beside the page, or in a folder of NODE_PATH, which `import` does not look into.
const require = createRequire(import.meta.url);
const { chromium, axe } = (() => {
  try {
    return { chromium: require("playwright-core").chromium, axe: readFileSync(require.resolve("axe-core/axe.min.js"), "utf8") };
  } catch {
    return skip("playwright-core and axe-core are not installed: npm ci");
  }
})();

const scratch = mkdtempSync(join(tmpdir(), "mitra-page-"));
const shots = process.argv[2] ?? join(scratch, "shots");
mkdirSync(shots, { recursive: true });
const children = new Set();
const tokenFile = join(scratch, "token");
const TOKEN = "0123456789abcdef";
writeFileSync(tokenFile, `${TOKEN}\n`, { mode: 0o600 });

function start(...args) {
  const child = spawn(MITRA, args, { stdio: ["ignore", "pipe", "pipe"] });
  children.add(child);
  child.on("exit", () => children.delete(child));
  return child;
}

/** Starts the server and waits for the address that it tells. */
function serve(archive, listen) {
  const child = start("serve", "--archive", archive, "--listen", listen, "--token-file", tokenFile);
  return new Promise((done, failed) => {
    let told = "";
    const read = (text) => {
      told += text;
      const url = told.match(/http:\/\/[\d.]+:\d+\//)?.[0];
      if (url) done({ child, url });
    };
    child.stdout.setEncoding("utf8").on("data", read);
    child.stderr.setEncoding("utf8").on("data", read);
    child.on("exit", (code) => failed(new Error(`mitra serve ended with ${code}: ${told}`)));
  });
}

async function stop(child) {
  const ended = new Promise((done) => child.on("exit", done));
  child.kill("SIGTERM");
  await ended;
}

async function timed(name, work) {
  const start = performance.now();
  await work();
  console.log(`${name}: ${Math.round(performance.now() - start)} ms`);
}

/** What the browser complains about, and what it asks of anybody else. */
function watch(page, url) {
  const seen = { errors: [], elsewhere: [], isServerGone: false };
  page.on("console", (message) => {
    // Services are not in the recordings here, nor is an index beside each, one query is wrong, and the incident that goes on is of
    // another recording, which has its process: the browser reports 404 and 400, and the page says so in words.
    const isWanted = /40[04]/.test(message.text()) && /\/api\/v1\/(services|search|processes)\?/.test(message.location().url);
    if (message.type() === "error" && !seen.isServerGone && !isWanted) seen.errors.push(`${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith("data:")) seen.elsewhere.push(request.url());
  });
  return seen;
}

/** All lanes have their numbers, and nothing is being asked for. */
const settled = (page) => page.waitForFunction(() => document.querySelector('.lanes[aria-busy="false"] .legend td'));

async function checkLooks(page, name) {
  for (const theme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: theme });
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 900 });
      await page.waitForTimeout(250);
      // Drawings follow the size of the window a little later on a busy machine.
      await page.waitForFunction(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth, null, { timeout: 5000 }).catch(() => {});
      const { scrolled, shown } = await page.evaluate(() => ({ scrolled: document.documentElement.scrollWidth, shown: document.documentElement.clientWidth }));
      assert.ok(scrolled <= shown, `${name}: ${scrolled} px of page at a width of ${shown}`);
      const cut = await page.$$eval(".legend td", (cells) => cells.filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent));
      assert.deepEqual(cut, [], `${name} at ${width}: numbers have room beside each other`);
      await page.screenshot({ path: join(shots, `${name}-${width}-${theme}.png`), fullPage: true });
      if (width === WIDTHS[1]) continue;
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => globalThis.axe.run());
      if (width === WIDTHS[0] && theme === "light") {
        const small = await page.evaluate(([exclude, options]) => globalThis.axe.run({ exclude }, options), [DRAWN, TARGETS]);
        violations.push(...small.violations);
      }
      assert.deepEqual(
        violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(" ")).slice(0, 4).join("; ")}`),
        [],
        `${name} at ${width}, ${theme}`,
      );
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.waitForTimeout(250);
}

const FILES = { "": "text/html", "app.js": "text/javascript", "app.css": "text/css" };
const fileOf = (name) => readFileSync(new URL(`../dist/${name || "index.html"}`, import.meta.url));

/** Opens the page as somebody does: by the address with the token. With DIST it comes from there, with the headers that
 *  the binary sends. */
async function open(page, url) {
  const context = page.context();
  if (!process.env.DIST) return page.goto(`${url}?token=${TOKEN}`);
  const headers = { "content-security-policy": (await fetch(url)).headers.get("content-security-policy") };
  for (const [name, contentType] of Object.entries(FILES)) {
    await context.route(url + name, (route) => route.fulfill({ body: fileOf(name), contentType, headers }));
  }
  await context.request.get(`${url}?token=${TOKEN}`);
  return page.goto(url);
}

async function weigh(url) {
  let total = 0;
  for (const name of Object.keys(FILES)) {
    const bytes = process.env.DIST ? fileOf(name) : Buffer.from(await (await fetch(url + name)).arrayBuffer());
    total += gzipSync(bytes).length;
  }
  console.log(`weight: ${total} bytes compressed`);
  assert.ok(total < MAX_BYTES, `the page is ${total} bytes`);
}

/** A browser asks again for what it has, and is told that it is the same. */
async function checkCache(url) {
  if (process.env.DIST) return;
  for (const name of Object.keys(FILES)) {
    const first = await fetch(url + name);
    const tag = first.headers.get("etag");
    assert.ok(tag && first.headers.get("cache-control") === "no-cache", `${name} has no tag`);
    const again = await fetch(url + name, { headers: { "if-none-match": tag } });
    assert.deepEqual([again.status, (await again.arrayBuffer()).byteLength], [304, 0], `${name} is sent again`);
    const other = await fetch(url + name, { headers: { "if-none-match": '"another"' } });
    assert.equal(other.status, 200);
  }
}

/** What the browser measured while the page came: nothing moves once it is there, and little is sent. */
async function checkLoad(page) {
  const load = await page.evaluate(() => ({
    shift: globalThis.shift,
    painted: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
    sent: [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].map((one) => one.transferSize),
    viewport: document.querySelector("meta[name=viewport]")?.content,
    lang: document.documentElement.lang,
    title: document.title,
  }));
  const sent = load.sent.reduce((sum, bytes) => sum + bytes, 0);
  console.log(`first contentful paint: ${Math.round(load.painted)} ms; layout shift: ${load.shift.toFixed(4)}; ${load.sent.length} answers, ${sent} bytes`);
  assert.ok(load.shift < MAX_SHIFT, `what is shown moves by ${load.shift} while it comes`);
  assert.ok(sent < MAX_TRANSFERRED, `${sent} bytes until the first view`);
  assert.match(load.viewport, /width=device-width/);
  assert.doesNotMatch(load.viewport, /user-scalable|maximum-scale/);
  assert.ok(load.lang === "en" && load.title.length > 0);
}

async function checkTimeline(page, url) {
  await page.addInitScript(() => {
    globalThis.shift = 0;
    new PerformanceObserver((list) => {
      for (const one of list.getEntries()) if (!one.hadRecentInput) globalThis.shift += one.value;
    }).observe({ type: "layout-shift", buffered: true });
  });
  await timed("open, until all lanes are drawn", async () => {
    await open(page, url);
    await settled(page);
  });
  await checkLoad(page);
  await page.waitForSelector(".incidents a");
  const lanes = await page.$$eval(".lane h3", (all) => all.map((one) => one.textContent.trim().split("  ")[0]));
  for (const name of ["Lost time", "Standing still", "CPU", "Memory", "Reclaim", "Disks", "Network", "Pressure"]) {
    assert.ok(lanes.some((lane) => lane.startsWith(name)), `no lane ${name} in ${lanes}`);
  }
  const title = await page.locator(".incidents strong").first().boundingBox();
  assert.ok(title.y + title.height < 300, "what happened is on top");
  await checkLooks(page, "timeline");
  const over = await page.locator(".u-over").first().boundingBox();
  const before = page.url();
  await timed("zoom by brush, until drawn", async () => {
    await page.mouse.move(over.x + over.width * 0.4, over.y + 40);
    await page.mouse.down();
    await page.mouse.move(over.x + over.width * 0.8, over.y + 40, { steps: 5 });
    const answer = page.waitForResponse((response) => response.url().includes("/series"));
    await page.mouse.up();
    await answer;
    await settled(page);
  });
  const zoomed = new URLSearchParams(page.url().split("?")[1]);
  assert.ok(Number(zoomed.get("until")) > Number(zoomed.get("since")), page.url());
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction((since) => !location.hash.includes(`since=${since}`), zoomed.get("since"));
  await page.keyboard.press("Escape");
  await page.waitForURL(before);
  await page.keyboard.press("?");
  assert.ok(await page.locator("dialog[open]").isVisible());
  await page.keyboard.press("Escape");
  assert.equal(page.url(), before, "Escape closed the list of keys and nothing else");
}

async function checkHeat(page, url) {
  await page.goto(`${url}#/time`);
  await settled(page);
  const answer = page.waitForResponse((response) => response.url().includes("_latency_"));
  await page.locator(".heat button").first().click();
  await answer;
  await page.locator('.heat canvas[aria-label*="slowest took"]').waitFor();
  const isDrawn = await page.locator(".heat canvas").evaluate((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const colours = new Set();
    for (let at = 0; at < data.length; at += 4) colours.add(data.slice(at, at + 4).join());
    return colours.size;
  });
  assert.ok(isDrawn >= 3, `columns without and with requests: ${isDrawn} colours`);
  assert.match(page.url(), /heat=/, "a link shows it again");
  await checkLooks(page, "heat");
  await page.locator(".heat canvas").click({ position: { x: 40, y: 40 } });
  await page.locator(".moment").waitFor();
}

async function checkIncident(page, url) {
  await page.goto(`${url}#/time`);
  await timed("one click, until the root cause is there", async () => {
    await page.locator(".incidents a").first().click();
    await page.waitForSelector(".cause");
  });
  const first = await page.locator(".first").innerText();
  assert.match(first, /page cache pollution/);
  assert.match(first, /dd \(pid \d+\)/);
  assert.match(first, /\d+ % sure/);
  await settled(page);
  const box = await page.locator(".first").boundingBox();
  assert.ok(box.y + box.height < 900, "the first screen fits on a screen");
  // For the README: make test-web SHOTS=/tmp/shots && cp /tmp/shots/picture.png docs/page.png
  await page.screenshot({ path: join(shots, "picture.png"), clip: { x: 0, y: 0, width: 1440, height: 700 } });
  await page.locator(".first .copy").click();
  await page.getByText("Copied").first().waitFor();
  await checkLooks(page, "incident");
  await page.locator(".chain > li > button").nth(4).click();
  await page.locator(".chain > li:nth-child(5) .lanes").waitFor();
  const href = await page.getByRole("link", { name: "Report as a page" }).getAttribute("href");
  const html = await (await page.context().request.get(new URL(href, url).href)).text();
  assert.match(html, /<html/);
  assert.match(await page.getByRole("link", { name: "Download" }).getAttribute("download"), /^mitra-.*\.html$/);
  await checkGraph(page, WIDTHS);
}

async function checkProcesses(page, url) {
  await page.goto(`${url}#/time`);
  await settled(page);
  const over = await page.locator(".u-over").nth(1).boundingBox();
  await page.mouse.click(over.x + over.width * 0.6, over.y + 30);
  await page.getByRole("link", { name: /^Processes at/ }).click();
  await page.waitForSelector(".processes tbody tr");
  await page.getByRole("button", { name: "+1 s", exact: true }).click();
  await page.getByRole("button", { name: "CPU", exact: false }).first().click();
  await page.getByRole("searchbox").fill("dd");
  await page.waitForFunction(() => [...document.querySelectorAll(".processes tbody tr")].some((row) => row.textContent.includes("dd")));
  const sorted = () => page.locator('.processes th[aria-sort="descending"]').innerText();
  await page.getByRole("button", { name: "lost time" }).click();
  await page.waitForFunction(() => location.hash.includes("sort=lost"));
  assert.match(await sorted(), /lost time/);
  await page.getByLabel("tree").check();
  await page.getByRole("searchbox").fill("");
  await checkLooks(page, "processes");
  await page.getByRole("searchbox").fill("stockd");
  await page.locator(".processes tbody th a").first().click();
  await settled(page);
  await page.locator("#threads", { hasText: /thread/ }).waitFor();
  await checkLooks(page, "process");
}

async function checkTables(page, url) {
  for (const view of ["services", "findings"]) {
    await page.goto(`${url}#/${view}`);
    await page.waitForSelector("h2");
    await page.waitForTimeout(500);
    await checkLooks(page, view);
  }
}

/** Real captures of dd, whose times are those of the incident of the recording. */
async function checkCaptured(page, url) {
  await page.goto(`${url}#/time`);
  await page.locator(".incidents a").first().click();
  const graph = page.locator(".captured .flame");
  await timed("incident, until the flame graph is drawn", () => graph.locator(".frame").nth(5).waitFor());
  const total = await graph.locator(".told").innerText();
  assert.match(total, /^all: .*100 % of all/);
  await graph.getByRole("searchbox").fill("read");
  assert.ok((await graph.locator(".frame.hit").count()) > 0, "frames are found");
  assert.match(await graph.locator("output").innerText(), /^[\d.]+ m?s, \d+(\.\d)? % of all$/);
  await page.getByRole("link", { name: /^Alone/ }).click();
  await page.locator("article.capture .frame.hit").first().waitFor();
  const capture = page.url();
  const told = () => page.locator(".told").innerText();
  const before = await page.locator(".frame").count();
  await page.locator(".frame.hit").first().click();
  await page.waitForFunction(() => location.hash.includes("zoom="));
  assert.ok((await page.locator(".frame.above").count()) >= 2, "the frames above stay");
  assert.match(await told(), /of what is shown|100 % of all/);
  // By keys: one stop of the tab key, arrows between frames, Enter zooms, Escape shows the whole and stays in the view.
  assert.equal(await page.locator('.frame[tabindex="0"]').count(), 1);
  await page.locator('.frame[tabindex="0"]').focus();
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !location.hash.includes("zoom="));
  assert.equal(await page.locator(".frame").count(), before);
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-level")), "3");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.hash.includes("zoom="));
  await page.goto(capture.replace(/&?q=[^&]*/, ""));
  await checkLooks(page, "capture");
  const shown = page.locator("article.capture");
  // No frame is pointed at.
  await page.mouse.move(0, 0);
  await page.getByLabel("Compare with").selectOption({ index: 1 });
  await shown.locator(".frame.more, .frame.less").first().waitFor();
  assert.match(await told(), /on the other side/);
  await checkLooks(page, "differential");
  const cells = () => page.locator(".flame tbody tr").first().locator("th, td").allInnerTexts();
  const [name, mine, other] = await cells();
  assert.notEqual(mine, other);
  await page.getByRole("link", { name: "Swap" }).click();
  await page.waitForFunction((text) => document.querySelector(".flame tbody td")?.textContent === text, other);
  assert.deepEqual((await cells()).slice(0, 3), [name, other, mine]);
  await page.goto(`${url}#/captures`);
  await page.locator(".data tbody tr").nth(2).waitFor();
  await checkLooks(page, "captures");
}

async function checkCompare(page, url) {
  await page.goto(`${url}#/time`);
  await page.locator(".incidents a").first().click();
  await page.getByRole("link", { name: "Compare with before" }).click();
  await timed("compare, until what differs is there", () => page.locator(".differences tbody tr").nth(3).waitFor());
  assert.match(await page.locator("#differ").innerText(), /^\d+ things differ surely; most of all /);
  const all = await page.locator(".differences tbody tr").count();
  await page.getByLabel("Filter by metric or row").fill("disk.");
  await page.waitForFunction((all) => document.querySelectorAll(".differences tbody tr").length < all, all);
  await page.getByLabel("Filter by metric or row").fill("");
  await checkLooks(page, "compare");
  const until = page.getByLabel("B, until");
  const from = await page.getByLabel("B, from").inputValue();
  await until.fill(from);
  await page.getByRole("button", { name: "Compare", exact: true }).click();
  await page.getByRole("alert").waitFor();
}

/** An index of a folder, one of whose files was changed since. */
function makeIndex(archive) {
  const etc = join(scratch, "etc");
  mkdirSync(etc);
  const conf = join(etc, "app.conf");
  writeFileSync(conf, "listen = 8080\nDB_PASSWORD=correct-horse-7\nworkers = 4\n");
  writeFileSync(join(etc, "<img src=x>.conf"), "workers = <script>document.title = 'executed'</script>\n");
  const config = join(scratch, "index.toml");
  writeFileSync(config, `[index]\nfiles = [${JSON.stringify(etc)}]\ncollectors = []\n`);
  const index = () => execFileSync(MITRA, ["index", "--config", config, "--store", join(archive, "index")], { stdio: "ignore" });
  index();
  writeFileSync(conf, "listen = 8080\nDB_PASSWORD=correct-horse-7\nworkers = 16\n");
  index();
}

async function checkSearch(page, url) {
  await page.goto(`${url}#/search`);
  await page.locator(".data tbody tr").nth(1).waitFor();
  await page.getByText("Examples").click();
  await page.getByLabel("Query", { exact: true }).fill("workers");
  await page.keyboard.press("Enter");
  await page.waitForURL(/q=workers/);
  await page.locator(".data tbody tr").nth(1).waitFor();
  await checkLooks(page, "search");
  await page.locator(".data a", { hasText: "<img src=x>.conf" }).click();
  await page.locator("pre.content", { hasText: "<script>" }).waitFor();
  assert.equal(await page.locator("main img, main script").count(), 0, "names and contents are text");
  await page.goBack();
  await page.locator(".data a", { hasText: "app.conf" }).click();
  await page.locator("pre.content", { hasText: "workers = 16" }).waitFor();
  assert.ok(!(await page.locator("main").innerText()).includes("correct-horse"), "secrets are withheld");
  await page.locator(".diff .minus", { hasText: "workers = 4" }).waitFor();
  await page.getByText("Fields").waitFor();
  await checkLooks(page, "document");
  await page.goto(`${url}#/search?q=filename%3A%28`);
  await page.getByRole("alert").waitFor();
}

async function checkRecorder(page, url) {
  await page.goto(`${url}#/recorder`);
  await page.getByText("samples); ended").waitFor();
  await page.getByText("sudo mitra doctor", { exact: true }).waitFor();
  await checkLooks(page, "recorder");
}

async function checkLost(page, server, archive, seen) {
  await page.goto(`${server.url}#/time`);
  await settled(page);
  seen.isServerGone = true;
  await stop(server.child);
  await page.locator(".lost").waitFor();
  const again = await serve(archive, new URL(server.url).host);
  await page.waitForSelector(".lost", { state: "detached", timeout: 15000 });
  await settled(page);
  seen.isServerGone = false;
  return again;
}

async function checkLive(context, over) {
  const archive = join(scratch, "live");
  const recorder = start("record", "--archive", archive, "--no-bpf", "--no-arm");
  await new Promise((done) => setTimeout(done, 4000));
  const server = await serve(archive, "127.0.0.1:0");
  const page = await context.newPage();
  const seen = watch(page, server.url);
  await open(page, server.url);
  await page.goto(`${server.url}#/time?span=60`);
  await settled(page);
  await page.locator("header .live").waitFor();
  const first = await page.locator(".bar .range").last().innerText();
  await page.waitForFunction((text) => [...document.querySelectorAll(".bar .range")].at(-1).textContent !== text, first, { timeout: 8000 });
  await page.keyboard.press("l");
  await page.waitForFunction(() => !document.querySelector("header .live"));
  await page.screenshot({ path: join(shots, "live.png"), fullPage: true });
  await checkGoesOn(page, server.url, over);
  await page.goto(`${server.url}#/search`);
  assert.match(await page.getByRole("alert").innerText(), /mitra index --store/, "how to get an index");
  assert.deepEqual(seen.errors, []);
  assert.deepEqual(seen.elsewhere, []);
  await page.close();
  await stop(server.child);
  await stop(recorder);
}

const browser = await chromium.launch({ executablePath: CHROMIUM, args: process.getuid() === 0 ? ["--no-sandbox"] : [] });
try {
  const archive = join(scratch, "archive");
  execFileSync(MITRA, ["demo", "page-cache-flood", "--keep", archive], { stdio: "ignore" });
  cpSync(new URL("captures", import.meta.url), join(archive, "captures"), { recursive: true });
  makeIndex(archive);
  let server = await serve(archive, "127.0.0.1:0");
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, colorScheme: "light" });
  const page = await context.newPage();
  page.setDefaultTimeout(15000);
  const seen = watch(page, server.url);
  await weigh(server.url);
  await checkCache(server.url);
  await checkTimeline(page, server.url);
  await checkHeat(page, server.url);
  await checkChanges(page, server.url, { checkLooks });
  await checkEarlier(page, server.url, { settled, checkLooks });
  await checkIncident(page, server.url);
  await checkProcesses(page, server.url);
  await checkCgroups(page, server.url, { checkLooks });
  await checkThreads(page, server.url);
  await checkTables(page, server.url);
  await checkCaptured(page, server.url);
  await checkCompare(page, server.url);
  await checkSearch(page, server.url);
  await checkRecorder(page, server.url);
  await checkPhone(browser, server.url, { open, settled });
  server = await checkLost(page, server, archive, seen);
  assert.deepEqual(seen.errors, []);
  assert.deepEqual(seen.elsewhere, []);
  await stop(server.child);
  await checkLive(context, JSON.parse(execFileSync(MITRA, ["explain", "--json", "--archive", archive])));
  console.log(`ok; screenshots in ${shots}`);
} finally {
  await browser.close();
  for (const child of children) child.kill("SIGKILL");
  for (const name of ["archive", "live", "token", "etc", "index.toml"]) rmSync(join(scratch, name), { recursive: true, force: true });
  if (process.argv[2]) rmSync(scratch, { recursive: true, force: true });
}
