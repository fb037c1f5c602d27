// The chain of an incident as a graph.
import assert from "node:assert/strict";

/** A box for each link, arrows that end at boxes, and the way from a box to the evidence of its link, by mouse and by keys. */
export async function checkGraph(page, widths) {
  const boxes = page.locator(".graph button");
  const links = await page.locator(".chain > li").count();
  assert.ok(links >= 5, `${links} links`);
  for (const width of widths) {
    await page.setViewportSize({ width, height: 900 });
    await page.waitForTimeout(250);
    const drawn = await page.evaluate(() => {
      const rects = (selector) => [...document.querySelectorAll(`.graph ${selector}`)].map((one) => one.getBoundingClientRect());
      const meet = (a, b, by) => a.left < b.right + by && b.left < a.right + by && a.top < b.bottom + by && b.top < a.bottom + by;
      const [all, heads, [svg]] = [rects("button"), rects(".head"), rects("svg")];
      return {
        boxes: all.length,
        covered: all.filter((a, index) => all.slice(index + 1).some((b) => meet(a, b, 0))).length,
        outside: all.filter((one) => one.left < svg.left - 1 || one.right > svg.right + 1 || one.bottom > svg.bottom + 1).length,
        heads: heads.length,
        loose: heads.filter((head) => !all.some((box) => meet(head, box, 2))).length,
      };
    });
    const { heads, ...others } = drawn;
    assert.deepEqual(others, { boxes: links, covered: 0, outside: 0, loose: 0 }, `at ${width}`);
    assert.ok(heads >= links - 1, `${heads} arrows: everything follows from the root`);
  }
  const lags = (await page.locator(".graph text").allTextContents()).filter(Boolean);
  assert.ok(lags.length > 0 && lags.every((lag) => /^[+−][\d.]+ (µs|ms|s|min|h)$/.test(lag)), lags.join());
  assert.equal(await page.locator(".graph .root").count(), 1);
  assert.match(await boxes.nth(1).getAttribute("aria-label"), /, brought about by /);
  const isOpen = (index) => page.locator(`.chain > li:nth-child(${index + 1}) .evidence`).waitFor();
  await boxes.nth(links - 1).click();
  await isOpen(links - 1);
  // What was opened has the focus.
  const has = (index) => [...document.querySelectorAll(".chain > li")].indexOf(document.activeElement.closest("li")) === index;
  await page.waitForFunction(has, links - 1);
  assert.equal(await page.locator('.graph [tabindex="0"]').count(), 1, "one stop of the tab key");
  await page.locator(".graph .root").focus();
  await page.keyboard.press("ArrowRight");
  const next = await page.evaluate(() => [...document.querySelectorAll(".graph button")].indexOf(document.activeElement));
  assert.ok(next > 0, "an arrow key goes to another box");
  await page.keyboard.press("Enter");
  await isOpen(next);
  assert.equal(await boxes.nth(next).getAttribute("aria-expanded"), "true");
}
