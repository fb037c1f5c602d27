// How fast the page is on a long recording, in a real browser: until it is drawn, and frames a second while it is moved.
// node test/month.mjs URL    prints a line of JSON
import { chromium } from "playwright-core";

const [url] = process.argv.slice(2);
const MOVED_S = 5;
/** Between two turns of the wheel; a hand makes fewer. */
const TURN_MS = 50;

/** All lanes have their numbers, and nothing is being asked for. */
const settled = (page) => page.waitForFunction(() => document.querySelector('.lanes[aria-busy="false"] .legend td'));

async function seconds(work) {
  const start = performance.now();
  await work();
  return (performance.now() - start) / 1000;
}

/** Frames a second and the longest pause between two, while the wheel moves the time line. */
async function moved(page) {
  const over = await page.locator(".u-over").nth(1).boundingBox();
  await page.mouse.move(over.x + over.width / 2, over.y + over.height / 2);
  await page.evaluate(() => {
    globalThis.frames = [];
    const count = (at) => {
      globalThis.frames.push(at);
      globalThis.counting = requestAnimationFrame(count);
    };
    requestAnimationFrame(count);
  });
  await page.keyboard.down("Shift");
  const before = page.url();
  for (let turn = 0; turn < (MOVED_S * 1000) / TURN_MS; turn++) {
    await page.mouse.wheel(turn % 20 < 10 ? 100 : -100, 0);
    await page.waitForTimeout(TURN_MS);
    if (turn === 5 && page.url() === before) throw new Error("the wheel does not move the time line");
  }
  await page.keyboard.up("Shift");
  const frames = await page.evaluate(() => {
    cancelAnimationFrame(globalThis.counting);
    return globalThis.frames;
  });
  const gaps = frames.slice(1).map((at, index) => at - frames[index]);
  return { frames_per_s: (frames.length - 1) / ((frames.at(-1) - frames[0]) / 1000), longest_ms: Math.max(...gaps) };
}

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: process.getuid() === 0 ? ["--no-sandbox"] : [] });
try {
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  page.setDefaultTimeout(120_000);
  const open_s = await seconds(async () => {
    await page.goto(url);
    await settled(page);
  });
  const all_s = await seconds(async () => {
    const answer = page.waitForResponse((response) => response.url().includes("/series"));
    await page.getByRole("button", { name: "all", exact: true }).click();
    await answer;
    await settled(page);
  });
  await page.getByRole("button", { name: "1 d", exact: true }).click();
  await settled(page);
  console.log(JSON.stringify({ open_s, all_s, ...(await moved(page)) }));
} finally {
  await browser.close();
}
