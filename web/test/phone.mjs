// The page under fingers: nothing is wider than a phone or too small to press, one finger moves the time line, and two zoom.
import assert from "node:assert/strict";

const WIDTHS = [320, 360, 430];
const LEAST_PX = 40;
const VIEWS = ["time", "processes", "processes?by=cgroup", "services", "findings", "captures", "compare", "search", "recorder"];
/** What is pressed. Frames of a flame graph are a drawing, and links in a text are as high as it is. */
const PRESSED = "button, .button, summary, select, input:not([type=checkbox]), .check, header a, .incidents a, .data tbody a";
const STEPS = 8;

/** Until a view has what it shows: what it waits for is a note that ends with dots. */
const read = (page) =>
  page.waitForFunction(() => {
    const notes = [...document.querySelectorAll(".note")];
    return !document.querySelector('[aria-busy="true"]') && !notes.some((note) => note.textContent.endsWith(" …"));
  });

/** Until what was asked of the page is drawn, what it draws then in turn, too. */
const drawn = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done()))));

async function checkView(page, view) {
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 700 });
    await page.waitForFunction((wanted) => innerWidth === wanted || document.documentElement.clientWidth === wanted, width);
    await drawn(page);
    const { scrolled, shown, small, squeezed } = await page.evaluate(
      ([pressed, least]) => {
        const boxes = [...document.querySelectorAll(pressed)].map((one) => ({ one, box: one.getBoundingClientRect() }));
        // What nobody sees is a pixel wide, or has no box.
        const small = boxes.filter(({ box }) => box.width > 1 && box.height > 0 && box.height < least - 0.5);
        return {
          scrolled: document.documentElement.scrollWidth,
          shown: document.documentElement.clientWidth,
          small: small.map(({ one, box }) => `${one.outerHTML.slice(0, 80)}: ${box.height} px`),
          squeezed: [...document.querySelectorAll("header nav a")].filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent),
        };
      },
      [PRESSED, LEAST_PX],
    );
    assert.ok(scrolled <= shown, `${view}: ${scrolled} px of page on a phone of ${shown}`);
    assert.deepEqual(small, [], `${view} on a phone of ${width}: too small for a finger`);
    assert.deepEqual(squeezed, [], "names of views do not overlap");
  }
}

/** Puts fingers down, moves them, and lifts them. */
async function drag(page, from, to) {
  const session = await page.context().newCDPSession(page);
  const send = (type, points) => session.send("Input.dispatchTouchEvent", { type, touchPoints: points.map(([x, y], id) => ({ x, y, id })) });
  await send("touchStart", from);
  for (let step = 1; step <= STEPS; step++) {
    const between = (index, axis) => from[index][axis] + ((to[index][axis] - from[index][axis]) * step) / STEPS;
    await send("touchMove", from.map((_, index) => [between(index, 0), between(index, 1)]));
    await drawn(page);
  }
  await send("touchEnd", []);
  await session.detach();
}

const isOther = (page, hash) => page.waitForFunction((before) => location.hash !== before, hash);

async function checkFingers(page, settled) {
  const window = async () => {
    const query = new URLSearchParams(page.url().split("?")[1]);
    const [since, until] = ["since", "until"].map((name) => Number(query.get(name)));
    return { since, length: until - since, hash: await page.evaluate(() => location.hash) };
  };
  await page.getByRole("button", { name: "all", exact: true }).tap();
  await page.waitForFunction(() => location.hash.includes("since="));
  await settled(page);
  const over = page.locator(".u-over").nth(1);
  /** The places of these shares of the time line, which may have moved since it was drawn. */
  const at = async (...shares) => {
    await over.scrollIntoViewIfNeeded();
    const box = await over.boundingBox();
    return shares.map((share) => [box.x + box.width * share, box.y + box.height / 2]);
  };
  const whole = await window();
  const [left, right, toLeft, toRight] = await at(0.4, 0.6, 0.2, 0.8);
  await drag(page, [left, right], [toLeft, toRight]);
  await isOther(page, whole.hash);
  const third = await window();
  assert.ok(Math.abs(third.length / whole.length - 1 / 3) < 0.05, `two fingers zoom: ${whole.length} s, ${third.length} s`);
  await settled(page);
  const [from, to] = await at(0.3, 0.7);
  await drag(page, [from], [to]);
  await isOther(page, third.hash);
  const moved = await window();
  assert.ok(Math.abs(moved.length - third.length) < 0.01, "one finger does not zoom");
  assert.ok(Math.abs((third.since - moved.since) / third.length - 0.4) < 0.06, `one finger moves: ${third.since}, ${moved.since}`);
  await settled(page);
  const [middle] = await at(0.5);
  await page.touchscreen.tap(...middle);
  await page.locator(".moment").waitFor();
}

export async function checkPhone(browser, url, { open, settled }) {
  const context = await browser.newContext({ viewport: { width: WIDTHS[0], height: 700 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 });
  const page = await context.newPage();
  page.setDefaultTimeout(15000);
  await open(page, url);
  await settled(page);
  await checkFingers(page, settled);
  for (const view of VIEWS) {
    await page.goto(`${url}#/${view}`);
    await page.locator("h2").first().waitFor();
    await read(page);
    await checkView(page, view);
  }
  await page.goto(`${url}#/time`);
  await page.locator(".incidents a").first().tap();
  await page.locator(".cause").waitFor();
  assert.equal(await page.evaluate(() => scrollY), 0, "another view begins at its top");
  await checkView(page, "incident");
  await context.close();
}
