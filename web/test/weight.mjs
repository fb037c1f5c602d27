// What a page weighs in a real browser: bytes over the wire, answers, and who is asked, in the first seconds of a first visit.
// node test/weight.mjs URL [SECONDS]
import { chromium } from "playwright-core";

const [url, seconds = "5"] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: process.getuid() === 0 ? ["--no-sandbox"] : [] });
try {
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  const wire = await page.context().newCDPSession(page);
  await wire.send("Network.enable");
  let [bytes, answers] = [0, 0];
  const hosts = new Set();
  wire.on("Network.requestWillBeSent", ({ request }) => {
    if (request.url.startsWith("http")) hosts.add(new URL(request.url).host);
  });
  // What is still coming counts as far as it has come.
  wire.on("Network.dataReceived", ({ encodedDataLength }) => {
    bytes += encodedDataLength;
  });
  wire.on("Network.loadingFinished", () => {
    answers++;
  });
  await page.goto(url);
  await page.waitForTimeout(Number(seconds) * 1000);
  const painted = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  console.log(`${(bytes / 1000).toFixed(0)} kB in ${answers} answers, of ${hosts.size} hosts (${[...hosts].join(", ")}); first paint after ${painted?.toFixed(0)} ms`);
} finally {
  await browser.close();
}
