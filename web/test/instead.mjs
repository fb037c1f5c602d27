// What the recordings here do not have: days before them, settings that were changed, an incident that goes on. The page gets it in
// place of what the server says.
import assert from "node:assert/strict";

/** Answers in place of the server's, until the returned function is called. */
async function instead(page, path, told) {
  const pattern = (asked) => asked.pathname.endsWith(`/api/v1/${path}`);
  const answer = async (route) => route.fulfill({ json: await told(route) });
  await page.route(pattern, answer);
  return () => page.unroute(pattern, answer);
}

export async function checkChanges(page, url, { checkLooks }) {
  const { since, until } = await (await page.context().request.get(`${url}api/v1/recording`)).json();
  const [from, to] = [since, until].map((text) => Date.parse(text));
  const at = (share) => new Date(from + (to - from) * share).toISOString();
  const one = { kind: "sysctl", name: "vm.swappiness", from: "60", to: "<b>1</b>" };
  const changes = [0.2, 0.2001, 0.7].map((share) => ({ ...one, at: at(share) }));
  const end = await instead(page, "changes", () => ({ since, until, changes, index_error: null }));
  await page.goto(`${url}#/time?since=${Math.floor(from / 1000)}&until=${Math.ceil(to / 1000)}`);
  // It may have been asked for this range before.
  await page.reload();
  await page.locator(".pins a").nth(1).waitFor();
  assert.deepEqual(await page.locator(".pins a").allInnerTexts(), ["▾2", "▾"], "near ones are one pin");
  await page.getByRole("region", { name: "What was changed" }).getByText("60 → <b>1</b>").first().waitFor();
  await checkLooks(page, "changes");
  await page.locator(".pins a").last().click();
  await page.locator(".moment").waitFor();
  await end();
}

/** The recording is said to begin eight days before, so that there are days to look back to. */
export async function checkEarlier(page, url, { settled, checkLooks }) {
  const [HOUR_S, DAY_S] = [3600, 86_400];
  let until = 0;
  const end = await instead(page, "recording", async (route) => {
    const told = await (await route.fetch()).json();
    until = Date.parse(told.until) / 1000;
    return { ...told, since: new Date(Date.parse(told.since) - 8 * DAY_S * 1000).toISOString() };
  });
  await page.goto(`${url}#/time`);
  await page.reload();
  await settled(page);
  const group = page.getByRole("group", { name: "The same time below" });
  for (const [label, days] of [["yesterday", 1], ["last week", 7]]) {
    const isThen = (address) => Math.abs(Number(address.searchParams.get("since")) - (until - HOUR_S - days * DAY_S)) < 2;
    const asked = page.waitForResponse((response) => response.url().includes("/series") && isThen(new URL(response.url())));
    await group.getByRole("button", { name: label }).click();
    await asked;
    await page.locator("#earlier", { hasText: label }).waitFor();
  }
  assert.equal(await page.locator(".lanes").count(), 2);
  await checkLooks(page, "earlier");
  await end();
  await page.reload();
}

/** An incident that goes on, in the numbers of one that is over: what is shown of it follows the recorder until it ends. */
export async function checkGoesOn(page, url, over) {
  const now = Math.floor(Date.now() / 1000);
  const stamp = (at) => new Date(at * 1000).toISOString();
  const [onset, end] = [stamp(now - 30), stamp(now + 1)];
  let asked = 0;
  const list = () => ({ since: onset, until: end, findings: [], incidents: [{ n: 2, since: onset, until: null, root: null, culprit: null, lost_task_s: null, headline: "" }] });
  const ends = [
    await instead(page, "incidents", list),
    await instead(page, "report", (route) => {
      asked += new URL(route.request().url()).searchParams.get("incident") === "2" ? 1 : 0;
      return { ...over, window: { since: onset, until: end }, incidents: [{ ...over.incidents[0], onset, end: asked > 1 ? end : null }] };
    }),
  ];
  // The link is of before: it was the first one then.
  await page.goto(`${url}#/incident/1?since=${now - 600}&until=${now + 3600}&onset=${now - 29}`);
  await page.locator(".first", { hasText: "it goes on" }).waitFor();
  await page.locator("h2", { hasText: "Incident 2" }).waitFor();
  await page.locator(".first", { hasText: /, for \d/ }).waitFor({ timeout: 45_000 });
  for (const done of ends) await done();
}
